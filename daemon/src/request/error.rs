//! The wire code of every refusal. A new one must choose here.

use procd_core::Handle;
use procd_core::quota::{QuotaError, Scope};
use procd_protocol::{Details, ErrorBody, ErrorCode, ProcessId, v1};
use procd_store::StoreError;

use crate::supervisor::refusal::{PlanRefusal, Refusal};
use crate::supervisor::runner::{InputError, SignalRefusal, SpawnCause, SpawnFailure};

/// The name of a process on the wire.
pub(super) fn process_id(handle: Handle) -> ProcessId {
    ProcessId::from_bytes(*handle.as_bytes())
}

/// The request was cancelled; the process it had started, if any, is being stopped.
pub(super) fn cancelled(process: Option<Handle>) -> ErrorBody {
    let details = Details { process_id: process.map(process_id), ..Details::default() };
    ErrorBody::with_details(ErrorCode::Cancelled, "cancelled by the client", details)
}

/// The error of an end that is no success, for a caller that asked for one. `None` for a success,
/// for a code of its own, whatever it is, and for a process that runs.
pub(super) fn unsuccessful(state: v1::ProcessState, process_id: ProcessId) -> Option<ErrorBody> {
    use v1::ProcessState as S;
    let (code, text) = match state {
        S::TimedOut => (ErrorCode::TimedOut, "the process passed its deadline"),
        S::Interrupted => (ErrorCode::Interrupted, "the process was interrupted"),
        S::Terminated => (ErrorCode::Terminated, "the process was terminated"),
        S::Killed => (ErrorCode::Killed, "the process was killed"),
        S::LostOnRestore => (ErrorCode::LostOnRestore, "the process was lost with its daemon"),
        S::Starting | S::Running | S::Exited | S::Failed => return None,
    };
    let details = Details { process_id: Some(process_id), ..Details::default() };
    Some(ErrorBody::with_details(code, text, details))
}

fn named(field: &str) -> Details {
    Details { field: Some(field.to_owned()), ..Details::default() }
}

/// Code and details of a refusal. The sentence is the refusal's own.
pub(super) fn wire(refusal: &Refusal) -> ErrorBody {
    use ErrorCode as C;
    let none = Details::default;
    let (code, details) = match refusal {
        Refusal::NotFound | Refusal::NoNotification | Refusal::SessionNotFound => {
            (C::NotFound, none())
        }
        Refusal::Invalid { field, .. } => (C::InvalidArguments, named(field)),
        Refusal::Parameter { field, .. } => (C::InvalidArguments, named(field)),
        Refusal::Quota(quota) => of_quota(quota),
        Refusal::Disk { max, in_use } => {
            (C::OutputQuotaExceeded, of_limit("disk_bytes", Scope::Daemon, *max, *in_use))
        }
        Refusal::Pinned { scope, max, in_use } => {
            let limit = format!("pinned_{}_bytes", scope.as_str());
            (C::OutputQuotaExceeded, of_limit(&limit, *scope, *max, *in_use))
        }
        Refusal::Queued { max, in_use } => {
            let details = of_limit("queued_session_max", Scope::Session, *max, *in_use);
            (C::TooManyRequests, details)
        }
        Refusal::Busy { process_id: handle } => {
            (C::WorkspaceBusy, Details { process_id: handle.map(process_id), ..none() })
        }
        Refusal::KeyCollision => (C::IdempotencyCollision, named("request_key")),
        Refusal::KeyRemoved { process_id: handle } => {
            (C::NotFound, Details { process_id: Some(process_id(*handle)), ..none() })
        }
        Refusal::Withdrawn => (C::Cancelled, none()),
        Refusal::TooMany { what, max, in_use } => {
            (C::TooManyRequests, of_limit(what, Scope::Daemon, *max, *in_use))
        }
        Refusal::Waiters { max, in_use } => {
            let details = of_limit("waiters_session_max", Scope::Session, *max, *in_use);
            (C::OutputQuotaExceeded, details)
        }
        Refusal::ShuttingDown { .. } => (C::SupervisorShuttingDown, none()),
        Refusal::Containment { .. } => (C::LifetimeEnforcementUnavailable, none()),
        Refusal::Plan(refusal) => of_plan(refusal),
        Refusal::Setup { cause, process_id: handle } => {
            let cause = Some((*cause).to_owned());
            let details = Details { cause, process_id: handle.map(process_id), ..none() };
            (C::ProcessSetupFailed, details)
        }
        Refusal::Spawn { failure, process_id: handle } => of_spawn(*failure, *handle),
        Refusal::Input(error) => of_input(*error),
        Refusal::Signal(refusal) => (of_signal(*refusal), none()),
        Refusal::StdinClosed { .. } => (C::StdinClosed, none()),
        Refusal::Teardown { live, waited_ms, state } => {
            let details = Details {
                live: Some(u64::from(*live)),
                waited_ms: Some(*waited_ms),
                state: Some(state.as_str().to_owned()),
                ..none()
            };
            (C::TeardownFailed, details)
        }
        Refusal::CursorAhead { total_bytes, .. } => {
            (C::CursorAhead, Details { total_bytes: Some(*total_bytes), ..none() })
        }
        Refusal::CursorGap { .. } => (C::CursorGap, none()),
        Refusal::SpoolCorrupt => (C::SpoolCorrupt, none()),
        Refusal::ManifestCorrupt => (C::ManifestCorrupt, none()),
        Refusal::Internal => (C::Internal, none()),
    };
    ErrorBody::with_details(code, sentence(refusal), details)
}

fn of_plan(refusal: &PlanRefusal) -> (ErrorCode, Details) {
    let none = Details::default;
    match refusal {
        PlanRefusal::Unenforceable { field, missing, .. } => {
            let (field, missing) = (Some(field.clone()), Some(missing.clone()));
            (ErrorCode::LifetimeEnforcementUnavailable, Details { field, missing, ..none() })
        }
        PlanRefusal::Guarded { field, cause, word } => {
            let (field, cause) = (Some((*field).to_owned()), Some((*cause).to_owned()));
            (ErrorCode::InvalidArguments, Details { field, cause, word: Some(*word), ..none() })
        }
        PlanRefusal::Settings { .. } => (ErrorCode::InvalidSettings, none()),
    }
}

/// What a person reads.
fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Spawn { failure, .. } => spawn_sentence(failure.cause).to_owned(),
        Refusal::Input(InputError::Backpressure { .. }) => {
            "the input queue has no room for this call; nothing of it was taken".to_owned()
        }
        Refusal::Input(InputError::Closed) => "the stdin of the process is closed".to_owned(),
        Refusal::Input(InputError::ShuttingDown) => {
            "the daemon or the session is shutting down".to_owned()
        }
        Refusal::Input(InputError::NoTerminal) => {
            "the process has no terminal, which keys and a size are for".to_owned()
        }
        Refusal::Input(InputError::LineTooLong) => {
            "`data` would make a line of more than 4095 bytes, which a terminal in line mode cuts"
                .to_owned()
        }
        Refusal::Signal(SignalRefusal::NoTerminal) => {
            "`target` is `foreground`, and the process has no terminal".to_owned()
        }
        Refusal::Signal(SignalRefusal::Busy) => "too many signals wait for the process".to_owned(),
        Refusal::NotFound
        | Refusal::ManifestCorrupt
        | Refusal::NoNotification
        | Refusal::SessionNotFound
        | Refusal::Invalid { .. }
        | Refusal::Parameter { .. }
        | Refusal::Quota(_)
        | Refusal::Disk { .. }
        | Refusal::Pinned { .. }
        | Refusal::Queued { .. }
        | Refusal::Busy { .. }
        | Refusal::KeyCollision
        | Refusal::KeyRemoved { .. }
        | Refusal::Withdrawn
        | Refusal::TooMany { .. }
        | Refusal::Waiters { .. }
        | Refusal::ShuttingDown { .. }
        | Refusal::Containment { .. }
        | Refusal::Plan(_)
        | Refusal::Setup { .. }
        | Refusal::StdinClosed { .. }
        | Refusal::Teardown { .. }
        | Refusal::CursorAhead { .. }
        | Refusal::CursorGap { .. }
        | Refusal::SpoolCorrupt
        | Refusal::Internal => refusal.to_string(),
    }
}

fn of_limit(limit: &str, scope: Scope, max: u64, in_use: u64) -> Details {
    Details {
        limit: Some(limit.to_owned()),
        scope: Some(scope.as_str().to_owned()),
        max: Some(max),
        in_use: Some(in_use),
        ..Details::default()
    }
}

fn of_quota(quota: &QuotaError) -> (ErrorCode, Details) {
    match *quota {
        QuotaError::Slots { scope, max, in_use } => {
            let limit = format!("running_{}_max", scope.as_str());
            (ErrorCode::ProcessQuotaExceeded, of_limit(&limit, scope, max, in_use))
        }
        QuotaError::Memory { scope, max, in_use } => {
            let limit = format!("memory_{}_bytes", scope.as_str());
            (ErrorCode::OutputQuotaExceeded, of_limit(&limit, scope, max, in_use))
        }
        QuotaError::Spool { scope, max, in_use } => {
            let limit = format!("spool_{}_bytes", scope.as_str());
            (ErrorCode::OutputQuotaExceeded, of_limit(&limit, scope, max, in_use))
        }
        QuotaError::NoSession => (ErrorCode::SupervisorShuttingDown, Details::default()),
    }
}

fn of_spawn(failure: SpawnFailure, handle: Handle) -> (ErrorCode, Details) {
    let (code, cause) = match failure.cause {
        SpawnCause::NoSuchProgram => (ErrorCode::SpawnFailed, "no_such_program"),
        SpawnCause::NotExecutable => (ErrorCode::SpawnFailed, "not_executable"),
        SpawnCause::BadFormat => (ErrorCode::SpawnFailed, "bad_format"),
        SpawnCause::CwdMissing => (ErrorCode::SpawnFailed, "cwd_missing"),
        SpawnCause::CwdDenied => (ErrorCode::SpawnFailed, "cwd_denied"),
        SpawnCause::CwdNotDirectory => (ErrorCode::SpawnFailed, "cwd_not_directory"),
        SpawnCause::ArgumentListTooLong => (ErrorCode::SpawnFailed, "argument_list_too_long"),
        SpawnCause::OutOfMemory => (ErrorCode::SpawnFailed, "out_of_memory"),
        SpawnCause::OutOfDescriptors => (ErrorCode::SpawnFailed, "out_of_descriptors"),
        SpawnCause::Other => (ErrorCode::SpawnFailed, "other"),
        SpawnCause::ControlGroup => (ErrorCode::ProcessSetupFailed, "control_group"),
        SpawnCause::Guardian => (ErrorCode::ProcessSetupFailed, "guardian"),
        SpawnCause::Terminal => (ErrorCode::PtyUnavailable, ""),
        SpawnCause::Fence => (ErrorCode::LifetimeEnforcementUnavailable, ""),
        SpawnCause::Isolation => (ErrorCode::LifetimeEnforcementUnavailable, ""),
    };
    let errno =
        (failure.errno != 0).then(|| format!("{:?}", nix::errno::Errno::from_raw(failure.errno)));
    let details = Details {
        cause: (!cause.is_empty()).then(|| cause.to_owned()),
        errno,
        process_id: Some(process_id(handle)),
        ..Details::default()
    };
    (code, details)
}

const fn spawn_sentence(cause: SpawnCause) -> &'static str {
    match cause {
        SpawnCause::NoSuchProgram => "there is no such program",
        SpawnCause::NotExecutable => "the program may not be executed",
        SpawnCause::BadFormat => "the program has no format that the system can execute",
        SpawnCause::CwdMissing => "`cwd` does not exist",
        SpawnCause::CwdDenied => "`cwd` may not be entered",
        SpawnCause::CwdNotDirectory => "`cwd` is not a folder",
        SpawnCause::ArgumentListTooLong => "arguments and environment are too long together",
        SpawnCause::OutOfMemory => "the system has no memory left for the command",
        SpawnCause::OutOfDescriptors => "no descriptor is left for the command",
        SpawnCause::Other => "the command could not be started",
        SpawnCause::ControlGroup => "the control group of the command could not be made",
        SpawnCause::Guardian => "the guardian could not start the command",
        SpawnCause::Terminal => "no terminal is to be had from the system",
        SpawnCause::Fence => "the kernel does not hold the command to its access",
        SpawnCause::Isolation => "the system gave no namespace for the command",
    }
}

const fn of_signal(refusal: SignalRefusal) -> ErrorCode {
    match refusal {
        SignalRefusal::NoTerminal => ErrorCode::PtyUnavailable,
        SignalRefusal::Busy => ErrorCode::TooManyRequests,
    }
}

fn of_input(error: InputError) -> (ErrorCode, Details) {
    match error {
        InputError::Backpressure { pending_bytes, free_bytes } => {
            let details = Details {
                pending_bytes: Some(pending_bytes),
                free_bytes: Some(free_bytes),
                ..Details::default()
            };
            (ErrorCode::InputBackpressure, details)
        }
        InputError::Closed => (ErrorCode::StdinClosed, Details::default()),
        InputError::ShuttingDown => (ErrorCode::SupervisorShuttingDown, Details::default()),
        InputError::NoTerminal => (ErrorCode::PtyUnavailable, Details::default()),
        InputError::LineTooLong => {
            let details = Details { field: Some("data".to_owned()), ..Details::default() };
            (ErrorCode::InvalidArguments, details)
        }
    }
}

/// What a failed read of output is to its reader. The path stays in the daemon's log.
pub(super) fn of_read(error: &StoreError) -> Refusal {
    match error {
        StoreError::CursorAhead { cursor, total } => {
            Refusal::CursorAhead { cursor: *cursor, total_bytes: *total }
        }
        StoreError::SpoolCorrupt { .. } | StoreError::Corrupt { .. } => {
            tracing::warn!(%error, "an output cannot be read");
            Refusal::SpoolCorrupt
        }
        StoreError::Locked { .. }
        | StoreError::Unsafe { .. }
        | StoreError::Newer { .. }
        | StoreError::Manifest { .. }
        | StoreError::Collision { .. }
        | StoreError::Encode { .. }
        | StoreError::Io { .. } => {
            tracing::error!(%error, "an output cannot be read");
            Refusal::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procd_core::ProcessState;

    fn of(refusal: &Refusal) -> (&'static str, Details) {
        let body = wire(refusal);
        (procd_protocol::words::Word::as_str(body.code.known().unwrap()), *body.details)
    }

    #[test]
    fn unknown_and_foreign_processes_get_one_and_the_same_error() {
        let text = serde_json::to_string(&wire(&Refusal::NotFound)).unwrap();
        let wanted =
            r#"{"code":"not_found","message":"no such process","retryable":false,"details":{}}"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn quotas_name_limit_scope_maximum_and_use() {
        let quota = QuotaError::Slots { scope: Scope::Loop, max: 8, in_use: 8 };
        let (code, details) = of(&Refusal::Quota(quota));
        assert_eq!(code, "process_quota_exceeded");
        assert_eq!(details.limit.as_deref(), Some("running_loop_max"));
        assert_eq!((details.scope.as_deref(), details.max), (Some("loop"), Some(8)));
        assert!(wire(&Refusal::Quota(quota)).retryable);
        for scope in [Scope::Loop, Scope::Session, Scope::Daemon] {
            for quota in [
                QuotaError::Slots { scope, max: 1, in_use: 1 },
                QuotaError::Memory { scope: Scope::Session, max: 1, in_use: 1 },
                QuotaError::Spool { scope: Scope::Daemon, max: 1, in_use: 1 },
            ] {
                let limit = of(&Refusal::Quota(quota)).1.limit.unwrap();
                let known = procd_core::settings::Limits::KEYS.contains(&limit.as_str());
                assert!(known, "{limit}");
            }
        }
    }

    #[test]
    fn a_failed_spawn_carries_cause_errno_and_record() {
        let handle = Handle::from_bytes([7; 16]);
        let failure = SpawnFailure { cause: SpawnCause::NoSuchProgram, errno: 2 };
        let (code, details) = of(&Refusal::Spawn { failure, process_id: handle });
        assert_eq!(code, "spawn_failed");
        assert_eq!(details.cause.as_deref(), Some("no_such_program"));
        assert_eq!(details.errno.as_deref(), Some("ENOENT"));
        assert_eq!(details.process_id, Some(process_id(handle)));
        let failure = SpawnFailure { cause: SpawnCause::Guardian, errno: 0 };
        let (code, details) = of(&Refusal::Spawn { failure, process_id: handle });
        assert_eq!((code, details.errno), ("process_setup_failed", None));
    }

    #[test]
    fn what_may_succeed_later_is_retryable() {
        let teardown =
            Refusal::Teardown { live: 1, waited_ms: 10_000, state: ProcessState::Running };
        let storage = Refusal::Setup { cause: "storage", process_id: None };
        let full = Refusal::Input(InputError::Backpressure { pending_bytes: 5, free_bytes: 1 });
        for refusal in [&teardown, &storage, &full, &Refusal::Waiters { max: 1, in_use: 1 }] {
            assert!(wire(refusal).retryable, "{refusal:?}");
        }
        for refusal in [&Refusal::NotFound, &Refusal::SpoolCorrupt, &Refusal::Internal] {
            assert!(!wire(refusal).retryable, "{refusal:?}");
        }
        assert_eq!(of(&full).1.free_bytes, Some(1));
        assert_eq!(of(&teardown).1.waited_ms, Some(10_000));
    }
}
