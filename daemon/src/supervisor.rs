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
mod feed;
mod figures;
mod handle;
mod journal;
mod keys;
mod leases;
mod list;
mod notices;
mod publish;
mod queue;
mod records;
pub mod refusal;
mod removal;
mod retention;
pub mod runner;
mod sessions;
mod shutdown;
mod snapshot;
mod spawn;
mod spool;
mod stop;
mod storage;
mod subscriptions;
mod table;
mod tally;
mod task;
#[cfg(test)]
mod tests;
mod timers;
pub mod view;

pub use admission::access_of;
pub use api::{
    Attached, Attachment, Caller, Command, Gate, Lease, ListFilter, ListPage, Opened, Pinned,
    SESSION_KEY_BYTES, SessionFacts, SessionQuotas, SessionRules, SessionState, Started, Status,
    StopAllOutcome, StopOutcome, StopScope,
};
pub use figures::{Beat, Figures, PlaceOfSession, SessionPage, SessionRow};
pub use handle::Supervisor;
pub use list::{PlaceInList, PlacedView};
pub use notices::Answer;
pub use records::cause_word;
pub use spawn::{Parts, Spawned, spawn};
pub use subscriptions::{Notice, Subscribe, Subscribed};
