//! From decisions to the records of the commit log.

use procd_core::{Handle, LeaderEnd, Reason, SessionId, StopMode};
use procd_store::event::{Event, EventDetail, EventError, EventKind, Notification};
use procd_store::log::{LogRecord, Removal, Submitted};
use procd_store::manifest::NumberedEvent;
use procd_store::record::{LeaderRecord, Record};

use super::runner::{SpawnCause, SpawnFailure};

/// The removal of a process.
pub(super) fn removal(session_id: SessionId, process_id: Handle) -> LogRecord {
    Removal::Process { session_id, process_id }.into()
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

/// The terminal record, its event and its notification: durable together or not at all.
pub(super) fn terminal_batch(
    record: &Record,
    kind: EventKind,
) -> Result<(Event, Vec<LogRecord>), EventError> {
    let made = Event::for_record(kind, record, EventDetail::default())?;
    let batch = vec![
        LogRecord::process(record),
        made.clone().into(),
        Notification::for_record(record)?.into(),
    ];
    Ok((made, batch))
}

/// Keeps an event with the number it got; an event that was there already is not kept twice.
pub(super) fn keep(events: &mut Vec<NumberedEvent>, event: Event, submitted: Option<&Submitted>) {
    let Some(submitted) = submitted.filter(|submitted| submitted.appended) else { return };
    events.push(NumberedEvent { seq: submitted.seq, event });
    procd_store::manifest::keep_newest(events);
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
        SpawnCause::Terminal => "other",
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
