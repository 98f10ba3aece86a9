//! Raw bytes of one output as a reader wants them: those of one stream or of both, joined, each
//! with its place, and what lies before them.

use procd_store::StoreError;
use procd_store::spool::{Source, Tag};

use crate::drain::Output;

/// How much is read at a time while the other stream's bytes are left out.
const BLOCK_BYTES: usize = 256 * 1024;
/// Tags of one page, a count: the protocol's `tags_per_page_max`.
const TAGS_MAX: usize = 1000;

/// Whose bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    /// Both streams'.
    Combined,
    /// stdout's, and those without a tag.
    Stdout,
    /// stderr's, and those without a tag.
    Stderr,
}

impl Filter {
    pub(super) const fn wants(self, source: Source) -> bool {
        match (self, source) {
            (Self::Combined, _)
            | (Self::Stdout, Source::Stdout | Source::Mixed)
            | (Self::Stderr, Source::Stderr | Source::Mixed) => true,
            (Self::Stdout, Source::Stderr) | (Self::Stderr, Source::Stdout) => false,
        }
    }
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    /// The first byte.
    pub(super) from: u64,
    /// Wanted bytes, if there are as many.
    pub(super) bytes: usize,
    /// Raw bytes looked at, at most.
    pub(super) raw_max: usize,
    /// Whose.
    pub(super) filter: Filter,
    /// Whether their tags are wanted.
    pub(super) tags: bool,
}

/// A run of wanted bytes without a break.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// The cursor of its first byte.
    cursor: u64,
    /// The index of its first byte among the wanted ones.
    index: usize,
    source: Source,
}

/// Wanted bytes, joined.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    /// Where the bytes really begin: behind a gap, if there is one.
    pub(super) from: u64,
    /// Behind the last raw byte looked at.
    pub(super) end: u64,
    /// The wanted ones.
    pub(super) bytes: Vec<u8>,
    /// Bytes that are not kept follow at `end`.
    pub(super) is_before_gap: bool,
    /// Tags of everything looked at, if they were wanted.
    pub(super) tags: Vec<Tag>,
    pieces: Vec<Piece>,
}

impl Stretch {
    /// Where a reader that used the first `used` bytes goes on: before the next wanted byte, or
    /// behind everything looked at.
    pub(super) fn cursor_after(&self, used: usize) -> u64 {
        if used >= self.bytes.len() {
            return self.end;
        }
        let later = self.pieces.partition_point(|piece| piece.index <= used);
        let piece = later.checked_sub(1).and_then(|index| self.pieces.get(index));
        piece.map_or(self.end, |piece| piece.cursor + as_u64(used - piece.index))
    }

    /// How many wanted bytes lie before `cursor`.
    pub(super) fn bytes_before(&self, cursor: u64) -> usize {
        let later = self.pieces.partition_point(|piece| piece.cursor < cursor);
        let Some(piece) = later.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return 0;
        };
        let next = self.pieces.get(later).map_or(self.bytes.len(), |piece| piece.index);
        let within = usize::try_from(cursor - piece.cursor).unwrap_or(usize::MAX);
        piece.index.saturating_add(within).min(next)
    }

    /// Whether bytes without a tag are among the first `used`.
    pub(super) fn is_mixed(&self, used: usize) -> bool {
        self.pieces.iter().any(|piece| piece.index < used && piece.source == Source::Mixed)
    }

    fn push(&mut self, cursor: u64, bytes: &[u8], source: Source) {
        if !bytes.is_empty() {
            self.pieces.push(Piece { cursor, index: self.bytes.len(), source });
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Takes over a first page as it is.
    fn own(&mut self, cursor: u64, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.pieces.push(Piece { cursor, index: 0, source: Source::Mixed });
            self.bytes = bytes;
        }
    }

    /// Adds a raw page: all of it, or what the filter wants.
    fn take(&mut self, from: u64, bytes: &[u8], tags: &[Tag], filter: Filter) {
        if filter == Filter::Combined {
            self.push(from, bytes, Source::Mixed);
            return;
        }
        for tag in tags {
            let at = |cursor: u64| usize::try_from(cursor.saturating_sub(from)).unwrap_or(0);
            let (start, end) = (at(tag.start).min(bytes.len()), at(tag.end).min(bytes.len()));
            if filter.wants(tag.source) {
                self.push(from + as_u64(start), &bytes[start..end.max(start)], tag.source);
            }
        }
    }
}

/// Lengths in memory fit 64 bits.
pub(super) fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Reads wanted bytes up to the next gap.
pub(super) async fn read(output: &Output, want: Want) -> Result<Stretch, StoreError> {
    let mut stretch = Stretch { from: want.from, end: want.from, ..Stretch::default() };
    let mut room = want.raw_max;
    let mut is_first = true;
    let needs_tags = want.tags || want.filter != Filter::Combined;
    while stretch.bytes.len() < want.bytes && room > 0 {
        let missing = want.bytes - stretch.bytes.len();
        let block = if want.filter == Filter::Combined { missing } else { BLOCK_BYTES };
        let mut page = output.read(stretch.end, block.min(room)).await?;
        if is_first {
            stretch.from = page.from;
            is_first = false;
        } else if page.from != stretch.end {
            stretch.is_before_gap = true;
            break;
        }
        if page.bytes.is_empty() {
            stretch.end = page.from;
            break;
        }
        let mut tags = Vec::new();
        if needs_tags {
            let left = TAGS_MAX.saturating_sub(stretch.tags.len()).max(1);
            tags = output.tags(page.from, page.next(), left).await?;
            // A page ends where its tags do.
            let reach = tags.last().map_or(page.from, |tag| tag.end);
            let length = usize::try_from(reach.saturating_sub(page.from)).unwrap_or(usize::MAX);
            page.bytes.truncate(length);
        }
        stretch.end = page.next();
        room -= page.bytes.len().min(room);
        if want.filter == Filter::Combined && stretch.bytes.is_empty() {
            stretch.own(page.from, page.bytes);
        } else {
            stretch.take(page.from, &page.bytes, &tags, want.filter);
        }
        if want.tags {
            stretch.tags.extend(tags);
        }
        if stretch.tags.len() >= TAGS_MAX {
            break;
        }
    }
    Ok(stretch)
}

/// What lies directly before a cursor.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// The wanted bytes of the last 4 KiB before it that are kept.
    pub(super) bytes: Vec<u8>,
    /// Whether what was before these bytes is not kept any more.
    pub(super) is_after_gap: bool,
}

/// Reads what lies before `cursor`: enough to know how its text begins.
pub(super) async fn context(
    output: &Output,
    cursor: u64,
    filter: Filter,
) -> Result<Context, StoreError> {
    if cursor == 0 {
        return Ok(Context::default());
    }
    let asked = cursor.saturating_sub(as_u64(procd_text::SEQUENCE_BYTES_MAX));
    let mut from = asked;
    loop {
        let raw_max = usize::try_from(cursor - from).unwrap_or(0);
        let want = Want { from, bytes: raw_max, raw_max, filter, tags: false };
        let stretch = read(output, want).await?;
        if stretch.from >= cursor {
            return Ok(Context { bytes: Vec::new(), is_after_gap: true });
        }
        if stretch.end >= cursor {
            let begins_at = stretch.from;
            let is_lost = begins_at > asked || begins_at <= output.bounds().retained_from;
            let is_after_gap = begins_at > 0 && is_lost;
            return Ok(Context { bytes: stretch.bytes, is_after_gap });
        }
        if stretch.end <= from {
            return Ok(Context { bytes: Vec::new(), is_after_gap: true });
        }
        // A gap inside: only what is behind it counts.
        from = stretch.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(start: u64, end: u64, source: Source) -> Tag {
        Tag { start, end, source, at_unix_ns: None }
    }

    #[test]
    fn a_filtered_stretch_knows_the_place_of_each_byte() {
        let tags = [
            tag(10, 13, Source::Stdout),
            tag(13, 16, Source::Stderr),
            tag(16, 18, Source::Mixed),
            tag(18, 20, Source::Stderr),
        ];
        let mut stretch = Stretch { from: 10, end: 20, ..Stretch::default() };
        stretch.take(10, b"abcDEFghIJ", &tags, Filter::Stdout);
        assert_eq!(stretch.bytes, b"abcgh");
        let cursors: Vec<_> = (0..=5).map(|used| stretch.cursor_after(used)).collect();
        assert_eq!(cursors, [10, 11, 12, 16, 17, 20]);
        assert!(!stretch.is_mixed(3) && stretch.is_mixed(4));
        let before: Vec<_> = (10..=20).map(|cursor| stretch.bytes_before(cursor)).collect();
        assert_eq!(before, [0, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5]);
    }

    #[test]
    fn a_stretch_of_the_other_stream_only_is_passed_over() {
        let mut stretch = Stretch { from: 0, end: 4, ..Stretch::default() };
        stretch.take(0, b"abcd", &[tag(0, 4, Source::Stderr)], Filter::Stdout);
        assert!(stretch.bytes.is_empty());
        assert_eq!(stretch.cursor_after(0), 4);
    }
}
