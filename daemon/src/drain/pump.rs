//! What one drain thread does: it waits for all its streams by an epoll of their own, which any
//! thread may add to without waking it, and which its runtime watches as one descriptor. A process
//! has no task here, and no registration with the runtime: at rest it costs its slot alone.
//!
//! ```text
//! pipes -> epoll -> runtime wakes the pump -> one turn each -> whoever was woken by it -> next turn
//! ```

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::Streams;
use super::drained::{Slot, Which};
use super::output::OutputWriter;
use super::sync::Syncs;
use crate::clock::Clock;
use crate::watched::watched;

/// Streams asked for at once. Those that stay loud come again behind the others.
const EVENTS: usize = 32;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The slots of one thread.
#[derive(Debug)]
pub(super) struct Pump {
    epoll: OwnedFd,
    slots: Mutex<HashMap<u64, Arc<Slot>>>,
    next_key: AtomicU64,
    syncs: Syncs,
    clock: Clock,
    /// Times that it was woken, or looked again, with something to do.
    #[cfg(test)]
    pub(super) turns: AtomicU64,
}

/// Chatty streams that are left alone, by the end of their rest: all rests are of one length.
type Rests = VecDeque<(Instant, u64, Which)>;

impl Pump {
    /// # Errors
    /// When the system gives no epoll descriptor.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            slots: Mutex::default(),
            next_key: AtomicU64::new(0),
            syncs: Syncs::default(),
            clock: Clock,
            #[cfg(test)]
            turns: AtomicU64::new(0),
        })
    }

    /// What [`Self::run`] waits for. Inside the runtime of the thread only.
    /// # Errors
    /// When the system refuses to watch it.
    pub(super) fn readiness(&self) -> io::Result<AsyncFd<OwnedFd>> {
        watched(self.epoll.try_clone()?, Interest::READABLE)
    }

    pub(super) const fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(super) const fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// A slot from which `streams` are drained from now on. Wakes nobody.
    pub(super) fn add(&self, writer: OutputWriter, streams: Streams) -> Arc<Slot> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let slot = Arc::new(Slot::new(key, writer, streams));
        self.slots().insert(key, Arc::clone(&slot));
        slot.lock().watch(&self.epoll, key);
        slot
    }

    /// The slot of that key, if there still is one.
    pub(super) fn slot(&self, key: u64) -> Option<Arc<Slot>> {
        self.slots().get(&key).map(Arc::clone)
    }

    /// Gives up a slot whose streams are closed.
    pub(super) fn remove(&self, key: u64) {
        self.slots().remove(&key);
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u64, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drains, for ever.
    pub(super) async fn run(&self, readiness: &AsyncFd<OwnedFd>) {
        let mut rests = Rests::new();
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; EVENTS];
        loop {
            tokio::select! {
                (key, which) = rested(&mut rests) => self.serve(key, which, &mut rests).await,
                ready = readiness.readable() => {
                    let Ok(mut ready) = ready else { return };
                    let count = match epoll::wait(&self.epoll, &mut events, Some(&AT_ONCE)) {
                        Ok(count) => count,
                        Err(Errno::INTR) => continue,
                        Err(error) => return tracing::error!(%error, "bug: no epoll"),
                    };
                    // Only an empty look ends the readiness: an edge comes for what is new.
                    if count == 0 {
                        ready.clear_ready();
                    }
                    for event in events.iter().take(count) {
                        let data = event.data;
                        let (key, which) = Which::of_token(data.u64());
                        self.serve(key, which, &mut rests).await;
                    }
                }
            }
        }
    }

    /// One turn of one stream, then of whoever was woken by it.
    async fn serve(&self, key: u64, which: Which, rests: &mut Rests) {
        #[cfg(test)]
        self.turns.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.slot(key) else { return };
        let turn = {
            let mut drained = slot.lock();
            let turn = AssertUnwindSafe(|| drained.turn(which, &self.epoll, key, self.clock));
            let Ok(turn) = catch_unwind(turn) else {
                // One output has an end without its writer, the others go on.
                drop(drained.close(&self.epoll));
                return;
            };
            if turn.bytes > 0 {
                self.syncs.note_write(&mut drained.sync, key, self.clock.monotonic());
            }
            turn
        };
        for which in Which::BOTH {
            if let Some(until) = turn.rest_of(which) {
                rests.push_back((until, key, which));
            }
        }
        if turn.bytes > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// One read of what lies in a stream when its output is asked for: so many bytes, at least one.
    pub(super) fn read_rest(&self, slot: &Slot, which: Which, left: usize) -> Option<usize> {
        let mut drained = slot.lock();
        let len = drained.read_rest(which, left, self.clock)?;
        self.syncs.note_write(&mut drained.sync, slot.key(), self.clock.monotonic());
        Some(len)
    }
}

/// The next stream whose rest is over. Cancel safe.
async fn rested(rests: &mut Rests) -> (u64, Which) {
    let Some(&(until, key, which)) = rests.front() else { return std::future::pending().await };
    sleep_until(until).await;
    rests.pop_front();
    (key, which)
}
