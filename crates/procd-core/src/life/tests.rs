//! The grid of every state and event, the classification row by row, and random lives against a
//! model that knows only the rules of the spec.

use super::*;
use crate::state::{ProcessState as S, Reason as R};
use proptest::prelude::*;

const CODE: LeaderEnd = LeaderEnd::Code(3);
const SIGKILLED: LeaderEnd = LeaderEnd::Signal { signal: 9, core_dumped: false };
const SIGINTED: LeaderEnd = LeaderEnd::Signal { signal: 2, core_dumped: false };

fn every_event() -> Vec<Event> {
    let mut events = vec![
        Event::Spawned,
        Event::SpawnFailed,
        Event::Aborted,
        Event::InterruptGraceElapsed,
        Event::GraceElapsed,
        Event::LeaderEnded { leader: CODE, leftovers: 0 },
        Event::LeaderEnded { leader: SIGKILLED, leftovers: 2 },
        Event::LeftoverGraceElapsed,
        Event::TreeEmpty,
        Event::Lost,
    ];
    for &request in Request::ALL {
        events.push(Event::Requested(request));
        events.push(Event::Reached { request, alive: true });
        events.push(Event::Reached { request, alive: false });
    }
    events
}

/// Every combination of marks that can exist.
fn every_request_set() -> Vec<Requests> {
    let marks = [Mark::Unasked, Mark::Asked, Mark::ReachedAlive];
    let mut sets = Vec::new();
    for interrupt in marks {
        for terminate in marks {
            for shutdown in marks {
                for deadline in marks {
                    for kill in marks {
                        for (escalated, interrupt_expired) in
                            [(false, false), (true, false), (false, true), (true, true)]
                        {
                            sets.push(Requests {
                                interrupt,
                                interrupt_expired,
                                terminate,
                                shutdown,
                                deadline,
                                kill,
                                escalated,
                            });
                        }
                    }
                }
            }
        }
    }
    sets
}

fn every_life() -> Vec<Life> {
    let mut lives = Vec::new();
    for requests in every_request_set() {
        for rule in [OnLeaderExit::KillTree, OnLeaderExit::KeepTree] {
            lives.push(Life::Starting { requests, rule });
            lives.push(Life::Running { requests, rule });
        }
        for leader in [CODE, SIGKILLED, SIGINTED] {
            lives.push(Life::Ending { requests, leader, leftovers: 1 });
            for ending in std::iter::once(None).chain(Request::ALL.iter().copied().map(Some)) {
                lives.push(Life::Kept { requests, leader, leftovers: 1, ending });
            }
        }
    }
    lives.push(Life::Ended { end: End::FAILED, leader: None, leftovers: 0, ended_by: None });
    lives.push(Life::Ended {
        end: classify(CODE, &Requests::default()),
        leader: Some(CODE),
        leftovers: 0,
        ended_by: None,
    });
    lives
}

fn rank(life: Life) -> u8 {
    match life {
        Life::Starting { .. } => 0,
        Life::Running { .. } => 1,
        Life::Ending { .. } | Life::Kept { .. } => 2,
        Life::Ended { .. } => 3,
    }
}

#[test]
fn every_state_answers_every_event_and_keeps_the_laws() {
    for life in every_life() {
        for event in every_event() {
            let Step::Go(next, actions) = step(life, event) else { continue };
            assert!(rank(next) >= rank(life), "{life:?} {event:?} went back");
            assert!(rank(life) < 3, "{life:?} {event:?}: an ended life changed");
            let ends = rank(next) == 3;
            assert_eq!(actions.contains(&Action::CommitEnd), ends, "{life:?} {event:?}");
            if ends {
                assert_eq!(actions, TERMINAL, "{life:?} {event:?}");
            }
            let acts = |action: &Action| {
                matches!(action, Action::Signal(..) | Action::Kill(_) | Action::AbortSpawn)
            };
            // The signal of a stop never waits behind its record.
            if let Some(record) = actions.iter().position(|a| matches!(a, Action::RecordStop(_)))
                && let Some(signal) = actions.iter().position(acts)
            {
                assert!(signal < record, "{life:?} {event:?}");
            }
            // `running` is written before anything is done to what runs.
            if let Some(commit) = actions.iter().position(|a| *a == Action::CommitRunning) {
                assert_eq!(commit, 0, "{life:?} {event:?}");
            }
        }
    }
}

#[test]
fn a_running_life_ends_only_through_the_proof_or_a_loss() {
    for life in every_life() {
        for event in every_event() {
            if let (
                Life::Running { .. } | Life::Ending { .. } | Life::Kept { .. },
                Step::Go(Life::Ended { .. }, _),
            ) = (life, step(life, event))
            {
                assert!(
                    matches!(event, Event::TreeEmpty | Event::Lost),
                    "{life:?} ended by {event:?}"
                );
            }
        }
    }
}

#[test]
fn late_timers_and_repeated_stops_change_nothing_after_the_end() {
    let ended = Life::Ended { end: End::FAILED, leader: None, leftovers: 0, ended_by: None };
    for event in every_event() {
        match step(ended, event) {
            Step::Ignore | Step::Bug(_) => {}
            Step::Go(..) => panic!("{event:?}"),
        }
    }
    for &request in Request::ALL {
        assert_eq!(step(ended, Event::Requested(request)), Step::Ignore);
    }
}

fn reached(requests: &[Request]) -> Requests {
    requests
        .iter()
        .fold(Requests::default(), |set, &request| mark(set, request, Mark::ReachedAlive))
}

#[test]
fn the_classification_table_holds_row_by_row() {
    use Request::{Deadline, Interrupt, Kill, Shutdown, Terminate};
    let sigterm = LeaderEnd::Signal { signal: 15, core_dumped: false };
    let escalated = |requests: &[Request]| Requests { escalated: true, ..reached(requests) };
    type Row = (LeaderEnd, Requests, S, R, Option<i32>, bool);
    let rows: &[Row] = &[
        (CODE, reached(&[]), S::Exited, R::Exited, Some(3), false),
        (sigterm, reached(&[]), S::Exited, R::Exited, Some(143), false),
        (SIGKILLED, reached(&[]), S::Exited, R::Exited, Some(137), false),
        (CODE, reached(&[Deadline]), S::TimedOut, R::TimedOut, None, false),
        (SIGKILLED, escalated(&[Deadline]), S::TimedOut, R::TimedOut, None, true),
        (SIGINTED, reached(&[Interrupt]), S::Interrupted, R::Interrupted, None, false),
        (CODE, reached(&[Interrupt]), S::Interrupted, R::Interrupted, None, false),
        (CODE, reached(&[Terminate]), S::Terminated, R::Terminated, None, false),
        (sigterm, escalated(&[Terminate]), S::Terminated, R::Terminated, None, true),
        (SIGKILLED, escalated(&[Terminate]), S::Killed, R::Killed, None, true),
        (SIGKILLED, reached(&[Kill]), S::Killed, R::Killed, None, false),
        (CODE, reached(&[Kill]), S::Exited, R::Exited, Some(3), false),
        (sigterm, reached(&[Shutdown]), S::Terminated, R::RunnerShutdown, None, false),
        (SIGKILLED, escalated(&[Shutdown]), S::Killed, R::RunnerShutdown, None, true),
        // The strongest that reached it alive names the end.
        (SIGKILLED, reached(&[Deadline, Kill]), S::Killed, R::Killed, None, false),
        (CODE, reached(&[Interrupt, Terminate, Deadline]), S::TimedOut, R::TimedOut, None, false),
        (CODE, reached(&[Terminate, Shutdown]), S::Terminated, R::RunnerShutdown, None, false),
        (SIGINTED, reached(&[Interrupt, Terminate]), S::Terminated, R::Terminated, None, false),
    ];
    for (leader, requests, state, reason, exit_code, escalated) in rows {
        let end = classify(*leader, requests);
        let expected =
            End { state: *state, reason: *reason, exit_code: *exit_code, escalated: *escalated };
        assert_eq!(end, expected, "{leader:?} {requests:?}");
    }
}

fn kept(events: &[Event]) -> Life {
    let rule = OnLeaderExit::KeepTree;
    let mut life = Life::Running { requests: Requests::default(), rule };
    let ended = Event::LeaderEnded { leader: CODE, leftovers: 2 };
    for event in std::iter::once(&ended).chain(events) {
        if let Step::Go(next, _) = step(life, *event) {
            life = next;
        }
    }
    life
}

#[test]
fn a_kept_tree_keeps_the_leaders_end_and_says_what_ended_it() {
    use EndedBy as By;
    let rows: &[(&[Event], By)] = &[
        (&[], By::TreeEmpty),
        (&[Event::Requested(Request::Interrupt)], By::Stop),
        (&[Event::Requested(Request::Interrupt), Event::InterruptGraceElapsed], By::TreeEmpty),
        (&[Event::Requested(Request::Terminate)], By::Stop),
        (&[Event::Requested(Request::Terminate), Event::GraceElapsed], By::Stop),
        (&[Event::Requested(Request::Deadline)], By::Deadline),
        (
            &[Event::Requested(Request::Deadline), Event::Requested(Request::Terminate)],
            By::Deadline,
        ),
        (&[Event::Requested(Request::Shutdown)], By::Shutdown),
        (&[Event::Requested(Request::Shutdown), Event::Requested(Request::Kill)], By::Stop),
    ];
    for (events, by) in rows {
        let mut events = events.to_vec();
        events.push(Event::TreeEmpty);
        let Life::Ended { end, leader, leftovers, ended_by } = kept(&events) else {
            panic!("{events:?}");
        };
        assert_eq!((end.state, end.exit_code, leader), (S::Exited, Some(3), Some(CODE)));
        assert_eq!((leftovers, ended_by), (2, Some(*by)), "{events:?}");
    }
}

#[test]
fn a_tree_is_not_kept_when_its_end_was_asked_or_nothing_is_left() {
    let rule = OnLeaderExit::KeepTree;
    let asked = mark(Requests::default(), Request::Terminate, Mark::ReachedAlive);
    for (requests, leftovers) in [(asked, 2), (Requests::default(), 0)] {
        let life = Life::Running { requests, rule };
        let Step::Go(next, actions) = step(life, Event::LeaderEnded { leader: CODE, leftovers })
        else {
            panic!("{requests:?}");
        };
        assert!(matches!(next, Life::Ending { .. }), "{next:?}");
        assert!(actions.is_empty(), "a stop has signalled the tree already");
    }
}

#[test]
fn an_interrupt_past_its_grace_counts_only_by_its_own_signal() {
    let late = Requests { interrupt_expired: true, ..reached(&[Request::Interrupt]) };
    assert_eq!(classify(SIGINTED, &late).state, S::Interrupted);
    assert_eq!(classify(CODE, &late).state, S::Exited);
}

#[test]
fn a_request_that_found_the_leader_dead_explains_nothing() {
    for &request in Request::ALL {
        let asked = mark(Requests::default(), request, Mark::Asked);
        assert_eq!(classify(CODE, &asked).state, S::Exited, "{request:?}");
    }
}

#[test]
fn an_end_always_has_a_fitting_reason_and_a_code_exactly_when_exited() {
    for requests in every_request_set() {
        let ends = [CODE, SIGKILLED, SIGINTED].map(|leader| classify(leader, &requests));
        for end in ends.into_iter().chain([classify_unstarted(&requests)]) {
            assert!(end.state.fits(Some(end.reason)), "{end:?}");
            assert!(end.state.is_terminal());
            assert_eq!(end.exit_code.is_some(), end.state == S::Exited, "{end:?}");
        }
    }
}

/// What a scripted world does to a process, in order.
fn any_event() -> impl Strategy<Value = Event> {
    prop::sample::select(every_event())
}

proptest! {
    /// Whatever comes, in whatever order: terminal at most once, never undone, and the name of
    /// the end is one that a request which was really made can explain.
    #[test]
    fn random_lives_end_once_and_truly(
        events in prop::collection::vec(any_event(), 1..60),
        rule in prop::sample::select(vec![OnLeaderExit::KillTree, OnLeaderExit::KeepTree]),
    ) {
        let mut life = Life::Starting { requests: Requests::default(), rule };
        let mut terminalizations = 0;
        let mut made: Vec<Request> = Vec::new();
        for event in events {
            if let (Event::Requested(request), Life::Starting { .. } | Life::Running { .. }) = (event, life) {
                made.push(request);
            }
            if let Event::Reached { request, .. } = event && !made.contains(&request) {
                // The reaper reports only what was asked.
                continue;
            }
            if let Step::Go(next, actions) = step(life, event) {
                terminalizations += actions.iter().filter(|a| **a == Action::CommitEnd).count();
                life = next;
            }
        }
        prop_assert!(terminalizations <= 1);
        if let Life::Ended { end, .. } = life {
            prop_assert_eq!(terminalizations, 1);
            let explained = match end.state {
                S::Killed => made.contains(&Request::Kill)
                    || made.contains(&Request::Terminate)
                    || made.contains(&Request::Shutdown),
                S::TimedOut => made.contains(&Request::Deadline),
                S::Interrupted => made.contains(&Request::Interrupt),
                S::Terminated => made.contains(&Request::Terminate) || made.contains(&Request::Shutdown),
                S::Exited | S::Failed => true,
                S::Starting | S::Running | S::LostOnRestore => false,
            };
            prop_assert!(explained, "{:?} by {:?}", end, made);
        }
    }
}
