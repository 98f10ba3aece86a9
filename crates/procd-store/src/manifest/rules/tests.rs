use procd_core::state::{ProcessState as S, Reason, SpoolState, Tier};

use super::*;
use crate::record::SignalError;
use crate::testing::{at, exited, handle, running, sealed, session_id, starting};

/// A valid record of each state.
fn of_state(state: S) -> Record {
    let (reason, code) = match state {
        S::Starting => return starting(0, 1),
        S::Running => return running(0, 1),
        S::Exited => (Reason::Exited, Some(3)),
        S::Failed => (Reason::Failed, None),
        S::TimedOut => (Reason::TimedOut, None),
        S::Interrupted => (Reason::Interrupted, None),
        S::Terminated => (Reason::Terminated, None),
        S::Killed => (Reason::Killed, None),
        S::LostOnRestore => (Reason::LostOnRestore, None),
    };
    let mut record = exited(0, 1);
    record.state = state;
    record.reason = Some(reason);
    record.exit_code = code;
    record
}

fn broken(record: &Record) -> &'static str {
    check_alone(record).unwrap_err().field
}

#[test]
fn a_record_of_each_state_is_valid_by_itself() {
    for &state in S::ALL {
        check_alone(&of_state(state)).unwrap();
    }
}

#[test]
fn each_rule_for_a_record_alone_names_its_field() {
    type Break = (&'static str, fn(&mut Record));
    let breaks: &[Break] = &[
        ("version", |r| r.version = 2),
        ("version", |r| r.version = 0),
        ("access", |r| r.access.effective = Access::BroadWrite),
        ("started_at", |r| r.started_at = None),
        ("started_at", |r| r.started_at = Some(at(0))),
        ("finished_at", |r| r.finished_at = None),
        ("finished_at", |r| r.finished_at = Some(at(1))),
        ("exit_code", |r| r.exit_code = None),
        ("exit_code", |r| r.exit_code = Some(256)),
        ("exit_code", |r| r.exit_code = Some(-1)),
        ("reason", |r| r.reason = None),
        ("reason", |r| r.reason = Some(Reason::Failed)),
        ("diagnostic", |r| r.diagnostic = Some("x".repeat(513))),
        ("retained_from", |r| r.retained_from = r.total_bytes + 1),
        ("ids.started", |r| r.ids.started = Uuid::nil()),
        ("ids.notification", |r| r.ids.notification = r.ids.lost),
    ];
    for (field, spoil) in breaks {
        let mut record = exited(0, 1);
        spoil(&mut record);
        assert_eq!(broken(&record), *field);
    }
}

#[test]
fn start_end_and_code_go_with_the_state() {
    for &state in S::ALL {
        let is_optional = matches!(state, S::Failed | S::Killed | S::Terminated | S::LostOnRestore);
        let mut record = of_state(state);
        record.started_at = None;
        record.duration_ms = None;
        let needs = !is_optional && state != S::Starting;
        assert_eq!(check_alone(&record).is_err(), needs, "{state}: started");
        let mut record = of_state(state);
        record.finished_at = if state.is_terminal() { None } else { Some(at(9)) };
        assert_eq!(broken(&record), "finished_at", "{state}");
        let mut record = of_state(state);
        record.exit_code = if state == S::Exited { None } else { Some(0) };
        assert_eq!(broken(&record), "exit_code", "{state}");
        for &reason in Reason::ALL {
            let mut record = of_state(state);
            record.reason = Some(reason);
            assert_eq!(check_alone(&record).is_ok(), state.fits(Some(reason)), "{state} {reason}");
        }
    }
}

#[test]
fn effective_access_never_exceeds_what_was_asked() {
    let order = [Access::ReadOnly, Access::ScopedWrite, Access::BroadWrite];
    for &asked in Access::ALL {
        for &effective in Access::ALL {
            let rank = |access| order.iter().position(|&other| other == access);
            let fits = match (rank(asked), rank(effective)) {
                (Some(asked), Some(effective)) => effective <= asked,
                (asked, effective) => asked == effective,
            };
            let mut record = starting(0, 1);
            (record.access.asked, record.access.effective) = (asked, effective);
            assert_eq!(check_alone(&record).is_ok(), fits, "{asked} {effective}");
        }
    }
}

#[test]
fn only_starting_is_a_first_save() {
    for &state in S::ALL {
        assert_eq!(check_first(&of_state(state)).is_ok(), state == S::Starting, "{state}");
    }
}

#[test]
fn states_follow_the_table_only_and_an_identical_save_is_fine() {
    for &from in S::ALL {
        for &to in S::ALL {
            let mut next = of_state(to);
            if next.started_at.is_some() || from == S::Starting {
                // What was started stays started.
            } else {
                next.started_at = of_state(from).started_at;
            }
            let stored = Stored::of(&of_state(from));
            let is_good = from == to || from.may_become(to);
            let checked = stored.check(&next);
            assert_eq!(checked.is_ok(), is_good, "{from} -> {to}: {checked:?}");
        }
    }
}

#[test]
fn what_is_fixed_at_the_first_save_never_changes() {
    type Change = (&'static str, fn(&mut Record));
    let changes: &[Change] = &[
        ("process_id", |r| r.process_id = handle(9)),
        ("session_id", |r| r.session_id = session_id(9)),
        ("loop_id", |r| r.loop_id = crate::testing::loop_id(9)),
        ("origin", |r| r.origin = OriginId::new(Uuid::from_u128(9)).unwrap()),
        ("command", |r| r.command.line = Some("other".into())),
        ("command", |r| r.command.argv = Some(vec!["sleep1".into()])),
        ("command", |r| r.command.cwd = Some(String::new())),
        ("command", |r| r.command.truncated = true),
        ("access.asked", |r| r.access.asked = Access::BroadWrite),
        ("access.enforced", |r| r.access.enforced = Some("landlock".into())),
        ("tty", |r| r.tty = Some(TtySize { rows: 1, cols: 1 })),
        ("created_at", |r| r.created_at = at(0)),
        ("ids.started", |r| r.ids.started = Uuid::from_u128(9)),
        ("ids.backgrounded", |r| r.ids.backgrounded = Uuid::from_u128(9)),
        ("ids.completed", |r| r.ids.completed = Uuid::from_u128(9)),
        ("ids.lost", |r| r.ids.lost = Uuid::from_u128(9)),
        ("ids.notification", |r| r.ids.notification = Uuid::from_u128(9)),
        ("started_at", |r| r.started_at = Some(at(1))),
        ("started_at", |r| r.started_at = None),
    ];
    for (field, change) in changes {
        for before in [running(0, 1), sealed(0, 1)] {
            let mut after = before.clone();
            change(&mut after);
            let violation = Stored::of(&before).check(&after).unwrap_err();
            assert_eq!(violation.field, *field);
            assert!(!violation.to_string().contains("other"), "{violation}");
        }
    }
}

#[test]
fn a_terminal_result_never_changes() {
    type Change = (&'static str, fn(&mut Record));
    let changes: &[Change] = &[
        ("exit_code", |r| r.exit_code = Some(4)),
        ("leader", |r| r.leader = None),
        ("escalated", |r| r.escalated = true),
        ("ended_by", |r| r.ended_by = Some(EndedBy::Stop)),
        ("leftovers", |r| r.leftovers = 1),
        ("finished_at", |r| r.finished_at = Some(at(4))),
        ("duration_ms", |r| r.duration_ms = None),
        ("diagnostic", |r| r.diagnostic = Some("storage".into())),
    ];
    for (field, change) in changes {
        let before = exited(0, 1);
        let mut after = before.clone();
        change(&mut after);
        let violation = Stored::of(&before).check(&after).unwrap_err();
        assert_eq!((violation.rule, violation.field), ("a terminal result never changes", *field));
    }
}

#[test]
fn the_seal_a_pin_and_an_acknowledgement_may_follow_the_end() {
    let mut record = exited(0, 1);
    let mut follow = |change: fn(&mut Record)| {
        let stored = Stored::of(&record);
        change(&mut record);
        stored.check(&record).unwrap();
    };
    follow(|r| r.published.completed = true);
    follow(|r| {
        r.spool_state = SpoolState::Sealed;
        r.sha256 = Some("00".repeat(32));
        r.spool_lost_bytes = 3;
        r.retained_from = 3;
    });
    follow(|r| r.pinned = true);
    follow(|r| r.published.acknowledged = true);
    follow(|r| r.pinned = false);
    follow(|r| r.spool_state = SpoolState::Corrupt);
    follow(|r| {
        r.signal_errors.push(SignalError {
            signal: "SIGTERM".into(),
            errno: "EPERM".into(),
            count: 1,
        });
    });
    assert_eq!(record.tier, Tier::Cgroup);
}

#[test]
fn counters_and_marks_never_go_back() {
    type Change = (&'static str, fn(&mut Record));
    let changes: &[Change] = &[
        ("total_bytes", |r| r.total_bytes -= 1),
        ("retained_from", |r| r.retained_from -= 1),
        ("published.completed", |r| r.published.completed = false),
        ("published.acknowledged", |r| r.published.acknowledged = false),
    ];
    for (field, change) in changes {
        let mut before = sealed(0, 1);
        before.retained_from = 5;
        before.published.acknowledged = true;
        let mut after = before.clone();
        change(&mut after);
        let violation = Stored::of(&before).check(&after).unwrap_err();
        assert_eq!(violation.field, *field);
    }
}

#[test]
fn the_words_of_a_command_cannot_trade_places() {
    let hash = |change: fn(&mut crate::record::CommandRecord)| {
        let mut record = starting(0, 1);
        record.command = Default::default();
        change(&mut record.command);
        command_hash(&record)
    };
    let hashes = [
        hash(|_| {}),
        hash(|c| c.argv = Some(vec![])),
        hash(|c| c.argv = Some(vec!["ab".into(), "c".into()])),
        hash(|c| c.argv = Some(vec!["a".into(), "bc".into()])),
        hash(|c| c.argv = Some(vec!["abc".into()])),
        hash(|c| c.line = Some("abc".into())),
        hash(|c| c.cwd = Some("abc".into())),
        hash(|c| c.line = Some(String::new())),
        hash(|c| c.truncated = true),
    ];
    for (at, one) in hashes.iter().enumerate() {
        assert!(!hashes[..at].contains(one), "{at}");
    }
}
