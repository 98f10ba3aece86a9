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

/// What became of a signal to several processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signalled {
    /// How many got it.
    pub delivered: u32,
    /// How many the kernel did not let us signal.
    pub refused: u32,
    /// The last errno of those, 0 if there was none.
    pub errno: i32,
}

impl Signalled {
    fn note(&mut self, result: std::io::Result<()>) -> bool {
        match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => return true,
            // Gone already is an answer, not a failure.
            Err(Some(libc::ESRCH)) => {}
            Err(errno) => {
                self.errno = errno.unwrap_or(libc::EIO);
                self.refused += 1;
            }
        }
        false
    }
}

/// A signal for several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub signal: i32,
    /// Whether SIGCONT follows, so that a stopped process can obey.
    pub continued: bool,
}

impl Sent {
    /// A polite request: SIGTERM is followed by SIGCONT.
    #[must_use]
    pub const fn polite(signal: i32) -> Self {
        Self { signal, continued: signal == libc::SIGTERM }
    }

    /// This signal and nothing beside.
    #[must_use]
    pub const fn exactly(signal: i32) -> Self {
        Self { signal, continued: false }
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
/// process once.
pub(crate) fn signal_descendants(root: Pid, leader: Option<Pid>, sent: Sent) -> Signalled {
    let mut result = Signalled::default();
    let group = leader.map_or(0, |pid| pid.as_raw_nonzero().get());
    if let Some(leader) = leader {
        let members = || procfs::descendants(root).into_iter().filter(|&pid| is_in(pid, group));
        let count = u32::try_from(members().count()).unwrap_or(u32::MAX);
        // The leader is not reaped, so the group's number is its own.
        if result.note(raw::kill(leader, true, sent.signal)) {
            result.delivered = count;
        }
        if sent.continued {
            result.note(raw::kill(leader, true, libc::SIGCONT));
        }
    }
    let others = || {
        let mut pids = procfs::descendants(root);
        pids.retain(|&pid| {
            procfs::stat(pid).is_some_and(|stat| !stat.zombie && stat.group != group)
        });
        pids
    };
    signal_each(sent, &mut result, |pid| procfs::descends_from(pid, root), others);
    result
}

/// Signals the descendants of `root` that are in the process group `group`, each once.
pub(crate) fn signal_group(root: Pid, group: i32, sent: Sent) -> Signalled {
    let mut result = Signalled::default();
    let members = || {
        let mut pids = procfs::descendants(root);
        pids.retain(|&pid| is_in(pid, group));
        pids
    };
    signal_each(sent, &mut result, |pid| procfs::descends_from(pid, root), members);
    result
}

/// Whether a process lives and is in the process group.
pub(crate) fn is_in(pid: Pid, group: i32) -> bool {
    procfs::stat(pid).is_some_and(|stat| !stat.zombie && stat.group == group)
}

/// Signals each of the members that `list` names and `belongs` confirms, once each, until no new
/// one is found.
pub(crate) fn signal_each(
    sent: Sent,
    result: &mut Signalled,
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
            if result.note(raw::pidfd_signal(pidfd.as_fd(), sent.signal)) {
                result.delivered += 1;
            }
            if sent.continued {
                result.note(raw::pidfd_signal(pidfd.as_fd(), libc::SIGCONT));
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

/// CPU time of a process that is not reaped, milliseconds.
#[must_use]
pub fn cpu_ms(pid: i32) -> Option<u64> {
    let stat = procfs::stat(Pid::from_raw(pid)?)?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(stat.cpu_ticks.saturating_mul(1000) / ticks)
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
