//! The rules of supervision as pure code: ids, states, the transition table, `step()`, the
//! classification of ends, quotas.
//!
//! This crate must not do I/O, read a clock or know serde: everything it decides can be tested
//! as a table.
#![forbid(unsafe_code)]

pub mod end;
pub mod ids;
pub mod lease;
pub mod life;
pub mod queue;
pub mod quota;
pub mod settings;
pub mod signal;
pub mod state;
mod words;

pub use end::{End, LeaderEnd, Requests, classify};
pub use ids::{Handle, LoopId, OriginId, Owner, SessionId};
pub use life::{Action, Event, Life, OnLeaderExit, Step, StopMode, TreeSignal, step};
pub use state::{Access, EndedBy, ProcessState, Reason, SpoolState, Tier};
