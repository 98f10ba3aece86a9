//! Descriptors in the hands of the runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that the runtime watches for `interest`. It must not block.
/// # Errors
/// It cannot be watched.
#[expect(
    deprecated,
    reason = "an OwnedFd stays open and the same, so this is sound; the successor is unsafe, which this crate forbids"
)]
pub(crate) fn watched(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// One that is read and written.
/// # Errors
/// It cannot be watched.
pub(crate) fn watched_both(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watched(fd, Interest::READABLE | Interest::WRITABLE)
}
