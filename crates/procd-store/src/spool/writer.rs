//! The single writer of a spool: segment first, index second, and only then do bytes count.

mod sync;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use sync::{SyncBatch, SyncMark};

use super::index::{
    HOLES_MAX, Head, Header, Hole, IndexFile, SegmentEntry, TableImage, open_again,
};
use super::reader::SpoolReader;
use super::table::{Segment, Shared, Table, segment_path};
use super::{Bounds, Sealed, Source, SpoolOptions, SpoolStatus, seal, step, tags};
use crate::StoreError;
use crate::budget::Share;
use crate::failpoint;

const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
const SEGMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// After a failed write none is tried for so long, by the time stamps of the chunks, nanoseconds.
const RETRY_NS: u64 = 100_000_000;
/// What a disk that was full has to have free before it is written again.
const ROOM_BYTES: u64 = 64 * 1024;
/// Segments beyond those that a ceiling takes: of a full disk, closed before they were full.
const SEGMENTS_SPARE: u64 = 8;
/// Segments that a spool may have whatever the daemon's budget says: with one it would have to
/// give up everything at each turn.
const SEGMENTS_MIN: usize = 2;

/// The single writer.
#[derive(Debug)]
pub struct SpoolWriter {
    shared: Arc<Shared>,
    segment_bytes: u64,
    /// Bytes retained: the ceiling, or less while the daemon's budget is used up.
    ceiling_now: u64,
    share: Share,
    index: Option<IndexFile>,
    image: TableImage,
    image_is_old: bool,
    /// What the next index write will say.
    head: Head,
    /// The file of the last segment.
    open: Option<OpenSegment>,
    failed: Option<Failed>,
    index_failed: bool,
    sync_fails: bool,
    /// Total of the newest batch handed out.
    batched: u64,
    failure: Option<StoreError>,
}

/// The last write that failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    /// The time stamp of its chunk.
    at_unix_ns: i64,
    /// That was for want of room.
    is_full: bool,
}

#[derive(Debug)]
struct OpenSegment {
    /// None while the spool is quiet.
    file: Option<Arc<File>>,
    capacity: u64,
}

/// Segments of a ceiling, bytes. Source: spec, output, *Spool*.
#[must_use]
pub fn segment_bytes(ceiling: u64) -> u64 {
    (ceiling / 8).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

impl SpoolWriter {
    /// A spool in `dir`. Makes nothing before the first byte.
    #[must_use]
    pub fn create(dir: PathBuf, options: SpoolOptions) -> Self {
        let ceiling = options.ceiling.max(1);
        let segment_bytes = segment_bytes(ceiling);
        let segments_max = ceiling / segment_bytes + 2 + SEGMENTS_SPARE;
        let header =
            Header { ceiling, segments_max: u32::try_from(segments_max).unwrap_or(u32::MAX) };
        let mut table = Table::default();
        table.tags.entries = tags::ring_entries(ceiling);
        Self {
            shared: Arc::new(Shared::new(dir, header, table)),
            segment_bytes,
            ceiling_now: ceiling,
            share: options.budget.share(),
            index: None,
            image: TableImage::default(),
            image_is_old: false,
            head: Head { boot_id: options.boot_id, ..Head::default() },
            open: None,
            failed: None,
            index_failed: false,
            sync_fails: false,
            batched: 0,
            failure: None,
        }
    }

    /// Adds a chunk; all of it counts when this returns. What the disk does not take becomes a
    /// hole, and writing is tried again with later chunks.
    /// - `at_unix_ns`: when it was read, nanoseconds since 1970.
    pub fn append(&mut self, chunk: &[u8], source: Source, at_unix_ns: i64) -> Bounds {
        if chunk.is_empty() {
            return self.bounds();
        }
        self.tag(source, at_unix_ns);
        let before = self.head.total;
        if self.may_write(at_unix_ns) {
            self.failed = None;
            if let Err(error) = self.store(chunk) {
                self.failed = Some(Failed { at_unix_ns, is_full: error.is_no_room() });
                self.failure = Some(error);
            }
        }
        self.lose(before + chunk.len() as u64);
        self.commit();
        self.bounds()
    }

    /// Counts what was not stored up to `total` as a hole.
    fn lose(&mut self, total: u64) {
        let lost = total.saturating_sub(self.head.total);
        if lost > 0 {
            self.head.open_hole.get_or_insert(self.head.total);
            self.head.total = total;
            self.head.lost_bytes += lost;
        }
    }

    /// The first of the newest bytes that the disk did not take, if there are such.
    #[must_use]
    pub const fn unsaved_from(&self) -> Option<u64> {
        self.head.open_hole
    }

    /// Tries once more to store the end of the output, of which the disk took nothing.
    /// - `from`: where `bytes` begin; they reach to the total.
    /// # Errors
    /// [`StoreError::Io`]: the disk takes no more; what it took is kept.
    pub fn save_rest(&mut self, from: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let total = from + bytes.len() as u64;
        let hole = self.head.open_hole.filter(|&hole| hole <= from && total == self.head.total);
        let Some(hole) = hole.filter(|_| !bytes.is_empty()) else { return Ok(()) };
        let is_full = self.failed.is_some_and(|failed| failed.is_full);
        if is_full && !self.has_room(ROOM_BYTES + bytes.len() as u64) {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            return Err(StoreError::io("write", &self.shared.dir, full));
        }
        self.head.open_hole = (hole < from).then_some(hole);
        self.head.total = from;
        self.head.lost_bytes -= bytes.len() as u64;
        // Of a spool without a byte nothing was retained.
        self.head.retained_from = self.head.retained_from.min(from);
        let stored = self.store(bytes);
        self.lose(total);
        self.commit();
        stored
    }

    /// Which bytes there are on disk.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        Bounds { total: self.head.total, retained_from: self.head.retained_from }
    }

    /// How well it keeps them.
    #[must_use]
    pub const fn status(&self) -> SpoolStatus {
        SpoolStatus { degraded: self.head.degraded, lost_bytes: self.head.lost_bytes }
    }

    /// The newest error that was not taken yet, for a log.
    pub const fn take_failure(&mut self) -> Option<StoreError> {
        self.failure.take()
    }

    /// A reader that sees what is appended.
    #[must_use]
    pub fn reader(&self) -> SpoolReader {
        SpoolReader { shared: Arc::clone(&self.shared) }
    }

    /// Seals: everything is synced, the segments are made read-only, the retained bytes hashed.
    /// Also without a single byte. Blocks. On failure [`SpoolReader::seal`] tries it again.
    /// # Errors
    /// [`StoreError::Io`].
    pub fn seal(self) -> Result<Sealed, StoreError> {
        seal::seal(&self.reader())
    }

    /// Closes the tag that cannot grow and opens one for what comes.
    fn tag(&mut self, source: Source, at_unix_ns: i64) {
        let total = self.head.total;
        let mut table = self.shared.table();
        if let Some(closed) = table.tags.close_for(source, at_unix_ns, total) {
            let (written, entries) = (table.tags.written, table.tags.entries);
            let file = table.tags.file.clone();
            drop(table);
            // A tag that cannot be written is forgotten in time; bytes never suffer.
            let stored = self.write_tag(file, written, entries, closed);
            table = self.shared.table();
            if let Some(file) = stored {
                table.tags.file = Some(file);
                table.tags.written += 1;
            }
            table.tags.closed(closed);
        }
        table.tags.open(source, at_unix_ns, total);
        self.head.open_tag = table.tags.open;
        self.head.tags_written = table.tags.written;
    }

    fn write_tag(
        &mut self,
        file: Option<Arc<File>>,
        written: u64,
        entries: u64,
        tag: super::Tag,
    ) -> Option<Arc<File>> {
        if self.index.is_none() || entries == 0 {
            return None;
        }
        let path = || self.shared.dir.join("tags");
        let file = match file {
            Some(file) => file,
            None if written > 0 => Arc::new(open_again(&path()).ok()?),
            None => Arc::new(new_file(&path()).ok()?),
        };
        if written < entries {
            self.share.grow(tags::ENTRY_BYTES);
        }
        tags::write(&file, written, entries, tag).ok()?;
        step::passed(&self.shared);
        Some(file)
    }

    fn may_write(&mut self, at_unix_ns: i64) -> bool {
        let Some(failed) = self.failed else { return true };
        // The distance, whichever way the wall clock was stepped.
        if at_unix_ns.abs_diff(failed.at_unix_ns) < RETRY_NS {
            return false;
        }
        if failed.is_full && !self.has_room(ROOM_BYTES) {
            self.failed = Some(Failed { at_unix_ns, ..failed });
            return false;
        }
        true
    }

    /// Whether the disk has so many bytes free for output.
    fn has_room(&self, bytes: u64) -> bool {
        // The folder may not exist yet.
        let found = self.shared.dir.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
        let bytes = bytes + self.share.reserved_bytes();
        found.is_none_or(|found| found.f_bavail.saturating_mul(found.f_frsize) >= bytes)
    }

    /// Writes as much as it can; `head.total` says how much that was.
    fn store(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.ensure_index()?;
        self.make_room_for_hole()?;
        let mut rest = chunk;
        let mut turned_early = false;
        while !rest.is_empty() {
            let Some(open) = &self.open else {
                self.turn()?;
                continue;
            };
            let room = open.capacity.saturating_sub(self.head.open_used);
            if room == 0 {
                self.turn()?;
                continue;
            }
            let Some(file) = open.file.clone() else {
                self.wake()?;
                continue;
            };
            let len = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let part = rest.get(..len).unwrap_or(rest);
            match write_once(&file, part, self.head.open_used) {
                Ok(written) => {
                    step::passed(&self.shared);
                    let (done, later) = rest.split_at(written);
                    self.stored(done);
                    rest = later;
                }
                Err(error) => {
                    let error = StoreError::io("write", &self.shared.dir, error);
                    // The blocks of a segment that nobody needs any more are as good as room.
                    if turned_early || !error.is_no_room() || !self.close_early() {
                        return Err(error);
                    }
                    turned_early = true;
                }
            }
        }
        Ok(())
    }

    fn stored(&mut self, bytes: &[u8]) {
        if let Some(start) = self.head.open_hole.take() {
            let hole = Hole { start, end: self.head.total };
            self.shared.table().holes.push_back(hole);
            self.image_is_old = true;
        }
        self.head.open_crc = crc32c::crc32c_append(self.head.open_crc, bytes);
        self.head.open_used += bytes.len() as u64;
        self.head.total += bytes.len() as u64;
    }

    /// Opens the last segment again, which was closed while nothing came.
    fn wake(&mut self) -> Result<(), StoreError> {
        let mut table = self.shared.table();
        let (Some(open), Some(last)) = (&mut self.open, table.segments.back_mut()) else {
            return Ok(());
        };
        let path = segment_path(&self.shared.dir, last.entry.number);
        let file = open_again(&path).map_err(|error| StoreError::io("open", &path, error))?;
        let file = Arc::new(file);
        open.file = Some(Arc::clone(&file));
        last.file = Some(file);
        Ok(())
    }

    fn ensure_index(&mut self) -> Result<(), StoreError> {
        let dir = &self.shared.dir;
        if let Some(index) = &mut self.index {
            return index
                .wake(dir)
                .map_err(|error| StoreError::io("open", &dir.join("index"), error));
        }
        failpoint::hit("spool-before-create");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| StoreError::io("create", dir, error))?;
        let path = dir.join("index");
        let index = new_file(&path)
            .and_then(|file| IndexFile::create(file, self.shared.header, &self.head))
            .map_err(|error| StoreError::io("create", &path, error))?;
        step::passed(&self.shared);
        self.index = Some(index);
        self.share.grow(self.shared.header.file_bytes());
        self.shared.table().on_disk = true;
        Ok(())
    }

    /// A hole can only be closed if the index can tell of it. When it cannot, the oldest segments
    /// have to leave the ceiling first, and old holes with them.
    fn make_room_for_hole(&mut self) -> Result<(), StoreError> {
        if self.head.open_hole.is_none() || self.shared.table().holes.len() < HOLES_MAX {
            return Ok(());
        }
        while self.close_early() {
            self.turn()?;
            if self.shared.table().holes.len() < HOLES_MAX {
                return Ok(());
            }
        }
        let full = io::Error::from(io::ErrorKind::StorageFull);
        Err(StoreError::io("tell of another hole in", &self.shared.dir, full))
    }

    /// Closes the last segment before it is full, if the oldest one can be recycled in its place.
    fn close_early(&mut self) -> bool {
        let mut table = self.shared.table();
        let Some(front) = table.segments.front().map(|front| front.entry) else { return false };
        if table.segments.len() < 2 || table.end_of(&front) > self.head.retained_from {
            return false;
        }
        if let (Some(last), Some(open)) = (table.segments.back_mut(), &mut self.open) {
            last.entry.capacity = self.head.open_used;
            open.capacity = self.head.open_used;
        }
        self.image_is_old = true;
        true
    }

    /// The last segment is full, or there is none: takes the next one. Commits first, so that
    /// what is overwritten now was not retained by the index on disk either.
    fn turn(&mut self) -> Result<(), StoreError> {
        self.commit();
        let table = self.shared.table();
        let count = table.segments.len();
        let held = table.segments.iter().map(|segment| segment.entry.capacity).sum::<u64>();
        let front_end = table.segments.front().map(|front| table.end_of(&front.entry));
        drop(table);
        let allowed = (self.shared.header.ceiling + self.segment_bytes).saturating_sub(held);
        let capacity = allowed.min(self.segment_bytes);
        match front_end {
            Some(end) if end <= self.head.retained_from => self.recycle(),
            Some(end) if !self.may_grow(count, capacity) => {
                self.ceiling_now = self.head.total - end;
                self.commit();
                self.recycle()
            }
            Some(_) => {
                self.ceiling_now = self.shared.header.ceiling;
                self.add(capacity)
            }
            None => {
                self.share.grow(capacity);
                self.add(capacity)
            }
        }
    }

    /// Whether the index and the daemon's budget have room for one more segment.
    fn may_grow(&mut self, count: usize, capacity: u64) -> bool {
        if capacity == 0 || count >= self.shared.header.segments_max as usize {
            return false;
        }
        if count < SEGMENTS_MIN {
            self.share.grow(capacity);
            return true;
        }
        self.share.try_grow(capacity)
    }

    /// A new file behind the last one. Its capacity has been taken from the budget.
    fn add(&mut self, capacity: u64) -> Result<(), StoreError> {
        let number = self.shared.table().segments.back().map_or(0, |last| last.entry.number + 1);
        let path = segment_path(&self.shared.dir, number);
        let file = match new_file(&path) {
            Ok(file) => file,
            Err(error) => {
                self.share.shrink(capacity);
                return Err(StoreError::io("create", &path, error));
            }
        };
        step::passed(&self.shared);
        self.push(file, SegmentEntry { number, capacity, ..self.entry() });
        Ok(())
    }

    /// The oldest file, renamed to the next number and overwritten from its start.
    fn recycle(&mut self) -> Result<(), StoreError> {
        let mut table = self.shared.table();
        let Some(old) = table.segments.pop_front() else { return Ok(()) };
        let last = table.segments.back().map_or(old.entry.number, |last| last.entry.number);
        let held = table.segments.iter().map(|segment| segment.entry.capacity).sum::<u64>();
        drop(table);
        let from = segment_path(&self.shared.dir, old.entry.number);
        let to = segment_path(&self.shared.dir, last + 1);
        let renamed = std::fs::rename(&from, &to).and_then(|()| match &old.file {
            Some(file) => Ok(Arc::clone(file)),
            None => OpenOptions::new().read(true).write(true).open(&to).map(Arc::new),
        });
        let file = match renamed {
            Ok(file) => file,
            Err(error) => {
                self.shared.table().segments.push_front(old);
                return Err(StoreError::io("recycle", &from, error));
            }
        };
        step::passed(&self.shared);
        let allowed = (self.shared.header.ceiling + self.segment_bytes).saturating_sub(held);
        let entry = SegmentEntry {
            number: last + 1,
            capacity: allowed.min(self.segment_bytes),
            generation: old.entry.generation.saturating_add(1),
            ..self.entry()
        };
        self.push(file, entry);
        Ok(())
    }

    /// An empty segment that begins here.
    const fn entry(&self) -> SegmentEntry {
        SegmentEntry {
            number: 0,
            start: self.head.total,
            used: 0,
            capacity: 0,
            crc: 0,
            generation: 0,
        }
    }

    fn push(&mut self, file: impl Into<Arc<File>>, entry: SegmentEntry) {
        let file = file.into();
        self.open = Some(OpenSegment { file: Some(Arc::clone(&file)), capacity: entry.capacity });
        (self.head.open_used, self.head.open_crc) = (0, 0);
        let mut table = self.shared.table();
        table.segments.push_back(Segment { entry, file: Some(file), proven: true });
        table.prune_holes();
        self.image_is_old = true;
    }

    /// Writes the index and then lets the readers see what it says.
    fn commit(&mut self) {
        self.head.degraded = self.head.open_hole.is_some() || self.index_failed || self.sync_fails;
        self.move_retained();
        if self.image_is_old {
            self.image_is_old = false;
            let mut table = self.shared.table();
            if let Some(last) = table.segments.back_mut() {
                (last.entry.used, last.entry.crc) = (self.head.open_used, self.head.open_crc);
            }
            self.image.rebuild(
                table.segments.iter().map(|segment| segment.entry),
                table.holes.iter().copied(),
            );
        }
        if let Some(index) = &mut self.index {
            self.head.sequence += 1;
            failpoint::hit("spool-before-index");
            let woken = index.wake(&self.shared.dir);
            let written = woken.and_then(|()| index.write(&self.head, &self.image));
            step::passed(&self.shared);
            self.index_failed = written.is_err();
            if let Err(error) = written {
                self.head.degraded = true;
                self.failure = Some(StoreError::io("write", &self.shared.dir, error));
            }
        }
        let mut table = self.shared.table();
        table.head = self.head;
        if let Some(last) = table.segments.back_mut() {
            (last.entry.used, last.entry.crc) = (self.head.open_used, self.head.open_crc);
        }
    }

    /// `retained_from` = max(total - ceiling, first byte kept). It never goes back.
    fn move_retained(&mut self) {
        let head = &mut self.head;
        let within = head.total.saturating_sub(self.ceiling_now);
        head.retained_from = head.retained_from.max(within);
        let table = self.shared.table();
        for hole in &table.holes {
            if (hole.start..hole.end).contains(&head.retained_from) {
                head.retained_from = hole.end;
            }
        }
        if head.open_hole.is_some_and(|start| start <= head.retained_from) {
            head.retained_from = head.total;
        }
    }
}

fn write_once(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    loop {
        failpoint::fail("spool-before-write")?;
        match file.write_at(step::part(bytes), offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A file of ours alone, empty. The folder is ours, so what is there was left by a failed try.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}
