//! The socket: exactly one daemon per path, from before the probe to the end of life.
//!
//! A kernel lock on `<socket>.lock` is taken first; only its holder probes, replaces and binds.
//! The socket is bound under another name in the same closed folder and moved into place, so
//! that it is never there with wider rights than 0600 nor without a listener behind it.
//! Source: spec, operators, *First run*, *Places*; protocol, *Who may connect*.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

mod lock;
pub mod peer;
pub mod watch;

pub use lock::SocketLock;

/// A socket that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon has it.
    #[error("another daemon{} serves `{}`", pid_words(*holder), path.display())]
    Held {
        /// The socket.
        path: PathBuf,
        /// The pid of the other daemon, if it is known.
        holder: Option<i32>,
    },
    /// The folder is not closed to others.
    #[error("the folder `{}` of the socket {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Something that is no socket is in its place.
    #[error("`{}` is there and is no socket", path.display())]
    NoSocket {
        /// What is there.
        path: PathBuf,
    },
    /// What the service manager listens on is not where clients look.
    #[error(
        "the socket that was handed over is `{}`, and clients look at `{}`: make ListenStream= of \
         procd.socket and the place of the socket the same",
        given.display(),
        path.display()
    )]
    Elsewhere {
        /// Where it is.
        given: PathBuf,
        /// Where it should be.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {deed} `{}`", path.display())]
    Io {
        /// What was to be done.
        deed: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

fn pid_words(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn failed(deed: &'static str, path: &Path, source: impl Into<io::Error>) -> SocketError {
    SocketError::Io { deed, path: path.to_owned(), source: source.into() }
}

/// A bound socket with its lock. Dropping it removes the socket, then the lock ends.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
    identity: Identity,
    lock: SocketLock,
    /// Whether a service manager made it, and keeps it.
    is_adopted: bool,
}

/// Which file something is: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of_path(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}

/// The lock of a socket that is not bound yet.
#[derive(Debug)]
pub struct Locked {
    path: PathBuf,
    folder: File,
    lock: SocketLock,
}

/// Takes the lock of `path`, waiting up to `wait` for one that does not answer.
/// # Errors
/// [`SocketError`]; `Held` at once when the holder's socket answers.
/// - `is_ours`: a service manager has bound it for us; whoever answers is nobody else then.
pub fn lock(path: &Path, wait: Duration, is_ours: bool) -> Result<Locked, SocketError> {
    let folder = open_folder(path.parent().unwrap_or_else(|| Path::new("/")))?;
    let lock = lock::take(path, &folder, wait, is_ours)?;
    Ok(Locked { path: path.to_owned(), folder, lock })
}

impl Locked {
    /// The kernel lock that is held for life.
    #[must_use]
    pub const fn lock(&self) -> &SocketLock {
        &self.lock
    }

    /// Takes over a socket that listens already.
    /// # Errors
    /// `Elsewhere`; `Io` for what is no listening socket of this machine.
    pub fn adopt(self, given: OwnedFd) -> Result<Bound, SocketError> {
        let listener = UnixListener::from(given);
        let address =
            listener.local_addr().map_err(|source| failed("adopt", &self.path, source))?;
        let given = address.as_pathname().unwrap_or_else(|| Path::new(""));
        if given != self.path {
            return Err(SocketError::Elsewhere { given: given.to_owned(), path: self.path });
        }
        listener.set_nonblocking(true).map_err(|source| failed("prepare", &self.path, source))?;
        let identity = Identity::of_path(&self.path)
            .ok_or_else(|| failed("look at", &self.path, Errno::NOENT))?;
        let Self { path, lock, folder: _ } = self;
        Ok(Bound { listener, path, identity, lock, is_adopted: true })
    }

    /// Binds and listens, replacing a stale socket.
    /// # Errors
    /// `Held` when somebody without the lock answers; `NoSocket`; `Io`.
    pub fn bind(self) -> Result<Bound, SocketError> {
        bind_locked(&self.path, &self.folder, self.lock)
    }
}

/// Probes, replaces what is stale, and binds. Only with the lock held: between the probe and the
/// move nobody else touches the path.
fn bind_locked(path: &Path, folder: &File, lock: SocketLock) -> Result<Bound, SocketError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NoSocket { path: path.to_owned() });
        }
        Ok(_) => {
            if let Some(holder) = probe(path) {
                return Err(SocketError::Held { path: path.to_owned(), holder: holder.0 });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at", path, error)),
    }
    // Through the open folder: the name stays short, and nobody can swap the folder meanwhile.
    let name = format!(".procd-{}.new", std::process::id());
    let short = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(folder));
    let temporary = Path::new(&short).join(&name);
    remove_leftover(folder, &name);
    let listener = UnixListener::bind(&temporary).map_err(|source| failed("bind", path, source))?;
    let placed = place(&temporary, folder, &name, path);
    if placed.is_err() {
        remove_leftover(folder, &name);
    }
    let identity = placed?;
    listener.set_nonblocking(true).map_err(|source| failed("prepare", path, source))?;
    Ok(Bound { listener, path: path.to_owned(), identity, lock, is_adopted: false })
}

fn place(
    temporary: &Path,
    folder: &File,
    name: &str,
    path: &Path,
) -> Result<Identity, SocketError> {
    std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(0o600))
        .map_err(|source| failed("close to others", path, source))?;
    let file_name = path.file_name().unwrap_or_default();
    rustix::fs::renameat(folder, name, folder, file_name)
        .map_err(|errno| failed("move into place", path, errno))?;
    Identity::of_path(path).ok_or_else(|| failed("look at", path, Errno::NOENT))
}

/// What a crash between bind and move may have left.
fn remove_leftover(folder: &File, name: &str) {
    match rustix::fs::unlinkat(folder, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => tracing::warn!(%errno, "a socket that was never in place stays behind"),
    }
}

/// Whether somebody answers at `path`, and who that is as far as the kernel tells.
fn probe(path: &Path) -> Option<Answering> {
    let stream = UnixStream::connect(path).ok()?;
    let credentials = rustix::net::sockopt::socket_peercred(&stream).ok();
    Some(Answering(credentials.map(|found| found.pid.as_raw_nonzero().get())))
}

/// A live socket, and its holder's pid if it is known.
struct Answering(Option<i32>);

/// Opens the folder of a socket; makes it, 0700, if it is missing.
fn open_folder(folder: &Path) -> Result<File, SocketError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(folder, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(refused(folder, "is a symlink or no folder"));
        }
        Err(errno) => {
            return Err(made.map_or_else(
                |source| failed("make the folder", folder, source),
                |()| failed("open the folder", folder, errno),
            ));
        }
    };
    let found = opened.metadata().map_err(|source| failed("look at", folder, source))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused(folder, "belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(refused(folder, "is open to others: it must be 0700"));
    }
    Ok(opened)
}

fn refused(folder: &Path, problem: &'static str) -> SocketError {
    SocketError::Folder { path: folder.to_owned(), problem }
}

impl Bound {
    /// The path it is bound to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second descriptor of the listening socket, for the accepting task.
    /// # Errors
    /// No descriptor is free.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Whether the path still leads to this socket, and its lock file to this lock.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        Identity::of_path(&self.path) == Some(self.identity) && self.lock.is_in_place()
    }

    /// Makes anew what is missing after the socket, its lock file or its folder was removed.
    /// What is still in place is kept.
    /// # Errors
    /// `Held` when another daemon has taken the place meanwhile.
    pub fn remake(mut self) -> Result<Self, SocketError> {
        let path = self.path.clone();
        let folder = open_folder(path.parent().unwrap_or_else(|| Path::new("/")))?;
        if !self.lock.is_in_place() {
            self.lock = lock::take(&path, &folder, Duration::ZERO, false)?;
        }
        // Our own socket would answer the probe like another daemon's.
        if Identity::of_path(&path) == Some(self.identity) {
            return Ok(self);
        }
        bind_locked(&path, &folder, self.lock.clone())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // A socket that another daemon made in the same place is left alone.
        if !self.is_adopted && Identity::of_path(&self.path) == Some(self.identity) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests;
