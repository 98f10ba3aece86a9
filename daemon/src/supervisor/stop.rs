//! Stops: one process for a caller. Escalation is the table's business; here is who waits for
//! what.

use std::time::Duration;

use procd_core::{Event, Handle, StopMode};

use super::api::{Caller, Reply, StopOutcome};
use super::entry::StopWaiter;
use super::task::Task;

impl Task {
    /// Stops a process. Terminal already: the stored result, no signal, every mode.
    pub(super) fn stop(
        &mut self,
        caller: Caller,
        handle: Handle,
        mode: StopMode,
        grace: Option<Duration>,
        reply: Reply<StopOutcome>,
    ) {
        let now = self.clock.monotonic();
        let until = (mode == StopMode::Interrupt).then(|| now + self.grace(grace));
        let entry = match self.table.find_mut(caller, handle) {
            Ok(entry) => entry,
            Err(refusal) => {
                drop(reply.send(Err(refusal)));
                return;
            }
        };
        if entry.is_shown_terminal() {
            drop(reply.send(Ok(entry.outcome(None))));
            return;
        }
        if let Some(active) = entry.active.as_mut() {
            active.stops.push(StopWaiter { mode, until, reply });
        }
        self.drive(handle, Event::Requested(mode.into()), grace);
        self.arm(handle);
    }
}
