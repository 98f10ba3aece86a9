//! Tags: source and arrival time of stretches of bytes.
//!
//! Chunks of one source that arrive within [`COALESCE_NS`] of the first of them share its tag, so
//! a loud process costs at most a hundred tags a second, however it writes, unless it changes
//! between its streams. The tag that still grows is part of the index; a closed one goes to the
//! ring file `tags`, whose oldest entry makes room.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::index::{Fields, OpenTag};
use super::{Source, Tag, step};

/// How long after its first chunk a tag still grows, nanoseconds.
pub(super) const COALESCE_NS: i64 = 10_000_000;
/// Bytes of one entry of the ring.
pub(super) const ENTRY_BYTES: u64 = 32;
/// The newest tags that are kept in memory too, a count.
const RECENT_MAX: usize = 256;
/// Entries read at once, a count.
const BATCH_ENTRIES: u64 = 128;

/// The ring of a ceiling has so many entries: at most an eighth of the ceiling.
pub(super) const fn ring_entries(ceiling: u64) -> u64 {
    ceiling / 8 / ENTRY_BYTES
}

/// What is known of the tags without a look at the file. Shared with the readers.
#[derive(Debug, Clone, Default)]
pub(super) struct TagTable {
    /// The newest closed ones, without a break between them unless one was lost.
    pub(super) recent: VecDeque<Tag>,
    pub(super) open: Option<OpenTag>,
    /// Closed ones ever written.
    pub(super) written: u64,
    pub(super) entries: u64,
    pub(super) file: Option<Arc<File>>,
}

impl TagTable {
    /// The tag that has to be closed at `total` before a chunk of `source` can be added.
    pub(super) fn close_for(&self, source: Source, at_unix_ns: i64, total: u64) -> Option<Tag> {
        let open = self.open?;
        let age = at_unix_ns.checked_sub(open.at_unix_ns);
        let grows =
            open.source == code(source) && age.is_some_and(|age| (0..COALESCE_NS).contains(&age));
        (!grows).then(|| tag_of(open, total))
    }

    /// Takes over a closed tag.
    pub(super) fn closed(&mut self, tag: Tag) {
        self.open = None;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(tag);
    }

    /// Opens a tag at `total` unless one grows or the source has none.
    pub(super) fn open(&mut self, source: Source, at_unix_ns: i64, total: u64) {
        let source = code(source);
        if self.open.is_none() && source != 0 {
            self.open = Some(OpenTag { start: total, at_unix_ns, source });
        }
    }

    /// Whether the file has nothing to add from `from` on.
    pub(super) fn covers(&self, from: u64, total: u64) -> bool {
        let open = self.open.map_or(total, |open| open.start);
        self.written == 0 || from >= self.recent.front().map_or(open, |tag| tag.start)
    }

    /// Tags from `from` to `to` without a break, at most `max` of them.
    pub(super) fn read(&self, from: u64, to: u64, max: usize, total: u64) -> Vec<Tag> {
        let mut out = Cover { tags: Vec::new(), from, to, max };
        if !self.covers(from, total)
            && let Some(file) = &self.file
        {
            self.read_file(file, &mut out);
        }
        for &tag in &self.recent {
            out.add(tag);
        }
        if let Some(open) = self.open {
            out.add(tag_of(open, total));
        }
        out.fill(to);
        out.tags
    }

    /// Finds the place by halving, then reads on in batches.
    fn read_file(&self, file: &File, out: &mut Cover) {
        let (mut low, mut high) = (self.written.saturating_sub(self.entries), self.written);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(file, middle) {
                Some(tag) if tag.end <= out.from => low = middle + 1,
                Some(_) | None => high = middle,
            }
        }
        while low < self.written && !out.is_done() {
            let at = low % self.entries;
            let count = BATCH_ENTRIES.min(self.written - low).min(self.entries - at);
            let mut bytes = vec![0; usize::try_from(count * ENTRY_BYTES).unwrap_or(0)];
            if file.read_exact_at(&mut bytes, at * ENTRY_BYTES).is_err() {
                return;
            }
            for tag in bytes.chunks_exact(32).filter_map(decode) {
                out.add(tag);
            }
            low += count;
        }
    }

    fn entry(&self, file: &File, position: u64) -> Option<Tag> {
        let mut bytes = [0; 32];
        let at = position.checked_rem(self.entries)? * ENTRY_BYTES;
        file.read_exact_at(&mut bytes, at).ok()?;
        decode(&bytes)
    }
}

/// Writes a closed tag to its place in the ring.
pub(super) fn write(file: &File, position: u64, entries: u64, tag: Tag) -> io::Result<()> {
    let Some(place) = position.checked_rem(entries) else { return Ok(()) };
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(&tag.start.to_le_bytes());
    bytes.extend_from_slice(&tag.end.to_le_bytes());
    bytes.extend_from_slice(&tag.at_unix_ns.unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(&code(tag.source).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    file.write_all_at(step::part(&bytes), place * ENTRY_BYTES)
}

fn decode(bytes: &[u8]) -> Option<Tag> {
    let (body, crc) = bytes.split_at_checked(28)?;
    if crc32c::crc32c(body).to_le_bytes() != crc {
        return None;
    }
    let mut fields = Fields(body);
    let (start, end) = (fields.u64(), fields.u64());
    let at_unix_ns = Some(i64::from_le_bytes(fields.array()));
    let source = source_of(fields.u32())?;
    (start < end).then_some(Tag { start, end, source, at_unix_ns })
}

fn tag_of(open: OpenTag, end: u64) -> Tag {
    let source = source_of(open.source).unwrap_or(Source::Mixed);
    Tag { start: open.start, end, source, at_unix_ns: Some(open.at_unix_ns) }
}

const fn code(source: Source) -> u32 {
    match source {
        Source::Mixed => 0,
        Source::Stdout => 1,
        Source::Stderr => 2,
    }
}

const fn source_of(code: u32) -> Option<Source> {
    match code {
        1 => Some(Source::Stdout),
        2 => Some(Source::Stderr),
        _ => None,
    }
}

/// Tags joined to a cover without a break.
struct Cover {
    tags: Vec<Tag>,
    /// Up to where it is covered.
    from: u64,
    to: u64,
    max: usize,
}

impl Cover {
    fn is_done(&self) -> bool {
        self.from >= self.to || self.tags.len() >= self.max
    }

    /// Adds what a tag covers of the rest; nobody knows what lies before it.
    fn add(&mut self, tag: Tag) {
        if tag.end <= self.from || tag.start >= self.to {
            return;
        }
        self.fill(tag.start);
        if !self.is_done() {
            let end = tag.end.min(self.to);
            self.tags.push(Tag { start: self.from, end, ..tag });
            self.from = end;
        }
    }

    fn fill(&mut self, end: u64) {
        let end = end.min(self.to);
        if self.from < end && !self.is_done() {
            let (start, source) = (self.from, Source::Mixed);
            self.tags.push(Tag { start, end, source, at_unix_ns: None });
            self.from = end;
        }
    }
}
