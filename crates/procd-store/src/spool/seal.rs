//! The seal: everything synced, the segments read-only, the retained bytes hashed.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Sealed;
use super::index::{IndexFile, TableImage};
use super::reader::SpoolReader;
use super::table::segment_path;
use crate::StoreError;
use crate::failpoint;

/// Bytes hashed at once.
const HASH_BYTES: usize = 256 * 1024;
const READ_ONLY: u32 = 0o400;

/// Seals a complete spool. Every step can be repeated.
pub(super) fn seal(reader: &SpoolReader) -> Result<Sealed, StoreError> {
    let dir = &reader.shared.dir;
    let (entries, mut strays, on_disk) = {
        let table = reader.shared.table();
        let entries: Vec<_> = table.segments.iter().map(|segment| segment.entry).collect();
        (entries, table.strays.clone(), table.on_disk)
    };
    for entry in entries {
        if entry.used == 0 {
            strays.push(entry.number);
        } else {
            freeze(&segment_path(dir, entry.number))?;
        }
    }
    for number in strays {
        remove(&segment_path(dir, number))?;
    }
    failpoint::hit("seal-before-index");
    let sha256 = hash(reader)?;
    if on_disk {
        write_index(reader, sha256)?;
        sync_if_there(&dir.join("tags"))?;
        sync_if_there(dir)?;
        failpoint::hit("seal-durable");
    }
    let mut table = reader.shared.table();
    for segment in &mut table.segments {
        segment.file = None;
    }
    table.tags.file = None;
    table.head.sealed = Some(sha256);
    let text = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Sealed { sha256: text, bounds: table.bounds(), lost_bytes: table.head.lost_bytes })
}

fn freeze(path: &Path) -> Result<(), StoreError> {
    let file = File::open(path).map_err(|error| StoreError::io("open", path, error))?;
    failpoint::fail("seal-before-segment-sync")
        .and_then(|()| file.sync_data())
        .map_err(|error| StoreError::io("sync", path, error))?;
    file.set_permissions(Permissions::from_mode(READ_ONLY))
        .map_err(|error| StoreError::io("make read-only", path, error))
}

/// Removes a segment without a byte that counts.
fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path, error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn hash(reader: &SpoolReader) -> Result<[u8; 32], StoreError> {
    let mut hash = Sha256::new();
    let mut cursor = reader.bounds().retained_from;
    loop {
        let page = reader.read(cursor, HASH_BYTES)?;
        if page.bytes.is_empty() {
            return Ok(hash.finalize().into());
        }
        hash.update(&page.bytes);
        cursor = page.next();
    }
}

fn write_index(reader: &SpoolReader, sha256: [u8; 32]) -> Result<(), StoreError> {
    let path = reader.shared.dir.join("index");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| StoreError::io("open", &path, error))?;
    let mut index = IndexFile::over(file, reader.shared.header);
    let mut image = TableImage::default();
    let head = {
        let mut table = reader.shared.table();
        image.rebuild(
            table.segments.iter().map(|segment| segment.entry),
            table.holes.iter().copied(),
        );
        table.head.sequence += 1;
        let mut head = table.head;
        head.sealed = Some(sha256);
        head.synced.total = head.total;
        head
    };
    index.write(&head, &image).map_err(|error| StoreError::io("write", &path, error))?;
    index.sync().map_err(|error| StoreError::io("sync", &path, error))
}

fn sync_if_there(path: &Path) -> Result<(), StoreError> {
    match File::open(path) {
        Ok(file) => file.sync_all().map_err(|error| StoreError::io("sync", path, error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("open", path, error)),
    }
}
