//! What operators see of the whole: sessions, and figures for the metrics.

use std::time::Duration;

use jiff::Timestamp;
use procd_core::SessionId;
use procd_core::settings::Limits;
use procd_store::histogram::Times;

use super::api::SessionState;
use super::entry::Entry;
use super::tally::Whose;
use super::task::Task;
use super::timers::Due;
use super::view::Totals;
use std::sync::Arc;

/// One session in a list.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// What people call it.
    pub label: Option<String>,
    /// Its state.
    pub state: SessionState,
    /// Its processes by state.
    pub totals: Totals,
    /// Retained bytes of their output.
    pub bytes: u64,
    /// Last attach, detach or end.
    pub last_used_at: Timestamp,
}

/// One page of sessions, newest first.
#[derive(Debug, Clone, Default)]
pub struct SessionPage {
    /// The sessions.
    pub rows: Vec<SessionRow>,
    /// The last one of the page, if more follow.
    pub next: Option<PlaceOfSession>,
}

/// Where a page of sessions ends: by creation, then by id.
pub type PlaceOfSession = (Timestamp, SessionId);

/// Figures of this moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Sessions, a count.
    pub sessions: u64,
    /// Starts and leases that wait for room, a count.
    pub queued: u64,
    /// Notifications that wait for their loop, a count.
    pub notifications: u64,
    /// Retained bytes of all outputs.
    pub spool_bytes: u64,
    /// What the state folder takes, bytes.
    pub disk_bytes: u64,
    /// Batches of the log: how long each sync took.
    pub syncs: Times,
}

/// Told by the supervisor itself, and so only as long as it works.
pub struct Beat {
    /// Between two beats.
    pub every: Duration,
    /// Called with the counts of processes.
    pub tell: Box<dyn FnMut(&Totals) + Send>,
}

impl std::fmt::Debug for Beat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beat").field("every", &self.every).finish_non_exhaustive()
    }
}

impl Task {
    pub(super) fn list_sessions(&self, limit: usize, after: Option<PlaceOfSession>) -> SessionPage {
        let mut places: Vec<PlaceOfSession> = self
            .sessions
            .values()
            .filter(|session| !session.is_opening())
            .map(|session| (session.record.created_at, session.record.session_id))
            .filter(|place| after.is_none_or(|after| *place < after))
            .collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let has_more = places.len() > limit;
        places.truncate(limit);
        let next = places.last().copied().filter(|_| has_more);
        let rows = places.iter().filter_map(|(_, id)| self.session_row(*id)).collect();
        SessionPage { rows, next }
    }

    fn session_row(&self, id: SessionId) -> Option<SessionRow> {
        let session = self.sessions.get(&id)?;
        let bytes = self.table.newest_first(Some(id)).map(retained_bytes).sum();
        Some(SessionRow {
            id,
            label: session.record.label.clone(),
            state: session.state(),
            totals: self.table.totals(Whose::Session(id)),
            bytes,
            last_used_at: session.used_at(),
        })
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            sessions: self.sessions.len() as u64,
            queued: self.queue.len(),
            notifications: self.notices.waiting(),
            spool_bytes: self.table.all().map(retained_bytes).sum(),
            disk_bytes: self.disk_used(),
            syncs: self.journal.syncs(),
        }
    }

    /// Takes over new limits: for starts, sessions and removals from now on.
    pub(super) fn configure(&mut self, limits: Arc<Limits>) {
        self.ledger.set_running_max(limits.running_daemon_max);
        for (id, session) in &mut self.sessions {
            session.configure(&limits);
            self.ledger.open(*id, session.limits(&limits));
        }
        self.limits = limits;
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.retain(session);
        }
        self.timers.arm(self.clock.monotonic(), Due::Retention);
        self.serve_queue();
    }

    /// Tells that the supervisor works, and again when the time has come.
    pub(super) fn beat(&mut self) {
        let totals = self.table.totals(Whose::All);
        if let Some(beat) = &mut self.beat {
            (beat.tell)(&totals);
            self.timers.arm(self.clock.monotonic() + beat.every, Due::Beat);
        }
    }
}

fn retained_bytes(entry: &Entry) -> u64 {
    let bounds = entry.output.bounds();
    bounds.total.saturating_sub(bounds.retained_from)
}
