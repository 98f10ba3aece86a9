use std::os::unix::fs::MetadataExt;

use procd_core::state::{Access, EndedBy, SpoolState, Tier};

use super::*;
use crate::event::{EventDetail, count};
use crate::record::{LimitOutcome, OsMetadata, RequestKey, SignalError, TtySize};
use crate::session;
use crate::testing::{
    Temp, at, exited, files, running, sealed, session as session_record, session_id,
};

fn event(record: &Record, kind: EventKind, seq: u64) -> NumberedEvent {
    let detail = EventDetail::default();
    NumberedEvent { seq, event: Event::for_record(kind, record, detail).unwrap() }
}

/// A file with two events.
fn file_of(number: u32) -> ManifestFile {
    let record = sealed(0, number);
    let events = vec![
        event(&running(0, number), EventKind::Started, 2),
        event(&record, EventKind::Completed, 4),
    ];
    ManifestFile { record, events, notification_seq: Some(5) }
}

/// A file in which everything that can be set is set.
fn full_file() -> ManifestFile {
    let mut file = file_of(1);
    let r = &mut file.record;
    r.label = Some("naïve \"label\"\n".into());
    r.command.line = Some("echo '\\xff'".into());
    r.command.cwd = Some("/tmp/é".into());
    r.command.truncated = true;
    r.access.asked = Access::BroadWrite;
    r.access.effective = Access::ScopedWrite;
    r.access.enforced = Some("landlock ABI 5".into());
    r.tty = Some(TtySize { rows: 24, cols: 80 });
    r.tier = Tier::Shim;
    let outcome = LimitOutcome { value: "1048576".into(), applied: "cgroup".into() };
    r.limits.insert("memory_max_bytes".into(), outcome);
    r.escalated = true;
    r.ended_by = Some(EndedBy::TreeEmpty);
    r.leftovers = 2;
    r.signal_errors =
        vec![SignalError { signal: "SIGTERM".into(), errno: "EPERM".into(), count: 1 }];
    r.input_dropped_bytes = 7;
    r.oom_killed = true;
    r.limit_exceeded = Some("memory".into());
    r.deadline_at = Some(at(60));
    r.retained_from = 4;
    r.spool_lost_bytes = 4;
    r.pinned = true;
    r.diagnostic = Some("storage EIO".into());
    r.ordinals.insert("stop_requested".into(), 2);
    r.published.acknowledged = true;
    r.request_key =
        Some(RequestKey { key: "k".into(), salt: "00".repeat(16), body_sha256: "11".repeat(32) });
    r.os = OsMetadata { pid: Some(4711) };
    file
}

/// A state folder with its session.
fn prepared(temp: &Temp) -> StateFolder {
    let folder = temp.state();
    session::write(&folder, &session_record(0)).unwrap();
    folder
}

#[test]
fn the_file_is_the_golden_one() {
    let written = closed::encode("manifest", &full_file()).unwrap();
    let golden = include_bytes!("../../tests/golden/manifest-v1.json");
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(golden));
    let line = closed::only_line(golden).unwrap();
    assert_eq!(decode(line).unwrap(), full_file());
}

#[test]
fn what_was_written_is_read_again_and_can_be_removed() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    for file in [file_of(1), full_file()] {
        remove(&folder, session_id(0), &file.record.process_id).unwrap();
        write(&folder, &file).unwrap();
        let read = read(&folder, session_id(0), &file.record.process_id).unwrap();
        assert_eq!(read, file);
        let path = folder.manifest_path(session_id(0), &file.record.process_id);
        assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o600);
    }
    let handle = file_of(1).record.process_id;
    remove(&folder, session_id(0), &handle).unwrap();
    remove(&folder, session_id(0), &handle).unwrap();
    assert!(matches!(read(&folder, session_id(0), &handle), Err(StoreError::Io { .. })));
}

#[test]
fn a_pin_is_written_over_and_a_conflict_is_refused() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let mut file = file_of(1);
    write(&folder, &file).unwrap();
    file.record.pinned = true;
    write(&folder, &file).unwrap();
    let mut other = file.clone();
    other.record.exit_code = Some(4);
    let error = write(&folder, &other).unwrap_err();
    assert!(matches!(&error, StoreError::Manifest { source } if source.field == "exit_code"));
    let mut invalid = file.clone();
    invalid.record.retained_from = 99;
    assert!(matches!(write(&folder, &invalid), Err(StoreError::Manifest { .. })));
    assert_eq!(read(&folder, session_id(0), &file.record.process_id).unwrap(), file);
}

#[test]
fn any_cut_and_any_flipped_bit_is_corrupt_and_is_never_overwritten() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let file = file_of(1);
    write(&folder, &file).unwrap();
    let handle = file.record.process_id;
    let path = folder.manifest_path(session_id(0), &handle);
    let good = std::fs::read(&path).unwrap();
    let check = |bad: &[u8], what: &str| {
        std::fs::write(&path, bad).unwrap();
        let error = read(&folder, session_id(0), &handle).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{what}: {error:?}");
    };
    for len in (0..good.len()).step_by(16).chain([good.len() - 1]) {
        check(&good[..len], "cut");
    }
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        check(&bad, "flipped");
    }
    check(&[&good[..], b" "].concat(), "longer");
    check(&[&good[..], &good].concat(), "twice");
    assert!(matches!(write(&folder, &file), Err(StoreError::Corrupt { .. })));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(read(&folder, session_id(0), &handle), Err(StoreError::Corrupt { .. })));
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(matches!(read(&folder, session_id(0), &handle), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_good_crc_does_not_excuse_wrong_content() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let file = file_of(1);
    write(&folder, &file).unwrap();
    let handle = file.record.process_id;
    let path = folder.manifest_path(session_id(0), &handle);
    let good = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
    let body = &good[..good.rfind(",\"crc\"").unwrap()];
    let read_with = |body: &str| {
        let mut bytes = body.as_bytes().to_vec();
        closed::close(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        read(&folder, session_id(0), &handle)
    };
    for (from, to) in [
        ("\"exit_code\":3", "\"exit_code\":300"),
        ("\"retained_from\":0", "\"retained_from\":11"),
        ("\"pinned\":true,", ""),
        ("\"state\":\"exited\"", "\"state\":\"ended\""),
        ("\"seq\":4", "\"seq\":1"),
        ("\"events\":[", "\"smuggled\":1,\"events\":["),
        ("\"record\":{", "\"record\":{\"smuggled\":1,"),
        ("\"event\":{", "\"event\":{\"smuggled\":1,"),
        ("\"kind\":\"completed\"", "\"kind\":\"lost\""),
    ] {
        let bad = body.replacen(from, to, 1);
        if bad == body {
            continue;
        }
        let error = read_with(&bad).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{to}: {error:?}");
    }
    assert!(read_with(body).is_ok());
    let newer = body.replacen("\"version\":1", "\"version\":2,\"more\":[]", 1);
    assert!(matches!(read_with(&newer), Err(StoreError::Newer { found: 2, known: 1, .. })));
    assert!(matches!(write(&folder, &file), Err(StoreError::Newer { .. })));
    // The good file of another process.
    let other = file_of(2);
    std::fs::write(&path, closed::encode("manifest", &other).unwrap()).unwrap();
    assert!(matches!(read(&folder, session_id(0), &handle), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let file = file_of(1);
    write(&folder, &file).unwrap();
    let path = folder.manifest_path(session_id(0), &file.record.process_id);
    let before = files(folder.path());
    let failed = file::replace_with(&path, |file| {
        std::io::Write::write_all(file, b"half")?;
        Err(std::io::ErrorKind::StorageFull.into())
    });
    assert!(failed.unwrap_err().is_no_room());
    assert_eq!(files(folder.path()), before);
    assert_eq!(read(&folder, session_id(0), &file.record.process_id).unwrap(), file);
    // The rename fails: a folder is in the way.
    let blocked = folder.session_path(session_id(0)).join("manifests").join("blocked.json");
    std::fs::create_dir_all(blocked.join("full")).unwrap();
    let before = files(folder.path());
    let failed = file::replace(&blocked, b"new").unwrap_err();
    assert!(matches!(failed, StoreError::Io { operation: "rename", .. }), "{failed}");
    assert_eq!(files(folder.path()), before);
    // The folder is missing.
    let nowhere = folder.path().join("nowhere").join("x.json");
    let failed = file::replace(&nowhere, b"new").unwrap_err();
    assert!(matches!(failed, StoreError::Io { operation: "create", .. }), "{failed}");
}

#[test]
fn a_temporary_file_left_by_a_crash_is_no_obstacle() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let file = file_of(1);
    let path = folder.manifest_path(session_id(0), &file.record.process_id);
    let left = path.with_file_name(format!(".new-{}.json", file.record.process_id));
    std::fs::write(&left, b"half").unwrap();
    write(&folder, &file).unwrap();
    assert!(!left.exists());
}

#[test]
fn the_newest_16_events_of_each_kind_that_repeats_are_kept() {
    let mut record = running(0, 1);
    let mut events = vec![event(&record, EventKind::Started, 1)];
    for seq in 0..40u64 {
        let kind = if seq % 2 == 0 { EventKind::SpoolDegraded } else { EventKind::SpoolRecovered };
        count(&mut record, kind);
        events.push(event(&record, kind, seq + 2));
    }
    events.push(event(&exited(0, 1), EventKind::Completed, 99));
    keep_newest(&mut events);
    let seqs: Vec<u64> = events.iter().map(|held| held.seq).collect();
    let wanted: Vec<u64> = std::iter::once(1).chain(10..42).chain(std::iter::once(99)).collect();
    assert_eq!(seqs, wanted);
    assert_eq!(record.spool_state, SpoolState::Open);
}

#[test]
fn of_many_files_written_together_each_stands_or_fails_by_itself() {
    let temp = Temp::new();
    let folder = prepared(&temp);
    let path_of =
        |file: &ManifestFile| folder.manifest_path(session_id(0), &file.record.process_id);
    let some: Vec<_> = (1..=5).map(file_of).collect();
    let [good, bad, again, blocked, last] = <[ManifestFile; 5]>::try_from(some).unwrap();
    let mut bad = bad;
    bad.record.exit_code = None;
    write(&folder, &again).unwrap();
    std::fs::create_dir_all(path_of(&blocked).join("full")).unwrap();
    let files_of = [good, bad, again, blocked, last];
    let results = write_all(&folder, &files_of);
    let stand: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(stand, [true, false, true, false, true], "{results:?}");
    for (file, stands) in files_of.iter().zip(stand) {
        let found = read(&folder, session_id(0), &file.record.process_id).ok();
        assert_eq!(found.as_ref() == Some(file), stands);
    }
    let left = |path: &std::path::Path| path.file_name().is_some_and(file::is_temporary);
    let names = std::fs::read_dir(path_of(&files_of[0]).parent().unwrap()).unwrap();
    assert!(!names.flatten().any(|entry| left(&entry.path())));
}
