use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{LoopId, SessionId};

fn owner(number: u128) -> Owner {
    Owner {
        session: SessionId::new(Uuid::from_u128(number)).unwrap(),
        loop_id: LoopId::new(Uuid::from_u128(number)).unwrap(),
    }
}

fn claim(kind: ClaimKind, root: &str, paths: &[&str]) -> Claim {
    Claim { kind, root: root.into(), paths: paths.iter().map(PathBuf::from).collect() }
}

#[test]
fn the_table_is_the_one_of_the_contract() {
    use Together::{Disjoint as D, No as N, Yes as Y};
    // read_only, scoped_write, broad_write, structured_write, snapshot, unclaimed
    let table = [
        [Y, Y, Y, Y, Y, Y],
        [Y, D, N, D, N, Y],
        [Y, N, N, N, N, Y],
        [Y, D, N, D, N, N],
        [Y, N, N, N, Y, N],
        [Y, Y, Y, N, N, Y],
    ];
    for (a, row) in ClaimKind::ALL.into_iter().zip(table) {
        for (b, wanted) in ClaimKind::ALL.into_iter().zip(row) {
            assert_eq!(together(a, b), wanted, "{a:?} {b:?}");
            assert_eq!(together(a, b), together(b, a), "{a:?} {b:?}");
        }
    }
}

#[test]
fn paths_are_compared_by_component_and_roots_that_are_apart_never_meet() {
    use ClaimKind::{BroadWrite, ScopedWrite, Snapshot, StructuredWrite};
    let broad = claim(BroadWrite, "/w/a", &[]);
    assert!(broad.goes_with(&claim(BroadWrite, "/w/ab", &[])), "a prefix of text is no parent");
    assert!(!broad.goes_with(&claim(Snapshot, "/w", &[])));
    assert!(!broad.goes_with(&claim(Snapshot, "/w/a/b", &[])));
    let scoped = claim(ScopedWrite, "/w", &["/w/src", "/w/doc"]);
    assert!(scoped.goes_with(&claim(StructuredWrite, "/w", &["/w/src2"])));
    assert!(!scoped.goes_with(&claim(StructuredWrite, "/w", &["/w/src/deep"])));
    assert!(!scoped.goes_with(&claim(StructuredWrite, "/w", &[])), "no paths is the whole root");
}

#[test]
fn a_blocker_of_the_same_client_is_named_before_others() {
    let mut leases = Leases::default();
    let snapshot = claim(ClaimKind::Snapshot, "/w", &[]);
    let held = |owner, holder| Held { owner, holder, claim: snapshot.clone() };
    leases.hold(held(owner(1), Holder::Client));
    let own = leases.hold(held(owner(2), Holder::Client));
    let write = claim(ClaimKind::BroadWrite, "/w", &[]);
    assert_eq!(leases.blocker(owner(2), &write).unwrap().owner, owner(2));
    assert!(leases.release(own));
    assert!(!leases.release(own), "exactly once");
    assert_eq!(leases.blocker(owner(2), &write).unwrap().owner, owner(1));
}

fn any_claim() -> impl Strategy<Value = Claim> {
    let place = prop::collection::vec(0u8..2, 0..3);
    let paths = prop::collection::vec(place.clone(), 0..3);
    (0usize..6, place, paths).prop_map(|(kind, root, paths)| {
        let path = |parts: &[u8]| {
            parts.iter().fold(PathBuf::from("/"), |path, part| path.join(part.to_string()))
        };
        let root = path(&root);
        let paths = paths.iter().map(|tail| root.join(path(tail).strip_prefix("/").unwrap()));
        Claim { kind: ClaimKind::ALL[kind], paths: paths.collect(), root }
    })
}

proptest! {
    #[test]
    fn going_together_is_mutual_and_what_is_held_always_goes_together(
        claims in prop::collection::vec((any_claim(), any::<bool>()), 0..30)
    ) {
        let mut leases = Leases::default();
        let mut numbers = Vec::new();
        for (claim, gives_back) in claims {
            for held in leases.held.values() {
                prop_assert_eq!(held.claim.goes_with(&claim), claim.goes_with(&held.claim));
            }
            if gives_back && let Some(number) = numbers.pop() {
                prop_assert!(leases.release(number));
            }
            if leases.blocker(owner(1), &claim).is_none() {
                let holder = Holder::Process(None);
                numbers.push(leases.hold(Held { owner: owner(1), holder, claim }));
            }
            let held: Vec<_> = leases.held.values().collect();
            for (index, a) in held.iter().enumerate() {
                for b in &held[index + 1..] {
                    prop_assert!(a.claim.goes_with(&b.claim));
                }
            }
        }
    }
}
