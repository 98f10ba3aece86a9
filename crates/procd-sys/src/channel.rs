//! Datagrams with descriptors between daemon, guardian and shim. Nothing here blocks.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::message::MESSAGE_BYTES_MAX;

/// Descriptors that one datagram can carry: a body, a folder, three streams, a leaf or socket,
/// and room for locks.
pub const DESCRIPTORS_MAX: usize = 8;
/// Bytes of the largest body: the kernel's own limit on arguments and environment is 6 MiB.
pub const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A datagram as received.
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
    /// Whether some did not fit the receiver's table.
    pub truncated: bool,
}

/// A connected pair of datagram sockets, close-on-exec and non-blocking.
/// # Errors
/// No descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// Sends one datagram whole.
/// # Errors
/// `WouldBlock` when the other side does not read; `BrokenPipe` when it is gone.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, flags)
    })?;
    Ok(())
}

/// Takes one datagram; `None` = the other side is gone.
/// # Errors
/// `WouldBlock` when there is none.
pub fn receive(socket: impl AsFd) -> io::Result<Option<Received>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut take = || {
        rustix::io::retry_on_intr(|| {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(socket.as_fd(), &mut slices, &mut control, flags)
        })
    };
    // A side that ends without having read all leaves a reset behind, told once and before what it
    // had said itself: those last words must not be lost.
    let got = match take() {
        Err(rustix::io::Errno::CONNRESET) => take(),
        got => got,
    };
    let got = match got {
        Ok(got) => got,
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // No message is empty, so zero bytes are the end.
    if got.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(got.bytes);
    let truncated = got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
    Ok(Some(Received { bytes, descriptors, truncated }))
}

/// A sealed memfd with `bytes`: it never changes under its reader, and is in no file system.
/// # Errors
/// No descriptors or memory left.
pub fn body(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd =
        rustix::fs::memfd_create("procd-request", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, all)?;
    Ok(file.into())
}

/// The bytes of a body.
/// # Errors
/// Not sealed, or larger than [`BODY_BYTES_MAX`].
pub fn read_body(fd: OwnedFd) -> io::Result<Vec<u8>> {
    let seals = rustix::fs::fcntl_get_seals(&fd)?;
    if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let len = rustix::fs::fstat(&fd)?.st_size;
    let len = u64::try_from(len).unwrap_or(u64::MAX);
    if len > BODY_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    File::from(fd).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_datagram_arrives_whole_with_its_sealed_body_and_an_end_is_seen() {
        let (ours, theirs) = pair().unwrap();
        let memfd = body(b"arguments").unwrap();
        assert!(rustix::io::write(&memfd, b"x").is_err());
        send(&ours, b"message", &[memfd.as_fd()]).unwrap();
        let mut got = receive(&theirs).unwrap().unwrap();
        assert_eq!((got.bytes.as_slice(), got.truncated), (b"message".as_slice(), false));
        assert_eq!(read_body(got.descriptors.remove(0)).unwrap(), b"arguments");
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        // A child that another test has just forked may hold it open until it becomes its program.
        let mut news = [PollFd::new(&theirs, PollFlags::IN)];
        assert_eq!(poll(&mut news, None), Ok(1));
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn the_last_words_of_a_side_that_had_not_read_all_arrive() {
        let (ours, theirs) = pair().unwrap();
        send(&ours, b"never read", &[]).unwrap();
        send(&theirs, b"one", &[]).unwrap();
        send(&theirs, b"two", &[]).unwrap();
        drop(theirs);
        assert_eq!(receive(&ours).unwrap().unwrap().bytes, b"one");
        assert_eq!(receive(&ours).unwrap().unwrap().bytes, b"two");
        assert!(receive(&ours).unwrap().is_none());
    }
}
