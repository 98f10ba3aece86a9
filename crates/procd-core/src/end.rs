//! How an end is classified: what is observed decides, what was requested explains.

use crate::state::{ProcessState, Reason};

/// The number of SIGINT on Linux.
const SIGINT: i32 = 2;
/// The number of SIGKILL on Linux.
const SIGKILL: i32 = 9;

/// The end of a leader as `waitid` reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderEnd {
    /// It exited with a code, 0..=255.
    Code(u8),
    /// A signal ended it.
    Signal {
        /// The number, 1..=64.
        signal: i32,
        /// Whether the kernel wrote a core.
        core_dumped: bool,
    },
}

impl LeaderEnd {
    /// What a shell would show: the code, or 128 + signal.
    #[must_use]
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Code(code) => code as i32,
            Self::Signal { signal, .. } => 128 + signal,
        }
    }

    /// The signal that ended it.
    #[must_use]
    pub const fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal { signal, .. } => Some(signal),
        }
    }

    const fn is_sigkill(self) -> bool {
        matches!(self.signal(), Some(SIGKILL))
    }
}

/// How far one kind of request to end a process has come. Only goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mark {
    /// Never asked.
    #[default]
    Unasked,
    /// Asked; what the reaper saw is not known (yet), or it found the leader dead.
    Asked,
    /// The reaper found the leader alive and signalled it.
    ReachedAlive,
}

impl Mark {
    /// The further of the two.
    #[must_use]
    pub const fn raised(self, to: Self) -> Self {
        if (to as u8) > (self as u8) { to } else { self }
    }

    /// Whether it was asked at all.
    #[must_use]
    pub const fn is_asked(self) -> bool {
        !matches!(self, Self::Unasked)
    }

    const fn reached(self) -> bool {
        matches!(self, Self::ReachedAlive)
    }
}

/// The requests that met a process while its leader was not known to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// A caller's interrupt.
    pub interrupt: Mark,
    /// Whether the grace of the latest interrupt has run out: past it only SIGINT itself counts.
    pub interrupt_expired: bool,
    /// A caller's terminate.
    pub terminate: Mark,
    /// Shutdown of the session or the daemon.
    pub shutdown: Mark,
    /// The deadline.
    pub deadline: Mark,
    /// A caller's kill.
    pub kill: Mark,
    /// Whether a request needed SIGKILL after its grace, for the leader or for others of its tree.
    pub escalated: bool,
}

/// A terminal result: the state, why, and the code if the state has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The terminal state.
    pub state: ProcessState,
    /// Why; fits the state.
    pub reason: Reason,
    /// 0..=255 or 128 + signal; set exactly when the state is `exited`.
    pub exit_code: Option<i32>,
    /// Whether the request that named the end needed SIGKILL.
    pub escalated: bool,
}

impl End {
    /// The end of something that could not be set up or observed.
    pub const FAILED: Self = Self::named(ProcessState::Failed, Reason::Failed);
    /// The end of what was unfinished at a restore.
    pub const LOST: Self = Self::named(ProcessState::LostOnRestore, Reason::LostOnRestore);

    const fn named(state: ProcessState, reason: Reason) -> Self {
        Self { state, reason, exit_code: None, escalated: false }
    }

    const fn with_escalation(self, escalated: bool) -> Self {
        Self { escalated, ..self }
    }
}

/// Names the end of a leader that was observed. The strongest request that reached it alive
/// wins: kill by a caller > deadline > shutdown > terminate > interrupt. Kill alone is judged by
/// the wait status. Source: spec, lifecycle, *How an end is classified*.
#[must_use]
pub const fn classify(leader: LeaderEnd, requests: &Requests) -> End {
    use {ProcessState as S, Reason as R};
    let killed = leader.is_sigkill();
    if requests.kill.is_asked() && killed {
        return End::named(S::Killed, R::Killed);
    }
    if requests.deadline.reached() {
        return End::named(S::TimedOut, R::TimedOut).with_escalation(requests.escalated);
    }
    if requests.shutdown.reached() {
        let state = if killed { S::Killed } else { S::Terminated };
        return End::named(state, R::RunnerShutdown).with_escalation(requests.escalated);
    }
    if requests.terminate.reached() {
        let end = if killed && requests.escalated {
            End::named(S::Killed, R::Killed)
        } else {
            End::named(S::Terminated, R::Terminated)
        };
        return end.with_escalation(requests.escalated);
    }
    let by_sigint = matches!(leader.signal(), Some(SIGINT));
    if requests.interrupt.reached() && (by_sigint || !requests.interrupt_expired) {
        return End::named(S::Interrupted, R::Interrupted);
    }
    End {
        state: S::Exited,
        reason: R::Exited,
        exit_code: Some(leader.exit_code()),
        escalated: false,
    }
}

/// Names the end of a start that was stopped before its exec: nothing ran.
#[must_use]
pub const fn classify_unstarted(requests: &Requests) -> End {
    use {ProcessState as S, Reason as R};
    if requests.kill.is_asked() {
        End::named(S::Killed, R::Killed)
    } else if requests.shutdown.is_asked() {
        End::named(S::Terminated, R::RunnerShutdown)
    } else if requests.terminate.is_asked() {
        End::named(S::Terminated, R::Terminated)
    } else {
        End::FAILED
    }
}
