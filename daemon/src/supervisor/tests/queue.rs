use std::path::PathBuf;
use std::time::Duration;

use procd_core::lease::ClaimKind;
use procd_core::quota::{QuotaError, Scope};
use procd_core::settings::Limits;
use procd_core::{LeaderEnd, Owner};
use tokio_util::sync::CancellationToken;

use super::world::{World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{AskedClaim, StartRequest};
use crate::supervisor::{Caller, ListFilter, SessionRules};

const LONG: Duration = Duration::from_secs(600);

fn queued(timeout: Duration) -> StartRequest {
    StartRequest { queue_timeout: timeout, ..request() }
}

fn root() -> PathBuf {
    std::env::temp_dir().canonicalize().unwrap()
}

fn asked(kind: ClaimKind, paths: &[&str]) -> AskedClaim {
    AskedClaim { kind, root: root(), paths: paths.iter().map(PathBuf::from).collect(), prefix: "" }
}

fn claiming(kind: ClaimKind, paths: &[&str]) -> StartRequest {
    StartRequest { claim: Some(asked(kind, paths)), ..request() }
}

async fn free(world: &World, owner: Owner) -> procd_core::quota::Free {
    let filter = ListFilter { limit: 1, ..ListFilter::default() };
    let free = world.supervisor.list(Caller::Owner(owner), filter).await.unwrap().free.unwrap();
    // Others have slots of the daemon.
    procd_core::quota::Free { daemon_slots: 0, ..free }
}

fn one_each() -> Limits {
    Limits { running_loop_max: 1, ..Limits::default() }
}

#[tokio::test]
async fn a_queued_start_gets_the_slot_that_becomes_free() {
    let mut world = World::with(one_each(), None).await;
    let owner = world.owner().await;
    let before = free(&world, owner).await;
    let (_, played) = world.running(owner, request()).await;
    let supervisor = world.supervisor.clone();
    let waiting = tokio::spawn(async move {
        supervisor.start(owner, queued(LONG), &CancellationToken::new()).await
    });
    let other = world.owner().await;
    let (_, other_played) = world.running(other, queued(LONG)).await;
    assert!(!waiting.is_finished(), "a full loop holds up only itself");
    played.end(LeaderEnd::Code(0)).await;
    let played = world.played().await;
    played.report(crate::supervisor::runner::Report::Spawned { pid: 1 }).await;
    let mut view = soon("the queued start", waiting).await.unwrap().unwrap().view;
    played.end(LeaderEnd::Code(0)).await;
    soon("the end", view.ended()).await;
    other_played.end(LeaderEnd::Code(0)).await;
    assert_eq!(free(&world, owner).await, before);
    world.remove().await;
}

#[tokio::test]
async fn the_end_of_the_time_tells_what_was_missing_last() {
    let mut world = World::with(one_each(), None).await;
    let owner = world.owner().await;
    let (_, played) = world.running(owner, request()).await;
    let refusal = world.start(owner, queued(Duration::from_millis(30))).await.unwrap_err();
    let wanted = QuotaError::Slots { scope: Scope::Loop, max: 1, in_use: 1 };
    assert_eq!(refusal, Refusal::Quota(wanted));
    played.end(LeaderEnd::Code(0)).await;
    world.remove().await;
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_any_more_leaves_the_queue() {
    let limits = Limits { queued_session_max: 1, ..one_each() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    let (_, played) = world.running(owner, request()).await;
    let (supervisor, gone) = (world.supervisor.clone(), CancellationToken::new());
    let token = gone.clone();
    let waiting = tokio::spawn(async move { supervisor.start(owner, queued(LONG), &token).await });
    // The queue is full once the first one is in it.
    soon("a full queue", async {
        let short = || world.start(owner, queued(Duration::from_millis(1)));
        while !matches!(short().await, Err(Refusal::Queued { max: 1, .. })) {}
    })
    .await;
    gone.cancel();
    let refusal = soon("its answer", waiting).await.unwrap().unwrap_err();
    assert_eq!(refusal, Refusal::Withdrawn);
    played.end(LeaderEnd::Code(0)).await;
    world.remove().await;
}

#[tokio::test]
async fn a_shutdown_answers_the_queue_at_once() {
    let mut world = World::with(one_each(), None).await;
    let owner = world.owner().await;
    let (_, played) = world.running(owner, request()).await;
    let supervisor = world.supervisor.clone();
    let waiting = tokio::spawn(async move {
        supervisor.start(owner, queued(LONG), &CancellationToken::new()).await
    });
    let supervisor = world.supervisor.clone();
    let closing = tokio::spawn(async move { supervisor.close_session(owner, false, None).await });
    let refusal = soon("its answer", waiting).await.unwrap().unwrap_err();
    assert_eq!(refusal, Refusal::ShuttingDown { what: "session" });
    played.end(LeaderEnd::Code(0)).await;
    soon("the close", closing).await.unwrap().unwrap();
    world.remove().await;
}

#[tokio::test]
async fn claims_of_starts_follow_the_table_and_leave_nothing_when_refused() {
    let mut world = World::new().await;
    let (owner, other) = (world.owner().await, world.owner().await);
    let before = free(&world, other).await;
    let (writer, played) =
        world.running(owner, claiming(ClaimKind::ScopedWrite, &["a", "b/../c"])).await;
    let scoped = |paths: &[&str]| claiming(ClaimKind::ScopedWrite, paths);
    let refusal = world.start(owner, scoped(&["a/deep"])).await.unwrap_err();
    assert_eq!(refusal, Refusal::Busy { process_id: Some(writer.view.handle) });
    // Another owner is told nothing of it.
    let refusal = world.start(other, scoped(&["c"])).await.unwrap_err();
    assert_eq!(refusal, Refusal::Busy { process_id: None });
    assert_eq!(free(&world, other).await, before);
    for request in [claiming(ClaimKind::ReadOnly, &[]), scoped(&["b"]), scoped(&["ab"])] {
        let (_, reader) = world.running(other, request).await;
        reader.end(LeaderEnd::Code(0)).await;
    }
    played.end(LeaderEnd::Code(0)).await;
    let mut view = writer.view;
    soon("the end", view.ended()).await;
    world.ended(other, claiming(ClaimKind::BroadWrite, &[])).await;
    world.remove().await;
}

#[tokio::test]
async fn a_clients_lease_blocks_writers_until_it_is_released_or_its_connection_is_gone() {
    let mut world = World::new().await;
    let holder = world.supervisor.open_session(SessionRules::default()).await.unwrap();
    let (owner, connection) = (holder.owner, holder.attachment.connection());
    let other = world.owner().await;
    let none = CancellationToken::new();
    let acquire = |owner, connection, timeout| {
        let supervisor = world.supervisor.clone();
        let none = none.clone();
        async move {
            let asked = asked(ClaimKind::Snapshot, &[]);
            supervisor.acquire_lease(owner, connection, asked, timeout, &none).await
        }
    };
    let lease = acquire(owner, connection, Duration::ZERO).await.unwrap();
    let write = || claiming(ClaimKind::BroadWrite, &[]);
    // Its own start might wait for itself: answered at once, whatever the time given.
    let own = StartRequest { queue_timeout: LONG, ..write() };
    assert_eq!(world.start(owner, own).await.unwrap_err(), Refusal::Busy { process_id: None });
    assert_eq!(world.start(other, write()).await.unwrap_err(), Refusal::Busy { process_id: None });
    let foreign = world.supervisor.release_lease(other, lease.id).await;
    assert_eq!(foreign.unwrap_err(), Refusal::NotFound);
    world.supervisor.release_lease(owner, lease.id).await.unwrap();
    let again = world.supervisor.release_lease(owner, lease.id).await;
    assert_eq!(again.unwrap_err(), Refusal::NotFound);
    acquire(owner, connection, Duration::ZERO).await.unwrap();
    let supervisor = world.supervisor.clone();
    let waiting = StartRequest { queue_timeout: LONG, ..write() };
    let waiting =
        tokio::spawn(
            async move { supervisor.start(other, waiting, &CancellationToken::new()).await },
        );
    drop(holder);
    let played = world.played().await;
    played.report(crate::supervisor::runner::Report::Spawned { pid: 1 }).await;
    soon("the waiting writer", waiting).await.unwrap().unwrap();
    played.end(LeaderEnd::Code(0)).await;
    world.remove().await;
}
