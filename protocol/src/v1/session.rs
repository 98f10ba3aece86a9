//! session/open, session/attach, session/close, session/stop_all, session/list.

use serde::{Deserialize, Serialize};

use super::common::{Free, Scope, StopResult, Totals};
use super::process::StopMode;
use super::{Method, Params};
use crate::field::{FieldError, duration, items, no_nul, number, params, require, text, within};
use crate::ids::{LoopId, SessionId, SessionKey};
use crate::limits::{
    AFTER_CHARS_MAX, IDLE_CLOSE_MS_MIN, LIST_LIMIT_MAX, NAME_CHARS_MAX, WORKSPACES_MAX,
};
use crate::words::{Open, words};

words! {
    /// The state of a session.
    SessionState, "a session state" {
        /// It takes starts.
        Open = "open",
        /// It is being closed.
        Closing = "closing",
        /// Readable only.
        Closed = "closed",
    }
}

params! {
    /// Parameters of `session/open`.
    SessionOpenParams optional {
        /// Chosen by the client; absent = minted.
        session_id: SessionId,
        /// Chosen by the client; absent = minted.
        loop_id: LoopId,
        /// Brought by the client; absent = minted and returned once.
        session_key: SessionKey,
        /// What the client calls it, at most 128 characters.
        label: String,
        /// Absolute folders, at most 16: working folders lie in one of them.
        workspaces: Vec<String>,
        /// Whether the words of its starts are looked at for accidents.
        guard: bool,
        /// Closes the session when no owner was attached for so long; from 1000.
        idle_close_ms: u64,
        /// Limits of this session: may only lower the configured ones.
        quotas: SessionQuotas,
    }
}

params! {
    /// Limits of a session; 0 and absent mean the configured one.
    SessionQuotas optional {
        /// Running processes of a loop.
        running_loop_max: u64,
        /// Running processes of the session.
        running_session_max: u64,
        /// Memory windows, bytes.
        memory_session_bytes: u64,
        /// Spools, bytes.
        spool_session_bytes: u64,
        /// Completed processes kept.
        retained_session_max: u64,
        /// Blocking calls.
        waiters_session_max: u64,
    }
}

impl Params for SessionOpenParams {
    const METHOD: Method = Method::SessionOpen;
    type Result = SessionOpenResult;

    fn validate(&self) -> Result<(), FieldError> {
        text("label", self.label.as_deref(), 0, NAME_CHARS_MAX)?;
        let workspaces = self.workspaces.as_deref().unwrap_or_default();
        items("workspaces", workspaces.len(), 0, WORKSPACES_MAX)?;
        for (index, folder) in workspaces.iter().enumerate() {
            let field = format!("workspaces[{index}]");
            no_nul(&field, folder.as_bytes())?;
            require(folder.starts_with('/'), &field, "is not an absolute folder")?;
        }
        duration("idle_close_ms", self.idle_close_ms, IDLE_CLOSE_MS_MIN)?;
        self.quotas.as_ref().map_or(Ok(()), SessionQuotas::validate)
    }
}

impl SessionQuotas {
    fn validate(&self) -> Result<(), FieldError> {
        number("quotas.running_loop_max", self.running_loop_max, 0)?;
        number("quotas.running_session_max", self.running_session_max, 0)?;
        number("quotas.memory_session_bytes", self.memory_session_bytes, 0)?;
        number("quotas.spool_session_bytes", self.spool_session_bytes, 0)?;
        number("quotas.retained_session_max", self.retained_session_max, 0)?;
        number("quotas.waiters_session_max", self.waiters_session_max, 0)
    }
}

/// Result of `session/open`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpenResult {
    /// The session.
    pub session_id: SessionId,
    /// The loop this connection acts as.
    pub loop_id: LoopId,
    /// Only when minted, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// What is left for this owner.
    pub free: Free,
}

params! {
    /// Parameters of `session/attach`.
    SessionAttachParams required {
        /// The session.
        session_id: SessionId,
        /// Any loop of it, a new one included.
        loop_id: LoopId,
        /// The key.
        session_key: SessionKey,
    } optional {}
}

impl Params for SessionAttachParams {
    const METHOD: Method = Method::SessionAttach;
    type Result = SessionAttachResult;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}

/// Result of `session/attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAttachResult {
    /// The session.
    pub session_id: SessionId,
    /// The loop this connection acts as.
    pub loop_id: LoopId,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it still takes starts.
    pub state: Open<SessionState>,
    /// Its processes by state.
    pub totals: Totals,
    /// What is left for this owner.
    pub free: Free,
}

words! {
    /// What `session/close` closes: it has to say so.
    CloseScope, "the scope of a close" {
        /// The whole session.
        Session = "session",
    }
}

params! {
    /// Parameters of `session/close`.
    SessionCloseParams required {
        /// Always the whole session.
        scope: CloseScope,
    } optional {
        /// Whether its data are removed too.
        purge: bool,
        /// In place of the configured graceful period, milliseconds.
        grace_ms: u64,
    }
}

impl Params for SessionCloseParams {
    const METHOD: Method = Method::SessionClose;
    type Result = SessionCloseResult;

    fn validate(&self) -> Result<(), FieldError> {
        duration("grace_ms", self.grace_ms, 0)
    }
}

/// Result of `session/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCloseResult {
    /// How many processes were stopped.
    pub stopped: u64,
    /// Those that could not be.
    #[serde(default)]
    pub failures: Vec<StopResult>,
}

params! {
    /// Parameters of `session/stop_all`.
    StopAllParams optional {
        /// Default `loop`; for owners.
        scope: Scope,
        /// The session; for operators, who have to name it.
        session_id: SessionId,
        /// Default `terminate`.
        mode: StopMode,
        /// In place of the configured graceful period; 0 = escalate at once.
        grace_ms: u64,
    }
}

impl Params for StopAllParams {
    const METHOD: Method = Method::SessionStopAll;
    type Result = StopAllResult;

    fn validate(&self) -> Result<(), FieldError> {
        duration("grace_ms", self.grace_ms, 0)
    }
}

/// Result of `session/stop_all`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAllResult {
    /// What became of each that ran.
    pub results: Vec<StopResult>,
}

params! {
    /// Parameters of `session/list`.
    SessionListParams optional {
        /// Size of a page, 1..=1000; default 100.
        limit: u64,
        /// `next` of the page before.
        after: String,
    }
}

impl Params for SessionListParams {
    const METHOD: Method = Method::SessionList;
    type Result = SessionListResult;

    fn validate(&self) -> Result<(), FieldError> {
        within("limit", self.limit, 1, LIST_LIMIT_MAX)?;
        text("after", self.after.as_deref(), 1, AFTER_CHARS_MAX)
    }
}

/// Result of `session/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionListResult {
    /// Newest first.
    pub sessions: Vec<SessionEntry>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One session, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// The session.
    pub session_id: SessionId,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `open`, `closing` or `closed`.
    pub state: Open<SessionState>,
    /// Its processes by state.
    pub totals: Totals,
    /// Retained bytes of the output of its processes.
    pub bytes: u64,
    /// Last attach, detach or end of a process.
    pub last_used_at: String,
}
