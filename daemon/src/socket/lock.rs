//! The kernel lock `<socket>.lock`. Its text, a pid, is a hint for people and decides nothing.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{FlockOperation, Identity, Mode, OFlags, SocketError, failed, probe};

/// How often a lock that does not answer is tried again. flock has no waiting with a limit.
const RETRY: Duration = Duration::from_millis(50);

/// A held lock; ends with its last clone and every copy of its descriptor.
#[derive(Debug, Clone)]
pub struct SocketLock {
    file: Arc<File>,
    path: PathBuf,
    identity: Identity,
}

impl SocketLock {
    /// Whether the path still leads to the locked file.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        Identity::of_path(&self.path) == Some(self.identity)
    }
}

impl AsFd for SocketLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The lock file of a socket.
pub(super) fn path_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Takes the lock. A holder whose socket answers is named at once; one that does not may be an
/// orphaned guardian about to finish, and is waited for.
pub(super) fn take(
    socket: &Path,
    folder: &File,
    wait: Duration,
    is_ours: bool,
) -> Result<SocketLock, SocketError> {
    let path = path_of(socket);
    let mut waited = Duration::ZERO;
    loop {
        let file = open(&path, folder)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let found = file.metadata().map_err(|source| failed("look at", &path, source))?;
                let identity = Identity { device: found.dev(), inode: found.ino() };
                let lock = SocketLock { file: Arc::new(file), path: path.clone(), identity };
                // Opened, then replaced by somebody, then locked: that lock guards nothing.
                if lock.is_in_place() {
                    lock.write_pid(&path)?;
                    return Ok(lock);
                }
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let answering = if is_ours { None } else { probe(socket) };
                if answering.is_some() || waited >= wait {
                    let holder = answering.and_then(|found| found.0).or_else(|| read_pid(&file));
                    return Err(SocketError::Held { path: socket.to_owned(), holder });
                }
                pause(RETRY);
                waited += RETRY;
            }
            Err(errno) => return Err(failed("lock", &path, errno)),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "before any task exists; flock cannot wait with a limit"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn open(path: &Path, folder: &File) -> Result<File, SocketError> {
    let name = path.file_name().unwrap_or_default();
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(|errno| failed("open", path, errno))
}

fn read_pid(file: &File) -> Option<i32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

impl SocketLock {
    fn write_pid(&self, path: &Path) -> Result<(), SocketError> {
        let mut file: &File = &self.file;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|source| failed("write", path, source))
    }
}
