//! Writes and syncs that fail: nothing confirmed is lost, nothing is confirmed that is not there.

use std::collections::BTreeMap;
use std::sync::Mutex as StdMutex;

use super::*;
use crate::log::parts::{Disk, Part};

/// What the disk does next.
#[derive(Debug, Default)]
struct State {
    /// Synced bytes and unsynced ones of each part.
    parts: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    fail_appends: u32,
    fail_syncs: u32,
    fail_creates: u32,
    syncs: u32,
    /// Whether a failing part takes room with it that a ballast would give.
    is_full: bool,
    has_ballast: bool,
}

/// A disk in memory that fails on demand.
#[derive(Debug, Clone, Default)]
struct Fake(Arc<StdMutex<State>>);

impl Fake {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    /// All that a power loss would leave, in the order of the parts.
    fn durable(&self) -> Vec<u8> {
        self.with(|state| state.parts.values().flat_map(|(synced, _)| synced.clone()).collect())
    }
}

fn trouble(operation: &'static str, kind: std::io::ErrorKind) -> StoreError {
    StoreError::Io { operation, path: "fake".into(), source: kind.into() }
}

fn take(count: &mut u32) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}

impl Disk for Fake {
    fn create(&mut self, number: u64) -> Result<Box<dyn Part>, StoreError> {
        self.with(|state| {
            if take(&mut state.fail_creates) || state.is_full {
                return Err(trouble("create", std::io::ErrorKind::StorageFull));
            }
            assert!(state.parts.insert(number, Default::default()).is_none());
            Ok(())
        })?;
        Ok(Box::new(FakePart { disk: self.clone(), number }))
    }

    fn remove(&mut self, number: u64) -> Result<(), StoreError> {
        self.with(|state| state.parts.remove(&number));
        Ok(())
    }

    fn make_room(&mut self) {
        self.with(|state| {
            if std::mem::take(&mut state.has_ballast) {
                state.is_full = false;
            }
        });
    }

    fn keep_room(&mut self) {
        self.with(|state| state.has_ballast |= !state.is_full);
    }
}

#[derive(Debug)]
struct FakePart {
    disk: Fake,
    number: u64,
}

impl Part for FakePart {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.disk.with(|state| {
            let fails = take(&mut state.fail_appends) || state.is_full;
            let (_, unsynced) = state.parts.get_mut(&self.number).unwrap();
            if fails {
                unsynced.extend_from_slice(&bytes[..bytes.len() / 2]);
                return Err(trouble("write", std::io::ErrorKind::StorageFull));
            }
            unsynced.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.disk.with(|state| {
            state.syncs += 1;
            let fails = take(&mut state.fail_syncs);
            let (synced, unsynced) = state.parts.get_mut(&self.number).unwrap();
            // A failed sync loses the data; the next one of this file would succeed without it.
            let written = std::mem::take(unsynced);
            if fails {
                return Err(trouble("sync", std::io::ErrorKind::Other));
            }
            synced.extend(written);
            Ok(())
        })
    }
}

fn log_on(disk: &Fake) -> CommitLog {
    CommitLog::start(Box::new(disk.clone()), Index::default(), &Replay::default()).unwrap()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines
        .flat_map(|line| match line::decode(line) {
            line::Line::Batch(records) => records.iter().map(|held| held.seq).collect(),
            line::Line::Bad(_) | line::Line::Newer => Vec::new(),
        })
        .collect()
}

fn one(number: u32) -> Vec<LogRecord> {
    vec![LogRecord::process(&starting(0, number))]
}

#[test]
fn after_a_failed_sync_or_write_all_unconfirmed_goes_to_a_new_part() {
    for which in 0..2 {
        let disk = Fake::default();
        let log = log_on(&disk);
        commit(&log, one(0));
        disk.with(|state| if which == 0 { state.fail_syncs = 1 } else { state.fail_appends = 1 });
        commit(&log, one(1));
        assert!(log.is_writable());
        assert_eq!(log.failures(), 1);
        commit(&log, one(2));
        drop(log);
        assert_eq!(numbers(&disk.durable()), vec![1, 2, 3]);
        let parts: Vec<u64> = disk.with(|state| state.parts.keys().copied().collect());
        assert_eq!(parts, vec![1, 2]);
    }
}

#[test]
fn while_writing_fails_batches_are_told_kept_and_written_in_order_when_it_works_again() {
    let disk = Fake::default();
    let log = log_on(&disk);
    commit(&log, one(0));
    disk.with(|state| state.fail_syncs = 4);
    for number in 1..=2 {
        let (done, wait) = answer();
        log.submit(one(number), done);
        let error = wait().unwrap_err();
        assert!(matches!(error, CommitError::NotDurable { .. }), "{error:?}");
        assert!(!log.is_writable());
    }
    assert_eq!(numbers(&disk.durable()), vec![1]);
    // The barrier is answered when all before it is durable, or at the next failure.
    loop {
        let (done, wait) = answer();
        log.submit(vec![], done);
        if wait().is_ok() {
            break;
        }
    }
    assert!(log.is_writable());
    assert_eq!(numbers(&disk.durable()), vec![1, 2, 3]);
    let parts = disk.with(|state| state.parts.len());
    assert_eq!(parts, 2, "parts in which nothing was confirmed are gone");
}

#[test]
fn a_full_disk_costs_the_ballast_first() {
    let disk = Fake::default();
    let log = log_on(&disk);
    commit(&log, one(0));
    disk.with(|state| {
        assert!(state.has_ballast);
        state.is_full = true;
    });
    commit(&log, one(1));
    assert!(log.is_writable());
    disk.with(|state| {
        assert!(!state.has_ballast);
        state.is_full = true;
    });
    let (done, wait) = answer();
    log.submit(one(2), done);
    assert!(matches!(wait(), Err(CommitError::NotDurable { .. })));
    disk.with(|state| state.is_full = false);
    commit(&log, one(3));
    disk.with(|state| assert!(state.has_ballast));
    assert_eq!(numbers(&disk.durable()), vec![1, 2, 3, 4]);
}

#[test]
fn a_failed_snapshot_keeps_the_older_parts_and_appends_to_none_of_them() {
    let disk = Fake::default();
    let log = log_on(&disk);
    commit(&log, one(0));
    disk.with(|state| state.fail_syncs = 1);
    let (done, wait) = answer();
    log.start_part(vec![(1, one(0).remove(0))], done);
    assert!(matches!(wait(), Err(CommitError::NotDurable { .. })));
    assert!(log.is_writable());
    commit(&log, one(1));
    let parts: Vec<u64> = disk.with(|state| state.parts.keys().copied().collect());
    assert_eq!(parts, vec![1, 3]);
    let (done, wait) = answer();
    log.start_part(vec![(1, one(0).remove(0)), (2, one(1).remove(0))], done);
    wait().unwrap();
    assert_eq!(numbers(&disk.durable()), vec![1, 2]);
    assert_eq!(disk.with(|state| state.parts.len()), 1);
}

#[test]
fn batches_in_flight_share_one_sync() {
    let disk = Fake::default();
    let log = log_on(&disk);
    commit(&log, one(0));
    let before = disk.with(|state| state.syncs);
    // The disk's lock holds the committer in its first write while the others queue up.
    let (done, wait) = {
        let _held = disk.0.lock().unwrap();
        for number in 1..100 {
            log.submit(one(number), Box::new(|result| result.unwrap()));
        }
        answer()
    };
    log.submit(vec![], done);
    wait().unwrap();
    let syncs = disk.with(|state| state.syncs) - before;
    assert!((1..=3).contains(&syncs), "{syncs} syncs for 99 batches");
    assert_eq!(numbers(&disk.durable()).len(), 100);
}

#[test]
fn a_closed_log_tries_once_more_and_tells_the_truth() {
    let disk = Fake::default();
    let log = log_on(&disk);
    disk.with(|state| state.is_full = true);
    disk.with(|state| state.has_ballast = false);
    let (done, wait) = answer();
    log.submit(one(0), done);
    drop(log);
    assert!(wait().is_err());
    assert!(numbers(&disk.durable()).is_empty());
}

#[test]
fn a_batch_that_nobody_waits_for_shares_the_sync_of_the_next_one_or_is_flushed() {
    let disk = Fake::default();
    let log = log_on(&disk);
    let (done, lazy) = answer();
    log.submit_lazily(one(1), done);
    let (done, wait) = answer();
    log.submit(one(2), done);
    lazy().unwrap();
    wait().unwrap();
    assert_eq!(disk.with(|state| state.syncs), 1, "both in one");
    assert_eq!(numbers(&disk.durable()), [1, 2], "in the order of submission");
    let (done, lazy) = answer();
    log.submit_lazily(one(3), done);
    log.flush();
    lazy().unwrap();
    assert_eq!(numbers(&disk.durable()), [1, 2, 3]);
    // Without either it is written at the end.
    let (done, lazy) = answer();
    log.submit_lazily(one(4), done);
    drop(log);
    lazy().unwrap();
    assert_eq!(numbers(&disk.durable()), [1, 2, 3, 4]);
}
