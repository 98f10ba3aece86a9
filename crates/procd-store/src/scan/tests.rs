use std::path::PathBuf;

use super::*;
use crate::event::{Event, EventDetail, EventKind};
use crate::log::{CommitLog, Disposition, LogRecord, Payload};
use crate::manifest::{self, ManifestFile};
use crate::session;
use crate::testing::{
    Temp, answer, exited, files, handle, loop_id, running, sealed, session as session_record,
    session_id, starting,
};

fn commit(log: &CommitLog, records: Vec<LogRecord>) -> Vec<u64> {
    let (done, wait) = answer();
    let submitted = log.submit(records, done);
    wait().unwrap();
    submitted.iter().map(|one| one.seq).collect()
}

fn event(record: &Record, kind: EventKind) -> Event {
    Event::for_record(kind, record, EventDetail::default()).unwrap()
}

fn notification(record: &Record) -> LogRecord {
    Notification::for_record(record).unwrap().into()
}

fn acknowledgement(record: &Record, disposition: Disposition) -> LogRecord {
    Acknowledgement {
        command_id: record.ids.notification,
        session_id: record.session_id,
        loop_id: loop_id(0),
        process_id: record.process_id,
        disposition,
    }
    .into()
}

fn removal(record: &Record) -> Removal {
    Removal::Process {
        session_id: record.session_id,
        process_id: record.process_id,
        events_through: 0,
        key: None,
    }
}

/// Opens the log and scans.
fn restore(folder: &StateFolder) -> (CommitLog, Restored) {
    let (log, replay) = CommitLog::open(folder).unwrap();
    let restored = load(folder, replay);
    log.adopt(&restored);
    (log, restored)
}

/// A state folder with one session, its log open.
fn prepared(temp: &Temp) -> (StateFolder, CommitLog) {
    let folder = temp.state();
    session::write(&folder, &session_record(0)).unwrap();
    let (log, _) = restore(&folder);
    commit(&log, vec![LogRecord::session(&session_record(0))]);
    (folder, log)
}

/// Lets a process run to its end, and seals it when asked; the file that was or would be written.
fn run(folder: &StateFolder, log: &CommitLog, number: u32, seal: bool) -> ManifestFile {
    commit(log, vec![LogRecord::process(&starting(0, number))]);
    let run = running(0, number);
    let begin = event(&run, EventKind::Started);
    let first = commit(log, vec![LogRecord::process(&run), begin.clone().into()]);
    let end = exited(0, number);
    let done = event(&end, EventKind::Completed);
    let batch = vec![LogRecord::process(&end), done.clone().into(), notification(&end)];
    let last = commit(log, batch);
    let file = ManifestFile {
        record: sealed(0, number),
        events: vec![
            NumberedEvent { seq: first[1], event: begin },
            NumberedEvent { seq: last[1], event: done },
        ],
        notification_seq: Some(last[2]),
    };
    if seal {
        manifest::write(folder, &file).unwrap();
    }
    file
}

/// Starts a new part of the log without anything of processes: only their files have them.
fn forget(log: &CommitLog) {
    let (done, wait) = answer();
    log.start_part(vec![(0, LogRecord::session(&session_record(0)))], done);
    wait().unwrap();
}

fn shown(restored: &Restored) -> String {
    let mut seqs: Vec<_> = restored.last_seqs.iter().collect();
    seqs.sort();
    format!(
        "{:?} {:?} {:?} {:?} {seqs:?}",
        restored.sessions, restored.processes, restored.notifications, restored.collisions
    )
}

#[test]
fn an_empty_folder_restores_to_nothing() {
    let temp = Temp::new();
    let (_, restored) = restore(&temp.state());
    assert!(restored.sessions.is_empty() && restored.processes.is_empty());
    assert!(restored.damage.is_empty());
}

#[test]
fn log_and_files_together_give_back_everything_and_twice_the_same() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let sealed = run(&folder, &log, 1, true);
    let unsealed = run(&folder, &log, 2, false);
    commit(&log, vec![LogRecord::process(&starting(0, 3))]);
    drop(log);
    let (log, restored) = restore(&folder);
    assert!(restored.damage.is_empty(), "{:?}", restored.damage);
    assert_eq!(restored.sessions, vec![session_record(0)]);
    let [one, two, three] = restored.processes.as_slice() else { panic!("{restored:?}") };
    assert_eq!((&one.record, &one.events), (&sealed.record, &sealed.events));
    assert!(one.is_on_disk && one.notification_seq == sealed.notification_seq);
    assert_eq!((&two.record, &two.events), (&exited(0, 2), &unsealed.events));
    assert!(!two.is_on_disk);
    assert_eq!((&three.record, three.seq), (&starting(0, 3), 14));
    let due: Vec<_> = restored.notifications.iter().map(|held| held.seq).collect();
    assert_eq!(due, vec![7, 13]);
    assert_eq!(restored.last_seqs[&session_id(0)], 14);
    drop(log);
    let before = files(folder.path());
    let again = restore(&folder).1;
    assert_eq!(shown(&again), shown(&restored));
    assert_eq!(files(folder.path()), before);
}

#[test]
fn what_is_sealed_needs_its_file_only() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    forget(&log);
    drop(log);
    let (log, restored) = restore(&folder);
    let process = &restored.processes[0];
    assert_eq!((&process.record, &process.events, process.seq), (&file.record, &file.events, 0));
    assert!(process.is_on_disk);
    assert_eq!(restored.notifications.len(), 1);
    // Its ids are known: the same event again is not appended, another is a collision.
    let again = log.submit(vec![event(&exited(0, 1), EventKind::Completed).into()], answer().0);
    assert_eq!((again[0].seq, again[0].appended), (file.events[1].seq, false));
    let pinned = |pinned| {
        let mut record = file.record.clone();
        record.pinned = pinned;
        record
    };
    assert_eq!(commit(&log, vec![LogRecord::process(&pinned(true))]), vec![8]);
}

#[test]
fn a_pin_in_the_log_is_newer_than_the_file() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    let mut pinned = file.record.clone();
    pinned.pinned = true;
    commit(&log, vec![LogRecord::process(&pinned)]);
    drop(log);
    let (_, restored) = restore(&folder);
    assert_eq!(restored.processes[0].record, pinned);
    assert!(!restored.processes[0].is_on_disk);
}

#[test]
fn an_acknowledged_notification_is_never_due_again() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let mut file = run(&folder, &log, 1, true);
    let other = run(&folder, &log, 2, true);
    run(&folder, &log, 3, true);
    commit(&log, vec![acknowledgement(&file.record, Disposition::Accepted)]);
    commit(&log, vec![acknowledgement(&other.record, Disposition::Collision)]);
    drop(log);
    let (log, restored) = restore(&folder);
    let due: Vec<_> = restored.notifications.iter().map(|n| n.notification.process_id()).collect();
    assert_eq!(due, vec![handle(3)]);
    assert_eq!(restored.collisions.len(), 1);
    let marks: Vec<_> = restored
        .processes
        .iter()
        .map(|p| (p.record.published.acknowledged, p.is_on_disk))
        .collect();
    assert_eq!(marks, vec![(true, false), (true, false), (false, true)]);
    // Once the file says so the log need not.
    file.record.published.acknowledged = true;
    manifest::write(&folder, &file).unwrap();
    forget(&log);
    drop(log);
    let (_, restored) = restore(&folder);
    assert!(restored.processes[0].record.published.acknowledged);
    assert!(restored.notifications.iter().all(|n| n.notification.process_id() != handle(1)));
}

/// Symptom: an answered notification was offered again. Cause: a snapshot repeats the record with its mark and the
/// notification, not the answer; once the record was removed, nothing said that it had been answered.
#[test]
fn an_answered_notification_stays_answered_when_its_record_goes_after_a_snapshot() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, false);
    let mut marked = exited(0, 1);
    marked.published.acknowledged = true;
    let seq = file.notification_seq.unwrap();
    let snapshot = vec![
        (0, LogRecord::session(&session_record(0))),
        (seq, LogRecord::process(&marked)),
        (seq, notification(&marked)),
    ];
    let (done, wait) = answer();
    log.start_part(snapshot, done);
    wait().unwrap();
    commit(&log, vec![removal(&marked).into()]);
    drop(log);
    assert!(restore(&folder).1.notifications.is_empty());
}

#[test]
fn a_notification_outlives_its_record_until_it_is_dropped() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    commit(&log, vec![removal(&file.record).into()]);
    manifest::remove(&folder, session_id(0), &handle(1)).unwrap();
    drop(log);
    let (log, restored) = restore(&folder);
    assert!(restored.processes.is_empty());
    assert_eq!(restored.notifications.len(), 1);
    let command_id = file.record.ids.notification;
    let drop_it = Removal::Notification { session_id: session_id(0), command_id };
    commit(&log, vec![drop_it.into()]);
    drop(log);
    assert!(restore(&folder).1.notifications.is_empty());
}

#[test]
fn what_a_removal_left_is_swept_and_orphans_are_set_aside() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    let live = run(&folder, &log, 2, false);
    for number in [1, 2, 9] {
        let spool = folder.spool_path(session_id(0), &handle(number));
        std::fs::create_dir(&spool).unwrap();
        std::fs::write(spool.join("index"), b"x").unwrap();
    }
    let manifests = folder.session_path(session_id(0)).join("manifests");
    std::fs::write(manifests.join(".new-x.json"), b"half").unwrap();
    std::fs::write(folder.path().join(".new-format"), b"half").unwrap();
    commit(&log, vec![removal(&file.record).into()]);
    drop(log);
    let (_, restored) = restore(&folder);
    assert_eq!(restored.processes.len(), 1);
    assert_eq!(restored.processes[0].record.process_id, live.record.process_id);
    assert!(restored.standing_removals.is_empty());
    let left = files(&folder.session_path(session_id(0)));
    let spool = format!("spools/{}/index", handle(2));
    assert_eq!(left, vec!["session.json".to_owned(), spool]);
    assert_eq!(restored.damage.len(), 1, "{:?}", restored.damage);
    assert!(restored.damage[0].reason.contains("spool of no record"));
    assert!(!folder.path().join(".new-format").exists());
    assert!(restore(&folder).1.damage.is_empty());
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Harm {
    Empty,
    Cut(usize),
    Flip(usize),
    Folder,
    Link,
    Gone,
}

fn harms(len: usize) -> Vec<Harm> {
    let cuts = (64..len).step_by(64).map(Harm::Cut);
    let flips = (0..len).step_by(37).map(Harm::Flip);
    [Harm::Empty, Harm::Folder, Harm::Link, Harm::Gone]
        .into_iter()
        .chain(cuts)
        .chain(flips)
        .collect()
}

fn harm(path: &PathBuf, harm: Harm) {
    let bytes = std::fs::read(path).unwrap();
    match harm {
        Harm::Empty => std::fs::write(path, b"").unwrap(),
        Harm::Cut(at) => std::fs::write(path, &bytes[..at]).unwrap(),
        Harm::Flip(at) => {
            let mut bad = bytes;
            bad[at] ^= 1 << (at % 8);
            std::fs::write(path, bad).unwrap();
        }
        Harm::Folder | Harm::Link | Harm::Gone => {
            std::fs::remove_file(path).unwrap();
            if harm == Harm::Folder {
                std::fs::create_dir_all(path.join("in it")).unwrap();
            } else if harm == Harm::Link {
                std::os::unix::fs::symlink("/etc/hostname", path).unwrap();
            }
        }
    }
}

#[test]
fn a_damaged_manifest_is_rebuilt_from_the_log_while_its_records_are_there() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    run(&folder, &log, 2, true);
    drop(log);
    let path = folder.manifest_path(session_id(0), &handle(1));
    for kind in harms(std::fs::read(&path).unwrap().len()) {
        harm(&path, kind);
        let (_, restored) = restore(&folder);
        assert_eq!(restored.processes.len(), 2, "{kind:?}");
        let process = &restored.processes[0];
        assert_eq!((&process.record, &process.events), (&exited(0, 1), &file.events), "{kind:?}");
        assert!(!process.is_on_disk && restored.processes[1].is_on_disk);
        assert_eq!(process.notification_seq, file.notification_seq);
        assert_eq!(restored.damage.len(), usize::from(kind != Harm::Gone), "{kind:?}");
        assert!(restored.corrupt.is_empty());
        // Nothing is in the way of the seal.
        manifest::write(&folder, &file).unwrap();
    }
}

#[test]
fn a_damaged_manifest_that_only_the_file_had_is_set_aside_alone() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    run(&folder, &log, 2, true);
    forget(&log);
    drop(log);
    let path = folder.manifest_path(session_id(0), &handle(1));
    for kind in [Harm::Empty, Harm::Cut(100), Harm::Flip(200), Harm::Folder, Harm::Link] {
        harm(&path, kind);
        let (_, restored) = restore(&folder);
        let there: Vec<_> = restored.processes.iter().map(|p| p.record.process_id).collect();
        assert_eq!(there, vec![handle(2)]);
        assert_eq!(restored.damage.len(), 1);
        assert_eq!(restored.corrupt, HashSet::from([handle(1)]));
        assert!(crate::file::look(&path).unwrap() == crate::file::Found::Nothing);
        assert!(restore(&folder).1.damage.is_empty());
        manifest::write(&folder, &file).unwrap();
    }
    let newer = b"{\"record\":{\"version\":9,\"more\":1}".to_vec();
    let mut bytes = newer;
    crate::closed::close(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let (_, restored) = restore(&folder);
        assert_eq!((restored.processes.len(), restored.damage.len()), (1, 1));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "left where it is");
    }
}

#[test]
fn a_damaged_session_record_is_rebuilt_from_the_log() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    run(&folder, &log, 1, true);
    drop(log);
    let path = folder.session_path(session_id(0)).join("session.json");
    for kind in harms(std::fs::read(&path).unwrap().len()) {
        harm(&path, kind);
        let (_, restored) = restore(&folder);
        assert_eq!(restored.sessions, vec![session_record(0)], "{kind:?}");
        assert_eq!((restored.processes.len(), restored.damage.len()), (1, 1), "{kind:?}");
        assert_eq!(session::read(&folder, session_id(0)).unwrap(), session_record(0));
        assert!(restore(&folder).1.damage.is_empty());
    }
    std::fs::remove_dir_all(folder.session_path(session_id(0))).unwrap();
    let (_, restored) = restore(&folder);
    assert_eq!((restored.sessions.len(), restored.damage.len()), (1, 1));
    assert!(path.exists());
}

#[test]
fn a_session_whose_record_is_lost_everywhere_is_set_aside_as_a_whole() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    run(&folder, &log, 1, true);
    let mut other = session_record(1);
    other.created_at = crate::testing::at(5);
    session::write(&folder, &other).unwrap();
    drop(log);
    std::fs::remove_dir_all(folder.commit_path()).unwrap();
    drop(folder);
    let folder = temp.state();
    std::fs::write(folder.session_path(session_id(0)).join("session.json"), b"{}").unwrap();
    let (_, restored) = restore(&folder);
    assert_eq!(restored.sessions, vec![other]);
    assert!(restored.processes.is_empty());
    assert_eq!(restored.damage.len(), 1);
    assert!(!folder.session_path(session_id(0)).exists());
    let kept = files(&folder.quarantine_path());
    assert!(kept.iter().any(|name| name.contains("manifests/")), "{kept:?}");
    assert!(restore(&folder).1.damage.is_empty());
}

#[test]
fn a_session_that_others_can_reach_or_of_a_newer_version_is_left_and_not_served() {
    use std::os::unix::fs::PermissionsExt;
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    run(&folder, &log, 1, true);
    commit(&log, vec![LogRecord::process(&starting(0, 2))]);
    drop(log);
    let path = folder.session_path(session_id(0));
    let before = files(&path);
    let set = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o750);
    let (_, restored) = restore(&folder);
    assert!(restored.sessions.is_empty() && restored.processes.is_empty());
    assert_eq!(restored.damage.len(), 1);
    assert!(restored.damage[0].reason.contains("0750"), "{:?}", restored.damage);
    set(0o700);
    assert_eq!(restore(&folder).1.processes.len(), 2);
    assert_eq!(files(&path), before);
    let mut newer = b"{\"session\":{\"version\":2}".to_vec();
    crate::closed::close(&mut newer);
    std::fs::write(path.join("session.json"), &newer).unwrap();
    let (_, restored) = restore(&folder);
    assert!(restored.sessions.is_empty() && restored.processes.is_empty());
    assert_eq!(std::fs::read(path.join("session.json")).unwrap(), newer);
}

#[test]
fn foreign_things_in_the_folders_are_set_aside() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    run(&folder, &log, 1, true);
    drop(log);
    let sessions = folder.sessions_path();
    let path = folder.session_path(session_id(0));
    std::fs::write(sessions.join("notes"), b"x").unwrap();
    std::fs::create_dir(sessions.join("old")).unwrap();
    std::os::unix::fs::symlink(&path, sessions.join(session_id(5).to_string())).unwrap();
    std::fs::write(path.join("manifests").join("x.json"), b"x").unwrap();
    std::fs::write(path.join("spools").join("x"), b"x").unwrap();
    let (_, restored) = restore(&folder);
    assert_eq!((restored.sessions.len(), restored.processes.len()), (1, 1));
    assert_eq!(restored.damage.len(), 5, "{:?}", restored.damage);
    // What is in the place of a folder.
    std::fs::remove_dir_all(path.join("spools")).unwrap();
    std::fs::write(path.join("spools"), b"x").unwrap();
    let (_, restored) = restore(&folder);
    assert_eq!((restored.processes.len(), restored.damage.len()), (1, 2));
    assert!(path.join("spools").is_dir());
}

#[test]
fn a_removed_session_goes_with_all_in_it() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    run(&folder, &log, 1, true);
    run(&folder, &log, 2, false);
    commit(&log, vec![Removal::Session { session_id: session_id(0) }.into()]);
    drop(log);
    let (_, restored) = restore(&folder);
    assert!(restored.sessions.is_empty() && restored.processes.is_empty());
    assert!(restored.notifications.is_empty());
    assert!(restored.damage.is_empty(), "{:?}", restored.damage);
    assert!(!folder.session_path(session_id(0)).exists());
}

#[test]
fn a_log_that_is_lost_leaves_all_that_was_sealed() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    for number in 1..4 {
        run(&folder, &log, number, true);
    }
    drop(log);
    std::fs::remove_dir_all(folder.commit_path()).unwrap();
    std::fs::write(folder.commit_path(), b"not a folder").unwrap();
    drop(folder);
    let folder = temp.state();
    let (log, restored) = restore(&folder);
    assert_eq!((restored.sessions.len(), restored.processes.len()), (1, 3));
    assert_eq!(restored.damage.len(), 1);
    assert_eq!(restored.notifications.len(), 3);
    // Numbers go on behind those in the files.
    let next = commit(&log, vec![LogRecord::process(&starting(0, 9))]);
    assert_eq!(next, vec![20]);
}

#[test]
fn events_are_kept_once_in_the_order_of_their_numbers() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    let file = run(&folder, &log, 1, true);
    let mut record = running(0, 2);
    commit(&log, vec![LogRecord::process(&starting(0, 2))]);
    commit(&log, vec![LogRecord::process(&record)]);
    for _ in 0..20 {
        crate::event::count(&mut record, EventKind::SpoolDegraded);
        let degraded = event(&record, EventKind::SpoolDegraded);
        commit(&log, vec![LogRecord::process(&record), degraded.into()]);
    }
    drop(log);
    let (_, restored) = restore(&folder);
    assert_eq!(restored.processes[0].events, file.events);
    let seqs: Vec<u64> = restored.processes[1].events.iter().map(|held| held.seq).collect();
    assert_eq!(seqs.len(), 16);
    assert!(seqs.is_sorted() && seqs[15] == 49, "{seqs:?}");
    let payload = Payload::Event(restored.processes[1].events[15].event.clone());
    assert_eq!(payload.kind().as_str(), "event");
}

#[test]
fn many_files_are_read_by_several_threads_and_damage_stays_with_its_own() {
    let temp = Temp::new();
    let (folder, log) = prepared(&temp);
    drop(log);
    let manifests = folder.session_path(session_id(0)).join("manifests");
    for number in 0..500 {
        let file =
            ManifestFile { record: sealed(0, number), events: vec![], notification_seq: None };
        // Not synced: only what is read counts here.
        let mut bytes = serde_json::to_vec(&file).unwrap();
        bytes.pop();
        crate::closed::close(&mut bytes);
        if number % 100 == 7 {
            bytes.truncate(200);
        }
        std::fs::write(manifests.join(format!("{}.json", handle(number))), bytes).unwrap();
    }
    let (_, restored) = restore(&folder);
    assert_eq!((restored.processes.len(), restored.corrupt.len()), (495, 5));
    let wanted = (0..500).filter(|number| number % 100 != 7).map(|number| sealed(0, number));
    assert!(
        restored.processes.iter().map(|process| &process.record).eq(&wanted.collect::<Vec<_>>())
    );
}
