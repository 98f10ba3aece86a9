//! The commit log: one append-only log in which everything durable is committed.
//!
//! [`CommitLog::submit`] numbers and encodes a batch at once; the committer thread writes whatever
//! is in flight, of all sessions, and makes it durable with one `fdatasync`. A batch counts wholly
//! or not at all. Nothing is rewritten in place, and no part is appended to by a second daemon.
//! Source: spec, events, *Commit log and journals*.

mod committer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::line::{Line, decode};

    /// What a line is.
    pub(crate) fn line(bytes: &[u8]) -> String {
        match decode(bytes) {
            Line::Batch(records) => {
                let kinds: Vec<_> =
                    records.iter().map(|one| one.record.payload.kind().to_string()).collect();
                kinds.join(" ")
            }
            Line::Newer => "newer".to_owned(),
            Line::Bad(what) => what,
        }
    }
}
mod index;
mod line;
mod parts;
mod record;
mod replay;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use procd_core::SessionId;

use crate::error::StoreError;
use crate::failpoint;
use crate::folder::StateFolder;
use crate::histogram::{Histogram, Times};
use crate::manifest::rules::Violation;
use crate::scan::Restored;

pub(crate) use parts::BALLAST_BYTES;
pub use record::{Acknowledgement, Disposition, KeptKey, Kind, LogRecord, Payload, Removal};
pub use replay::{Numbered, Replay};

use committer::{Batch, Committer, Haste, Job, NewPart};
use index::Index;
use parts::{Disk, FolderDisk};

/// A part that grew this far beyond its snapshot is to be followed by a new one, bytes.
pub const PART_BYTES: u64 = 16 * 1024 * 1024;
/// Parts that may stand beside each other before a new one with a snapshot replaces them, a count:
/// each run of the daemon and each failed write adds one.
const PARTS_MAX: u64 = 8;
/// After a new part could not be started: so much more before it is due again, bytes.
const PART_AGAIN_BYTES: u64 = 1024 * 1024;
/// Encoded batches that are not durable yet, bytes: beyond, a batch is refused as `Full`.
const PENDING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Called once, on the committer thread: it must be quick and must not wait for the log.
pub type Done = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

/// Why a batch is not durable, by what the caller can do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Not durable yet: the log keeps the batch and writes it again until it is. An empty batch
    /// submitted now is answered when all before it is durable, or after the next failure.
    #[error("the batch is not durable yet")]
    NotDurable {
        /// The first failure of this round.
        #[source]
        source: Arc<StoreError>,
    },
    /// The same id with another payload: a bug or a forgery, nothing of the batch is written.
    #[error("{kind} `{id}` is in the log with another payload")]
    Collision {
        /// The kind of the record.
        kind: Kind,
        /// The id.
        id: String,
    },
    /// A record against the rules (`manifest_conflict`): a bug, nothing of the batch is written.
    #[error("record of process {} refused", process.shortened())]
    Conflict {
        /// The process.
        process: procd_core::Handle,
        /// The rule and the field.
        #[source]
        source: Violation,
    },
    /// An envelope that disagrees with its payload, or a payload that cannot be written: a bug,
    /// nothing of the batch is written.
    #[error("malformed {kind}: {what}")]
    Malformed {
        /// The kind of the record.
        kind: Kind,
        /// What is wrong.
        what: String,
    },
    /// Too much waits to be written: nothing of the batch is.
    #[error("too much waits to be written")]
    Full,
    /// The log has ended.
    #[error("the commit log is closed")]
    Closed,
}

/// What became of one record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its number in its session.
    pub seq: u64,
    /// False: it was in the log already, this is its first number.
    pub appended: bool,
}

/// The log, open for appends. Shared by reference; dropping it writes what is queued.
#[derive(Debug)]
pub struct CommitLog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Reads the monotonic clock for a store that reads none itself.
pub type MonotonicClock = fn() -> std::time::Instant;

/// What callers and committer share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    is_writable: AtomicBool,
    /// Bytes since the last snapshot.
    grown: AtomicU64,
    /// Bytes at which a new part is due.
    due: AtomicU64,
    /// Parts that stand.
    parts: AtomicU64,
    /// Encoded bytes that are not durable yet.
    pending: AtomicU64,
    /// Writes and syncs that failed.
    failures: AtomicU64,
    /// How long each write with its sync took.
    syncs: Histogram,
    /// What times them; none yet = they are not timed.
    clock: OnceLock<MonotonicClock>,
}

/// Numbers are given and jobs queued under one lock, so that both have one order.
#[derive(Debug)]
struct Queue {
    index: Index,
    jobs: std::collections::VecDeque<Job>,
    is_starting_part: bool,
    /// What waits for company has waited long enough.
    is_due: bool,
    is_closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic of a caller leaves numbers that were given and never used: holes are normal.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommitLog {
    /// Repairs and reads the log, rebuilds the index, and starts the committer. Pass the replay
    /// to [`crate::scan::load`] and its result to [`CommitLog::adopt`] before the first append.
    /// # Errors
    /// [`StoreError::Io`] when the folder of the log cannot be listed or the thread not started;
    /// damage and trouble of single parts are in the replay.
    pub fn open(folder: &StateFolder) -> Result<(Self, Replay), StoreError> {
        let mut replay = replay::read(folder)?;
        let mut index = Index::default();
        for numbered in &replay.records {
            index.replayed(numbered);
        }
        index.skip_numbers_after_damage(!replay.damage.is_empty());
        let disk = FolderDisk::new(folder);
        replay.damage.extend(disk.check_ballast(folder));
        let log = Self::start(Box::new(disk), index, &replay)?;
        Ok((log, replay))
    }

    fn start(disk: Box<dyn Disk>, index: Index, replay: &Replay) -> Result<Self, StoreError> {
        let parts = u64::try_from(replay.parts.len()).unwrap_or(u64::MAX);
        let jobs = std::collections::VecDeque::new();
        let queue = Queue { index, jobs, is_starting_part: false, is_due: false, is_closed: false };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            is_writable: AtomicBool::new(true),
            grown: AtomicU64::new(replay.grown_bytes),
            due: AtomicU64::new(PART_BYTES),
            parts: AtomicU64::new(parts),
            pending: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            syncs: Histogram::new(),
            clock: OnceLock::new(),
        });
        let committer = Committer::new(Arc::clone(&shared), disk, replay);
        let thread = std::thread::Builder::new()
            .name("commit".to_owned())
            .spawn(move || committer.run())
            .map_err(|source| StoreError::io("start the committer of", &replay.path, source))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has each write with its sync timed by `clock` from now on; the first call counts.
    pub fn time_syncs(&self, clock: MonotonicClock) {
        self.shared.clock.get_or_init(|| clock);
    }

    /// How long the writes with their syncs took so far; empty without [`CommitLog::time_syncs`].
    #[must_use]
    pub fn syncs(&self) -> Times {
        self.shared.syncs.times()
    }

    /// Takes over what the files hold beyond the log: numbers, ids and records to hold later
    /// saves against. Once, before the first append.
    pub fn adopt(&self, restored: &Restored) {
        self.shared.lock().index.adopt(restored);
    }

    /// Submits a batch: it becomes durable wholly or not at all, after all submitted before it.
    ///
    /// Records of sessions and processes replace the state under their id; all others are
    /// idempotent by session, kind and id. `done` runs on the committer thread, once: after the
    /// sync, or after the first failure ([`CommitError::NotDurable`]; the batch stays in the log
    /// and is written again until it is durable), or because the batch is refused. An empty batch
    /// is a barrier.
    /// - returns one [`Submitted`] per record, in order; none when the batch is refused.
    pub fn submit(&self, records: Vec<LogRecord>, done: Done) -> Vec<Submitted> {
        self.submit_with(Haste::AtOnce, records, done)
    }

    /// [`CommitLog::submit`] of a batch that nobody waits for: it is written with the next one that
    /// somebody does wait for, or after [`CommitLog::flush`], and shares the sync. Every batch is
    /// written in the order of submission all the same.
    pub fn submit_lazily(&self, records: Vec<LogRecord>, done: Done) -> Vec<Submitted> {
        self.submit_with(Haste::InCompany, records, done)
    }

    /// Has everything written that waits for company.
    pub fn flush(&self) {
        let mut queue = self.shared.lock();
        if queue.jobs.is_empty() {
            return;
        }
        queue.is_due = true;
        drop(queue);
        self.shared.wake.notify_one();
    }

    fn submit_with(&self, haste: Haste, records: Vec<LogRecord>, done: Done) -> Vec<Submitted> {
        let encoded: Result<Vec<_>, _> = records.into_iter().map(line::encode_record).collect();
        let mut queue = self.shared.lock();
        let numbered = encoded.and_then(|encoded| {
            self.check_room(&queue)?;
            queue.index.number(&encoded)
        });
        let (batch, submitted) = match numbered {
            Ok((line, submitted)) => (Batch::new(line, haste, done), submitted),
            Err(refusal) => (Batch::refused(refusal, done), Vec::new()),
        };
        if queue.is_closed {
            drop(queue);
            batch.answer(Err(CommitError::Closed));
            return Vec::new();
        }
        self.shared.pending.fetch_add(batch.bytes(), Ordering::Relaxed);
        queue.jobs.push_back(Job::Batch(batch));
        drop(queue);
        if haste == Haste::AtOnce {
            self.shared.wake.notify_one();
        }
        submitted
    }

    fn check_room(&self, queue: &Queue) -> Result<(), CommitError> {
        let pending = self.shared.pending.load(Ordering::Relaxed);
        if queue.is_closed {
            Err(CommitError::Closed)
        } else if usize::try_from(pending).is_ok_and(|bytes| bytes <= PENDING_BYTES_MAX) {
            Ok(())
        } else {
            Err(CommitError::Full)
        }
    }

    /// Whether it is time for [`CommitLog::start_part`]; false while one is being started.
    #[must_use]
    pub fn part_is_full(&self) -> bool {
        let grown = self.shared.grown.load(Ordering::Relaxed);
        let due = self.shared.due.load(Ordering::Relaxed);
        let is_due = grown >= failpoint::value("part-bytes").unwrap_or(due)
            || (grown > 0 && self.shared.parts.load(Ordering::Relaxed) > PARTS_MAX);
        is_due && !self.shared.lock().is_starting_part
    }

    /// Starts a new part with a snapshot of what is live, after all submitted before; once it is
    /// synced the older parts go.
    /// - `snapshot`: as of now, so call it where the batches are submitted; each record with its
    ///   number. Sessions, records that run or are not sealed yet with their events,
    ///   unacknowledged notifications whose record is gone, removals whose files still stand.
    ///   A session's record is written with the highest number given so far, which keeps the
    ///   count over restarts.
    pub fn start_part(&self, snapshot: Vec<(u64, LogRecord)>, done: Done) {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            drop(queue);
            return done(Err(CommitError::Closed));
        }
        let job = match queue.index.snapshot(snapshot) {
            Ok(lines) => Job::Part(NewPart { lines, done }),
            Err(refusal) => Job::Batch(Batch::refused(refusal, done)),
        };
        queue.is_starting_part = matches!(job, Job::Part(_));
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// False from the first write that fails until one succeeds: nothing new may start then.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.shared.is_writable.load(Ordering::Acquire)
    }

    /// Writes and syncs that failed since the log was opened, those that went well in a new part
    /// included.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// The highest number given so far in a session; 0 = none.
    #[must_use]
    pub fn last_seq(&self, session: SessionId) -> u64 {
        self.shared.lock().index.last_seq(session)
    }
}

impl Drop for CommitLog {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            // Dropped by one of its own answers: the thread ends by itself then.
            && thread.thread().id() != std::thread::current().id()
        {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests;
