//! Who connects to a socket, and where that process stands: its control group and its ancestors.
//!
//! Everything is told of the process that called `connect`, held by its pidfd: a number that has
//! become a stranger's is seen as such. What cannot be told is no answer, never a guess.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{procfs, raw};

/// How far an ancestry is followed.
const DEPTH_MAX: usize = 1024;
/// How often a walk that met a dying process is begun again.
const WALKS_MAX: usize = 4;

/// The other end of a connection, as the kernel noted it when it connected.
#[derive(Debug)]
pub struct Peer {
    uid: u32,
    pid: i32,
    held: Option<OwnedFd>,
    /// Held only by a pid that was looked up again: then a later start gives a stranger away.
    accepted_ticks: Option<u64>,
}

/// Where a process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its control group (v2) as this process sees it; `None` where there is none.
    pub group: Option<String>,
    /// Itself, its parent and so on, as far as they can be seen.
    pub line: Vec<i32>,
}

impl Peer {
    /// Asks the kernel. To be called right after the accept.
    /// # Errors
    /// The descriptor is no connected socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Self::with(socket.as_fd(), raw::peer_pidfd)
    }

    fn with(
        socket: BorrowedFd<'_>,
        peer_pidfd: impl Fn(BorrowedFd<'_>) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
        let found = getsockopt(&socket, PeerCredentials).map_err(io::Error::from)?;
        let (uid, pid) = (found.uid(), found.pid());
        let unheld = Self { uid, pid, held: None, accepted_ticks: None };
        match peer_pidfd(socket) {
            Ok(held) => Ok(Self { held: Some(held), ..unheld }),
            // Before Linux 6.5: by the number, which may be another's by now.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                let named = Pid::from_raw(pid).filter(|_| pid > 0);
                let held = named.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                Ok(Self { held, accepted_ticks: Some(raw::boot_ticks()), ..unheld })
            }
            Err(_vanished) => Ok(unheld),
        }
    }

    /// Its user.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Its pid when it connected; 0 = of another pid namespace. For the log only.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Where it stands now; `None` when that cannot be told, or it is gone.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        let held = self.held.as_ref()?;
        let pid = procfs::pid_of(held)?;
        let own = procfs::stat(pid)?;
        if self.accepted_ticks.is_some_and(|accepted| own.started_ticks > accepted) {
            return None;
        }
        let group = procfs::control_group(pid);
        let line = (0..WALKS_MAX).find_map(|_| line_of(pid))?;
        // Not reaped before all this was read: so the number was its own all the time.
        (procfs::pid_of(held) == Some(pid)).then_some(Standing { group, line })
    }
}

/// One walk from a process to the top. `None` when something on the way went: the parent that was
/// read is not the parent any more.
fn line_of(pid: Pid) -> Option<Vec<i32>> {
    let mut line = vec![pid.as_raw_nonzero().get()];
    let mut below = procfs::stat(pid)?;
    while line.len() < DEPTH_MAX {
        let Some(parent) = Pid::from_raw(below.parent) else { return Some(line) };
        let Some(stat) = procfs::stat(parent) else {
            // One that exists and may not be seen is another user's: none of the daemon's tree.
            let is_hidden = pidfd_open(parent, PidfdFlags::empty()).is_ok();
            return is_hidden.then_some(line);
        };
        // A parent that began after its child is a stranger with a dead parent's number.
        if stat.started_ticks > below.started_ticks {
            return None;
        }
        line.push(parent.as_raw_nonzero().get());
        below = stat;
    }
    None
}

/// For tests of the way without the socket's own pidfd.
#[cfg(test)]
fn too_old(_: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT))
}

impl Standing {
    /// Whether it is the process `pid`, or descends from it.
    #[must_use]
    pub fn is_below(&self, pid: i32) -> bool {
        self.line.contains(&pid)
    }

    /// The name of the group directly below the group `payload` that it is in.
    #[must_use]
    pub fn leaf_in<'a>(&'a self, payload: &str) -> Option<&'a str> {
        let below = self.group.as_deref()?.strip_prefix(payload)?.strip_prefix('/')?;
        below.split('/').next().map(|name| name.trim_end_matches(" (deleted)"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn own() -> (i32, i32) {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        (rustix::process::getpid().as_raw_nonzero().get(), parent)
    }

    #[test]
    fn the_connector_is_told_with_its_line() {
        let (left, _right) = UnixStream::pair().unwrap();
        let (pid, parent) = own();
        for peer in [Peer::of(&left), Peer::with(left.as_fd(), too_old)] {
            let peer = peer.unwrap();
            assert_eq!((peer.pid(), peer.uid()), (pid, rustix::process::geteuid().as_raw()));
            let standing = peer.standing().unwrap();
            assert_eq!(standing.line[..2], [pid, parent]);
            assert!(standing.is_below(parent) && standing.is_below(pid));
            assert!(!standing.is_below(i32::MAX));
        }
    }

    #[test]
    fn one_that_began_after_the_accept_or_cannot_be_held_is_not_told() {
        let (left, _right) = UnixStream::pair().unwrap();
        let mut peer = Peer::with(left.as_fd(), too_old).unwrap();
        peer.accepted_ticks = Some(0);
        assert_eq!(peer.standing(), None);
        peer.accepted_ticks = None;
        assert!(peer.standing().is_some());
        peer.held = None;
        assert_eq!(peer.standing(), None);
    }

    #[test]
    fn a_leaf_is_told_by_whole_names() {
        let standing = |group: &str| Standing { group: Some(group.to_owned()), line: Vec::new() };
        let leaf = |group| standing(group).leaf_in("/a/payload").map(str::to_owned);
        assert_eq!(leaf("/a/payload/p7").as_deref(), Some("p7"));
        assert_eq!(leaf("/a/payload/p7/deeper").as_deref(), Some("p7"));
        assert_eq!(leaf("/a/payload/p7 (deleted)").as_deref(), Some("p7"));
        assert_eq!(leaf("/a/payload2/p7"), None);
        assert_eq!(leaf("/a/payload"), None);
        assert_eq!(Standing { group: None, line: vec![1] }.leaf_in("/a"), None);
    }
}
