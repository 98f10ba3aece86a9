//! The group of one process.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::Pid;

use super::{
    EVENTS, KILL, killed, make_group, open_group, populated, read_file, remove_below, write_file,
};
use crate::members::{LiveTree, Sent, Signalled, is_in, signal_each, sum};

/// First and longest pause between two reads of a group that is not empty yet.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// A fresh group for one process, never used again. Removed by [`Leaf::remove`], else by the
/// sweep of the next start. Known by its name in the payload group, which no other gets: a
/// descriptor for each process would be half of what one needs.
#[derive(Debug)]
pub struct Leaf {
    parent: Arc<OwnedFd>,
    name: String,
}

impl Leaf {
    pub(super) fn create(parent: Arc<OwnedFd>, name: String) -> io::Result<Self> {
        make_group(&parent, &name)?;
        Ok(Self { parent, name })
    }

    /// What a clone joins.
    /// # Errors
    /// No descriptor left.
    pub fn folder(&self) -> io::Result<OwnedFd> {
        open_group(&self.parent, &*self.name)
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        read_file(&self.parent, &self.path(file))
    }

    pub(super) fn write(&self, file: &str, text: &[u8]) -> io::Result<()> {
        write_file(&self.parent, &self.path(file), text)
    }

    /// Of one of its files, in the payload group.
    fn path(&self, file: &str) -> String {
        [&self.name, "/", file].concat()
    }

    /// Whether it has live processes.
    /// # Errors
    /// A failed read proves nothing.
    pub fn is_populated(&self) -> io::Result<bool> {
        populated(self.read(EVENTS))
    }

    /// A descriptor of `cgroup.events`: an exceptional condition says that it has changed.
    /// # Errors
    /// None left.
    pub fn events(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(rustix::fs::openat(&self.parent, self.path(EVENTS), flags, Mode::empty())?)
    }

    /// Kills everything in it, then re-reads until it is empty or `within` has passed. Waits:
    /// not for a thread that serves others. Returns whether it was seen empty.
    /// # Errors
    /// What the write says.
    pub fn kill(&self, within: Duration) -> io::Result<bool> {
        killed(self.write(KILL, b"1"))?;
        Ok(self.wait_empty(within))
    }

    /// Re-reads until it is empty or `within` has passed. Waits.
    #[must_use]
    pub fn wait_empty(&self, within: Duration) -> bool {
        let mut waited = Duration::ZERO;
        let mut pause = PAUSE_FIRST;
        loop {
            if matches!(self.is_populated(), Ok(false)) {
                return true;
            }
            if waited >= within {
                return false;
            }
            rest(pause);
            waited += pause;
            // Gently: what is overslept here is part of each stop.
            pause = (pause * 5 / 4).min(PAUSE_MAX);
        }
    }

    /// Lets a frozen group run again.
    /// # Errors
    /// What the write says.
    pub fn thaw(&self) -> io::Result<()> {
        self.write("cgroup.freeze", b"0")
    }

    /// The live members, those of groups below included.
    #[must_use]
    pub fn members(&self) -> Vec<i32> {
        self.pids().into_iter().map(|pid| pid.as_raw_nonzero().get()).collect()
    }

    fn pids(&self) -> Vec<Pid> {
        let mut pids = Vec::new();
        if let Ok(folder) = self.folder() {
            collect(&folder, &mut pids, super::DEPTH_MAX);
        }
        pids
    }

    /// A look at the live members, for people.
    #[must_use]
    pub fn look(&self) -> LiveTree {
        sum(&self.pids())
    }

    /// Stops every member where it is, those born meanwhile included.
    /// # Errors
    /// What the write says.
    pub fn freeze(&self) -> io::Result<()> {
        self.write("cgroup.freeze", b"1")
    }

    /// Signals each member but `except`, once, those born meanwhile included.
    #[must_use]
    pub fn signal(&self, sent: Sent, except: Option<i32>) -> Signalled {
        let except = except.and_then(Pid::from_raw);
        self.signal_those(sent, |pid| Some(pid) != except)
    }

    /// Signals each member that is in the process group `group`, once.
    #[must_use]
    pub fn signal_group(&self, sent: Sent, group: i32) -> Signalled {
        self.signal_those(sent, |pid| is_in(pid, group))
    }

    fn signal_those(&self, sent: Sent, which: impl Fn(Pid) -> bool) -> Signalled {
        let mut result = Signalled::default();
        let list = || {
            let mut pids = self.pids();
            pids.retain(|&pid| which(pid));
            pids
        };
        signal_each(sent, &mut result, |pid| self.pids().contains(&pid), list);
        result
    }

    /// How often the kernel killed here for want of memory; 0 where it does not count.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        self.count_in("memory.events", "oom_kill ")
    }

    /// Removes it, with the groups below: the last part of the proof that it is empty.
    /// # Errors
    /// It is not empty.
    pub fn remove(&self) -> io::Result<()> {
        // Hardly any process makes groups of its own: looked for only when they are in the way.
        if self.remove_itself().is_ok() {
            return Ok(());
        }
        remove_below(self.folder()?);
        self.remove_itself()
    }

    fn remove_itself(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.parent, &*self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn collect(group: &OwnedFd, pids: &mut Vec<Pid>, depth: u32) {
    if let Ok(text) = read_file(group, "cgroup.procs") {
        // 0 stands for one of another pid namespace.
        pids.extend(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
    }
    if depth == 0 {
        return;
    }
    for name in super::subgroups(group) {
        if let Ok(below) = super::open_group(group, name.as_c_str()) {
            collect(&below, pids, depth - 1);
        }
    }
}

/// Waits by a poll of nothing.
pub(crate) fn rest(pause: Duration) {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
    let nothing: &mut [PollFd<'_>] = &mut [];
    let _interrupted = poll(nothing, Some(&time));
}
