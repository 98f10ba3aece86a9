//! The state folder: lock, commit log, manifests, session records, spools, and the scan that
//! reads them back.
//!
//! This crate knows no process, no socket and no tokio. Files are reached by safe calls only
//! (std, rustix). It reads no clock: times come from the caller.
#![forbid(unsafe_code)]

pub mod budget;
pub mod error;
pub mod manifest;
pub mod record;
pub mod spool;
mod text;
pub mod window;

pub use error::StoreError;
