//! Pipes to store, on threads of their own.

/// The writing side of one process's output.
#[derive(Debug)]
pub struct OutputWriter;
