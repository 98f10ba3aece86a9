//! One stream of a process: a nonblocking read end, and how hot it is.

use std::io;
use std::os::fd::OwnedFd;

use procd_store::spool::Source;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionread};
use tokio::time::Instant;

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

/// A stream that is being drained: a pipe, or the master of a PTY, which is read in the same way.
#[derive(Debug)]
pub(super) struct Stream {
    end: OwnedFd,
    watch: Watch,
    source: Source,
    /// A terminal's master: no pipe, so nothing of it grows or gathers.
    is_terminal: bool,
    /// In a box, made by the first byte: most streams of most processes are quiet.
    heat: Option<Box<Heat>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Epoll says when there is something to read.
    Watched,
    /// A chatty stream, read when its rest is over. Out of epoll, which would wake a thread for
    /// every single write to it.
    Resting,
    /// No writer is left. Still open: a terminal's master is held until the tree is empty.
    Ended,
}

impl Stream {
    /// Takes over a read end, not watched yet.
    /// # Errors
    /// When the system refuses to make it nonblocking.
    pub(super) fn new(end: OwnedFd, source: Source, is_terminal: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(Self { end, watch: Watch::Resting, source, is_terminal, heat: None })
    }

    /// From now on `epoll` tells of it by `token`, as long as there is something to read.
    /// # Errors
    /// When the system refuses to watch it.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        if self.watch == Watch::Resting {
            epoll::add(epoll, &self.end, EventData::new_u64(token), EventFlags::IN)?;
            self.watch = Watch::Watched;
        }
        Ok(())
    }

    /// Leaves it alone, until it is watched again.
    pub(super) fn rest(&mut self, epoll: &OwnedFd) {
        self.unwatch(epoll, Watch::Resting);
    }

    /// No writer is left. True for one that can be closed: of a terminal the master is held.
    pub(super) fn ended(&mut self, epoll: &OwnedFd) -> bool {
        if self.is_terminal {
            self.unwatch(epoll, Watch::Ended);
        }
        !self.is_terminal
    }

    /// To be called before it is closed. What is closed leaves epoll by itself, but a terminal's
    /// master has another descriptor elsewhere.
    pub(super) fn close(mut self, epoll: &OwnedFd) {
        if self.is_terminal {
            self.unwatch(epoll, Watch::Ended);
        }
    }

    fn unwatch(&mut self, epoll: &OwnedFd, watch: Watch) {
        if self.watch == Watch::Watched
            && let Err(error) = epoll::delete(epoll, &self.end)
        {
            tracing::error!(source = ?self.source, %error, "bug: a stream was not watched");
        }
        self.watch = watch;
    }

    pub(super) const fn source(&self) -> Source {
        self.source
    }

    pub(super) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// To ask whether there is something to read.
    pub(super) fn to_poll(&self) -> PollFd<'_> {
        PollFd::new(&self.end, PollFlags::IN)
    }

    pub(super) const fn is_watched(&self) -> bool {
        matches!(self.watch, Watch::Watched)
    }

    /// One read, at once, and until when to leave the stream alone.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        now: Instant,
    ) -> (ReadOutcome, Option<Instant>) {
        let outcome = self.read_now(buffer);
        if self.is_terminal {
            return (outcome, None);
        }
        let rest = match outcome {
            ReadOutcome::Bytes(len) => {
                let heat = self.heat.get_or_insert_default();
                heat.note_bytes(len, now);
                if heat.wants_to_grow() {
                    heat.grow(&self.end);
                }
                // Less than asked for is all there was.
                if len < buffer.len() { heat.note_empty(now) } else { None }
            }
            ReadOutcome::Empty => self.heat.as_mut().and_then(|heat| heat.note_empty(now)),
            ReadOutcome::End => None,
        };
        (outcome, rest)
    }

    /// Bytes that wait to be read at this moment. Of a terminal the kernel tells only those that
    /// have come through its line discipline, and a read brings the rest of them: so it is read
    /// until it is empty, up to more than all its buffers hold.
    pub(super) fn waiting(&self) -> usize {
        if self.is_terminal {
            return TERMINAL_BYTES_MAX;
        }
        let waiting = ioctl_fionread(&self.end).ok();
        waiting.and_then(|len| usize::try_from(len).ok()).unwrap_or(0)
    }

    /// One read, of which nothing is noted.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            match rustix::io::read(&self.end, &mut *buffer) {
                Err(Errno::INTR) => {}
                read => return self.outcome(read.map_err(io::Error::from)),
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
}
