//! events/subscribe, events/ack, events/unsubscribe, notifications/ack, and their notices.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::common::{ProcessState, Reason, Scope};
use super::daemon::Empty;
use super::{Method, Params};
use crate::field::{FieldError, items, number, params};
use crate::ids::{LoopId, OriginId, ProcessId, RequestId, SessionId};
use crate::limits::EVENT_KINDS_MAX;
use crate::words::{Open, words};

/// The notice that carries an event.
pub const EVENTS_RECORD: &str = "events/record";
/// The notice that offers a notification.
pub const NOTIFICATIONS_OFFER: &str = "notifications/offer";
/// The feature that a client names in hello to be offered notifications.
pub const FEATURE_NOTIFICATIONS: &str = "notifications";

words! {
    /// What happened to a process.
    EventKind, "a kind of event" {
        /// It runs.
        Started = "started",
        /// It runs and its caller went on.
        Backgrounded = "backgrounded",
        /// A stop took effect.
        StopRequested = "stop_requested",
        /// It is terminal.
        Completed = "completed",
        /// It was unfinished at a restore.
        Lost = "lost",
        /// Its leader ended, its tree lives.
        LeaderExited = "leader_exited",
        /// Its spool cannot be written.
        SpoolDegraded = "spool_degraded",
        /// Its spool is written again.
        SpoolRecovered = "spool_recovered",
        /// Its first byte was dropped.
        OutputGap = "output_gap",
        /// It may write to the workspace from now on, or no more.
        WorkspaceChanged = "workspace_changed",
    }
}

words! {
    /// What a loop did with a notification.
    Disposition, "a disposition" {
        /// It took it.
        Accepted = "accepted",
        /// It had it already.
        Duplicate = "duplicate",
        /// It cannot take it now.
        Stopped = "stopped",
        /// It holds another payload under this id.
        Collision = "collision",
    }
}

params! {
    /// Parameters of `events/subscribe`.
    SubscribeParams optional {
        /// Events from that number on; absent = live only.
        from_seq: u64,
        /// Only these kinds.
        kinds: Vec<EventKind>,
        /// Default `loop`; for owners.
        scope: Scope,
        /// Only this session's; for operators.
        session_id: SessionId,
        /// Whether completion notifications of the loop are offered too.
        notifications: bool,
    }
}

impl Params for SubscribeParams {
    const METHOD: Method = Method::EventsSubscribe;
    type Result = SubscribeResult;

    fn validate(&self) -> Result<(), FieldError> {
        number("from_seq", self.from_seq, 0)?;
        let kinds = self.kinds.as_deref().unwrap_or_default();
        items("kinds", kinds.len(), 0, EVENT_KINDS_MAX)
    }
}

/// Result of `events/subscribe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubscribeResult {
    /// The first event there is at or after the number asked for.
    pub first_kept_seq: u64,
    /// The last event there is; 0 = none.
    pub last_seq: u64,
    /// Whether an event between the number asked for and the first kept one was dropped.
    pub gap: bool,
}

params! {
    /// Parameters of `events/ack`.
    EventsAckParams required {
        /// The request of the subscription. (`for` on the wire.)
        #[serde(rename = "for")]
        request: RequestId,
        /// All up to this number is acknowledged.
        up_to_seq: u64,
    } optional {}
}

impl Params for EventsAckParams {
    const METHOD: Method = Method::EventsAck;
    type Result = Empty;

    fn validate(&self) -> Result<(), FieldError> {
        number("up_to_seq", Some(self.up_to_seq), 0)
    }
}

params! {
    /// Parameters of `events/unsubscribe`.
    UnsubscribeParams required {
        /// The request of the subscription. (`for` on the wire.)
        #[serde(rename = "for")]
        request: RequestId,
    } optional {}
}

impl Params for UnsubscribeParams {
    const METHOD: Method = Method::EventsUnsubscribe;
    type Result = Empty;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

params! {
    /// Parameters of `notifications/ack`.
    NotificationsAckParams required {
        /// The notification.
        command_id: Uuid,
        /// What the loop did with it.
        disposition: Disposition,
    } optional {}
}

impl Params for NotificationsAckParams {
    const METHOD: Method = Method::NotificationsAck;
    type Result = Empty;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Parameters of the notice `events/record`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventRecord<E = Event> {
    /// The request of the subscription.
    #[serde(rename = "for")]
    pub request: RequestId,
    /// The number of the event in its session; of a subscription to all sessions its own count.
    pub seq: u64,
    /// The event.
    pub event: E,
    /// Whether events before it were dropped before they could be sent.
    #[serde(default, skip_serializing_if = "super::common::is_false")]
    pub gap: bool,
}

/// Parameters of the notice `notifications/offer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Offer<N = Notification> {
    /// The request of the subscription.
    #[serde(rename = "for")]
    pub request: RequestId,
    /// The notification.
    pub notification: N,
}

/// A lifecycle event, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// The same event always has the same.
    pub event_id: Uuid,
    /// What happened.
    pub kind: Open<EventKind>,
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The process.
    pub process_id: ProcessId,
    /// The tool execution it came from.
    pub origin: OriginId,
    /// The state of the process then.
    pub state: Open<ProcessState>,
    /// When the process was registered.
    pub created_at: String,
    /// When its exec succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its tree was proven empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// One word of `details.cause`, and the name of the errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<String>,
    /// Of its own end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Open<Reason>>,
    /// The signal that its leader died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Of `workspace_changed`: its access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Of `workspace_changed`: `started` or `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// A completion notification, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notification {
    /// Its id, under which it is answered.
    pub command_id: Uuid,
    /// The session.
    pub session_id: SessionId,
    /// The loop it is for.
    pub loop_id: LoopId,
    /// The process.
    pub process_id: ProcessId,
    /// Its terminal state.
    pub state: Open<ProcessState>,
    /// Why.
    pub reason: Open<Reason>,
}
