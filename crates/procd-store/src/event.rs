//! Lifecycle events and completion notifications: what clients are told of a process. Neither
//! carries command, output, input, environment, path or pid, and neither can be built or read
//! against its table. Source: spec, events.

mod decode;
mod notification;
mod table;

use jiff::Timestamp;
use procd_core::state::{Access, ProcessState, Reason};
use procd_core::{LoopId, OriginId, SessionId};
use serde::Serialize;
use uuid::Uuid;

use crate::record::{Record, StableIds};
use crate::text;

pub use notification::Notification;
pub use table::{EventKind, Phase};

/// Bytes of a diagnostic at most.
pub const DIAGNOSTIC_BYTES_MAX: usize = 512;
/// Characters of a process id at most, of `A-Za-z0-9_-`.
pub const PROCESS_ID_CHARS_MAX: usize = 128;
/// Events of one kind that repeats which a record keeps: the newest.
pub const REPEATED_EVENTS_MAX: usize = 16;

/// An event or notification that the table does not know: the first field that fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {what}")]
pub struct EventError {
    /// The field; `kind, state, reason` when each is known but they do not go together; the
    /// name of the whole when its form is wrong.
    pub field: &'static str,
    /// What is wrong with it.
    pub what: String,
}

impl EventError {
    pub(crate) fn new(field: &'static str, what: impl Into<String>) -> Self {
        Self { field, what: what.into() }
    }
}

/// One lifecycle event. Built by [`Event::for_record`] or decoded; both check its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub(crate) event_id: Uuid,
    #[serde(with = "text")]
    pub(crate) kind: EventKind,
    #[serde(with = "text")]
    pub(crate) session_id: SessionId,
    #[serde(with = "text")]
    pub(crate) loop_id: LoopId,
    pub(crate) process_id: String,
    #[serde(with = "text")]
    pub(crate) origin: OriginId,
    #[serde(with = "text")]
    pub(crate) state: ProcessState,
    pub(crate) created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diagnostic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub(crate) access: Option<Access>,
    #[serde(with = "text::option", skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<Phase>,
}

/// What an event says that its record does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventDetail {
    /// Of `stop_requested`: the mode, as the reason it would give.
    pub reason: Option<Reason>,
    /// Of `workspace_changed`.
    pub phase: Option<Phase>,
    /// Of `spool_*` and `output_gap`; those of `completed` and `lost` are the record's.
    pub diagnostic: Option<String>,
}

impl Event {
    /// The event of `kind` of a record as it is now. Its id is one of the record's five, or, of
    /// a kind that repeats, derived from the record's ordinal of that kind: count first
    /// ([`count`]). The times are the record's, so the same event always has the same bytes.
    /// # Errors
    /// [`EventError`] naming the first field that does not fit the row of the table.
    pub fn for_record(
        kind: EventKind,
        record: &Record,
        detail: EventDetail,
    ) -> Result<Self, EventError> {
        let leader = record.leader.as_ref().map(crate::record::LeaderRecord::end);
        let own_diagnostic = matches!(kind, EventKind::Completed | EventKind::Lost);
        let is_leader_exit = kind == EventKind::LeaderExited;
        let is_own_end = kind == EventKind::Completed && record.state == ProcessState::Exited;
        let event = Self {
            event_id: event_id(kind, record)?,
            kind,
            session_id: record.session_id,
            loop_id: record.loop_id,
            process_id: record.process_id.to_string(),
            origin: record.origin,
            state: record.state,
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            diagnostic: if own_diagnostic { record.diagnostic.clone() } else { detail.diagnostic },
            exit_code: if is_leader_exit {
                leader.map(procd_core::LeaderEnd::exit_code)
            } else {
                record.exit_code
            },
            reason: detail.reason.or(record.reason),
            signal: leader
                .filter(|_| is_leader_exit || is_own_end)
                .and_then(procd_core::LeaderEnd::signal),
            access: (kind == EventKind::WorkspaceChanged).then_some(record.access.effective),
            phase: detail.phase,
        };
        event.check()?;
        Ok(event)
    }

    /// The id: the same event, published again, has it again.
    #[must_use]
    pub const fn event_id(&self) -> Uuid {
        self.event_id
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        self.kind
    }

    /// The session.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// The loop.
    #[must_use]
    pub const fn loop_id(&self) -> LoopId {
        self.loop_id
    }

    /// The process, as text.
    #[must_use]
    pub fn process_id(&self) -> &str {
        &self.process_id
    }

    /// The state of the process when it happened.
    #[must_use]
    pub const fn state(&self) -> ProcessState {
        self.state
    }
}

/// Counts one more event of a kind that repeats in its record, before it is built.
pub fn count(record: &mut Record, kind: EventKind) {
    let ordinal = record.ordinals.entry(kind.as_str().to_owned()).or_insert(0);
    *ordinal = ordinal.saturating_add(1);
}

fn event_id(kind: EventKind, record: &Record) -> Result<Uuid, EventError> {
    let ids = &record.ids;
    match kind {
        EventKind::Started => Ok(ids.started),
        EventKind::Backgrounded => Ok(ids.backgrounded),
        EventKind::Completed => Ok(ids.completed),
        EventKind::Lost => Ok(ids.lost),
        EventKind::StopRequested
        | EventKind::LeaderExited
        | EventKind::SpoolDegraded
        | EventKind::SpoolRecovered
        | EventKind::OutputGap
        | EventKind::WorkspaceChanged => match record.ordinals.get(kind.as_str()) {
            Some(&ordinal) if ordinal > 0 => Ok(repeated_id(ids, kind, ordinal)),
            Some(_) | None => Err(EventError::new("event_id", "was not counted in its record")),
        },
    }
}

/// The id of the `ordinal`-th event of a kind that repeats: UUIDv5 below the command id.
#[must_use]
pub fn repeated_id(ids: &StableIds, kind: EventKind, ordinal: u32) -> Uuid {
    Uuid::new_v5(&ids.notification, format!("{kind}:{ordinal}").as_bytes())
}

#[cfg(test)]
mod tests;
