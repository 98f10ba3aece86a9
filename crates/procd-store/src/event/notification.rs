//! The one completion notification of a process.

use procd_core::state::{ProcessState, Reason};
use procd_core::{Handle, LoopId, SessionId};
use serde::Serialize;
use uuid::Uuid;

use super::EventError;
use super::table::is_terminal_row;
use crate::record::Record;
use crate::text;

/// Tells the owning loop that a process is terminal, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notification {
    pub(crate) command_id: Uuid,
    #[serde(with = "text")]
    pub(crate) session_id: SessionId,
    #[serde(with = "text")]
    pub(crate) loop_id: LoopId,
    #[serde(with = "text")]
    pub(crate) process_id: Handle,
    #[serde(with = "text")]
    pub(crate) state: ProcessState,
    #[serde(with = "text")]
    pub(crate) reason: Reason,
}

impl Notification {
    /// The notification of a terminal record, under its stored id.
    /// # Errors
    /// [`EventError`] for a record that is not terminal.
    pub fn for_record(record: &Record) -> Result<Self, EventError> {
        let reason =
            record.reason.ok_or_else(|| EventError::new("state, reason", "are not terminal"))?;
        let notification = Self {
            command_id: record.ids.notification,
            session_id: record.session_id,
            loop_id: record.loop_id,
            process_id: record.process_id,
            state: record.state,
            reason,
        };
        notification.check()?;
        Ok(notification)
    }

    pub(super) fn check(&self) -> Result<(), EventError> {
        if self.command_id.is_nil() {
            return Err(EventError::new("command_id", "is nil"));
        }
        if !is_terminal_row(self.state, Some(self.reason)) {
            return Err(EventError::new("state, reason", "do not go together"));
        }
        Ok(())
    }

    /// The id of the notification.
    #[must_use]
    pub const fn command_id(&self) -> Uuid {
        self.command_id
    }

    /// The session.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// The loop it is for.
    #[must_use]
    pub const fn loop_id(&self) -> LoopId {
        self.loop_id
    }

    /// The process.
    #[must_use]
    pub const fn process_id(&self) -> Handle {
        self.process_id
    }
}
