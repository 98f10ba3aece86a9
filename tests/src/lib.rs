//! The fixture of the black-box tests: a daemon of its own for every test, a client that speaks the wire by hand, a runner
//! for procctl, and the checks of the house rules.
//!
//! Tests know the binaries only from outside. They never sleep: everything is awaited with a deadline, and a test that
//! fails shows what the daemon knew and logged. Only children that a test started itself are signalled.
#![forbid(unsafe_code)]

pub mod binaries;
pub mod cutter;
pub mod daemon;
pub mod faults;
pub mod figures;
pub mod folder;
pub mod journal;
pub mod leaks;
pub mod namespace;
pub mod owner;
pub mod pattern;
pub mod rounds;
pub mod run;
pub mod skip;
pub mod soak;
#[cfg(test)]
mod tidy;
pub mod tmux;
pub mod transcript;
pub mod wait;
pub mod wire;

pub use daemon::{Daemon, Setup, Tier};
pub use owner::Owner;
pub use run::Finished;
pub use skip::skip;
pub use wire::Wire;
