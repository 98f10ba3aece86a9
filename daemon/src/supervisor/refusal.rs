//! Everything the supervisor can refuse, by what the caller can do. The wire code is chosen in
//! `request`, by an exhaustive match.

use procd_core::quota::QuotaError;
use procd_core::{Handle, ProcessState};

use super::runner::{InputError, SignalRefusal, SpawnFailure};

/// A refusal. Messages name no path, pid or anything of another owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Unknown, removed or foreign: one answer for all of them.
    #[error("no such process")]
    NotFound,
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
    /// No room.
    #[error("{0}")]
    Quota(QuotaError),
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
