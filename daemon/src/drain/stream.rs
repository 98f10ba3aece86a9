//! One stream of a process: a nonblocking read end, and how hot it is.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;

use procd_store::spool::Source;
use rustix::io::{Errno, ioctl_fionread};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::heat::Heat;

/// What one read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Empty,
    /// No writer is left.
    End,
}

/// A stream that is being drained.
#[derive(Debug)]
pub(super) struct Stream {
    /// A pipe, or the master of a PTY: both are read in the same way.
    end: pipe::Receiver,
    source: Source,
    heat: Heat,
    /// Not before this instant, while bytes are being gathered.
    rest_until: Option<Instant>,
    ended: bool,
}

impl Stream {
    /// Takes over a read end. Inside the drain runtime only.
    /// # Errors
    /// When the system refuses to watch it.
    pub(super) fn new(end: OwnedFd, source: Source) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        let end = pipe::Receiver::from_owned_fd_unchecked(end)?;
        Ok(Self { end, source, heat: Heat::default(), rest_until: None, ended: false })
    }

    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// Waits until a read makes sense. Never after the end: a terminal's master stays open until
    /// the tree is empty and must not be spun on. Cancel safe.
    pub(super) async fn readable(&mut self) {
        if self.ended {
            pending::<()>().await;
        }
        if let Some(instant) = self.rest_until {
            sleep_until(instant).await;
            self.rest_until = None;
        }
        // What went wrong comes back from the read itself.
        drop(self.end.readable().await);
    }

    /// One read, at once.
    pub(super) fn read(&mut self, buffer: &mut [u8], now: Instant) -> ReadOutcome {
        let outcome = self.read_once(buffer);
        match outcome {
            ReadOutcome::Bytes(len) => self.heat.note_bytes(len, now),
            ReadOutcome::Empty => self.rest_until = self.heat.note_empty(now),
            ReadOutcome::End => self.ended = true,
        }
        if self.heat.wants_to_grow() {
            self.heat.grow(&self.end);
        }
        outcome
    }

    /// Bytes that wait to be read at this moment.
    pub(super) fn waiting(&self) -> usize {
        ioctl_fionread(&self.end).ok().and_then(|len| usize::try_from(len).ok()).unwrap_or(0)
    }

    /// One read that looks at the descriptor itself, not at what epoll said last.
    pub(super) fn read_now(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            match rustix::io::read(&self.end, &mut *buffer) {
                Ok(0) | Err(Errno::IO) => return ReadOutcome::End,
                Ok(len) => return ReadOutcome::Bytes(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return ReadOutcome::Empty,
                Err(error) => return failed(self.source, &io::Error::from(error)),
            }
        }
    }

    fn read_once(&self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            match self.end.try_read(buffer) {
                Ok(0) => return ReadOutcome::End,
                Ok(len) => return ReadOutcome::Bytes(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return ReadOutcome::Empty;
                }
                // The master of a PTY says so when nobody has the terminal open any more.
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                    return ReadOutcome::End;
                }
                Err(error) => return failed(self.source, &error),
            }
        }
    }
}

fn failed(source: Source, error: &io::Error) -> ReadOutcome {
    tracing::error!(?source, %error, "a stream cannot be read any more");
    ReadOutcome::End
}
