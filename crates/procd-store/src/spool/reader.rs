//! Reads a spool while it is written, or after.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::table::{Piece, Shared, segment_path};
use super::{Bounds, RawPage, Sealed, SpoolStatus, Tag, restore, seal};
use crate::StoreError;

/// How often a read starts anew because everything it read was recycled meanwhile.
const TRIES: u32 = 4;

/// Reads a spool. Clones share one table.
#[derive(Debug, Clone)]
pub struct SpoolReader {
    pub(super) shared: Arc<Shared>,
}

impl SpoolReader {
    /// Opens a spool that nobody writes. No folder: an empty spool. Sealed, or written in this
    /// boot: as its index says. Of another boot: what its CRCs prove, the rest is a gap.
    /// # Errors
    /// [`StoreError::SpoolCorrupt`] for missing, overlapping, foreign or unreadable files,
    /// [`StoreError::Io`] when the folder cannot be read.
    pub fn open(dir: &Path, boot_id: Uuid) -> Result<Self, StoreError> {
        restore::open(dir, boot_id).map(|shared| Self { shared: Arc::new(shared) })
    }

    /// Which bytes there are on disk.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.shared.table().bounds()
    }

    /// How well they were kept.
    #[must_use]
    pub fn status(&self) -> SpoolStatus {
        let table = self.shared.table();
        SpoolStatus { degraded: table.head.degraded, lost_bytes: table.head.lost_bytes }
    }

    /// Whether it was sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.shared.table().head.sealed.is_some()
    }

    /// Up to `max` bytes from `from` on, without a break. Blocks.
    /// - `from`: bytes since the first byte ever written; what is not kept there is a gap.
    /// - no bytes: there are none behind `from`; the page is then at the total.
    /// # Errors
    /// [`StoreError::Io`] when a file cannot be read; [`StoreError::SpoolCorrupt`] when what an
    /// earlier daemon wrote is not there any more as it was.
    pub fn read(&self, from: u64, max: usize) -> Result<RawPage, StoreError> {
        for _ in 0..TRIES {
            let mut page = RawPage { asked: from, from, bytes: Vec::new() };
            let mut numbers = Vec::new();
            let Bounds { total, retained_from } = self.bounds();
            let left = total.saturating_sub(from.max(retained_from));
            page.bytes.reserve_exact(max.min(usize::try_from(left).unwrap_or(max)));
            self.collect(&mut page, &mut numbers, max)?;
            if numbers.is_empty() {
                return Ok(page);
            }
            // A segment is taken out of the table before it is overwritten, the oldest first:
            // what is still in it now was whole when it was read.
            let table = self.shared.table();
            let gone = numbers.iter().take_while(|(number, _)| !table.holds(*number));
            let dropped = gone.map(|(_, len)| len).sum::<usize>();
            drop(table);
            if dropped < page.bytes.len() {
                page.bytes.drain(..dropped);
                page.from += dropped as u64;
                return Ok(page);
            }
        }
        let from_now = self.bounds().retained_from.max(from);
        Ok(RawPage { asked: from, from: from_now, bytes: Vec::new() })
    }

    /// Reads pieces as long as they follow each other; notes how much came from which segment.
    fn collect(
        &self,
        page: &mut RawPage,
        numbers: &mut Vec<(u64, usize)>,
        max: usize,
    ) -> Result<(), StoreError> {
        while page.bytes.len() < max {
            let (piece, total) = {
                let table = self.shared.table();
                (table.find(page.next()), table.head.total)
            };
            let Some(piece) = piece else {
                if page.bytes.is_empty() {
                    page.from = total.max(page.asked);
                }
                return Ok(());
            };
            if page.bytes.is_empty() {
                page.from = piece.extent.cursor;
            } else if piece.extent.cursor != page.next() {
                return Ok(());
            }
            let wanted = usize::try_from(piece.extent.len).unwrap_or(usize::MAX);
            let len = wanted.min(max - page.bytes.len());
            self.read_piece(&piece, len, &mut page.bytes)?;
            numbers.push((piece.number, len));
        }
        Ok(())
    }

    fn read_piece(&self, piece: &Piece, len: usize, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let path = segment_path(&self.shared.dir, piece.number);
        if let Some(entry) = &piece.unproven {
            if !restore::crc_fits(&self.shared.dir, entry, entry.used, entry.crc)? {
                return Err(StoreError::spool_corrupt(&path, "its bytes are not what was written"));
            }
            self.shared.table().prove(piece.number);
        }
        let read = match &piece.file {
            Some(file) => read_exact_at(file, len, piece.extent.offset, out),
            None => File::open(&path)
                .and_then(|file| read_exact_at(&file, len, piece.extent.offset, out)),
        };
        match read {
            // Recycled between the look at the table and the open: zeros that are not kept.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && !self.shared.table().holds(piece.number) =>
            {
                out.resize(out.len() + len, 0);
                Ok(())
            }
            read => read.map_err(|error| StoreError::io("read", &path, error)),
        }
    }

    /// The tags from `from` to `to` without a break, at most `max` of them: the last one's end
    /// says how far they reach. Blocks when they are not all in memory.
    #[must_use]
    pub fn tags(&self, from: u64, to: u64, max: usize) -> Vec<Tag> {
        let (mut tags, total) = {
            let table = self.shared.table();
            (table.tags.clone(), table.head.total)
        };
        if tags.file.is_none() && tags.written > 0 {
            // Without the file its bytes read as mixed; bytes never suffer.
            tags.file = File::open(self.shared.dir.join("tags")).ok().map(Arc::new);
        }
        tags.read(from, to.min(total), max, total)
    }

    /// The same out of memory alone; `None` when it takes a look at the file.
    #[must_use]
    pub fn tags_in_memory(&self, from: u64, to: u64, max: usize) -> Option<Vec<Tag>> {
        let table = self.shared.table();
        let total = table.head.total;
        table.tags.covers(from, total).then(|| table.tags.read(from, to.min(total), max, total))
    }

    /// Seals what an earlier daemon left: see [`super::SpoolWriter::seal`]. Blocks.
    /// # Errors
    /// [`StoreError::Io`]; it can be tried again.
    pub fn seal(&self) -> Result<Sealed, StoreError> {
        seal::seal(self)
    }
}

/// Adds exactly `len` bytes to `out`, without filling their room first.
fn read_exact_at(file: &File, len: usize, offset: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let end = out.len() + len;
    out.reserve_exact(len);
    let mut at = offset;
    while out.len() < end {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(out), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // There may have been room for more than was asked for.
    out.truncate(end);
    Ok(())
}
