//! One process in the table: its life, its record, and what only exists while it is active.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use procd_core::lease::LeaseNumber;
use procd_core::quota::Reservation;
use procd_core::{Handle, Life, Owner, StopMode};
use procd_store::event::Event;
use procd_store::manifest::NumberedEvent;
use procd_store::record::Record;
use tokio::sync::watch;
use tokio::time::Instant;

use super::api::{Reply, StopOutcome};
use super::refusal::Refusal;
use super::runner::{Running, SpawnFailure};
use super::tally::Tally;
use super::view::{ProcessView, Snapshot};
use crate::drain::Output;

/// A process the daemon knows.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) owner: Owner,
    /// The order of registration: newest has the highest.
    pub(super) number: u64,
    pub(super) life: Life,
    /// The record as decided; may be ahead of what is shown.
    pub(super) record: SharedRecord,
    /// The number of its latest record in the log.
    pub(super) seq: u64,
    /// Its events with their numbers, for the manifest's file.
    pub(super) events: Vec<NumberedEvent>,
    /// The number of its notification.
    pub(super) notification_seq: Option<u64>,
    pub(super) shown: watch::Sender<Snapshot>,
    /// Where it is counted by what is shown; the table's, once it is in it.
    pub(super) tally: Tally,
    pub(super) output: Output,
    /// Set from registration until the end is released.
    pub(super) active: Option<Active>,
    pub(super) storage: Storage,
    /// The event that it left its workspace, for the terminal batch.
    pub(super) left: Option<Box<Event>>,
}

/// A record that its readers share until it is changed.
#[derive(Debug, Clone)]
pub(super) struct SharedRecord(Arc<Record>);

impl SharedRecord {
    pub(super) fn new(record: Record) -> Self {
        Self(Arc::new(record))
    }

    /// As it is now; a later change is not seen there.
    pub(super) fn share(&self) -> Arc<Record> {
        Arc::clone(&self.0)
    }
}

impl Deref for SharedRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl DerefMut for SharedRecord {
    fn deref_mut(&mut self) -> &mut Record {
        Arc::make_mut(&mut self.0)
    }
}

/// How far the end of a process is on its way to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// It has not ended.
    Live,
    /// The terminal batch is submitted, or something is to be tried again at that time.
    EndPending(Option<(Instant, Again)>),
    /// The terminal batch is durable; the seal is under way.
    Sealing,
    /// The manifest's file is being written, first or anew.
    Writing {
        /// The record has changed since.
        is_outdated: bool,
    },
    /// The manifest's file could not be written: again at that time. The log keeps the record.
    Unwritten(Instant),
    /// The manifest's file stands.
    Sealed,
}

/// How a terminal batch that is not durable is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The log has it: ask whether it is durable now.
    Ask,
    /// The log had no room for it: submit it.
    Submit,
}

/// What exists only while a process is active.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) running: Running,
    pub(super) reservation: Option<Reservation>,
    /// Its claim on a workspace.
    pub(super) lease: Option<LeaseNumber>,
    /// Whether the ends of its time in the workspace are events.
    pub(super) announces: bool,
    /// When its room was granted.
    pub(super) admitted: Instant,
    /// When the exec had succeeded.
    pub(super) started: Option<Instant>,
    pub(super) start: StartPhase,
    pub(super) due: DueTimes,
    pub(super) stops: Vec<StopWaiter>,
    /// The time from the spawn to the deadline.
    pub(super) timeout: Option<Duration>,
    /// Whether `backgrounded` is published in place of `started`.
    pub(super) background: bool,
    /// Why the end is `failed` whatever the leader did.
    pub(super) failed: Option<String>,
    /// A killed tree was not proven empty in time.
    pub(super) teardown: Option<Refusal>,
    /// Its spool is not told of before.
    pub(super) spool_rests_until: Option<Instant>,
}

/// What is due for one process.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct DueTimes {
    pub(super) deadline: Option<Instant>,
    pub(super) grace: Option<Instant>,
    pub(super) interrupt: Option<Instant>,
    pub(super) leftovers: Option<Instant>,
    /// Its spool is to be looked at again.
    pub(super) spool: Option<Instant>,
}

/// The two things a start's reply waits for, and who waits for it: its caller, and those who
/// came with the same request key.
#[derive(Debug)]
pub(super) struct StartPhase {
    pub(super) replies: Vec<Reply<super::api::Started>>,
    /// Whether the starting record is durable.
    pub(super) durable: bool,
    /// What the spawn came to.
    pub(super) spawn: SpawnAnswer,
}

/// What the spawn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpawnAnswer {
    /// Not answered.
    Pending,
    /// Runs, or was stopped before its exec.
    Done,
    /// Failed: the reply waits for the terminal record.
    Failed(SpawnFailure),
}

/// A caller that waits for the end.
#[derive(Debug)]
pub(super) struct StopWaiter {
    pub(super) mode: StopMode,
    /// When an interrupt's caller gets the state as it is then.
    pub(super) until: Option<Instant>,
    pub(super) reply: Reply<StopOutcome>,
}

impl Entry {
    /// The reading side.
    pub(super) fn view(&self) -> ProcessView {
        let running = self.active.as_ref().map(|active| &active.running);
        ProcessView {
            handle: self.handle,
            owner: self.owner,
            output: self.output.clone(),
            input: running.and_then(|running| running.input.clone()),
            signaller: running.and_then(|running| running.signaller.clone()),
            inspector: running.map(|running| running.inspector.clone()),
            snapshot: self.shown.subscribe(),
        }
    }

    /// Shows the record as it is decided now.
    pub(super) fn show(&self, durable: bool) {
        let record = self.record.share();
        self.shown.send_modify(|snapshot| {
            self.tally.moved(snapshot.record.state, record.state);
            snapshot.generation += 1;
            snapshot.record = record;
            snapshot.durable = durable;
        });
    }

    /// Whether readers see a terminal state.
    pub(super) fn is_shown_terminal(&self) -> bool {
        self.shown.borrow().is_terminal()
    }

    /// What a stop of this process comes to as of now.
    pub(super) fn outcome(&self, error: Option<Refusal>) -> StopOutcome {
        StopOutcome { process_id: self.handle, snapshot: self.shown.borrow().clone(), error }
    }

    /// Answers every caller that waits for the end.
    pub(super) fn answer_stops(
        &mut self,
        error: Option<&Refusal>,
        only: impl Fn(StopMode) -> bool,
    ) {
        let outcome = self.outcome(error.cloned());
        let Some(active) = &mut self.active else { return };
        for waiter in active.stops.extract_if(.., |waiter| only(waiter.mode)) {
            // A caller that is gone needs no answer.
            drop(waiter.reply.send(Ok(outcome.clone())));
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let retry = match self.storage {
            Storage::EndPending(again) => again.map(|(at, _)| at),
            Storage::Unwritten(at) => Some(at),
            Storage::Live | Storage::Sealing | Storage::Writing { .. } | Storage::Sealed => None,
        };
        let active = self.active.as_ref();
        let due = active.map(|active| active.due).unwrap_or_default();
        let waiting = active.into_iter().flat_map(|active| &active.stops).filter_map(|w| w.until);
        [due.deadline, due.grace, due.interrupt, due.leftovers, due.spool, retry]
            .into_iter()
            .flatten()
            .chain(waiting)
            .min()
    }
}

/// Takes a time that has passed.
pub(super) fn take_due(time: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = time.is_some_and(|at| at <= now);
    if is_due {
        *time = None;
    }
    is_due
}

/// The earlier of a time that may stand already and `after` from now.
pub(super) fn shorten(time: &mut Option<Instant>, now: Instant, after: Duration) {
    let at = now + after;
    *time = Some(time.map_or(at, |standing| standing.min(at)));
}
