//! The watch over every operation on the files of a spool, and the SIGKILL at any of them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;
use crate::spool::table::Shared;

thread_local! {
    /// Operations before the last one; none = no end.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// What the last one still writes.
    static CUT: Cell<usize> = const { Cell::new(0) };
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

struct Killed;

/// Runs `work` until `left` operations are done and the next one has written `cut` bytes.
/// `None` when it was killed.
pub(super) fn killed_after<T>(left: u32, cut: usize, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(left));
    CUT.set(cut);
    let ended = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(None);
    match ended {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Operations of this thread so far.
pub(super) fn seen() -> u64 {
    SEEN.get()
}

pub(in crate::spool) fn part(bytes: &[u8]) -> &[u8] {
    if LEFT.get() == Some(0) { &bytes[..CUT.get().min(bytes.len())] } else { bytes }
}

pub(in crate::spool) fn passed(spool: &Shared) {
    SEEN.set(SEEN.get() + 1);
    assert_bounded(spool);
    match LEFT.get() {
        Some(0) => resume_unwind(Box::new(Killed)),
        left => LEFT.set(left.map(|left| left - 1)),
    }
}

/// The ceiling, one segment, and the bounds of index and tags: after every operation.
fn assert_bounded(spool: &Shared) {
    let header = spool.header;
    let segments = header.ceiling + segment_bytes(header.ceiling);
    let all = segments + header.file_bytes() + header.ceiling / 8;
    let entries = std::fs::read_dir(&spool.dir).into_iter().flatten();
    let used: u64 = entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(used <= all && segment_bytes_on_disk(&spool.dir) <= segments, "{used} bytes of {all}");
}
