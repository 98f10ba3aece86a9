//! Pipes to store, on threads of their own.

/// The reading side of one process's output.
#[derive(Debug, Clone)]
pub struct Output;

/// The writing side of one process's output.
#[derive(Debug)]
pub struct OutputWriter;
