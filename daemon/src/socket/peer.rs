//! Who connects: only the daemon's own user, or root.

use std::io;
use std::os::fd::AsFd;

/// The other end of a connection as the kernel saw it when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its pid then; for the log only.
    pub pid: i32,
}

/// Asks the kernel.
/// # Errors
/// The descriptor is no connected socket.
pub fn of(socket: impl AsFd) -> io::Result<Peer> {
    let found = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(Peer { uid: found.uid.as_raw(), pid: found.pid.as_raw_nonzero().get() })
}

/// Whether `peer` may speak to a daemon of user `own`.
#[must_use]
pub const fn is_welcome(peer: Peer, own: u32) -> bool {
    peer.uid == own || peer.uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_are_welcome() {
        let peer = |uid| Peer { uid, pid: 1 };
        assert!(is_welcome(peer(1000), 1000));
        assert!(is_welcome(peer(0), 1000));
        assert!(!is_welcome(peer(1001), 1000));
        assert!(!is_welcome(peer(1000), 0));
    }

    #[test]
    fn the_kernel_names_the_peer() {
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = of(&left).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(u32::try_from(peer.pid), Ok(std::process::id()));
    }
}
