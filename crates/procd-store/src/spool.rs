//! The durable, bounded tail of one process's output.
//!
//! It knows no process: it is given chunks with a source and a time, and pages are taken from it.
//!
//! # Format on disk, version 1
//!
//! A folder of its own with `<n>.seg`, `index` and, where streams are told apart, `tags`. Numbers
//! are little endian; every CRC is CRC32C.
//!
//! **`<n>.seg`**: raw bytes of the output, nothing else; at most clamp(ceiling / 8, 64 KiB, 8 MiB)
//! each, and all together at most the ceiling and one segment. Numbers count up without a break.
//! When nothing in the oldest is retained any more it is renamed to the next number and
//! overwritten from its start without truncation: what lies behind `used` is stale.
//!
//! **`index`**: a header and two slots, each at a multiple of 512 bytes, filled when it is made.
//! After each write to a segment one slot is written by one `pwrite`, in turn; the valid one with
//! the higher sequence counts. A slot that was torn was never counted. Most writes change the
//! head of a slot alone; its table is written with it when it differs.
//!
//! | header, at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `procdspl` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | segments_max: segment entries a slot has room for |
//! | 16 | 8 | ceiling, bytes |
//! | 60 | 4 | CRC of bytes 0..60 |
//!
//! Slot 0 begins at 512, slot 1 right behind it; a slot has 192 bytes of head, room for
//! segments_max entries of 40 bytes and 64 holes of 16, rounded up to 512. A slot is written when
//! its sequence is even (0) or odd (1).
//!
//! | head, at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | sequence |
//! | 8 | 8 | total: bytes ever counted |
//! | 16 | 8 | retained_from |
//! | 24 | 8 | bytes lost to holes |
//! | 32 | 8 | used bytes of the last segment (its entry may be older) |
//! | 40 | 8 | start of the hole that reaches to the total; all ones: none |
//! | 48 | 8, 8, 8 | synced: total; the segment open then; its used bytes |
//! | 72 | 8 | tags ever written to the ring |
//! | 80 | 8, 8 | the tag that still grows: first cursor; time, ns since 1970 |
//! | 96 | 4 | its source: 0 no such tag, 1 stdout, 2 stderr |
//! | 100 | 4 | flags: 1 sealed, 2 degraded, 4 a sync failed (nothing is trusted without its CRC) |
//! | 104 | 4, 4 | segments and holes in the table |
//! | 112 | 4, 4, 4 | CRC of the last segment's used bytes; of the synced part; of the table |
//! | 124 | 16 | boot id |
//! | 140 | 32 | SHA-256 of the retained bytes, once sealed |
//! | 188 | 4 | CRC of bytes 0..188 |
//!
//! The table: segment entries {number 8, first cursor 8, used 8, capacity 8, CRC of the used bytes
//! 4, generation 4: how often the file was recycled before}, then closed holes {first cursor 8,
//! cursor behind 8}. The bytes of a segment follow each other in its file; a hole that begins
//! inside its range moves the cursors of what comes after it.
//!
//! **`tags`**: a ring of ceiling / 8 / 32 entries {first cursor 8, cursor behind 8, time 8, source
//! 4, CRC of the 28 bytes before 4}; the n-th tag ever written is at n modulo the number of
//! entries. Chunks of one source that arrive within 10 ms of
//! the first of them share a tag.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::index;

    /// Makes the checksums of an index fit again.
    pub(crate) fn seal_again(bytes: &mut [u8]) {
        index::seal_again(bytes);
    }

    /// What an index is.
    pub(crate) fn index(bytes: &[u8]) -> String {
        match index::decode(bytes) {
            Ok((_, Some(slot))) => {
                let (segments, holes) = (slot.segments.len().min(9), slot.holes.len().min(9));
                format!("{segments} segments, {holes} holes, sealed {}", slot.head.sealed.is_some())
            }
            Ok((_, None)) => "no slot".to_owned(),
            Err(what) => what.to_owned(),
        }
    }
}
mod index;
mod reader;
mod restore;
mod seal;
mod step;
mod table;
mod tags;
#[cfg(test)]
mod tests;
mod writer;

use uuid::Uuid;

use crate::budget::Budget;
pub use reader::SpoolReader;
pub use writer::{SpoolWriter, SyncBatch, SyncMark, segment_bytes};

/// Where a chunk came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The command's stdout.
    Stdout,
    /// The command's stderr.
    Stderr,
    /// One stream for both, or nobody knows any more: there is no tag.
    Mixed,
}

/// Which bytes there are. Cursors count from the first byte ever written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes ever written.
    pub total: u64,
    /// The first byte still kept: max(total - ceiling, first byte kept).
    pub retained_from: u64,
}

/// How a spool is made.
#[derive(Debug, Clone)]
pub struct SpoolOptions {
    /// Bytes retained at most.
    pub ceiling: u64,
    /// The boot in which it is written.
    pub boot_id: Uuid,
    /// The limit it shares with the other spools of running processes.
    pub budget: Budget,
}

/// How well a spool keeps what it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Whether something cannot be written or synced right now.
    pub degraded: bool,
    /// Bytes that could not be kept on disk.
    pub lost_bytes: u64,
}

/// One stretch of bytes. `asked <= from`; what lies between them is a gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawPage {
    /// The cursor asked for.
    pub asked: u64,
    /// Where the bytes really begin.
    pub from: u64,
    /// The bytes, without a break. A page ends before the next gap.
    pub bytes: Vec<u8>,
}

impl RawPage {
    /// The cursor behind the last byte.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    /// Bytes between the cursor asked for and the first one returned.
    #[must_use]
    pub const fn gap_bytes(&self) -> u64 {
        self.from - self.asked
    }
}

/// Source and time of one stretch of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The cursor of its first byte.
    pub start: u64,
    /// The cursor behind its last byte.
    pub end: u64,
    /// Where it came from.
    pub source: Source,
    /// When its first byte was read, nanoseconds since 1970; `None` when nobody knows any more.
    pub at_unix_ns: Option<i64>,
}

/// A spool that was synced and made read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Hex SHA-256 of the retained bytes, gaps left out.
    pub sha256: String,
    /// Which bytes there are, for good.
    pub bounds: Bounds,
    /// Bytes that could not be kept on disk.
    pub lost_bytes: u64,
}
