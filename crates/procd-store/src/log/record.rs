//! What the log carries: the envelope of a record and its payloads.

use jiff::Timestamp;
use procd_core::{Handle, LoopId, SessionId, words};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{Event, Notification};
use crate::record::{Record, RequestKey};
use crate::session::SessionRecord;
use crate::text;

words! {
    /// The kind of a record.
    Kind, "kind of a record" {
        /// A newer state of a session.
        Session = "session",
        /// A newer state of a process.
        Process = "process",
        /// A lifecycle event.
        Event = "event",
        /// A completion notification.
        Notification = "notification",
        /// The answer to a notification.
        Acknowledgement = "acknowledgement",
        /// Something goes, with its files.
        Removal = "removal",
    }
}

words! {
    /// What the loop did with a notification, as far as it is remembered.
    Disposition, "disposition" {
        /// It took it.
        Accepted = "accepted",
        /// It had it already.
        Duplicate = "duplicate",
        /// It holds another payload under this id: never offered again.
        Collision = "collision",
    }
}

impl Disposition {
    /// Whether the loop has it: it is never offered again, and not counted as trouble.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        match self {
            Self::Accepted | Self::Duplicate => true,
            Self::Collision => false,
        }
    }
}

/// The durable answer to a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgement {
    /// The notification.
    pub command_id: Uuid,
    /// Its session.
    #[serde(with = "text")]
    pub session_id: SessionId,
    /// The loop that answered.
    #[serde(with = "text")]
    pub loop_id: LoopId,
    /// The process it speaks of.
    #[serde(with = "text")]
    pub process_id: Handle,
    /// The answer.
    #[serde(with = "text")]
    pub disposition: Disposition,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A request key that outlives its record for the rest of its ten minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptKey {
    /// The loop of the owner.
    #[serde(with = "text")]
    pub loop_id: LoopId,
    /// The key with salt and hash.
    pub request_key: RequestKey,
    /// Until then it is known.
    pub until: Timestamp,
}

/// What goes. Durable before a file does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "target", rename_all = "snake_case", deny_unknown_fields)]
pub enum Removal {
    /// A process: record, events and spool.
    Process {
        /// Its session.
        #[serde(with = "text")]
        session_id: SessionId,
        /// The process.
        #[serde(with = "text")]
        process_id: Handle,
        /// The highest number among its events: they go with it.
        #[serde(default, skip_serializing_if = "is_zero")]
        events_through: u64,
        /// The key of its start, if it has to be known beyond the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeptKey>,
    },
    /// A session with all in it.
    Session {
        /// The session.
        #[serde(with = "text")]
        session_id: SessionId,
    },
    /// An unacknowledged notification: too old, or one too many.
    Notification {
        /// Its session.
        #[serde(with = "text")]
        session_id: SessionId,
        /// The notification.
        command_id: Uuid,
    },
}

/// A payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A newer state of a session.
    Session(Box<SessionRecord>),
    /// A newer state of a process.
    Process(Box<Record>),
    /// A lifecycle event.
    Event(Event),
    /// A completion notification.
    Notification(Notification),
    /// The answer to a notification.
    Acknowledgement(Acknowledgement),
    /// Something goes.
    Removal(Removal),
}

/// One record: its session, kind and id (the envelope) and its payload, which agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The session whose number it gets.
    pub session: SessionId,
    /// The id within session and kind.
    pub id: String,
    /// What it says.
    pub payload: Payload,
}

impl Payload {
    /// The kind in the envelope.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Session(_) => Kind::Session,
            Self::Process(_) => Kind::Process,
            Self::Event(_) => Kind::Event,
            Self::Notification(_) => Kind::Notification,
            Self::Acknowledgement(_) => Kind::Acknowledgement,
            Self::Removal(_) => Kind::Removal,
        }
    }

    fn session(&self) -> SessionId {
        match self {
            Self::Session(session) => session.session_id,
            Self::Process(record) => record.session_id,
            Self::Event(event) => event.session_id(),
            Self::Notification(notification) => notification.session_id(),
            Self::Acknowledgement(acknowledgement) => acknowledgement.session_id,
            Self::Removal(
                Removal::Process { session_id, .. }
                | Removal::Session { session_id }
                | Removal::Notification { session_id, .. },
            ) => *session_id,
        }
    }

    fn id(&self) -> String {
        match self {
            Self::Session(session) => session.session_id.to_string(),
            Self::Process(record) => record.process_id.to_string(),
            Self::Event(event) => event.event_id().to_string(),
            Self::Notification(notification) => notification.command_id().to_string(),
            Self::Acknowledgement(acknowledgement) => acknowledgement.command_id.to_string(),
            Self::Removal(Removal::Process { process_id, .. }) => process_id.to_string(),
            Self::Removal(Removal::Session { session_id }) => session_id.to_string(),
            Self::Removal(Removal::Notification { command_id, .. }) => command_id.to_string(),
        }
    }

    /// The process it belongs to, so that its id is forgotten with the process.
    pub(super) fn process(&self) -> Option<Handle> {
        match self {
            Self::Process(record) => Some(record.process_id),
            Self::Event(event) => event.process_id().parse().ok(),
            Self::Notification(notification) => Some(notification.process_id()),
            Self::Acknowledgement(acknowledgement) => Some(acknowledgement.process_id),
            Self::Session(_) | Self::Removal(_) => None,
        }
    }
}

impl LogRecord {
    /// The record of a payload, its envelope taken from it.
    #[must_use]
    pub fn new(payload: Payload) -> Self {
        Self { session: payload.session(), id: payload.id(), payload }
    }

    /// A newer state of a process.
    #[must_use]
    pub fn process(record: &Record) -> Self {
        Self::new(Payload::Process(Box::new(record.clone())))
    }

    /// A newer state of a session.
    #[must_use]
    pub fn session(record: &SessionRecord) -> Self {
        Self::new(Payload::Session(Box::new(record.clone())))
    }

    /// Whether the envelope agrees with the payload.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.session != self.payload.session() {
            return Err("`session` of envelope and payload differ".to_owned());
        }
        if self.id != self.payload.id() {
            return Err("`id` of envelope and payload differ".to_owned());
        }
        Ok(())
    }
}

impl From<Event> for LogRecord {
    fn from(event: Event) -> Self {
        Self::new(Payload::Event(event))
    }
}

impl From<Notification> for LogRecord {
    fn from(notification: Notification) -> Self {
        Self::new(Payload::Notification(notification))
    }
}

impl From<Acknowledgement> for LogRecord {
    fn from(acknowledgement: Acknowledgement) -> Self {
        Self::new(Payload::Acknowledgement(acknowledgement))
    }
}

impl From<Removal> for LogRecord {
    fn from(removal: Removal) -> Self {
        Self::new(Payload::Removal(removal))
    }
}
