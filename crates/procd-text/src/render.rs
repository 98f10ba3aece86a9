//! One page of safe text.

use crate::{
    start::{self, Start},
    unit::{self, Unit},
};

/// What U+FFFD takes in UTF-8.
const REPLACEMENT_BYTES: usize = char::REPLACEMENT_CHARACTER.len_utf8();

/// Raw output to be rendered, with what must be known around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw<'a> {
    /// The retained bytes directly before `bytes`: the last 4 KiB, or all there are when it is fewer.
    pub context: &'a [u8],
    /// Whether the byte before `context` (before `bytes`, with an empty one) was written but is no longer kept: true exactly
    /// when `context` begins at `retained_from` and that is not 0. Continuation bytes of a character cut there are dropped.
    pub gap_before: bool,
    /// The bytes from the cursor on: at least [`LOOK_AHEAD_BYTES`](crate::LOOK_AHEAD_BYTES) of them, or all there are.
    pub bytes: &'a [u8],
    /// The process has ended, its output is complete, and `bytes` reaches its very end: nothing is held back.
    pub at_end: bool,
}

/// A page of safe text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The text, within the limit but for the 3 bytes a single character may exceed it.
    pub text: String,
    /// Bytes of [`Raw::bytes`] whose text this is: the next page starts there.
    pub consumed: usize,
    /// Bytes after `consumed` that are held back since they do not make a whole character or sequence yet; 0 when the page
    /// ended for its limit. Of meaning only when `bytes` reached the end of what is there now.
    pub held_bytes: usize,
    /// The text differs from the bytes it covers.
    pub normalized: bool,
}

/// Renders as much of `raw` as fits `limit` bytes of text; at least one character when there is a whole one.
/// Bytes that leave no text cost nothing, so a page may come out empty and still move on.
#[must_use]
pub fn render(raw: &Raw<'_>, limit: usize) -> Page {
    let mut page =
        Page { text: String::with_capacity(limit.min(raw.bytes.len())), ..Page::default() };
    match start::find(raw) {
        Start::After(skipped) => {
            page.consumed = skipped.min(raw.bytes.len());
            page.normalized = page.consumed > 0;
        }
        Start::Inside => {
            page.held_bytes = raw.bytes.len();
            return page;
        }
    }
    while page.consumed < raw.bytes.len() {
        if page.push_plain(raw.bytes, limit) {
            continue;
        }
        let unit = unit::read(raw.bytes, page.consumed, raw.at_end);
        if unit == Unit::Open {
            page.held_bytes = raw.bytes.len() - page.consumed;
            break;
        }
        if !page.has_room(text_bytes(unit), limit) {
            break;
        }
        page.push(raw.bytes, unit);
    }
    page
}

/// Bytes of text that a unit leaves.
pub(crate) const fn text_bytes(unit: Unit) -> usize {
    match unit {
        Unit::Kept(len) => len,
        Unit::Replaced(_) => REPLACEMENT_BYTES,
        Unit::Removed(_) | Unit::Open => 0,
    }
}

impl Page {
    fn has_room(&self, more: usize, limit: usize) -> bool {
        more == 0 || self.text.is_empty() || self.text.len() + more <= limit
    }

    /// Takes a stretch of plain text that fits; false if there is none.
    fn push_plain(&mut self, bytes: &[u8], limit: usize) -> bool {
        let room = limit.saturating_sub(self.text.len());
        let rest = bytes.get(self.consumed..).unwrap_or_default();
        let rest = rest.get(..room).unwrap_or(rest);
        let run = rest.get(..unit::plain_run(rest)).unwrap_or_default();
        if let Ok(run) = std::str::from_utf8(run) {
            self.text.push_str(run);
        }
        self.consumed += run.len();
        !run.is_empty()
    }

    fn push(&mut self, bytes: &[u8], unit: Unit) {
        match unit {
            Unit::Kept(len) => {
                let raw = bytes.get(self.consumed..self.consumed + len).unwrap_or_default();
                self.text.extend(std::str::from_utf8(raw));
                self.consumed += len;
            }
            Unit::Replaced(len) => {
                self.text.push(char::REPLACEMENT_CHARACTER);
                self.consumed += len;
                self.normalized = true;
            }
            Unit::Removed(len) => {
                self.consumed += len;
                self.normalized = true;
            }
            Unit::Open => {}
        }
    }
}
