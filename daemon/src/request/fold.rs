//! Folded pages: read block by block, since a line on the screen may be megabytes of raw bytes.
//! The state is kept between looks, so that a wait sees each byte once.

use procd_store::StoreError;
use procd_text::{FOLDED_LINE_BYTES_MAX, FOLDED_RAW_BYTES_MAX, Folded, Folder, Raw};

use super::page::{Content, beside};
use super::stretch::{self, Context, Filter, Want};
use crate::drain::Output;

/// Raw bytes folded at once.
const BLOCK_BYTES: usize = 256 * 1024;
/// Text that a page has to have room for: the longest line with its end.
pub(super) const ROOM_BYTES: usize = FOLDED_LINE_BYTES_MAX + 8;

/// Folds one output from a cursor on.
#[derive(Debug)]
pub(super) struct Fold {
    filter: Filter,
    limit: usize,
    asked: u64,
    /// Where the bytes really begin.
    from: Option<u64>,
    /// The next raw byte to be looked at.
    at: u64,
    /// Behind the last complete line.
    next: u64,
    /// Wanted bytes that the folder took.
    fed: usize,
    /// Bytes that make no whole character yet.
    cut: usize,
    folder: Folder,
    binary: bool,
}

impl Fold {
    /// - `limit`: bytes of text.
    pub(super) fn new(cursor: u64, filter: Filter, limit: usize) -> Self {
        Self {
            filter,
            limit,
            asked: cursor,
            from: None,
            at: cursor,
            next: cursor,
            fed: 0,
            cut: 0,
            folder: Folder::default(),
            binary: false,
        }
    }

    /// Whether there is a line for the page.
    pub(super) const fn has_line(&self) -> bool {
        self.folder.consumed() > 0
    }

    /// Takes what there is now, until the page is full. `is_ended`: nothing will follow.
    pub(super) async fn advance(
        &mut self,
        output: &Output,
        is_ended: bool,
    ) -> Result<(), StoreError> {
        while !self.is_done() {
            let want = Want {
                from: self.at,
                bytes: BLOCK_BYTES,
                raw_max: BLOCK_BYTES,
                filter: self.filter,
                tags: false,
            };
            let stretch = stretch::read(output, want).await?;
            let before = match self.from {
                Some(_) => Context::default(),
                None => stretch::context(output, stretch.from, self.filter).await?,
            };
            if self.from.is_some() && stretch.from != self.at {
                // What was next is not kept any more: the open line ends here.
                self.folder.finish(self.limit);
                self.next = self.at;
                return Ok(());
            }
            self.next = self.next.max(stretch.from);
            self.from.get_or_insert(stretch.from);
            let reaches_end = stretch.end >= output.bounds().total;
            let at_end = stretch.is_before_gap || (is_ended && reaches_end);
            let (moved, stretch) = self.feed(stretch, before, at_end).await;
            if self.folder.is_full() || at_end || !moved {
                return Ok(());
            }
            self.at = stretch.cursor_after(stretch.bytes.len() - self.cut);
            if reaches_end {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Folds one block; whether it moved on.
    async fn feed(
        &mut self,
        stretch: stretch::Stretch,
        before: Context,
        at_end: bool,
    ) -> (bool, stretch::Stretch) {
        let mut folder = std::mem::take(&mut self.folder);
        let (limit, lines) = (self.limit, folder.consumed());
        let (folder, stretch, used, binary) = beside(move || {
            let raw = Raw {
                context: &before.bytes,
                gap_before: before.is_after_gap,
                bytes: &stretch.bytes,
                at_end,
            };
            let used = folder.feed(&raw, limit);
            if at_end {
                folder.finish(limit);
            }
            let binary = procd_text::is_binary(stretch.bytes.get(..used).unwrap_or_default());
            (folder, stretch, used, binary)
        })
        .await;
        self.folder = folder;
        self.binary |= binary;
        self.cut = stretch.bytes.len() - used;
        if self.folder.consumed() > lines {
            self.next = stretch.cursor_after(self.folder.consumed() - self.fed);
        } else if self.folder.open_bytes() == 0 && self.cut == 0 {
            // Only bytes of the other stream.
            self.next = stretch.end;
        }
        self.fed += used;
        let moved = used > 0 || (self.cut == 0 && stretch.end > self.at);
        (moved, stretch)
    }

    /// Enough for one page.
    const fn is_done(&self) -> bool {
        self.folder.is_full() || (self.fed >= FOLDED_RAW_BYTES_MAX && self.has_line())
    }

    /// The page.
    pub(super) fn content(self, total: u64) -> Content {
        let is_whole = !self.is_done();
        let from = self.from.unwrap_or(self.asked);
        let is_open = is_whole && self.at + super::stretch::as_u64(self.cut) >= total;
        let held = self.fed + self.cut - self.folder.consumed().min(self.fed + self.cut);
        let Folded { text, consumed, normalized, pending } = self.folder.into_folded();
        Content {
            from,
            next: self.next,
            gap_bytes: from - self.asked.min(from),
            output: text,
            covered: consumed,
            held: if is_open { held } else { 0 },
            normalized,
            binary: self.binary,
            pending_line: pending.filter(|_| is_open),
            ..Content::default()
        }
    }
}
