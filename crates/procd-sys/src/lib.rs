//! The system side of procd: guardian, shim, spawn, control groups, signals. The only crate with
//! unsafe code: calls of the kernel in [`raw`] and [`bare`], an allocator in [`scratch`]; the rest is plain code over safe calls.
//!
//! ```text
//! daemon --(SEQPACKET: requests)--> guardian --clone3 into a leaf--> command        tier 1
//!    |   <--(reports by key)------      \------fork--> shim --fork--> command        tier 2
//!    \------------(SEQPACKET: the death socket)---------/
//!                                       \--clone3--> init --fork--> command        tier 3
//! ```
//!
//! Must not know tokio, threads or a store. Descriptors given to the daemon do not block.
#![deny(unsafe_op_in_unsafe_fn)]

#[expect(unsafe_code, reason = "system calls past libc")]
mod bare;
pub mod cgroup;
pub mod channel;
mod child;
pub mod containment;
pub mod files;
pub mod guardian;
pub mod image;
pub mod inherited;
pub mod isolation;
pub mod landlock;
pub mod members;
pub mod memory;
pub mod message;
pub mod names;
pub mod peer;
mod procfs;
#[expect(unsafe_code, reason = "the one module of raw system calls")]
mod raw;
#[expect(unsafe_code, reason = "an allocator")]
pub mod scratch;
mod shim;
pub mod signals;
pub mod terminal;
mod wait;

pub use members::{Sent, Signalled, cpu_ms, is_alive, live_tree};
