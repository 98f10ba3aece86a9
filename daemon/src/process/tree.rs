//! The tree of one process, as its task holds it. What can wait runs off the control thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::watched::watched;
use procd_sys::cgroup::Leaf;
use procd_sys::cgroup::controllers::GroupLimits;
use procd_sys::{Sent, Signalled};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

/// After a kill: how long its group is re-read before the kill is written again.
const KILL_WITHIN: Duration = Duration::from_millis(20);
/// Between two reads of a group that is not empty: first, and longest where the kernel tells of
/// changes itself (at most each 10 ms) or does not.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_BLIND_MAX: Duration = Duration::from_millis(50);

/// How a tree is held.
#[derive(Debug)]
pub(super) enum Tree {
    /// Tier 1.
    Group(Group),
    /// Tier 2.
    Shim(Shimmed),
}

/// What is known of a shim's tree.
#[derive(Debug, Default)]
pub(super) struct Shimmed {
    /// The pid of the shim, once it exists.
    pub(super) pid: Option<i32>,
    /// The shim has proven it empty.
    pub(super) is_empty: bool,
    /// It is the init of a namespace.
    pub(super) is_init: bool,
    /// Tier 3 in tier 1: the init's own group. Killing it would kill the init before it has told
    /// the leader's end: only for what has lost its init.
    pub(super) leaf: Option<Group>,
}

impl Tree {
    /// Whether the kernel killed in it for want of memory. Known once it is proven empty.
    pub(super) fn oom_killed(&self) -> bool {
        match self {
            Self::Group(group) => group.oom_killed(),
            Self::Shim(shim) => shim.leaf.as_ref().is_some_and(Group::oom_killed),
        }
    }

    /// The control group it has.
    pub(super) const fn group(&mut self) -> Option<&mut Group> {
        match self {
            Self::Group(group) => Some(group),
            Self::Shim(shim) => shim.leaf.as_mut(),
        }
    }
}

/// The control group of a tree.
#[derive(Debug)]
pub(super) struct Group {
    leaf: Arc<Leaf>,
    events: Option<AsyncFd<OwnedFd>>,
    pause: Duration,
    /// A kill under way.
    killing: Option<JoinHandle<io::Result<bool>>>,
    /// Somebody else has read that it is empty, and it was not tried since.
    is_seen_empty: bool,
    /// It said that it is empty and could not be removed: nothing will tell when it can.
    is_stuck: bool,
    limits: GroupLimits,
    oom_killed: bool,
    limit_exceeded: Option<&'static str>,
}

impl Group {
    pub(super) const fn new(leaf: Arc<Leaf>, limits: GroupLimits) -> Self {
        Self {
            leaf,
            events: None,
            pause: PAUSE_FIRST,
            killing: None,
            is_seen_empty: false,
            is_stuck: false,
            limits,
            oom_killed: false,
            limit_exceeded: None,
        }
    }

    /// The limit of its own that it hit. Known once it is proven empty.
    pub(super) const fn limit_exceeded(&self) -> Option<&'static str> {
        self.limit_exceeded
    }

    pub(super) const fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// Whether the kernel killed in it for want of memory. Known once it is proven empty.
    pub(super) const fn oom_killed(&self) -> bool {
        self.oom_killed
    }

    /// One write of the kill, then reads for a while.
    pub(super) async fn kill(&mut self) {
        self.begin_kill();
        self.killed().await;
    }

    /// The same beside whatever comes meanwhile, unless one is under way.
    pub(super) fn begin_kill(&mut self) {
        self.pause = PAUSE_FIRST;
        if self.killing.is_none() {
            let leaf = Arc::clone(&self.leaf);
            self.killing = Some(tokio::task::spawn_blocking(move || leaf.kill(KILL_WITHIN)));
        }
    }

    /// Whether a kill is under way.
    pub(super) const fn is_being_killed(&self) -> bool {
        self.killing.is_some()
    }

    /// Waits for the kill that is under way. Cancel safe.
    pub(super) async fn killed(&mut self) {
        let Some(killing) = &mut self.killing else { return };
        let killed = killing.await;
        self.killing = None;
        match killed {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "a control group could not be killed"),
            Err(error) => tracing::error!(%error, "bug: work on a control group did not end"),
        }
    }

    /// Signals each member but `except`; what is followed by SIGCONT thaws first.
    pub(super) async fn signal(&mut self, sent: Sent, except: Option<i32>) -> Signalled {
        self.pause = PAUSE_FIRST;
        let send = move |leaf: &Leaf| {
            if sent.continued {
                thaw(leaf);
            }
            leaf.signal(sent, except)
        };
        self.blocking(send).await.unwrap_or_default()
    }

    /// Signals each member that is in a process group.
    pub(super) async fn signal_group(&self, sent: Sent, group: i32) -> Signalled {
        self.blocking(move |leaf| leaf.signal_group(sent, group)).await.unwrap_or_default()
    }

    /// Pauses the whole tree by its freezer. Says how many are in it.
    pub(super) async fn freeze(&self) -> Signalled {
        let freeze = |leaf: &Leaf| match leaf.freeze() {
            Ok(()) => Signalled {
                delivered: u32::try_from(leaf.members().len()).unwrap_or(u32::MAX),
                ..Signalled::default()
            },
            Err(error) => {
                tracing::error!(%error, "a control group could not be frozen");
                let errno = error.raw_os_error().unwrap_or(0);
                Signalled { refused: 1, errno, delivered: 0 }
            }
        };
        self.blocking(freeze).await.unwrap_or_default()
    }

    /// Lets the whole tree run on, however it was paused.
    pub(super) async fn resume(&self) -> Signalled {
        let resume = |leaf: &Leaf| {
            thaw(leaf);
            leaf.signal(Sent::exactly(rustix::process::Signal::CONT.as_raw()), None)
        };
        self.blocking(resume).await.unwrap_or_default()
    }

    /// Live members but `except`.
    pub(super) async fn count(&self, except: Option<i32>) -> u32 {
        // The usual end: nobody else was there.
        if matches!(self.leaf.is_populated(), Ok(false)) {
            return 0;
        }
        let count =
            move |leaf: &Leaf| leaf.members().iter().filter(|&&pid| Some(pid) != except).count();
        let count = self.blocking(count).await.unwrap_or(0);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The guardian has read that it is empty, after the end of its leader: whoever is in none
    /// comes into none.
    pub(super) const fn seen_empty(&mut self) {
        self.is_seen_empty = true;
    }

    /// Whether a read says that it is empty and its removal proves it. A failed read proves
    /// nothing.
    pub(super) fn prove_empty(&mut self) -> bool {
        // One look that says so is enough; what it says is put to the proof below.
        let is_seen = std::mem::take(&mut self.is_seen_empty);
        if !is_seen && !matches!(self.leaf.is_populated(), Ok(false)) {
            return false;
        }
        // Here, not on a thread beside: the removal takes 25 us, the way there and back 100 us and
        // more, at each end of a process.
        let oom_kills = self.leaf.oom_kills();
        let refused_forks = self.limits.pids_max.map_or(0, |_| self.leaf.refused_forks());
        match self.leaf.remove() {
            Ok(()) => {
                self.oom_killed = oom_kills > 0;
                self.limit_exceeded = match (self.limits.memory_bytes_max, refused_forks) {
                    (Some(_), _) if self.oom_killed => Some("memory"),
                    (_, 0) => None,
                    (_, _) => Some("pids"),
                };
                true
            }
            Err(error) => {
                tracing::debug!(%error, "an empty control group is not removed yet");
                self.is_stuck = true;
                false
            }
        }
    }

    /// Waits until it is worth another look. Where the kernel tells of changes, a tree that stays
    /// as it is soon costs no timer any more.
    pub(super) async fn changed(&mut self) {
        if self.events.is_none() {
            self.events = self.leaf.events().and_then(|fd| watched(fd, Interest::PRIORITY)).ok();
        }
        let pause = self.pause;
        match &self.events {
            Some(events) if pause >= PAUSE_MAX && !self.is_stuck => {
                if told(events).await.is_err() {
                    tokio::time::sleep(pause).await;
                }
            }
            Some(events) => {
                self.pause = (pause * 2).min(PAUSE_MAX);
                tokio::select! {
                    told = told(events) => if told.is_err() {
                        tokio::time::sleep(pause).await;
                    },
                    () = tokio::time::sleep(pause) => {}
                }
            }
            None => {
                self.pause = (pause * 2).min(PAUSE_BLIND_MAX);
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Leaf) -> T + Send + 'static,
    ) -> Option<T> {
        let leaf = Arc::clone(&self.leaf);
        match tokio::task::spawn_blocking(move || work(&leaf)).await {
            Ok(result) => Some(result),
            Err(error) => {
                tracing::error!(%error, "bug: work on a control group did not end");
                None
            }
        }
    }
}

/// Waits for a change, and reads the file, which arms the next one.
async fn told(events: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let mut guard = events.ready(Interest::PRIORITY).await?;
    guard.clear_ready();
    let mut buffer = [0; 256];
    rustix::io::pread(events.get_ref(), &mut buffer, 0)?;
    Ok(())
}

fn thaw(leaf: &Leaf) {
    if let Err(error) = leaf.thaw() {
        tracing::debug!(%error, "a control group could not be thawed");
    }
}

/// SIGTERM.
pub(super) const fn sigterm() -> i32 {
    rustix::process::Signal::TERM.as_raw()
}
