//! The durable record of one process: what the commit log carries while it runs and what its
//! manifest file holds once it is sealed. Its shape is the format on disk.

use std::collections::BTreeMap;

use jiff::Timestamp;
use procd_core::end::LeaderEnd;
use procd_core::state::{Access, EndedBy, ProcessState, Reason, SpoolState, Tier};
use procd_core::{Handle, LoopId, OriginId, SessionId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::text;

/// The version of the manifest format that this build writes.
pub const RECORD_VERSION: u32 = 1;
/// Bytes of command text kept in a record; the rest is cut and said so.
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// The record of one process. Times are UTC; durations milliseconds; cursors bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`RECORD_VERSION`] of the writer.
    pub version: u32,
    /// The handle.
    #[serde(with = "text")]
    pub process_id: Handle,
    /// The session of the owner.
    #[serde(with = "text")]
    pub session_id: SessionId,
    /// The loop of the owner.
    #[serde(with = "text")]
    pub loop_id: LoopId,
    /// The tool execution it came from.
    #[serde(with = "text")]
    pub origin: OriginId,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What runs, as asked.
    pub command: CommandRecord,
    /// The access to its workspace.
    pub access: AccessRecord,
    /// The size of its terminal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// How its tree is held together.
    #[serde(with = "text")]
    pub tier: Tier,
    /// Each limit asked for, with its value and outcome.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, LimitOutcome>,
    /// The state.
    #[serde(with = "text")]
    pub state: ProcessState,
    /// Why, when terminal.
    #[serde(with = "text::option", default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// 0..=255, or 128 + signal; set exactly when `exited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The leader's end as `waitid` reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderRecord>,
    /// Whether the request that named the end needed SIGKILL.
    #[serde(default, skip_serializing_if = "is_false")]
    pub escalated: bool,
    /// What ended a tree whose leader had gone before.
    #[serde(with = "text::option", default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    /// Descendants that were alive when the leader had ended.
    #[serde(default)]
    pub leftovers: u32,
    /// Signals the kernel refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signal_errors: Vec<SignalError>,
    /// Queued input that was dropped at a shutdown.
    #[serde(default)]
    pub input_dropped_bytes: u64,
    /// Whether the control group reported an out-of-memory kill.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oom_killed: bool,
    /// The limit that was hit: `memory`, `cpu` or `pids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_exceeded: Option<String>,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its exec succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its tree was proven empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When its deadline is due (wall clock, for people; the timer is monotonic).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Monotonic, from spawn to end; absent for a lost one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Bytes ever written.
    #[serde(default)]
    pub total_bytes: u64,
    /// The first byte still kept.
    #[serde(default)]
    pub retained_from: u64,
    /// The state of the spool.
    #[serde(with = "text")]
    pub spool_state: SpoolState,
    /// Bytes that could not be kept on disk.
    #[serde(default)]
    pub spool_lost_bytes: u64,
    /// Hex SHA-256 of the retained bytes, once sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Whether retention leaves it alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// One word of `details.cause` and the name of the errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<String>,
    /// The five ids, minted before the first save.
    pub ids: StableIds,
    /// How many events of each kind that repeats there were.
    #[serde(default)]
    pub ordinals: BTreeMap<String, u32>,
    /// What has been published for good.
    #[serde(default)]
    pub published: PublicationMarks,
    /// What makes its start idempotent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<RequestKey>,
    /// The boot in which it ran.
    pub boot_id: Uuid,
    /// Diagnostic only, never consulted.
    #[serde(default)]
    pub os: OsMetadata,
}

/// What runs, as asked; never environment, input or output. Non-UTF-8 bytes are shown as `\xNN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRecord {
    /// Program and arguments, without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The line given to a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The working folder as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether it was cut at [`COMMAND_BYTES_MAX`].
    #[serde(rename = "command_truncated", default, skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// Access as asked, as given, and how it is enforced. Given never exceeds asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRecord {
    /// What the request asked for.
    #[serde(with = "text")]
    pub asked: Access,
    /// What it got.
    #[serde(with = "text")]
    pub effective: Access,
    /// The mechanism, such as "landlock ABI 5"; absent = a claim among clients only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
}

/// Size of a terminal in characters, 1..=65535 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TtySize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A limit and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOutcome {
    /// The value in force, as text.
    pub value: String,
    /// `cgroup`, `rlimit`, `watchdog` or `unsupported`.
    pub applied: String,
}

/// The leader's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeaderRecord {
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

impl LeaderRecord {
    /// The pure value of `procd-core`.
    #[must_use]
    pub const fn end(&self) -> LeaderEnd {
        match self {
            Self::Code { code } => LeaderEnd::Code(*code),
            Self::Signal { signal, core_dumped, .. } => {
                LeaderEnd::Signal { signal: *signal, core_dumped: *core_dumped }
            }
        }
    }
}

/// A signal that the kernel refused for `count` members of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalError {
    /// The name with SIG.
    pub signal: String,
    /// The name of the errno, such as "EPERM".
    pub errno: String,
    /// How many members refused it.
    pub count: u32,
}

/// Ids minted before the first save and used for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StableIds {
    /// Event `started`.
    pub started: Uuid,
    /// Event `backgrounded`.
    pub backgrounded: Uuid,
    /// Event `completed`.
    pub completed: Uuid,
    /// Event `lost`.
    pub lost: Uuid,
    /// The notification command, and the namespace of ids of kinds that repeat.
    pub notification: Uuid,
}

/// What has been published; marks never go back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicationMarks {
    /// The completed or lost event is in the journal.
    #[serde(default)]
    pub completed: bool,
    /// The notification was acknowledged for good.
    #[serde(default)]
    pub acknowledged: bool,
}

/// A key that makes a start idempotent per owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKey {
    /// As given by the client.
    pub key: String,
    /// Hex salt of the hash.
    pub salt: String,
    /// Hex SHA-256 of salt and body.
    pub body_sha256: String,
}

/// What the system called it. Diagnostic only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsMetadata {
    /// The pid of the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
const fn is_false(value: &bool) -> bool {
    !*value
}
