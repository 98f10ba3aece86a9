//! The durable, bounded tail of one process's output.
//!
//! It knows no process: it is given chunks with a source and a time, and pages are taken from it.

mod writer;

use uuid::Uuid;

use crate::budget::Budget;
pub use writer::{SpoolReader, SpoolWriter, SyncBatch, SyncMark};

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
