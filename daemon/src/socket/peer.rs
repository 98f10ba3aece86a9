//! Who connects: only the daemon's own user, or root. Whether it is supervised itself is another
//! question, which the trees answer.

use procd_sys::peer::Peer;

/// Whether `peer` may speak to a daemon of user `own`.
#[must_use]
pub const fn is_welcome(peer: &Peer, own: u32) -> bool {
    is_welcome_user(peer.uid(), own)
}

const fn is_welcome_user(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_are_welcome() {
        assert!(is_welcome_user(1000, 1000));
        assert!(is_welcome_user(0, 1000));
        assert!(!is_welcome_user(1001, 1000));
        assert!(!is_welcome_user(1000, 0));
    }

    #[test]
    fn the_kernel_names_the_peer() {
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert!(is_welcome(&Peer::of(&left).unwrap(), own));
    }
}
