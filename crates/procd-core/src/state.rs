//! The states of a process, why it got there, and the one table of what may follow what.

use crate::words::words;

pub use crate::words::UnknownWord;

words! {
    /// The state of a process, as on the wire and on disk.
    ProcessState, "state" {
        /// Recorded; its spawn has not been answered yet.
        Starting = "starting",
        /// Its leader was started; its tree is not proven empty yet.
        Running = "running",
        /// The leader ended by itself, with a code or by a signal that no request explains.
        Exited = "exited",
        /// Spawn or set-up failed, the end could not be observed, or containment was lost.
        Failed = "failed",
        /// Its deadline passed.
        TimedOut = "timed_out",
        /// An interrupt ended it.
        Interrupted = "interrupted",
        /// A terminate or a shutdown ended it politely.
        Terminated = "terminated",
        /// SIGKILL by request, or by an escalation, ended it.
        Killed = "killed",
        /// It was not terminal when the daemon came back.
        LostOnRestore = "lost_on_restore",
    }
}

words! {
    /// Why a process is in its terminal state.
    Reason, "reason" {
        /// The leader ended by itself.
        Exited = "exited",
        /// Spawn, set-up or observation failed.
        Failed = "failed",
        /// The deadline passed.
        TimedOut = "timed-out",
        /// A caller's interrupt.
        Interrupted = "interrupted",
        /// A caller's terminate.
        Terminated = "terminated",
        /// A caller's kill, or a terminate that had to escalate.
        Killed = "killed",
        /// The session or the daemon shut down.
        RunnerShutdown = "runner-shutdown",
        /// Reserved, never emitted.
        OutputLimit = "output-limit",
        /// Found unfinished at a restore.
        LostOnRestore = "lost-on-restore",
    }
}

words! {
    /// The access to its workspace that a process was given.
    Access, "access" {
        /// The start claimed no workspace.
        Unclaimed = "unclaimed",
        /// Reads only.
        ReadOnly = "read_only",
        /// Writes under the named paths only.
        ScopedWrite = "scoped_write",
        /// Writes anywhere under the root.
        BroadWrite = "broad_write",
    }
}

words! {
    /// How a tree is held together and ended.
    Tier, "tier" {
        /// Tier 1: a fresh control group per process.
        Cgroup = "cgroup",
        /// Tier 2: a shim per process.
        Shim = "shim",
        /// Tier 3: a PID namespace per process, beside one of the others.
        Pidns = "pidns",
    }
}

impl Tier {
    /// The number of the tier in the documents: 1 to 3.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Cgroup => 1,
            Self::Shim => 2,
            Self::Pidns => 3,
        }
    }
}

words! {
    /// The state of the durable output of a process.
    SpoolState, "spool state" {
        /// Being written, or not sealed yet.
        Open = "open",
        /// Something could not be written; the process runs on.
        Degraded = "degraded",
        /// Synced, read-only, its SHA-256 recorded.
        Sealed = "sealed",
        /// Damaged: reads answer `spool_corrupt`.
        Corrupt = "corrupt",
    }
}

words! {
    /// What ended a tree whose leader had gone before (`keep_tree`).
    EndedBy, "ended_by" {
        /// Its last process ended by itself.
        TreeEmpty = "tree_empty",
        /// A stop.
        Stop = "stop",
        /// The deadline.
        Deadline = "deadline",
        /// A shutdown of session or daemon.
        Shutdown = "shutdown",
    }
}

use ProcessState as S;

/// Every edge there is. What is not listed does not exist.
pub const TRANSITIONS: &[(ProcessState, ProcessState)] = &[
    (S::Starting, S::Running),
    (S::Starting, S::Failed),
    (S::Starting, S::Terminated),
    (S::Starting, S::Killed),
    (S::Starting, S::LostOnRestore),
    (S::Running, S::Exited),
    (S::Running, S::Failed),
    (S::Running, S::TimedOut),
    (S::Running, S::Interrupted),
    (S::Running, S::Terminated),
    (S::Running, S::Killed),
    (S::Running, S::LostOnRestore),
];

impl ProcessState {
    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Starting | Self::Running => false,
            Self::Exited
            | Self::Failed
            | Self::TimedOut
            | Self::Interrupted
            | Self::Terminated
            | Self::Killed
            | Self::LostOnRestore => true,
        }
    }

    /// Whether the table has the edge from `self` to `next`.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        TRANSITIONS.contains(&(self, next))
    }

    /// Whether `reason` fits this state; a live state has none.
    #[must_use]
    pub const fn fits(self, reason: Option<Reason>) -> bool {
        match self {
            Self::Starting | Self::Running => reason.is_none(),
            Self::Exited => matches!(reason, Some(Reason::Exited)),
            Self::Failed => matches!(reason, Some(Reason::Failed)),
            Self::TimedOut => matches!(reason, Some(Reason::TimedOut)),
            Self::Interrupted => matches!(reason, Some(Reason::Interrupted)),
            Self::Terminated => matches!(
                reason,
                Some(Reason::Terminated | Reason::RunnerShutdown | Reason::OutputLimit)
            ),
            Self::Killed => matches!(
                reason,
                Some(Reason::Killed | Reason::RunnerShutdown | Reason::OutputLimit)
            ),
            Self::LostOnRestore => matches!(reason, Some(Reason::LostOnRestore)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_twelve_edges_exist() {
        let mut edges = 0;
        for &from in ProcessState::ALL {
            for &to in ProcessState::ALL {
                if from.may_become(to) {
                    edges += 1;
                    assert!(!from.is_terminal(), "{from} -> {to}");
                    assert_ne!(to, ProcessState::Starting);
                }
            }
        }
        assert_eq!(edges, 12);
        assert_eq!(edges, TRANSITIONS.len());
    }

    #[test]
    fn every_word_round_trips_and_others_are_refused() {
        for &state in ProcessState::ALL {
            assert_eq!(state.as_str().parse::<ProcessState>(), Ok(state));
        }
        for &reason in Reason::ALL {
            assert_eq!(reason.as_str().parse::<Reason>(), Ok(reason));
        }
        assert!("Running".parse::<ProcessState>().is_err());
        assert!("".parse::<Reason>().is_err());
    }

    #[test]
    fn each_terminal_state_has_a_reason_and_live_ones_have_none() {
        for &state in ProcessState::ALL {
            assert_eq!(state.fits(None), !state.is_terminal(), "{state}");
            let fitting = Reason::ALL.iter().filter(|&&r| state.fits(Some(r))).count();
            assert_eq!(fitting > 0, state.is_terminal(), "{state}");
        }
    }
}
