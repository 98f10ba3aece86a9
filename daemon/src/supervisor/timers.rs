//! When something is due. A heap of hints: each entry knows itself what is due, so an outdated
//! hint costs one look. No timer exists when nothing is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use procd_core::{Handle, Owner, SessionId};
use tokio::time::Instant;

/// Who is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A process: deadline, grace, leftovers, a waiting interrupt, a save to be tried again.
    Process(Handle),
    /// A session: its idle clock.
    Session(SessionId),
    /// Somebody who waits for room: the time is over.
    Queue(u64),
    /// Notifications that a loop could not take.
    Stopped(Owner),
    /// The ages of what is kept.
    Retention,
    /// Batches that were not durable: whether they are now.
    Journal,
    /// Batches that wait for company.
    Flush,
    /// The shutdown of the daemon: its bound.
    Shutdown,
    /// A sign of life.
    Beat,
}

/// The hints, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Due)>>,
}

impl Timers {
    /// Looks at `due` at `at`.
    pub(super) fn arm(&mut self, at: Instant, due: Due) {
        self.heap.push(Reverse((at, due)));
    }

    /// The next hint that is due by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Due> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, due))| due)
    }

    /// Sleeps until the next hint; for ever without one. Cancel safe.
    pub(super) async fn wait(&self) {
        match self.heap.peek() {
            Some(Reverse((at, _))) => tokio::time::sleep_until(*at).await,
            None => std::future::pending().await,
        }
    }
}
