//! Drains of processes that have written nothing: no task, no registration of the runtime, no wake
//! of their thread, only an entry in an epoll of that thread's own, which any thread can make.
//!
//! ```text
//! Idle --something to read--> Running: a task of its own, see `task` --> Over
//!   |  \--each stream at its end, nothing in them--> ReadOut ------------^
//!   \--asked to finish, nothing in the streams---------------------------^
//! ```

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Streams;
use super::output::{FinishedOutput, OutputWriter};
use super::sync::Syncs;
use super::task::{self, ReadOut};
use crate::lane::{LaneSender, Unsent, lane};
use crate::watched::watched;

/// Questions to one drain that wait: its process asks one after the other, but gives up on some.
const ASKS_MAX: usize = 16;
/// Events taken at once, a count.
const EVENTS_MAX: usize = 64;

/// The idle drains of one thread.
#[derive(Debug)]
pub(super) struct IdleDrains {
    epoll: OwnedFd,
    by_key: Mutex<HashMap<u64, Arc<Drain>>>,
    next_key: AtomicU64,
}

impl IdleDrains {
    /// # Errors
    /// No descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            by_key: Mutex::default(),
            next_key: AtomicU64::new(0),
        })
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<u64, Arc<Drain>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each change of a stream is told of once: whoever looks then sees all of them.
    fn watch(&self, key: u64, streams: &Streams) -> io::Result<()> {
        for stream in streams.each() {
            let data = epoll::EventData::new_u64(key);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&self.epoll, stream, data, flags)?;
        }
        Ok(())
    }

    fn forget(&self, key: u64, streams: &Streams) {
        self.by_key().remove(&key);
        for stream in streams.each() {
            // Not there if it could not be added.
            let _gone = epoll::delete(&self.epoll, stream);
        }
    }
}

/// A thread of drains, as others see it.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) handle: Handle,
    pub(super) idle: Arc<IdleDrains>,
    pub(super) syncs: Syncs,
}

/// Starts what has something to read. On the thread itself, for its life.
pub(super) async fn pump(thread: Arc<Thread>) {
    let epoll = thread.idle.epoll.try_clone();
    let events = match epoll.and_then(|fd| watched(fd, Interest::READABLE)) {
        Ok(events) => events,
        Err(error) => return tracing::error!(%error, "bug: idle drains cannot be watched"),
    };
    while let Ok(mut guard) = events.readable().await {
        let keys = ready(events.get_ref());
        if keys.len() < EVENTS_MAX {
            guard.clear_ready();
        }
        for key in keys {
            let drain = thread.idle.by_key().get(&key).map(Arc::clone);
            if let Some(drain) = drain {
                drain.look(&thread);
            }
        }
    }
}

/// The keys of those in which something is to be seen.
fn ready(epoll: &OwnedFd) -> Vec<u64> {
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let wait = || epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&now));
    if let Err(error) = rustix::io::retry_on_intr(wait) {
        tracing::error!(%error, "bug: idle drains cannot be looked at");
    }
    events.iter().map(|event| event.data.u64()).collect()
}

/// One drain, idle or not.
#[derive(Debug)]
pub(super) struct Drain {
    key: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Idle { writer: OutputWriter, streams: Streams },
    Running(Running),
    ReadOut(OutputWriter),
    Over,
}

/// The task of a drain, as others see it.
#[derive(Debug)]
pub(super) struct Running {
    /// To catch up. Gone, it asks to finish.
    asks: LaneSender<oneshot::Sender<()>>,
    done: oneshot::Receiver<FinishedOutput>,
    read_out: ReadOut,
}

/// What is left to do for whoever finishes a drain.
#[derive(Debug)]
pub(super) enum Rest {
    /// Complete the output: nothing is to be read any more.
    Write(OutputWriter),
    /// Wait for its task, which has been asked to finish.
    Wait(oneshot::Receiver<FinishedOutput>),
    /// Somebody has finished it.
    Nothing,
}

#[cfg(test)]
impl Drain {
    /// Whether nothing can be written any more, and the writer lies there for who ends it.
    pub(super) fn is_read_out(&self) -> bool {
        match &*self.state() {
            State::Running(running) => task::lying(&running.read_out).is_some(),
            State::ReadOut(_) => true,
            State::Idle { .. } | State::Over => false,
        }
    }

    /// Whether it has no task.
    pub(super) fn is_idle(&self) -> bool {
        matches!(&*self.state(), State::Idle { .. })
    }
}

impl Drain {
    /// Drains `streams` on `thread`. A terminal is no idle one: what it holds cannot be told.
    pub(super) fn start(thread: &Arc<Thread>, writer: OutputWriter, streams: Streams) -> Arc<Self> {
        let key = thread.idle.next_key.fetch_add(1, Ordering::Relaxed);
        let is_none = streams.each().next().is_none();
        let is_terminal = streams.terminal;
        let state = match (is_none, is_terminal) {
            (true, _) => State::ReadOut(writer),
            (false, true) => State::Running(run(thread, writer, streams)),
            (false, false) => State::Idle { writer, streams },
        };
        let drain = Arc::new(Self { key, state: Mutex::new(state) });
        drain.fall_idle(thread);
        drain
    }

    /// From here on the thread looks at it when there is something to see.
    fn fall_idle(self: &Arc<Self>, thread: &Arc<Thread>) {
        let mut state = self.state();
        let State::Idle { streams, .. } = &*state else { return };
        thread.idle.by_key().insert(self.key, Arc::clone(self));
        if let Err(error) = thread.idle.watch(self.key, streams) {
            tracing::debug!(%error, "a drain cannot be idle");
            self.wake_up(&mut state, thread);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to be seen in one of its streams.
    fn look(&self, thread: &Arc<Thread>) {
        let mut state = self.state();
        let State::Idle { streams, .. } = &*state else { return };
        match seen(streams) {
            // The other one is still watched.
            Seen::Open => {}
            Seen::Readable => self.wake_up(&mut state, thread),
            Seen::Over => {
                if let State::Idle { writer, streams } = std::mem::replace(&mut *state, State::Over)
                {
                    thread.idle.forget(self.key, &streams);
                    // Before the writer lies there: whoever completes the output finds no pipe open.
                    drop(streams);
                    *state = State::ReadOut(writer);
                }
            }
        }
    }

    /// An idle one gets its task.
    fn wake_up(&self, state: &mut State, thread: &Arc<Thread>) {
        match std::mem::replace(state, State::Over) {
            State::Idle { writer, streams } => {
                thread.idle.forget(self.key, &streams);
                *state = State::Running(run(thread, writer, streams));
            }
            other @ (State::Running(_) | State::ReadOut(_) | State::Over) => *state = other,
        }
    }

    /// Has what the streams hold now read; `None` = there is nothing to wait for.
    pub(super) fn ask_to_catch_up(&self, thread: &Arc<Thread>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        if matches!(&*state, State::Idle { streams, .. } if has_bytes(streams)) {
            self.wake_up(&mut state, thread);
        }
        let State::Running(running) = &*state else { return None };
        let (told, caught_up) = oneshot::channel();
        match running.asks.send(told) {
            Ok(()) => Some(caught_up),
            // A drain that ended meanwhile has read everything.
            Err(Unsent::Closed) => None,
            Err(Unsent::Full) => {
                tracing::error!("bug: more questions than a drain can have");
                None
            }
        }
    }

    /// Ends it: what its streams hold now is still read.
    pub(super) fn end(&self, thread: &Arc<Thread>) -> Rest {
        let mut state = self.state();
        if matches!(&*state, State::Idle { streams, .. } if has_bytes(streams)) {
            self.wake_up(&mut state, thread);
        }
        let ended = std::mem::replace(&mut *state, State::Over);
        drop(state);
        match ended {
            State::Idle { writer, streams } => {
                thread.idle.forget(self.key, &streams);
                Rest::Write(writer)
            }
            State::ReadOut(writer) => Rest::Write(writer),
            State::Running(Running { asks, done, read_out }) => {
                let read_out = task::lying(&read_out).take();
                drop(asks);
                read_out.map_or(Rest::Wait(done), Rest::Write)
            }
            State::Over => Rest::Nothing,
        }
    }
}

/// Starts the task of a drain on its thread.
fn run(thread: &Thread, writer: OutputWriter, streams: Streams) -> Running {
    let (asks, asked) = lane(ASKS_MAX);
    let (finished, done) = oneshot::channel();
    let read_out = ReadOut::default();
    let laid = Arc::clone(&read_out);
    let sync = thread.syncs.of_one();
    thread.handle.spawn(async move {
        let result = task::drain(writer, streams, sync, laid, asked).await;
        if result.is_some_and(|result| finished.send(result).is_err()) {
            tracing::debug!("an output was completed with nobody to ask for it");
        }
    });
    Running { asks, done, read_out }
}

enum Seen {
    /// A stream that is open, and nothing to read.
    Open,
    Readable,
    /// Each stream is at its end.
    Over,
}

fn seen(streams: &Streams) -> Seen {
    let mut fds: Vec<_> = streams.each().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut fds, Some(&now)).is_err() {
        return Seen::Readable;
    }
    let all = |flag: PollFlags| fds.iter().all(|fd| fd.revents() == flag);
    let has_bytes = fds.iter().any(|fd| fd.revents().intersects(!PollFlags::HUP));
    match (has_bytes, all(PollFlags::HUP)) {
        (true, _) => Seen::Readable,
        (false, true) => Seen::Over,
        (false, false) => Seen::Open,
    }
}

/// Whether a stream holds something. What cannot be told is left to a read.
fn has_bytes(streams: &Streams) -> bool {
    streams.each().any(|fd| rustix::io::ioctl_fionread(fd.as_fd()) != Ok(0))
}
