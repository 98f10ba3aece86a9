//! What the daemon may take at most, looked at all along.

use std::{fmt, fs, time::Duration};

use super::disk;
use crate::{Daemon, leaks};

/// Memory of the daemon, bytes: windows of 32 MiB, two clients that do not read with 8 MiB each, and the program itself.
const MEMORY_MAX: u64 = 256 << 20;
/// Descriptors of the daemon, a count: all that may run at once, with streams, segments and connections.
const DESCRIPTORS_MAX: u64 = 1000;
/// Threads of the daemon, a count: the runtime's limit for blocking work is below that.
const THREADS_MAX: u64 = 128;
/// Processes that live at once, a count.
const PROCESSES_MAX: u64 = 400;
/// Control groups of processes, a count.
const LEAVES_MAX: u64 = 200;
/// The daemon's own log of a whole run, bytes: of each kind of line 20 in 10 s.
const LOG_MAX: u64 = 128 << 20;
/// The commit log, bytes: a part grows 16 MiB beyond its snapshot, the older ones go once the new one stands.
const COMMIT_MAX: u64 = 64 << 20;
/// The state folder, bytes, at which a life ends. Nothing is evicted in a soak, so it is the load
/// that is bounded; the rest of the disk is for what comes between two looks.
const FOLDER_LADEN: u64 = 320 << 20;

/// From the launch to the first answer, milliseconds.
const RESTORE_MS_MAX: u64 = 60_000;

/// The most that was seen of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks(Vec<(&'static str, u64, u64)>);

impl Peaks {
    /// A daemon has come up.
    pub(super) fn restored(&mut self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        drop(self.seen("time to come up, ms", took, RESTORE_MS_MAX));
    }

    fn seen(&mut self, name: &'static str, value: u64, max: u64) -> Option<String> {
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, peak, _)) => *peak = value.max(*peak),
            None => self.0.push((name, value, max)),
        }
        (value > max).then(|| format!("{name}: {value}, at most {max}"))
    }

    /// Whether the state folder holds so much that these sessions have to go.
    pub(super) fn is_laden(&mut self, daemon: &Daemon) -> bool {
        let taken = disk::taken(&daemon.state());
        drop(self.seen("the state folder, bytes", taken, disk::BYTES));
        taken > FOLDER_LADEN
    }

    /// Looks at everything: what is over its bound.
    pub(super) fn look(&mut self, daemon: &Daemon) -> Vec<String> {
        let own = daemon.pid();
        let seen = [
            ("memory of the daemon, bytes", memory(own), MEMORY_MAX),
            ("descriptors of the daemon", descriptors(daemon), DESCRIPTORS_MAX),
            ("threads of the daemon", count(&format!("/proc/{own}/task")), THREADS_MAX),
            ("processes that live", leaks::everybody().len() as u64, PROCESSES_MAX),
            ("control groups", leaves(daemon), LEAVES_MAX),
            ("the daemon's log, bytes", disk::taken(&daemon.path().join("daemon.log")), LOG_MAX),
            ("the commit log, bytes", disk::taken(&daemon.state().join("commit")), COMMIT_MAX),
        ];
        seen.into_iter().filter_map(|(name, value, max)| self.seen(name, value, max)).collect()
    }
}

impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, peak, max) in &self.0 {
            writeln!(f, "{peak:>12}  {name} (at most {max})")?;
        }
        Ok(())
    }
}

fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

pub(super) fn descriptors(daemon: &Daemon) -> u64 {
    count(&format!("/proc/{}/fd", daemon.pid()))
}

fn count(path: &str) -> u64 {
    fs::read_dir(path).map_or(0, |entries| entries.count() as u64)
}

/// Control groups of processes, not of the daemon itself.
pub(super) fn leaves(daemon: &Daemon) -> u64 {
    let groups = leaks::groups(&daemon.state());
    let below = groups.iter().flat_map(|group| fs::read_dir(group.join("payload")));
    below.flatten().flatten().filter(|entry| entry.path().is_dir()).count() as u64
}
