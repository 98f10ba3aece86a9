use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::log::{CommitLog, LogRecord};
use crate::manifest::{self, ManifestFile};
use crate::session;
use crate::testing::{Temp, answer, sealed, session as session_record, session_id, starting};

fn open(path: &Path) -> Result<StateFolder, StoreError> {
    StateFolder::open(path, Duration::ZERO)
}

#[test]
fn a_second_open_is_refused_with_the_pid_of_the_holder() {
    let temp = Temp::new();
    let first = temp.state();
    let error = StateFolder::open(first.path(), LOCK_PAUSE * 2).unwrap_err();
    let StoreError::Locked { path, holder } = &error else { panic!("{error:?}") };
    assert_eq!(path, first.path());
    assert_eq!(*holder, i32::try_from(std::process::id()).ok());
    assert!(error.to_string().ends_with(&format!("is held by pid {}", std::process::id())));
    drop(first);
    temp.state();
}

#[test]
fn a_copy_of_the_locks_descriptor_holds_the_folder() {
    let temp = Temp::new();
    let first = temp.state();
    let copy = first.lock_fd().try_clone_to_owned().unwrap();
    let path = first.path().to_owned();
    drop(first);
    assert!(matches!(open(&path), Err(StoreError::Locked { .. })));
    drop(copy);
    open(&path).unwrap();
}

#[test]
fn a_wait_ends_when_the_holder_goes() {
    let temp = Temp::new();
    let first = temp.state();
    let path = first.path().to_owned();
    let waiter = std::thread::spawn(move || StateFolder::open(&path, Duration::from_secs(30)));
    drop(first);
    waiter.join().unwrap().unwrap();
}

#[test]
fn the_folder_id_stays_over_restarts() {
    let temp = Temp::new();
    let id = temp.state().folder_id();
    assert!(!id.is_nil());
    assert_eq!(temp.state().folder_id(), id);
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let temp = Temp::new();
    let path = temp.state().path().to_owned();
    let format = br#"{"format":2,"folder_id":7,"more":true}"#;
    std::fs::write(path.join("format"), format).unwrap();
    std::fs::remove_dir(path.join("commit")).unwrap();
    let holder = std::fs::read(path.join("lock")).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 2, known: 1, .. }), "{error}");
    assert_eq!(std::fs::read(path.join("format")).unwrap(), format);
    assert_eq!(std::fs::read(path.join("lock")).unwrap(), holder);
    assert!(!path.join("commit").exists());
}

#[test]
fn a_damaged_format_is_set_aside_and_made_anew() {
    let temp = Temp::new();
    let path = temp.state().path().to_owned();
    for (count, bad) in [&b""[..], b"{", b"{\"format\":1}", b"\xff\0"].into_iter().enumerate() {
        std::fs::write(path.join("format"), bad).unwrap();
        let folder = open(&path).unwrap();
        assert_eq!(folder.damage().len(), 1, "{bad:?}");
        assert_eq!(folder.damage()[0].what, "format");
        let quarantined = std::fs::read_dir(path.join("quarantine")).unwrap().count();
        assert_eq!(quarantined, 2 * (count + 1));
    }
    std::fs::remove_file(path.join("format")).unwrap();
    std::fs::create_dir(path.join("format")).unwrap();
    assert_eq!(open(&path).unwrap().damage().len(), 1);
    assert!(open(&path).unwrap().damage().is_empty());
}

#[test]
fn a_folder_that_is_not_ours_alone_is_refused_with_a_sentence() {
    let temp = Temp::new();
    let path = temp.state().path().to_owned();
    for mode in [0o750, 0o705, 0o770, 0o707, 0o710] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Unsafe { .. }), "{error:?}");
        let sentence = format!("its mode is {mode:04o}, it must be 0700 (chmod 700)");
        assert!(error.to_string().contains(&sentence), "{error}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(path.join("lock"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Unsafe { .. })));
}

#[test]
fn a_link_or_a_file_in_the_place_of_the_folder_or_its_lock_is_refused() {
    let temp = Temp::new();
    let real = temp.state().path().to_owned();
    let link = temp.path().join("link");
    symlink(&real, &link).unwrap();
    assert!(matches!(open(&link), Err(StoreError::Unsafe { .. })));
    let file = temp.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(matches!(open(&file), Err(StoreError::Unsafe { .. })));
    let lock = real.join("lock");
    std::fs::remove_file(&lock).unwrap();
    symlink(&file, &lock).unwrap();
    assert!(matches!(open(&real), Err(StoreError::Unsafe { .. })));
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    assert!(matches!(open(&real), Err(StoreError::Unsafe { .. })));
}

#[test]
fn what_is_no_folder_in_the_place_of_one_is_set_aside() {
    let temp = Temp::new();
    let path = temp.state().path().to_owned();
    for place in ["commit", "sessions", "quarantine"] {
        std::fs::remove_dir_all(path.join(place)).unwrap();
        std::fs::write(path.join(place), b"?").unwrap();
        let folder = open(&path).unwrap();
        assert_eq!(folder.damage()[0].what, place);
        assert!(path.join(place).is_dir());
        drop(folder);
        assert!(open(&path).unwrap().damage().is_empty());
    }
}

#[test]
fn quarantine_keeps_each_thing_under_a_name_of_its_own_with_its_reason() {
    let temp = Temp::new();
    let folder = temp.state();
    let bad = folder.path().join("sessions").join("bad");
    for content in ["one", "two"] {
        std::fs::write(&bad, content).unwrap();
        let kept = folder.quarantine(&bad, "it is bad").unwrap();
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), content);
        let reason = format!("{}.reason", kept.display());
        assert_eq!(std::fs::read_to_string(reason).unwrap(), "it is bad\n");
        assert!(!bad.exists());
    }
}

/// Everything that is ever made in a state folder is the owner's alone, whatever the umask.
#[test]
fn all_that_is_made_is_shut_to_others() {
    let temp = Temp::new();
    let path = temp.path().join("missing").join("parents").join("state");
    let folder = open(&path).unwrap();
    session::write(&folder, &session_record(0)).unwrap();
    let file = ManifestFile { record: sealed(0, 1), events: vec![], notification_seq: None };
    manifest::write(&folder, &file).unwrap();
    let (log, _) = CommitLog::open(&folder).unwrap();
    let (done, wait) = answer();
    log.submit(vec![LogRecord::process(&starting(0, 2))], done);
    wait().unwrap();
    drop(log);
    folder.quarantine(&folder.session_path(session_id(0)).join("session.json"), "test").unwrap();
    let mut todo = vec![temp.path().join("missing")];
    let mut count = 0;
    while let Some(path) = todo.pop() {
        let stat = std::fs::symlink_metadata(&path).unwrap();
        let wanted = if stat.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(stat.mode() & 0o7777, wanted, "{}", path.display());
        count += 1;
        if stat.is_dir() {
            todo.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(count >= 15, "{count} files and folders");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the umask is the whole process's: it needs its own")]
fn rights_hold_under_every_umask() {
    for umask in ["000", "077", "022", "777"] {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "folder::tests::all_that_is_made_is_shut_to_others"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        // As root the test's own temporary folder can be used without rights too.
        let needs_root = umask == "777" && !rustix::process::geteuid().is_root();
        assert!(needs_root || output.status.success(), "umask {umask}: {text}");
        assert!(needs_root || text.contains("1 passed"), "{text}");
    }
}
