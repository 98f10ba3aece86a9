//! The committer: one thread, sole owner of the parts. It takes whatever is queued, writes it with
//! one append and one sync, and answers in the order of submission.
//!
//! ```text
//! writable --write or sync fails--> new part, all unconfirmed again --fails--> not writable
//!    ^                                          |                                  |
//!    +------------------ succeeds --------------+<--- a new batch, or every second +
//! ```
//!
//! It must not append to a part again once a write or sync of it failed: a repeated sync may
//! succeed without the data.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::parts::{Disk, Part};
use super::replay::Replay;
use super::{CommitError, Done, PART_AGAIN_BYTES, Shared};
use crate::error::StoreError;
use crate::failpoint;

/// Between two tries while writing fails.
const RETRY: Duration = Duration::from_secs(1);

/// Work in the order of submission.
#[derive(Debug)]
pub(super) enum Job {
    Batch(Batch),
    Part(NewPart),
}

/// When a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// Now: somebody waits for it.
    AtOnce,
    /// With the next one that somebody waits for, or when that took too long.
    InCompany,
}

/// A batch on its way.
pub(super) struct Batch {
    /// Its line; empty when there is nothing to write.
    line: Vec<u8>,
    haste: Haste,
    /// Set when it was refused: it only waits for its turn to say so.
    refusal: Option<CommitError>,
    /// Gone once answered.
    done: Option<Done>,
}

/// A new part to be started.
pub(super) struct NewPart {
    /// The snapshot.
    pub(super) lines: Vec<Vec<u8>>,
    /// Answered when it is synced and the older parts are gone.
    pub(super) done: Done,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.line.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for NewPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewPart").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl Batch {
    pub(super) fn new(line: Vec<u8>, haste: Haste, done: Done) -> Self {
        Self { line, haste, refusal: None, done: Some(done) }
    }

    pub(super) fn refused(refusal: CommitError, done: Done) -> Self {
        let (line, haste) = (Vec::new(), Haste::AtOnce);
        Self { line, haste, refusal: Some(refusal), done: Some(done) }
    }

    /// Bytes to be written.
    pub(super) fn bytes(&self) -> u64 {
        count(&self.line)
    }

    /// Answers it, once; a refused one with its refusal.
    pub(super) fn answer(mut self, result: Result<(), CommitError>) {
        self.tell(result);
    }

    fn tell(&mut self, result: Result<(), CommitError>) {
        if let Some(done) = self.done.take() {
            done(self.refusal.take().map_or(result, Err));
        }
    }
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// See the module.
pub(super) struct Committer {
    shared: Arc<Shared>,
    disk: Box<dyn Disk>,
    /// The part that takes appends; none before the first one and after a failure.
    part: Option<Box<dyn Part>>,
    /// The highest number ever used for a part.
    number: u64,
    /// Parts that stand, oldest first, and may go once a snapshot is synced.
    standing: Vec<u64>,
    /// Batches that are not durable yet, in order.
    unconfirmed: Vec<Batch>,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, disk: Box<dyn Disk>, replay: &Replay) -> Self {
        Self {
            shared,
            disk,
            part: None,
            number: replay.highest_part,
            standing: replay.parts.clone(),
            unconfirmed: Vec::new(),
        }
    }

    /// Works until the log is closed and all that was queued has been tried.
    pub(super) fn run(mut self) {
        self.disk.keep_room();
        loop {
            let (jobs, is_closed) = self.next_jobs();
            for job in jobs {
                match job {
                    Job::Batch(batch) => self.unconfirmed.push(batch),
                    Job::Part(part) => {
                        self.commit();
                        self.start_part(part);
                    }
                }
            }
            self.commit();
            if is_closed {
                return;
            }
        }
    }

    /// Waits for something to do: anything queued that somebody waits for; while writing fails,
    /// something of that to write, or the time for the next try.
    fn next_jobs(&self) -> (VecDeque<Job>, bool) {
        let is_writable = self.shared.is_writable.load(Ordering::Acquire);
        let mut queue = self.shared.lock();
        loop {
            let is_urgent = queue.jobs.iter().any(|job| match job {
                // A barrier alone must not turn the wait for the next try into a busy loop.
                Job::Batch(batch) => {
                    batch.haste == Haste::AtOnce && (is_writable || !batch.line.is_empty())
                }
                Job::Part(_) => true,
            });
            let is_due = std::mem::take(&mut queue.is_due) && is_writable;
            if is_urgent || is_due || queue.is_closed {
                return (std::mem::take(&mut queue.jobs), queue.is_closed);
            }
            if is_writable {
                queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                let waited = self.shared.wake.wait_timeout(queue, RETRY);
                let (woken, time) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                if time.timed_out() {
                    return (std::mem::take(&mut queue.jobs), queue.is_closed);
                }
            }
        }
    }

    /// Makes all that is unconfirmed durable and answers it, or says that it is not.
    fn commit(&mut self) {
        if self.unconfirmed.is_empty() {
            return;
        }
        let is_writable = self.shared.is_writable.load(Ordering::Acquire);
        let written = match is_writable.then(|| self.write()) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => self.write_again(&error),
            None => self.write(),
        };
        match written {
            Ok(()) => {
                if !is_writable {
                    self.disk.keep_room();
                }
                self.shared.is_writable.store(true, Ordering::Release);
                for batch in std::mem::take(&mut self.unconfirmed) {
                    self.shared.pending.fetch_sub(batch.bytes(), Ordering::Relaxed);
                    batch.answer(Ok(()));
                }
            }
            Err(error) => {
                self.shared.is_writable.store(false, Ordering::Release);
                self.tell_trouble(error);
            }
        }
    }

    /// The failed part is closed for good; all that is unconfirmed goes to a new one.
    fn write_again(&mut self, error: &StoreError) -> Result<(), StoreError> {
        self.part = None;
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        if error.is_no_room() {
            self.disk.make_room();
        }
        self.write()
    }

    fn tell_trouble(&mut self, error: StoreError) {
        let source = Arc::new(error);
        for batch in &mut self.unconfirmed {
            batch.tell(Err(CommitError::NotDurable { source: Arc::clone(&source) }));
        }
        // What has nothing to write and was answered is done with.
        self.unconfirmed.retain(|batch| !batch.line.is_empty());
    }

    /// Writes all unconfirmed lines to the part, or to a new one if there is none, and syncs.
    fn write(&mut self) -> Result<(), StoreError> {
        let lines: Vec<&[u8]> = self.unconfirmed.iter().map(|batch| &*batch.line).collect();
        let bytes = lines.concat();
        if bytes.is_empty() {
            return Ok(());
        }
        let is_new = self.part.is_none();
        if let Err(error) = self.append(&bytes) {
            if is_new {
                self.drop_failed();
            }
            self.part = None;
            return Err(error);
        }
        self.shared.grown.fetch_add(count(&bytes), Ordering::Relaxed);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let part = match &mut self.part {
            Some(part) => part,
            None => {
                let part = create(self.disk.as_mut(), &mut self.number)?;
                self.standing.push(self.number);
                self.count_parts();
                self.part.insert(part)
            }
        };
        let clock = self.shared.clock.get();
        let begun = clock.map(|now| now());
        part.append(bytes)?;
        part.sync()?;
        if let Some((now, begun)) = clock.zip(begun) {
            self.shared.syncs.add(now().saturating_duration_since(begun));
        }
        Ok(())
    }

    /// A part in which nothing was ever confirmed holds nothing; on a full disk its room counts.
    fn drop_failed(&mut self) {
        if self.part.take().is_some() && self.disk.remove(self.number).is_ok() {
            self.standing.retain(|&number| number != self.number);
            self.count_parts();
        }
    }

    fn count_parts(&self) {
        let parts = u64::try_from(self.standing.len()).unwrap_or(u64::MAX);
        self.shared.parts.store(parts, Ordering::Relaxed);
    }

    fn start_part(&mut self, new: NewPart) {
        let NewPart { lines, done } = new;
        let result = if self.shared.is_writable.load(Ordering::Acquire) {
            self.write_snapshot(&lines)
        } else {
            Err(StoreError::Io {
                operation: "start a part of",
                path: "commit".into(),
                source: std::io::Error::other("writing fails"),
            })
        };
        self.shared.lock().is_starting_part = false;
        match result {
            Ok(()) => {
                self.disk.keep_room();
                self.shared.grown.store(0, Ordering::Relaxed);
                self.shared.due.store(super::PART_BYTES, Ordering::Relaxed);
                done(Ok(()));
            }
            Err(error) => {
                let grown = self.shared.grown.load(Ordering::Relaxed);
                self.shared.due.store(grown.saturating_add(PART_AGAIN_BYTES), Ordering::Relaxed);
                done(Err(CommitError::NotDurable { source: Arc::new(error) }));
            }
        }
    }

    /// Writes the snapshot to a part of its own; the older parts stay if that fails.
    fn write_snapshot(&mut self, lines: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut part = create(self.disk.as_mut(), &mut self.number)?;
        failpoint::hit("snapshot-before-write");
        let written =
            lines.iter().try_for_each(|line| part.append(line)).and_then(|()| part.sync());
        if let Err(error) = written {
            // It may come back, whole, after a power loss and then supersedes all parts before
            // it: nothing is appended to those any more.
            self.part = None;
            if self.disk.remove(self.number).is_err() {
                self.standing.push(self.number);
            }
            return Err(error);
        }
        self.part = Some(part);
        failpoint::hit("snapshot-durable");
        let older = std::mem::replace(&mut self.standing, vec![self.number]);
        for number in older {
            // Superseded: what stays is ignored and swept at the next start.
            self.disk.remove(number).ok();
        }
        self.count_parts();
        Ok(())
    }
}

fn create(disk: &mut dyn Disk, number: &mut u64) -> Result<Box<dyn Part>, StoreError> {
    // Counted first: a part whose making failed half-way may be there already.
    *number += 1;
    disk.create(*number)
}
