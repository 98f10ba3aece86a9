//! The `index` file as bytes: header, two slots, and nothing else. The layout is told in
//! [`crate::spool`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::step;

const MAGIC: [u8; 8] = *b"procdspl";
const VERSION: u32 = 1;
/// Bytes of the header and the alignment of the slots: a torn disk sector harms one slot only.
const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 64;
const HEAD_BYTES: usize = 192;
const SEGMENT_BYTES: usize = 40;
const HOLE_BYTES: usize = 16;
/// Closed holes an index has room for, a count.
pub(super) const HOLES_MAX: usize = 64;
const NO_HOLE: u64 = u64::MAX;

const SEALED: u32 = 1;
const DEGRADED: u32 = 2;
const SYNC_FAILED: u32 = 4;

/// What never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) ceiling: u64,
    pub(super) segments_max: u32,
}

/// What every slot says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) sequence: u64,
    pub(super) total: u64,
    pub(super) retained_from: u64,
    pub(super) lost_bytes: u64,
    pub(super) boot_id: Uuid,
    /// SHA-256 of the retained bytes.
    pub(super) sealed: Option<[u8; 32]>,
    pub(super) degraded: bool,
    pub(super) sync_failed: bool,
    /// Bytes and CRC32C of the last segment; they win over its entry.
    pub(super) open_used: u64,
    pub(super) open_crc: u32,
    /// Where the hole begins that reaches to the total.
    pub(super) open_hole: Option<u64>,
    pub(super) synced: Synced,
    pub(super) tags_written: u64,
    pub(super) open_tag: Option<OpenTag>,
}

/// A slot as read: the head, and the table that goes with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) head: Head,
    pub(super) segments: Vec<SegmentEntry>,
    pub(super) holes: Vec<Hole>,
}

/// The table of a slot as bytes, kept until it changes: most writes change the head alone.
#[derive(Debug, Clone, Default)]
pub(super) struct TableImage {
    bytes: Vec<u8>,
    segments: u32,
    holes: u32,
    crc: u32,
    version: u64,
}

impl TableImage {
    /// Takes over what changed.
    pub(super) fn rebuild(
        &mut self,
        segments: impl Iterator<Item = SegmentEntry>,
        holes: impl Iterator<Item = Hole>,
    ) {
        self.bytes.clear();
        (self.segments, self.holes) = (0, 0);
        for entry in segments {
            entry.encode(&mut self.bytes);
            self.segments += 1;
        }
        for hole in holes {
            put_u64(&mut self.bytes, hole.start);
            put_u64(&mut self.bytes, hole.end);
            self.holes += 1;
        }
        self.crc = crc32c::crc32c(&self.bytes);
        self.version += 1;
    }
}

/// Up to where a spool is known to be on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Synced {
    pub(super) total: u64,
    /// The segment that was open then, what was in it and the CRC32C of that.
    pub(super) segment: u64,
    pub(super) used: u64,
    pub(super) crc: u32,
}

/// The tag that still grows: it ends at the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenTag {
    pub(super) start: u64,
    pub(super) at_unix_ns: i64,
    /// 1 = stdout, 2 = stderr.
    pub(super) source: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentEntry {
    pub(super) number: u64,
    /// The cursor of its first byte.
    pub(super) start: u64,
    pub(super) used: u64,
    pub(super) capacity: u64,
    /// CRC32C of its `used` bytes.
    pub(super) crc: u32,
    /// How often its file was recycled before.
    pub(super) generation: u32,
}

/// Bytes that were counted but could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Header {
    const fn slot_bytes(self) -> usize {
        let table = self.segments_max as usize * SEGMENT_BYTES + HOLES_MAX * HOLE_BYTES;
        (HEAD_BYTES + table).next_multiple_of(SECTOR_BYTES)
    }

    /// Bytes of the whole file.
    pub(super) const fn file_bytes(self) -> u64 {
        (SECTOR_BYTES + 2 * self.slot_bytes()) as u64
    }

    const fn slot_offset(self, sequence: u64) -> u64 {
        let odd = sequence % 2 == 1;
        (SECTOR_BYTES + if odd { self.slot_bytes() } else { 0 }) as u64
    }

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SECTOR_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.segments_max.to_le_bytes());
        out.extend_from_slice(&self.ceiling.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out.resize(SECTOR_BYTES, 0);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let header = bytes.get(..HEADER_BYTES).ok_or("the index is cut short")?;
        let (body, crc) = header.split_at(HEADER_BYTES - 4);
        let mut fields = Fields(body);
        if fields.array::<8>() != MAGIC || crc32c::crc32c(body).to_le_bytes() != crc {
            return Err("the index has no valid header");
        }
        if fields.u32() != VERSION {
            return Err("the index has a version this build does not know");
        }
        let segments_max = fields.u32();
        Ok(Self { segments_max, ceiling: fields.u64() })
    }
}

/// An index file that is being written.
#[derive(Debug)]
pub(super) struct IndexFile {
    header: Header,
    /// None while the spool is quiet.
    file: Option<Arc<File>>,
    /// The version of the table that each slot holds.
    tables: [u64; 2],
    buffer: Vec<u8>,
}

impl IndexFile {
    /// Fills a new file, so that later writes never need room, with one valid slot.
    pub(super) fn create(file: File, header: Header, head: &Head) -> io::Result<Self> {
        let mut bytes = header.encode();
        bytes.resize(usize::try_from(header.file_bytes()).unwrap_or(usize::MAX), 0);
        file.write_all_at(step::part(&bytes), 0)?;
        let mut index = Self::over(file, header);
        index.write(head, &TableImage::default())?;
        Ok(index)
    }

    /// Takes over a file whose slots are as they are.
    pub(super) fn over(file: File, header: Header) -> Self {
        let file = Some(file.into());
        Self { header, file, tables: [u64::MAX; 2], buffer: Vec::new() }
    }

    /// The file, if it is open.
    pub(super) const fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    /// Keeps what it knows of the file, and no descriptor.
    pub(super) fn close(&mut self) {
        self.file = None;
        self.buffer = Vec::new();
    }

    /// Opens the file of this folder again if it was closed.
    pub(super) fn wake(&mut self, dir: &Path) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(Arc::new(open_again(&dir.join("index"))?));
        }
        Ok(())
    }

    /// Syncs what was written through it.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// Writes the slot whose turn it is by one pwrite: its head, and the table if the one there
    /// is another.
    pub(super) fn write(&mut self, head: &Head, table: &TableImage) -> io::Result<()> {
        self.buffer.clear();
        head.encode(table, &mut self.buffer);
        let odd = usize::from(head.sequence % 2 == 1);
        if self.tables[odd] != table.version {
            self.buffer.extend_from_slice(&table.bytes);
        }
        self.tables[odd] = u64::MAX;
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        file.write_all_at(step::part(&self.buffer), self.header.slot_offset(head.sequence))?;
        self.tables[odd] = table.version;
        Ok(())
    }
}

/// A file of a spool that was closed while nothing was written.
pub(super) fn open_again(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The version of the indexes that this build writes.
pub(super) fn known() -> u64 {
    u64::from(VERSION)
}

/// The version of an index that a newer build wrote.
pub(super) fn newer(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let version = u32::from_le_bytes(rest.first_chunk::<4>().copied()?);
    let (body, crc) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 4);
    (version > VERSION && crc32c::crc32c(body).to_le_bytes() == *crc).then_some(u64::from(version))
}

/// Puts every checksum right, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub(super) fn seal_again(bytes: &mut [u8]) {
    fn put(part: Option<&mut [u8]>) {
        let Some((body, crc)) = part.and_then(|part| part.split_last_chunk_mut::<4>()) else {
            return;
        };
        *crc = crc32c::crc32c(body).to_le_bytes();
    }
    put(bytes.get_mut(..HEADER_BYTES));
    let Ok(header) = Header::decode(bytes) else { return };
    for turn in [0, 1] {
        let Ok(at) = usize::try_from(header.slot_offset(turn)) else { continue };
        put(at.checked_add(HEAD_BYTES).and_then(|end| bytes.get_mut(at..end)));
    }
}

/// Header and newest valid slot; no slot when none is valid.
pub(super) fn decode(bytes: &[u8]) -> Result<(Header, Option<Slot>), &'static str> {
    let header = Header::decode(bytes)?;
    let newest = [0, 1]
        .into_iter()
        .filter_map(|turn| {
            let at = usize::try_from(header.slot_offset(turn)).ok()?;
            let slot = Slot::decode(bytes.get(at..at + header.slot_bytes())?, header)?;
            (slot.head.sequence % 2 == turn).then_some(slot)
        })
        .max_by_key(|slot| slot.head.sequence);
    Ok((header, newest))
}

impl Head {
    fn encode(&self, table: &TableImage, out: &mut Vec<u8>) {
        let tag = self.open_tag.unwrap_or(OpenTag { start: 0, at_unix_ns: 0, source: 0 });
        for value in [
            self.sequence,
            self.total,
            self.retained_from,
            self.lost_bytes,
            self.open_used,
            self.open_hole.unwrap_or(NO_HOLE),
            self.synced.total,
            self.synced.segment,
            self.synced.used,
            self.tags_written,
            tag.start,
        ] {
            put_u64(out, value);
        }
        out.extend_from_slice(&tag.at_unix_ns.to_le_bytes());
        let flags = u32::from(self.sealed.is_some()) * SEALED
            + u32::from(self.degraded) * DEGRADED
            + u32::from(self.sync_failed) * SYNC_FAILED;
        for value in [
            tag.source,
            flags,
            table.segments,
            table.holes,
            self.open_crc,
            self.synced.crc,
            table.crc,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(self.boot_id.as_bytes());
        out.extend_from_slice(&self.sealed.unwrap_or_default());
        out.resize(HEAD_BYTES - 4, 0);
        out.extend_from_slice(&crc32c::crc32c(out).to_le_bytes());
    }

    /// The head, and count of segments, count of holes and CRC32C of its table.
    fn decode(body: &[u8]) -> (Self, [u32; 3]) {
        let mut fields = Fields(body);
        let mut head = Self {
            sequence: fields.u64(),
            total: fields.u64(),
            retained_from: fields.u64(),
            lost_bytes: fields.u64(),
            open_used: fields.u64(),
            open_hole: Some(fields.u64()).filter(|&start| start != NO_HOLE),
            ..Self::default()
        };
        head.synced.total = fields.u64();
        head.synced.segment = fields.u64();
        head.synced.used = fields.u64();
        head.tags_written = fields.u64();
        let (start, at_unix_ns) = (fields.u64(), i64::from_le_bytes(fields.array()));
        let source = fields.u32();
        head.open_tag = (source != 0).then_some(OpenTag { start, at_unix_ns, source });
        let flags = fields.u32();
        let (segments, holes) = (fields.u32(), fields.u32());
        head.open_crc = fields.u32();
        head.synced.crc = fields.u32();
        let table_crc = fields.u32();
        head.boot_id = Uuid::from_bytes(fields.array());
        let sha256 = fields.array();
        head.sealed = (flags & SEALED != 0).then_some(sha256);
        head.degraded = flags & DEGRADED != 0;
        head.sync_failed = flags & SYNC_FAILED != 0;
        (head, [segments, holes, table_crc])
    }
}

impl Slot {
    fn decode(bytes: &[u8], header: Header) -> Option<Self> {
        let (head, table) = bytes.split_at_checked(HEAD_BYTES)?;
        let (body, crc) = head.split_at(HEAD_BYTES - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return None;
        }
        let (head, [segments, holes, table_crc]) = Head::decode(body);
        let (segments, holes) = (segments as usize, holes as usize);
        if segments > header.segments_max as usize || holes > HOLES_MAX {
            return None;
        }
        let table = table.get(..segments * SEGMENT_BYTES + holes * HOLE_BYTES)?;
        if crc32c::crc32c(table) != table_crc {
            return None;
        }
        let mut fields = Fields(table);
        let mut segments: Vec<_> =
            (0..segments).map(|_| SegmentEntry::decode(&mut fields)).collect();
        let holes = (0..holes).map(|_| Hole { start: fields.u64(), end: fields.u64() }).collect();
        if let Some(last) = segments.last_mut() {
            last.used = head.open_used;
            last.crc = head.open_crc;
        }
        Some(Self { head, segments, holes })
    }
}

impl SegmentEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.number, self.start, self.used, self.capacity] {
            put_u64(out, value);
        }
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Self {
        Self {
            number: fields.u64(),
            start: fields.u64(),
            used: fields.u64(),
            capacity: fields.u64(),
            crc: fields.u32(),
            generation: fields.u32(),
        }
    }
}

/// Little-endian fields, one after the other. Past the end they read as zero: whoever decodes has
/// checked the length.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}
