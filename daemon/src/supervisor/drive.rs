//! From observations and requests to `step()`, and from its actions to orders, timers and
//! batches.

use std::time::Duration;

use procd_core::life::Request;
use procd_core::state::ProcessState;
use procd_core::{Action, Event, Handle, Life, Owner, Step, StopMode, step};
use procd_store::event::{Event as ProcessEvent, EventError, EventKind};
use procd_store::log::{LogRecord, Submitted};
use procd_store::record::SignalError;
use tokio::time::Instant;

use super::entry::{SharedRecord, SpawnAnswer, shorten, take_due};
use super::journal::{COMPANY, Tag};
use super::refusal::Refusal;
use super::runner::{LossCause, Order, Report, SpawnFailure, TreeEnd};
use super::task::Task;
use super::timers::Due;
use crate::metrics::METRICS;

/// How long leftovers get to end politely.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Kinds of signal errors kept in a record, a count.
const SIGNAL_ERRORS_MAX: usize = 16;

/// Makes an event of a record, and its batch.
pub(super) trait MakeBatch:
    FnOnce(&mut SharedRecord) -> Result<(ProcessEvent, Vec<LogRecord>), EventError>
{
}

impl<F> MakeBatch for F where
    F: FnOnce(&mut SharedRecord) -> Result<(ProcessEvent, Vec<LogRecord>), EventError>
{
}

impl Task {
    /// Passes one event through the table and carries out what it says. `grace` is that of the
    /// request, if the event is one.
    pub(super) fn drive(&mut self, handle: Handle, event: Event, grace: Option<Duration>) {
        let grace = self.grace(grace);
        let Some(entry) = self.table.get_mut(handle) else { return };
        match step(entry.life, event) {
            Step::Ignore => {}
            Step::Bug(what) => {
                tracing::error!(handle = %handle.shortened(), ?event, "impossible: {what}");
            }
            Step::Go(next, actions) => {
                entry.life = next;
                for action in actions {
                    self.act(handle, *action, grace);
                }
                self.arm(handle);
            }
        }
    }

    fn act(&mut self, handle: Handle, action: Action, grace: Duration) {
        match action {
            Action::AbortSpawn => self.order(handle, Order::AbortSpawn),
            Action::Signal(signal, request) => self.order(handle, Order::Signal(signal, request)),
            Action::Kill(request) => self.order(handle, Order::Kill(Some(request))),
            Action::EscalateKill => self.order(handle, Order::Kill(None)),
            Action::RecordStop(mode) => self.record_stop(handle, mode),
            Action::ArmInterruptGrace => {
                let at = self.clock.monotonic() + grace;
                self.with_active(handle, |active| active.due.interrupt = Some(at));
            }
            Action::ArmGrace => {
                let now = self.clock.monotonic();
                self.with_active(handle, |active| shorten(&mut active.due.grace, now, grace));
            }
            Action::TerminateLeftovers => {
                let at = self.clock.monotonic() + LEFTOVER_GRACE;
                self.with_active(handle, |active| active.due.leftovers = Some(at));
                self.order(handle, Order::TerminateLeftovers);
            }
            Action::CommitRunning => self.commit_running(handle),
            Action::CommitLeaderExit => self.commit_leader_exit(handle),
            Action::CommitEnd => self.commit_end(handle),
            // Carried out when the answer to the terminal batch is here: `end_logged`.
            Action::Release | Action::Offer | Action::Seal => {}
        }
    }

    fn with_active(&mut self, handle: Handle, change: impl FnOnce(&mut super::entry::Active)) {
        if let Some(active) = self.table.get_mut(handle).and_then(|entry| entry.active.as_mut()) {
            change(active);
        }
    }

    pub(super) fn order(&mut self, handle: Handle, order: Order) {
        self.with_active(handle, |active| active.running.orders.push(order));
    }

    /// What a runner observed.
    pub(super) fn report(&mut self, handle: Handle, report: Report) {
        match report {
            Report::Spawned { pid } => self.spawned(handle, pid),
            Report::SpawnFailed(failure) => self.spawn_failed(handle, failure),
            Report::Aborted => {
                self.with_active(handle, |active| active.start.spawn = SpawnAnswer::Done);
                self.drive(handle, Event::Aborted, None);
            }
            Report::Reached { request, alive, errors } => {
                self.add_signal_errors(handle, errors);
                self.drive(handle, Event::Reached { request, alive }, None);
            }
            Report::LeaderEnded { leader, leftovers } => {
                self.drive(handle, Event::LeaderEnded { leader, leftovers }, None);
            }
            Report::TreeEmpty(end) => self.tree_empty(handle, end),
            Report::NotEmpty { live, waited } => self.not_empty(handle, live, waited),
            Report::Lost(cause) => self.lost(handle, cause),
        }
    }

    fn spawned(&mut self, handle: Handle, pid: i32) {
        crate::failpoint::hit("spawn-answered");
        let now = self.clock.monotonic();
        let Some(entry) = self.table.get_mut(handle) else { return };
        entry.record.os.pid = Some(pid);
        let Some(active) = entry.active.as_mut() else { return };
        active.started = Some(now);
        METRICS.start_times.add(now.saturating_duration_since(active.admitted));
        active.start.spawn = SpawnAnswer::Done;
        active.due.deadline = active.timeout.map(|timeout| now + timeout);
        self.drive(handle, Event::Spawned, None);
        self.answer_start(handle);
    }

    fn spawn_failed(&mut self, handle: Handle, failure: SpawnFailure) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        entry.record.diagnostic = Some(super::records::spawn_diagnostic(failure));
        if let Some(active) = entry.active.as_mut() {
            active.start.spawn = SpawnAnswer::Failed(failure);
        }
        self.drive(handle, Event::SpawnFailed, None);
    }

    fn tree_empty(&mut self, handle: Handle, end: TreeEnd) {
        self.add_signal_errors(handle, end.signal_errors);
        if let Some(entry) = self.table.get_mut(handle) {
            entry.record.input_dropped_bytes = end.input_dropped_bytes;
            entry.record.oom_killed = end.oom_killed;
            entry.record.limit_exceeded = end.limit_exceeded.map(str::to_owned);
        }
        self.drive(handle, Event::TreeEmpty, None);
    }

    fn not_empty(&mut self, handle: Handle, live: u32, waited: Duration) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let refusal = Refusal::Teardown {
            live,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            state: entry.shown.borrow().record.state,
        };
        METRICS.teardown_failures.add(1);
        tracing::error!(handle = %handle.shortened(), "{refusal}");
        entry.answer_stops(Some(&refusal), |mode| mode != StopMode::Interrupt);
        if let Some(active) = entry.active.as_mut() {
            active.teardown = Some(refusal);
        }
        self.check_runs();
    }

    fn lost(&mut self, handle: Handle, cause: LossCause) {
        let word = match cause {
            LossCause::GuardianLost => "guardian_lost",
            LossCause::ContainmentLost => "containment_lost",
            LossCause::EndUnobserved => "end_unobserved",
        };
        tracing::error!(handle = %handle.shortened(), cause = word, "lost sight of a process");
        let Some(entry) = self.table.get_mut(handle) else { return };
        entry.record.diagnostic = Some(word.to_owned());
        if let Some(active) = entry.active.as_mut()
            && active.start.spawn == SpawnAnswer::Pending
        {
            active.start.spawn = SpawnAnswer::Done;
        }
        self.drive(handle, Event::Lost, None);
    }

    fn add_signal_errors(&mut self, handle: Handle, errors: Vec<SignalError>) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let known = &mut entry.record.signal_errors;
        for error in errors {
            let same =
                |old: &&mut SignalError| old.signal == error.signal && old.errno == error.errno;
            if let Some(old) = known.iter_mut().find(same) {
                old.count = old.count.saturating_add(error.count);
            } else if known.len() < SIGNAL_ERRORS_MAX {
                known.push(error);
            }
        }
    }

    /// `running` and its event, as one batch.
    fn commit_running(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let started_at = self.clock.wall_after(entry.record.created_at);
        entry.record.state = ProcessState::Running;
        entry.record.started_at = Some(started_at);
        let active = entry.active.as_ref();
        let timeout = active.and_then(|active| active.timeout);
        entry.record.deadline_at = timeout.and_then(|timeout| started_at.checked_add(timeout).ok());
        let kind = if active.is_some_and(|active| active.background) {
            EventKind::Backgrounded
        } else {
            EventKind::Started
        };
        entry.show(true);
        self.publish_in_company(handle, |record| super::records::live_batch(record, kind));
        // Its output may have begun before this.
        self.spool_changed(handle);
    }

    /// The leader's end, with its event: the tree is kept.
    fn commit_leader_exit(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        if let Life::Kept { leader, leftovers, .. } = entry.life {
            entry.record.leader = Some(super::records::leader(leader));
            entry.record.leftovers = leftovers;
        }
        entry.show(true);
        self.publish(handle, |record| super::records::leader_exit_batch(record));
    }

    /// A foreground start is handed over to the background. Once the end is entered there is no
    /// `backgrounded`: the terminal result is the reply.
    pub(super) fn background(&mut self, owner: Owner, handle: Handle) -> Result<bool, Refusal> {
        let entry = self.table.find(super::api::Caller::Owner(owner), handle)?;
        let is_running = matches!(entry.life, Life::Running { .. } | Life::Kept { .. });
        if is_running {
            self.publish(handle, |record| {
                super::records::live_batch(record, EventKind::Backgrounded)
            });
        }
        Ok(is_running)
    }

    fn record_stop(&mut self, handle: Handle, mode: StopMode) {
        self.publish_in_company(handle, |record| super::records::stop_batch(record, mode));
    }

    /// Appends the record and an event of it as one batch.
    pub(super) fn publish(&mut self, handle: Handle, make: impl MakeBatch) {
        self.publish_with(handle, make, Self::submit);
    }

    /// The same of what nobody waits for, unless there are subscribers: it shares the sync of the
    /// next batch, usually that of the end.
    fn publish_in_company(&mut self, handle: Handle, make: impl MakeBatch) {
        let submit =
            if self.subscriptions.are_any() { Self::submit } else { Self::submit_in_company };
        self.publish_with(handle, make, submit);
    }

    fn submit(&mut self, tag: Tag, batch: Vec<LogRecord>) -> Vec<Submitted> {
        self.journal.submit(tag, batch)
    }

    /// For what nobody waits for.
    pub(super) fn submit_in_company(&mut self, tag: Tag, batch: Vec<LogRecord>) -> Vec<Submitted> {
        let (submitted, is_first) = self.journal.submit_lazily(tag, batch);
        if is_first {
            self.timers.arm(self.clock.monotonic() + COMPANY, Due::Flush);
        }
        submitted
    }

    fn publish_with(
        &mut self,
        handle: Handle,
        make: impl MakeBatch,
        submit: fn(&mut Self, Tag, Vec<LogRecord>) -> Vec<Submitted>,
    ) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        match make(&mut entry.record) {
            Ok((event, batch)) => {
                crate::failpoint::hit("event-before-append");
                let submitted = submit(self, Tag::Update(handle), batch);
                self.remember(handle, vec![event], &submitted);
                crate::failpoint::hit("event-after-append");
            }
            Err(error) => {
                tracing::error!(handle = %handle.shortened(), error = %error, "event refused");
            }
        }
    }

    /// Looks at what is due for one process.
    pub(super) fn process_due(&mut self, handle: Handle, now: Instant) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let outcome = entry.outcome(None);
        let mut events = Vec::new();
        if let Some(active) = entry.active.as_mut() {
            let due = &mut active.due;
            let timers = [
                (&mut due.deadline, Event::Requested(Request::Deadline)),
                (&mut due.grace, Event::GraceElapsed),
                (&mut due.interrupt, Event::InterruptGraceElapsed),
                (&mut due.leftovers, Event::LeftoverGraceElapsed),
            ];
            events.extend(
                timers.into_iter().filter_map(|(at, event)| take_due(at, now).then_some(event)),
            );
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            for waiter in active.stops.extract_if(.., |waiter| is_due(waiter.until)) {
                drop(waiter.reply.send(Ok(outcome.clone())));
            }
        }
        for event in events {
            self.drive(handle, event, None);
        }
        let active = self.table.get_mut(handle).and_then(|entry| entry.active.as_mut());
        if active.is_some_and(|active| take_due(&mut active.due.spool, now)) {
            self.spool_changed(handle);
        }
        self.retry_end(handle, now);
        self.arm(handle);
    }

    /// Asks many processes to end, all at once: their input is closed, their trees are asked to
    /// terminate.
    pub(super) fn ask_all_to_end(&mut self, handles: &[Handle], grace: Option<Duration>) {
        for &handle in handles {
            self.order(handle, Order::CloseInput);
            self.drive(handle, Event::Requested(Request::Shutdown), grace);
        }
    }
}
