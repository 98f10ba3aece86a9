//! Stops: one process for a caller, or many. Escalation is the table's business; here is who waits for
//! what.

use std::time::Duration;

use procd_core::{Event, Handle, StopMode};
use tokio::sync::oneshot;

use super::api::{Caller, Reply, StopOutcome, StopScope};
use super::entry::StopWaiter;
use super::refusal::Refusal;
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

    /// Stops all that runs of a loop or a session.
    pub(super) fn stop_all(
        &mut self,
        caller: Caller,
        which: StopScope,
        mode: StopMode,
        grace: Option<Duration>,
    ) -> Result<Vec<oneshot::Receiver<Result<StopOutcome, Refusal>>>, Refusal> {
        let session = match caller {
            Caller::Owner(owner) => owner.session,
            Caller::Operator => which.session.ok_or(Refusal::SessionNotFound)?,
        };
        if !self.sessions.contains_key(&session) {
            return Err(Refusal::SessionNotFound);
        }
        let mut stops = Vec::new();
        for handle in self.table.live_of(Some(session)) {
            let Some(entry) = self.table.get(handle) else { continue };
            let caller = match caller {
                Caller::Owner(owner) if which.whole_session || owner == entry.owner => {
                    Caller::Owner(entry.owner)
                }
                Caller::Owner(_) => continue,
                Caller::Operator => Caller::Operator,
            };
            let (reply, stopped) = oneshot::channel();
            self.stop(caller, handle, mode, grace, reply);
            stops.push(stopped);
        }
        Ok(stops)
    }
}
