//! One stream of a process: a nonblocking read end, and how hot it is.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use procd_store::spool::Source;
use rustix::io::{Errno, ioctl_fionread};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::heat::Heat;

/// More than the buffers of a terminal hold.
const TERMINAL_BYTES_MAX: usize = 64 * 1024;

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
    end: End,
    source: Source,
    /// A terminal's master: no pipe, so nothing of it grows or gathers.
    is_terminal: bool,
    heat: Heat,
}

/// The read end: a pipe, or the master of a PTY, which is read in the same way.
#[derive(Debug)]
enum End {
    /// Epoll says when there is something to read.
    Watched(pipe::Receiver),
    /// A chatty stream, read when its rest is over. Out of epoll, which would wake a thread for
    /// every single write to it.
    Resting(OwnedFd, Option<Instant>),
    /// No writer is left. Still open: a terminal's master is held until the tree is empty.
    Ended(Option<pipe::Receiver>),
}

impl End {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Watched(end) | Self::Ended(Some(end)) => Some(end.as_fd()),
            Self::Resting(fd, _) => Some(fd.as_fd()),
            Self::Ended(None) => None,
        }
    }
}

impl Stream {
    /// Takes over a read end. Inside the drain runtime only.
    /// # Errors
    /// When the system refuses to watch it.
    pub(super) fn new(end: OwnedFd, source: Source, is_terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        let end = End::Watched(pipe::Receiver::from_owned_fd_unchecked(end)?);
        Ok(Self { end, source, is_terminal, heat: Heat::default() })
    }

    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// Whether no writer is left, nor can be.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.end, End::Ended(_)) && !self.is_terminal
    }

    /// Waits until a read makes sense. Never after the end, which must not be spun on. Cancel
    /// safe.
    pub(super) async fn readable(&mut self) {
        match &mut self.end {
            // What went wrong comes back from the read itself.
            End::Watched(end) => drop(end.readable().await),
            End::Resting(_, until) => {
                if let Some(instant) = *until {
                    sleep_until(instant).await;
                    *until = None;
                }
            }
            End::Ended(_) => pending().await,
        }
    }

    /// One read, at once.
    pub(super) fn read(&mut self, buffer: &mut [u8], now: Instant) -> ReadOutcome {
        let outcome = self.read_once(buffer);
        if self.is_terminal {
            self.settle(outcome, None);
            return outcome;
        }
        let rest_until = match outcome {
            ReadOutcome::Bytes(len) => {
                self.heat.note_bytes(len, now);
                // Less than asked for is all there was.
                let is_empty = len < buffer.len();
                if self.heat.wants_to_grow()
                    && let Some(fd) = self.end.fd()
                {
                    self.heat.grow(fd);
                }
                if !is_empty {
                    return outcome;
                }
                self.heat.note_empty(now)
            }
            ReadOutcome::Empty => self.heat.note_empty(now),
            ReadOutcome::End => None,
        };
        self.settle(outcome, rest_until);
        outcome
    }

    /// Bytes that wait to be read at this moment. Of a terminal the kernel tells only those that
    /// have come through its line discipline, and a read brings the rest of them: so it is read
    /// until it is empty, up to more than all its buffers hold.
    pub(super) fn waiting(&self) -> usize {
        if self.is_terminal {
            return TERMINAL_BYTES_MAX;
        }
        let waiting = self.end.fd().and_then(|fd| ioctl_fionread(fd).ok());
        waiting.and_then(|len| usize::try_from(len).ok()).unwrap_or(0)
    }

    /// One read that looks at the descriptor itself, not at what epoll said last.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> ReadOutcome {
        let Some(fd) = self.end.fd() else { return ReadOutcome::End };
        loop {
            match rustix::io::read(fd, &mut *buffer) {
                Err(Errno::INTR) => {}
                read => return self.outcome(read.map_err(io::Error::from)),
            }
        }
    }

    fn read_once(&self, buffer: &mut [u8]) -> ReadOutcome {
        let End::Watched(end) = &self.end else { return self.read_now(buffer) };
        loop {
            match end.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return self.outcome(read),
            }
        }
    }

    fn outcome(&self, read: io::Result<usize>) -> ReadOutcome {
        match read {
            Ok(0) => ReadOutcome::End,
            Ok(len) => ReadOutcome::Bytes(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReadOutcome::Empty,
            // The master of a PTY says so when nobody has the terminal open any more.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                ReadOutcome::End
            }
            Err(error) => {
                tracing::error!(source = ?self.source, %error, "a stream cannot be read any more");
                ReadOutcome::End
            }
        }
    }

    /// Goes to rest, back to epoll, or to its end.
    fn settle(&mut self, outcome: ReadOutcome, rest_until: Option<Instant>) {
        let end = std::mem::replace(&mut self.end, End::Ended(None));
        self.end = match (end, outcome, rest_until) {
            (End::Watched(end), ReadOutcome::End, _) => End::Ended(Some(end)),
            (End::Watched(end), ReadOutcome::Bytes(_) | ReadOutcome::Empty, Some(until)) => {
                match end.into_nonblocking_fd() {
                    Ok(fd) => End::Resting(fd, Some(until)),
                    Err(error) => self.lost(&error),
                }
            }
            (End::Resting(fd, _), ReadOutcome::Bytes(_) | ReadOutcome::Empty, Some(until)) => {
                End::Resting(fd, Some(until))
            }
            (End::Resting(fd, _), ReadOutcome::Bytes(_) | ReadOutcome::Empty, None) => {
                match pipe::Receiver::from_owned_fd_unchecked(fd) {
                    Ok(end) => End::Watched(end),
                    Err(error) => self.lost(&error),
                }
            }
            (End::Resting(..), ReadOutcome::End, _) => End::Ended(None),
            (end @ (End::Watched(_) | End::Ended(_)), _, _) => end,
        };
    }

    fn lost(&self, error: &io::Error) -> End {
        tracing::error!(source = ?self.source, %error, "a stream cannot be watched and is closed");
        End::Ended(None)
    }
}
