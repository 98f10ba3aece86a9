use procd_core::ProcessState;
use procd_core::quota::QuotaError;
use procd_core::settings::Limits;

use super::world::{World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{Report, SpawnCause, SpawnFailure};
use crate::supervisor::{Caller, ListFilter};

fn list_all() -> ListFilter {
    ListFilter { limit: 100, ..ListFilter::default() }
}

#[tokio::test]
async fn a_start_is_answered_when_it_is_recorded_and_runs() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (start, played) = world.begin(owner, request()).await;
    assert!(!start.is_finished(), "no reply before the spawn is answered");
    played.report(Report::Spawned { pid: 1 }).await;
    let started = soon("the reply", start).await.unwrap().unwrap();
    assert_eq!(started.view.now().record.state, ProcessState::Running);
    played.end(procd_core::LeaderEnd::Code(0)).await;
    let mut view = started.view;
    soon("the end", view.ended()).await;
    world.remove().await;
}

#[tokio::test]
async fn a_failed_spawn_has_a_record_and_gives_everything_back() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let before = world.supervisor.list(Caller::Owner(owner), list_all()).await.unwrap().free;
    let (start, played) = world.begin(owner, request()).await;
    let failure = SpawnFailure { cause: SpawnCause::NoSuchProgram, errno: 2 };
    played.context.writer.finish();
    played.context.reports.send(Report::SpawnFailed(failure)).await;
    let refusal = soon("the reply", start).await.unwrap().unwrap_err();
    let Refusal::Spawn { process_id, failure: told } = refusal else { panic!("{refusal:?}") };
    assert_eq!(told, failure);
    let view = world.supervisor.find(Caller::Owner(owner), process_id).await.unwrap();
    let record = view.now().record;
    assert_eq!(record.state, ProcessState::Failed);
    assert_eq!(record.diagnostic.as_deref(), Some("no_such_program ENOENT"));
    let after = world.supervisor.list(Caller::Owner(owner), list_all()).await.unwrap().free;
    assert_eq!(before, after);
    world.remove().await;
}

#[tokio::test]
async fn a_refused_preparation_leaves_no_record() {
    let refusal = Refusal::Containment { message: "nothing usable".to_owned() };
    let world = World::with(Limits::default(), Some(refusal.clone())).await;
    let owner = world.owner().await;
    let answer = world.start(owner, request()).await;
    assert_eq!(answer.unwrap_err(), refusal);
    let page = world.supervisor.list(Caller::Owner(owner), list_all()).await.unwrap();
    assert!(page.views.is_empty());
    world.remove().await;
}

#[tokio::test]
async fn a_full_loop_refuses_by_name_and_a_freed_slot_is_usable_again() {
    let limits = Limits { running_loop_max: 1, ..Limits::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let refusal = world.start(owner, request()).await.unwrap_err();
    assert!(
        matches!(refusal, Refusal::Quota(QuotaError::Slots { max: 1, in_use: 1, .. })),
        "{refusal:?}"
    );
    played.end(procd_core::LeaderEnd::Code(0)).await;
    let mut view = started.view;
    soon("the end", view.ended()).await;
    let (_, played) = world.running(owner, request()).await;
    played.end(procd_core::LeaderEnd::Code(0)).await;
    world.remove().await;
}

#[tokio::test]
async fn a_foreign_handle_and_an_unknown_one_get_the_same_answer() {
    let mut world = World::new().await;
    let (owner, stranger) = (world.owner().await, world.owner().await);
    let (started, played) = world.running(owner, request()).await;
    // Another loop of the same session is no owner either.
    let sibling = procd_core::Owner { session: owner.session, ..stranger };
    let unknown = procd_core::Handle::from_bytes([7; 16]);
    for other in [stranger, sibling] {
        let foreign = world.supervisor.find(Caller::Owner(other), started.view.handle).await;
        let missing = world.supervisor.find(Caller::Owner(other), unknown).await;
        assert_eq!(foreign.unwrap_err(), missing.unwrap_err());
    }
    played.end(procd_core::LeaderEnd::Code(0)).await;
    world.remove().await;
}
