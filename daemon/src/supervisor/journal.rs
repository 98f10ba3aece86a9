//! The supervisor's end of the commit log: what is submitted carries a tag, and the tag comes
//! back to the supervisor's task once the batch is durable or has failed.

use procd_core::{Handle, SessionId};
use procd_store::log::{CommitError, CommitLog, LogRecord, Submitted};
use tokio::sync::mpsc;

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
    /// The record of a session that was closed.
    SessionClosed(SessionId),
    /// The removal of a process.
    Removal(SessionId, Handle),
    /// The snapshot of a new part.
    Snapshot,
}

/// A batch that came to its end.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) tag: Tag,
    pub(super) result: Result<(), CommitError>,
}

/// The log and the way back.
#[derive(Debug)]
pub(super) struct Journal {
    log: CommitLog,
    done: mpsc::Sender<Committed>,
}

impl Journal {
    pub(super) const fn new(log: CommitLog, done: mpsc::Sender<Committed>) -> Self {
        Self { log, done }
    }

    /// Appends a batch in memory; its numbers are given at once, its tag comes back when it is
    /// durable. Empty when the batch was refused as a whole, which is a bug.
    pub(super) fn submit(&self, tag: Tag, records: Vec<LogRecord>) -> Vec<Submitted> {
        self.log.submit(records, self.answer(tag))
    }

    /// Whether a new part should begin.
    pub(super) fn part_is_full(&self) -> bool {
        self.log.part_is_full()
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
        Box::new(move |result| {
            if done.blocking_send(Committed { tag, result }).is_err() {
                tracing::debug!(?tag, "a batch was committed after the supervisor's end");
            }
        })
    }
}
