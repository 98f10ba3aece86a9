//! The start-up: reads back what an earlier daemon left, once, before anything is served.
//!
//! Must not signal anything: what was alive is ended by its container (`process`), and a pid in a
//! record is never looked at.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use procd_core::state::{ProcessState, SpoolState};
use procd_core::{End, Handle};
use procd_store::StoreError;
use procd_store::damage::Damage;
use procd_store::event::Notification;
use procd_store::folder::StateFolder;
use procd_store::log::{Acknowledgement, Removal};
use procd_store::manifest::NumberedEvent;
use procd_store::record::Record;
use procd_store::scan::{Restored, RestoredProcess};
use procd_store::session::SessionRecord;
use procd_store::spool::{Bounds, SpoolReader};
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::Clock;
use crate::drain::Output;

/// What was read back, ready for the supervisor.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Sessions with the highest number known of each.
    pub sessions: Vec<(u64, SessionRecord)>,
    /// Processes, oldest first.
    pub processes: Vec<RecoveredProcess>,
    /// Removals whose files may still stand, with their numbers.
    pub removals: Vec<(u64, Removal)>,
    /// Removals whose request key may still have to be known.
    pub kept_keys: Vec<(u64, Removal)>,
    /// Notifications that nobody answered, with their numbers.
    pub notifications: Vec<(u64, Notification)>,
    /// Those that met another payload.
    pub collisions: Vec<Acknowledgement>,
    /// Handles whose record is in quarantine.
    pub corrupt: HashSet<Handle>,
    /// What to tell.
    pub report: Report,
}

/// A process of an earlier daemon.
#[derive(Debug)]
pub struct RecoveredProcess {
    /// The number of its latest record.
    pub seq: u64,
    /// The record; a lost one has its end already, not yet committed.
    pub record: Record,
    /// Its events.
    pub events: Vec<NumberedEvent>,
    /// The number of its notification.
    pub notification_seq: Option<u64>,
    /// Its output.
    pub output: Output,
    /// Whether its manifest's file stands and says the same.
    pub is_on_disk: bool,
    /// Whether it was unfinished.
    pub is_lost: bool,
}

/// The restore report.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Sessions read back, a count.
    pub sessions: u64,
    /// Ended processes read back, a count.
    pub ended: u64,
    /// Processes found unfinished, by shortened handle.
    pub lost: Vec<String>,
    /// What was damaged, with the reason.
    pub damage: Vec<Damage>,
    /// How long it took.
    pub duration: Duration,
}

/// Turns what the store read into what the supervisor takes over.
/// - `begun`: when the reading began: the report tells how long all of it took.
#[must_use]
pub fn recover(
    folder: &StateFolder,
    restored: Restored,
    boot_id: Uuid,
    clock: Clock,
    begun: Instant,
) -> Recovered {
    let mut report = Report { sessions: restored.sessions.len() as u64, ..Report::default() };
    report.damage.extend(restored.damage);
    let mut processes: Vec<_> = restored
        .processes
        .into_iter()
        .map(|process| recover_process(folder, process, boot_id, clock.wall(), &mut report))
        .collect();
    processes.sort_by_key(|process| process.record.created_at);
    report.duration = clock.since(begun);
    tracing::info!(
        sessions = report.sessions,
        ended = report.ended,
        lost = report.lost.len(),
        damaged = report.damage.len(),
        "state restored"
    );
    for damage in &report.damage {
        tracing::warn!(what = damage.what, reason = damage.reason, "damage found");
    }
    let last_seqs = restored.last_seqs;
    let numbered =
        |record: SessionRecord| (last_seqs.get(&record.session_id).copied().unwrap_or(0), record);
    let sessions = restored.sessions.into_iter().map(numbered).collect();
    let notifications =
        restored.notifications.into_iter().map(|held| (held.seq, held.notification)).collect();
    Recovered {
        sessions,
        processes,
        removals: restored.standing_removals,
        kept_keys: restored.kept_keys,
        notifications,
        collisions: restored.collisions,
        corrupt: restored.corrupt,
        report,
    }
}

fn recover_process(
    folder: &StateFolder,
    process: RestoredProcess,
    boot_id: Uuid,
    now: Timestamp,
    report: &mut Report,
) -> RecoveredProcess {
    let RestoredProcess { seq, mut record, events, notification_seq, is_on_disk } = process;
    let was = record.spool_state;
    let output = reopen(folder, &mut record, boot_id, report);
    // The mark of a damaged spool goes to the record's file like the seal of a sound one.
    let is_on_disk = is_on_disk && record.spool_state == was;
    let is_lost = !record.state.is_terminal();
    if is_lost {
        report.lost.push(record.process_id.shortened());
        lose(&mut record, &output, now);
    } else {
        report.ended += 1;
    }
    RecoveredProcess { seq, record, events, notification_seq, output, is_on_disk, is_lost }
}

/// Opens the spool; a damaged one goes to quarantine, and its record says so from now on.
fn reopen(folder: &StateFolder, record: &mut Record, boot_id: Uuid, report: &mut Report) -> Output {
    let path = folder.spool_path(record.session_id, &record.process_id);
    let bounds = Bounds { total: record.total_bytes, retained_from: record.retained_from };
    if record.spool_state == SpoolState::Corrupt {
        return Output::damaged(&path, "it was found damaged before", bounds);
    }
    let is_sealed = record.spool_state == SpoolState::Sealed;
    let opened = SpoolReader::open(&path, boot_id).and_then(|reader| {
        let found = reader.bounds();
        let is_gone = found.retained_from >= found.total;
        if is_sealed && bounds.retained_from < bounds.total && is_gone {
            return Err(StoreError::spool_corrupt(&path, "its files are gone"));
        }
        Ok(reader)
    });
    let error = match opened {
        Ok(reader) => return Output::reopen(reader, record.total_bytes, is_sealed),
        Err(error) => error,
    };
    let what = format!("spool of {}", record.process_id.shortened());
    let mut reason = error.to_string();
    if matches!(error, StoreError::SpoolCorrupt { .. }) {
        record.spool_state = SpoolState::Corrupt;
        if let Err(trouble) = folder.quarantine(&path, &reason) {
            reason = format!("{reason}; {trouble}");
        }
    }
    let output = Output::damaged(&path, &reason, bounds);
    report.damage.push(Damage { what, reason });
    output
}

/// Gives an unfinished record its end. The bounds are the spool's own.
fn lose(record: &mut Record, output: &Output, now: Timestamp) {
    let bounds = output.bounds();
    let (spool_state, lost_bytes) = output.spool_status();
    let end = End::LOST;
    record.state = end.state;
    record.reason = Some(end.reason);
    record.exit_code = None;
    record.leader = None;
    record.duration_ms = None;
    record.finished_at = Some(now.max(record.started_at.unwrap_or(record.created_at)));
    record.total_bytes = record.total_bytes.max(bounds.total);
    record.retained_from = record.retained_from.max(bounds.retained_from);
    record.spool_state = match spool_state {
        SpoolState::Sealed | SpoolState::Open => SpoolState::Open,
        SpoolState::Degraded => SpoolState::Degraded,
        SpoolState::Corrupt => SpoolState::Corrupt,
    };
    record.spool_lost_bytes = lost_bytes;
    record.published.completed = true;
    debug_assert_eq!(record.state, ProcessState::LostOnRestore);
}
