//! The procd protocol: frame codec, envelope, messages by version, error codes, limits, the
//! variables that a request may not set, and the places of socket and state. Pure: no I/O, no clock, no runtime. Prose for implementers of
//! other languages: `PROTOCOL.md` beside this crate.
//!
//! Requests are strict (an unknown field is an error that names it), replies and notices open (a
//! reader ignores what it does not know).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod codec;
pub mod envelope;
pub mod error;
pub mod field;
pub mod hijack;
pub mod ids;
pub mod limits;
pub mod places;
#[cfg(feature = "schema")]
pub mod schema;
pub mod v1;
pub mod words;

pub use error::{Details, ErrorBody, ErrorCode};
pub use field::{FieldError, FieldFault};
pub use ids::{Base64Bytes, LoopId, OriginId, ProcessId, RequestId, SessionId, SessionKey};
pub use words::{Open, Word};
