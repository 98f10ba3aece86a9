//! One daemon per socket, whatever was there before and however many race.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

static NEXT: AtomicU32 = AtomicU32::new(0);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("procd-sock-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("procd.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn bind(path: &Path, wait: Duration) -> Result<Bound, SocketError> {
    lock(path, wait, false)?.bind()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_missing_folder_is_made_closed_and_so_are_socket_and_lock() {
    let folder = Folder::new();
    let path = folder.0.join("a/b/procd.sock");
    let bound = bind(&path, Duration::ZERO).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    assert_eq!((mode(&path), mode(&lock::path_of(&path))), (0o600, 0o600));
    assert_eq!((mode(&folder.0.join("a")), mode(&folder.0.join("a/b"))), (0o700, 0o700));
    let lock_text = std::fs::read_to_string(lock::path_of(&path)).unwrap();
    assert_eq!(lock_text.trim(), std::process::id().to_string());
    drop(bound);
    assert!(!path.exists());
}

#[test]
fn the_socket_is_never_seen_wider_than_0600() {
    let folder = Folder::new();
    let path = folder.socket();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (path, stop) = (path.clone(), stop.clone());
        move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Ok(found) = std::fs::symlink_metadata(&path) {
                    assert_eq!(found.mode() & 0o7777, 0o600);
                    assert!(UnixStream::connect(&path).is_ok() || !path.exists());
                    seen += 1;
                }
            }
            seen
        }
    });
    for _ in 0..200 {
        drop(bind(&path, Duration::ZERO).unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
}

#[test]
fn a_live_socket_is_never_replaced_and_its_holder_is_named_at_once() {
    let folder = Folder::new();
    let first = bind(&folder.socket(), Duration::ZERO).unwrap();
    let error = bind(&folder.socket(), Duration::from_secs(60)).unwrap_err();
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(matches!(error, SocketError::Held { holder: Some(pid), .. } if pid == own), "{error}");
    assert!(first.is_in_place());
    assert!(UnixStream::connect(folder.socket()).is_ok());
}

#[test]
fn a_live_socket_whose_lock_was_removed_is_not_replaced_either() {
    let folder = Folder::new();
    let first = bind(&folder.socket(), Duration::ZERO).unwrap();
    std::fs::remove_file(lock::path_of(&folder.socket())).unwrap();
    assert!(matches!(
        bind(&folder.socket(), Duration::ZERO).unwrap_err(),
        SocketError::Held { .. }
    ));
    assert!(UnixStream::connect(folder.socket()).is_ok());
    assert!(!first.is_in_place());
}

#[test]
fn a_stale_socket_is_replaced() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(UnixStream::connect(folder.socket()).is_err());
    let bound = bind(&folder.socket(), Duration::ZERO).unwrap();
    assert!(bound.is_in_place());
    assert!(UnixStream::connect(folder.socket()).is_ok());
}

#[test]
fn a_silent_holder_of_the_lock_is_waited_for_and_then_named() {
    let folder = Folder::new();
    let mut bound = bind(&folder.socket(), Duration::ZERO).unwrap();
    let lock = bound.lock.clone();
    drop(std::mem::replace(&mut bound, {
        let other = Folder::new();
        bind(&other.socket(), Duration::ZERO).unwrap()
    }));
    // The socket is gone, the lock is held: as an orphaned guardian does.
    let error = bind(&folder.socket(), Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, SocketError::Held { holder: Some(_), .. }), "{error}");
    let release = std::thread::spawn(move || drop(lock));
    assert!(bind(&folder.socket(), Duration::from_secs(60)).is_ok());
    release.join().unwrap();
}

#[test]
fn folders_that_are_open_symlinks_or_no_folders_are_refused() {
    let folder = Folder::new();
    let open = folder.0.join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&folder.0, &link).unwrap();
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    for (place, word) in [(&open, "open to others"), (&link, "symlink"), (&file, "no folder")] {
        let error = bind(&place.join("procd.sock"), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert!(matches!(error, SocketError::Folder { .. }));
    }
}

#[test]
fn a_foreign_folder_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Folder::new();
    let foreign = folder.0.join("foreign");
    std::fs::DirBuilder::new().mode(0o700).create(&foreign).unwrap();
    std::os::unix::fs::chown(&foreign, Some(65_534), None).unwrap();
    let error = bind(&foreign.join("procd.sock"), Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("belongs to another user"), "{error}");
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = Folder::new();
    std::fs::write(folder.socket(), "precious").unwrap();
    let error = bind(&folder.socket(), Duration::ZERO).unwrap_err();
    assert!(matches!(error, SocketError::NoSocket { .. }));
    assert_eq!(std::fs::read_to_string(folder.socket()).unwrap(), "precious");
}

#[test]
fn fifty_that_start_at_once_over_a_stale_socket_give_one_daemon() {
    for _ in 0..20 {
        let folder = Folder::new();
        drop(UnixListener::bind(folder.socket()).unwrap());
        let barrier = Arc::new(Barrier::new(50));
        let racers: Vec<_> = (0..50)
            .map(|_| {
                let (path, barrier) = (folder.socket(), barrier.clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    bind(&path, Duration::from_secs(60))
                })
            })
            .collect();
        let outcomes: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().flatten().all(Bound::is_in_place));
        assert!(UnixStream::connect(folder.socket()).is_ok());
    }
}

#[test]
fn a_removed_socket_is_made_again_under_the_same_lock() {
    let folder = Folder::new();
    let bound = bind(&folder.socket(), Duration::ZERO).unwrap();
    std::fs::remove_file(folder.socket()).unwrap();
    assert!(!bound.is_in_place());
    let bound = bound.remake().unwrap();
    assert!(bound.is_in_place());
    assert!(UnixStream::connect(folder.socket()).is_ok());
}

#[test]
fn a_removed_lock_is_taken_again_and_the_socket_stays() {
    let folder = Folder::new();
    let bound = bind(&folder.socket(), Duration::ZERO).unwrap();
    std::fs::remove_file(lock::path_of(&folder.socket())).unwrap();
    let waiting = UnixStream::connect(folder.socket()).unwrap();
    let bound = bound.remake().unwrap();
    assert!(bound.is_in_place());
    assert!(bound.listener().unwrap().accept().is_ok());
    drop(waiting);
}

#[test]
fn a_removed_folder_is_made_again_with_its_lock_unless_another_daemon_was_first() {
    let folder = Folder::new();
    let path = folder.0.join("run/procd.sock");
    let bound = bind(&path, Duration::ZERO).unwrap();
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let bound = bound.remake().unwrap();
    assert!(bound.is_in_place());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let other = bind(&path, Duration::ZERO).unwrap();
    assert!(matches!(bound.remake().unwrap_err(), SocketError::Held { .. }));
    assert!(other.is_in_place());
}

#[tokio::test]
async fn the_watch_tells_of_a_removed_socket_and_of_a_removed_folder() {
    let folder = Folder::new();
    let path = folder.0.join("run/procd.sock");
    let bound = bind(&path, Duration::ZERO).unwrap();
    let mut watch = watch::FolderWatch::new(path.parent().unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    watch.happened().await.unwrap();
    assert!(!bound.is_in_place());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    watch.happened().await.unwrap();
}
