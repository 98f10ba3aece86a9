//! The life of one process as a table: `step(state, event)` gives the next state and what to do.
//!
//! ```text
//! Starting --Spawned--> Running --LeaderEnded--> Ending --TreeEmpty--> Ended
//!    |                     |  \--LeaderEnded, keep_tree--> Kept --TreeEmpty--^
//!    |                     \----Lost (Ending and Kept too)------------------^
//!    \--SpawnFailed / Aborted / Lost ---------------------------------------^
//! ```
//!
//! Must not know a clock, a pid or a socket. Timers are armed by an action and come back as an
//! event; one that comes late is an arm like any other. Actions are carried out in their order.

use crate::end::{End, LeaderEnd, Mark, Requests, classify, classify_unstarted};
use crate::state::EndedBy;

/// How hard a caller wants a process stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopMode {
    /// SIGINT; never escalates.
    Interrupt,
    /// SIGTERM, after the grace SIGKILL.
    Terminate,
    /// SIGKILL at once.
    Kill,
}

/// A polite signal to the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeSignal {
    /// SIGINT; on a PTY to the foreground process group.
    Interrupt,
    /// SIGTERM and SIGCONT; a frozen tree is thawed first.
    Terminate,
}

/// Who asked for an end. The order is the strength that decides who names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// A caller's stop, mode interrupt.
    Interrupt,
    /// A caller's stop, mode terminate.
    Terminate,
    /// Shutdown of the session or the daemon.
    Shutdown,
    /// The deadline.
    Deadline,
    /// A caller's stop, mode kill.
    Kill,
}

impl Request {
    /// Every request.
    pub const ALL: &'static [Self] =
        &[Self::Interrupt, Self::Terminate, Self::Shutdown, Self::Deadline, Self::Kill];
}

impl From<StopMode> for Request {
    fn from(mode: StopMode) -> Self {
        match mode {
            StopMode::Interrupt => Self::Interrupt,
            StopMode::Terminate => Self::Terminate,
            StopMode::Kill => Self::Kill,
        }
    }
}

/// What becomes of descendants that outlive the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnLeaderExit {
    /// They are ended.
    #[default]
    KillTree,
    /// The process runs on until they are gone.
    KeepTree,
}

/// What can happen to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The exec succeeded: the leader runs.
    Spawned,
    /// Clone, set-up or exec failed; nothing of it is left.
    SpawnFailed,
    /// A start was given up before its exec; nothing ran, nothing of it is left.
    Aborted,
    /// Somebody asked for the end.
    Requested(Request),
    /// The reaper looked before it signalled for this request: was the leader alive?
    Reached {
        /// The request the signal was for.
        request: Request,
        /// Whether the leader had not ended then.
        alive: bool,
    },
    /// The grace of the latest interrupt ran out.
    InterruptGraceElapsed,
    /// The grace of a terminate, a shutdown or the deadline ran out.
    GraceElapsed,
    /// The leader ended and is not reaped yet; `leftovers` others of its tree were alive.
    LeaderEnded {
        /// As `waitid` reported it.
        leader: LeaderEnd,
        /// Live descendants at that moment.
        leftovers: u32,
    },
    /// The time that leftovers get to end politely ran out.
    LeftoverGraceElapsed,
    /// The tree was proven empty, its output is complete, the leader is reaped.
    TreeEmpty,
    /// The end cannot be observed, or containment was lost; what could be killed was.
    Lost,
}

/// The state of one life, each variant with only what exists then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The spawn has not been answered.
    Starting {
        /// What was asked meanwhile.
        requests: Requests,
        /// The rule for what outlives the leader.
        rule: OnLeaderExit,
    },
    /// The leader runs.
    Running {
        /// What was asked so far.
        requests: Requests,
        /// The rule for what outlives the leader.
        rule: OnLeaderExit,
    },
    /// The leader has ended, its tree runs on as asked. State and code of the end are named
    /// already; what ends the tree is not.
    Kept {
        /// What was asked while the leader lived.
        requests: Requests,
        /// How it ended.
        leader: LeaderEnd,
        /// How many descendants were alive then.
        leftovers: u32,
        /// The strongest request that met the tree since.
        ending: Option<Request>,
    },
    /// The leader has ended; the tree is not proven empty. Its end is named already: later
    /// requests only hasten it.
    Ending {
        /// What was asked while the leader lived.
        requests: Requests,
        /// How it ended.
        leader: LeaderEnd,
        /// How many descendants were alive then.
        leftovers: u32,
    },
    /// Over, once and for all.
    Ended {
        /// The terminal result.
        end: End,
        /// How the leader ended, if one ran.
        leader: Option<LeaderEnd>,
        /// How many descendants outlived it.
        leftovers: u32,
        /// What ended a kept tree.
        ended_by: Option<EndedBy>,
    },
}

/// What to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give up a spawn that has not been answered: kill what there is of it.
    AbortSpawn,
    /// Send a polite signal to the whole tree, and report [`Event::Reached`] for the request.
    Signal(TreeSignal, Request),
    /// Kill the whole tree, and report [`Event::Reached`] for the request.
    Kill(Request),
    /// Kill the whole tree: an escalation, nothing to report.
    EscalateKill,
    /// Write the `stop_requested` event with the next batch.
    RecordStop(StopMode),
    /// Arm the timer that brings [`Event::InterruptGraceElapsed`].
    ArmInterruptGrace,
    /// Arm, or shorten, the timer that brings [`Event::GraceElapsed`].
    ArmGrace,
    /// SIGTERM to what outlived the leader, and arm [`Event::LeftoverGraceElapsed`].
    TerminateLeftovers,
    /// Write `running` and its event as one batch.
    CommitRunning,
    /// Write the leader's end and its event as one batch: the tree is kept.
    CommitLeaderExit,
    /// Write the terminal record, its event and its notification as one batch.
    CommitEnd,
    /// Give back slots, ceilings and the lease.
    Release,
    /// Offer event and notification once the batch is durable.
    Offer,
    /// Seal the spool and write the manifest's file.
    Seal,
}

/// The answer of [`step`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next state, and what to do.
    Go(Life, &'static [Action]),
    /// It makes no difference any more: state kept, nothing to do.
    Ignore,
    /// This cannot happen; the caller logs it and keeps the state.
    Bug(&'static str),
}

const TERMINAL: &[Action] = &[Action::CommitEnd, Action::Release, Action::Offer, Action::Seal];

/// Next state and ordered actions for `event` in `life`. Pure and total: no clock, no I/O.
pub const fn step(life: Life, event: Event) -> Step {
    match life {
        Life::Starting { requests, rule } => in_starting(requests, rule, event),
        Life::Running { requests, rule } => in_running(requests, rule, event),
        Life::Kept { requests, leader, leftovers, ending } => {
            in_kept(Kept { requests, leader, leftovers, ending }, event)
        }
        Life::Ending { requests, leader, leftovers } => {
            in_ending(requests, leader, leftovers, event)
        }
        Life::Ended { .. } => in_ended(event),
    }
}

const fn ended(end: End, leader: Option<LeaderEnd>, leftovers: u32) -> Step {
    Step::Go(Life::Ended { end, leader, leftovers, ended_by: None }, TERMINAL)
}

const fn in_starting(requests: Requests, rule: OnLeaderExit, event: Event) -> Step {
    match event {
        Event::Spawned => spawned(requests, rule),
        // A program that was stopped and also could not be started did not run: the stop that
        // came first explains it no better than the error, and the error is what was observed.
        Event::SpawnFailed => ended(End::FAILED, None, 0),
        Event::Aborted => ended(classify_unstarted(&requests), None, 0),
        Event::Requested(request) => requested_while_starting(requests, rule, request),
        Event::Lost => ended(End::FAILED, None, 0),
        Event::GraceElapsed | Event::InterruptGraceElapsed | Event::LeftoverGraceElapsed => {
            Step::Bug("a timer before anything was started")
        }
        Event::Reached { .. } => Step::Ignore,
        Event::LeaderEnded { .. } => Step::Bug("an end before the spawn was answered"),
        Event::TreeEmpty => Step::Bug("an empty tree before the spawn was answered"),
    }
}

/// What was asked while the spawn was under way takes effect now, the strongest first.
const fn spawned(requests: Requests, rule: OnLeaderExit) -> Step {
    let actions: &[Action] = if requests.kill.is_asked() {
        &[Action::CommitRunning, Action::Kill(Request::Kill)]
    } else if requests.shutdown.is_asked() {
        &[
            Action::CommitRunning,
            Action::Signal(TreeSignal::Terminate, Request::Shutdown),
            Action::ArmGrace,
        ]
    } else if requests.terminate.is_asked() {
        &[
            Action::CommitRunning,
            Action::Signal(TreeSignal::Terminate, Request::Terminate),
            Action::ArmGrace,
        ]
    } else if requests.interrupt.is_asked() {
        &[
            Action::CommitRunning,
            Action::Signal(TreeSignal::Interrupt, Request::Interrupt),
            Action::ArmInterruptGrace,
        ]
    } else {
        &[Action::CommitRunning]
    };
    Step::Go(Life::Running { requests, rule }, actions)
}

const fn requested_while_starting(
    requests: Requests,
    rule: OnLeaderExit,
    request: Request,
) -> Step {
    let asked = mark(requests, request, Mark::Asked);
    let next = Life::Starting { requests: asked, rule };
    match request {
        // Waits until there is something to signal.
        Request::Interrupt => Step::Go(next, &[Action::RecordStop(StopMode::Interrupt)]),
        Request::Terminate => {
            Step::Go(next, &[Action::AbortSpawn, Action::RecordStop(StopMode::Terminate)])
        }
        Request::Kill => Step::Go(next, &[Action::AbortSpawn, Action::RecordStop(StopMode::Kill)]),
        Request::Shutdown => Step::Go(next, &[Action::AbortSpawn]),
        Request::Deadline => Step::Bug("a deadline before the spawn"),
    }
}

const fn in_running(requests: Requests, rule: OnLeaderExit, event: Event) -> Step {
    match event {
        Event::Requested(request) => requested_while_running(requests, rule, request),
        Event::Reached { request, alive } => {
            let to = if alive { Mark::ReachedAlive } else { Mark::Asked };
            Step::Go(Life::Running { requests: mark(requests, request, to), rule }, &[])
        }
        Event::InterruptGraceElapsed => {
            let requests = Requests { interrupt_expired: true, ..requests };
            Step::Go(Life::Running { requests, rule }, &[])
        }
        Event::GraceElapsed => {
            let requests = Requests { escalated: true, ..requests };
            Step::Go(Life::Running { requests, rule }, &[Action::EscalateKill])
        }
        Event::LeaderEnded { leader, leftovers } => leader_ended(requests, rule, leader, leftovers),
        Event::Lost => ended(End::FAILED, None, 0),
        Event::Spawned | Event::SpawnFailed | Event::Aborted => {
            Step::Bug("a second answer to the spawn")
        }
        Event::LeftoverGraceElapsed => Step::Bug("leftovers of a leader that runs"),
        Event::TreeEmpty => Step::Bug("an empty tree without the end of its leader"),
    }
}

const fn leader_ended(
    requests: Requests,
    rule: OnLeaderExit,
    leader: LeaderEnd,
    leftovers: u32,
) -> Step {
    let ending = Life::Ending { requests, leader, leftovers };
    // During a stop the leftovers had their signal; what is left of its grace is theirs.
    if leftovers == 0 || is_ending_asked(&requests) {
        return Step::Go(ending, &[]);
    }
    match rule {
        OnLeaderExit::KillTree => Step::Go(ending, &[Action::TerminateLeftovers]),
        OnLeaderExit::KeepTree => Step::Go(
            Life::Kept { requests, leader, leftovers, ending: None },
            &[Action::CommitLeaderExit],
        ),
    }
}

/// Whether something was asked that ends the whole tree, with a grace or at once.
const fn is_ending_asked(requests: &Requests) -> bool {
    requests.terminate.is_asked()
        || requests.shutdown.is_asked()
        || requests.deadline.is_asked()
        || requests.kill.is_asked()
}

const fn requested_while_running(requests: Requests, rule: OnLeaderExit, request: Request) -> Step {
    let asked = mark(requests, request, Mark::Asked);
    let next = Life::Running { requests: asked, rule };
    let next = match request {
        Request::Interrupt => {
            Life::Running { requests: Requests { interrupt_expired: false, ..asked }, rule }
        }
        Request::Terminate | Request::Shutdown | Request::Deadline | Request::Kill => next,
    };
    Step::Go(next, ask_the_tree(request))
}

/// What a request does to a tree that is alive.
const fn ask_the_tree(request: Request) -> &'static [Action] {
    match request {
        Request::Interrupt => &[
            Action::Signal(TreeSignal::Interrupt, Request::Interrupt),
            Action::RecordStop(StopMode::Interrupt),
            Action::ArmInterruptGrace,
        ],
        Request::Terminate => &[
            Action::Signal(TreeSignal::Terminate, Request::Terminate),
            Action::RecordStop(StopMode::Terminate),
            Action::ArmGrace,
        ],
        Request::Shutdown => {
            &[Action::Signal(TreeSignal::Terminate, Request::Shutdown), Action::ArmGrace]
        }
        Request::Deadline => {
            &[Action::Signal(TreeSignal::Terminate, Request::Deadline), Action::ArmGrace]
        }
        Request::Kill => &[Action::Kill(Request::Kill), Action::RecordStop(StopMode::Kill)],
    }
}

/// The facts of [`Life::Kept`].
#[derive(Clone, Copy)]
struct Kept {
    requests: Requests,
    leader: LeaderEnd,
    leftovers: u32,
    ending: Option<Request>,
}

impl Kept {
    const fn life(self) -> Life {
        let Self { requests, leader, leftovers, ending } = self;
        Life::Kept { requests, leader, leftovers, ending }
    }

    const fn end(self) -> Step {
        let end = classify(self.leader, &self.requests);
        let ended_by = match self.ending {
            None => EndedBy::TreeEmpty,
            Some(Request::Interrupt | Request::Terminate | Request::Kill) => EndedBy::Stop,
            Some(Request::Deadline) => EndedBy::Deadline,
            Some(Request::Shutdown) => EndedBy::Shutdown,
        };
        let (leader, leftovers) = (Some(self.leader), self.leftovers);
        Step::Go(Life::Ended { end, leader, leftovers, ended_by: Some(ended_by) }, TERMINAL)
    }
}

/// The leader's end stands; whatever is asked now is asked of the tree.
const fn in_kept(kept: Kept, event: Event) -> Step {
    match event {
        Event::TreeEmpty => kept.end(),
        Event::Requested(request) => {
            let ending = match kept.ending {
                Some(stronger) if stronger as u8 > request as u8 => Some(stronger),
                Some(_) | None => Some(request),
            };
            Step::Go(Kept { ending, ..kept }.life(), ask_the_tree(request))
        }
        // An interrupt that ran out did not end the tree.
        Event::InterruptGraceElapsed => match kept.ending {
            Some(Request::Interrupt) => Step::Go(Kept { ending: None, ..kept }.life(), &[]),
            Some(_) | None => Step::Ignore,
        },
        Event::GraceElapsed => Step::Go(kept.life(), &[Action::EscalateKill]),
        Event::Reached { request, alive } => {
            let to = if alive { Mark::ReachedAlive } else { Mark::Asked };
            if !asked(&kept.requests, request) {
                return Step::Ignore;
            }
            Step::Go(Kept { requests: mark(kept.requests, request, to), ..kept }.life(), &[])
        }
        Event::Lost => ended(End::FAILED, Some(kept.leader), kept.leftovers),
        Event::LeftoverGraceElapsed => Step::Bug("leftovers that are kept"),
        Event::LeaderEnded { .. } => Step::Bug("a second end of the leader"),
        Event::Spawned | Event::SpawnFailed | Event::Aborted => {
            Step::Bug("a second answer to the spawn")
        }
    }
}

const fn in_ending(requests: Requests, leader: LeaderEnd, leftovers: u32, event: Event) -> Step {
    let same = Life::Ending { requests, leader, leftovers };
    match event {
        Event::TreeEmpty => ended(classify(leader, &requests), Some(leader), leftovers),
        Event::Requested(Request::Kill) => Step::Go(same, &[Action::EscalateKill]),
        Event::Requested(Request::Terminate | Request::Shutdown | Request::Deadline) => {
            Step::Go(same, &[Action::ArmGrace])
        }
        Event::Requested(Request::Interrupt) => Step::Ignore,
        // The reaper's word on a signal that went out while the leader lived may come after its
        // end: it still says whether that request met it alive.
        Event::Reached { request, alive } => {
            let to = if alive { Mark::ReachedAlive } else { Mark::Asked };
            let requests =
                if asked(&requests, request) { mark(requests, request, to) } else { requests };
            Step::Go(Life::Ending { requests, leader, leftovers }, &[])
        }
        Event::GraceElapsed => {
            let requests = Requests { escalated: true, ..requests };
            Step::Go(Life::Ending { requests, leader, leftovers }, &[Action::EscalateKill])
        }
        Event::LeftoverGraceElapsed => Step::Go(same, &[Action::EscalateKill]),
        Event::InterruptGraceElapsed => Step::Ignore,
        Event::Lost => ended(End::FAILED, Some(leader), leftovers),
        Event::LeaderEnded { .. } => Step::Bug("a second end of the leader"),
        Event::Spawned | Event::SpawnFailed | Event::Aborted => {
            Step::Bug("a second answer to the spawn")
        }
    }
}

const fn in_ended(event: Event) -> Step {
    match event {
        // Late timers, late words of the reaper and repeated stops change nothing.
        Event::Requested(_)
        | Event::Reached { .. }
        | Event::InterruptGraceElapsed
        | Event::GraceElapsed
        | Event::LeftoverGraceElapsed => Step::Ignore,
        Event::Spawned | Event::SpawnFailed | Event::Aborted => {
            Step::Bug("an answer to the spawn after the end")
        }
        Event::LeaderEnded { .. } => Step::Bug("an end after the end"),
        Event::TreeEmpty | Event::Lost => Step::Bug("a second terminalization"),
    }
}

const fn asked(requests: &Requests, request: Request) -> bool {
    match request {
        Request::Interrupt => requests.interrupt.is_asked(),
        Request::Terminate => requests.terminate.is_asked(),
        Request::Shutdown => requests.shutdown.is_asked(),
        Request::Deadline => requests.deadline.is_asked(),
        Request::Kill => requests.kill.is_asked(),
    }
}

const fn mark(requests: Requests, request: Request, to: Mark) -> Requests {
    match request {
        Request::Interrupt => Requests { interrupt: requests.interrupt.raised(to), ..requests },
        Request::Terminate => Requests { terminate: requests.terminate.raised(to), ..requests },
        Request::Shutdown => Requests { shutdown: requests.shutdown.raised(to), ..requests },
        Request::Deadline => Requests { deadline: requests.deadline.raised(to), ..requests },
        Request::Kill => Requests { kill: requests.kill.raised(to), ..requests },
    }
}

#[cfg(test)]
mod tests;
