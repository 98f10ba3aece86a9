//! The single writer of a spool: segment first, index second, and only then do bytes count.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{HOLES_MAX, Head, Header, Hole, IndexFile, SegmentEntry, Synced, TableImage};
use super::reader::SpoolReader;
use super::table::{Segment, Shared, Table, segment_path};
use super::{Bounds, Sealed, Source, SpoolOptions, SpoolStatus, seal, tags};
use crate::StoreError;
use crate::budget::Share;
use crate::failpoint;

const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
const SEGMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// After a failed write none is tried for so long, by the time stamps of the chunks, nanoseconds.
const RETRY_NS: u64 = 100_000_000;
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
    /// When a write failed last, by the time stamp of its chunk.
    failed_at: Option<i64>,
    index_failed: bool,
    sync_fails: bool,
    /// Total of the newest batch handed out.
    batched: u64,
    failure: Option<StoreError>,
}

#[derive(Debug)]
struct OpenSegment {
    file: Arc<File>,
    capacity: u64,
}

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
            failed_at: None,
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
            self.failed_at = None;
            if let Err(error) = self.store(chunk) {
                self.failed_at = Some(at_unix_ns);
                self.failure = Some(error);
            }
        }
        let stored = self.head.total - before;
        let lost = (chunk.len() as u64).saturating_sub(stored);
        if lost > 0 {
            self.head.open_hole.get_or_insert(self.head.total);
            self.head.total += lost;
            self.head.lost_bytes += lost;
        }
        self.commit();
        self.bounds()
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

    /// What to sync, if anything was appended since the last batch.
    pub fn sync_batch(&mut self) -> Option<SyncBatch> {
        let index = self.index.as_ref()?;
        if self.batched == self.head.total {
            return None;
        }
        self.batched = self.head.total;
        let table = self.shared.table();
        let segments = table.segments.iter().filter_map(|segment| segment.file.clone());
        let files = segments.chain(table.tags.file.clone()).chain([Arc::clone(index.file())]);
        let mark = SyncMark(Synced {
            total: self.head.total,
            segment: table.segments.back().map_or(0, |last| last.entry.number),
            used: self.head.open_used,
            crc: self.head.open_crc,
        });
        Some(SyncBatch { files: files.collect(), dir: self.shared.dir.clone(), mark })
    }

    /// A batch is on the disk.
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
        let file = match file {
            Some(file) => file,
            None => Arc::new(new_file(&self.shared.dir.join("tags")).ok()?),
        };
        if written < entries {
            self.share.grow(tags::ENTRY_BYTES);
        }
        tags::write(&file, written, entries, tag).ok()?;
        Some(file)
    }

    fn may_write(&self, at_unix_ns: i64) -> bool {
        // The distance, whichever way the wall clock was stepped.
        self.failed_at.is_none_or(|failed_at| at_unix_ns.abs_diff(failed_at) >= RETRY_NS)
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
            let len = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let part = rest.get(..len).unwrap_or(rest);
            match write_once(&open.file, part, self.head.open_used) {
                Ok(written) => {
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

    fn ensure_index(&mut self) -> Result<(), StoreError> {
        if self.index.is_some() {
            return Ok(());
        }
        let dir = &self.shared.dir;
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
        self.open = Some(OpenSegment { file: Arc::clone(&file), capacity: entry.capacity });
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
            let written = index.write(&self.head, &self.image);
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
        match file.write_at(bytes, offset) {
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
