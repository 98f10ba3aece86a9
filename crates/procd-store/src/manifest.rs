//! The manifest's file.

pub mod rules;
