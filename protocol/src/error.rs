//! The closed set of error codes and the error object of a reply.

use serde::{Deserialize, Serialize};

use crate::ids::ProcessId;
use crate::words::{Open, words};

words! {
    /// Why a request was refused. Stable: a code is added, never renamed.
    ErrorCode, "an error code" {
        /// A parameter is unknown, missing, of the wrong type or form, or out of range.
        InvalidArguments = "invalid_arguments",
        /// Settings that are wrong or contradict each other.
        InvalidSettings = "invalid_settings",
        /// No running slot. Retryable.
        ProcessQuotaExceeded = "process_quota_exceeded",
        /// No room for memory, spool, disk or waits. Retryable.
        OutputQuotaExceeded = "output_quota_exceeded",
        /// No containment as required.
        LifetimeEnforcementUnavailable = "lifetime_enforcement_unavailable",
        /// Reserved: notifications asked for by a client that did not name the feature.
        ProcessNotificationsUnsupported = "process_notifications_unsupported",
        /// The command could not be started; there is a record.
        SpawnFailed = "spawn_failed",
        /// The daemon could not set the process up. Retryable for the cause `storage`.
        ProcessSetupFailed = "process_setup_failed",
        /// No pseudo-terminal to be had, or none there.
        PtyUnavailable = "pty_unavailable",
        /// Unknown, removed or foreign: one answer for all.
        NotFound = "not_found",
        /// Input to a process whose stdin is closed.
        StdinClosed = "stdin_closed",
        /// The input queue has no room; nothing of the call was taken. Retryable.
        InputBackpressure = "input_backpressure",
        /// The bytes asked for are not kept any more, and the caller asked for an error.
        CursorGap = "cursor_gap",
        /// A cursor beyond the total.
        CursorAhead = "cursor_ahead",
        /// A process asked to succeed passed its deadline.
        TimedOut = "timed_out",
        /// A process asked to succeed was interrupted.
        Interrupted = "interrupted",
        /// A process asked to succeed was terminated.
        Terminated = "terminated",
        /// A process asked to succeed was killed.
        Killed = "killed",
        /// The daemon or the session shuts down, or is closed.
        SupervisorShuttingDown = "supervisor_shutting_down",
        /// A record is damaged beyond repair.
        ManifestCorrupt = "manifest_corrupt",
        /// The stored output is damaged.
        SpoolCorrupt = "spool_corrupt",
        /// A process asked to succeed was lost at a restart of the daemon.
        LostOnRestore = "lost_on_restore",
        /// A killed tree is not proven empty yet. Retryable.
        TeardownFailed = "teardown_failed",
        /// No version in common.
        UnsupportedVersion = "unsupported_version",
        /// The role of the connection may not call this, or the peer may not connect.
        PermissionDenied = "permission_denied",
        /// A count is at its limit. Retryable.
        TooManyRequests = "too_many_requests",
        /// A frame over the limit; the connection is closed.
        FrameTooLarge = "frame_too_large",
        /// The same key or id with another content.
        IdempotencyCollision = "idempotency_collision",
        /// A workspace is claimed by somebody else. Retryable.
        WorkspaceBusy = "workspace_busy",
        /// The client cancelled it.
        Cancelled = "cancelled",
        /// A bug of the daemon, logged there.
        Internal = "internal",
    }
}

/// `details.cause` of `process_setup_failed` that makes it retryable.
const CAUSE_STORAGE: &str = "storage";

impl ErrorCode {
    /// Whether the same request may succeed later, given `details.cause`.
    #[must_use]
    pub fn is_retryable(self, cause: Option<&str>) -> bool {
        match self {
            Self::ProcessQuotaExceeded
            | Self::OutputQuotaExceeded
            | Self::InputBackpressure
            | Self::WorkspaceBusy
            | Self::TooManyRequests
            | Self::TeardownFailed => true,
            Self::ProcessSetupFailed => cause == Some(CAUSE_STORAGE),
            Self::InvalidArguments
            | Self::InvalidSettings
            | Self::LifetimeEnforcementUnavailable
            | Self::ProcessNotificationsUnsupported
            | Self::SpawnFailed
            | Self::PtyUnavailable
            | Self::NotFound
            | Self::StdinClosed
            | Self::CursorGap
            | Self::CursorAhead
            | Self::TimedOut
            | Self::Interrupted
            | Self::Terminated
            | Self::Killed
            | Self::SupervisorShuttingDown
            | Self::ManifestCorrupt
            | Self::SpoolCorrupt
            | Self::LostOnRestore
            | Self::UnsupportedVersion
            | Self::PermissionDenied
            | Self::FrameTooLarge
            | Self::IdempotencyCollision
            | Self::Cancelled
            | Self::Internal => false,
        }
    }
}

/// The error object of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The code.
    pub code: Open<ErrorCode>,
    /// One lower-case sentence for a person.
    #[serde(default)]
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// What a program can act on. Boxed: it is large, and most results carry none.
    #[serde(default)]
    pub details: Box<Details>,
}

impl ErrorBody {
    /// An error without details.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::with_details(code, message, Details::default())
    }

    /// An error with details; whether it is retryable follows from code and cause.
    #[must_use]
    pub fn with_details(code: ErrorCode, message: impl Into<String>, details: Details) -> Self {
        let retryable = code.is_retryable(details.cause.as_deref());
        let details = Box::new(details);
        Self { code: Open::Known(code), message: message.into(), retryable, details }
    }
}

/// Declares [`Details`]: every field optional, left out when absent.
macro_rules! details {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)+) => {
        /// What a program can act on. Each code has its own few of these.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct Details {
            $($(#[$meta])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)+
        }
    };
}

details! {
    /// The parameter that was refused, as a path such as `quotas.running_loop_max` or `argv[3]`.
    field: String,
    /// The cause, a word of the table in PROTOCOL.md.
    cause: String,
    /// The name of the errno, such as "ENOENT".
    errno: String,
    /// The process the error is about.
    process_id: ProcessId,
    /// The limit or setting that was reached.
    limit: String,
    /// Whose limit: `loop`, `session` or `daemon`.
    scope: String,
    /// The value of the limit.
    max: u64,
    /// What is in use.
    in_use: u64,
    /// Input that waits, bytes.
    pending_bytes: u64,
    /// Room for input, bytes.
    free_bytes: u64,
    /// Bytes ever written, beside a cursor beyond them.
    total_bytes: u64,
    /// Processes of a tree that are alive.
    live: u64,
    /// Milliseconds since the kill.
    waited_ms: u64,
    /// The state the record has meanwhile.
    state: String,
    /// Index of the refused word of a command.
    word: u64,
    /// What the system lacks: a right that cannot be held back, a limit that cannot be held.
    missing: String,
    /// Versions the daemon speaks.
    versions: Vec<u32>,
}

/// The error of one process among several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryError {
    /// The code.
    pub code: Open<ErrorCode>,
    /// One lower-case sentence for a person.
    #[serde(default)]
    pub message: String,
}

impl From<ErrorBody> for EntryError {
    fn from(body: ErrorBody) -> Self {
        Self { code: body.code, message: body.message }
    }
}

impl From<crate::FieldError> for ErrorBody {
    fn from(error: crate::FieldError) -> Self {
        let details = Details { field: Some(error.field), ..Details::default() };
        Self::with_details(ErrorCode::InvalidArguments, error.message, details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Word;

    #[test]
    fn there_are_23_codes_of_supervision_and_8_of_the_daemon() {
        assert_eq!(ErrorCode::ALL.len(), 31);
        let texts: std::collections::BTreeSet<_> =
            ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(texts.len(), 31);
    }

    #[test]
    fn storage_alone_makes_a_failed_setup_retryable() {
        let body = |cause: &str| {
            let details = Details { cause: Some(cause.into()), ..Details::default() };
            ErrorBody::with_details(ErrorCode::ProcessSetupFailed, "no", details)
        };
        assert!(body("storage").retryable);
        assert!(!body("guardian").retryable);
        assert!(ErrorBody::new(ErrorCode::TooManyRequests, "no").retryable);
        assert!(!ErrorBody::new(ErrorCode::NotFound, "no").retryable);
    }

    #[test]
    fn a_code_and_a_detail_of_a_later_version_are_survived() {
        let text = r#"{"code":"brand_new","message":"m","details":{"novel":[1]},"hint":true}"#;
        let body: ErrorBody = serde_json::from_str(text).unwrap();
        assert_eq!(body.code, Open::Unknown("brand_new".into()));
        assert_eq!(*body.details, Details::default());
    }

    #[test]
    fn details_are_always_there_even_when_empty() {
        let text = serde_json::to_string(&ErrorBody::new(ErrorCode::NotFound, "no")).unwrap();
        assert_eq!(text, r#"{"code":"not_found","message":"no","retryable":false,"details":{}}"#);
    }
}
