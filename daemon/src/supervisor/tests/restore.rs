use procd_core::settings::Limits;
use procd_core::{LeaderEnd, ProcessState, Reason};

use super::world::{World, request, soon};
use crate::supervisor::Caller;

#[tokio::test]
async fn what_ran_is_lost_and_what_had_ended_is_as_it_was() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (ended, played) = world.running(owner, request()).await;
    played.end(LeaderEnd::Code(3)).await;
    let mut ended = ended.view;
    soon("the seal", ended.snapshot.wait_for(|shown| shown.record.sha256.is_some())).await.unwrap();
    let before = ended.now().record;
    let (lost, _unfinished) = world.running(owner, request()).await;
    let lost = lost.view.handle;
    let mut path = world.close().await;
    for _ in 0..3 {
        let world = World::at(path, Limits::default(), None).await;
        let caller = Caller::Owner(owner);
        let view = world.supervisor.find(caller, ended.handle).await.unwrap();
        assert_eq!(view.now().record, before);
        let record = world.supervisor.find(caller, lost).await.unwrap().now().record;
        assert_eq!(
            (record.state, record.reason),
            (ProcessState::LostOnRestore, Some(Reason::LostOnRestore))
        );
        path = world.close().await;
    }
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn sessions_come_back_with_their_keys() {
    let world = World::new().await;
    let key = [9; 32];
    let rules = crate::supervisor::SessionRules { key: Some(key), ..Default::default() };
    let owner = world.supervisor.open_session(rules).await.unwrap().owner;
    let path = world.close().await;
    let world = World::at(path, Limits::default(), None).await;
    assert!(world.supervisor.attach_session(owner, key).await.is_ok());
    assert!(world.supervisor.attach_session(owner, [8; 32]).await.is_err());
    world.remove().await;
}
