//! Limits that control groups hold, where the system hands controllers down.

use std::io;
use std::os::fd::AsFd;

use rustix::process::Pid;

use super::{Leaf, make_group, open_group, read_file, write_file};

/// The group that the daemon itself moves into: one with controllers below it holds no process.
const SUPERVISOR: &str = "supervisor";
/// The period of a CPU quota, microseconds.
pub const CPU_PERIOD_US: u64 = 100_000;

/// Which limits a leaf can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    /// `memory`.
    pub memory: bool,
    /// `cpu`.
    pub cpu: bool,
    /// `pids`.
    pub pids: bool,
}

impl Controllers {
    fn of(text: &str) -> Self {
        let has = |name| text.split_ascii_whitespace().any(|word| word == name);
        Self { memory: has("memory"), cpu: has("cpu"), pids: has("pids") }
    }

    fn names(self) -> impl Iterator<Item = &'static str> {
        [(self.memory, "memory"), (self.cpu, "cpu"), (self.pids, "pids")]
            .into_iter()
            .filter_map(|(is_there, name)| is_there.then_some(name))
    }
}

/// The limits of one leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes.
    pub memory_bytes_max: Option<u64>,
    /// Microseconds of CPU in each [`CPU_PERIOD_US`].
    pub cpu_quota_us: Option<u64>,
    /// Processes and threads.
    pub pids_max: Option<u64>,
}

impl GroupLimits {
    /// Whether there is any.
    #[must_use]
    pub fn are_none(self) -> bool {
        self == Self::default()
    }
}

/// Hands the controllers that a group has down to the groups below it. Where the group holds this
/// process, which the kernel refuses then, the process moves into a group of its own below. What
/// cannot be handed down is not there: nobody is told but by what [`available`] says after.
pub(super) fn hand_down(group: impl AsFd) {
    let Ok(text) = read_file(&group, "cgroup.controllers") else { return };
    let mut moved = false;
    for name in Controllers::of(&text).names() {
        let enable = || write_file(&group, "cgroup.subtree_control", format!("+{name}").as_bytes());
        match enable() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && !moved => {
                moved = true;
                if move_down(&group, rustix::process::getpid()).is_ok() {
                    let _not_there = enable();
                }
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Moves the process `own` into the group [`SUPERVISOR`] below `group`, if it is alone in `group`
/// itself: with anybody else there it would be for nothing.
fn move_down(group: impl AsFd, own: Pid) -> io::Result<()> {
    let own = own.as_raw_nonzero().to_string();
    if !read_file(&group, "cgroup.procs")?.lines().eq([own.as_str()]) {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    match make_group(&group, SUPERVISOR) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let below = open_group(&group, SUPERVISOR)?;
    write_file(&below, "cgroup.procs", own.as_bytes())
}

/// What the groups below `group` can hold.
pub(super) fn available(group: impl AsFd) -> Controllers {
    read_file(group, "cgroup.subtree_control")
        .map(|text| Controllers::of(&text))
        .unwrap_or_default()
}

impl Leaf {
    /// Sets limits, before anything is in it. A whole tree ends when its memory does.
    /// # Errors
    /// What a write says.
    pub fn limit(&self, limits: GroupLimits) -> io::Result<()> {
        let set = |file: &str, text: String| self.write(file, text.as_bytes());
        if let Some(bytes) = limits.memory_bytes_max {
            set("memory.max", bytes.to_string())?;
            set("memory.oom.group", "1".to_owned())?;
            // Else it would swap in place of ending; not there where the kernel does not count it.
            let _uncounted = set("memory.swap.max", "0".to_owned());
        }
        if let Some(quota) = limits.cpu_quota_us {
            set("cpu.max", format!("{quota} {CPU_PERIOD_US}"))?;
        }
        if let Some(count) = limits.pids_max {
            set("pids.max", count.to_string())?;
        }
        Ok(())
    }

    /// How often a fork was refused here by `pids.max`; 0 where it is not counted.
    #[must_use]
    pub fn refused_forks(&self) -> u64 {
        self.count_in("pids.events", "max ")
    }

    /// A count in one of its files.
    pub(super) fn count_in(&self, file: &str, prefix: &str) -> u64 {
        let text = self.read(file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(prefix));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;
    use crate::raw::{self, Forked};

    /// A child in `group` that lives until the writing end closes.
    fn child_in(group: &OwnedFd) -> (Pid, OwnedFd) {
        let (read, write) = crate::child::exec_pipe().unwrap();
        match raw::clone_into(group.as_fd()).unwrap() {
            Forked::Child => raw::wait_for_close(write.as_raw_fd(), read.as_raw_fd()),
            Forked::Parent((pid, _pidfd)) => (pid, write),
        }
    }

    fn members(group: &OwnedFd) -> Vec<String> {
        read_file(group, "cgroup.procs").unwrap().lines().map(str::to_owned).collect()
    }

    /// Only that can be handed down which nobody is in: the daemon makes room, and only when that
    /// is all it takes.
    #[test]
    fn who_is_alone_in_its_group_moves_into_a_leaf_and_nobody_else_does() {
        let Ok(root) = super::super::discover::own_group(None) else {
            println!("skipped: no delegated control group on this machine");
            return;
        };
        let path = root.join(format!("procd-test-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let group = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        let (first, first_end) = child_in(&group);
        let (second, second_end) = child_in(&group);
        assert!(move_down(&group, first).is_err(), "somebody else is in it");
        assert_eq!(members(&group).len(), 2);
        drop(second_end);
        let end = |pid| rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        end(second).unwrap();
        move_down(&group, first).unwrap();
        assert_eq!(members(&group), Vec::<String>::new());
        let leaf = open_group(&group, SUPERVISOR).unwrap();
        assert_eq!(members(&leaf), [first.as_raw_nonzero().to_string()]);
        assert!(move_down(&group, first).is_err(), "it is not in it any more");
        // A daemon before this one may have left its leaf behind.
        let (third, third_end) = child_in(&group);
        move_down(&group, third).unwrap();
        assert_eq!(members(&leaf).len(), 2);
        drop((first_end, third_end));
        end(first).unwrap();
        end(third).unwrap();
        std::fs::remove_dir(path.join(SUPERVISOR)).unwrap();
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn controllers_are_read_by_whole_words() {
        let found = Controllers::of("cpuset cpu io memory hugetlb pids rdma misc\n");
        assert_eq!(found.names().collect::<Vec<_>>(), ["memory", "cpu", "pids"]);
        assert_eq!(Controllers::of("cpuset io"), Controllers::default());
        assert_eq!(Controllers::of(""), Controllers::default());
    }
}
