//! The end of an ended process's output, for a reply that shows head and tail.

use crate::{
    render::{Page, Raw, render, text_bytes},
    start::{self, Start},
    unit::{self, Unit},
};

/// The last of an output, as much as fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The text, never more than the limit.
    pub text: String,
    /// Index in [`Raw::bytes`] at which the tail begins; it reaches to their end.
    pub start: usize,
    /// The text differs from the bytes it covers.
    pub normalized: bool,
}

/// Shares a limit of text between head and tail: `(head, tail)`.
#[must_use]
pub const fn split_limit(limit: usize) -> (usize, usize) {
    (limit - limit / 2, limit / 2)
}

/// Renders the last of `raw.bytes`, taken as the very end of an output, that fits `limit` bytes of text.
/// Head and tail of an output: `render` its start with the first share of [`split_limit`], then call this with the second
/// and with bytes that begin where the head ended or later; what lies between is omitted.
#[must_use]
pub fn tail(raw: &Raw<'_>, limit: usize) -> Tail {
    let raw = Raw { at_end: true, ..*raw };
    let start = first_fitting(&raw, limit);
    let (context, bytes) = raw.bytes.split_at_checked(start).unwrap_or((raw.bytes, &[]));
    let joined = [raw.context, context].concat();
    let kept = joined.len().saturating_sub(crate::SEQUENCE_BYTES_MAX);
    let context = joined.get(kept..).unwrap_or_default();
    let gap_before = raw.gap_before && kept == 0;
    let Page { text, normalized, .. } =
        render(&Raw { context, gap_before, bytes, at_end: true }, usize::MAX);
    Tail { text, start, normalized }
}

/// The first unit from which on the text is within the limit.
fn first_fitting(raw: &Raw<'_>, limit: usize) -> usize {
    let mut excess = units(raw).map(|(_, text)| text).sum::<usize>().saturating_sub(limit);
    for (start, text) in units(raw) {
        if excess == 0 {
            return start;
        }
        excess = excess.saturating_sub(text);
    }
    raw.bytes.len()
}

/// Start and bytes of text of each unit.
fn units(raw: &Raw<'_>) -> impl Iterator<Item = (usize, usize)> {
    let mut at = match start::find(raw) {
        Start::After(skipped) => skipped,
        Start::Inside => raw.bytes.len(),
    };
    std::iter::from_fn(move || {
        let unit = unit::read(raw.bytes, at, true);
        let len = match unit {
            Unit::Kept(len) | Unit::Replaced(len) | Unit::Removed(len) => len,
            Unit::Open => return None,
        };
        let start = at;
        at += len;
        Some((start, text_bytes(unit)))
    })
}
