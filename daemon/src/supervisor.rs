//! The supervisor: one task, sole owner of the process table.

pub mod refusal;
pub mod runner;
