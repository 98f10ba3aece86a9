//! The daemon's own signal mask, at its start.

use std::io;

use crate::raw;

/// Lets every signal through but SIGHUP, which waits until [`take_hang_up`]: a daemon that starts
/// cannot read its configuration again yet, and must not die of being asked to. With SIGTERM
/// blocked, as it may have been inherited, it could not be asked to end. Before any thread exists.
pub fn hold_hang_up() {
    // A mask in a valid place cannot be refused.
    let _refused = raw::block_only(libc::SIGHUP);
}

/// Lets SIGHUP through, one that waits included, now that the caller handles it. For the thread
/// that [`hold_hang_up`] ran on.
/// # Errors
/// None known.
pub fn take_hang_up() -> io::Result<()> {
    raw::unblock_all()
}
