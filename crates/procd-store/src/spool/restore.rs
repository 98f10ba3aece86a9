//! Opens the spool of an earlier daemon. In the same boot, or once sealed, the page cache and the
//! syncs vouch for what the index says. After a power loss only a CRC does.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uuid::Uuid;

use super::index::{self, Header, SegmentEntry, Slot};
use super::table::{Segment, Shared, Table, segment_path};
use super::tags;
use crate::StoreError;

/// Bytes of an index at most: far more than any ceiling takes.
const INDEX_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes checked at once.
const CHECK_BYTES: usize = 256 * 1024;

/// Opens the spool in `dir`.
pub(super) fn open(dir: &Path, boot_id: Uuid) -> Result<Shared, StoreError> {
    match std::fs::symlink_metadata(dir) {
        Ok(found) if !found.is_dir() => return corrupt(dir, "it is no folder"),
        Ok(_) | Err(_) => {}
    }
    let files = list(dir)?;
    let decoded = match read_index(dir)? {
        Some(bytes) => {
            if let Some(found) = index::newer(&bytes) {
                let path = dir.join("index");
                return Err(StoreError::Newer { path, found, known: index::known() });
            }
            index::decode(&bytes)
        }
        None => Err("there are segments without an index"),
    };
    let (header, slot) = match decoded {
        Ok((header, Some(slot))) => (header, slot),
        // Killed before the first byte counted: the index comes before the first segment.
        Ok(_) | Err(_) if files.is_empty() => return Ok(empty(dir)),
        Ok((_, None)) => return corrupt(dir, "no slot of the index is valid"),
        Err(what) => return corrupt(dir, what),
    };
    check_order(dir, &slot)?;
    let sealed = slot.head.sealed.is_some() && !slot.head.sync_failed;
    let mut table = if sealed || slot.head.boot_id == boot_id {
        check_files(dir, &slot, &files)?;
        table_of(header, slot)
    } else {
        prove(dir, header, slot)?
    };
    forget_recycled(&mut table);
    let is_stray = |number: &u64| !table.segments.iter().any(|s| s.entry.number == *number);
    table.strays = files.into_keys().filter(is_stray).collect();
    Ok(Shared::new(dir.to_owned(), header, table))
}

fn corrupt<T>(dir: &Path, what: &str) -> Result<T, StoreError> {
    Err(StoreError::spool_corrupt(dir, what))
}

fn empty(dir: &Path) -> Shared {
    let header = Header { ceiling: 0, segments_max: 0 };
    Shared::new(dir.to_owned(), header, Table::default())
}

/// Sizes of the segments by number. Anything that is not ours is foreign.
fn list(dir: &Path) -> Result<BTreeMap<u64, u64>, StoreError> {
    let failed = |error| StoreError::io("list", dir, error);
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut sizes = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // Of the entry itself: a symbolic link is foreign, wherever it leads.
        let meta = entry.metadata().map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let number = name.strip_suffix(".seg").and_then(|number| {
            number.parse::<u64>().ok().filter(|parsed| parsed.to_string() == number)
        });
        match number {
            _ if !meta.is_file() => return corrupt(dir, "a file in it is foreign"),
            Some(number) => {
                sizes.insert(number, meta.len());
            }
            None if name == "index" || name == "tags" => {}
            None => return corrupt(dir, "a file in it is foreign"),
        }
    }
    Ok(sizes)
}

fn read_index(dir: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let path = dir.join("index");
    let failed = |error| StoreError::io("read", &path, error);
    let meta = match std::fs::metadata(&path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if meta.len() > INDEX_BYTES_MAX {
        return corrupt(dir, "the index is too large");
    }
    std::fs::read(&path).map(Some).map_err(failed)
}

/// What no writer ever writes: overlaps, numbers with a break, bytes beyond the total.
fn check_order(dir: &Path, slot: &Slot) -> Result<(), StoreError> {
    let head = &slot.head;
    if head.retained_from > head.total {
        return corrupt(dir, "the index retains bytes beyond the total");
    }
    let mut behind = 0;
    for hole in &slot.holes {
        if hole.start < behind || hole.end <= hole.start || hole.end > head.total {
            return corrupt(dir, "holes in the index overlap");
        }
        behind = hole.end;
    }
    let table = Table { holes: slot.holes.iter().copied().collect(), ..Table::default() };
    let (mut number, mut end) = (None, 0);
    for segment in &slot.segments {
        let follows =
            number.is_none_or(|number: u64| number.checked_add(1) == Some(segment.number));
        let fits = segment.used <= segment.capacity
            && segment.start.checked_add(segment.used).is_some_and(|end| end <= head.total);
        if !follows || !fits || segment.start < end {
            return corrupt(dir, "segments in the index overlap");
        }
        number = Some(segment.number);
        end = table.end_of(segment);
    }
    if end > head.total {
        return corrupt(dir, "segments in the index overlap");
    }
    Ok(())
}

/// Every segment that retains bytes is there with all of them, and nothing else is.
fn check_files(dir: &Path, slot: &Slot, files: &BTreeMap<u64, u64>) -> Result<(), StoreError> {
    let table = Table { holes: slot.holes.iter().copied().collect(), ..Table::default() };
    for segment in &slot.segments {
        let size = files.get(&segment.number).copied();
        let is_needed = segment.used > 0 && table.end_of(segment) > slot.head.retained_from;
        if is_needed && size.is_none_or(|size| size < segment.used) {
            return corrupt(dir, "a segment is missing or cut short");
        }
    }
    let first = slot.segments.first().map_or(0, |first| first.number);
    // The next one may have been made just before the end.
    let next = slot.segments.last().map_or(0, |last| last.number.saturating_add(1));
    if files.keys().any(|number| !(first..=next).contains(number)) {
        return corrupt(dir, "a segment in it is foreign");
    }
    Ok(())
}

fn table_of(header: Header, slot: Slot) -> Table {
    let Slot { head, segments, holes } = slot;
    let mut table = Table { head, on_disk: true, holes: holes.into(), ..Table::default() };
    table.segments =
        segments.into_iter().map(|entry| Segment { entry, file: None, proven: false }).collect();
    table.tags.open = head.open_tag;
    table.tags.written = head.tags_written;
    table.tags.entries = tags::ring_entries(header.ceiling);
    table
}

/// Takes out the oldest segments of which nothing is retained: the file of one may have been
/// renamed to be overwritten, and nothing written to it yet that counts.
fn forget_recycled(table: &mut Table) {
    let retained_from = table.head.retained_from;
    while let Some(front) = table.segments.front().map(|front| front.entry) {
        if front.used == 0 || table.end_of(&front) > retained_from {
            return;
        }
        table.segments.pop_front();
    }
}

/// What can be proven after a power loss: whole segments whose CRC fits and, of an open one that
/// was never recycled, the part that was synced. The rest is a gap.
fn prove(dir: &Path, header: Header, slot: Slot) -> Result<Table, StoreError> {
    let mut table = table_of(header, slot);
    let last = table.segments.back().map(|last| last.entry.number);
    let (synced, sealed) = (table.head.synced, table.head.sealed.is_some());
    let mut proven = VecDeque::new();
    for mut segment in std::mem::take(&mut table.segments) {
        let entry = &mut segment.entry;
        let is_whole = Some(entry.number) != last || entry.used == entry.capacity || sealed;
        if !(is_whole && crc_fits(dir, entry, entry.used, entry.crc)?) {
            let is_proven = entry.number == synced.segment
                && entry.generation == 0
                && synced.used <= entry.used
                && crc_fits(dir, entry, synced.used, synced.crc)?;
            (entry.used, entry.crc) = if is_proven { (synced.used, synced.crc) } else { (0, 0) };
            // Nothing is ever added to it.
            entry.capacity = entry.used;
        }
        segment.proven = true;
        proven.push_back(segment);
    }
    table.segments = proven;
    if let Some(last) = table.segments.back() {
        (table.head.open_used, table.head.open_crc) = (last.entry.used, last.entry.crc);
    }
    let within = table.head.total.saturating_sub(header.ceiling);
    table.head.retained_from = table.first_kept(within.max(table.head.retained_from));
    table.head.sync_failed = false;
    Ok(table)
}

/// Whether the first `used` bytes of a segment have this CRC32C. A missing or short file has not.
pub(super) fn crc_fits(
    dir: &Path,
    entry: &SegmentEntry,
    used: u64,
    crc: u32,
) -> Result<bool, StoreError> {
    let path = segment_path(dir, entry.number);
    let failed = |error| StoreError::io("read", &path, error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let (mut found, mut at) = (0, 0);
    let mut buffer = vec![0; CHECK_BYTES];
    while at < used {
        let len = CHECK_BYTES.min(usize::try_from(used - at).unwrap_or(CHECK_BYTES));
        let Some(part) = buffer.get_mut(..len) else { return Ok(false) };
        match file.read_exact_at(part, at) {
            Ok(()) => found = crc32c::crc32c_append(found, part),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        at += len as u64;
    }
    Ok(found == crc)
}
