//! The end of a process after its tree is proven empty: one terminal batch, then release, replies
//! and the seal. Each exactly once.

use std::time::Duration;

use procd_core::end::LeaderEnd;
use procd_core::queue::Granted;
use procd_core::state::{ProcessState, SpoolState};
use procd_core::{End, Handle, Life};
use procd_store::event::EventKind;
use procd_store::log::LogRecord;
use tokio::time::Instant;

use super::entry::{Again, Entry, SpawnAnswer, Storage};
use super::journal::{Saved, Tag};
use super::refusal::Refusal;
use super::retention::Kept;
use super::runner::{SpawnCause, SpawnFailure};
use super::storage::{SealResult, Stored};
use super::task::Task;
use crate::metrics::METRICS;

/// How long a terminal batch that could not be saved waits for the next try.
const RETRY: Duration = Duration::from_secs(1);

impl Task {
    /// Names the end, takes the final bounds and submits the terminal batch.
    pub(super) fn commit_end(&mut self, handle: Handle) {
        let now = self.clock.monotonic();
        let Some(entry) = self.table.get_mut(handle) else { return };
        let Life::Ended { end, leader, leftovers, ended_by } = entry.life else {
            tracing::error!(handle = %handle.shortened(), "impossible: a commit before the end");
            return;
        };
        // It speaks of the process as it was: its end comes after.
        let announces = entry.active.as_ref().is_some_and(|active| active.announces);
        let left = announces.then(|| super::records::workspace_ended(&mut entry.record)).flatten();
        fill_end(entry, end, leader, leftovers, now);
        entry.record.ended_by = ended_by;
        let after = entry.record.started_at.unwrap_or(entry.record.created_at);
        entry.record.finished_at = Some(self.clock.wall_after(after));
        entry.storage = Storage::EndPending(None);
        entry.left = left.map(Box::new);
        self.submit_end(handle);
    }

    pub(super) fn submit_end(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        crate::failpoint::hit("end-before-append");
        let kind = if entry.record.state == ProcessState::LostOnRestore {
            EventKind::Lost
        } else {
            EventKind::Completed
        };
        match super::records::terminal_batch(&entry.record, kind, entry.left.as_deref().cloned()) {
            Ok((events, notification, batch)) => {
                let ended_at = entry.record.finished_at.unwrap_or(entry.record.created_at);
                let submitted = self.journal.submit(Tag::End(handle), batch);
                let order = self.journal.last_order();
                self.remember(handle, events, &submitted);
                if let Some(last) = submitted.last() {
                    if let Some(entry) = self.table.get_mut(handle) {
                        entry.notification_seq = Some(last.seq);
                    }
                    self.notification_made(notification, last.seq, order, ended_at);
                }
            }
            Err(error) => {
                tracing::error!(handle = %handle.shortened(), error = %error, "end refused");
                self.end_logged(handle, Saved::Never);
            }
        }
        crate::failpoint::hit("end-after-append");
    }

    /// The answer to the terminal batch. Readers see the end now, or after the first failure,
    /// then as not durable; saving is retried until it succeeds.
    pub(super) fn end_logged(&mut self, handle: Handle, saved: Saved) {
        let now = self.clock.monotonic();
        let Some(entry) = self.table.get_mut(handle) else { return };
        let is_durable = saved == Saved::Yes;
        let is_first = entry.active.is_some();
        entry.storage = match saved {
            Saved::Yes => Storage::Sealing,
            Saved::NotYet => Storage::EndPending(Some((now + RETRY, Again::Ask))),
            Saved::NoRoom => Storage::EndPending(Some((now + RETRY, Again::Submit))),
            Saved::Never => Storage::EndPending(None),
        };
        if is_first || is_durable {
            entry.show(is_durable);
        }
        if is_first || (is_durable && entry.record.state == ProcessState::LostOnRestore) {
            METRICS.ended(entry.record.state);
        }
        if is_first {
            self.release(handle);
        }
        self.restoring.settle(Some(handle));
        if is_durable {
            crate::failpoint::hit("end-durable");
            let Some(entry) = self.table.get(handle) else { return };
            self.storage.seal(handle, entry.output.clone());
        }
        self.arm(handle);
        self.check_runs();
    }

    /// Gives back what the process held and answers everybody who waits for its end.
    fn release(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        entry.answer_stops(None, |_| true);
        let view = entry.view();
        let session = entry.owner.session;
        let Some(active) = entry.active.take() else { return };
        crate::failpoint::hit("end-before-release");
        let answer = match active.start.spawn {
            SpawnAnswer::Failed(failure) => Err(spawn_refusal(failure, handle)),
            SpawnAnswer::Done | SpawnAnswer::Pending if active.failed.is_some() => {
                Err(Refusal::Setup { cause: "storage", process_id: Some(handle) })
            }
            SpawnAnswer::Done | SpawnAnswer::Pending => Ok(super::api::Started { view }),
        };
        for reply in active.start.replies {
            drop(reply.send(answer.clone()));
        }
        self.session_used(session);
        self.retention.ended(handle);
        self.give_back(Granted { reservation: active.reservation, lease: active.lease });
        self.serve_queue();
    }

    /// Asks for, or submits, a terminal batch again when its time has come.
    pub(super) fn retry_end(&mut self, handle: Handle, now: Instant) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        if let Storage::Unwritten(at) = entry.storage {
            if at <= now {
                self.write_manifest(handle);
            }
            return;
        }
        let Storage::EndPending(Some((at, again))) = entry.storage else { return };
        if at > now {
            return;
        }
        entry.storage = Storage::EndPending(None);
        match again {
            Again::Ask => self.journal.barrier(Tag::End(handle)),
            Again::Submit => self.submit_end(handle),
        }
    }

    /// The spool is sealed, or could not be.
    pub(super) fn sealed(&mut self, handle: Handle, result: SealResult) {
        crate::failpoint::hit("sealed");
        if self.settle_removed(handle) {
            return;
        }
        let Some(entry) = self.table.get_mut(handle) else { return };
        match result {
            SealResult::Sealed(sealed) => {
                let record = &mut entry.record;
                record.spool_state = SpoolState::Sealed;
                record.sha256 = Some(sealed.sha256);
                record.total_bytes = record.total_bytes.max(sealed.bounds.total);
                record.retained_from = record.retained_from.max(sealed.bounds.retained_from);
                record.spool_lost_bytes = sealed.lost_bytes;
            }
            SealResult::Already => entry.record.spool_state = entry.output.spool_status().0,
            SealResult::Corrupt => entry.record.spool_state = SpoolState::Corrupt,
        }
        self.write_manifest(handle);
    }

    /// The manifest's file stands, or could not be written: then the log keeps the record.
    pub(super) fn manifest_stored(&mut self, handle: Handle, stored: Option<Stored>) {
        if self.settle_removed(handle) {
            return;
        }
        let now = self.clock.monotonic();
        let Some(entry) = self.table.get_mut(handle) else { return };
        let is_outdated = entry.storage == Storage::Writing { is_outdated: true };
        match stored {
            Some(_) if is_outdated => self.write_manifest(handle),
            Some(stored) => {
                entry.storage = Storage::Sealed;
                // Not before: a seal that is told is on disk.
                entry.show(true);
                let batch = vec![LogRecord::process(&entry.record)];
                let session = entry.owner.session;
                let finished_at = entry.record.finished_at.unwrap_or(entry.record.created_at);
                let kept =
                    Kept::new(session, finished_at, stored.process_bytes, entry.record.pinned);
                crate::failpoint::hit("seal-before-append");
                self.submit_in_company(Tag::Update(handle), batch);
                crate::failpoint::hit("seal-after-append");
                self.retention.other_bytes = stored.other_bytes;
                self.retention.keep(handle, kept);
                self.retain(session);
            }
            None => {
                entry.storage = Storage::Unwritten(now + RETRY);
                self.arm(handle);
            }
        }
    }
}

/// What a start comes to whose process has ended by now; none if it had started.
pub(super) fn start_refusal(entry: &Entry) -> Option<Refusal> {
    let record = &entry.record;
    if record.state != ProcessState::Failed || record.started_at.is_some() {
        return None;
    }
    let diagnostic = record.diagnostic.as_deref().unwrap_or_default();
    let process_id = Some(entry.handle);
    match super::records::failure_of(diagnostic) {
        Some(failure) => Some(spawn_refusal(failure, entry.handle)),
        None => {
            (diagnostic == "storage").then_some(Refusal::Setup { cause: "storage", process_id })
        }
    }
}

/// Writes the terminal facts into the record.
fn fill_end(entry: &mut Entry, end: End, leader: Option<LeaderEnd>, leftovers: u32, now: Instant) {
    let bounds = entry.output.bounds();
    let (spool_state, lost_bytes) = entry.output.spool_status();
    let active = entry.active.as_ref();
    let failed = active.and_then(|active| active.failed.clone());
    let started = active.and_then(|active| active.started);
    let record = &mut entry.record;
    let end = if failed.is_some() { End::FAILED } else { end };
    record.diagnostic = failed.or_else(|| record.diagnostic.take());
    record.state = end.state;
    record.reason = Some(end.reason);
    record.exit_code = end.exit_code;
    record.escalated = end.escalated;
    record.leader = leader.map(super::records::leader);
    record.leftovers = leftovers;
    record.duration_ms = started.map(|started| {
        u64::try_from(now.saturating_duration_since(started).as_millis()).unwrap_or(u64::MAX)
    });
    record.total_bytes = bounds.total;
    record.retained_from = bounds.retained_from;
    record.spool_state = spool_state;
    record.spool_lost_bytes = lost_bytes;
    record.published.completed = true;
}

const fn spawn_refusal(failure: SpawnFailure, process_id: Handle) -> Refusal {
    let process_id_some = Some(process_id);
    match failure.cause {
        SpawnCause::ControlGroup => {
            Refusal::Setup { cause: "control_group", process_id: process_id_some }
        }
        SpawnCause::Guardian => Refusal::Setup { cause: "guardian", process_id: process_id_some },
        SpawnCause::NoSuchProgram
        | SpawnCause::NotExecutable
        | SpawnCause::BadFormat
        | SpawnCause::CwdMissing
        | SpawnCause::CwdDenied
        | SpawnCause::CwdNotDirectory
        | SpawnCause::ArgumentListTooLong
        | SpawnCause::OutOfMemory
        | SpawnCause::OutOfDescriptors
        | SpawnCause::Other
        | SpawnCause::Terminal
        | SpawnCause::Fence
        | SpawnCause::Isolation => Refusal::Spawn { failure, process_id },
    }
}
