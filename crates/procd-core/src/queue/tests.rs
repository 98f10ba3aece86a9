use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::lease::ClaimKind;
use crate::quota::SessionLimits;
use crate::{LoopId, SessionId};

fn owner(session: u8, loop_id: u8) -> Owner {
    Owner {
        session: SessionId::new(Uuid::from_u128(u128::from(session) + 1)).unwrap(),
        loop_id: LoopId::new(Uuid::from_u128(u128::from(loop_id) + 1)).unwrap(),
    }
}

const LIMITS: SessionLimits = SessionLimits {
    running_loop_max: 1,
    running_session_max: 2,
    memory_bytes: 100,
    spool_bytes: 100,
};

fn ledger(daemon_max: u64) -> Ledger {
    let mut ledger = Ledger::new(daemon_max);
    for session in 0..3 {
        ledger.open(owner(session, 0).session, LIMITS);
    }
    ledger
}

fn start(owner: Owner, bytes: u64) -> Wanted {
    let ceilings = Ceilings { memory_bytes: bytes, spool_bytes: bytes };
    Wanted { owner, ceilings: Some(ceilings), claim: None }
}

fn lease(owner: Owner, kind: ClaimKind) -> Wanted {
    let claim = Claim { kind, root: "/w".into(), paths: Vec::new() };
    Wanted { owner, ceilings: None, claim: Some(claim) }
}

fn numbers(granted: &[(u64, Granted)]) -> Vec<u64> {
    granted.iter().map(|(number, _)| *number).collect()
}

#[test]
fn a_full_loop_holds_up_only_itself() {
    let (mut line, mut ledger, mut leases) = (Line::default(), ledger(9), Leases::default());
    for (number, owner) in [owner(0, 0), owner(0, 0), owner(0, 1), owner(1, 0)].iter().enumerate() {
        line.enter(number as u64, start(*owner, 1));
    }
    let granted = line.pass(&mut ledger, &mut leases);
    assert_eq!(numbers(&granted), [0, 2, 3]);
    assert_eq!(line.starts_of(owner(0, 0).session), 1);
    let missing = line.missing(1);
    let wanted = QuotaError::Slots { scope: Scope::Loop, max: 1, in_use: 1 };
    assert_eq!(missing, Some(Missing::Quota(wanted)));
}

#[test]
fn a_small_start_does_not_overtake_a_big_one_of_its_session_for_ever() {
    let (mut line, mut ledger, mut leases) = (Line::default(), ledger(9), Leases::default());
    let held = ledger.reserve(owner(0, 2), Ceilings { memory_bytes: 50, spool_bytes: 1 }).unwrap();
    line.enter(1, start(owner(0, 0), 100));
    line.enter(2, start(owner(0, 1), 10));
    line.enter(3, start(owner(1, 1), 10));
    assert_eq!(numbers(&line.pass(&mut ledger, &mut leases)), [3]);
    ledger.release(held);
    assert_eq!(numbers(&line.pass(&mut ledger, &mut leases)), [1]);
}

#[test]
fn a_waiting_writer_is_not_overtaken_by_later_copies() {
    let (mut line, mut ledger, mut leases) = (Line::default(), ledger(9), Leases::default());
    line.enter(1, lease(owner(0, 0), ClaimKind::Snapshot));
    let mut first = line.pass(&mut ledger, &mut leases);
    line.enter(2, lease(owner(1, 0), ClaimKind::StructuredWrite));
    line.enter(3, lease(owner(2, 0), ClaimKind::Snapshot));
    assert!(line.pass(&mut ledger, &mut leases).is_empty());
    assert!(leases.release(first.remove(0).1.lease.unwrap()));
    assert_eq!(numbers(&line.pass(&mut ledger, &mut leases)), [2]);
    assert_eq!(line.missing(3), Some(Missing::Busy { by: None, is_own_client: false }));
}

#[test]
fn only_the_owner_is_told_what_blocks_it() {
    let (mut line, mut ledger, mut leases) = (Line::default(), ledger(9), Leases::default());
    let claim = Claim { kind: ClaimKind::BroadWrite, root: "/w".into(), paths: Vec::new() };
    let handle = Handle::from_bytes([3; 16]);
    let held = Held { owner: owner(0, 0), holder: Holder::Process(Some(handle)), claim };
    leases.hold(held);
    line.enter(1, lease(owner(0, 0), ClaimKind::Snapshot));
    line.enter(2, lease(owner(0, 1), ClaimKind::Snapshot));
    assert!(line.pass(&mut ledger, &mut leases).is_empty());
    assert_eq!(line.missing(1), Some(Missing::Busy { by: Some(handle), is_own_client: false }));
    assert_eq!(line.missing(2), Some(Missing::Busy { by: None, is_own_client: false }));
}

#[test]
fn a_claim_behind_a_lease_of_its_own_client_is_known_as_such() {
    let (mut line, mut ledger, mut leases) = (Line::default(), ledger(9), Leases::default());
    line.enter(1, lease(owner(0, 0), ClaimKind::Snapshot));
    assert_eq!(line.pass(&mut ledger, &mut leases).len(), 1);
    line.enter(2, lease(owner(0, 0), ClaimKind::StructuredWrite));
    assert!(line.pass(&mut ledger, &mut leases).is_empty());
    assert_eq!(line.leave(2), Some(Missing::Busy { by: None, is_own_client: true }));
}

proptest! {
    /// Whatever comes and goes: within one loop starts of one size are served in their order,
    /// nobody waits whose scopes and workspace are free, and in the end all is given back.
    #[test]
    fn starts_of_one_size_are_served_in_order_and_nobody_waits_in_vain(
        ops in prop::collection::vec((0u8..3, 0u8..2, any::<bool>()), 0..60)
    ) {
        let (mut line, mut ledger, mut leases) = (Line::default(), ledger(4), Leases::default());
        let mut running = Vec::new();
        let mut served: HashMap<Owner, u64> = HashMap::new();
        let mut owners = HashMap::new();
        for (number, (session, loop_id, ends)) in (0u64..).zip(ops) {
            if ends && !running.is_empty() {
                ledger.release(running.remove(0));
            } else {
                let owner = owner(session, loop_id);
                owners.insert(number, owner);
                line.enter(number, start(owner, 10));
            }
            for (number, granted) in line.pass(&mut ledger, &mut leases) {
                let owner = owners[&number];
                prop_assert!(served.get(&owner).is_none_or(|last| *last < number));
                served.insert(owner, number);
                running.extend(granted.reservation);
            }
            let waiting: Vec<_> = line.waiting.values().map(|w| w.wanted.owner).collect();
            for owner in waiting {
                let free = ledger.free(owner).unwrap();
                let slots = free.loop_slots.min(free.session_slots).min(free.daemon_slots);
                prop_assert_eq!(slots, 0, "waits beside free slots");
            }
        }
        running.drain(..).for_each(|reservation| ledger.release(reservation));
        while !line.is_empty() {
            for (_, granted) in line.pass(&mut ledger, &mut leases) {
                granted.reservation.into_iter().for_each(|got| ledger.release(got));
            }
        }
        prop_assert_eq!(ledger.running(), 0);
    }
}
