//! The readers of untrusted bytes, one call each, for the fuzzer. Each says in a word what it made
//! of them; none may panic, whatever they are.

use crate::log::fuzzing as log;
use crate::spool::fuzzing as spool;
use crate::{closed, manifest};

/// A line of the commit log.
#[must_use]
pub fn log_line(line: &[u8]) -> String {
    log::line(line)
}

/// The file of a manifest.
#[must_use]
pub fn manifest(bytes: &[u8]) -> String {
    match closed::only_line(bytes) {
        Ok(line) => manifest::read_line(line).err().unwrap_or_else(|| "a manifest".to_owned()),
        Err(what) => what.to_owned(),
    }
}

/// The index of a spool.
#[must_use]
pub fn index(bytes: &[u8]) -> String {
    spool::index(bytes)
}

/// Makes the checksum of a closed line fit again, so that what is behind it is reached.
pub fn close_again(line: &mut Vec<u8>) {
    let body = line.windows(8).rposition(|window| window == b",\"crc\":\"").unwrap_or(line.len());
    line.truncate(body);
    closed::close(line);
}

/// Makes the checksums of an index fit again.
pub fn seal_index_again(bytes: &mut [u8]) {
    spool::seal_again(bytes);
}
