//! Notices that the socket, or its folder, was removed or replaced under the daemon.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// A watch over the folder of a socket. Tells that something happened, never what: the caller
/// looks for itself.
#[derive(Debug)]
pub struct FolderWatch {
    inotify: AsyncFd<OwnedFd>,
}

impl FolderWatch {
    /// Watches `folder` for what takes names out of it or away from it.
    /// # Errors
    /// The kernel has no watch left, or there is no such folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&inotify, folder, what)?;
        Ok(Self { inotify: watched(inotify)? })
    }

    /// Waits for the next happening. Cancel safe.
    /// # Errors
    /// The watch is broken.
    pub async fn happened(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable_mut().await?;
            let drained = ready.try_io(|inotify| drain(inotify.get_ref()));
            if let Ok(result) = drained {
                return result;
            }
        }
    }
}

/// Takes everything that waits; `WouldBlock` when nothing did.
fn drain(inotify: &OwnedFd) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut is_some = false;
    loop {
        match reader.next() {
            Ok(_) => is_some = true,
            Err(Errno::AGAIN) if is_some => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for the sake of types whose descriptor may change; an OwnedFd's does not"
)]
fn watched(inotify: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(inotify)
}
