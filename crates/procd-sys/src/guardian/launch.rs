//! The daemon's side: starting a guardian.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::PidfdFlags;

use super::MODE;
use crate::containment::Containment;
use crate::message::Request;
use crate::wait::{self, Look};
use crate::{channel, procfs, raw};

/// A guardian as the daemon holds it. Dropping it closes the link, which ends everything the
/// guardian holds, and then the guardian.
#[derive(Debug)]
pub struct Launched {
    /// The link. Does not block.
    pub control: OwnedFd,
    /// Its pid, for operators.
    pub pid: i32,
    /// Turns readable when it ends.
    pub pidfd: OwnedFd,
}

/// Starts a guardian and asks it to set up; its first report is `Ready`. The caller becomes a
/// subreaper, so that what a dead guardian leaves behind falls to it.
/// - `held`: what it keeps open as long as it lives: the locks.
/// # Errors
/// No process or descriptor to be had.
pub fn launch(containment: &Containment, held: &[BorrowedFd<'_>]) -> io::Result<Launched> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (ours, theirs) = channel::pair()?;
    let pid = raw::respawn(&[c"procd-guardian", MODE], theirs.as_fd())?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let payload = containment.payload();
    let body = channel::body(payload.map_or("", |payload| payload.proc_path()).as_bytes())?;
    let mut descriptors = vec![body.as_fd()];
    descriptors.extend(payload.map(|payload| payload.folder()));
    descriptors.extend_from_slice(held);
    let request = Request::Setup { payload: payload.is_some() };
    channel::send(&ours, &request.encode(), &descriptors)?;
    Ok(Launched { control: ours, pid: pid.as_raw_nonzero().get(), pidfd })
}

/// Reaps what ended among the caller's children: a dead guardian, and what fell from it.
pub fn reap_adopted() {
    while let Look::Ended(_) = wait::reap_any() {}
}

/// Kills the children of the caller's main thread but `except`, and reaps them: what fell to it
/// when a guardian died together with shims. They are its own and unreaped, so that their numbers
/// cannot be strangers'. `true` = some may still live.
#[must_use]
pub fn kill_adopted(except: i32) -> bool {
    let mut some_live = false;
    for pid in procfs::own_children().unwrap_or_default() {
        if pid.as_raw_nonzero().get() != except && wait::reap(pid) == Look::Alive {
            let _refused = raw::kill(pid, false, libc::SIGKILL);
            some_live = true;
        }
    }
    some_live
}
