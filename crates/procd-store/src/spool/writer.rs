//! Provisional: keeps the bytes in memory until the segments are in.
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Bounds, RawPage, Sealed, Source, SpoolOptions, SpoolStatus, Tag};
use crate::StoreError;

/// The single writer of a spool.
#[derive(Debug)]
pub struct SpoolWriter {
    reader: SpoolReader,
}

/// Reads a spool.
#[derive(Debug, Clone, Default)]
pub struct SpoolReader {
    bytes: Arc<Mutex<Vec<u8>>>,
}

/// What a background sync has to sync.
#[derive(Debug)]
pub struct SyncBatch {
    files: Vec<Arc<File>>,
    mark: SyncMark,
}

/// Up to where a batch reaches.
#[derive(Debug, Clone, Copy)]
pub struct SyncMark {
    total: u64,
}

impl SyncBatch {
    /// Syncs. Blocks.
    /// # Errors
    /// The first error of a sync.
    pub fn run(&self) -> Result<SyncMark, std::io::Error> {
        self.files.iter().try_for_each(|file| file.sync_data())?;
        Ok(self.mark)
    }
}

impl SpoolWriter {
    /// A spool in `dir`, which is made with the first byte.
    #[must_use]
    pub fn create(_dir: PathBuf, _options: SpoolOptions) -> Self {
        Self { reader: SpoolReader::default() }
    }

    /// Adds a chunk.
    pub fn append(&mut self, chunk: &[u8], _source: Source, _at_unix_ns: i64) -> Bounds {
        let mut bytes = self.reader.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend_from_slice(chunk);
        Bounds { total: bytes.len() as u64, retained_from: 0 }
    }

    /// Which bytes there are.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.reader.bounds()
    }

    /// How well it keeps them.
    #[must_use]
    pub fn status(&self) -> SpoolStatus {
        SpoolStatus::default()
    }

    /// A reader that sees what is appended.
    #[must_use]
    pub fn reader(&self) -> SpoolReader {
        self.reader.clone()
    }

    /// What to sync, if anything was written since the last batch.
    pub fn sync_batch(&mut self) -> Option<SyncBatch> {
        None
    }

    /// A batch is on disk.
    pub fn mark_synced(&mut self, mark: SyncMark) {
        let _ = mark.total;
    }

    /// A batch could not be synced.
    pub fn sync_failed(&mut self, _error: &std::io::Error) {}

    /// Syncs, makes read-only, hashes. Blocks.
    /// # Errors
    /// [`StoreError::Io`].
    pub fn seal(self) -> Result<Sealed, StoreError> {
        self.reader.seal()
    }
}

impl SpoolReader {
    /// Opens a spool that nobody writes.
    /// # Errors
    /// [`StoreError::SpoolCorrupt`] for damage.
    pub fn open(_dir: &Path, _boot_id: Uuid) -> Result<Self, StoreError> {
        Ok(Self::default())
    }

    /// Which bytes there are.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Bounds { total: bytes.len() as u64, retained_from: 0 }
    }

    /// How well it keeps them.
    #[must_use]
    pub fn status(&self) -> SpoolStatus {
        SpoolStatus::default()
    }

    /// Up to `max` bytes from `from` on. Blocks.
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read(&self, from: u64, max: usize) -> Result<RawPage, StoreError> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        let page = bytes[at..].iter().take(max).copied().collect();
        Ok(RawPage { asked: from, from, bytes: page })
    }

    /// The tags from `from` to `to`, without a break. Blocks.
    /// # Errors
    /// [`StoreError::Io`].
    pub fn tags(&self, from: u64, to: u64) -> Result<Vec<Tag>, StoreError> {
        Ok(vec![Tag { start: from, end: to, source: Source::Mixed, at_unix_ns: None }])
    }

    /// Syncs, makes read-only, hashes what an earlier daemon left. Blocks.
    /// # Errors
    /// [`StoreError::Io`].
    pub fn seal(&self) -> Result<Sealed, StoreError> {
        let page = self.read(0, usize::MAX)?;
        let sha256 = Sha256::digest(&page.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Sealed { sha256, bounds: self.bounds(), lost_bytes: 0 })
    }
}
