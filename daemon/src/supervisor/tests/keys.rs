use procd_core::LeaderEnd;

use super::world::{World, request, soon};
use crate::supervisor::Caller;
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{AskedKey, Report, SpawnCause, SpawnFailure, StartRequest};

fn keyed(key: &str, body: u8) -> StartRequest {
    StartRequest { key: Some(AskedKey { key: key.to_owned(), body: [body; 32] }), ..request() }
}

#[tokio::test]
async fn a_start_sent_again_is_the_same_process_also_after_its_end_and_a_restart() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (first, played) = world.running(owner, keyed("k", 1)).await;
    let again = world.start(owner, keyed("k", 1)).await.unwrap();
    assert_eq!(again.view.handle, first.view.handle);
    assert_eq!(world.start(owner, keyed("k", 2)).await.unwrap_err(), Refusal::KeyCollision);
    played.end(LeaderEnd::Code(0)).await;
    let mut view = first.view;
    soon("the end", view.ended()).await;
    let ended = world.start(owner, keyed("k", 1)).await.unwrap();
    assert!(ended.view.now().is_terminal());
    let world = World::at(world.close().await, procd_core::settings::Limits::default(), None).await;
    let restored = world.start(owner, keyed("k", 1)).await.unwrap();
    assert_eq!(restored.view.handle, view.handle);
    assert_eq!(world.start(owner, keyed("k", 2)).await.unwrap_err(), Refusal::KeyCollision);
    world.remove().await;
}

#[tokio::test]
async fn two_at_once_join_and_another_owner_has_keys_of_its_own() {
    let mut world = World::new().await;
    let (owner, other) = (world.owner().await, world.owner().await);
    let (start, played) = world.begin(owner, keyed("k", 1)).await;
    let supervisor = world.supervisor.clone();
    let joined = tokio::spawn(async move {
        supervisor.start(owner, keyed("k", 1), &tokio_util::sync::CancellationToken::new()).await
    });
    let (of_other, other_played) = world.running(other, keyed("k", 2)).await;
    assert!(!joined.is_finished(), "it waits for the start it joined");
    played.report(Report::Spawned { pid: 1 }).await;
    let first = soon("the start", start).await.unwrap().unwrap();
    let joined = soon("the joined start", joined).await.unwrap().unwrap();
    assert_eq!(joined.view.handle, first.view.handle);
    assert_ne!(of_other.view.handle, first.view.handle);
    played.end(LeaderEnd::Code(0)).await;
    other_played.end(LeaderEnd::Code(0)).await;
    world.remove().await;
}

#[tokio::test]
async fn a_failed_start_stays_what_it_was() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (start, played) = world.begin(owner, keyed("k", 1)).await;
    let failure = SpawnFailure { cause: SpawnCause::NoSuchProgram, errno: 2 };
    played.context.writer.finish();
    played.context.reports.send(Report::SpawnFailed(failure)).await;
    let first = soon("the reply", start).await.unwrap().unwrap_err();
    assert_eq!(world.start(owner, keyed("k", 1)).await.unwrap_err(), first);
    world.remove().await;
}

#[tokio::test]
async fn a_start_refused_before_its_record_is_not_remembered() {
    let limits = procd_core::settings::Limits { running_loop_max: 1, ..Default::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    let (_, played) = world.running(owner, request()).await;
    let refusal = world.start(owner, keyed("k", 1)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Quota(_)), "{refusal:?}");
    let other_body =
        StartRequest { queue_timeout: std::time::Duration::from_secs(600), ..keyed("k", 2) };
    let supervisor = world.supervisor.clone();
    let start = tokio::spawn(async move {
        supervisor.start(owner, other_body, &tokio_util::sync::CancellationToken::new()).await
    });
    played.end(LeaderEnd::Code(0)).await;
    let played = world.played().await;
    played.report(Report::Spawned { pid: 1 }).await;
    soon("the start", start).await.unwrap().unwrap();
    played.end(LeaderEnd::Code(0)).await;
    world.remove().await;
}

#[tokio::test]
async fn a_removed_record_is_told_by_its_key_over_a_restart() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let handle = world.ended(owner, keyed("k", 1)).await;
    soon("the removal", world.supervisor.remove(Caller::Owner(owner), handle)).await.unwrap();
    let removed = Refusal::KeyRemoved { process_id: handle };
    assert_eq!(world.start(owner, keyed("k", 1)).await.unwrap_err(), removed);
    let world = World::at(world.close().await, procd_core::settings::Limits::default(), None).await;
    assert_eq!(world.start(owner, keyed("k", 1)).await.unwrap_err(), removed);
    assert_eq!(world.start(owner, keyed("k", 2)).await.unwrap_err(), Refusal::KeyCollision);
    world.remove().await;
}
