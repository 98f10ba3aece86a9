use procd_core::state::{Access, ProcessState, Reason, SpoolState};
use serde_json::{Map, Value, json};

use super::*;
use crate::record::LeaderRecord;
use crate::testing::{at, exited, loop_id, running, starting};

/// All that an event can vary in.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of the table")]
struct Cell {
    kind: EventKind,
    state: ProcessState,
    reason: Option<Reason>,
    started: bool,
    finished: bool,
    exit_code: bool,
    diagnostic: bool,
    phase: Option<Phase>,
}

impl Cell {
    fn json(&self) -> Map<String, Value> {
        let mut map = json!({
            "event_id": "00000000-0000-0000-0000-0000000000e1",
            "kind": self.kind.as_str(),
            "session_id": "00000000-0000-0000-0000-0000000000e2",
            "loop_id": "00000000-0000-0000-0000-0000000000e3",
            "process_id": "abc-_9",
            "origin": "00000000-0000-0000-0000-0000000000e4",
            "state": self.state.as_str(),
            "created_at": "2026-01-01T00:00:00Z",
        });
        let map = map.as_object_mut().unwrap();
        if self.started {
            map.insert("started_at".into(), "2026-01-01T00:00:01Z".into());
        }
        if self.finished {
            map.insert("finished_at".into(), "2026-01-01T00:00:02Z".into());
        }
        if self.exit_code {
            map.insert("exit_code".into(), 9.into());
        }
        if self.diagnostic {
            map.insert("diagnostic".into(), "storage EIO".into());
        }
        if let Some(reason) = self.reason {
            map.insert("reason".into(), reason.as_str().into());
        }
        if self.kind == EventKind::WorkspaceChanged {
            map.insert("access".into(), "broad_write".into());
        }
        if let Some(phase) = self.phase {
            map.insert("phase".into(), phase.as_str().into());
        }
        map.clone()
    }
}

/// What is decoded of an object.
fn decode(map: &Map<String, Value>) -> Result<Event, EventError> {
    Event::decode(&Value::Object(map.clone()).to_string())
}

/// The table of the spec, written down once more, by hand: which combinations there are, and the
/// presence of started (None = optional), finished, exit code and diagnostic (None = allowed).
type Wanted = (Option<bool>, bool, bool, Option<bool>);

fn wanted(cell: &Cell) -> Option<Wanted> {
    use EventKind as K;
    use ProcessState as S;
    use Reason as R;
    let (started, finished, code, diagnostic) = match (cell.kind, cell.state, cell.reason) {
        (K::Started | K::Backgrounded, S::Running, None) => (Some(true), false, false, Some(false)),
        (
            K::StopRequested,
            S::Starting | S::Running,
            Some(R::Interrupted | R::Terminated | R::Killed),
        ) => (Some(cell.state == S::Running), false, false, Some(false)),
        (K::Completed, S::Exited, Some(R::Exited)) => (Some(true), true, true, Some(false)),
        (K::Completed, S::Failed, Some(R::Failed)) => (None, true, false, None),
        (K::Completed, S::TimedOut, Some(R::TimedOut))
        | (K::Completed, S::Interrupted, Some(R::Interrupted)) => {
            (Some(true), true, false, Some(false))
        }
        (K::Completed, S::Terminated, Some(R::Terminated | R::RunnerShutdown | R::OutputLimit))
        | (K::Completed, S::Killed, Some(R::Killed | R::RunnerShutdown | R::OutputLimit)) => {
            (None, true, false, Some(false))
        }
        (K::Lost, S::LostOnRestore, Some(R::LostOnRestore)) => (None, true, false, None),
        (K::LeaderExited, S::Running, None) => (Some(true), false, true, Some(false)),
        (K::SpoolDegraded | K::SpoolRecovered | K::OutputGap, S::Running, None) => {
            (Some(true), false, false, None)
        }
        (K::WorkspaceChanged, S::Starting, None) if cell.phase == Some(Phase::Started) => {
            (Some(false), false, false, Some(false))
        }
        (K::WorkspaceChanged, S::Starting | S::Running, None) => (None, false, false, Some(false)),
        _ => return None,
    };
    Some((started, finished, code, diagnostic))
}

/// The field that fails first, in the order of the spec; none for a valid combination.
fn first_failing(cell: &Cell) -> Option<&'static str> {
    let Some((started, finished, code, diagnostic)) = wanted(cell) else {
        return Some("kind, state, reason");
    };
    if started.is_some_and(|wanted| wanted != cell.started) {
        Some("started_at")
    } else if finished != cell.finished {
        Some("finished_at")
    } else if diagnostic == Some(false) && cell.diagnostic {
        Some("diagnostic")
    } else if code != cell.exit_code {
        Some("exit_code")
    } else if (cell.kind == EventKind::WorkspaceChanged) != cell.phase.is_some()
        || (cell.phase == Some(Phase::Started) && cell.state == ProcessState::Running)
    {
        Some("phase")
    } else {
        None
    }
}

fn all_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let reasons = || std::iter::once(None).chain(Reason::ALL.iter().copied().map(Some));
    for &kind in EventKind::ALL {
        for &state in ProcessState::ALL {
            for reason in reasons() {
                for bits in 0..16u8 {
                    for phase in [None, Some(Phase::Started), Some(Phase::Ended)] {
                        let bit = |at: u8| bits & (1 << at) != 0;
                        cells.push(Cell {
                            kind,
                            state,
                            reason,
                            started: bit(0),
                            finished: bit(1),
                            exit_code: bit(2),
                            diagnostic: bit(3),
                            phase,
                        });
                    }
                }
            }
        }
    }
    cells
}

#[test]
fn each_valid_row_round_trips_and_every_other_combination_names_its_first_failing_field() {
    let mut valid = 0;
    for cell in all_cells() {
        let json = cell.json();
        match (decode(&json), first_failing(&cell)) {
            (Ok(event), None) => {
                valid += 1;
                let text = serde_json::to_string(&event).unwrap();
                assert_eq!(Event::decode(&text).unwrap(), event);
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), Value::Object(json));
            }
            (Err(error), Some(field)) => assert_eq!(error.field, field, "{cell:?}: {error}"),
            (Ok(_), Some(field)) => panic!("{cell:?} was taken, but `{field}` is wrong"),
            (Err(error), None) => panic!("{cell:?} was refused: {error}"),
        }
    }
    assert_eq!(valid, 43);
}

fn valid() -> Map<String, Value> {
    Cell {
        kind: EventKind::Completed,
        state: ProcessState::Exited,
        reason: Some(Reason::Exited),
        started: true,
        finished: true,
        exit_code: true,
        diagnostic: false,
        phase: None,
    }
    .json()
}

#[test]
fn fields_fail_in_their_order() {
    let order = [
        ("event_id", json!("00000000-0000-0000-0000-000000000000")),
        ("kind", json!("ended")),
        ("session_id", json!("00000000-0000-0000-0000-000000000000")),
        ("loop_id", json!("not a uuid")),
        ("process_id", json!("a b")),
        ("origin", json!("000000000000000000000000000000e4")),
        ("state", json!("gone")),
        ("created_at", json!("yesterday")),
        ("started_at", json!("2025-01-01T00:00:00Z")),
        ("finished_at", json!("2025-01-01T00:00:00Z")),
        ("diagnostic", json!("x".repeat(513))),
        ("exit_code", json!(256)),
        ("reason", json!("because")),
    ];
    // Each alone, and with every later one wrong too.
    for at in 0..order.len() {
        for until in [at + 1, order.len()] {
            let mut map = valid();
            for (field, bad) in &order[at..until] {
                map.insert((*field).to_owned(), bad.clone());
            }
            assert_eq!(decode(&map).unwrap_err().field, order[at].0);
        }
    }
    // Absent, null and of another type.
    for field in
        ["event_id", "kind", "session_id", "loop_id", "process_id", "origin", "state", "created_at"]
    {
        let mut map = valid();
        map.remove(field);
        assert_eq!(decode(&map).unwrap_err().field, field);
    }
    for (field, _) in &order {
        for bad in [Value::Null, json!([]), json!({}), json!(1.5), json!(true)] {
            let mut map = valid();
            map.insert((*field).to_owned(), bad);
            assert_eq!(decode(&map).unwrap_err().field, *field);
        }
    }
}

#[test]
fn unknown_and_repeated_fields_and_trailing_bytes_are_refused() {
    for smuggled in ["command", "output", "path", "pid", "env", "command_id", "Kind", ""] {
        let mut map = valid();
        map.insert(smuggled.to_owned(), json!("x"));
        let error = decode(&map).unwrap_err();
        assert_eq!(error.field, "event");
        assert!(error.what.contains(smuggled));
    }
    let text = Value::Object(valid()).to_string();
    for bad in
        [format!("{text} x"), format!("{text}{text}"), text.replacen('{', "{\"kind\":\"lost\",", 1)]
    {
        assert_eq!(Event::decode(&bad).unwrap_err().field, "event", "{bad}");
    }
    assert!(Event::decode(&format!("{text}\n ")).is_ok());
}

#[test]
fn the_bounds_are_512_bytes_and_128_characters() {
    let mut map = valid();
    map.insert("state".into(), json!("failed"));
    map.insert("reason".into(), json!("failed"));
    map.remove("exit_code");
    for (text, is_good) in [
        ("x".repeat(512), true),
        ("x".repeat(513), false),
        ("é".repeat(256), true),
        ("é".repeat(257), false),
    ] {
        map.insert("diagnostic".into(), json!(text));
        assert_eq!(decode(&map).is_ok(), is_good);
    }
    map.remove("diagnostic");
    for (id, is_good) in [
        ("a".repeat(128), true),
        ("a".repeat(129), false),
        (String::new(), false),
        ("a/b".to_owned(), false),
        ("é".to_owned(), false),
        ("_-Az09".to_owned(), true),
    ] {
        map.insert("process_id".into(), json!(id));
        assert_eq!(decode(&map).is_ok(), is_good, "{id}");
    }
}

#[test]
fn a_signal_goes_with_its_exit_code_only() {
    let mut map = valid();
    map.insert("signal".into(), json!(9));
    assert_eq!(decode(&map).unwrap_err().field, "signal");
    map.insert("exit_code".into(), json!(137));
    assert_eq!(serde_json::to_value(decode(&map).unwrap()).unwrap()["signal"], 9);
    for (signal, code) in [(0, 128), (65, 193), (-1, 127), (10, 137)] {
        map.insert("signal".into(), json!(signal));
        map.insert("exit_code".into(), json!(code));
        assert_eq!(decode(&map).unwrap_err().field, "signal");
    }
}

#[test]
fn workspace_changed_names_an_access_that_writes() {
    let cell = Cell {
        kind: EventKind::WorkspaceChanged,
        state: ProcessState::Starting,
        reason: None,
        started: false,
        finished: false,
        exit_code: false,
        diagnostic: false,
        phase: Some(Phase::Started),
    };
    let mut map = cell.json();
    for &access in Access::ALL {
        map.insert("access".into(), json!(access.as_str()));
        assert_eq!(decode(&map).is_ok(), access != Access::ReadOnly, "{access}");
    }
    map.remove("access");
    assert_eq!(decode(&map).unwrap_err().field, "access");
}

#[test]
fn an_event_of_a_record_has_its_ids_and_times() {
    let plain = EventDetail::default;
    let record = exited(0, 1);
    let event = Event::for_record(EventKind::Completed, &record, plain()).unwrap();
    assert_eq!(event.event_id(), record.ids.completed);
    assert_eq!(event.exit_code, Some(3));
    assert_eq!(event.finished_at, record.finished_at);
    assert_eq!(event.loop_id(), loop_id(0));
    let run = running(0, 1);
    let of = |kind| Event::for_record(kind, &run, plain()).map(|event| event.event_id());
    assert_eq!(of(EventKind::Started), Ok(run.ids.started));
    assert_eq!(of(EventKind::Backgrounded), Ok(run.ids.backgrounded));
    assert_eq!(of(EventKind::Completed).unwrap_err().field, "kind, state, reason");
    assert_eq!(of(EventKind::OutputGap).unwrap_err().field, "event_id");
    let early = Event::for_record(EventKind::Started, &starting(0, 1), plain());
    assert_eq!(early.unwrap_err().field, "kind, state, reason");
}

#[test]
fn a_leader_that_died_of_a_signal_is_told_apart_from_a_code() {
    let mut record = exited(0, 1);
    record.exit_code = Some(137);
    let event =
        |record: &Record| Event::for_record(EventKind::Completed, record, EventDetail::default());
    record.leader = Some(LeaderRecord::Code { code: 137 });
    assert_eq!(event(&record).unwrap().signal, None);
    let signal =
        LeaderRecord::Signal { signal: 9, signal_name: "SIGKILL".into(), core_dumped: false };
    record.leader = Some(signal.clone());
    assert_eq!(event(&record).unwrap().signal, Some(9));
    // Only an exit has a code: a stopped one names no signal either.
    record.state = ProcessState::Killed;
    record.reason = Some(Reason::Killed);
    record.exit_code = None;
    assert_eq!(event(&record).unwrap().signal, None);
    let mut run = running(0, 1);
    run.leader = Some(signal);
    count(&mut run, EventKind::LeaderExited);
    let left = Event::for_record(EventKind::LeaderExited, &run, EventDetail::default()).unwrap();
    assert_eq!((left.exit_code, left.signal), (Some(137), Some(9)));
}

#[test]
fn stops_take_their_reason_from_the_request_and_an_id_per_ordinal() {
    for mut record in [starting(0, 1), running(0, 1)] {
        let mut seen = Vec::new();
        for reason in [Reason::Interrupted, Reason::Terminated, Reason::Killed] {
            count(&mut record, EventKind::StopRequested);
            let detail = EventDetail { reason: Some(reason), ..EventDetail::default() };
            let event = Event::for_record(EventKind::StopRequested, &record, detail).unwrap();
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(Event::decode(&text).unwrap(), event);
            seen.push(event.event_id());
        }
        assert_eq!(seen[0].get_version_num(), 5);
        assert_eq!(seen[1], repeated_id(&record.ids, EventKind::StopRequested, 2));
        seen.dedup();
        assert_eq!(seen.len(), 3);
    }
}

#[test]
fn workspace_events_of_records_carry_phase_and_access() {
    let phase = |phase| EventDetail { phase: Some(phase), ..EventDetail::default() };
    let mut record = starting(0, 1);
    count(&mut record, EventKind::WorkspaceChanged);
    let kind = EventKind::WorkspaceChanged;
    let event = Event::for_record(kind, &record, phase(Phase::Started)).unwrap();
    assert_eq!(event.access, Some(Access::Unclaimed));
    let mut run = running(0, 1);
    run.ordinals = record.ordinals.clone();
    assert!(Event::for_record(kind, &run, phase(Phase::Started)).is_err());
    assert!(Event::for_record(kind, &run, phase(Phase::Ended)).is_ok());
    record.access.effective = Access::ReadOnly;
    record.access.asked = Access::ReadOnly;
    let error = Event::for_record(kind, &record, phase(Phase::Started)).unwrap_err();
    assert_eq!(error.field, "access");
}

#[test]
fn a_notification_is_of_a_terminal_row_and_of_a_loop() {
    let end = exited(0, 1);
    let notification = Notification::for_record(&end).unwrap();
    assert_eq!(notification.command_id(), end.ids.notification);
    let text = serde_json::to_string(&notification).unwrap();
    assert_eq!(Notification::decode(&text).unwrap(), notification);
    for record in [starting(0, 1), running(0, 1)] {
        assert_eq!(Notification::for_record(&record).unwrap_err().field, "state, reason");
    }
    let good: Value = serde_json::from_str(&text).unwrap();
    for (field, bad) in [
        ("command_id", json!("00000000-0000-0000-0000-000000000000")),
        ("session_id", json!(null)),
        ("loop_id", json!("x")),
        ("process_id", json!("short")),
        ("state", json!("ended")),
        ("reason", json!("none")),
    ] {
        let mut map = good.clone();
        map[field] = bad;
        assert_eq!(Notification::decode(&map.to_string()).unwrap_err().field, field);
        map.as_object_mut().unwrap().remove(field);
        assert_eq!(Notification::decode(&map.to_string()).unwrap_err().field, field);
    }
    let mut valid = 0;
    for &state in ProcessState::ALL {
        for &reason in Reason::ALL {
            let mut map = good.clone();
            map["state"] = json!(state.as_str());
            map["reason"] = json!(reason.as_str());
            let is_good = state.is_terminal() && state.fits(Some(reason));
            assert_eq!(Notification::decode(&map.to_string()).is_ok(), is_good);
            valid += usize::from(is_good);
        }
    }
    assert_eq!(valid, 11);
    let mut map = good;
    map["output"] = json!("x");
    assert_eq!(Notification::decode(&map.to_string()).unwrap_err().field, "notification");
}

#[test]
fn nothing_of_the_command_is_in_an_event_or_a_notification() {
    let mut record = exited(0, 1);
    record.command.line = Some("secret command".into());
    record.command.cwd = Some("/secret/folder".into());
    record.label = Some("secret label".into());
    record.os.pid = Some(424_242);
    record.spool_state = SpoolState::Sealed;
    assert_eq!(record.created_at, at(1));
    let event = Event::for_record(EventKind::Completed, &record, EventDetail::default()).unwrap();
    let texts = serde_json::to_string(&event).unwrap()
        + &serde_json::to_string(&Notification::for_record(&record).unwrap()).unwrap();
    assert!(!texts.contains("secret") && !texts.contains("424242"), "{texts}");
}
