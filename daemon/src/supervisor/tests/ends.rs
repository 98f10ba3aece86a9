use std::time::Duration;

use procd_core::life::{Request, TreeSignal};
use procd_core::{LeaderEnd, ProcessState, Reason, StopMode};

use super::world::{Played, World, request, soon};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{Order, Report, StartRequest};
use crate::supervisor::{Caller, Started};

const SIGTERMED: LeaderEnd = LeaderEnd::Signal { signal: 15, core_dumped: false };
const SIGKILLED: LeaderEnd = LeaderEnd::Signal { signal: 9, core_dumped: false };

async fn reached(played: &Played, request: Request) {
    played.report(Report::Reached { request, alive: true, errors: Vec::new() }).await;
}

fn stop_in_background(
    world: &World,
    started: &Started,
    mode: StopMode,
    grace: Duration,
) -> tokio::task::JoinHandle<Result<crate::supervisor::StopOutcome, Refusal>> {
    let supervisor = world.supervisor.clone();
    let (owner, handle) = (started.view.owner, started.view.handle);
    tokio::spawn(
        async move { supervisor.stop(Caller::Owner(owner), handle, mode, Some(grace)).await },
    )
}

#[tokio::test]
async fn an_end_by_itself_is_exited_with_its_code_and_sealed() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    played.end(LeaderEnd::Code(7)).await;
    let mut view = started.view;
    let snapshot = soon("the end", view.ended()).await;
    assert!(snapshot.durable);
    assert_eq!((snapshot.record.state, snapshot.record.exit_code), (ProcessState::Exited, Some(7)));
    let sealed = view.snapshot.wait_for(|shown| shown.record.sha256.is_some());
    let sealed = soon("the seal", sealed).await.unwrap().record.clone();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(sealed.sha256.as_deref(), Some(empty));
    world.remove().await;
}

#[tokio::test]
async fn a_terminate_is_answered_only_after_the_proof() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let stop = stop_in_background(&world, &started, StopMode::Terminate, Duration::from_secs(60));
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Terminate, Request::Terminate));
    reached(&played, Request::Terminate).await;
    played.report(Report::LeaderEnded { leader: SIGTERMED, leftovers: 0 }).await;
    world.supervisor.status(None).await;
    assert!(!stop.is_finished(), "an ended leader is no proof");
    played.empty().await;
    let outcome = soon("the stop", stop).await.unwrap().unwrap();
    let record = outcome.snapshot.record;
    assert_eq!((record.state, record.reason), (ProcessState::Terminated, Some(Reason::Terminated)));
    assert!(!record.escalated && record.exit_code.is_none());
    world.remove().await;
}

#[tokio::test]
async fn a_grace_of_zero_escalates_at_once() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let stop = stop_in_background(&world, &started, StopMode::Terminate, Duration::ZERO);
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Terminate, Request::Terminate));
    reached(&played, Request::Terminate).await;
    assert_eq!(played.order().await, Order::Kill(None));
    played.end(SIGKILLED).await;
    let record = soon("the stop", stop).await.unwrap().unwrap().snapshot.record;
    assert_eq!((record.state, record.reason), (ProcessState::Killed, Some(Reason::Killed)));
    assert!(record.escalated);
    world.remove().await;
}

#[tokio::test]
async fn a_passed_deadline_names_the_end() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let timeout = Some(Duration::from_millis(20));
    let (started, played) = world.running(owner, StartRequest { timeout, ..request() }).await;
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Terminate, Request::Deadline));
    reached(&played, Request::Deadline).await;
    played.end(LeaderEnd::Code(0)).await;
    let mut view = started.view;
    let record = soon("the end", view.ended()).await.record;
    assert_eq!((record.state, record.reason), (ProcessState::TimedOut, Some(Reason::TimedOut)));
    world.remove().await;
}

#[tokio::test]
async fn an_interrupt_that_changes_nothing_answers_with_the_state_it_finds() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let stop = stop_in_background(&world, &started, StopMode::Interrupt, Duration::from_millis(20));
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Interrupt, Request::Interrupt));
    let outcome = soon("the stop", stop).await.unwrap().unwrap();
    assert_eq!(outcome.snapshot.record.state, ProcessState::Running);
    played.end(LeaderEnd::Code(0)).await;
    let mut view = started.view;
    let record = soon("the end", view.ended()).await.record;
    assert_eq!(record.state, ProcessState::Exited, "past its grace an interrupt names nothing");
    world.remove().await;
}

#[tokio::test]
async fn a_tree_that_is_not_proven_empty_keeps_its_slot_and_ends_truly_later() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let stop = stop_in_background(&world, &started, StopMode::Kill, Duration::ZERO);
    assert_eq!(played.order().await, Order::Kill(Some(Request::Kill)));
    reached(&played, Request::Kill).await;
    played.report(Report::LeaderEnded { leader: SIGKILLED, leftovers: 1 }).await;
    played.report(Report::NotEmpty { live: 1, waited: Duration::from_secs(10) }).await;
    let outcome = soon("the stop", stop).await.unwrap().unwrap();
    assert!(
        matches!(outcome.error, Some(Refusal::Teardown { live: 1, waited_ms: 10_000, .. })),
        "{outcome:?}"
    );
    assert_eq!(outcome.snapshot.record.state, ProcessState::Running);
    played.empty().await;
    let mut view = started.view;
    assert_eq!(soon("the end", view.ended()).await.record.state, ProcessState::Killed);
    world.remove().await;
}

#[tokio::test]
async fn leftovers_are_asked_then_killed_and_counted() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    played.report(Report::LeaderEnded { leader: LeaderEnd::Code(0), leftovers: 2 }).await;
    assert_eq!(played.order().await, Order::TerminateLeftovers);
    assert_eq!(played.order().await, Order::Kill(None));
    played.empty().await;
    let mut view = started.view;
    let record = soon("the end", view.ended()).await.record;
    assert_eq!((record.state, record.leftovers), (ProcessState::Exited, 2));
    world.remove().await;
}

#[tokio::test]
async fn a_stop_of_an_ended_process_gives_the_stored_result_without_a_signal() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (started, played) = world.running(owner, request()).await;
    let orders = played.orders.clone();
    played.end(LeaderEnd::Code(3)).await;
    let mut view = started.view.clone();
    soon("the end", view.ended()).await;
    for mode in [StopMode::Interrupt, StopMode::Terminate, StopMode::Kill] {
        let caller = Caller::Owner(owner);
        let stopped = world.supervisor.stop(caller, view.handle, mode, None).await.unwrap();
        assert_eq!(stopped.snapshot.record.exit_code, Some(3));
    }
    assert_eq!(orders.try_next(), None);
    world.remove().await;
}

#[tokio::test]
async fn a_shutdown_closes_admission_first_and_concurrent_callers_share_it() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let (_, played) = world.running(owner, request()).await;
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let supervisor = world.supervisor.clone();
            tokio::spawn(async move { supervisor.shutdown(None).await })
        })
        .collect();
    assert_eq!(played.order().await, Order::CloseInput);
    assert_eq!(played.order().await, Order::Signal(TreeSignal::Terminate, Request::Shutdown));
    let refused = world.start(owner, request()).await.unwrap_err();
    assert_eq!(refused, Refusal::ShuttingDown { what: "daemon" });
    reached(&played, Request::Shutdown).await;
    assert_eq!(played.orders.try_next(), None, "two callers, one signal");
    played.end(SIGTERMED).await;
    for run in runs {
        let outcome = soon("the shutdown", run).await.unwrap();
        assert_eq!((outcome.stopped, outcome.failures.len()), (1, 0));
    }
    world.remove().await;
}

#[tokio::test]
async fn a_kept_tree_runs_on_after_its_leader_and_says_what_ended_it() {
    let mut world = World::new().await;
    let owner = world.owner().await;
    let on_leader_exit = procd_core::OnLeaderExit::KeepTree;
    let (started, played) =
        world.running(owner, StartRequest { on_leader_exit, ..request() }).await;
    played.report(Report::LeaderEnded { leader: LeaderEnd::Code(4), leftovers: 3 }).await;
    let mut view = started.view;
    let kept = view.snapshot.wait_for(|shown| shown.record.leader.is_some());
    let kept = soon("the leader's end", kept).await.unwrap().record.clone();
    assert_eq!((kept.state, kept.leftovers), (ProcessState::Running, 3));
    assert_eq!(played.orders.try_next(), None, "nothing is signalled");
    played.empty().await;
    let record = soon("the end", view.ended()).await.record;
    assert_eq!((record.state, record.exit_code), (ProcessState::Exited, Some(4)));
    assert_eq!(record.ended_by, Some(procd_core::EndedBy::TreeEmpty));
    world.remove().await;
}
