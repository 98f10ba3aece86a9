//! Starts and leases that wait for room. The order is `procd_core::queue`'s; here is who is
//! answered, and when. A waiter holds nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use procd_core::lease::Claim;
use procd_core::queue::{Granted, Line, Missing, Wanted};
use procd_core::{Owner, SessionId};
use tokio::time::Instant;

use super::api::{Lease, Prepared, Reply, Started, Ticket};
use super::refusal::Refusal;
use super::runner::StartRequest;
use super::task::Task;
use super::timers::Due;

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    line: Line,
    waiting: HashMap<u64, Waiting>,
    by_ticket: HashMap<Ticket, u64>,
    last: u64,
}

/// Who waits, until when, and how to call it off.
#[derive(Debug)]
struct Waiting {
    wish: Wish,
    ticket: Ticket,
    until: Option<Instant>,
}

/// What somebody waits for.
#[derive(Debug)]
pub(super) enum Wish {
    /// A start.
    Start(Box<QueuedStart>),
    /// A client's lease.
    Lease { owner: Owner, claim: Claim, connection: u64, reply: Reply<Lease> },
}

/// A prepared start.
#[derive(Debug)]
pub(super) struct QueuedStart {
    pub(super) owner: Owner,
    pub(super) request: Arc<StartRequest>,
    pub(super) prepared: Box<Prepared>,
    pub(super) reply: Reply<Started>,
}

impl Queue {
    /// How many wait.
    pub(super) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }
}

impl Wish {
    const fn owner(&self) -> Owner {
        match self {
            Self::Start(start) => start.owner,
            Self::Lease { owner, .. } => *owner,
        }
    }

    fn wanted(&self) -> Wanted {
        match self {
            Self::Start(start) => Wanted {
                owner: start.owner,
                ceilings: Some(start.prepared.facts.ceilings),
                claim: start.prepared.facts.claim.clone(),
            },
            Self::Lease { owner, claim, .. } => {
                Wanted { owner: *owner, ceilings: None, claim: Some(claim.clone()) }
            }
        }
    }

    fn refuse(self, refusal: Refusal) {
        match self {
            Self::Start(start) => drop(start.reply.send(Err(refusal))),
            Self::Lease { reply, .. } => drop(reply.send(Err(refusal))),
        }
    }
}

impl Task {
    /// Takes what is wished for, at once or within `timeout`.
    pub(super) fn enqueue(&mut self, wish: Wish, ticket: Ticket, timeout: Duration) {
        let session = wish.owner().session;
        self.queue.last += 1;
        let number = self.queue.last;
        self.queue.line.enter(number, wish.wanted());
        let is_start = matches!(wish, Wish::Start(_));
        self.queue.waiting.insert(number, Waiting { wish, ticket, until: None });
        self.queue.by_ticket.insert(ticket, number);
        self.serve_queue();
        let Some(missing) = self.queue.line.missing(number) else { return };
        let max = self.limits.queued_session_max;
        let queued = self.queue.line.starts_of(session);
        let is_own_client = matches!(missing, Missing::Busy { is_own_client: true, .. });
        if timeout.is_zero() || is_own_client {
            self.give_up(number, None);
        } else if is_start && queued > max {
            self.give_up(number, Some(Refusal::Queued { max, in_use: max }));
        } else {
            let until = self.clock.monotonic() + timeout;
            if let Some(waiting) = self.queue.waiting.get_mut(&number) {
                waiting.until = Some(until);
            }
            self.timers.arm(until, Due::Queue(number));
        }
    }

    /// Gives what has become free to those who wait.
    pub(super) fn serve_queue(&mut self) {
        while !self.queue.line.is_empty() {
            let granted = self.queue.line.pass(&mut self.ledger, &mut self.leases.held);
            if granted.is_empty() {
                break;
            }
            for (number, granted) in granted {
                self.grant(number, granted);
            }
        }
        self.answer_hopeless();
    }

    fn grant(&mut self, number: u64, granted: Granted) {
        let Some(waiting) = self.queue.waiting.remove(&number) else {
            tracing::error!("bug: something was granted to nobody");
            self.give_back(granted);
            return;
        };
        self.queue.by_ticket.remove(&waiting.ticket);
        match waiting.wish {
            Wish::Start(start) => self.begin(*start, granted),
            Wish::Lease { owner, claim, connection, reply } => {
                self.lease_granted(owner, claim, connection, granted, reply);
            }
        }
    }

    pub(super) fn give_back(&mut self, granted: Granted) {
        if let Some(reservation) = granted.reservation {
            self.ledger.release(reservation);
        }
        if let Some(lease) = granted.lease {
            self.leases.held.release(lease);
        }
    }

    /// Those that wait for a lease of their own client, which might wait for them.
    fn answer_hopeless(&mut self) {
        let is_hopeless = |number: &&u64| {
            let missing = self.queue.line.missing(**number);
            matches!(missing, Some(Missing::Busy { is_own_client: true, .. }))
        };
        let waits = |(number, waiting): (_, &Waiting)| waiting.until.map(|_| number);
        let numbers = self.queue.waiting.iter().filter_map(waits);
        let hopeless: Vec<u64> = numbers.filter(is_hopeless).copied().collect();
        for number in hopeless {
            self.give_up(number, None);
        }
    }

    /// A waiter leaves with a refusal: that given, or what it missed last.
    fn give_up(&mut self, number: u64, refusal: Option<Refusal>) {
        let missing = self.queue.line.leave(number);
        let Some(waiting) = self.queue.waiting.remove(&number) else { return };
        self.queue.by_ticket.remove(&waiting.ticket);
        let refusal = refusal.unwrap_or(match missing {
            Some(Missing::Quota(error)) => Refusal::Quota(error),
            Some(Missing::Busy { by, .. }) => Refusal::Busy { process_id: by },
            None => Refusal::Internal,
        });
        waiting.wish.refuse(refusal);
    }

    /// The time of a waiter may be over.
    pub(super) fn queue_due(&mut self, number: u64, now: Instant) {
        let until = self.queue.waiting.get(&number).and_then(|waiting| waiting.until);
        if until.is_some_and(|until| until <= now) {
            self.give_up(number, None);
            // It may have held up others of its scope.
            self.serve_queue();
        }
    }

    /// The caller is gone, or waits no more.
    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        if let Some(number) = self.queue.by_ticket.get(&ticket).copied() {
            self.give_up(number, Some(Refusal::Withdrawn));
            self.serve_queue();
        }
    }

    /// Those of a session, or all, are refused at once: it shuts down.
    pub(super) fn refuse_waiters(&mut self, session: Option<SessionId>) {
        let is_meant = |waiting: &Waiting| {
            session.is_none_or(|session| waiting.wish.owner().session == session)
        };
        let what = if session.is_some() { "session" } else { "daemon" };
        let waiting = self.queue.waiting.iter().filter(|(_, waiting)| is_meant(waiting));
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in numbers {
            self.give_up(number, Some(Refusal::ShuttingDown { what }));
        }
        self.serve_queue();
    }
}
