//! The supervisor daemon. This root wires tasks and does nothing else.
//!
//! A module imports only modules lower in this list; `clock`, `config` and `failpoint` aside:
//! `socket`, `connection`, `request`, `session`, `supervisor`, `recovery`, `process`, `drain`.
#![forbid(unsafe_code)]

pub mod clock;
pub mod config;
pub mod connection;
pub mod drain;
pub mod failpoint;
pub mod process;
pub mod recovery;
pub mod request;
pub mod session;
pub mod socket;
pub mod supervisor;
