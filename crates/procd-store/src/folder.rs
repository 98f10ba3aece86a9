//! The state folder: found safe or refused, held by one daemon, of a format this build knows.
//!
//! Nothing in a folder of a newer format, or in one that others can reach, is touched.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procd_core::{Handle, SessionId};
use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::damage::Damage;
use crate::error::StoreError;
use crate::failpoint;
use crate::file::{self, Found};

/// The format of the state folder that this build writes.
pub const FORMAT: u64 = 1;
/// Bytes of the format file at most.
const FORMAT_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of the lock file that are read for the holder's pid.
const HOLDER_BYTES_MAX: u64 = 32;
/// Between two tries for a lock that somebody holds.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What the format file says.
#[derive(Serialize, Deserialize)]
struct Format {
    format: u64,
    folder_id: Uuid,
}

/// The state folder, locked for the life of this value and of every copy of its lock's descriptor.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    lock: OwnedFd,
    folder_id: Uuid,
    damage: Vec<Damage>,
}

impl StateFolder {
    /// Makes the folder if there is none, checks it, locks it and reads its format.
    /// - `wait`: how long a lock held by another is waited for, such as by an orphaned guardian.
    /// # Errors
    /// [`StoreError::Locked`] after `wait`; [`StoreError::Unsafe`] for a folder that is a link,
    /// is not ours or is open to others; [`StoreError::Newer`] for a newer format.
    pub fn open(path: &Path, wait: Duration) -> Result<Self, StoreError> {
        make_with_parents(path)?;
        let folder = open_private(path)?;
        let lock = lock(path, wait)?;
        drop(folder);
        // Before anything is written: a newer folder stays as it is.
        let format = read_format(path)?;
        write_holder(&lock, &path.join("lock"))?;
        let mut opened = Self {
            path: path.to_owned(),
            lock: lock.into(),
            folder_id: Uuid::nil(),
            damage: Vec::new(),
        };
        opened.make_places()?;
        opened.folder_id = match format {
            FormatFile::Known(folder_id) => folder_id,
            FormatFile::Missing => opened.write_format()?,
            FormatFile::Damaged(what) => {
                opened.set_aside(&path.join("format"), &what);
                opened.write_format()?
            }
        };
        Ok(opened)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's own id: names the control groups of its daemons.
    #[must_use]
    pub const fn folder_id(&self) -> Uuid {
        self.folder_id
    }

    /// The lock's descriptor: whoever holds a copy of it holds the folder.
    #[must_use]
    pub fn lock_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// What was found damaged while the folder was opened, and set aside.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The ballast: given up on a full disk, so that ends can still be saved.
    #[must_use]
    pub fn ballast_path(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// The folder of the commit log's parts.
    #[must_use]
    pub fn commit_path(&self) -> PathBuf {
        self.path.join("commit")
    }

    /// The folder of all sessions.
    #[must_use]
    pub fn sessions_path(&self) -> PathBuf {
        self.path.join("sessions")
    }

    /// The folder of damaged files.
    #[must_use]
    pub fn quarantine_path(&self) -> PathBuf {
        self.path.join("quarantine")
    }

    /// The folder of one session.
    #[must_use]
    pub fn session_path(&self, session: SessionId) -> PathBuf {
        self.sessions_path().join(session.to_string())
    }

    /// The manifest's file of one process.
    #[must_use]
    pub fn manifest_path(&self, session: SessionId, handle: &Handle) -> PathBuf {
        self.session_path(session).join("manifests").join(format!("{handle}.json"))
    }

    /// The spool's folder of one process. It exists from the first byte of output on.
    #[must_use]
    pub fn spool_path(&self, session: SessionId, handle: &Handle) -> PathBuf {
        self.session_path(session).join("spools").join(handle.to_string())
    }

    /// Moves a damaged file or folder to `quarantine/`, with its reason beside it.
    /// Returns where it is now; nothing at `path` is fine.
    /// # Errors
    /// [`StoreError::Io`]; the file stays where it was, or lies there without a reason.
    pub fn quarantine(&self, path: &Path, reason: &str) -> Result<PathBuf, StoreError> {
        let target = self.free_place(&self.flat_name(path))?;
        failpoint::hit("quarantine-before-rename");
        match fs::rename(path, &target) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(StoreError::io("move to quarantine", path, errno)),
        }
        failpoint::hit("quarantine-before-reason");
        self.write_reason(&target, reason)?;
        Ok(target)
    }

    /// Copies damaged bytes of a file that goes on to `quarantine/`, once per name.
    pub(crate) fn quarantine_copy(
        &self,
        name: &str,
        bytes: &[u8],
        reason: &str,
    ) -> Result<(), StoreError> {
        let target = self.quarantine_path().join(name);
        if file::look(&target)? != Found::Nothing {
            return Ok(());
        }
        file::replace(&target, bytes)?;
        self.write_reason(&target, reason)
    }

    fn write_reason(&self, target: &Path, reason: &str) -> Result<(), StoreError> {
        let mut name = target.as_os_str().to_owned();
        name.push(".reason");
        file::replace(Path::new(&name), format!("{reason}\n").as_bytes())
    }

    /// The path below the state folder as one name.
    fn flat_name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.path).unwrap_or(path);
        let parts: Vec<_> =
            below.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        parts.join("-").replace('/', "")
    }

    fn free_place(&self, name: &str) -> Result<PathBuf, StoreError> {
        let mut target = self.quarantine_path().join(name);
        let mut count = 1;
        while file::look(&target)? != Found::Nothing {
            count += 1;
            target = self.quarantine_path().join(format!("{name}.{count}"));
        }
        Ok(target)
    }

    fn set_aside(&mut self, path: &Path, reason: &str) {
        let moved = self.quarantine(path, reason);
        self.damage.push(Damage::new(&self.path, path, reason, moved.err()));
    }

    fn make_places(&mut self) -> Result<(), StoreError> {
        let quarantine = self.quarantine_path();
        if matches!(file::look(&quarantine)?, Found::File | Found::Other) {
            let aside = self.path.join("quarantine.damaged");
            file::remove(&aside)?;
            fs::rename(&quarantine, &aside)
                .map_err(|errno| StoreError::io("set aside", &quarantine, errno))?;
            let reason = "it was no folder; it is `quarantine.damaged` now";
            self.damage.push(Damage::new(&self.path, &quarantine, reason, None));
        }
        file::make_folder(&quarantine)?;
        for place in [self.commit_path(), self.sessions_path()] {
            if matches!(file::look(&place)?, Found::File | Found::Other) {
                self.set_aside(&place, "it is no folder");
            }
            if file::make_folder(&place)? {
                file::sync_folder(&self.path)?;
            }
        }
        Ok(())
    }

    fn write_format(&self) -> Result<Uuid, StoreError> {
        let format = Format { format: FORMAT, folder_id: Uuid::new_v4() };
        let mut text = serde_json::to_vec(&format)
            .map_err(|source| StoreError::Encode { what: "format", source })?;
        text.push(b'\n');
        file::replace(&self.path.join("format"), &text)?;
        Ok(format.folder_id)
    }
}

enum FormatFile {
    Missing,
    Known(Uuid),
    Damaged(String),
}

fn read_format(folder: &Path) -> Result<FormatFile, StoreError> {
    /// Only the version: what else a newer build writes is not known.
    #[derive(Deserialize)]
    struct Version {
        format: u64,
    }
    let path = folder.join("format");
    let bytes = match file::look(&path)? {
        Found::Nothing => return Ok(FormatFile::Missing),
        Found::Folder | Found::Other => {
            return Ok(FormatFile::Damaged("it is no regular file".to_owned()));
        }
        Found::File => match file::read(&path, FORMAT_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(FormatFile::Damaged(error.to_string())),
        },
    };
    if let Ok(Version { format }) = serde_json::from_slice(&bytes)
        && format > FORMAT
    {
        return Err(StoreError::Newer { path, found: format, known: FORMAT });
    }
    Ok(match serde_json::from_slice::<Format>(&bytes) {
        Ok(Format { format: FORMAT, folder_id }) if !folder_id.is_nil() => {
            FormatFile::Known(folder_id)
        }
        Ok(_) => FormatFile::Damaged("it names no format or no folder id".to_owned()),
        Err(error) => FormatFile::Damaged(format!("it is not readable: {error}")),
    })
}

/// Makes each missing folder on the way, 0700.
fn make_with_parents(path: &Path) -> Result<(), StoreError> {
    if file::look(path)? != Found::Nothing {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
        && !parent.exists()
    {
        make_with_parents(parent)?;
    }
    file::make_folder(path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_parent(parent),
        Some(_) | None => Ok(()),
    }
}

/// A parent may be shut for reading: its own sync is then left to the system.
fn sync_parent(parent: &Path) -> Result<(), StoreError> {
    match std::fs::File::open(parent) {
        Ok(folder) => {
            folder.sync_all().map_err(|source| StoreError::io("sync folder", parent, source))
        }
        Err(_) => Ok(()),
    }
}

fn open_private(path: &Path) -> Result<File, StoreError> {
    let refuse = |what: &str| StoreError::Unsafe { path: path.to_owned(), what: what.to_owned() };
    match file::look(path)? {
        Found::Folder => {}
        Found::Nothing | Found::File | Found::Other => {
            return Err(refuse("it is a link or a file, it must be a folder"));
        }
    }
    let folder = file::open_folder(path)?;
    file::check_private(&folder, path, 0o700)?;
    Ok(folder)
}

/// Takes the lock, trying again until `wait` is over.
#[expect(
    clippy::disallowed_methods,
    reason = "a kernel lock has no deadline of its own, and there must be no thread before the guardian"
)]
fn lock(folder: &Path, wait: Duration) -> Result<File, StoreError> {
    let path = folder.join("lock");
    let mut waited = Duration::ZERO;
    loop {
        let file = open_lock(&path)?;
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // A lock on a file that was removed meanwhile locks nobody out.
            Ok(()) if file::is_same(&file, &path)? => return Ok(file),
            Ok(()) => continue,
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => return Err(StoreError::io("lock", &path, errno)),
        }
        if waited >= wait {
            return Err(StoreError::Locked { path: folder.to_owned(), holder: holder(&file) });
        }
        std::thread::sleep(LOCK_PAUSE);
        waited += LOCK_PAUSE;
    }
}

fn open_lock(path: &Path) -> Result<File, StoreError> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let unsafe_lock =
        |what: &str| StoreError::Unsafe { path: path.to_owned(), what: what.to_owned() };
    let open = || fs::open(path, flags, file::FILE_MODE);
    let opened = match open() {
        // Somebody took our own rights to it: given back, it is still the same lock.
        Err(Errno::ACCESS) if file::look(path)? == Found::File => {
            fs::chmod(path, file::FILE_MODE)
                .map_err(|errno| StoreError::io("set the rights of", path, errno))?;
            open()
        }
        opened => opened,
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Err(unsafe_lock(
                "it is a link or a folder, it must be a regular file; remove it",
            ));
        }
        Err(errno) => return Err(StoreError::io("open", path, errno)),
    };
    file::check_private(&fd, path, 0o600)?;
    file::settle_mode(&fd, path, file::FILE_MODE)?;
    Ok(File::from(fd))
}

/// The pid that the holder wrote: a hint for people.
fn holder(lock: &File) -> Option<i32> {
    let mut text = String::new();
    lock.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|&pid: &i32| pid > 0)
}

fn write_holder(mut lock: &File, path: &Path) -> Result<(), StoreError> {
    lock.set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| lock.write_all(format!("{}\n", std::process::id()).as_bytes()))
        .or_else(|source| {
            // A hint is not worth refusing to serve reads on a full disk.
            let error = StoreError::io("write", path, source);
            if error.is_no_room() { Ok(()) } else { Err(error) }
        })
}

#[cfg(test)]
mod tests;
