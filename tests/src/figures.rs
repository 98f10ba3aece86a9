//! What can be measured of a daemon and its files from outside.

use std::{fs, path::Path};

/// Bytes of all files below a folder, as long as they are.
#[must_use]
pub fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// Resident memory of a process, KiB.
/// # Panics
/// When there is no such process.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of KiB")
}

/// CPU time of a process with its threads so far, in ticks of 10 ms.
/// # Panics
/// When there is no such process.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    let (_, fields) = stat.rsplit_once(") ").expect("fields behind the name");
    // The times of the process itself in user and in kernel mode are the 14th and the 15th of all.
    fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Processes that have ended and were not reaped, of all that the test can see: in a namespace of its own.
#[must_use]
pub fn zombies() -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
        .count()
}

/// The sum that closes what the daemon writes, bit by bit: the few bytes of a test need no table.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
