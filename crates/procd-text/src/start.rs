//! How a page starts: what of its first bytes belongs to something that began before it.

use crate::{
    LOOK_AHEAD_BYTES,
    render::Raw,
    sequence::{self, C1_LEAD, ESC, Extent},
    unit::{self, Scalar},
};

/// The state at the first byte of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The first unit begins after this many bytes.
    After(usize),
    /// Inside something whose end is not there yet.
    Inside,
}

/// Most continuation bytes a character has.
const CONTINUATION_BYTES_MAX: usize = 3;

/// Finds the state from the bytes around the start, at most 4 KiB to either side.
pub(crate) fn find(raw: &Raw<'_>) -> Start {
    if raw.bytes.is_empty() || is_quiet(raw) {
        return Start::After(0);
    }
    let ahead = raw.bytes.get(..LOOK_AHEAD_BYTES).unwrap_or(raw.bytes);
    let at_end = raw.at_end && ahead.len() == raw.bytes.len();
    let joined = [raw.context, ahead].concat();
    let cut = raw.context.len();
    match last_introducer(&joined, cut).map(|at| sequence::measure(&joined, at, at_end)) {
        Some(Extent::Open) => Start::Inside,
        Some(Extent::Ends(end)) if end > cut => Start::After(end - cut),
        Some(Extent::Ends(_)) | None => inside_character(&joined, raw.gap_before, cut, at_end),
    }
}

/// The common case, told without a copy: nothing in the context opens anything and the page begins with a whole character.
fn is_quiet(raw: &Raw<'_>) -> bool {
    let begins_anew = raw.bytes.first().is_some_and(|first| !is_continuation(*first));
    begins_anew
        && !raw.context.iter().fold(false, |any, &byte| any | (byte == ESC) | (byte == C1_LEAD))
}

const fn is_continuation(byte: u8) -> bool {
    matches!(byte, 0x80..=0xbf)
}

fn last_introducer(joined: &[u8], cut: usize) -> Option<usize> {
    (0..cut).rev().find(|&at| sequence::is_introducer(joined, at) == Some(true))
}

/// A page may be asked for at any byte: the rest of a character that began before it is dropped with it.
fn inside_character(joined: &[u8], gap_before: bool, cut: usize, at_end: bool) -> Start {
    let orphans = joined
        .iter()
        .take(CONTINUATION_BYTES_MAX)
        .take_while(|byte| is_continuation(**byte))
        .count();
    if gap_before && orphans > cut {
        return Start::After(orphans - cut);
    }
    let first = cut.saturating_sub(CONTINUATION_BYTES_MAX);
    let lead =
        (first..cut).rev().find(|&at| joined.get(at).is_some_and(|byte| !is_continuation(*byte)));
    let Some(lead) = lead else { return Start::After(0) };
    match unit::scalar(joined, lead) {
        Scalar::Valid(len) => Start::After((lead + len).saturating_sub(cut)),
        Scalar::Cut if !at_end => Start::Inside,
        Scalar::Cut | Scalar::Invalid => Start::After(0),
    }
}
