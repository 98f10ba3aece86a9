//! Records, totals and stop results as clients see them: without pid, stable ids, marks or
//! anything of the system.

use procd_core::{ProcessState, Reason, SpoolState, Tier};
use procd_protocol::v1;
use procd_protocol::words::Open;
use procd_store::record::{CommandRecord, LeaderRecord, LimitOutcome, Record, SignalError};

use super::error::{process_id, wire};
use crate::supervisor::runner::PlanFacts;
use crate::supervisor::view::{ProcessView, Snapshot, Totals};
use crate::supervisor::{SessionState, StopOutcome};

/// The state as on the wire.
pub(super) fn state(state: ProcessState) -> Open<v1::ProcessState> {
    Open::Known(match state {
        ProcessState::Starting => v1::ProcessState::Starting,
        ProcessState::Running => v1::ProcessState::Running,
        ProcessState::Exited => v1::ProcessState::Exited,
        ProcessState::Failed => v1::ProcessState::Failed,
        ProcessState::TimedOut => v1::ProcessState::TimedOut,
        ProcessState::Interrupted => v1::ProcessState::Interrupted,
        ProcessState::Terminated => v1::ProcessState::Terminated,
        ProcessState::Killed => v1::ProcessState::Killed,
        ProcessState::LostOnRestore => v1::ProcessState::LostOnRestore,
    })
}

/// The state a client filters by.
pub(super) const fn state_of(state: v1::ProcessState) -> ProcessState {
    match state {
        v1::ProcessState::Starting => ProcessState::Starting,
        v1::ProcessState::Running => ProcessState::Running,
        v1::ProcessState::Exited => ProcessState::Exited,
        v1::ProcessState::Failed => ProcessState::Failed,
        v1::ProcessState::TimedOut => ProcessState::TimedOut,
        v1::ProcessState::Interrupted => ProcessState::Interrupted,
        v1::ProcessState::Terminated => ProcessState::Terminated,
        v1::ProcessState::Killed => ProcessState::Killed,
        v1::ProcessState::LostOnRestore => ProcessState::LostOnRestore,
    }
}

/// The reason as on the wire.
pub(super) fn reason(reason: Reason) -> Open<v1::Reason> {
    Open::Known(match reason {
        Reason::Exited => v1::Reason::Exited,
        Reason::Failed => v1::Reason::Failed,
        Reason::TimedOut => v1::Reason::TimedOut,
        Reason::Interrupted => v1::Reason::Interrupted,
        Reason::Terminated => v1::Reason::Terminated,
        Reason::Killed => v1::Reason::Killed,
        Reason::RunnerShutdown => v1::Reason::RunnerShutdown,
        Reason::OutputLimit => v1::Reason::OutputLimit,
        Reason::LostOnRestore => v1::Reason::LostOnRestore,
    })
}

/// The leader's end as on the wire.
pub(super) fn leader(leader: &LeaderRecord) -> v1::Leader {
    match leader {
        LeaderRecord::Code { code } => v1::Leader::Code { code: *code },
        LeaderRecord::Signal { signal, signal_name, core_dumped } => v1::Leader::Signal {
            signal: *signal,
            signal_name: signal_name.clone(),
            core_dumped: *core_dumped,
        },
    }
}

/// What the kernel refused, as on the wire.
pub(super) fn signal_errors(errors: &[SignalError]) -> Vec<v1::SignalError> {
    let one = |error: &SignalError| v1::SignalError {
        signal: error.signal.clone(),
        errno: error.errno.clone(),
        count: error.count,
    };
    errors.iter().map(one).collect()
}

/// Processes by state as on the wire.
pub(super) fn totals(totals: &Totals) -> v1::Totals {
    totals.iter().map(|(state, count)| (state.as_str().to_owned(), *count)).collect()
}

/// What is left, as on the wire.
pub(super) const fn free(free: procd_core::quota::Free) -> v1::Free {
    v1::Free {
        loop_slots: free.loop_slots,
        session_slots: free.session_slots,
        daemon_slots: free.daemon_slots,
        memory_bytes: free.memory_bytes,
        spool_bytes: free.spool_bytes,
    }
}

/// The state of a session as on the wire.
pub(super) const fn session_state(state: SessionState) -> Open<v1::SessionState> {
    Open::Known(match state {
        SessionState::Open => v1::SessionState::Open,
        SessionState::Closing => v1::SessionState::Closing,
        SessionState::Closed => v1::SessionState::Closed,
    })
}

/// `Some(false)` when an end is shown that is not on disk yet.
pub(super) fn durable(snapshot: &Snapshot) -> Option<bool> {
    (snapshot.is_terminal() && !snapshot.durable).then_some(false)
}

/// What became of one process that was to be stopped.
pub(super) fn stop_result(outcome: &StopOutcome) -> v1::StopResult {
    let record = &outcome.snapshot.record;
    v1::StopResult {
        process_id: process_id(outcome.process_id),
        state: state(record.state),
        reason: record.reason.map(reason),
        exit_code: record.exit_code,
        leader: record.leader.as_ref().map(leader),
        escalated: record.escalated,
        signal_errors: signal_errors(&record.signal_errors),
        durable: durable(&outcome.snapshot),
        error: outcome.error.as_ref().map(|refusal| wire(refusal).into()),
    }
}

/// The record of a process as it is now, its byte figures live. `None` never happens: neither
/// core nor wire has nil ids.
pub(super) fn record(view: &ProcessView) -> Option<v1::Record> {
    // First the snapshot: when it shows the end, the figures of the output are final.
    let snapshot = view.now();
    let mut shown = of_record(&snapshot.record, durable(&snapshot))?;
    let bounds = view.output.bounds();
    shown.total_bytes = bounds.total;
    shown.retained_from = bounds.retained_from;
    let (spool, lost) = view.output.spool_status();
    // A seal is told with its checksum, by the record, once it is on disk.
    shown.spool_state = match spool {
        SpoolState::Open | SpoolState::Sealed => spool_state(snapshot.record.spool_state),
        SpoolState::Degraded | SpoolState::Corrupt => spool_state(spool),
    };
    shown.spool_lost_bytes = lost;
    Some(shown)
}

fn spool_state(state: SpoolState) -> Open<v1::SpoolState> {
    Open::Known(match state {
        SpoolState::Open => v1::SpoolState::Open,
        SpoolState::Degraded => v1::SpoolState::Degraded,
        SpoolState::Sealed => v1::SpoolState::Sealed,
        SpoolState::Corrupt => v1::SpoolState::Corrupt,
    })
}

fn of_record(record: &Record, durable: Option<bool>) -> Option<v1::Record> {
    Some(v1::Record {
        version: record.version,
        process_id: process_id(record.process_id),
        session_id: procd_protocol::SessionId::new(record.session_id.uuid())?,
        loop_id: procd_protocol::LoopId::new(record.loop_id.uuid())?,
        origin: procd_protocol::OriginId::new(record.origin.uuid())?,
        label: record.label.clone(),
        command: command(&record.command),
        access: v1::AccessRecord {
            asked: record.access.asked.to_string(),
            effective: record.access.effective.to_string(),
            enforced: record.access.enforced.clone(),
        },
        tty: record.tty.map(|size| v1::TtySize { rows: size.rows, cols: size.cols }),
        tier: tier(record.tier),
        limits: record.limits.iter().map(|(name, one)| (name.clone(), limit(one))).collect(),
        state: state(record.state),
        reason: record.reason.map(reason),
        exit_code: record.exit_code,
        leader: record.leader.as_ref().map(leader),
        escalated: record.escalated,
        ended_by: record.ended_by.map(|by| by.to_string()),
        leftovers: u64::from(record.leftovers),
        signal_errors: signal_errors(&record.signal_errors),
        input_dropped_bytes: record.input_dropped_bytes,
        oom_killed: record.oom_killed,
        limit_exceeded: record.limit_exceeded.clone(),
        created_at: record.created_at.to_string(),
        started_at: record.started_at.map(|at| at.to_string()),
        finished_at: record.finished_at.map(|at| at.to_string()),
        deadline_at: record.deadline_at.map(|at| at.to_string()),
        duration_ms: record.duration_ms,
        total_bytes: record.total_bytes,
        retained_from: record.retained_from,
        spool_state: spool_state(record.spool_state),
        spool_lost_bytes: record.spool_lost_bytes,
        sha256: record.sha256.clone(),
        pinned: record.pinned,
        diagnostic: record.diagnostic.clone(),
        request_key: record.request_key.as_ref().map(|key| key.key.clone()),
        durable,
    })
}

fn command(command: &CommandRecord) -> v1::CommandRecord {
    v1::CommandRecord {
        argv: command.argv.clone(),
        line: command.line.clone(),
        cwd: command.cwd.clone(),
        command_truncated: command.truncated,
    }
}

const fn tier(tier: Tier) -> Open<v1::Tier> {
    Open::Known(match tier {
        Tier::Cgroup => v1::Tier::Cgroup,
        Tier::Shim => v1::Tier::Shim,
        Tier::Pidns => v1::Tier::Pidns,
    })
}

fn limit(limit: &LimitOutcome) -> v1::LimitOutcome {
    v1::LimitOutcome { value: limit.value.clone(), applied: limit.applied.clone() }
}

/// What a start would be.
pub(super) fn plan(facts: PlanFacts) -> v1::Plan {
    let access = crate::supervisor::access_of(facts.claim.as_ref()).to_string();
    v1::Plan {
        command: command(&facts.command),
        access: v1::AccessRecord {
            asked: access.clone(),
            effective: access,
            enforced: facts.enforced,
        },
        tier: tier(facts.tier),
        limits: facts.limits.iter().map(|(name, one)| (name.clone(), limit(one))).collect(),
        memory_bytes: facts.ceilings.memory_bytes,
        spool_bytes: facts.ceilings.spool_bytes,
        variables: facts.variables,
    }
}
