//! The background syncs of the running spools of one drain thread: each a second after a write, or
//! the length of its previous sync if that is longer, and one at a time. No write waits for one,
//! and a spool at rest has no timer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::drained::Slot;
use super::pump::Pump;
use super::threads::Thread;
use crate::clock::Clock;

/// How long after a write at the earliest.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where the background sync of one spool stands.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Something was written since the last batch was taken.
    dirty: bool,
    /// It waits for its turn, or has it.
    is_queued: bool,
    /// Of the previous one.
    length: Duration,
}

/// Which spools are due when, by their keys. One that is gone by then is passed over.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    queue: Mutex<BinaryHeap<Reverse<(Instant, u64)>>>,
    wake: Notify,
}

impl Syncs {
    /// Something was written to the spool called `key`.
    pub(super) fn note_write(&self, state: &mut SyncState, key: u64, now: Instant) {
        state.dirty = true;
        if state.is_queued {
            return;
        }
        state.is_queued = true;
        let at = now + INTERVAL.max(state.length);
        let mut queue = self.queue();
        let is_first = queue.peek().is_none_or(|Reverse((first, _))| at < *first);
        queue.push(Reverse((at, key)));
        drop(queue);
        if is_first {
            self.wake.notify_one();
        }
    }

    /// The next spool, when it is due.
    async fn next(&self) -> u64 {
        loop {
            let first = self.queue().peek().map(|Reverse(first)| *first);
            let Some((at, _)) = first else {
                self.wake.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(at) => {
                    // Not the one that was slept for: an earlier one may have come since.
                    if let Some(Reverse((_, key))) = self.queue().pop() {
                        return key;
                    }
                }
                () = self.wake.notified() => {}
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, BinaryHeap<Reverse<(Instant, u64)>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs what is due, for ever.
pub(super) async fn keep_synced(thread: Arc<Thread>) {
    let pump = &thread.pump;
    loop {
        let key = pump.syncs().next().await;
        if let Some(slot) = pump.slot(key) {
            sync(pump, &slot, Clock).await;
        }
    }
}

async fn sync(pump: &Pump, slot: &Slot, clock: Clock) {
    let batch = {
        let mut drained = slot.lock();
        drained.sync.dirty = false;
        let batch = drained.writer.as_mut().and_then(|writer| writer.spool().sync_batch());
        drained.sync.is_queued = batch.is_some();
        batch
    };
    let Some(batch) = batch else { return };
    let running = tokio::task::spawn_blocking(move || {
        let start = clock.monotonic();
        (batch.run(), clock.since(start))
    });
    let (result, length) = match running.await {
        Ok(done) => done,
        Err(failure) => (Err(io::Error::other(failure)), Duration::ZERO),
    };
    let mut drained = slot.lock();
    drained.sync.is_queued = false;
    drained.sync.length = length;
    let Some(writer) = &mut drained.writer else { return };
    match result {
        Ok(mark) => writer.spool().mark_synced(mark),
        Err(error) => writer.spool().sync_failed(&error),
    }
    writer.note_status();
    if drained.sync.dirty {
        pump.syncs().note_write(&mut drained.sync, slot.key(), clock.monotonic());
    }
}
