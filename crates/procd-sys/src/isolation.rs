//! Tier 3: a PID namespace for one process. Its init is a shim, so everything a shim does holds;
//! beside that nobody in it sees, signals or traces a process outside, and the kernel ends all of
//! it with the init.
//!
//! Init and command each have mounts of their own, with the /proc of the namespace: the command
//! has to enter its folder before it takes its copy, since a descriptor keeps to the mounts it was
//! opened in.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::procfs;
use crate::raw::{self, Forked};

/// How a namespace is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Isolation {
    /// By right.
    Plain = 0,
    /// In a user namespace of its own, in which user and group keep their numbers.
    User = 1,
}

/// What an init needs of the time before its clone.
#[derive(Debug)]
pub(crate) struct Isolated {
    ids: Option<[String; 2]>,
}

impl Isolated {
    pub(crate) fn new(isolation: Isolation) -> Self {
        let ids = || {
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            [format!("{uid} {uid} 1"), format!("{gid} {gid} 1")]
        };
        Self { ids: (isolation == Isolation::User).then(ids) }
    }

    /// The first steps of the init: it ends with its parent, and has its ids.
    pub(crate) fn begin(&self) -> io::Result<()> {
        // A parent that ended before this mark is seen by the death socket.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let Some([uid, gid]) = &self.ids else { return Ok(()) };
        // Without this an ordinary user may not map a group.
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", uid.as_bytes())?;
        write(c"/proc/self/gid_map", gid.as_bytes())
    }
}

/// Takes a copy of the mounts, with the /proc of the caller's own PID namespace. Async-signal-safe.
pub(crate) fn take_own_view() -> io::Result<()> {
    raw::unshare_mounts()?;
    raw::keep_mounts_to_itself()?;
    raw::mount_own_proc()
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    let file = raw::open_to_write(path)?;
    let written = if raw::write(file, text) { Ok(()) } else { Err(io::Error::last_os_error()) };
    raw::close_range(file.unsigned_abs(), file.unsigned_abs())?;
    written
}

/// Clones the init of a new namespace.
pub(crate) fn clone_init(
    isolation: Isolation,
    leaf: Option<BorrowedFd<'_>>,
) -> io::Result<Forked<(Pid, OwnedFd)>> {
    raw::clone_init(isolation == Isolation::User, leaf)
}

/// Tries it with a real child. To be called before any thread exists.
/// # Errors
/// The sentence that says why there is none.
pub fn probe() -> Result<Isolation, String> {
    let plain = probe_one(Isolation::Plain);
    let why = |error: &io::Error| format!("no PID namespace is to be had: {error}");
    match plain {
        Ok(()) => Ok(Isolation::Plain),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            probe_one(Isolation::User).map(|()| Isolation::User).map_err(|error| why(&error))
        }
        Err(error) => Err(why(&error)),
    }
}

fn probe_one(isolation: Isolation) -> io::Result<()> {
    let isolated = Isolated::new(isolation);
    let child = match clone_init(isolation, None)? {
        Forked::Child => {
            let tried = isolated.begin().and_then(|()| take_own_view());
            let errno = tried.err().and_then(|error| error.raw_os_error());
            raw::exit_now(errno.unwrap_or(0))
        }
        Forked::Parent((child, _pidfd)) => child,
    };
    let wait = || rustix::process::waitpid(Some(child), WaitOptions::empty());
    let ended = rustix::io::retry_on_intr(wait)?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// The number by which the caller sees the process of a pidfd; `None` = it is gone, or is not seen.
#[must_use]
pub fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    procfs::pid_of(pidfd).map(|pid| pid.as_raw_nonzero().get())
}
