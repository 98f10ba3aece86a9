//! The supervisor: one task, sole owner of the process table and of the sessions. Everybody else
//! talks to it through [`Supervisor`] and gets values back.

mod admission;
mod api;
pub mod refusal;
pub mod runner;
pub mod view;

pub use api::{
    Attached, Attachment, Caller, ListFilter, ListPage, Opened, SessionQuotas, SessionRules,
    SessionState, Started, Status, StopAllOutcome, StopOutcome, Supervisor,
};
