//! The end of everything: admission closes first, every tree is asked at once, and the run ends
//! within its bound whatever lives.

use std::time::Duration;

use procd_core::{Event, Handle, Life};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::api::StopAllOutcome;
use super::entry::Storage;
use super::task::Task;
use super::timers::Due;

/// What a shutdown may take beyond its grace. Source: spec, lifecycle, *Shutdown*.
const BEYOND_GRACE: Duration = Duration::from_secs(12);

/// A shutdown under way; concurrent callers share it and its result.
#[derive(Debug)]
pub(super) struct ShutdownRun {
    replies: Vec<oneshot::Sender<StopAllOutcome>>,
    targets: Vec<Handle>,
    bound: Instant,
    outcome: Option<StopAllOutcome>,
}

impl Task {
    /// Begins the shutdown, or joins the one under way.
    pub(super) fn begin_shutdown(
        &mut self,
        grace: Option<Duration>,
        reply: oneshot::Sender<StopAllOutcome>,
    ) {
        if let Some(run) = &mut self.shutdown {
            match &run.outcome {
                Some(outcome) => drop(reply.send(outcome.clone())),
                None => run.replies.push(reply),
            }
            return;
        }
        let bound = self.clock.monotonic() + self.grace(grace) + BEYOND_GRACE;
        let targets = self.table.live_of(None);
        tracing::info!(running = targets.len(), "shutting down");
        self.shutdown = Some(ShutdownRun {
            replies: vec![reply],
            targets: targets.clone(),
            bound,
            outcome: None,
        });
        self.timers.arm(bound, Due::Shutdown);
        self.storage.hasten();
        self.refuse_waiters(None);
        self.ask_all_to_end(&targets, grace);
        self.check_runs();
    }

    /// A second signal: what is left of the grace is skipped.
    pub(super) fn hasten_shutdown(&mut self) {
        let Some(run) = &self.shutdown else { return };
        for handle in run.targets.clone() {
            let is_under_way = |entry: &super::entry::Entry| {
                matches!(entry.life, Life::Running { .. } | Life::Ending { .. } | Life::Kept { .. })
            };
            if self.table.get(handle).is_some_and(is_under_way) {
                self.drive(handle, Event::GraceElapsed, None);
            }
        }
    }

    /// Ends the runs (closes of sessions, the shutdown) that have nothing left to wait for.
    pub(super) fn check_runs(&mut self) {
        self.check_closes();
        let now = self.clock.monotonic();
        let Some(run) = &self.shutdown else { return };
        if run.outcome.is_some() {
            return;
        }
        let is_over = now >= run.bound;
        let settled = self.outcome_of(&run.targets);
        let is_flushed = self.table.all().all(|entry| entry.storage != Storage::Sealing);
        let outcome = match settled {
            Some(outcome) if is_flushed || is_over => outcome,
            None if is_over => self.outcome_at_the_bound(&run.targets),
            Some(_) | None => return,
        };
        self.name_those_who_held_it_up(&run.targets);
        for failure in &outcome.failures {
            tracing::error!(handle = %failure.process_id.shortened(), "not ended by the shutdown");
        }
        let Some(run) = &mut self.shutdown else { return };
        for reply in run.replies.drain(..) {
            drop(reply.send(outcome.clone()));
        }
        run.outcome = Some(outcome);
    }

    /// Why it took as long as its grace.
    fn name_those_who_held_it_up(&self, targets: &[Handle]) {
        let entries = targets.iter().filter_map(|handle| Some((handle, self.table.get(*handle)?)));
        for (handle, _) in entries.filter(|(_, entry)| entry.record.escalated) {
            tracing::warn!(handle = %handle.shortened(), "killed: it did not end within the grace");
        }
    }

    /// The outcome once each target has ended or is named as a failure; none before.
    pub(super) fn outcome_of(&self, targets: &[Handle]) -> Option<StopAllOutcome> {
        let mut outcome = StopAllOutcome::default();
        for entry in targets.iter().filter_map(|handle| self.table.get(*handle)) {
            if entry.is_shown_terminal() {
                outcome.stopped += 1;
                continue;
            }
            let teardown = entry.active.as_ref().and_then(|active| active.teardown.clone())?;
            outcome.failures.push(entry.outcome(Some(teardown)));
        }
        Some(outcome)
    }

    fn outcome_at_the_bound(&self, targets: &[Handle]) -> StopAllOutcome {
        let mut outcome = StopAllOutcome::default();
        for entry in targets.iter().filter_map(|handle| self.table.get(*handle)) {
            if entry.is_shown_terminal() {
                outcome.stopped += 1;
            } else {
                let error = super::refusal::Refusal::Teardown {
                    live: 1,
                    waited_ms: 0,
                    state: entry.shown.borrow().record.state,
                };
                let teardown = entry.active.as_ref().and_then(|active| active.teardown.clone());
                outcome.failures.push(entry.outcome(Some(teardown.unwrap_or(error))));
            }
        }
        outcome
    }
}
