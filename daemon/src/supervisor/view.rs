//! What goes up from the supervisor: values only. A snapshot of a record with a generation
//! number, and the shared reading side of a process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use procd_core::{Handle, Owner, ProcessState};
use procd_store::record::Record;
use tokio::sync::watch;

use super::refusal::Refusal;
use super::runner::{Input, Inspector, Signaller};
use crate::drain::Output;
use crate::metrics::METRICS;

/// A record as readers may see it now. A terminal state shows here only once its batch is
/// durable, or with `durable: false` after the first failure of that save.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Goes up by one with each change.
    pub generation: u64,
    /// The record. Its byte bounds are those of its latest save: live ones are the output's.
    pub record: Arc<Record>,
    /// Whether what is shown is on disk.
    pub durable: bool,
}

impl Snapshot {
    /// Whether the process has reached its terminal state.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.record.state.is_terminal()
    }
}

/// The reading side of one process. Cheap to clone; stays usable after the process is removed.
#[derive(Debug, Clone)]
pub struct ProcessView {
    /// The handle.
    pub handle: Handle,
    /// The owner.
    pub owner: Owner,
    /// Its output.
    pub output: Output,
    /// Its stdin while it runs and has a pipe or a terminal.
    pub input: Option<Arc<dyn Input>>,
    /// Signals it while it runs.
    pub signaller: Option<Arc<dyn Signaller>>,
    /// Looks at its tree while it runs.
    pub inspector: Option<Arc<dyn Inspector>>,
    /// The record as it changes; `changed()` wakes on each new generation.
    pub snapshot: watch::Receiver<Snapshot>,
}

impl ProcessView {
    /// The record as readers may see it now.
    #[must_use]
    pub fn now(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }

    /// Waits until the end is visible, or that the leader has ended and its tree is kept: whether
    /// it is the end. Cancel safe.
    pub async fn leader_ended(&mut self) -> bool {
        let has_ended = |seen: &Snapshot| seen.is_terminal() || seen.record.leader.is_some();
        drop(self.snapshot.wait_for(has_ended).await);
        self.now().is_terminal()
    }

    /// Waits until the end is visible. Cancel safe.
    pub async fn ended(&mut self) -> Snapshot {
        // When the supervisor is gone, what was seen last is all there is.
        drop(self.snapshot.wait_for(Snapshot::is_terminal).await);
        self.now()
    }
}

/// Processes by state; a state without any is left out.
pub type Totals = BTreeMap<ProcessState, u64>;

/// The slots for blocking calls of one session (or of one operator's connection).
#[derive(Debug, Clone)]
pub struct WaiterSlots(Arc<Slots>);

#[derive(Debug)]
struct Slots {
    max: AtomicU64,
    in_use: AtomicU64,
}

impl WaiterSlots {
    /// `max` slots, none in use.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self(Arc::new(Slots { max: AtomicU64::new(max), in_use: AtomicU64::new(0) }))
    }

    /// Another number of slots, from the next call on.
    pub(super) fn set_max(&self, max: u64) {
        self.0.max.store(max, Ordering::Relaxed);
    }

    /// Takes a slot for one blocking call.
    /// # Errors
    /// [`Refusal::Waiters`] when all are in use.
    pub fn take(&self) -> Result<WaiterSlot, Refusal> {
        let max = self.0.max.load(Ordering::Relaxed);
        let next = |in_use: u64| (in_use < max).then_some(in_use + 1);
        match self.0.in_use.try_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => {
                METRICS.waiters.add(1);
                Ok(WaiterSlot(self.0.clone()))
            }
            Err(in_use) => Err(Refusal::Waiters { max, in_use }),
        }
    }
}

/// One blocking call under way; dropping it frees the slot at once.
#[must_use]
#[derive(Debug)]
pub struct WaiterSlot(Arc<Slots>);

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::AcqRel);
        METRICS.waiters.take_off(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_wait_frees_its_slot_at_once() {
        let slots = WaiterSlots::new(1);
        let held = slots.take().unwrap();
        assert_eq!(slots.take().unwrap_err(), Refusal::Waiters { max: 1, in_use: 1 });
        drop(held);
        assert!(slots.take().is_ok());
    }
}
