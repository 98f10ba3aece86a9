//! The background sync of a spool that is being written: what has to be synced, and what that
//! proves.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::SpoolWriter;
use crate::StoreError;
use crate::failpoint;
use crate::spool::index::Synced;

/// What a background sync has to sync: taken from a writer, run anywhere, and given back as a mark.
#[derive(Debug)]
pub struct SyncBatch {
    files: Vec<Arc<File>>,
    dir: PathBuf,
    mark: SyncMark,
}

/// Up to where a batch reaches.
#[derive(Debug, Clone, Copy)]
pub struct SyncMark(Synced);

impl SyncBatch {
    /// Syncs. Blocks.
    /// # Errors
    /// The first error of a sync.
    pub fn run(&self) -> io::Result<SyncMark> {
        failpoint::fail("spool-before-sync")?;
        self.files.iter().try_for_each(|file| file.sync_data())?;
        File::open(&self.dir)?.sync_all()?;
        Ok(self.mark)
    }
}

impl SpoolWriter {
    /// What to sync, if anything was appended since the last batch.
    pub fn sync_batch(&mut self) -> Option<SyncBatch> {
        // Not open although something came: it could not be opened again, and the next append tries.
        let index = self.index.as_ref()?.file()?;
        if self.batched == self.head.total {
            return None;
        }
        self.batched = self.head.total;
        let table = self.shared.table();
        let segments = table.segments.iter().filter_map(|segment| segment.file.clone());
        let files = segments.chain(table.tags.file.clone()).chain([Arc::clone(index)]);
        let mark = SyncMark(Synced {
            total: self.head.total,
            segment: table.segments.back().map_or(0, |last| last.entry.number),
            used: self.head.open_used,
            crc: self.head.open_crc,
        });
        Some(SyncBatch { files: files.collect(), dir: self.shared.dir.clone(), mark })
    }

    /// A batch is on the disk. When nothing came since, no file stays open until something does.
    pub fn mark_synced(&mut self, mark: SyncMark) {
        self.sync_fails = false;
        if mark.0.total >= self.head.synced.total {
            self.head.synced = mark.0;
        }
        let mut table = self.shared.table();
        for segment in &mut table.segments {
            if segment.entry.number < mark.0.segment {
                segment.file = None;
            }
        }
        drop(table);
        self.commit();
        if self.head.total == mark.0.total && !self.index_failed {
            self.close_files();
        }
    }

    /// A quiet spool keeps no descriptor: there may be thousands of them.
    fn close_files(&mut self) {
        if let Some(open) = &mut self.open {
            open.file = None;
        }
        if let Some(index) = &mut self.index {
            index.close();
        }
        let mut table = self.shared.table();
        table.tags.file = None;
        for segment in &mut table.segments {
            segment.file = None;
        }
    }

    /// A batch could not be synced: degraded until one is. What was in it is never trusted again
    /// without its CRC, since the system may have dropped it.
    pub fn sync_failed(&mut self, error: &io::Error) {
        self.sync_fails = true;
        self.head.sync_failed = true;
        let again = match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        self.failure = Some(StoreError::io("sync", &self.shared.dir, again));
        self.commit();
    }
}
