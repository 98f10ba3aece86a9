//! Reading the log back: each part in order, damage cut off or set aside, what a complete snapshot
//! supersedes left out.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::line::{self, LINE_START, Line};
use super::parts;
use super::record::LogRecord;
use crate::damage::Damage;
use crate::error::StoreError;
use crate::file::{self, Found};
use crate::folder::StateFolder;

/// A record with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// The number in its session.
    pub seq: u64,
    /// The record.
    pub record: LogRecord,
}

/// The log as it was found, in the order of its lines.
#[derive(Debug, Default)]
pub struct Replay {
    /// Every record that counts.
    pub records: Vec<Numbered>,
    /// What was damaged, and what was done about it.
    pub damage: Vec<Damage>,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes since the last snapshot.
    pub(super) grown_bytes: u64,
    /// Parts that may go after the next snapshot, oldest first.
    pub(super) parts: Vec<u64>,
    /// The highest number of a part.
    pub(super) highest_part: u64,
    /// The folder of the log.
    pub(super) path: PathBuf,
}

/// Reads and repairs all parts.
pub(super) fn read(folder: &StateFolder) -> Result<Replay, StoreError> {
    let path = folder.commit_path();
    let mut replay = Replay { path: path.clone(), ..Replay::default() };
    for number in list(folder, &mut replay)? {
        replay.highest_part = replay.highest_part.max(number);
        read_part(folder, number, &mut replay);
    }
    Ok(replay)
}

/// The numbers of the parts, in order; what else lies there is swept or set aside.
fn list(folder: &StateFolder, replay: &mut Replay) -> Result<Vec<u64>, StoreError> {
    let commit = folder.commit_path();
    let list = |source| StoreError::io("list", &commit, source);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(&commit).map_err(list)? {
        let entry = entry.map_err(list)?;
        let name = entry.file_name();
        let path = entry.path();
        if file::is_temporary(&name) {
            file::remove(&path).ok();
            continue;
        }
        let number = name.to_str().and_then(parts::number);
        match (number, file::look(&path)?) {
            (Some(number), Found::File) => numbers.push(number),
            (Some(number), Found::Folder | Found::Other) => {
                replay.highest_part = replay.highest_part.max(number);
                set_aside(folder, &path, "it is no regular file", replay);
            }
            (None, _) => set_aside(folder, &path, "it is no part of the log", replay),
            (Some(_), Found::Nothing) => {}
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn set_aside(folder: &StateFolder, path: &Path, reason: &str, replay: &mut Replay) {
    let moved = folder.quarantine(path, reason);
    replay.damage.push(Damage::new(folder.path(), path, reason, moved.err()));
}

fn read_part(folder: &StateFolder, number: u64, replay: &mut Replay) {
    let path = folder.commit_path().join(parts::name(number));
    let bytes = match read_file(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            // It may be readable another day: it stays, and no snapshot drops it.
            let reason = format!("left where it is: {error}");
            replay.damage.push(Damage::new(folder.path(), &path, &reason, None));
            return;
        }
    };
    let part = Part::read(&bytes);
    replay.bytes += count(bytes.len());
    repair(folder, &path, &bytes, &part, replay);
    if let Some(snapshot_end) = part.snapshot_end
        && !part.is_damaged_before(snapshot_end)
    {
        // All before is in the snapshot: what a crash left of the older parts goes.
        replay.records.clear();
        replay.grown_bytes = 0;
        for older in replay.parts.drain(..) {
            file::remove(&folder.commit_path().join(parts::name(older))).ok();
        }
        replay.grown_bytes = count(bytes.len() - snapshot_end);
    } else {
        replay.grown_bytes += count(bytes.len());
    }
    replay.records.extend(part.records);
    if part.has_newer {
        let reason = "lines of a newer version are left where they are";
        replay.damage.push(Damage::new(folder.path(), &path, reason, None));
    } else {
        replay.parts.push(number);
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn read_file(path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut file: File = file::open_regular(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|source| StoreError::io("read", path, source))?;
    Ok(bytes)
}

/// Bytes that are no line: from, to, and what is wrong.
#[derive(Debug)]
struct Bad {
    from: usize,
    to: usize,
    what: String,
}

/// One part, read.
#[derive(Debug, Default)]
struct Part {
    records: Vec<Numbered>,
    bad: Vec<Bad>,
    /// Behind the last good line.
    good_end: usize,
    /// Behind the line that closes its snapshot.
    snapshot_end: Option<usize>,
    has_newer: bool,
}

impl Part {
    fn read(bytes: &[u8]) -> Self {
        let mut part = Self::default();
        let mut from = 0;
        while from < bytes.len() {
            let rest = bytes.get(from..).unwrap_or_default();
            let (line, to) = match rest.iter().position(|&byte| byte == b'\n') {
                Some(at) => (rest.get(..at), from + at + 1),
                None => (None, bytes.len()),
            };
            match line {
                Some(line) => part.take(line, rest.get(..to - from), from, to),
                None => part.take_damaged(rest, from, "it is not finished"),
            }
            from = to;
        }
        part
    }

    fn take(&mut self, line: &[u8], whole: Option<&[u8]>, from: usize, to: usize) {
        match line::decode(line) {
            Line::Bad(what) => self.take_damaged(whole.unwrap_or(line), from, &what),
            good @ (Line::Batch(_) | Line::Newer) => self.take_good(good, to),
        }
    }

    fn take_good(&mut self, line: Line, to: usize) {
        self.good_end = to;
        match line {
            Line::Batch(records) if records.is_empty() => self.snapshot_end = Some(to),
            Line::Batch(records) => self.records.extend(records),
            Line::Newer => self.has_newer = true,
            Line::Bad(_) => {}
        }
    }

    /// A damaged line feed joins lines: each piece that begins like a line and is whole counts.
    fn take_damaged(&mut self, bytes: &[u8], from: usize, what: &str) {
        let mut starts = vec![0];
        let inner = bytes.windows(LINE_START.len()).enumerate().skip(1);
        starts.extend(inner.filter(|(_, window)| *window == LINE_START).map(|(at, _)| at));
        starts.push(bytes.len());
        for pair in starts.windows(2) {
            if let &[start, end] = pair {
                self.take_piece(bytes.get(start..end).unwrap_or_default(), from + start, what);
            }
        }
    }

    fn take_piece(&mut self, piece: &[u8], from: usize, what: &str) {
        let to = from + piece.len();
        // Behind the line there is its line feed, or the byte it has become, or nothing.
        let without_end = piece.split_last().map_or(piece, |(_, line)| line);
        for line in [without_end, piece] {
            match line::decode(line) {
                Line::Bad(_) => {}
                good @ (Line::Batch(_) | Line::Newer) => return self.take_good(good, to),
            }
        }
        self.bad.push(Bad { from, to, what: what.to_owned() });
    }

    fn is_damaged_before(&self, end: usize) -> bool {
        self.bad.iter().any(|bad| bad.from < end)
    }
}

/// Cuts off what follows the last good line, and copies other bad lines aside.
fn repair(folder: &StateFolder, path: &Path, bytes: &[u8], part: &Part, replay: &mut Replay) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for bad in part.bad.iter().filter(|bad| bad.from < part.good_end) {
        let reason = format!("bytes {}..{} are no line: {}", bad.from, bad.to, bad.what);
        let copy = bytes.get(bad.from..bad.to).unwrap_or_default();
        let kept = folder.quarantine_copy(&format!("commit-{name}-{}", bad.from), copy, &reason);
        replay.damage.push(Damage::new(folder.path(), path, &reason, kept.err()));
    }
    let Some(first) = part.bad.iter().find(|bad| bad.from >= part.good_end) else {
        return;
    };
    let tail = bytes.get(part.good_end..).unwrap_or_default();
    let mut reason =
        format!("cut off {} bytes behind the last whole line: {}", tail.len(), first.what);
    // More than one write cut short is worth a look; without a copy it stays where it is.
    let trouble = if tail.contains(&b'\n') {
        let copy = format!("commit-{name}-{}", part.good_end);
        reason.push_str(", a copy is in quarantine");
        folder
            .quarantine_copy(&copy, tail, &reason)
            .and_then(|()| cut_off(path, part.good_end))
            .err()
    } else {
        cut_off(path, part.good_end).err()
    };
    replay.damage.push(Damage::new(folder.path(), path, &reason, trouble));
}

fn cut_off(path: &Path, len: usize) -> Result<(), StoreError> {
    let cut = OpenOptions::new().write(true).open(path).and_then(|file| {
        file.set_len(count(len))?;
        file.sync_all()
    });
    cut.map_err(|source| StoreError::io("cut off the end of", path, source))
}
