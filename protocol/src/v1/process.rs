//! process/stop, process/inspect, process/list, and the record they show.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::common::{
    Free, Leader, ProcessState, Reason, Scope, SignalError, StopResult, Tier, Totals, is_false,
};
use super::{Method, Params};
use crate::field::{FieldError, duration, params, text, within};
use crate::ids::{LoopId, OriginId, ProcessId, SessionId};
use crate::limits::{AFTER_CHARS_MAX, LIST_LIMIT_MAX, NAME_CHARS_MAX, SIGNAL_MAX};
use crate::words::{Open, words};

words! {
    /// How a tree is ended.
    StopMode, "a mode" {
        /// SIGINT; when the grace is over it replies with the state it finds.
        Interrupt = "interrupt",
        /// SIGTERM, then SIGKILL when the grace is over.
        Terminate = "terminate",
        /// SIGKILL.
        Kill = "kill",
    }
}

params! {
    /// Parameters of `process/stop`.
    StopParams required {
        /// The process.
        process_id: ProcessId,
        /// How.
        mode: StopMode,
    } optional {
        /// In place of the configured graceful period; 0 = escalate at once.
        grace_ms: u64,
    }
}

impl Params for StopParams {
    const METHOD: Method = Method::ProcessStop;
    type Result = StopResult;

    fn validate(&self) -> Result<(), FieldError> {
        duration("grace_ms", self.grace_ms, 0)
    }
}

words! {
    /// Whom a named signal is for.
    SignalTarget, "a target" {
        /// The command itself.
        Leader = "leader",
        /// Its whole tree.
        Tree = "tree",
        /// The foreground process group of its terminal.
        Foreground = "foreground",
    }
}

params! {
    /// Parameters of `process/signal`.
    SignalParams required {
        /// The process.
        process_id: ProcessId,
        /// The name with SIG, or the number.
        signal: SignalName,
    } optional {
        /// Default `leader`.
        target: SignalTarget,
    }
}

impl Params for SignalParams {
    const METHOD: Method = Method::ProcessSignal;
    type Result = SignalResult;

    fn validate(&self) -> Result<(), FieldError> {
        match &self.signal {
            SignalName::Number(number) => within("signal", Some(*number), 1, SIGNAL_MAX),
            SignalName::Name(name) => text("signal", Some(name), 1, NAME_CHARS_MAX),
        }
    }
}

/// A signal by its name with SIG or by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalName {
    /// Such as `SIGHUP`.
    Name(String),
    /// 1..=64.
    Number(u64),
}

impl Serialize for SignalName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => to.serialize_str(name),
            Self::Number(number) => to.serialize_u64(*number),
        }
    }
}

impl<'de> Deserialize<'de> for SignalName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameOrNumber;
        impl serde::de::Visitor<'_> for NameOrNumber {
            type Value = SignalName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a signal or its number")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<SignalName, E> {
                Ok(SignalName::Name(name.to_owned()))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<SignalName, E> {
                Ok(SignalName::Number(number))
            }
        }
        from.deserialize_any(NameOrNumber)
    }
}

/// Result of `process/signal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignalResult {
    /// Processes that got it; none when it has ended.
    pub delivered: u64,
    /// What the kernel refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signal_errors: Vec<SignalError>,
}

params! {
    /// Parameters of `process/inspect`.
    InspectParams required {
        /// The process.
        process_id: ProcessId,
    } optional {}
}

impl Params for InspectParams {
    const METHOD: Method = Method::ProcessInspect;
    type Result = InspectResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `process/inspect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InspectResult {
    /// The record.
    pub record: Record,
    /// Live members of its tree, the leader not counted.
    pub live_descendants: u64,
    /// What the live members use; zeros when it has ended.
    pub usage: Usage,
    /// Live pids, the leader's included; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<i32>>,
}

/// What a tree uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU time, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
}

params! {
    /// Parameters of `process/remove`.
    RemoveParams required {
        /// The process, which has ended.
        process_id: ProcessId,
    } optional {}
}

impl Params for RemoveParams {
    const METHOD: Method = Method::ProcessRemove;
    type Result = RemoveResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `process/remove`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoveResult {
    /// Always true.
    pub removed: bool,
}

params! {
    /// Parameters of `process/pin`.
    PinParams required {
        /// The process, which has ended.
        process_id: ProcessId,
        /// Whether retention leaves it alone.
        pinned: bool,
    } optional {}
}

impl Params for PinParams {
    const METHOD: Method = Method::ProcessPin;
    type Result = PinResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `process/pin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinResult {
    /// As it is now.
    pub pinned: bool,
    /// Retained bytes of the pinned outputs of the session.
    pub pinned_bytes: u64,
}

params! {
    /// Parameters of `process/list`.
    ListParams optional {
        /// Default `loop`; for owners.
        scope: Scope,
        /// Only this session's; for operators.
        session_id: SessionId,
        /// Only those in this state.
        state: ProcessState,
        /// Only those with this label.
        label: String,
        /// Size of a page, 1..=1000; default 100.
        limit: u64,
        /// `next` of the page before.
        after: String,
    }
}

impl Params for ListParams {
    const METHOD: Method = Method::ProcessList;
    type Result = ListResult;

    fn validate(&self) -> Result<(), FieldError> {
        text("label", self.label.as_deref(), 0, NAME_CHARS_MAX)?;
        within("limit", self.limit, 1, LIST_LIMIT_MAX)?;
        text("after", self.after.as_deref(), 1, AFTER_CHARS_MAX)
    }
}

/// Result of `process/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListResult {
    /// Newest first.
    pub records: Vec<Record>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// All that the scope holds, by state, whatever the filters.
    pub totals: Totals,
    /// What is left for this owner; absent for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Free>,
}

/// The record of one process, as far as clients see it. Times are RFC 3339 UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// Version of the manifest format.
    pub version: u32,
    /// The handle.
    pub process_id: ProcessId,
    /// The session of its owner.
    pub session_id: SessionId,
    /// The loop of its owner.
    pub loop_id: LoopId,
    /// The tool execution it came from.
    pub origin: OriginId,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What runs, as asked.
    pub command: CommandRecord,
    /// The access to its workspace.
    pub access: AccessRecord,
    /// The size of its terminal at start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// How its tree is held together.
    pub tier: Open<Tier>,
    /// Each limit asked for, with its outcome.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, LimitOutcome>,
    /// The state.
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
    /// Whether the request that named the end needed SIGKILL.
    #[serde(default, skip_serializing_if = "is_false")]
    pub escalated: bool,
    /// What ended a tree whose leader had gone before: `tree_empty`, `stop`, `deadline`,
    /// `shutdown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Descendants that were alive when the leader had ended.
    #[serde(default)]
    pub leftovers: u64,
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
    pub created_at: String,
    /// When its exec succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its tree was proven empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// When its deadline is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
    /// From spawn to end, monotonic; absent for a lost one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Bytes ever written.
    #[serde(default)]
    pub total_bytes: u64,
    /// The first byte still kept.
    #[serde(default)]
    pub retained_from: u64,
    /// `open`, `degraded`, `sealed` or `corrupt`.
    pub spool_state: Open<SpoolState>,
    /// Bytes that could not be kept on disk.
    #[serde(default)]
    pub spool_lost_bytes: u64,
    /// Hex SHA-256 of the retained bytes, once sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Whether retention leaves it alone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Why it failed: a cause and the name of the errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<String>,
    /// The key of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// `Some(false)`: its end is not on disk yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

words! {
    /// The state of the durable output of a process.
    SpoolState, "a spool state" {
        /// Being written, or not sealed yet.
        Open = "open",
        /// Something could not be written; the process runs on.
        Degraded = "degraded",
        /// Synced, read-only, its SHA-256 recorded.
        Sealed = "sealed",
        /// Damaged.
        Corrupt = "corrupt",
    }
}

/// What runs, as asked; non-UTF-8 bytes are shown as `\xNN`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandRecord {
    /// Program and arguments, without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The text given to a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The working folder as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether it was cut at 64 KiB.
    #[serde(default, skip_serializing_if = "is_false")]
    pub command_truncated: bool,
}

/// Access as asked, as given, and how it is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessRecord {
    /// `unclaimed`, `read_only`, `scoped_write` or `broad_write`.
    pub asked: String,
    /// The same words.
    pub effective: String,
    /// The mechanism; absent = a claim among clients only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TtySize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A limit and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitOutcome {
    /// The value in force, as text.
    pub value: String,
    /// `cgroup`, `rlimit`, `watchdog` or `unsupported`.
    pub applied: String,
}
