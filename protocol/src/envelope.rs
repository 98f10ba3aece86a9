//! The envelope: request, reply, notice. What the daemon reads is strict, what a client reads is
//! open. Parameters stay raw here and are read by the module of their version.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::{Details, ErrorBody, ErrorCode};
use crate::field::{self, FieldError, FieldFault};
use crate::ids::RequestId;
use crate::limits::TRACE_CHARS_MAX;

/// A frame that cannot be answered as a request: answered with `id: null` and counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Not UTF-8 JSON, or nested too deep.
    #[error("the frame is no json: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("the frame is no json object")]
    NotObject,
    /// A key that is there twice in one object, at any depth.
    #[error("the key `{0}` is there twice")]
    DuplicateKey(String),
    /// A field of the envelope is missing, unknown or of the wrong type.
    #[error(transparent)]
    Envelope(FieldError),
}

impl From<ProtocolError> for ErrorBody {
    fn from(error: ProtocolError) -> Self {
        let message = error.to_string();
        let field = match error {
            ProtocolError::NotJson(_) | ProtocolError::NotObject => None,
            ProtocolError::DuplicateKey(field) => Some(field),
            ProtocolError::Envelope(error) => Some(error.field),
        };
        let details = Details { field, ..Details::default() };
        Self::with_details(ErrorCode::InvalidArguments, message, details)
    }
}

/// Where a request comes from: echoed into its reply and the daemon's logs only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// As in W3C Trace Context.
    pub traceparent: String,
}

/// What a client sends.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// To be answered under its id.
    Request(Request<'a>),
    /// Never answered.
    Notice(Notice<'a>),
}

/// A request; its parameters are not read yet.
#[derive(Debug)]
pub struct Request<'a> {
    /// The client's number for it.
    pub id: RequestId,
    /// The method, known or not.
    pub method: Cow<'a, str>,
    /// The parameters; absent = empty.
    pub params: Option<&'a RawValue>,
    /// To be echoed.
    pub trace: Option<Trace>,
}

/// A notice: no id, no answer.
#[derive(Debug)]
pub struct Notice<'a> {
    /// The method, known or not.
    pub method: Cow<'a, str>,
    /// The parameters; absent = empty.
    pub params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StrictEnvelope<'a> {
    #[serde(default, deserialize_with = "field::present")]
    id: Option<RequestId>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "field::present")]
    trace: Option<Trace>,
}

/// Reads what a client sent, strictly.
/// # Errors
/// [`ProtocolError`]: no JSON, no object, a duplicate key anywhere, a wrong envelope.
pub fn parse_incoming(frame: &[u8]) -> Result<Incoming<'_>, ProtocolError> {
    let text = checked_text(frame)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let envelope: StrictEnvelope<'_> = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| ProtocolError::Envelope(field::explain_error(error)))?;
    if let Some(trace) = &envelope.trace {
        field::text("trace.traceparent", Some(&trace.traceparent), 1, TRACE_CHARS_MAX)
            .map_err(ProtocolError::Envelope)?;
    }
    let StrictEnvelope { id, method, params, trace } = envelope;
    match id {
        Some(id) => Ok(Incoming::Request(Request { id, method, params, trace })),
        None if is_notice(&method) => Ok(Incoming::Notice(Notice { method, params })),
        None => {
            Err(ProtocolError::Envelope(FieldError::of("id", FieldFault::Missing, "is missing")))
        }
    }
}

/// Notices a client may send. Anything else without an id is a request that lacks it.
fn is_notice(method: &str) -> bool {
    method == CANCEL || method == EXPORT_CONTINUE
}

/// The notice that ends a request in flight.
pub const CANCEL: &str = "$/cancel";
/// The notice that lets an export go on.
pub const EXPORT_CONTINUE: &str = "export/continue";

/// UTF-8, one JSON object, no key twice in any object.
fn checked_text(frame: &[u8]) -> Result<&str, ProtocolError> {
    let text = std::str::from_utf8(frame)
        .map_err(|error| ProtocolError::NotJson(error.to_string()))?
        .trim_matches([' ', '\t', '\r', '\n']);
    let mut duplicate = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let walked = UniqueKeys { duplicate: &mut duplicate }
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
    match (walked, duplicate) {
        (_, Some(key)) => Err(ProtocolError::DuplicateKey(key)),
        (Err(error), None) => Err(ProtocolError::NotJson(error.to_string())),
        (Ok(()), None) if !text.starts_with('{') => Err(ProtocolError::NotObject),
        (Ok(()), None) => Ok(text),
    }
}

/// Walks a whole JSON value and stops at the first key that is twice in one object.
struct UniqueKeys<'d> {
    duplicate: &'d mut Option<String>,
}

impl UniqueKeys<'_> {
    fn again(&mut self) -> UniqueKeys<'_> {
        UniqueKeys { duplicate: self.duplicate }
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("json")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.again())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let mut keys = std::collections::HashSet::new();
        while let Some(Key(key)) = fields.next_key::<Key<'de>>()? {
            if keys.contains(&key) {
                *self.duplicate = Some(field::shortened(key.into_owned()));
                return Err(serde::de::Error::custom("duplicate key"));
            }
            keys.insert(key);
            fields.next_value_seed(self.again())?;
        }
        Ok(())
    }
}

/// A key, borrowed from the frame where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// A reply with a result, as the daemon writes it.
#[derive(Debug, Serialize)]
pub struct ResultReply<'a, T> {
    /// The id of the request.
    pub id: RequestId,
    /// The result.
    pub result: &'a T,
    /// The request's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a Trace>,
}

/// A reply with an error, as the daemon writes it.
#[derive(Debug, Serialize)]
pub struct ErrorReply<'a> {
    /// The id of the request; `None` (written `null`) for what was no request.
    pub id: Option<RequestId>,
    /// The error.
    pub error: &'a ErrorBody,
    /// The request's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a Trace>,
}

/// A request, as a client writes it.
#[derive(Debug, Serialize)]
pub struct RequestOut<'a, T> {
    /// The client's number for it.
    pub id: RequestId,
    /// The method.
    pub method: &'a str,
    /// The parameters.
    pub params: &'a T,
    /// To be echoed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a Trace>,
}

/// A notice, as either side writes it.
#[derive(Debug, Serialize)]
pub struct NoticeOut<'a, T> {
    /// The method.
    pub method: &'a str,
    /// The parameters.
    pub params: &'a T,
}

/// What a client receives.
#[derive(Debug)]
pub enum Received {
    /// The answer to the request with this id; `None` = to something that was no request.
    Reply {
        /// The id of the request.
        id: Option<RequestId>,
        /// The raw result, or the error.
        outcome: Result<Box<RawValue>, Box<ErrorBody>>,
    },
    /// A notice.
    Notice {
        /// The method, known or not.
        method: String,
        /// The raw parameters.
        params: Option<Box<RawValue>>,
    },
}

#[derive(Deserialize)]
struct OpenEnvelope {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<ErrorBody>,
}

/// Reads what the daemon sent; unknown fields are ignored.
/// # Errors
/// [`ProtocolError`] for what is neither reply nor notice.
pub fn parse_received(frame: &[u8]) -> Result<Received, ProtocolError> {
    let envelope: OpenEnvelope =
        serde_json::from_slice(frame).map_err(|error| ProtocolError::NotJson(error.to_string()))?;
    match envelope {
        OpenEnvelope { error: Some(body), id, .. } => {
            Ok(Received::Reply { id, outcome: Err(Box::new(body)) })
        }
        OpenEnvelope { result: Some(result), id, .. } => {
            Ok(Received::Reply { id, outcome: Ok(result) })
        }
        OpenEnvelope { method: Some(method), params, .. } => {
            Ok(Received::Notice { method, params })
        }
        OpenEnvelope { .. } => Err(ProtocolError::NotObject),
    }
}

#[cfg(test)]
mod tests;
