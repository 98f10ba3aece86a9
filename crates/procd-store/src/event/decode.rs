//! Strict decoding: each member once, none unknown, none null, and the first failing field named
//! in the order of the spec.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

use super::{Event, EventError, Notification, table};

/// The members of an event, each still of any type.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Members {
    #[serde(deserialize_with = "present")]
    event_id: Option<Value>,
    #[serde(deserialize_with = "present")]
    kind: Option<Value>,
    #[serde(deserialize_with = "present")]
    session_id: Option<Value>,
    #[serde(deserialize_with = "present")]
    loop_id: Option<Value>,
    #[serde(deserialize_with = "present")]
    process_id: Option<Value>,
    #[serde(deserialize_with = "present")]
    origin: Option<Value>,
    #[serde(deserialize_with = "present")]
    state: Option<Value>,
    #[serde(deserialize_with = "present")]
    created_at: Option<Value>,
    #[serde(deserialize_with = "present")]
    started_at: Option<Value>,
    #[serde(deserialize_with = "present")]
    finished_at: Option<Value>,
    #[serde(deserialize_with = "present")]
    diagnostic: Option<Value>,
    #[serde(deserialize_with = "present")]
    exit_code: Option<Value>,
    #[serde(deserialize_with = "present")]
    reason: Option<Value>,
    #[serde(deserialize_with = "present")]
    signal: Option<Value>,
    #[serde(deserialize_with = "present")]
    access: Option<Value>,
    #[serde(deserialize_with = "present")]
    phase: Option<Value>,
}

/// A null is a value of the wrong type here, not an absent one.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn optional<T>(field: &'static str, value: Option<&Value>) -> Result<Option<T>, EventError>
where
    T: FromStr,
    T::Err: Display,
{
    match value {
        None => Ok(None),
        Some(Value::String(text)) => text
            .parse()
            .map(Some)
            .map_err(|error: T::Err| EventError::new(field, error.to_string())),
        Some(_) => Err(EventError::new(field, "must be a string")),
    }
}

fn required<T>(field: &'static str, value: Option<&Value>) -> Result<T, EventError>
where
    T: FromStr,
    T::Err: Display,
{
    optional(field, value)?.ok_or_else(|| EventError::new(field, "is missing"))
}

fn number(field: &'static str, value: Option<&Value>) -> Result<Option<i32>, EventError> {
    let Some(value) = value else {
        return Ok(None);
    };
    value
        .as_i64()
        .and_then(|number| i32::try_from(number).ok())
        .map(Some)
        .ok_or_else(|| EventError::new(field, "must be a whole number"))
}

/// Only the hyphenated form, never nil.
fn id(field: &'static str, value: Option<&Value>) -> Result<Uuid, EventError> {
    let text: String = required(field, value)?;
    match Uuid::try_parse(&text) {
        Ok(uuid) if !uuid.is_nil() && text.len() == uuid::fmt::Hyphenated::LENGTH => Ok(uuid),
        Ok(_) | Err(_) => Err(EventError::new(field, "must be a uuid, not nil")),
    }
}

impl Event {
    /// Decodes an event.
    /// # Errors
    /// [`EventError`] naming the first failing field; `event` for a form that is none.
    pub fn decode(text: &str) -> Result<Self, EventError> {
        let members: Members = serde_json::from_str(text)
            .map_err(|error| EventError::new("event", format!("is malformed: {error}")))?;
        Self::from_members(&members)
    }

    /// Field by field, so that the first failing one is named.
    fn from_members(m: &Members) -> Result<Self, EventError> {
        let event_id = id("event_id", m.event_id.as_ref())?;
        let kind = required("kind", m.kind.as_ref())?;
        let session_id = required("session_id", m.session_id.as_ref())?;
        let loop_id = required("loop_id", m.loop_id.as_ref())?;
        let process_id: String = required("process_id", m.process_id.as_ref())?;
        table::check_process_id(&process_id)?;
        let origin = required("origin", m.origin.as_ref())?;
        let state = required("state", m.state.as_ref())?;
        let created_at = required("created_at", m.created_at.as_ref())?;
        let started_at = optional("started_at", m.started_at.as_ref())?;
        table::check_started(created_at, started_at)?;
        let finished_at = optional("finished_at", m.finished_at.as_ref())?;
        table::check_finished(started_at.unwrap_or(created_at), finished_at)?;
        let diagnostic: Option<String> = optional("diagnostic", m.diagnostic.as_ref())?;
        table::check_diagnostic(diagnostic.as_deref())?;
        let exit_code = number("exit_code", m.exit_code.as_ref())?;
        table::check_exit_code(exit_code)?;
        let event = Self {
            event_id,
            kind,
            session_id,
            loop_id,
            process_id,
            origin,
            state,
            created_at,
            started_at,
            finished_at,
            diagnostic,
            exit_code,
            reason: optional("reason", m.reason.as_ref())?,
            signal: number("signal", m.signal.as_ref())?,
            access: optional("access", m.access.as_ref())?,
            phase: optional("phase", m.phase.as_ref())?,
        };
        event.check()?;
        Ok(event)
    }
}

impl Notification {
    /// Decodes a notification.
    /// # Errors
    /// [`EventError`] naming the first failing field; `notification` for a form that is none.
    pub fn decode(text: &str) -> Result<Self, EventError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            #[serde(default, deserialize_with = "present")]
            command_id: Option<Value>,
            #[serde(default, deserialize_with = "present")]
            session_id: Option<Value>,
            #[serde(default, deserialize_with = "present")]
            loop_id: Option<Value>,
            #[serde(default, deserialize_with = "present")]
            process_id: Option<Value>,
            #[serde(default, deserialize_with = "present")]
            state: Option<Value>,
            #[serde(default, deserialize_with = "present")]
            reason: Option<Value>,
        }
        let form: Form = serde_json::from_str(text)
            .map_err(|error| EventError::new("notification", format!("is malformed: {error}")))?;
        let notification = Self {
            command_id: id("command_id", form.command_id.as_ref())?,
            session_id: required("session_id", form.session_id.as_ref())?,
            loop_id: required("loop_id", form.loop_id.as_ref())?,
            process_id: required("process_id", form.process_id.as_ref())?,
            state: required("state", form.state.as_ref())?,
            reason: required("reason", form.reason.as_ref())?,
        };
        notification.check()?;
        Ok(notification)
    }
}
