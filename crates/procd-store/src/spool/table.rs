//! What is where: the segments and holes of one spool, shared by its writer and its readers.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Bounds;
use super::index::{Head, Header, Hole, SegmentEntry};
use super::tags::TagTable;

/// What writer and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) header: Header,
    table: Mutex<Table>,
}

/// The state of a spool. The numbers move only after the writes they tell of have returned.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Total, bounds and flags as last written.
    pub(super) head: Head,
    /// Whether there is a folder with an index.
    pub(super) on_disk: bool,
    /// In the order of their numbers, without a break in these.
    pub(super) segments: VecDeque<Segment>,
    /// In order. One that begins where a segment's bytes end lies behind that segment.
    pub(super) holes: VecDeque<Hole>,
    pub(super) tags: TagTable,
    /// Segment files without a byte that counts, of an earlier daemon: they go at the seal.
    pub(super) strays: Vec<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) entry: SegmentEntry,
    /// Kept open while there may be something to sync; else opened by whoever reads.
    pub(super) file: Option<Arc<File>>,
    /// Whether its bytes are known to be what was written: of an earlier daemon's only once their
    /// CRC32C was looked at, which the first read does.
    pub(super) proven: bool,
}

/// Bytes that follow each other both as output and in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) cursor: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// An extent, or the rest of one, and where to read it.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) file: Option<Arc<File>>,
    pub(super) extent: Extent,
    /// The segment it is of, if that has still to be proven.
    pub(super) unproven: Option<SegmentEntry>,
}

impl Shared {
    pub(super) const fn new(dir: PathBuf, header: Header, table: Table) -> Self {
        Self { dir, header, table: Mutex::new(table) }
    }

    /// Held for a few moves in memory only.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of a segment.
pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.seg"))
}

impl Table {
    pub(super) const fn bounds(&self) -> Bounds {
        Bounds { total: self.head.total, retained_from: self.head.retained_from }
    }

    /// The extents of a segment, in order.
    pub(super) fn extents(&self, segment: &SegmentEntry) -> Vec<Extent> {
        let mut out = Vec::with_capacity(1);
        let mut rest = Extent { cursor: segment.start, offset: 0, len: segment.used };
        for hole in self.holes.iter().filter(|hole| hole.start >= segment.start) {
            let before = hole.start.saturating_sub(rest.cursor);
            if before >= rest.len {
                break;
            }
            if before > 0 {
                out.push(Extent { len: before, ..rest });
            }
            rest =
                Extent { cursor: hole.end, offset: rest.offset + before, len: rest.len - before };
        }
        if rest.len > 0 {
            out.push(rest);
        }
        out
    }

    /// The cursor behind the last byte of a segment.
    pub(super) fn end_of(&self, segment: &SegmentEntry) -> u64 {
        self.extents(segment).last().map_or(segment.start, |extent| extent.cursor + extent.len)
    }

    /// The first bytes at or behind `from` that are retained.
    pub(super) fn find(&self, from: u64) -> Option<Piece> {
        let from = from.max(self.head.retained_from);
        let behind = self.segments.partition_point(|segment| segment.entry.start <= from);
        for segment in self.segments.iter().skip(behind.saturating_sub(1)) {
            for extent in self.extents(&segment.entry) {
                if extent.cursor + extent.len > from {
                    let skipped = from.saturating_sub(extent.cursor);
                    let extent = Extent {
                        cursor: extent.cursor + skipped,
                        offset: extent.offset + skipped,
                        len: extent.len - skipped,
                    };
                    let number = segment.entry.number;
                    let unproven = (!segment.proven).then_some(segment.entry);
                    return Some(Piece { number, file: segment.file.clone(), extent, unproven });
                }
            }
        }
        None
    }

    /// The first byte kept at or behind `from`; the total if there is none.
    pub(super) fn first_kept(&self, from: u64) -> u64 {
        self.find(from).map_or(self.head.total, |piece| piece.extent.cursor)
    }

    /// The bytes of a segment are what was written.
    pub(super) fn prove(&mut self, number: u64) {
        let found = self.segments.iter_mut().find(|segment| segment.entry.number == number);
        if let Some(segment) = found {
            segment.proven = true;
        }
    }

    /// Whether the file with this number still holds what it held.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.segments.front().is_some_and(|front| front.entry.number <= number)
    }

    /// Forgets holes that lie before everything on disk.
    pub(super) fn prune_holes(&mut self) {
        let first = self.segments.front().map_or(self.head.total, |front| front.entry.start);
        while self.holes.front().is_some_and(|hole| hole.end <= first) {
            self.holes.pop_front();
        }
    }
}
