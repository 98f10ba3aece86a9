//! From decisions to the records of the commit log.

use procd_core::{LeaderEnd, Reason, StopMode};
use procd_store::event::{Event, EventDetail, EventError, EventKind, Notification, Phase};
use procd_store::log::LogRecord;
use procd_store::record::{LeaderRecord, Record};

use super::runner::{SpawnCause, SpawnFailure};

/// The event that a writer is about to start; the record counts it.
pub(super) fn workspace_started(record: &mut Record) -> Option<Event> {
    workspace_changed(record, Phase::Started)
}

/// The event that a writer is gone; to be made before the record gets its end.
pub(super) fn workspace_ended(record: &mut Record) -> Option<Event> {
    workspace_changed(record, Phase::Ended)
}

fn workspace_changed(record: &mut Record, phase: Phase) -> Option<Event> {
    procd_store::event::count(record, EventKind::WorkspaceChanged);
    let detail = EventDetail { phase: Some(phase), ..EventDetail::default() };
    Event::for_record(EventKind::WorkspaceChanged, record, detail)
        .inspect_err(|error| tracing::error!(%error, "bug: event refused"))
        .ok()
}

/// The record and its event, as one batch.
pub(super) fn live_batch(
    record: &Record,
    kind: EventKind,
) -> Result<(Event, Vec<LogRecord>), EventError> {
    let made = Event::for_record(kind, record, EventDetail::default())?;
    let batch = vec![LogRecord::process(record), made.clone().into()];
    Ok((made, batch))
}

/// The record and its `stop_requested`, as one batch. Counts the event in the record.
pub(super) fn stop_batch(
    record: &mut Record,
    mode: StopMode,
) -> Result<(Event, Vec<LogRecord>), EventError> {
    procd_store::event::count(record, EventKind::StopRequested);
    let reason = match mode {
        StopMode::Interrupt => Reason::Interrupted,
        StopMode::Terminate => Reason::Terminated,
        StopMode::Kill => Reason::Killed,
    };
    let detail = EventDetail { reason: Some(reason), ..EventDetail::default() };
    let made = Event::for_record(EventKind::StopRequested, record, detail)?;
    let batch = vec![LogRecord::process(record), made.clone().into()];
    Ok((made, batch))
}

/// The record and its `leader_exited`, as one batch. Counts the event in the record.
pub(super) fn leader_exit_batch(
    record: &mut Record,
) -> Result<(Event, Vec<LogRecord>), EventError> {
    procd_store::event::count(record, EventKind::LeaderExited);
    live_batch(record, EventKind::LeaderExited)
}

/// The terminal record, its events and its notification: durable together or not at all.
pub(super) fn terminal_batch(
    record: &Record,
    kind: EventKind,
    before: Option<Event>,
) -> Result<(Vec<Event>, Notification, Vec<LogRecord>), EventError> {
    let made = Event::for_record(kind, record, EventDetail::default())?;
    let notification = Notification::for_record(record)?;
    let events: Vec<Event> = before.into_iter().chain([made]).collect();
    let mut batch = vec![LogRecord::process(record)];
    batch.extend(events.iter().cloned().map(LogRecord::from));
    batch.push(notification.clone().into());
    Ok((events, notification, batch))
}

/// The words for why nothing could be started: the cause and the name of the errno.
pub(super) fn spawn_diagnostic(failure: SpawnFailure) -> String {
    let cause = cause_word(failure.cause);
    if failure.errno == 0 {
        return cause.to_owned();
    }
    format!("{cause} {:?}", nix::errno::Errno::from_raw(failure.errno))
}

/// The word of `details.cause`.
#[must_use]
pub const fn cause_word(cause: SpawnCause) -> &'static str {
    match cause {
        SpawnCause::NoSuchProgram => "no_such_program",
        SpawnCause::NotExecutable => "not_executable",
        SpawnCause::BadFormat => "bad_format",
        SpawnCause::CwdMissing => "cwd_missing",
        SpawnCause::CwdDenied => "cwd_denied",
        SpawnCause::CwdNotDirectory => "cwd_not_directory",
        SpawnCause::ArgumentListTooLong => "argument_list_too_long",
        SpawnCause::OutOfMemory => "out_of_memory",
        SpawnCause::OutOfDescriptors => "out_of_descriptors",
        SpawnCause::Other => "other",
        SpawnCause::ControlGroup => "control_group",
        SpawnCause::Guardian => "guardian",
        SpawnCause::Terminal | SpawnCause::Fence | SpawnCause::Isolation => "other",
    }
}

/// The leader's end as a record has it.
pub(super) fn leader(leader: LeaderEnd) -> LeaderRecord {
    match leader {
        LeaderEnd::Code(code) => LeaderRecord::Code { code },
        LeaderEnd::Signal { signal, core_dumped } => LeaderRecord::Signal {
            signal,
            signal_name: procd_core::signal::name(signal),
            core_dumped,
        },
    }
}

/// Why nothing could be started, from the words of a record.
pub(super) fn failure_of(diagnostic: &str) -> Option<SpawnFailure> {
    let (cause, errno) = diagnostic.split_once(' ').unwrap_or((diagnostic, ""));
    let cause = SpawnCause::ALL.into_iter().find(|one| cause_word(*one) == cause)?;
    let is_named = |code: &i32| format!("{:?}", nix::errno::Errno::from_raw(*code)) == errno;
    let errno = (1..=ERRNO_MAX).find(is_named).unwrap_or(0);
    Some(SpawnFailure { cause, errno })
}

/// The highest errno that is looked for.
const ERRNO_MAX: i32 = 133;
