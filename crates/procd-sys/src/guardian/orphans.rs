//! Processes that fell to the guardian as subreaper. They are its own unreaped children, so a pid
//! in its children file cannot be a stranger's.

use std::collections::HashSet;

use rustix::process::Pid;

use super::commands::{Commands, Reports};
use crate::message::Report;
use crate::wait::{self, Look};
use crate::{procfs, raw};

/// What is known of orphans.
#[derive(Default)]
pub(super) struct Orphans {
    /// The payload group as /proc shows it; absent in tier 2.
    pub(super) payload_path: Option<String>,
    escaped: u64,
    /// Those that were sent SIGKILL and have not ended.
    dying: HashSet<Pid>,
}

impl Orphans {
    /// Whether some that must die are alive.
    pub(super) fn are_alive(&self) -> bool {
        !self.dying.is_empty()
    }

    /// Reaps orphans that ended. Tier 1: kills and counts those outside every leaf; tier 2: kills
    /// all of them.
    pub(super) fn round(&mut self, commands: &Commands, payload: bool, reports: &mut Reports) {
        let before = self.escaped;
        let strangers = strangers(commands);
        self.dying.retain(|pid| strangers.contains(pid));
        for pid in strangers {
            if payload && self.is_inside(pid) {
                continue;
            }
            let sent = raw::kill(pid, false, libc::SIGKILL).is_ok();
            let first = self.dying.insert(pid);
            self.escaped += u64::from(payload && sent && first);
        }
        if self.escaped != before {
            reports.add(Report::Escaped { count: self.escaped }, None);
        }
    }

    /// Kills every child that is no known command.
    pub(super) fn kill_strangers(commands: &Commands) {
        for pid in strangers(commands) {
            let _refused = raw::kill(pid, false, libc::SIGKILL);
        }
    }

    /// Whether a process is in a leaf. A member of the payload group itself is not.
    fn is_inside(&self, pid: Pid) -> bool {
        let Some(payload) = &self.payload_path else { return true };
        procfs::control_group(pid)
            .is_none_or(|path| path.strip_prefix(payload).is_some_and(|rest| rest.starts_with('/')))
    }
}

/// Adopted children that have not ended; the ended ones are reaped on the way.
fn strangers(commands: &Commands) -> Vec<Pid> {
    let mut children = procfs::own_children().unwrap_or_default();
    children.retain(|&pid| !commands.knows(pid) && wait::reap(pid) == Look::Alive);
    children
}

/// Takes the guardian out of the kernel's choice, where that is allowed. Returns the value that
/// children shall have: the one it had itself.
pub(super) fn protect_from_oom() -> Option<i32> {
    let path = "/proc/self/oom_score_adj";
    let before = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    std::fs::write(path, "-1000").ok()?;
    Some(before)
}
