//! The state folder: lock, commit log, manifests, session records, spools, and the scan that
//! reads them back.
//!
//! This crate knows no process, no socket and no tokio. Files are reached by safe calls only
//! (std, rustix). It reads no clock: times come from the caller.
#![forbid(unsafe_code)]

pub mod budget;
mod closed;
pub mod damage;
pub mod error;
pub mod event;
pub mod failpoint;
mod file;
pub mod folder;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod histogram;
pub mod log;
pub mod manifest;
pub mod record;
pub mod scan;
pub mod session;
pub mod spool;
#[cfg(test)]
mod testing;
mod text;
pub mod window;

pub use damage::Damage;
pub use error::StoreError;
pub use event::{Event, Notification};
pub use folder::StateFolder;
pub use log::{CommitError, CommitLog, LogRecord, Payload};
pub use record::Record;
pub use session::SessionRecord;
