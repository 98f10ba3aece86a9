use std::time::Duration;

use procd_core::life::{Request, TreeSignal};
use procd_core::settings::Limits;
use procd_core::{LeaderEnd, SessionId};
use uuid::Uuid;

use super::world::{World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{Order, Report};
use crate::supervisor::{Caller, ListFilter, SessionRules, SessionState};

#[tokio::test]
async fn an_unknown_session_and_a_wrong_key_get_the_same_answer() {
    let world = World::new().await;
    let opened = world.supervisor.open_session(SessionRules::default()).await.unwrap();
    let key = opened.minted_key.unwrap();
    assert!(world.supervisor.attach_session(opened.owner, key).await.is_ok());
    let wrong = world.supervisor.attach_session(opened.owner, [0; 32]).await.unwrap_err();
    let mut nobody = opened.owner;
    nobody.session = SessionId::new(Uuid::from_u128(99)).unwrap();
    let unknown = world.supervisor.attach_session(nobody, key).await.unwrap_err();
    assert_eq!(wrong, unknown);
    world.remove().await;
}

#[tokio::test]
async fn an_id_in_use_is_refused_for_a_closed_session_too() {
    let world = World::new().await;
    let id = SessionId::new(Uuid::from_u128(5)).unwrap();
    let rules = || SessionRules { session_id: Some(id), ..SessionRules::default() };
    let owner = world.supervisor.open_session(rules()).await.unwrap().owner;
    let is_refused = |refusal| matches!(refusal, Refusal::Invalid { field: "session_id", .. });
    assert!(is_refused(world.supervisor.open_session(rules()).await.unwrap_err()));
    world.supervisor.close_session(owner, false, None).await.unwrap();
    assert!(is_refused(world.supervisor.open_session(rules()).await.unwrap_err()));
    world.remove().await;
}

#[tokio::test]
async fn a_close_stops_what_runs_and_leaves_it_readable() {
    let mut world = World::new().await;
    let opened = world.supervisor.open_session(SessionRules::default()).await.unwrap();
    let owner = opened.owner;
    let (started, played) = world.running(owner, request()).await;
    let supervisor = world.supervisor.clone();
    let close = tokio::spawn(async move { supervisor.close_session(owner, false, None).await });
    assert_eq!(played.order().await, Order::CloseInput);
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Terminate, Request::Shutdown));
    let refused = world.start(owner, request()).await.unwrap_err();
    assert_eq!(refused, Refusal::ShuttingDown { what: "session" });
    played
        .report(Report::Reached { request: Request::Shutdown, alive: true, errors: Vec::new() })
        .await;
    played.end(LeaderEnd::Code(0)).await;
    assert_eq!(soon("the close", close).await.unwrap().unwrap().stopped, 1);
    let key = opened.minted_key.unwrap();
    let attached = world.supervisor.attach_session(owner, key).await.unwrap();
    assert_eq!(attached.state, SessionState::Closed);
    assert!(world.supervisor.find(Caller::Owner(owner), started.view.handle).await.is_ok());
    world.remove().await;
}

/// A private daemon stays as long as one of them runs.
#[tokio::test]
async fn the_status_counts_the_idle_clocks_that_run() {
    let world = World::new().await;
    let clocks = async || world.supervisor.status(None).await.idle_clocks;
    let rules = SessionRules {
        idle_close: Some(Duration::from_secs(600)),
        key: Some([1; 32]),
        ..SessionRules::default()
    };
    let opened = world.supervisor.open_session(rules).await.unwrap();
    assert_eq!(clocks().await, 0);
    let owner = opened.owner;
    drop(opened);
    soon("the clock", async { while clocks().await == 0 {} }).await;
    let attached = world.supervisor.attach_session(owner, [1; 32]).await.unwrap();
    assert_eq!(clocks().await, 0);
    drop(attached);
    world.remove().await;
}

#[tokio::test]
async fn a_session_without_a_connection_closes_after_its_idle_time() {
    let world = World::new().await;
    let rules = SessionRules {
        idle_close: Some(Duration::from_millis(10)),
        key: Some([1; 32]),
        ..SessionRules::default()
    };
    let opened = world.supervisor.open_session(rules).await.unwrap();
    let owner = opened.owner;
    drop(opened);
    soon("the close", async {
        loop {
            let attached = world.supervisor.attach_session(owner, [1; 32]).await.unwrap();
            if attached.state == SessionState::Closed {
                break;
            }
            drop(attached);
            tokio::time::timeout(Duration::from_millis(15), std::future::pending::<()>())
                .await
                .unwrap_err();
        }
    })
    .await;
    world.remove().await;
}

#[tokio::test]
async fn ended_processes_beyond_the_count_are_removed_oldest_first() {
    let limits = Limits { retained_session_max: 2, ..Limits::default() };
    let mut world = World::with(limits, None).await;
    let owner = world.owner().await;
    let mut handles = Vec::new();
    for _ in 0..3 {
        let (started, played) = world.running(owner, request()).await;
        played.end(LeaderEnd::Code(0)).await;
        let mut view = started.view;
        handles.push(view.handle);
        soon("the seal", view.snapshot.wait_for(|shown| shown.record.sha256.is_some())).await.ok();
    }
    let caller = Caller::Owner(owner);
    // A look by its handle would count as use.
    let all = || world.supervisor.list(caller, ListFilter { limit: 9, ..ListFilter::default() });
    soon("the removal", async {
        while all().await.unwrap().views.len() > 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let kept: Vec<_> = all().await.unwrap().views.iter().map(|one| one.view.handle).collect();
    assert_eq!(kept, [handles[2], handles[1]]);
    world.remove().await;
}

/// Whoever opens a session for each piece of work is not refused for those that were closed.
#[tokio::test]
async fn the_longest_unused_closed_session_makes_room_for_a_new_one_and_an_open_one_never() {
    let limits = Limits { sessions_max: 3, ..Limits::default() };
    let world = World::with(limits, None).await;
    let open = || world.supervisor.open_session(SessionRules::default());
    let kept = open().await.unwrap();
    let (older, newer) = (open().await.unwrap(), open().await.unwrap());
    let is_refused = |refusal| matches!(refusal, Refusal::TooMany { what: "sessions_max", .. });
    assert!(is_refused(open().await.unwrap_err()));
    for opened in [&older, &newer] {
        world.supervisor.close_session(opened.owner, false, None).await.unwrap();
    }
    // Somebody is attached to each of them still.
    assert!(is_refused(open().await.unwrap_err()));
    let keys = [&kept, &older, &newer].map(|opened| (opened.owner, opened.minted_key.unwrap()));
    drop((kept.attachment, older.attachment, newer.attachment));
    let mut opened = Vec::new();
    for expected in [[true, false, true], [true, false, false]] {
        opened.push(open().await.unwrap());
        let mut there = [true; 3];
        for (is_there, (owner, key)) in there.iter_mut().zip(keys) {
            *is_there = world.supervisor.attach_session(owner, key).await.is_ok();
        }
        assert_eq!(there, expected);
    }
    assert!(is_refused(open().await.unwrap_err()));
    world.remove().await;
}
