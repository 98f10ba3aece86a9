//! What is drained of one process: its streams, and the single writer of its output.
//!
//! ```text
//! (readable -> reads of one turn -> append)* -> nothing lies there -> taken, completed
//! ```
//!
//! It lies under a lock that its drain thread holds for one turn, writes to the disk included:
//! any other thread may only try it. It holds no buffer: a thread has one for all of them.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use procd_store::spool::Source;
use rustix::event::{PollFlags, Timespec, poll};
use tokio::time::Instant;

use super::Streams;
use super::output::OutputWriter;
use super::stream::{ReadOutcome, Stream};
use super::sync::SyncState;
use crate::clock::Clock;

/// Bytes read at once: a quarter of a grown pipe, so that reader and writer overlap.
const BUFFER_BYTES: usize = 256 * 1024;
/// A read of fewer bytes comes from a command that somebody may be talking with.
const QUIET_BYTES: usize = 4 * 1024;
/// So many reads in a row, or so many bytes, then others have their turn: with many loud ones it
/// is what the end of a quiet one waits for.
const TURN_READS: u32 = 32;
const TURN_BYTES: usize = 1024 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into_boxed_slice());
}

/// Which of the two streams, as a token of epoll has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Stdout,
    Stderr,
}

impl Which {
    pub(super) const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Of the output called `key`.
    pub(super) fn token(self, key: u64) -> u64 {
        key << 1 | u64::from(self == Self::Stderr)
    }

    /// Of which output, and which stream of it.
    pub(super) const fn of_token(token: u64) -> (u64, Self) {
        (token >> 1, if token & 1 == 0 { Self::Stdout } else { Self::Stderr })
    }

    const fn other(self) -> Self {
        match self {
            Self::Stdout => Self::Stderr,
            Self::Stderr => Self::Stdout,
        }
    }
}

/// The place of one output among those of its thread.
#[derive(Debug)]
pub(super) struct Slot {
    key: u64,
    drained: Mutex<Drained>,
}

impl Slot {
    /// Of `streams`, none of which is watched yet.
    pub(super) fn new(key: u64, writer: OutputWriter, streams: Streams) -> Self {
        let first = if streams.merged { Source::Mixed } else { Source::Stdout };
        let drained = Drained {
            writer: Some(writer),
            stdout: stream(streams.stdout, first, streams.terminal),
            stderr: stream(streams.stderr, Source::Stderr, false),
            sync: SyncState::default(),
        };
        Self { key, drained: Mutex::new(drained) }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// For its own thread.
    pub(super) fn lock(&self) -> MutexGuard<'_, Drained> {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For any other thread: `None` while it has its turn.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Drained>> {
        match self.drained.try_lock() {
            Ok(drained) => Some(drained),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Drained {
    /// Gone once the output is completed.
    pub(super) writer: Option<OutputWriter>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    pub(super) sync: SyncState,
}

/// What a turn came to.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Bytes read.
    pub(super) bytes: usize,
    /// Until when a stream is left alone.
    rests: [Option<Instant>; 2],
}

impl Drained {
    const fn slot(&mut self, which: Which) -> &mut Option<Stream> {
        match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        }
    }

    /// Watches both. A stream that cannot be is closed.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, key: u64) {
        for which in Which::BOTH {
            self.watch_one(which, epoll, key);
        }
    }

    fn watch_one(&mut self, which: Which, epoll: &OwnedFd, key: u64) {
        let slot = self.slot(which);
        if let Some(stream) = slot
            && let Err(error) = stream.watch(epoll, which.token(key))
        {
            let source = stream.source();
            tracing::error!(?source, %error, "a stream cannot be watched and is closed");
            *slot = None;
        }
    }

    /// Nobody can write to that one any more, and it holds nothing: a read has said so, not epoll,
    /// which may look at the bytes first and at the writers then.
    fn has_ended(&mut self, which: Which, epoll: &OwnedFd) {
        let slot = self.slot(which);
        if slot.as_mut().is_some_and(|stream| stream.ended(epoll)) {
            *slot = None;
        }
    }

    /// Reads of `first`, by turns with the other one if both are loud, until there is nothing
    /// more or others are to have their turn.
    pub(super) fn turn(&mut self, first: Which, epoll: &OwnedFd, key: u64, clock: Clock) -> Turn {
        let mut turn = Turn::default();
        let mut which = first;
        let mut is_other_empty = false;
        for _ in 0..TURN_READS {
            let (outcome, rest) = self.read(which, clock);
            match outcome {
                ReadOutcome::Bytes(len) => turn.bytes += len,
                ReadOutcome::Empty => {}
                ReadOutcome::End => self.has_ended(which, epoll),
            }
            if let Some(until) = rest
                && let Some(stream) = self.slot(which)
            {
                stream.rest(epoll);
                turn.note_rest(which, until);
            }
            // Whoever waits for a few bytes is served before the pipe is looked at again.
            let is_quiet = matches!(outcome, ReadOutcome::Bytes(len) if len < QUIET_BYTES);
            if is_quiet || turn.bytes == 0 || turn.bytes >= TURN_BYTES {
                break;
            }
            let is_empty = !matches!(outcome, ReadOutcome::Bytes(BUFFER_BYTES));
            let other = which.other();
            if !is_other_empty && self.slot(other).as_ref().is_some_and(Stream::is_watched) {
                (which, is_other_empty) = (other, is_empty);
            } else if is_empty {
                break;
            }
        }
        if turn.rest_of(first).is_none() {
            // Back from a rest.
            self.watch_one(first, epoll, key);
        }
        turn
    }

    fn read(&mut self, which: Which, clock: Clock) -> (ReadOutcome, Option<Instant>) {
        let Self { writer: Some(writer), stdout, stderr, .. } = self else {
            return (ReadOutcome::Empty, None);
        };
        let slot = match which {
            Which::Stdout => stdout,
            Which::Stderr => stderr,
        };
        let Some(stream) = slot else { return (ReadOutcome::Empty, None) };
        BUFFER.with_borrow_mut(|buffer| {
            let (outcome, rest) = stream.read(buffer, clock.monotonic());
            if let ReadOutcome::Bytes(len) = outcome {
                append(writer, buffer, len, stream.source(), clock);
            }
            (outcome, rest)
        })
    }

    /// Bytes that wait to be read of that stream at this moment, or as many as there can be.
    pub(super) fn waiting(&mut self, which: Which) -> usize {
        self.slot(which).as_ref().map_or(0, Stream::waiting)
    }

    /// Whether all that was written up to this moment is in the output. For any thread: it takes no
    /// lock of a pipe, which a writer may hold for as long as it likes.
    pub(super) fn is_caught_up(&self) -> bool {
        self.each_is(|seen| !seen.contains(PollFlags::IN))
    }

    /// Whether nothing can come any more, nor lies there. For any thread: without a writer nobody
    /// else holds the lock of a pipe, which is taken to measure and to close it.
    pub(super) fn is_over(&self) -> bool {
        self.each_is(|seen| seen == PollFlags::HUP) && self.each().all(|one| one.waiting() == 0)
    }

    /// What is to be read of a terminal cannot be told.
    fn each_is(&self, wanted: impl Fn(PollFlags) -> bool) -> bool {
        if self.each().any(Stream::is_terminal) {
            return false;
        }
        let mut seen: Vec<_> = self.each().map(Stream::to_poll).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        seen.is_empty()
            || poll(&mut seen, Some(&now)).is_ok() && seen.iter().all(|one| wanted(one.revents()))
    }

    fn each(&self) -> impl Iterator<Item = &Stream> {
        self.stdout.iter().chain(&self.stderr)
    }

    /// One read of at most `left` bytes, of which nothing is noted: so many, at least one.
    pub(super) fn read_rest(&mut self, which: Which, left: usize, clock: Clock) -> Option<usize> {
        let Self { writer: Some(writer), stdout, stderr, .. } = self else { return None };
        let stream = match which {
            Which::Stdout => stdout,
            Which::Stderr => stderr,
        };
        let stream = stream.as_ref()?;
        BUFFER.with_borrow_mut(|buffer| {
            let len = left.min(buffer.len());
            match stream.read_now(buffer.get_mut(..len)?) {
                ReadOutcome::Bytes(len) => {
                    append(writer, buffer, len, stream.source(), clock);
                    Some(len)
                }
                ReadOutcome::Empty | ReadOutcome::End => None,
            }
        })
    }

    /// Whether all streams are at their end, and closed.
    #[cfg(test)]
    pub(super) const fn has_no_streams(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Closes the streams and gives the writer, once: whoever completes the output finds no pipe
    /// open.
    pub(super) fn close(&mut self, epoll: &OwnedFd) -> Option<OutputWriter> {
        for stream in [self.stdout.take(), self.stderr.take()].into_iter().flatten() {
            stream.close(epoll);
        }
        self.writer.take()
    }
}

impl Turn {
    /// Until when to leave that one alone.
    pub(super) const fn rest_of(&self, which: Which) -> Option<Instant> {
        let [stdout, stderr] = self.rests;
        match which {
            Which::Stdout => stdout,
            Which::Stderr => stderr,
        }
    }

    const fn note_rest(&mut self, which: Which, until: Instant) {
        let [stdout, stderr] = &mut self.rests;
        match which {
            Which::Stdout => *stdout = Some(until),
            Which::Stderr => *stderr = Some(until),
        }
    }
}

fn append(writer: &mut OutputWriter, buffer: &[u8], len: usize, source: Source, clock: Clock) {
    let nanoseconds = clock.wall().as_nanosecond();
    let at_unix_ns = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
    writer.append(buffer.get(..len).unwrap_or(buffer), source, at_unix_ns);
}

fn stream(end: Option<OwnedFd>, source: Source, is_terminal: bool) -> Option<Stream> {
    match Stream::new(end?, source, is_terminal) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::error!(?source, %error, "a stream cannot be read and is closed");
            None
        }
    }
}
