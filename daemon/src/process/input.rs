//! The stdin of a process: a bounded queue and one writer that never blocks. Here that of a pipe;
//! that of a terminal is in `terminal`.

pub(super) mod terminal;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::metrics::METRICS;
use crate::supervisor::runner::{Given, Input, InputAccepted, InputError, Later};
use crate::watched::watched;
use terminal::TerminalInput;

/// Bytes given to the kernel in one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;
/// Between two looks at whether the reader has taken everything: nothing tells it.
const FLUSH_FIRST: Duration = Duration::from_millis(1);
const FLUSH_MAX: Duration = Duration::from_millis(20);

/// What clients write to.
#[derive(Debug, Clone)]
pub(super) enum Stdin {
    /// A pipe.
    Pipe(Arc<PipeInput>),
    /// A terminal.
    Terminal(Arc<TerminalInput>),
}

impl Stdin {
    /// The side that clients see.
    pub(super) fn for_clients(&self) -> Arc<dyn Input> {
        match self {
            Self::Pipe(input) => input.clone(),
            Self::Terminal(input) => input.clone(),
        }
    }

    /// A shutdown: what is queued is dropped and counted, a pipe closed.
    pub(super) fn shut_down(&self) {
        match self {
            Self::Pipe(input) => input.shut_down(),
            Self::Terminal(input) => input.shut_down(),
        }
    }

    /// The process is gone. Returns the bytes that were dropped.
    pub(super) fn close(&self) -> u64 {
        match self {
            Self::Pipe(input) => input.close(),
            Self::Terminal(input) => input.close(),
        }
    }
}

/// Bytes of input that wait in the whole daemon.
#[derive(Debug)]
pub(super) struct InputBudget {
    in_use: AtomicU64,
    max: AtomicU64,
}

impl InputBudget {
    /// A budget of `max` bytes: `input_daemon_bytes`.
    #[must_use]
    pub(super) const fn new(max: u64) -> Self {
        Self { in_use: AtomicU64::new(0), max: AtomicU64::new(max) }
    }

    /// Another limit, from the next input on.
    pub(super) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    fn free(&self) -> u64 {
        self.max().saturating_sub(self.in_use.load(Ordering::Relaxed))
    }

    fn reserve(&self, bytes: u64) -> bool {
        let max = self.max();
        let add = |in_use: u64| in_use.checked_add(bytes).filter(|&sum| sum <= max);
        let is_taken = self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if is_taken {
            METRICS.pending_input_bytes.add(bytes);
        }
        is_taken
    }

    fn release(&self, bytes: u64) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        METRICS.pending_input_bytes.take_off(bytes);
    }
}

/// How far the input of a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Takes more.
    Open,
    /// The end waits its turn behind what is queued.
    Ending,
    /// The end was delivered, or the reader is gone.
    Closed,
    /// A shutdown has closed it.
    ShutDown,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<u8>,
    phase: Phase,
    dropped_bytes: u64,
    /// The writing end, once there is one.
    pipe: Option<Arc<AsyncFd<OwnedFd>>>,
}

/// The queue of one process.
#[derive(Debug)]
pub(super) struct PipeInput {
    state: Mutex<State>,
    /// Wakes the writer.
    work: Notify,
    /// Wakes who waits for a flush.
    progress: Notify,
    budget: Arc<InputBudget>,
    bytes_max: u64,
}

impl PipeInput {
    pub(super) fn new(budget: Arc<InputBudget>, bytes_max: u64) -> Arc<Self> {
        let state =
            State { queue: VecDeque::new(), phase: Phase::Open, dropped_bytes: 0, pipe: None };
        Arc::new(Self {
            state: Mutex::new(state),
            work: Notify::new(),
            progress: Notify::new(),
            budget,
            bytes_max,
        })
    }

    /// Gives it the writing end, which does not block, and starts its writer.
    pub(super) fn attach(self: &Arc<Self>, pipe: OwnedFd) -> std::io::Result<()> {
        let pipe = Arc::new(watched(pipe, tokio::io::Interest::WRITABLE)?);
        let mut state = self.lock();
        // Closed before it was born: the pipe closes here.
        if matches!(state.phase, Phase::Open | Phase::Ending) {
            state.pipe = Some(Arc::clone(&pipe));
            drop(state);
            tokio::spawn(Arc::clone(self).write(pipe));
        }
        Ok(())
    }

    /// A shutdown: what is queued is dropped and counted, the pipe closed.
    pub(super) fn shut_down(&self) {
        let mut state = self.lock();
        state.dropped_bytes += state.queue.len() as u64;
        self.close_as(&mut state, Phase::ShutDown);
    }

    /// The process is gone. Returns the bytes that a shutdown dropped.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.lock();
        self.close_as(&mut state, Phase::Closed);
        state.dropped_bytes
    }

    fn close_as(&self, state: &mut State, phase: Phase) {
        self.budget.release(state.queue.len() as u64);
        state.queue = VecDeque::new();
        state.pipe = None;
        if state.phase != Phase::ShutDown {
            state.phase = phase;
        }
        self.work.notify_one();
        self.progress.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer: ends, and lets go of the pipe, when input is closed.
    async fn write(self: Arc<Self>, pipe: Arc<AsyncFd<OwnedFd>>) {
        loop {
            match self.write_some(&pipe) {
                Wrote::Some => {}
                Wrote::Nothing => self.work.notified().await,
                Wrote::Full => match pipe.writable().await {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(_) => return,
                },
                Wrote::Closed => return,
            }
        }
    }

    /// One write. The lock is held across it: a write to a pipe that does not block never waits.
    fn write_some(&self, pipe: &AsyncFd<OwnedFd>) -> Wrote {
        let mut state = self.lock();
        match (state.phase, state.queue.is_empty()) {
            (Phase::Closed | Phase::ShutDown, _) => return Wrote::Closed,
            (Phase::Ending, true) => {
                self.close_as(&mut state, Phase::Closed);
                return Wrote::Closed;
            }
            (Phase::Open, true) => return Wrote::Nothing,
            (Phase::Open | Phase::Ending, false) => {}
        }
        let (front, _) = state.queue.as_slices();
        let chunk = front.get(..WRITE_BYTES_MAX).unwrap_or(front);
        match rustix::io::write(pipe.get_ref(), chunk) {
            Ok(written) => {
                state.queue.drain(..written);
                self.budget.release(written as u64);
                if state.queue.is_empty() {
                    state.queue.shrink_to_fit();
                    self.progress.notify_waiters();
                }
                Wrote::Some
            }
            Err(rustix::io::Errno::INTR) => Wrote::Some,
            Err(rustix::io::Errno::AGAIN) => Wrote::Full,
            // The reader is gone.
            Err(_) => {
                self.close_as(&mut state, Phase::Closed);
                Wrote::Closed
            }
        }
    }

    /// Whether everything given has been read; `None` = not yet, and nothing will tell when.
    fn is_flushed(&self) -> Flushed {
        let state = self.lock();
        match (state.phase, state.queue.is_empty(), &state.pipe) {
            (Phase::Closed | Phase::ShutDown, _, _) => Flushed::Yes,
            (Phase::Open | Phase::Ending, true, Some(pipe)) => {
                match rustix::io::ioctl_fionread(pipe.get_ref()) {
                    Ok(0) | Err(_) => Flushed::Yes,
                    Ok(_) => Flushed::Unread,
                }
            }
            (Phase::Open | Phase::Ending, _, _) => Flushed::Queued,
        }
    }
}

enum Wrote {
    Some,
    Nothing,
    Full,
    Closed,
}

enum Flushed {
    Yes,
    Queued,
    Unread,
}

impl Input for PipeInput {
    fn push(&self, given: Given<'_>) -> Result<InputAccepted, InputError> {
        let Given { bytes, keys, eof, size } = given;
        if !keys.is_empty() || size.is_some() {
            return Err(InputError::NoTerminal);
        }
        let mut state = self.lock();
        let len = bytes.len() as u64;
        match (state.phase, len) {
            (Phase::ShutDown, _) => return Err(InputError::ShuttingDown),
            // The end again is no error.
            (Phase::Ending | Phase::Closed, 0) => {
                let pending_bytes = state.queue.len() as u64;
                return Ok(InputAccepted { pending_bytes, ..InputAccepted::default() });
            }
            (Phase::Ending | Phase::Closed, _) => return Err(InputError::Closed),
            (Phase::Open, _) => {}
        }
        let pending_bytes = state.queue.len() as u64;
        let own_free = self.bytes_max.saturating_sub(pending_bytes);
        if len > own_free || !self.budget.reserve(len) {
            let free_bytes = own_free.min(self.budget.free());
            return Err(InputError::Backpressure { pending_bytes, free_bytes });
        }
        state.queue.extend(bytes);
        if eof {
            state.phase = Phase::Ending;
        }
        self.work.notify_one();
        let pending_bytes = pending_bytes + len;
        Ok(InputAccepted { accepted_bytes: len, pending_bytes, discarded_bytes: 0 })
    }

    fn flushed(&self) -> Later<'_, ()> {
        Box::pin(async move {
            let mut pause = FLUSH_FIRST;
            loop {
                let progress = self.progress.notified();
                match self.is_flushed() {
                    Flushed::Yes => return,
                    Flushed::Queued => progress.await,
                    Flushed::Unread => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(FLUSH_MAX);
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        (read, write)
    }

    const fn given(bytes: &[u8], eof: bool) -> Given<'_> {
        Given { bytes, keys: &[], eof, size: None }
    }

    #[tokio::test]
    async fn input_is_taken_whole_or_not_at_all() {
        let input = PipeInput::new(Arc::new(InputBudget::new(15)), 10);
        let accepted = input.push(given(b"12345678", false)).unwrap();
        assert_eq!(
            accepted,
            InputAccepted { accepted_bytes: 8, pending_bytes: 8, discarded_bytes: 0 }
        );
        let full = InputError::Backpressure { pending_bytes: 8, free_bytes: 2 };
        assert_eq!(input.push(given(b"abc", true)), Err(full));
        let other = PipeInput::new(Arc::clone(&input.budget), 10);
        let full = InputError::Backpressure { pending_bytes: 0, free_bytes: 7 };
        assert_eq!(other.push(given(b"12345678", false)), Err(full));
        input.shut_down();
        assert_eq!(input.push(given(b"", true)), Err(InputError::ShuttingDown));
        assert_eq!((input.close(), input.budget.free()), (8, 15));
    }

    #[tokio::test]
    async fn the_end_waits_its_turn_and_more_than_a_pipe_holds_arrives() {
        let input = PipeInput::new(Arc::new(InputBudget::new(1 << 20)), 1 << 20);
        let (read, write) = pipe();
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        input.push(given(&bytes, true)).unwrap();
        assert_eq!(input.push(given(b"x", false)), Err(InputError::Closed));
        assert!(input.push(given(b"", true)).is_ok());
        input.attach(write).unwrap();
        let got = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut all).unwrap();
            all
        });
        input.flushed().await;
        assert!(got.await.unwrap() == bytes);
        assert_eq!(input.budget.free(), 1 << 20);
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_closes_input() {
        let input = PipeInput::new(Arc::new(InputBudget::new(100)), 100);
        let (read, write) = pipe();
        drop(read);
        input.attach(write).unwrap();
        input.push(given(b"lost", false)).unwrap();
        input.flushed().await;
        assert_eq!(input.push(given(b"more", false)), Err(InputError::Closed));
        assert_eq!(input.budget.free(), 100);
    }
}
