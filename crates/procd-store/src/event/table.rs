//! The table of lifecycle events as data, and the check of an event against its row.

use jiff::Timestamp;
use procd_core::state::{Access, ProcessState as S, Reason as R};
use procd_core::words;

use super::{DIAGNOSTIC_BYTES_MAX, Event, EventError, PROCESS_ID_CHARS_MAX};

words! {
    /// What happened.
    EventKind, "kind" {
        /// It runs.
        Started = "started",
        /// It runs and its caller went on.
        Backgrounded = "backgrounded",
        /// A stop took effect. Repeats.
        StopRequested = "stop_requested",
        /// It is terminal.
        Completed = "completed",
        /// It was unfinished at a restore.
        Lost = "lost",
        /// Its leader ended, its tree lives (`keep_tree`). Counted like kinds that repeat.
        LeaderExited = "leader_exited",
        /// Its spool cannot be written. Repeats.
        SpoolDegraded = "spool_degraded",
        /// Its spool is written again. Repeats.
        SpoolRecovered = "spool_recovered",
        /// Its first byte was dropped. Counted like kinds that repeat.
        OutputGap = "output_gap",
        /// It may write to the workspace from now on, or no more. Repeats.
        WorkspaceChanged = "workspace_changed",
    }
}

impl EventKind {
    /// Whether a record counts it by ordinals and keeps the newest only.
    #[must_use]
    pub const fn repeats(self) -> bool {
        match self {
            Self::Started | Self::Backgrounded | Self::Completed | Self::Lost => false,
            Self::StopRequested
            | Self::LeaderExited
            | Self::SpoolDegraded
            | Self::SpoolRecovered
            | Self::OutputGap
            | Self::WorkspaceChanged => true,
        }
    }
}

words! {
    /// The two ends of a writer's time in the workspace.
    Phase, "phase" {
        /// Before the spawn request leaves the daemon.
        Started = "started",
        /// After the tree is proven empty.
        Ended = "ended",
    }
}

/// Whether a row has a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Yes,
    No,
    /// Exactly when the record has it; an event alone cannot tell.
    AsRecord,
    /// Exactly in state `running`.
    IfRunning,
}

/// One row: the kinds, states and reasons that go together, and what such an event has.
struct Row {
    kinds: &'static [EventKind],
    phase: Option<Phase>,
    states: &'static [S],
    /// Empty: no reason.
    reasons: &'static [R],
    started: Presence,
    finished: bool,
    exit_code: bool,
    diagnostic: bool,
}

use EventKind as K;
use Presence::{AsRecord, IfRunning, No, Yes};

/// A row that forbids all that is optional.
const PLAIN: Row = Row {
    kinds: &[],
    phase: None,
    states: &[],
    reasons: &[],
    started: Yes,
    finished: true,
    exit_code: false,
    diagnostic: false,
};

/// The table of the spec, line by line.
const ROWS: &[Row] = &[
    Row { kinds: &[K::Started, K::Backgrounded], states: &[S::Running], finished: false, ..PLAIN },
    Row {
        kinds: &[K::StopRequested],
        states: &[S::Starting, S::Running],
        reasons: &[R::Interrupted, R::Terminated, R::Killed],
        started: IfRunning,
        finished: false,
        ..PLAIN
    },
    Row {
        kinds: &[K::Completed],
        states: &[S::Exited],
        reasons: &[R::Exited],
        exit_code: true,
        ..PLAIN
    },
    Row {
        kinds: &[K::Completed],
        states: &[S::Failed],
        reasons: &[R::Failed],
        started: AsRecord,
        diagnostic: true,
        ..PLAIN
    },
    Row { kinds: &[K::Completed], states: &[S::TimedOut], reasons: &[R::TimedOut], ..PLAIN },
    Row { kinds: &[K::Completed], states: &[S::Interrupted], reasons: &[R::Interrupted], ..PLAIN },
    Row {
        kinds: &[K::Completed],
        states: &[S::Terminated],
        reasons: &[R::Terminated, R::RunnerShutdown, R::OutputLimit],
        started: AsRecord,
        ..PLAIN
    },
    Row {
        kinds: &[K::Completed],
        states: &[S::Killed],
        reasons: &[R::Killed, R::RunnerShutdown, R::OutputLimit],
        started: AsRecord,
        ..PLAIN
    },
    Row {
        kinds: &[K::Lost],
        states: &[S::LostOnRestore],
        reasons: &[R::LostOnRestore],
        started: AsRecord,
        diagnostic: true,
        ..PLAIN
    },
    Row {
        kinds: &[K::LeaderExited],
        states: &[S::Running],
        finished: false,
        exit_code: true,
        ..PLAIN
    },
    Row {
        kinds: &[K::SpoolDegraded, K::SpoolRecovered, K::OutputGap],
        states: &[S::Running],
        finished: false,
        diagnostic: true,
        ..PLAIN
    },
    Row {
        kinds: &[K::WorkspaceChanged],
        phase: Some(Phase::Started),
        states: &[S::Starting],
        started: No,
        finished: false,
        ..PLAIN
    },
    Row {
        kinds: &[K::WorkspaceChanged],
        phase: Some(Phase::Ended),
        states: &[S::Starting, S::Running],
        started: AsRecord,
        finished: false,
        ..PLAIN
    },
];

/// Whether a notification may say it: the terminal rows, lost included.
pub(super) fn is_terminal_row(state: S, reason: Option<R>) -> bool {
    ROWS.iter()
        .filter(|row| row.finished)
        .any(|row| row.states.contains(&state) && reason.is_some_and(|r| row.reasons.contains(&r)))
}

impl Row {
    fn fits(&self, event: &Event) -> bool {
        let reason_fits = match event.reason {
            None => self.reasons.is_empty(),
            Some(reason) => self.reasons.contains(&reason),
        };
        self.kinds.contains(&event.kind) && self.states.contains(&event.state) && reason_fits
    }

    fn check_presence(&self, event: &Event) -> Result<(), EventError> {
        let started = match self.started {
            Yes => Some(true),
            No => Some(false),
            AsRecord => None,
            IfRunning => Some(event.state == S::Running),
        };
        exact("started_at", started, event.started_at.is_some())?;
        exact("finished_at", Some(self.finished), event.finished_at.is_some())?;
        let diagnostic = if self.diagnostic { None } else { Some(false) };
        exact("diagnostic", diagnostic, event.diagnostic.is_some())?;
        exact("exit_code", Some(self.exit_code), event.exit_code.is_some())?;
        if let Some(signal) = event.signal {
            exact("signal", Some(self.exit_code), true)?;
            if !(1..=64).contains(&signal) || event.exit_code != Some(128 + signal) {
                return Err(EventError::new("signal", "does not fit the exit code"));
            }
        }
        let is_workspace = event.kind == K::WorkspaceChanged;
        exact("access", Some(is_workspace), event.access.is_some())?;
        if event.access == Some(Access::ReadOnly) {
            return Err(EventError::new("access", "does not write, so it changes nothing"));
        }
        exact("phase", Some(is_workspace), event.phase.is_some())?;
        if event.phase == self.phase {
            return Ok(());
        }
        Err(EventError::new("phase", "does not fit the state"))
    }
}

/// `wanted`: `None` = both are fine.
fn exact(field: &'static str, wanted: Option<bool>, is_there: bool) -> Result<(), EventError> {
    match wanted {
        Some(true) if !is_there => Err(EventError::new(field, "is missing")),
        Some(false) if is_there => Err(EventError::new(field, "must be absent")),
        Some(_) | None => Ok(()),
    }
}

/// 1..=128 of `A-Za-z0-9_-`.
pub(super) fn check_process_id(id: &str) -> Result<(), EventError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if id.is_empty() || id.len() > PROCESS_ID_CHARS_MAX || !id.bytes().all(good) {
        return Err(EventError::new("process_id", "must be 1..128 of A-Za-z0-9_-"));
    }
    Ok(())
}

/// Not before the process was created.
pub(super) fn check_started(created: Timestamp, at: Option<Timestamp>) -> Result<(), EventError> {
    if at.is_some_and(|at| at < created) {
        return Err(EventError::new("started_at", "is before created_at"));
    }
    Ok(())
}

/// Not before the process was started, or created.
pub(super) fn check_finished(before: Timestamp, at: Option<Timestamp>) -> Result<(), EventError> {
    if at.is_some_and(|at| at < before) {
        return Err(EventError::new("finished_at", "is before started_at or created_at"));
    }
    Ok(())
}

/// At most 512 bytes.
pub(super) fn check_diagnostic(text: Option<&str>) -> Result<(), EventError> {
    if text.is_some_and(|text| text.len() > DIAGNOSTIC_BYTES_MAX) {
        return Err(EventError::new("diagnostic", "is longer than 512 bytes"));
    }
    Ok(())
}

/// 0..=255.
pub(super) fn check_exit_code(code: Option<i32>) -> Result<(), EventError> {
    if code.is_some_and(|code| !(0..=255).contains(&code)) {
        return Err(EventError::new("exit_code", "must be 0..255"));
    }
    Ok(())
}

impl Event {
    /// The whole check, in the order in which failures are named.
    pub(super) fn check(&self) -> Result<(), EventError> {
        self.check_fields()?;
        self.check_row()
    }

    /// Each field up to `exit_code` by itself.
    fn check_fields(&self) -> Result<(), EventError> {
        if self.event_id.is_nil() {
            return Err(EventError::new("event_id", "is nil"));
        }
        check_process_id(&self.process_id)?;
        check_started(self.created_at, self.started_at)?;
        check_finished(self.started_at.unwrap_or(self.created_at), self.finished_at)?;
        check_diagnostic(self.diagnostic.as_deref())?;
        check_exit_code(self.exit_code)
    }

    fn check_row(&self) -> Result<(), EventError> {
        let fitting: Vec<&Row> = ROWS.iter().filter(|row| row.fits(self)).collect();
        match fitting.as_slice() {
            [] => Err(EventError::new("kind, state, reason", "do not go together")),
            // The two rows of workspace_changed differ by phase.
            rows => rows
                .iter()
                .find(|row| row.phase == self.phase)
                .or_else(|| rows.last())
                .map_or(Ok(()), |row| row.check_presence(self)),
        }
    }
}
