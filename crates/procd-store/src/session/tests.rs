use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::testing::{Temp, session as record, session_id};

fn written(temp: &Temp) -> (StateFolder, PathBuf) {
    let folder = temp.state();
    write(&folder, &record(0)).unwrap();
    let path = session_file(&folder, session_id(0));
    (folder, path)
}

#[test]
fn every_rule_of_a_session_is_read_again() {
    let temp = Temp::new();
    let (folder, path) = written(&temp);
    assert_eq!(read(&folder, session_id(0)).unwrap(), record(0));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("{\"session\":{\"version\":1,"), "{text}");
    let mut closed = record(0);
    closed.state = SessionState::Closed;
    closed.closed_at = Some(crate::testing::at(9));
    write(&folder, &closed).unwrap();
    assert_eq!(read(&folder, session_id(0)).unwrap(), closed);
}

#[test]
fn the_file_is_the_golden_one() {
    let mut record = record(0);
    record.uid = 1000;
    let written = closed::encode("session record", &FileOut { session: &record }).unwrap();
    let golden = include_bytes!("../../tests/golden/session-v1.json");
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(golden));
    let line = closed::only_line(golden).unwrap();
    assert_eq!(decode(Path::new("golden"), line).unwrap(), record);
}

#[test]
fn a_missing_damaged_or_foreign_record_is_corrupt_and_a_newer_one_is_told_apart() {
    let temp = Temp::new();
    let (folder, path) = written(&temp);
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        for bad in [&bad[..], &good[..at]] {
            std::fs::write(&path, bad).unwrap();
            assert!(matches!(read(&folder, session_id(0)), Err(StoreError::Corrupt { .. })));
        }
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read(&folder, session_id(0)), Err(StoreError::Corrupt { .. })));
    let put = |record: &SessionRecord| {
        let bytes = closed::encode("session record", &FileOut { session: record }).unwrap();
        std::fs::write(&path, bytes).unwrap();
        read(&folder, session_id(0))
    };
    assert!(matches!(put(&record(1)), Err(StoreError::Corrupt { .. })));
    let mut other = record(0);
    other.uid += 1;
    assert!(matches!(put(&other), Err(StoreError::Corrupt { .. })));
    let mut other = record(0);
    other.key_sha256 = "no".into();
    assert!(matches!(put(&other), Err(StoreError::Corrupt { .. })));
    let mut other = record(0);
    other.version = 2;
    assert!(matches!(put(&other), Err(StoreError::Newer { found: 2, .. })));
    assert!(matches!(write(&folder, &record(0)), Err(StoreError::Newer { .. })));
}

#[test]
fn a_folder_that_others_can_reach_or_that_is_a_link_fails_the_open() {
    let temp = Temp::new();
    let (folder, _) = written(&temp);
    let path = folder.session_path(session_id(0));
    for mode in [0o750, 0o704, 0o720, 0o701] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(read(&folder, session_id(0)), Err(StoreError::Unsafe { .. })));
        assert!(matches!(write(&folder, &record(0)), Err(StoreError::Unsafe { .. })));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let moved = temp.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &path).unwrap();
    assert!(matches!(read(&folder, session_id(0)), Err(StoreError::Unsafe { .. })));
}

#[test]
fn a_workspace_that_holds_the_state_folder_fails_the_open() {
    let temp = Temp::new();
    let folder = temp.state();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(temp.path(), &link).unwrap();
    for root in [temp.path(), folder.path(), Path::new("/"), &link] {
        let mut record = record(0);
        record.workspaces = vec![PathBuf::from("/srv"), root.to_owned()];
        let error = write(&folder, &record).unwrap_err();
        assert!(matches!(error, StoreError::Unsafe { .. }), "{error}");
        assert!(!folder.session_path(session_id(0)).exists());
    }
    let mut record = record(0);
    // A sibling whose name only begins like it.
    record.workspaces = vec![PathBuf::from(format!("{}x", folder.path().display()))];
    write(&folder, &record).unwrap();
}
