//! The supervisor: one task, sole owner of the process table and of the sessions. Everybody else
//! talks to it through [`Supervisor`] and gets values back.
//!
//! ```text
//! Supervisor (handle) -- Command --> Task --> step() --> orders, timers, batches, disk jobs
//! process tasks ------- Report ----> Task
//! commit log ---------- Committed -> Task
//! disk jobs ----------- Done ------> Task
//! ```

mod admission;
mod api;
mod drive;
mod ending;
mod entry;
mod journal;
mod records;
pub mod refusal;
mod retention;
pub mod runner;
mod sessions;
mod shutdown;
mod snapshot;
mod spawn;
mod spool;
mod stop;
mod storage;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod timers;
pub mod view;

pub use api::{
    Attached, Attachment, Caller, Command, Gate, ListFilter, ListPage, Opened, SESSION_KEY_BYTES,
    SessionFacts, SessionQuotas, SessionRules, SessionState, Started, Status, StopAllOutcome,
    StopOutcome, Supervisor,
};
pub use records::cause_word;
pub use spawn::{Parts, Spawned, spawn};
