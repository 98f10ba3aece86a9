//! Safe text: raw output made fit for a model or a terminal. Pure code: no I/O, no clock, no state between calls.
//!
//! What comes out is valid UTF-8 without anything that could act on a terminal. Rendering is a pure function of the
//! bytes, so pages joined by [`Page::consumed`] are exactly the safe text of the whole, wherever they were cut:
//!
//! ```text
//!     context (up to 4 KiB before the page)      bytes
//!     ...... ESC ] 0 ; t i t l e            |    BEL t e x t ... ESC [ 3
//!            ^ the last introducer decides       ^ dropped       ^ held back
//!              how the page starts                 with it         until it is whole
//! ```
//!
//! Must not: know cursors, spools or limits of the protocol. Source of the rules: spec, output, *Safe text*.
#![forbid(unsafe_code)]

mod binary;
mod fold;
mod render;
mod sequence;
mod start;
mod tail;
mod unit;

pub use binary::is_binary;
pub use fold::{FOLDED_LINE_BYTES_MAX, FOLDED_RAW_BYTES_MAX, Folded, Folder};
pub use render::{Page, Raw, render};
pub use sequence::SEQUENCE_BYTES_MAX;
pub use tail::{Tail, split_limit, tail};

/// Raw bytes that settle every question about the byte before them: with this many in [`Raw::bytes`] a page always moves on.
/// A page of text up to `limit` is best rendered from `limit + LOOK_AHEAD_BYTES` raw bytes.
pub const LOOK_AHEAD_BYTES: usize = SEQUENCE_BYTES_MAX + 4;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
