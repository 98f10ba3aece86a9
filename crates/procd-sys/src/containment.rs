//! Which tier this machine gives: probed with real children before anything runs.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procd_core::Tier;

use crate::cgroup::discover::{DiscoverError, Root, own_group};
use crate::cgroup::{Leaf, Payload, Swept, sweep};
use crate::isolation::{self, Isolation};
use crate::raw::{self, Forked};
use crate::wait::{self, Look};
use crate::{child, procfs};

/// How long a probe waits for its child.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// Between two looks at whether the guardian has ended.
const FINISH_PAUSE: Duration = Duration::from_millis(1);

/// `containment` of the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best there is.
    #[default]
    Auto,
    /// Tier 1 or nothing.
    Cgroup,
    /// Tier 2.
    Shim,
}

/// What decides the tier.
#[derive(Debug, Clone)]
pub struct ContainmentOptions {
    /// The configured mode.
    pub mode: Mode,
    /// Whether only a tier that ends a tree atomically (1) will do.
    pub require_atomic: bool,
    /// The configured `cgroup_root`.
    pub cgroup_root: Option<Root>,
    /// The id of the state folder.
    pub folder_id: String,
    /// The id of this daemon, unique.
    pub instance: String,
}

/// How trees are held together on this machine.
#[derive(Debug, Clone)]
pub enum Containment {
    /// Tier 1.
    Cgroup(Arc<Payload>),
    /// Tier 2, and why not tier 1.
    Shim {
        /// The sentence.
        reason: String,
    },
    /// Nothing usable, or less than required.
    Unavailable {
        /// The sentence.
        reason: String,
    },
}

/// What was found, and what was done on the way.
#[derive(Debug)]
pub struct Established {
    /// The tier.
    pub containment: Containment,
    /// What earlier daemons of the same state folder had left.
    pub swept: Swept,
    /// Tier 3, beside the others: how its namespaces are made, or why there are none.
    pub isolation: Result<Isolation, String>,
}

impl Containment {
    /// The tier that was achieved.
    #[must_use]
    pub const fn tier(&self) -> Option<Tier> {
        match self {
            Self::Cgroup(_) => Some(Tier::Cgroup),
            Self::Shim { .. } => Some(Tier::Shim),
            Self::Unavailable { .. } => None,
        }
    }

    /// The end of an orderly shutdown, when the link to the guardian is closed: waits for the
    /// guardian's end, then removes the payload group. `false` = something still lives.
    #[must_use]
    pub fn finish(&self, within: Duration) -> bool {
        let mut waited = Duration::ZERO;
        loop {
            crate::guardian::reap_adopted();
            if !wait::has_children() {
                break;
            }
            if waited >= within {
                return false;
            }
            crate::cgroup::rest(FINISH_PAUSE);
            waited += FINISH_PAUSE;
        }
        self.payload().is_none_or(|payload| payload.remove().is_ok())
    }

    /// The payload group of tier 1.
    #[must_use]
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Cgroup(payload) => Some(payload),
            Self::Shim { .. } | Self::Unavailable { .. } => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum TierError {
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error("the control group folder cannot be used: {0}")]
    Create(io::Error),
    #[error("a probe of the control group failed: {0}")]
    Probe(io::Error),
    #[error("a probe of the control group failed: {0}")]
    Unfit(&'static str),
}

/// Ends what earlier daemons of the state folder left, and finds the tier. To be called before any
/// thread exists, and after the state folder is locked. Sets SIGCHLD to its default: where it was
/// inherited as ignored, no end of a child could be seen.
#[must_use]
pub fn establish(options: &ContainmentOptions) -> Established {
    raw::default_child_signal();
    let isolation = isolation::probe();
    let own = own_group(options.cgroup_root.as_ref());
    let swept = own.as_ref().map(|own| sweep(own, &options.folder_id)).unwrap_or_default();
    if options.mode == Mode::Shim {
        let reason = "configured".to_owned();
        let containment = without_groups(options, reason);
        return Established { containment, swept, isolation };
    }
    let tried = own.map_err(TierError::from).and_then(|own| {
        let payload = Payload::create(&own, &options.folder_id, &options.instance)
            .map_err(TierError::Create)?;
        prepare_payload(payload)
    });
    let containment = match (tried, options.mode) {
        (Ok(payload), _) => Containment::Cgroup(Arc::new(payload)),
        (Err(error), Mode::Cgroup) => Containment::Unavailable { reason: error.to_string() },
        (Err(error), Mode::Auto | Mode::Shim) => without_groups(options, error.to_string()),
    };
    Established { containment, swept, isolation }
}

fn without_groups(options: &ContainmentOptions, reason: String) -> Containment {
    if options.require_atomic {
        let reason = format!("`require_atomic` is set, and there is no tier 1: {reason}");
        return Containment::Unavailable { reason };
    }
    match probe_shim() {
        Ok(()) => Containment::Shim { reason },
        Err(error) => Containment::Unavailable { reason: format!("no subreaper: {error}") },
    }
}

/// What a shim needs: a children file and pidfds.
fn probe_shim() -> io::Result<()> {
    procfs::own_children()?;
    let own = rustix::process::getpid();
    rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())?;
    Ok(())
}

fn prepare_payload(mut payload: Payload) -> Result<Payload, TierError> {
    let probed = probe(&payload);
    match probed {
        Ok(path) => {
            payload.set_proc_path(path);
            Ok(payload)
        }
        Err(error) => {
            let _left_for_the_sweep = payload.remove();
            Err(error)
        }
    }
}

/// Clones a child into a fresh leaf, sees it live there, kills it by the group, sees the group
/// empty and removes it; twice, since a kill must not reach the next leaf. Returns the payload's
/// path as /proc shows it.
fn probe(payload: &Payload) -> Result<String, TierError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut path = String::new();
    for _ in 0..2 {
        let name = format!("probe-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let leaf = payload.leaf(name.clone()).map_err(TierError::Probe)?;
        let result = probe_leaf(&leaf, &name);
        let removed = leaf.remove();
        path = result?;
        removed.map_err(TierError::Probe)?;
    }
    Ok(path)
}

fn probe_leaf(leaf: &Leaf, name: &str) -> Result<String, TierError> {
    // The child lives until the pipe closes.
    let (read, write) = child::exec_pipe().map_err(TierError::Probe)?;
    let folder = leaf.folder().map_err(TierError::Probe)?;
    let (pid, _pidfd) = match raw::clone_into(folder.as_fd()).map_err(TierError::Probe)? {
        Forked::Child => raw::wait_for_close(write.as_raw_fd(), read.as_raw_fd()),
        Forked::Parent(child) => child,
    };
    let inside = leaf.members().contains(&pid.as_raw_nonzero().get());
    let path = procfs::control_group(pid);
    let born_dead = wait::look(pid) != Look::Alive;
    let empty = leaf.kill(PROBE_MAX).map_err(TierError::Probe)?;
    drop(write);
    let end = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    if born_dead || !inside {
        return Err(TierError::Unfit("a child cloned into a fresh group did not live there"));
    }
    let killed = end.is_ok_and(|end| {
        end.is_some_and(|(_, status)| status.terminating_signal() == Some(libc::SIGKILL))
    });
    if !empty || !killed {
        return Err(TierError::Unfit("the group did not end its member"));
    }
    path.and_then(|path| Some(path.strip_suffix(&format!("/{name}"))?.to_owned()))
        .ok_or(TierError::Unfit("the group of a member is not shown"))
}
