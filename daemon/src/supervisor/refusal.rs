//! Everything the supervisor can refuse, by what the caller can do. The wire code is chosen in
//! `request`, by an exhaustive match.

use procd_core::quota::{QuotaError, Scope};
use procd_core::{Handle, ProcessState};

use super::runner::{InputError, SignalRefusal, SpawnFailure};

/// A refusal. Messages name no path, pid or anything of another owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Unknown, removed or foreign: one answer for all of them.
    #[error("no such process")]
    NotFound,
    /// For an operator: its record was damaged and is in quarantine.
    #[error("the record of the process is damaged; what is left of it is in quarantine")]
    ManifestCorrupt,
    /// Unknown notification, or one of another loop.
    #[error("no such notification")]
    NoNotification,
    /// Unknown session or wrong key: one answer for both.
    #[error("no such session, or another key")]
    SessionNotFound,
    /// A parameter that only the state can judge.
    #[error("{message}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The sentence.
        message: String,
    },
    /// A parameter whose name is made at run time.
    #[error("{message}")]
    Parameter {
        /// The field.
        field: String,
        /// The sentence.
        message: String,
    },
    /// No room.
    #[error("{0}")]
    Quota(QuotaError),
    /// The disk of the state folder.
    #[error("{in_use} of {max} bytes of disk are in use")]
    Disk {
        /// The limit, bytes.
        max: u64,
        /// In use, bytes.
        in_use: u64,
    },
    /// The pinned bytes.
    #[error("{in_use} of {max} bytes of the {} are pinned", scope.as_str())]
    Pinned {
        /// Where.
        scope: Scope,
        /// The limit, bytes.
        max: u64,
        /// Pinned, bytes.
        in_use: u64,
    },
    /// The starts of the session that wait are as many as may.
    #[error("{in_use} of {max} starts of the session are queued")]
    Queued {
        /// The limit.
        max: u64,
        /// In use.
        in_use: u64,
    },
    /// A workspace is claimed by somebody else.
    #[error("the workspace is claimed by {}", who(*process_id))]
    Busy {
        /// By this process, if the caller owns it.
        process_id: Option<Handle>,
    },
    /// The same key with another body.
    #[error("`request_key` was used with another request")]
    KeyCollision,
    /// The record that a key belonged to is removed.
    #[error("the process of this `request_key` was removed")]
    KeyRemoved {
        /// What it was.
        process_id: Handle,
    },
    /// Its caller waits no more.
    #[error("the caller waits no more")]
    Withdrawn,
    /// A count that is not the ledger's is at its limit.
    #[error("{what}: {in_use} of {max} are in use")]
    TooMany {
        /// The setting.
        what: &'static str,
        /// The limit.
        max: u64,
        /// In use.
        in_use: u64,
    },
    /// The blocking calls of the session are all taken.
    #[error("{in_use} of {max} waits of the session are in use")]
    Waiters {
        /// The limit.
        max: u64,
        /// In use.
        in_use: u64,
    },
    /// The daemon or the session shuts down, or is closed.
    #[error("the {what} is shutting down or closed")]
    ShuttingDown {
        /// `daemon` or `session`.
        what: &'static str,
    },
    /// No containment as required.
    #[error("{message}")]
    Containment {
        /// The sentence.
        message: String,
    },
    /// A plan that cannot be made.
    #[error(transparent)]
    Plan(PlanRefusal),
    /// Set-up failed; the cause is a word of the protocol.
    #[error("the process could not be set up: {cause}")]
    Setup {
        /// `storage, handle, control_group, guardian, other`.
        cause: &'static str,
        /// The record, if there is one already.
        process_id: Option<Handle>,
    },
    /// Nothing could be started; there is a record.
    #[error("the command could not be started")]
    Spawn {
        /// What failed.
        failure: SpawnFailure,
        /// The record.
        process_id: Handle,
    },
    /// Input was not taken.
    #[error("input was not taken")]
    Input(InputError),
    /// A named signal was not sent.
    #[error("the signal was not sent")]
    Signal(SignalRefusal),
    /// Input to a process that has ended, or has no pipe.
    #[error("{message}")]
    StdinClosed {
        /// The sentence.
        message: &'static str,
    },
    /// A killed tree is not proven empty.
    #[error("{live} processes of the tree are alive {waited_ms} ms after SIGKILL")]
    Teardown {
        /// Alive.
        live: u32,
        /// Since the kill.
        waited_ms: u64,
        /// The state the record has.
        state: ProcessState,
    },
    /// A cursor beyond the total.
    #[error("the cursor {cursor} is beyond the total of {total_bytes} bytes")]
    CursorAhead {
        /// As asked, resolved.
        cursor: u64,
        /// Bytes ever written.
        total_bytes: u64,
    },
    /// Bytes asked for are not kept any more, and the caller wants to know.
    #[error("the bytes from {cursor} to {retained_from} are not kept any more")]
    CursorGap {
        /// As asked, resolved.
        cursor: u64,
        /// The first byte after it that is kept.
        retained_from: u64,
    },
    /// The output on disk is damaged.
    #[error("the output of this process is damaged")]
    SpoolCorrupt,
    /// A bug, logged in full where it happened.
    #[error("internal error")]
    Internal,
}

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRefusal {
    /// Something that the kernel was to hold, and cannot.
    #[error("{message}")]
    Unenforceable {
        /// The field.
        field: String,
        /// What is missing.
        missing: String,
        /// The sentence.
        message: String,
    },
    /// A word that the guard of the session does not let pass.
    #[error("`{field}`: the guard of the session does not let this word pass")]
    Guarded {
        /// The field.
        field: &'static str,
        /// `guard_protected_path` or `guard_git_redirection`.
        cause: &'static str,
        /// Its index.
        word: u64,
    },
    /// Settings that do not go with the request.
    #[error("{message}")]
    Settings {
        /// The sentence.
        message: &'static str,
    },
}

/// What is told of who holds a workspace: a process by its handle, and only to its owner.
fn who(process: Option<Handle>) -> String {
    process
        .map_or_else(|| "another writer or reader".to_owned(), |handle| format!("process {handle}"))
}
