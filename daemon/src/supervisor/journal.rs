//! The supervisor's end of the commit log: what is submitted carries a tag, and the tag comes
//! back to the supervisor's task once the batch is durable or has failed.

use std::time::Duration;

use procd_core::{Handle, SessionId};
use procd_store::histogram::Times;
use procd_store::log::{CommitError, CommitLog, LogRecord, Submitted};
use tokio::sync::mpsc;
use uuid::Uuid;

/// How long a batch that nobody waits for waits for another one, to share its sync.
pub(super) const COMPANY: Duration = Duration::from_millis(10);

/// Whose batch it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// The `starting` record of a process.
    Start(Handle),
    /// Something of a live process that nobody waits for.
    Update(Handle),
    /// The terminal record, its event and its notification.
    End(Handle),
    /// The record of a session that was opened.
    SessionOpened(SessionId),
    /// The record of a session that is closing, or has a new mark.
    SessionChanged,
    /// The record of a session that was closed.
    SessionClosed(SessionId),
    /// The removal of a session.
    SessionRemoved(SessionId),
    /// The removal of a process.
    Removal(Handle),
    /// The pin of a process.
    Pin(Handle),
    /// The answer to a notification.
    Answer(SessionId, Uuid),
    /// Something that nobody waits for.
    Other,
    /// Nothing: when all before it is durable.
    Asked,
    /// The snapshot of a new part.
    Snapshot,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    /// Durable.
    Yes,
    /// The log keeps it and writes it again until it is durable: ask again with a barrier.
    NotYet,
    /// Refused as a whole for want of room: submit it again later.
    NoRoom,
    /// Refused as a whole, which is a bug.
    Never,
}

/// A batch that came to its end.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) tag: Tag,
    pub(super) saved: Saved,
    pub(super) order: u64,
}

/// The log and the way back.
#[derive(Debug)]
pub(super) struct Journal {
    log: CommitLog,
    done: mpsc::Sender<Committed>,
    /// The order of the last batch.
    last: std::cell::Cell<u64>,
    /// A flush is due.
    waits_for_company: std::cell::Cell<bool>,
    /// All up to this order is durable.
    durable: u64,
}

impl Journal {
    pub(super) const fn new(log: CommitLog, done: mpsc::Sender<Committed>) -> Self {
        let waits_for_company = std::cell::Cell::new(false);
        Self { log, done, last: std::cell::Cell::new(0), waits_for_company, durable: 0 }
    }

    /// Appends a batch in memory; its numbers are given at once, its tag comes back when it is
    /// durable. Empty when the batch was refused as a whole, which is a bug.
    pub(super) fn submit(&self, tag: Tag, records: Vec<LogRecord>) -> Vec<Submitted> {
        self.log.submit(records, self.answer(tag))
    }

    /// [`Self::submit`] of a batch that nobody waits for: it shares the sync of the next one. The
    /// caller sees to a [`Self::flush`] within [`COMPANY`]. True = nobody has yet.
    pub(super) fn submit_lazily(
        &self,
        tag: Tag,
        records: Vec<LogRecord>,
    ) -> (Vec<Submitted>, bool) {
        let is_first = !self.waits_for_company.replace(true);
        (self.log.submit_lazily(records, self.answer(tag)), is_first)
    }

    /// What waits for company has waited long enough.
    pub(super) fn flush(&self) {
        self.waits_for_company.set(false);
        self.log.flush();
    }

    /// How long the writes of the log with their syncs took so far.
    pub(super) fn syncs(&self) -> Times {
        self.log.syncs()
    }

    /// The order of the last batch: each is durable after all before it.
    pub(super) const fn last_order(&self) -> u64 {
        self.last.get()
    }

    /// All batches up to this order are durable.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// A batch is durable, and all before it.
    pub(super) fn note_durable(&mut self, order: u64) {
        self.durable = self.durable.max(order);
    }

    /// Whether a new part should begin.
    pub(super) fn part_is_full(&self) -> bool {
        self.log.part_is_full()
    }

    /// Asks when all that was submitted before is durable.
    pub(super) fn barrier(&self, tag: Tag) {
        self.log.submit(Vec::new(), self.answer(tag));
    }

    /// Begins a new part with what is live.
    pub(super) fn start_part(&self, snapshot: Vec<(u64, LogRecord)>) {
        self.log.start_part(snapshot, self.answer(Tag::Snapshot));
    }

    /// Whether the log can be written.
    pub(super) fn is_writable(&self) -> bool {
        self.log.is_writable()
    }

    /// Runs on the committer's own thread. The supervisor never waits for that thread, so a full
    /// queue here only makes it wait for the supervisor.
    fn answer(&self, tag: Tag) -> Box<dyn FnOnce(Result<(), CommitError>) + Send> {
        let done = self.done.clone();
        let order = self.last.get() + 1;
        self.last.set(order);
        Box::new(move |result| {
            let saved = told(tag, &result);
            if done.blocking_send(Committed { tag, saved, order }).is_err() {
                tracing::debug!(?tag, "a batch was committed after the supervisor's end");
            }
        })
    }
}

/// Logs a failure, once, here.
fn told(tag: Tag, result: &Result<(), CommitError>) -> Saved {
    let Err(error) = result else { return Saved::Yes };
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::error!(?tag, error = %error, cause, "a batch is not saved");
    match error {
        CommitError::NotDurable { .. } => Saved::NotYet,
        CommitError::Full => Saved::NoRoom,
        CommitError::Collision { .. }
        | CommitError::Conflict { .. }
        | CommitError::Malformed { .. }
        | CommitError::Closed => Saved::Never,
    }
}
