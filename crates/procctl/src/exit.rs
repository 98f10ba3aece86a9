//! What can go wrong here, in one plain sentence each that ends with what to do next, and the exit
//! codes. Source: spec, operators, *procctl*.

use std::io;

use procd_protocol::{ErrorBody, ErrorCode, Open};

/// Exit codes of procctl itself. `run`, and `wait` on one process, exit with the command's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Done.
    Ok,
    /// Any other failure.
    Failure,
    /// The command line is wrong, or the daemon refused an argument.
    Usage,
    /// The process does not run any more.
    NotRunning,
    /// There is no such process.
    NotFound,
    /// No daemon answers.
    NoDaemon,
    /// Not allowed, or no room.
    Denied,
    /// A time limit passed.
    TimedOut,
}

impl Code {
    /// The number a shell sees.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotRunning => 3,
            Self::NotFound => 4,
            Self::NoDaemon => 5,
            Self::Denied => 6,
            Self::TimedOut => 124,
        }
    }
}

/// Why a command of procctl failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CtlError {
    /// The command line does not make sense.
    #[error("{what}; {advice}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to do next.
        advice: String,
    },
    /// No process has this name.
    #[error(
        "no process `{0}` is known to the daemon; `procctl ps` lists yours, `procctl ps -a` all"
    )]
    NoSuchProcess(String),
    /// No session has this name.
    #[error("no session `{0}` is known to the daemon; `procctl sessions` lists them")]
    NoSuchSession(String),
    /// Not allowed, by this program's own judgement.
    #[error("{what}; {advice}")]
    Denied {
        /// What is not allowed.
        what: String,
        /// What to do next.
        advice: &'static str,
    },
    /// The daemon said no.
    #[error("{message}; {advice}")]
    Refused {
        /// The daemon's code.
        code: Open<ErrorCode>,
        /// The daemon's sentence.
        message: String,
        /// What to do next.
        advice: &'static str,
    },
    /// Nobody listens, or the connection was lost.
    #[error("{what}; {advice}")]
    NoDaemon {
        /// What happened.
        what: String,
        /// What to do next.
        advice: &'static str,
    },
    /// There is no place for the socket or the state folder; the sentence says what to set.
    #[error("{0}")]
    Place(String),
    /// A file, a stream or the system failed.
    #[error("{what}: {source}{}", after_failure(source.kind()))]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The daemon's answer does not make sense.
    #[error("{0}; run `procctl status` to see whether daemon and procctl are of one version")]
    Answer(String),
    /// A time limit passed.
    #[error("no end within {0}; wait again, or stop it with `procctl stop`")]
    TimedOut(String),
    /// The reader of stdout has seen enough: a quiet end.
    #[error("stdout was closed")]
    StdoutClosed,
}

impl CtlError {
    /// A wrong command line: what is wrong, and what to do next.
    pub(crate) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }

    /// Something that may not be done.
    pub(crate) fn denied(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Denied { what: what.into(), advice }
    }

    /// The exit code that tells a script the same.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Usage { .. } => Code::Usage,
            Self::NoSuchProcess(_) | Self::NoSuchSession(_) => Code::NotFound,
            Self::Denied { .. } => Code::Denied,
            Self::Refused { code: Open::Known(code), .. } => refusal(*code),
            Self::Refused { code: Open::Unknown(_), .. }
            | Self::Io { .. }
            | Self::Answer(_)
            | Self::Place(_) => Code::Failure,
            Self::NoDaemon { .. } => Code::NoDaemon,
            Self::TimedOut(_) => Code::TimedOut,
            Self::StdoutClosed => Code::Ok,
        }
    }

    /// The daemon's refusal with what to do next; the errno where the sentence has no word for it.
    pub(crate) fn refused(body: ErrorBody) -> Self {
        let ErrorBody { code, mut message, details, .. } = body;
        let is_storage = details.cause.as_deref() == Some("storage");
        let advice = match &code {
            Open::Known(ErrorCode::ProcessSetupFailed) if is_storage => {
                "make room on the disk of the state folder; `procctl doctor` shows how much there is"
            }
            Open::Known(code) => advice(*code),
            Open::Unknown(_) => "see the daemon's documents for this code",
        };
        if details.cause.as_deref() == Some("other")
            && let Some(errno) = details.errno.filter(|errno| !message.contains(errno))
        {
            message = format!("{message} ({errno})");
        }
        Self::Refused { code, message, advice }
    }
}

/// What to do next where the system's word says enough to know.
fn after_failure(kind: io::ErrorKind) -> &'static str {
    if [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&kind) {
        "; make room there"
    } else if kind == io::ErrorKind::PermissionDenied {
        "; check its rights"
    } else if kind == io::ErrorKind::NotFound {
        "; check the path"
    } else {
        ""
    }
}

const fn refusal(code: ErrorCode) -> Code {
    match code {
        ErrorCode::InvalidArguments => Code::Usage,
        ErrorCode::StdinClosed => Code::NotRunning,
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::PermissionDenied
        | ErrorCode::ProcessQuotaExceeded
        | ErrorCode::OutputQuotaExceeded
        | ErrorCode::TooManyRequests
        | ErrorCode::InputBackpressure
        | ErrorCode::WorkspaceBusy => Code::Denied,
        ErrorCode::TimedOut => Code::TimedOut,
        ErrorCode::InvalidSettings
        | ErrorCode::LifetimeEnforcementUnavailable
        | ErrorCode::ProcessNotificationsUnsupported
        | ErrorCode::SpawnFailed
        | ErrorCode::ProcessSetupFailed
        | ErrorCode::PtyUnavailable
        | ErrorCode::CursorGap
        | ErrorCode::CursorAhead
        | ErrorCode::Interrupted
        | ErrorCode::Terminated
        | ErrorCode::Killed
        | ErrorCode::SupervisorShuttingDown
        | ErrorCode::ManifestCorrupt
        | ErrorCode::SpoolCorrupt
        | ErrorCode::LostOnRestore
        | ErrorCode::TeardownFailed
        | ErrorCode::UnsupportedVersion
        | ErrorCode::FrameTooLarge
        | ErrorCode::IdempotencyCollision
        | ErrorCode::Cancelled
        | ErrorCode::Internal => Code::Failure,
    }
}

const fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InvalidArguments => "correct that argument and try again",
        ErrorCode::InvalidSettings => "correct the configuration and start the daemon again",
        ErrorCode::ProcessQuotaExceeded => "wait for a process to end, or stop one",
        ErrorCode::OutputQuotaExceeded => "wait for a process to end, or ask for less",
        ErrorCode::LifetimeEnforcementUnavailable => {
            "see `containment` in the configuration and `procctl status`"
        }
        ErrorCode::ProcessNotificationsUnsupported | ErrorCode::UnsupportedVersion => {
            "use procctl and procd of one version"
        }
        ErrorCode::SpawnFailed => "check the command's name, its rights and the working folder",
        ErrorCode::ProcessSetupFailed => "see the daemon's log and `procctl status`",
        ErrorCode::PtyUnavailable => "start it with a terminal, or do without",
        ErrorCode::NotFound => "`procctl ps` lists your processes, `procctl ps -a` all",
        ErrorCode::StdinClosed => "`procctl inspect` shows its record",
        ErrorCode::InputBackpressure => "let the process read what it has, then send it again",
        ErrorCode::CursorGap | ErrorCode::CursorAhead => "read from a cursor that is kept",
        ErrorCode::TimedOut
        | ErrorCode::Interrupted
        | ErrorCode::Terminated
        | ErrorCode::Killed
        | ErrorCode::LostOnRestore => "`procctl inspect` shows how it ended",
        ErrorCode::SupervisorShuttingDown => "try again when the daemon has been started anew",
        ErrorCode::ManifestCorrupt | ErrorCode::SpoolCorrupt => {
            "look into `quarantine` in the state folder"
        }
        ErrorCode::TeardownFailed => "the daemon goes on trying; `procctl inspect` shows when",
        ErrorCode::PermissionDenied => "use the account that the daemon runs under",
        ErrorCode::TooManyRequests => "try again in a moment",
        ErrorCode::FrameTooLarge => "send less in one call",
        ErrorCode::IdempotencyCollision => "use another key",
        ErrorCode::WorkspaceBusy => "wait for the process that holds the workspace",
        ErrorCode::Cancelled => "start it again if it is still wanted",
        ErrorCode::Internal => "see the daemon's log",
    }
}

/// How a process ended, as far as an exit code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ended<'text> {
    /// The state's word.
    pub(crate) state: &'text str,
    /// The exit code of an `exited` one.
    pub(crate) exit_code: Option<i64>,
    /// The leader's own code.
    pub(crate) leader_code: Option<i64>,
    /// The signal that ended the leader.
    pub(crate) leader_signal: Option<i64>,
}

/// The code that `run` and `wait` exit with: the command's own, 128 + n on a signal, 124 when its
/// deadline ended it, 1 when there is nothing of the command to tell.
pub(crate) fn command_code(ended: Ended<'_>) -> u8 {
    if ended.state == "timed_out" {
        return Code::TimedOut.number();
    }
    let signalled = ended.leader_signal.map(|signal| signal.saturating_add(128));
    let code = ended.exit_code.or(ended.leader_code).or(signalled);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Code::Failure.number())
}

#[cfg(test)]
mod tests {
    use procd_protocol::Details;
    use procd_protocol::Word;

    use super::*;

    fn numbered(code: ErrorCode) -> u8 {
        CtlError::refused(ErrorBody::new(code, "no")).code().number()
    }

    #[test]
    fn the_exit_codes_are_those_of_the_contract() {
        let codes = [
            (Code::Ok, 0),
            (Code::Failure, 1),
            (Code::Usage, 2),
            (Code::NotRunning, 3),
            (Code::NotFound, 4),
            (Code::NoDaemon, 5),
            (Code::Denied, 6),
            (Code::TimedOut, 124),
        ];
        for (code, number) in codes {
            assert_eq!(code.number(), number);
        }
    }

    #[test]
    fn a_refusal_exits_by_its_kind() {
        let cases = [
            (ErrorCode::InvalidArguments, 2),
            (ErrorCode::StdinClosed, 3),
            (ErrorCode::NotFound, 4),
            (ErrorCode::PermissionDenied, 6),
            (ErrorCode::ProcessQuotaExceeded, 6),
            (ErrorCode::OutputQuotaExceeded, 6),
            (ErrorCode::TimedOut, 124),
            (ErrorCode::SpawnFailed, 1),
        ];
        for (code, number) in cases {
            assert_eq!(numbered(code), number, "{code:?}");
        }
    }

    #[test]
    fn every_refusal_is_one_sentence_that_says_what_to_do_next() {
        for code in ErrorCode::ALL {
            let text = CtlError::refused(ErrorBody::new(*code, "it did not work")).to_string();
            let (what, next) = text.split_once("; ").unwrap();
            assert_eq!(what, "it did not work");
            assert!(!next.is_empty() && !next.ends_with('.'), "{text}");
        }
    }

    #[test]
    fn a_full_disk_is_told_with_what_to_do() {
        let what = "cannot write `/x`".to_owned();
        let full = CtlError::Io { what, source: io::ErrorKind::StorageFull.into() };
        assert_eq!(full.to_string(), "cannot write `/x`: no storage space; make room there");
        let cause = Some("storage".to_owned());
        let details = Details { cause, ..Details::default() };
        let body = ErrorBody::with_details(ErrorCode::ProcessSetupFailed, "no start", details);
        let said = CtlError::refused(body).to_string();
        assert!(said.starts_with("no start; make room on the disk of the state folder"), "{said}");
    }

    #[test]
    fn a_code_of_a_later_version_is_a_failure_like_any_other() {
        let unknown = Open::Unknown("brand_new".to_owned());
        let body = ErrorBody { code: unknown, ..ErrorBody::new(ErrorCode::Internal, "no") };
        assert_eq!(CtlError::refused(body).code(), Code::Failure);
    }

    #[test]
    fn an_errno_is_told_where_there_is_no_word_for_the_cause() {
        let text = |cause: &str| {
            let details = Details {
                cause: Some(cause.to_owned()),
                errno: Some("EIO".to_owned()),
                ..Details::default()
            };
            let code = ErrorCode::SpawnFailed;
            CtlError::refused(ErrorBody::with_details(code, "it did not start", details))
                .to_string()
        };
        assert!(text("other").starts_with("it did not start (EIO);"));
        assert!(text("no_such_program").starts_with("it did not start;"));
    }

    #[test]
    fn a_commands_code_comes_back_exactly() {
        for code in 0..=255 {
            let ended =
                Ended { state: "exited", exit_code: Some(i64::from(code)), ..Ended::default() };
            assert_eq!(command_code(ended), code);
        }
    }

    #[test]
    fn a_signal_is_128_and_its_number_whoever_sent_it() {
        for signal in 1..=64 {
            let ended = Ended {
                state: "terminated",
                leader_signal: Some(i64::from(signal)),
                ..Ended::default()
            };
            assert_eq!(command_code(ended), 128 + signal);
        }
    }

    #[test]
    fn a_command_that_ended_politely_when_stopped_gives_its_own_code() {
        let ended = Ended { state: "interrupted", leader_code: Some(3), ..Ended::default() };
        assert_eq!(command_code(ended), 3);
    }

    #[test]
    fn a_deadline_is_124_and_nothing_to_tell_is_1() {
        let timed_out = Ended { state: "timed_out", leader_signal: Some(15), ..Ended::default() };
        assert_eq!(command_code(timed_out), 124);
        for state in ["failed", "lost_on_restore", "killed"] {
            assert_eq!(command_code(Ended { state, ..Ended::default() }), 1);
        }
    }
}
