//! hello, operator/attach, daemon/status, daemon/metrics, daemon/reload, daemon/shutdown, and the
//! notice `$/cancel`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::common::{Free, Server, Tier, Totals};
use super::{Method, Params};
use crate::field::{FieldError, duration, items, params, text};
use crate::ids::{ProcessId, RequestId, SessionId};
use crate::limits::{FEATURES_MAX, NAME_CHARS_MAX, REASON_CHARS_MAX, VERSIONS_MAX};
use crate::words::Open;

params! {
    /// Parameters of `hello`.
    HelloParams required {
        /// Who connects.
        client: ClientInfo,
        /// The versions the client speaks, 1..=16 of them.
        versions: Vec<u32>,
    } optional {
        /// Features the client wants.
        features: Vec<String>,
    }
}

params! {
    /// Name and version of a client, 1..=128 characters each.
    ClientInfo required {
        /// The name.
        name: String,
        /// The version.
        version: String,
    } optional {}
}

impl Params for HelloParams {
    const METHOD: Method = Method::Hello;
    type Result = HelloResult;

    fn validate(&self) -> Result<(), FieldError> {
        text("client.name", Some(&self.client.name), 1, NAME_CHARS_MAX)?;
        text("client.version", Some(&self.client.version), 1, NAME_CHARS_MAX)?;
        items("versions", self.versions.len(), 1, VERSIONS_MAX)?;
        let features = self.features.as_deref().unwrap_or_default();
        items("features", features.len(), 0, FEATURES_MAX)?;
        for (index, feature) in features.iter().enumerate() {
            text(&format!("features[{index}]"), Some(feature), 1, NAME_CHARS_MAX)?;
        }
        Ok(())
    }
}

/// Result of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HelloResult {
    /// The version both speak from here on.
    pub version: u32,
    /// The daemon.
    pub server: Server,
    /// Optional fields of requests that the daemon understands beyond version 1 as first released.
    #[serde(default)]
    pub features: Vec<String>,
    /// Every limit by name: of the protocol and of the configuration.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// How trees are held together on this machine.
    pub containment: Containment,
    /// This run of the daemon, a UUID.
    pub instance_id: String,
    /// This boot of the machine, a UUID.
    pub boot_id: String,
    /// What a person should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// How trees are held together: what was achieved, never what was wished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Containment {
    /// The tier.
    pub tier: Open<Tier>,
    /// What it guarantees, a sentence each.
    #[serde(default)]
    pub guarantees: Vec<String>,
}

params! {
    /// Parameters of `operator/attach`.
    OperatorAttachParams optional {
        /// The default of the calls that want one, 1..=256 characters.
        reason: String,
    }
}

impl Params for OperatorAttachParams {
    const METHOD: Method = Method::OperatorAttach;
    type Result = OperatorAttachResult;

    fn validate(&self) -> Result<(), FieldError> {
        text("reason", self.reason.as_deref(), 1, REASON_CHARS_MAX)
    }
}

/// Result of `operator/attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperatorAttachResult {
    /// How many sessions there are.
    pub sessions: u64,
    /// Processes by state.
    pub totals: Totals,
}

params! {
    /// Parameters of `daemon/status`: none.
    StatusParams optional {}
}

impl Params for StatusParams {
    const METHOD: Method = Method::DaemonStatus;
    type Result = StatusResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `daemon/status`. Before a role there are versions, limits and the progress of the
/// restore only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusResult {
    /// What speaks here.
    pub versions: Versions,
    /// Since the start of the daemon.
    pub uptime_ms: u64,
    /// Every limit by name.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// How trees are held together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// The restore.
    pub restore: RestoreReport,
    /// Processes by state: an owner sees its session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// The owner's own session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<OwnSession>,
    /// How many sessions there are; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// How many clients are connected; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The daemon's pid; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Parts that do not work as they should, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Processes found outside every control group, since the start; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escaped: Option<u64>,
    /// Notifications dropped because too many waited; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_notifications: Option<u64>,
    /// Notifications that met another payload in their loop; operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collisions: Option<u64>,
    /// A hint that processes end with the login, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lingering_hint: Option<String>,
    /// The effective configuration; operators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    /// The key with its dots.
    pub key: String,
    /// The value as it is written in the file; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `default`, or where it was given.
    pub origin: String,
    /// The limit it was lowered to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowered_by: Option<String>,
}

/// Versions of the daemon and of what it speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Versions {
    /// The daemon's own.
    pub server: String,
    /// Of the protocol.
    pub protocol: Vec<u32>,
    /// Of the state folder's format.
    pub state_format: u32,
}

/// The owner's own session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnSession {
    /// Its id.
    pub session_id: SessionId,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `open`, `closing` or `closed`.
    pub state: Open<super::SessionState>,
    /// What is left for the owner.
    pub free: Free,
}

/// What the restore found. Owners see the counts only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestoreReport {
    /// Whether it is over: until then only `hello` and `daemon/status` are answered.
    pub done: bool,
    /// Records read so far.
    pub records: u64,
    /// Sessions found.
    pub sessions: u64,
    /// Processes that became `lost_on_restore`.
    pub lost: u64,
    /// Damaged things.
    pub damaged: u64,
    /// How long it took (or takes so far).
    pub duration_ms: u64,
    /// The processes that became `lost_on_restore`; operators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconciled: Vec<ProcessId>,
    /// Each damaged thing; operators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
}

/// One damaged thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Damage {
    /// What.
    pub what: String,
    /// Why it counts as damaged.
    pub reason: String,
}

params! {
    /// Parameters of `daemon/metrics`: none.
    MetricsParams optional {}
}

impl Params for MetricsParams {
    const METHOD: Method = Method::DaemonMetrics;
    type Result = MetricsResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `daemon/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricsResult {
    /// OpenMetrics text.
    pub text: String,
}

params! {
    /// Parameters of `daemon/reload`: none.
    ReloadParams optional {}
}

impl Params for ReloadParams {
    const METHOD: Method = Method::DaemonReload;
    type Result = ReloadResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `daemon/reload`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReloadResult {
    /// Keys whose values changed, and are in force for new starts.
    pub changed: Vec<String>,
    /// Keys whose values changed, and come into force when the daemon is started again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_next_start: Vec<String>,
}

params! {
    /// Parameters of `daemon/shutdown`.
    ShutdownParams optional {
        /// In place of the configured graceful period, milliseconds.
        grace_ms: u64,
    }
}

impl Params for ShutdownParams {
    const METHOD: Method = Method::DaemonShutdown;
    type Result = Empty;

    fn validate(&self) -> Result<(), FieldError> {
        duration("grace_ms", self.grace_ms, 0)
    }
}

/// A result without content: `{}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Empty {}

params! {
    /// Parameters of the notice `$/cancel`.
    CancelParams required {
        /// The request to end. (`for` on the wire.)
        #[serde(rename = "for")]
        request: RequestId,
    } optional {}
}
