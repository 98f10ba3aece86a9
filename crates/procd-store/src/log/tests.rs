mod damage;
mod faults;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::event::{Event, EventDetail, EventKind, Notification, count};
use crate::record::Record;
use crate::testing::{
    Temp, answer, exited, handle, loop_id, running, session, session_id, starting,
};

/// Opens the log of a state folder, with what it holds.
fn open(folder: &StateFolder) -> (CommitLog, Replay) {
    CommitLog::open(folder).unwrap()
}

/// Submits and waits until it is durable.
fn commit(log: &CommitLog, records: Vec<LogRecord>) -> Vec<Submitted> {
    let (done, wait) = answer();
    let submitted = log.submit(records, done);
    wait().unwrap();
    submitted
}

/// Submits what must be refused.
fn refused(log: &CommitLog, records: Vec<LogRecord>) -> CommitError {
    let (done, wait) = answer();
    assert_eq!(log.submit(records, done), vec![]);
    wait().unwrap_err()
}

fn parts_of(folder: &StateFolder) -> Vec<PathBuf> {
    let mut parts: Vec<_> = std::fs::read_dir(folder.commit_path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    parts.sort();
    parts
}

fn started(record: &Record) -> LogRecord {
    Event::for_record(EventKind::Started, record, EventDetail::default()).unwrap().into()
}

fn completed(record: &Record) -> LogRecord {
    Event::for_record(EventKind::Completed, record, EventDetail::default()).unwrap().into()
}

fn notification(record: &Record) -> LogRecord {
    Notification::for_record(record).unwrap().into()
}

fn acknowledgement(record: &Record) -> LogRecord {
    Acknowledgement {
        command_id: record.ids.notification,
        session_id: record.session_id,
        loop_id: loop_id(0),
        process_id: record.process_id,
        disposition: Disposition::Accepted,
    }
    .into()
}

fn removal(record: &Record) -> LogRecord {
    let (session_id, process_id) = (record.session_id, record.process_id);
    Removal::Process { session_id, process_id, events_through: 0, key: None }.into()
}

/// The whole life of a process, one batch a step.
fn life(session: u8, number: u32) -> Vec<Vec<LogRecord>> {
    let (start, run, end) =
        (starting(session, number), running(session, number), exited(session, number));
    vec![
        vec![LogRecord::process(&start)],
        vec![LogRecord::process(&run), started(&run)],
        vec![LogRecord::process(&end), completed(&end), notification(&end)],
        vec![acknowledgement(&end)],
        vec![removal(&end)],
    ]
}

#[test]
fn a_line_is_the_golden_one() {
    let mut of_session = session(0);
    of_session.uid = 1000;
    let records: Vec<LogRecord> = std::iter::once(LogRecord::session(&of_session))
        .chain(life(0, 1).into_iter().flatten())
        .collect();
    let encoded: Vec<_> = records.iter().cloned().map(line::encode_record).collect();
    let encoded: Vec<_> = encoded.into_iter().collect::<Result<_, _>>().unwrap();
    let written = line::encode((1..).zip(&encoded)).unwrap();
    let golden = include_bytes!("../../tests/golden/line-v1.log");
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(golden));
    let line::Line::Batch(read) = line::decode(golden.strip_suffix(b"\n").unwrap()) else {
        panic!("the golden line is not readable")
    };
    let wanted: Vec<_> = (1..).zip(records).map(|(seq, record)| Numbered { seq, record }).collect();
    assert_eq!(read, wanted);
}

#[test]
fn what_was_confirmed_is_there_again_in_order_and_numbered_by_session() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, replay) = open(&folder);
    assert_eq!((replay.records.len(), replay.bytes), (0, 0));
    let mut wanted = Vec::new();
    for (session, number) in [(0, 1), (1, 2), (0, 3)] {
        for batch in life(session, number) {
            let submitted = commit(&log, batch.clone());
            assert!(submitted.iter().all(|one| one.appended));
            wanted.extend(submitted.iter().map(|one| one.seq).zip(batch));
        }
    }
    assert_eq!(log.last_seq(session_id(0)), 16);
    assert_eq!(log.last_seq(session_id(1)), 8);
    drop(log);
    let (log, replay) = open(&folder);
    let read: Vec<_> = replay.records.into_iter().map(|held| (held.seq, held.record)).collect();
    assert_eq!(read, wanted);
    assert!(replay.damage.is_empty());
    let next = commit(&log, vec![LogRecord::process(&starting(0, 9))]);
    assert_eq!(next, vec![Submitted { seq: 17, appended: true }]);
    assert_eq!(parts_of(&folder).len(), 2, "no run appends to the part of another");
}

#[test]
fn the_same_record_again_is_not_written_again_and_keeps_its_number() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let mut steps = life(0, 1).into_iter();
    let mut step = || steps.next().unwrap();
    let (start, run, end) = (step(), step(), step());
    commit(&log, start);
    let first = commit(&log, run.clone());
    commit(&log, end);
    let len = std::fs::metadata(&parts_of(&folder)[0]).unwrap().len();
    let again = commit(&log, vec![run[1].clone()]);
    assert_eq!(again, vec![Submitted { seq: first[1].seq, appended: false }]);
    assert_eq!(std::fs::metadata(&parts_of(&folder)[0]).unwrap().len(), len);
    // After a restart too, mixed with something new.
    drop(log);
    let (log, _) = open(&folder);
    let mixed = commit(&log, vec![run[1].clone(), LogRecord::process(&starting(0, 2))]);
    assert_eq!(mixed[0], again[0]);
    assert_eq!(mixed[1], Submitted { seq: 7, appended: true });
    // Twice in one batch.
    let other = started(&running(0, 2));
    let twice = commit(&log, vec![other.clone(), other]);
    assert_eq!(twice[0].seq, twice[1].seq);
    assert_eq!([twice[0].appended, twice[1].appended], [true, false]);
}

#[test]
fn the_same_id_with_another_payload_is_a_collision_and_nothing_of_its_batch_counts() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let run = running(0, 1);
    commit(&log, life(0, 1).swap_remove(0));
    commit(&log, vec![started(&run)]);
    let mut forged = run.clone();
    forged.created_at = crate::testing::at(2);
    let other = LogRecord::process(&starting(0, 2));
    let error = refused(&log, vec![other.clone(), started(&forged)]);
    assert!(
        matches!(&error, CommitError::Collision { kind: Kind::Event, id } if *id == run.ids.started.to_string()),
        "{error:?}"
    );
    assert_eq!(log.last_seq(session_id(0)), 2);
    // The other one was not taken either: it is still a first save.
    assert!(commit(&log, vec![other])[0].appended);
    drop(log);
    let (log, replay) = open(&folder);
    assert_eq!(replay.records.len(), 3);
    assert!(matches!(refused(&log, vec![started(&forged)]), CommitError::Collision { .. }));
}

#[test]
fn a_save_against_the_rules_is_refused_with_rule_and_field() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let rule = |records| {
        let error = refused(&log, records);
        let CommitError::Conflict { source, .. } = error else { panic!("{error:?}") };
        (source.rule, source.field)
    };
    assert_eq!(
        rule(vec![LogRecord::process(&running(0, 1))]),
        ("a first save is starting", "state")
    );
    let mut broken = starting(0, 1);
    broken.retained_from = 1;
    assert_eq!(rule(vec![LogRecord::process(&broken)]).1, "retained_from");
    for batch in life(0, 1).into_iter().take(3) {
        commit(&log, batch);
    }
    let edge = rule(vec![LogRecord::process(&running(0, 1))]);
    assert_eq!(edge, ("only edges of the table", "state"));
    // Within one batch too, and after a restart.
    let both = vec![LogRecord::process(&starting(0, 2)), LogRecord::process(&exited(0, 2))];
    assert_eq!(rule(both).1, "state");
    drop(log);
    let (log, _) = open(&folder);
    let mut code = exited(0, 1);
    code.exit_code = Some(4);
    assert!(matches!(refused(&log, vec![LogRecord::process(&code)]), CommitError::Conflict { .. }));
    commit(&log, vec![LogRecord::process(&exited(0, 1))]);
}

#[test]
fn a_notification_has_one_id_in_envelope_payload_and_record() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    commit(&log, life(0, 1).swap_remove(0));
    commit(&log, life(0, 1).swap_remove(1));
    let end = exited(0, 1);
    let mut other = end.clone();
    other.ids.notification = Uuid::from_u128(99);
    let batch = vec![LogRecord::process(&end), notification(&other)];
    assert!(matches!(refused(&log, batch), CommitError::Conflict { .. }));
    let mut envelope = notification(&end);
    envelope.id = Uuid::from_u128(99).to_string();
    assert!(matches!(refused(&log, vec![envelope]), CommitError::Malformed { .. }));
    let mut envelope = notification(&end);
    envelope.session = session_id(7);
    assert!(matches!(refused(&log, vec![envelope]), CommitError::Malformed { .. }));
    commit(&log, vec![LogRecord::process(&end), notification(&end)]);
}

/// Symptom: an unanswered notification was gone after a crash that followed the removal of its record. Cause: the part
/// with it had gone, its record's file too, and its id still counted as taken, so that it was not written again.
#[test]
fn a_removal_carries_the_notification_that_outlives_the_record() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let end = exited(0, 1);
    for batch in life(0, 1).into_iter().take(3) {
        commit(&log, batch);
    }
    // Sealed: its file has it all, and the snapshot nothing.
    let (done, wait) = answer();
    log.start_part(Vec::new(), done);
    wait().unwrap();
    let submitted = commit(&log, vec![removal(&end), notification(&end)]);
    assert!(submitted[1].appended);
    let again = commit(&log, vec![notification(&end)]);
    assert_eq!((again[0].seq, again[0].appended), (submitted[1].seq, false));
    drop(log);
    let (_, replay) = open(&folder);
    let kept = replay.records.iter().any(|numbered| numbered.record == notification(&end));
    assert!(kept, "{:?}", replay.records);
}

#[test]
fn an_empty_batch_is_answered_after_all_before_it() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..20 {
        let sender = sender.clone();
        let done: Done = Box::new(move |result| sender.send((number, result.is_ok())).unwrap());
        let records =
            if number == 19 { vec![] } else { vec![LogRecord::process(&starting(0, number))] };
        log.submit(records, done);
    }
    drop(sender);
    let order: Vec<_> = receiver.iter().collect();
    assert_eq!(order, (0..20).map(|number| (number, true)).collect::<Vec<_>>());
}

#[test]
fn dropping_the_log_writes_what_is_queued() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    for number in 0..50 {
        log.submit(vec![LogRecord::process(&starting(0, number))], Box::new(|_| {}));
    }
    drop(log);
    assert_eq!(open(&folder).1.records.len(), 50);
}

#[test]
fn a_new_part_begins_with_the_snapshot_and_the_older_parts_go() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    commit(&log, vec![LogRecord::session(&session(0))]);
    for batch in life(0, 1).into_iter().take(4) {
        commit(&log, batch);
    }
    commit(&log, vec![LogRecord::process(&starting(0, 2))]);
    let live = LogRecord::process(&starting(0, 2));
    let snapshot = vec![(1, LogRecord::session(&session(0))), (9, live.clone())];
    let (done, wait) = answer();
    log.start_part(snapshot, done);
    let after = log.submit(vec![started(&running(0, 2))], Box::new(|_| {}));
    assert_eq!(after[0].seq, 10);
    wait().unwrap();
    drop(log);
    assert_eq!(parts_of(&folder).len(), 1);
    let (log, replay) = open(&folder);
    let read: Vec<_> = replay.records.iter().map(|held| (held.seq, held.record.clone())).collect();
    let session = LogRecord::session(&session(0));
    assert_eq!(read, vec![(9, session), (9, live), (10, started(&running(0, 2)))]);
    assert_eq!(log.last_seq(session_id(0)), 10);
    assert!(!log.part_is_full());
}

#[test]
fn the_numbers_of_a_session_never_start_again_after_its_records_went() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    commit(&log, vec![LogRecord::session(&session(0))]);
    for batch in life(0, 1) {
        commit(&log, batch);
    }
    let (done, wait) = answer();
    log.start_part(vec![(1, LogRecord::session(&session(0)))], done);
    wait().unwrap();
    drop(log);
    assert_eq!(open(&folder).0.last_seq(session_id(0)), 9);
}

#[test]
fn older_parts_that_a_crash_left_beside_a_whole_snapshot_are_left_out_and_swept() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    for batch in life(0, 1) {
        commit(&log, batch);
    }
    let old = parts_of(&folder).remove(0);
    let bytes = std::fs::read(&old).unwrap();
    let (done, wait) = answer();
    log.start_part(vec![(0, LogRecord::session(&session(0)))], done);
    wait().unwrap();
    drop(log);
    std::fs::write(&old, &bytes).unwrap();
    let (_, replay) = open(&folder);
    assert_eq!(replay.records.len(), 1);
    assert!(!old.exists());
    // A snapshot that is not whole supersedes nothing.
    std::fs::write(&old, &bytes).unwrap();
    let part = parts_of(&folder).pop().unwrap();
    let snapshot = std::fs::read(&part).unwrap();
    std::fs::write(&part, &snapshot[..snapshot.len() - 1]).unwrap();
    let whole = open(&folder).1.records.len();
    assert_eq!(whole, 1, "a line that lacks its line feed only is whole");
    std::fs::write(&old, &bytes).unwrap();
    std::fs::write(&part, &snapshot[..snapshot.len() - 10]).unwrap();
    assert_eq!(open(&folder).1.records.len(), 8 + 1);
    assert!(old.exists());
}

#[test]
fn a_part_is_full_16_mib_beyond_its_snapshot() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let mut number = 0;
    let mut written = 0;
    while !log.part_is_full() {
        let mut record = starting(0, number);
        record.command.line = Some("x".repeat(60_000));
        let batch = (0..8).map(|_| LogRecord::process(&record)).collect();
        commit(&log, batch);
        number += 1;
        written = std::fs::metadata(&parts_of(&folder)[0]).unwrap().len();
        assert!(written < PART_BYTES + 1024 * 1024);
    }
    assert!(written >= PART_BYTES);
    let (done, wait) = answer();
    log.start_part(vec![], done);
    wait().unwrap();
    assert!(!log.part_is_full());
}

#[test]
fn ids_are_forgotten_with_their_process_and_with_the_part_of_a_removal() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let sizes = || log.shared.lock().index.sizes();
    let snapshot = |records| {
        let (done, wait) = answer();
        log.start_part(records, done);
        wait().unwrap();
    };
    for batch in life(0, 1) {
        commit(&log, batch);
    }
    assert_eq!(sizes(), (1, 0), "only the removal's own id is left");
    snapshot(vec![(8, removal(&exited(0, 1)))]);
    assert_eq!(sizes(), (1, 0), "its files still stand");
    snapshot(vec![]);
    assert_eq!(sizes(), (0, 0));
    // A notification whose record is gone, kept by the snapshots until it is answered.
    let outlived = notification(&exited(0, 2));
    let seq = commit(&log, vec![outlived.clone()])[0].seq;
    snapshot(vec![(seq, outlived.clone())]);
    assert_eq!(commit(&log, vec![outlived])[0], Submitted { seq, appended: false });
    commit(&log, vec![acknowledgement(&exited(0, 2))]);
    snapshot(vec![]);
    assert_eq!(sizes(), (0, 0));
}

#[test]
fn the_ids_remembered_of_one_process_are_bounded() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let mut record = running(0, 1);
    let mut events = Vec::new();
    for _ in 0..400 {
        count(&mut record, EventKind::SpoolDegraded);
        let event =
            Event::for_record(EventKind::SpoolDegraded, &record, EventDetail::default()).unwrap();
        events.push(LogRecord::from(event));
    }
    let first = commit(&log, events.clone());
    assert_eq!(log.shared.lock().index.sizes().0, 256);
    assert_eq!(commit(&log, vec![events.pop().unwrap()])[0].seq, first[399].seq);
}

#[test]
fn sixteen_threads_share_syncs_and_keep_each_sessions_order() {
    const THREADS: u8 = 16;
    const BATCHES: u32 = 100;
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let log = Arc::new(log);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                let mut last = 0;
                for batch in 0..BATCHES {
                    let number = u32::from(thread) * 1_000 + batch;
                    let records = vec![LogRecord::process(&starting(thread, number))];
                    let (done, wait) = answer();
                    let seq = log.submit(records, done)[0].seq;
                    assert_eq!(seq, last + 1);
                    last = seq;
                    wait().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    drop(Arc::into_inner(log));
    let (_, replay) = open(&folder);
    let mut last: HashMap<_, u64> = HashMap::new();
    for held in &replay.records {
        let before = last.insert(held.record.session, held.seq).unwrap_or(0);
        assert_eq!(held.seq, before + 1);
    }
    assert_eq!(replay.records.len(), usize::from(THREADS) * BATCHES as usize);
}

/// One thing that may be submitted.
#[derive(Debug, Clone)]
enum Op {
    Step { session: u8, number: u32 },
    Again { session: u8, number: u32 },
    Reopen,
    Snapshot,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u8..3, 0u32..6).prop_map(|(session, number)| Op::Step { session, number }),
        3 => (0u8..3, 0u32..6).prop_map(|(session, number)| Op::Again { session, number }),
        1 => Just(Op::Reopen),
        1 => Just(Op::Snapshot),
    ]
}

/// What the log must hold: every record with its number, and how far each life has come.
#[derive(Default)]
struct Model {
    records: Vec<(u64, LogRecord)>,
    last: HashMap<SessionId, u64>,
    steps: HashMap<(u8, u32), usize>,
}

impl Model {
    fn step(&mut self, log: &CommitLog, session: u8, number: u32) {
        let step = self.steps.entry((session, number)).or_insert(0);
        let lives = life(session, u32::from(session) * 100 + number);
        let Some(batch) = lives.get(*step) else { return };
        *step += 1;
        for (record, submitted) in batch.iter().zip(commit(log, batch.clone())) {
            let last = self.last.entry(record.session).or_insert(0);
            *last += 1;
            assert_eq!(submitted, Submitted { seq: *last, appended: true });
            self.records.push((*last, record.clone()));
        }
    }

    /// Submits the events and the notification of a life once more.
    fn again(&self, log: &CommitLog, session: u8, number: u32) {
        let step = self.steps.get(&(session, number)).copied().unwrap_or(0);
        if step > 4 {
            return;
        }
        let lives = life(session, u32::from(session) * 100 + number);
        let records = lives.into_iter().take(step).flatten();
        let repeated: Vec<_> =
            records.filter(|r| !matches!(r.payload, Payload::Process(_))).collect();
        for (record, submitted) in repeated.iter().zip(commit(log, repeated.clone())) {
            let first = self.records.iter().find(|(_, held)| held == record).unwrap().0;
            assert_eq!(submitted, Submitted { seq: first, appended: false });
        }
    }

    fn check(&self, replay: &Replay) {
        let read: Vec<_> =
            replay.records.iter().map(|held| (held.seq, held.record.clone())).collect();
        assert_eq!(read, self.records);
        assert!(replay.damage.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_log_equals_a_model_over_any_submits_restarts_and_snapshots(
        ops in prop::collection::vec(op(), 1..40)
    ) {
        let temp = Temp::new();
        let folder = temp.state();
        let mut log = open(&folder).0;
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Step { session, number } => model.step(&log, session, number),
                Op::Again { session, number } => model.again(&log, session, number),
                Op::Reopen => {
                    drop(log);
                    let (again, replay) = open(&folder);
                    model.check(&replay);
                    log = again;
                }
                Op::Snapshot => {
                    // All of it is live here: nothing may get lost.
                    let (done, wait) = answer();
                    log.start_part(model.records.clone(), done);
                    wait().unwrap();
                }
            }
        }
        drop(log);
        model.check(&open(&folder).1);
    }
}

#[test]
fn kinds_that_repeat_have_an_id_per_ordinal() {
    let temp = Temp::new();
    let folder = temp.state();
    let (log, _) = open(&folder);
    let mut record = running(0, 1);
    commit(&log, life(0, 1).swap_remove(0));
    let mut seen = Vec::new();
    for _ in 0..3 {
        count(&mut record, EventKind::SpoolDegraded);
        let detail =
            EventDetail { diagnostic: Some("storage ENOSPC".into()), ..Default::default() };
        let event = Event::for_record(EventKind::SpoolDegraded, &record, detail).unwrap();
        seen.push(commit(&log, vec![event.into()])[0]);
    }
    assert!(seen.iter().all(|one| one.appended));
    assert_eq!(handle(1), record.process_id);
}
