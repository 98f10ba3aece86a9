//! The members of a tree: polite signals to each of them once, and counts.
//!
//! A pid from /proc is a candidate only: its pidfd is opened first, then its place in the tree is
//! checked again; a number that has become a stranger's fails the check, and one that becomes it
//! later is not what the pidfd names.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{procfs, raw};

/// Rounds of a polite signal: members born meanwhile are met in the next one.
const ROUNDS_MAX: usize = 8;
/// So many rounds in a row that find nobody new end it. One is not enough: a walk that has read
/// the subreaper's children, when a dying parent hands it one more, sees that child nowhere.
const QUIET_ROUNDS: usize = 2;

/// Processes that the kernel did not let us signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalRefusals {
    /// The last errno, 0 if there was none.
    pub errno: i32,
    /// How many refused.
    pub count: u32,
}

impl SignalRefusals {
    fn note(&mut self, result: std::io::Result<()>) {
        match result.map_err(|error| error.raw_os_error()) {
            // Gone already is an answer, not a failure.
            Ok(()) | Err(Some(libc::ESRCH)) => {}
            Err(errno) => {
                self.errno = errno.unwrap_or(libc::EIO);
                self.count += 1;
            }
        }
    }
}

/// A look at a tree, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveTree {
    /// Live pids.
    pub pids: Vec<i32>,
    /// CPU time of the live ones, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory of the live ones, bytes.
    pub memory_bytes: u64,
}

/// Signals the descendants of `root` and the process group of its unreaped child `leader`, each
/// process once; SIGTERM is followed by SIGCONT, so that a stopped one can obey.
pub(crate) fn signal_descendants(root: Pid, leader: Option<Pid>, signal: i32) -> SignalRefusals {
    let mut refusals = SignalRefusals::default();
    if let Some(group) = leader {
        // The leader is not reaped, so the group's number is its own.
        refusals.note(raw::kill(group, true, signal));
        if signal == libc::SIGTERM {
            refusals.note(raw::kill(group, true, libc::SIGCONT));
        }
    }
    let group = leader.map_or(0, |pid| pid.as_raw_nonzero().get());
    signal_each(
        signal,
        &mut refusals,
        |pid| procfs::descends_from(pid, root),
        || {
            let mut pids = procfs::descendants(root);
            pids.retain(|&pid| {
                procfs::stat(pid).is_some_and(|stat| !stat.zombie && stat.group != group)
            });
            pids
        },
    );
    refusals
}

/// Signals each of the members that `list` names and `belongs` confirms, once each, until no new
/// one is found.
pub(crate) fn signal_each(
    signal: i32,
    refusals: &mut SignalRefusals,
    belongs: impl Fn(Pid) -> bool,
    list: impl Fn() -> Vec<Pid>,
) {
    let mut met = HashSet::new();
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        let new: Vec<Pid> = list().into_iter().filter(|&pid| met.insert(pid)).collect();
        quiet = if new.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            return;
        }
        for pid in new {
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !belongs(pid) {
                continue;
            }
            refusals.note(raw::pidfd_signal(pidfd.as_fd(), signal));
            if signal == libc::SIGTERM {
                refusals.note(raw::pidfd_signal(pidfd.as_fd(), libc::SIGCONT));
            }
        }
    }
}

/// Live descendants of `root`, `leader` and zombies not counted.
pub(crate) fn count_descendants(root: Pid, leader: Pid) -> u32 {
    let live = procfs::descendants(root)
        .into_iter()
        .filter(|&pid| pid != leader)
        .filter(|&pid| procfs::stat(pid).is_some_and(|stat| !stat.zombie));
    u32::try_from(live.count()).unwrap_or(u32::MAX)
}

/// Whether there is a process of this number that has not ended.
#[must_use]
pub fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).and_then(procfs::stat).is_some_and(|stat| !stat.zombie)
}

/// The live descendants of the process `root`, which is the caller's own to name.
#[must_use]
pub fn live_tree(root: i32) -> LiveTree {
    let Some(root) = Pid::from_raw(root) else { return LiveTree::default() };
    sum(&procfs::descendants(root))
}

/// Adds up what /proc says of live processes.
pub(crate) fn sum(pids: &[Pid]) -> LiveTree {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut tree = LiveTree::default();
    for &pid in pids {
        let Some(stat) = procfs::stat(pid) else { continue };
        if stat.zombie {
            continue;
        }
        tree.pids.push(pid.as_raw_nonzero().get());
        tree.cpu_ms += stat.cpu_ticks.saturating_mul(1000) / ticks;
        tree.memory_bytes += stat.resident_pages.saturating_mul(page);
    }
    tree
}
