//! What the daemon counts while it runs, for `daemon/metrics`: numbers, one place for the whole
//! process. Names and text are `request`'s; nothing in here knows who reads.

use std::sync::atomic::{AtomicU64, Ordering};

use procd_core::ProcessState;
use procd_store::histogram::Histogram;

/// The counts of this process.
pub static METRICS: Metrics = Metrics::new();

/// See the module.
#[derive(Debug)]
pub struct Metrics {
    /// Starts that were admitted: each has a record.
    pub starts: Count,
    /// From the admission of a start to its exec.
    pub start_times: Histogram,
    /// Ends, by the state they led to.
    ends: [Count; ENDS.len()],
    /// Bytes read from the streams of processes.
    pub drained_bytes: Count,
    /// Bytes of running processes that are not retained any more: over the ceiling, or not
    /// written.
    pub dropped_bytes: Count,
    /// Records that the restore has read so far.
    pub restored: Count,
    /// Trees that were not proven empty in time.
    pub teardown_failures: Count,
    /// Blocking calls under way.
    pub waiters: Count,
    /// Input that was accepted and not delivered yet, bytes.
    pub pending_input_bytes: Count,
}

/// The terminal states.
pub const ENDS: [ProcessState; 7] = [
    ProcessState::Exited,
    ProcessState::Failed,
    ProcessState::TimedOut,
    ProcessState::Interrupted,
    ProcessState::Terminated,
    ProcessState::Killed,
    ProcessState::LostOnRestore,
];

/// A number that goes up; a gauge goes down too.
#[derive(Debug)]
pub struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Takes off `less`, which was added before.
    pub fn take_off(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metrics {
    const fn new() -> Self {
        Self {
            starts: Count::new(),
            start_times: Histogram::new(),
            ends: [const { Count::new() }; _],
            drained_bytes: Count::new(),
            dropped_bytes: Count::new(),
            restored: Count::new(),
            teardown_failures: Count::new(),
            waiters: Count::new(),
            pending_input_bytes: Count::new(),
        }
    }

    /// A process has ended in `state`.
    pub fn ended(&self, state: ProcessState) {
        if let Some(count) = ENDS.iter().zip(&self.ends).find(|(end, _)| **end == state) {
            count.1.add(1);
        }
    }

    /// Ends so far, by state.
    pub fn ends(&self) -> impl Iterator<Item = (ProcessState, u64)> {
        ENDS.into_iter().zip(self.ends.iter().map(Count::get))
    }
}
