//! What several results share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ProcessId;
use crate::words::{Open, words};

words! {
    /// The state of a process.
    ProcessState, "a state" {
        /// Recorded; its spawn has not been answered yet.
        Starting = "starting",
        /// Started; its tree is not proven empty yet.
        Running = "running",
        /// Its leader ended by itself.
        Exited = "exited",
        /// Spawn or set-up failed, or the end could not be observed.
        Failed = "failed",
        /// Its deadline passed.
        TimedOut = "timed_out",
        /// An interrupt ended it.
        Interrupted = "interrupted",
        /// A terminate or a shutdown ended it.
        Terminated = "terminated",
        /// SIGKILL ended it, by request or escalation.
        Killed = "killed",
        /// It was not terminal when the daemon came back.
        LostOnRestore = "lost_on_restore",
    }
}

impl ProcessState {
    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Starting | Self::Running)
    }
}

words! {
    /// Why a process is in its terminal state.
    Reason, "a reason" {
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
    /// Why a call that may wait came back.
    WokeBy, "a cause of waking" {
        /// It did not wait.
        Poll = "poll",
        /// There is output.
        Output = "output",
        /// The pattern matched.
        Match = "match",
        /// The process was quiet for long enough.
        Quiet = "quiet",
        /// Enough bytes came.
        Bytes = "bytes",
        /// A process is settled.
        Exit = "exit",
        /// The leader ended, its tree lives on.
        LeaderExited = "leader_exited",
        /// Bytes were lost before the pattern saw them.
        Gap = "gap",
        /// The time given is over.
        Timeout = "timeout",
        /// The daemon shuts down.
        Shutdown = "shutdown",
    }
}

words! {
    /// How text is handed out.
    Encoding, "an encoding" {
        /// Valid UTF-8 without anything that acts on a terminal.
        SafeText = "safe_text",
        /// The raw bytes, in standard base64.
        Base64 = "base64",
    }
}

words! {
    /// Whose records a call looks at.
    Scope, "a scope" {
        /// Those of the caller's loop.
        Loop = "loop",
        /// Those of the whole session.
        Session = "session",
    }
}

words! {
    /// How a tree is held together.
    Tier, "a tier" {
        /// Tier 1: a control group per process.
        Cgroup = "cgroup",
        /// Tier 2: a shim per process.
        Shim = "shim",
        /// Tier 3: a PID namespace of its own, beside one of the others. Of a process only.
        Pidns = "pidns",
    }
}

/// Name and version of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}

/// What is left for an owner. Slots are counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// Running slots of the loop.
    #[serde(rename = "loop")]
    pub loop_slots: u64,
    /// Running slots of the session.
    #[serde(rename = "session")]
    pub session_slots: u64,
    /// Running slots of the daemon.
    #[serde(rename = "daemon")]
    pub daemon_slots: u64,
    /// Memory windows that can still be reserved, bytes.
    pub memory_bytes: u64,
    /// Spools that can still be reserved, bytes.
    pub spool_bytes: u64,
}

/// How many processes are in each state; states without any are left out.
pub type Totals = BTreeMap<String, u64>;

/// The leader's end as `waitid` reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Leader {
    /// It exited.
    Code {
        /// 0..=255.
        code: u8,
    },
    /// A signal ended it.
    Signal {
        /// The number.
        signal: i32,
        /// The name with SIG.
        signal_name: String,
        /// Whether a core was written.
        core_dumped: bool,
    },
}

/// A signal that the kernel refused for `count` members of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalError {
    /// The name with SIG.
    pub signal: String,
    /// The name of the errno, such as "EPERM".
    pub errno: String,
    /// How many members refused it.
    pub count: u32,
}

/// What became of one process that was to be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopResult {
    /// The process.
    pub process_id: ProcessId,
    /// Its state now.
    pub state: Open<ProcessState>,
    /// Why, when terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Open<Reason>>,
    /// Set exactly when `exited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The leader's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Whether SIGKILL was needed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub escalated: bool,
    /// What the kernel refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signal_errors: Vec<SignalError>,
    /// `Some(false)`: the end is not on disk yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
    /// Why it could not be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::error::EntryError>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}
