//! The input of a process that has a terminal. Differs from a pipe's: the end is a character, a
//! key can be a signal that overtakes what is queued, and the kernel cuts long lines in line mode,
//! which is refused before it can happen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use procd_sys::terminal::{Discipline, Size, Terminal};
use tokio::sync::Notify;

use super::{InputBudget, watched};
use crate::supervisor::runner::{Given, Input, InputAccepted, InputError, Later};

/// Bytes of the longest line that a terminal in line mode keeps, its end aside: the kernel's own.
const LINE_BYTES_MAX: usize = 4095;
/// Bytes given to the kernel in one write.
const WRITE_BYTES_MAX: usize = 4096;
/// While the terminal is full: how often it is tried besides when the kernel tells. It tells of
/// room before there is any, and then not again.
const RETRY_FIRST: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Closed,
    ShutDown,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<u8>,
    phase: Phase,
    dropped_bytes: u64,
    terminal: Option<Arc<Terminal>>,
    /// Bytes of the open line behind everything queued.
    accepted_line: usize,
    /// Bytes of the open line behind everything written.
    written_line: usize,
}

/// The queue of one process.
#[derive(Debug)]
pub(in crate::process) struct TerminalInput {
    state: Mutex<State>,
    /// Wakes the writer.
    work: Notify,
    /// Wakes who waits for a flush.
    progress: Notify,
    budget: Arc<InputBudget>,
    bytes_max: u64,
}

/// What one call comes to.
struct Typed {
    /// Bytes to be queued.
    fresh: Vec<u8>,
    /// Bytes of this call that a key of it threw away.
    discarded: usize,
    /// Keys that are signals, in order.
    signals: Vec<(u8, i32)>,
    /// Bytes of the open line behind it.
    line: usize,
}

enum Wrote {
    Some,
    Nothing,
    Full,
    Closed,
}

impl TerminalInput {
    /// - `takes_input`: whether stdin is the terminal; else only its size can be changed.
    pub(in crate::process) fn new(
        budget: Arc<InputBudget>,
        bytes_max: u64,
        takes_input: bool,
    ) -> Arc<Self> {
        let state = State {
            queue: VecDeque::new(),
            phase: if takes_input { Phase::Open } else { Phase::Closed },
            dropped_bytes: 0,
            terminal: None,
            accepted_line: 0,
            written_line: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            work: Notify::new(),
            progress: Notify::new(),
            budget,
            bytes_max,
        })
    }

    /// Gives it the terminal and starts its writer.
    pub(in crate::process) fn attach(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
    ) -> std::io::Result<()> {
        let ready = watched(terminal.master()?, tokio::io::Interest::WRITABLE)?;
        let mut state = self.lock();
        state.terminal = Some(Arc::clone(terminal));
        if state.phase == Phase::Open {
            drop(state);
            tokio::spawn(Arc::clone(self).write(ready));
        }
        Ok(())
    }

    /// A shutdown: what is queued is dropped and counted.
    pub(in crate::process) fn shut_down(&self) {
        let mut state = self.lock();
        self.drop_queue(&mut state);
        state.phase = Phase::ShutDown;
    }

    /// The process is gone. Returns the bytes that were dropped.
    pub(in crate::process) fn close(&self) -> u64 {
        let mut state = self.lock();
        let dropped_bytes = state.dropped_bytes;
        let was_shut_down = state.phase == Phase::ShutDown;
        self.drop_queue(&mut state);
        state.terminal = None;
        if was_shut_down {
            return state.dropped_bytes;
        }
        state.phase = Phase::Closed;
        dropped_bytes
    }

    fn drop_queue(&self, state: &mut State) {
        let len = state.queue.len() as u64;
        state.dropped_bytes += len;
        self.budget.release(len);
        state.queue = VecDeque::new();
        self.work.notify_one();
        self.progress.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer: ends, and lets go of the terminal, when input is closed.
    async fn write(self: Arc<Self>, ready: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>) {
        let mut pause = RETRY_FIRST;
        loop {
            match self.write_some() {
                Wrote::Some => pause = RETRY_FIRST,
                Wrote::Nothing => self.work.notified().await,
                Wrote::Full => {
                    tokio::select! {
                        room = ready.writable() => match room {
                            Ok(mut guard) => guard.clear_ready(),
                            Err(_) => return,
                        },
                        () = self.work.notified() => {}
                        () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_MAX),
                    }
                }
                Wrote::Closed => return,
            }
        }
    }

    /// One write. The lock is held across it: a write to a terminal that does not block never
    /// waits.
    fn write_some(&self) -> Wrote {
        let mut state = self.lock();
        let Some(terminal) = state.terminal.clone().filter(|_| state.phase == Phase::Open) else {
            return Wrote::Closed;
        };
        if state.queue.is_empty() {
            return Wrote::Nothing;
        }
        let discipline = terminal.discipline();
        let (front, _) = state.queue.as_slices();
        let chunk = front.get(..WRITE_BYTES_MAX).unwrap_or(front);
        let fits = fitting(&discipline, state.written_line, chunk);
        if fits == 0 {
            self.drop_rest_of_line(&mut state, &discipline);
            return Wrote::Some;
        }
        match terminal.write(chunk.get(..fits).unwrap_or(chunk)) {
            Ok(written) => {
                let line = line_behind(&discipline, state.written_line, front, written);
                state.written_line = line;
                state.queue.drain(..written);
                self.budget.release(written as u64);
                if state.queue.is_empty() {
                    state.queue.shrink_to_fit();
                    self.progress.notify_waiters();
                }
                Wrote::Some
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Wrote::Full,
            Err(error) => {
                tracing::debug!(%error, "a terminal takes no input any more");
                self.drop_queue(&mut state);
                state.phase = Phase::Closed;
                Wrote::Closed
            }
        }
    }

    /// The terminal went to line mode after a long line was accepted: what the kernel would cut
    /// in silence is counted instead.
    fn drop_rest_of_line(&self, state: &mut State, discipline: &Discipline) {
        let end = state.queue.iter().position(|&byte| discipline.ends_line(byte));
        let len = end.unwrap_or(state.queue.len());
        state.queue.drain(..len);
        state.dropped_bytes += len as u64;
        self.budget.release(len as u64);
        tracing::warn!(bytes = len, "the rest of a line too long for line mode is dropped");
    }
}

/// How many bytes of `chunk` go out without a line being cut.
fn fitting(discipline: &Discipline, mut line: usize, chunk: &[u8]) -> usize {
    if !discipline.is_line_mode {
        return chunk.len();
    }
    for (index, &byte) in chunk.iter().enumerate() {
        line = if discipline.ends_line(byte) { 0 } else { line + 1 };
        if line > LINE_BYTES_MAX {
            return index;
        }
    }
    chunk.len()
}

/// Bytes of the open line behind the first `len` of `bytes`. Without line mode there are none.
fn line_behind(discipline: &Discipline, line: usize, bytes: &[u8], len: usize) -> usize {
    if !discipline.is_line_mode {
        return 0;
    }
    bytes.iter().take(len).fold(
        line,
        |line, &byte| {
            if discipline.ends_line(byte) { 0 } else { line + 1 }
        },
    )
}

/// Puts a call together. `line`: bytes of the open line before it.
fn typed(given: &Given<'_>, discipline: &Discipline, line: usize) -> Result<Typed, InputError> {
    let mut all = Typed {
        fresh: given.bytes.to_vec(),
        discarded: 0,
        signals: Vec::new(),
        line: if discipline.is_line_mode { line } else { 0 },
    };
    for key in given.keys {
        let signal = match key.as_slice() {
            [byte] => discipline.signal_of(*byte).map(|signal| (*byte, signal)),
            _ => None,
        };
        match signal {
            Some(signal) => {
                all.discarded += all.fresh.len();
                all.fresh.clear();
                all.line = 0;
                all.signals.push(signal);
            }
            None => all.fresh.extend(key),
        }
    }
    if given.eof {
        all.fresh.push(discipline.eof);
    }
    if fitting(discipline, all.line, &all.fresh) < all.fresh.len() {
        return Err(InputError::LineTooLong);
    }
    all.line = line_behind(discipline, all.line, &all.fresh, all.fresh.len());
    Ok(all)
}

impl Input for TerminalInput {
    fn push(&self, given: Given<'_>) -> Result<InputAccepted, InputError> {
        let mut state = self.lock();
        let has_bytes = !given.bytes.is_empty() || !given.keys.is_empty() || given.eof;
        match (state.phase, has_bytes) {
            (Phase::ShutDown, _) => return Err(InputError::ShuttingDown),
            (Phase::Closed, true) => return Err(InputError::Closed),
            (Phase::Closed, false) | (Phase::Open, _) => {}
        }
        let discipline =
            state.terminal.as_ref().map_or(Discipline::USUAL, |terminal| terminal.discipline());
        let typed = typed(&given, &discipline, state.accepted_line)?;
        let queued = state.queue.len();
        let waiting = if typed.signals.is_empty() { queued as u64 } else { 0 };
        let own_free = self.bytes_max.saturating_sub(waiting);
        let fresh = typed.fresh.len() as u64;
        if fresh > own_free || !self.budget.reserve(fresh) {
            let free_bytes = own_free.min(self.budget.free());
            return Err(InputError::Backpressure { pending_bytes: queued as u64, free_bytes });
        }
        if let (Some(size), Some(terminal)) = (given.size, &state.terminal) {
            let size = Size { rows: size.rows, cols: size.cols };
            if let Err(error) = terminal.resize(size) {
                tracing::debug!(%error, "a terminal could not be resized");
            }
        }
        let mut discarded = typed.discarded;
        if !typed.signals.is_empty() {
            discarded += queued;
            state.queue.clear();
            self.budget.release(queued as u64);
            state.written_line = 0;
            type_signals(state.terminal.as_deref(), &typed.signals);
            self.progress.notify_waiters();
        }
        state.accepted_line = typed.line;
        state.queue.extend(&typed.fresh);
        self.work.notify_one();
        let keys: usize = given.keys.iter().map(Vec::len).sum();
        Ok(InputAccepted {
            accepted_bytes: (given.bytes.len() + keys) as u64,
            pending_bytes: state.queue.len() as u64,
            discarded_bytes: discarded as u64,
        })
    }

    fn flushed(&self) -> Later<'_, ()> {
        Box::pin(async move {
            loop {
                let progress = self.progress.notified();
                if self.lock().queue.is_empty() {
                    return;
                }
                progress.await;
            }
        })
    }
}

/// Types keys that the terminal turns into signals, past everything that waits. Where it takes
/// none, the signal goes without its echo.
fn type_signals(terminal: Option<&Terminal>, keys: &[(u8, i32)]) {
    let Some(terminal) = terminal else { return };
    terminal.discard_input();
    for &(key, signal) in keys {
        if terminal.write(&[key]).is_err()
            && let Err(error) = terminal.signal_foreground(signal)
        {
            tracing::debug!(%error, "a key could not be turned into its signal");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn input() -> (Arc<TerminalInput>, Arc<Terminal>) {
        let budget = Arc::new(InputBudget::new(1 << 20));
        let terminal = Arc::new(Terminal::open(Size { rows: 24, cols: 80 }).unwrap());
        (TerminalInput::new(budget, 1 << 16, true), terminal)
    }

    const fn bytes(bytes: &[u8]) -> Given<'_> {
        Given { bytes, keys: &[], eof: false, size: None }
    }

    #[tokio::test]
    async fn a_line_that_would_be_cut_is_refused_over_calls() {
        let (input, _) = input();
        input.push(bytes(&[b'a'; 4000])).unwrap();
        assert_eq!(input.push(bytes(&[b'a'; 96])), Err(InputError::LineTooLong));
        let accepted = input.push(bytes(&[b'a'; 95])).unwrap();
        assert_eq!((accepted.accepted_bytes, accepted.pending_bytes), (95, 4095));
        input.push(bytes(b"\nnext")).unwrap();
        assert_eq!(input.lock().accepted_line, 4);
    }

    #[tokio::test]
    async fn a_key_that_is_a_signal_overtakes_and_discards_what_waits() {
        let (input, _) = input();
        input.push(bytes(b"waits")).unwrap();
        let keys = [b"x".to_vec(), vec![3], b"\r".to_vec()];
        let given = Given { bytes: b"too", keys: &keys, eof: false, size: None };
        let accepted = input.push(given).unwrap();
        let wanted = InputAccepted { accepted_bytes: 6, pending_bytes: 1, discarded_bytes: 9 };
        assert_eq!(accepted, wanted);
        assert_eq!((input.close(), input.budget.free()), (0, 1 << 20));
    }

    #[tokio::test]
    async fn lines_and_the_end_arrive_at_a_terminal() {
        let (input, terminal) = input();
        input.attach(&terminal).unwrap();
        let given = Given { bytes: b"one\n", keys: &[], eof: true, size: None };
        input.push(given).unwrap();
        input.flushed().await;
        let other = terminal.for_command().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            std::fs::File::from(other).read_to_string(&mut text).map(|_| text)
        });
        assert_eq!(read.await.unwrap().unwrap(), "one\n");
        assert_eq!(input.push(bytes(b"x")).unwrap().accepted_bytes, 1);
        input.shut_down();
        assert_eq!(input.push(bytes(b"x")), Err(InputError::ShuttingDown));
    }
}
