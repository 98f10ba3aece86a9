//! Completion notifications: one for every end, offered to its loop until acknowledged. The
//! commit log is the truth; what is here follows it.
//!
//! ```text
//! waits --offered--> unanswered --accepted, duplicate--> gone
//!   ^                  |   |
//!   +---- stopped -----+   +--collision--> marked, never offered again
//!   +- subscription gone --+
//! ```
//! Source: spec, events, *Completion notifications*.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use procd_core::{Handle, Owner, SessionId};
use procd_store::event::Notification;
use procd_store::log::{Acknowledgement, Disposition, LogRecord, Removal};
use tokio::time::Instant;
use uuid::Uuid;

use super::api::Reply;
use super::journal::Tag;
use super::refusal::Refusal;
use super::subscriptions::{Notice, SubscriptionId, WINDOW};
use super::task::Task;
use super::timers::Due;

/// How often a notification that was stopped is offered again while its loop is connected.
const STOPPED_AGAIN: Duration = Duration::from_secs(5);
/// Unacknowledged notifications of one session, a count; beyond, the oldest go.
const UNACKNOWLEDGED_MAX: usize = 100_000;
/// Answers that are remembered beyond their record, a count a session: a repeated one is fine.
const ANSWERS_MAX: usize = 1024;

/// The answer of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It took it, had it, or holds another payload under this id.
    Final(Disposition),
    /// It cannot take it now.
    Stopped,
}

/// One that is not acknowledged.
#[derive(Debug)]
struct Open {
    notification: Notification,
    owner: Owner,
    /// The number of its record in the log.
    seq: u64,
    /// The order of its batch.
    order: u64,
    /// When its process ended.
    ended_at: Timestamp,
    offered: Offered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offered {
    No,
    To(SubscriptionId),
    Stopped(Instant),
}

/// Those of one session.
#[derive(Debug, Default)]
struct OfSession {
    /// By their number.
    open: BTreeMap<u64, Open>,
    numbers: HashMap<Uuid, u64>,
    collisions: HashMap<Uuid, (u64, Acknowledgement)>,
    answered: VecDeque<(Uuid, Owner)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Notices {
    sessions: HashMap<SessionId, OfSession>,
    unanswered: HashMap<SubscriptionId, usize>,
    /// What went without an acknowledgement, a count since the start of the daemon.
    pub(super) dropped: u64,
    /// Who waits for an answer to be durable.
    replies: HashMap<(SessionId, Uuid), Vec<Reply<()>>>,
}

impl Notices {
    /// Those that wait for their loop, a count.
    pub(super) fn waiting(&self) -> u64 {
        self.sessions.values().map(|of_session| of_session.open.len() as u64).sum()
    }

    /// Those that met another payload, a count.
    pub(super) fn collisions(&self) -> u64 {
        self.sessions.values().map(|of_session| of_session.collisions.len() as u64).sum()
    }
}

impl Task {
    /// A notification that is in the log, durable or about to be.
    pub(super) fn notification_made(
        &mut self,
        notification: Notification,
        seq: u64,
        order: u64,
        ended_at: Timestamp,
    ) {
        let session = notification.session_id();
        let owner = Owner { session, loop_id: notification.loop_id() };
        let of_session = self.notices.sessions.entry(session).or_default();
        of_session.numbers.insert(notification.command_id(), seq);
        let open = Open { notification, owner, seq, order, ended_at, offered: Offered::No };
        of_session.open.insert(seq, open);
        if of_session.open.len() > UNACKNOWLEDGED_MAX
            && let Some((&oldest, _)) = of_session.open.first_key_value()
        {
            self.drop_notification(session, oldest, true);
        }
    }

    /// A collision of an earlier daemon.
    pub(super) fn restore_collision(&mut self, acknowledgement: Acknowledgement) {
        let of_session = self.notices.sessions.entry(acknowledgement.session_id).or_default();
        of_session.collisions.insert(acknowledgement.command_id, (1, acknowledgement));
    }

    /// A loop has a new subscriber: what was stopped is offered again at once.
    pub(super) fn notifications_wanted(&mut self, owner: Owner) {
        if let Some(session) = self.sessions.get_mut(&owner.session)
            && !session.record.had_subscriber
        {
            session.record.had_subscriber = true;
            self.save_session(owner.session);
        }
        if let Some(of_session) = self.notices.sessions.get_mut(&owner.session) {
            for open in of_session.open.values_mut().filter(|open| open.owner == owner) {
                match open.offered {
                    Offered::Stopped(_) => open.offered = Offered::No,
                    Offered::No | Offered::To(_) => {}
                }
            }
        }
        self.offer(owner);
    }

    /// What was offered to a subscription that is gone waits again.
    pub(super) fn offers_lost(&mut self, owner: Owner, id: SubscriptionId) {
        self.notices.unanswered.remove(&id);
        if let Some(of_session) = self.notices.sessions.get_mut(&owner.session) {
            for open in of_session.open.values_mut() {
                if open.offered == Offered::To(id) {
                    open.offered = Offered::No;
                }
            }
        }
        self.offer(owner);
    }

    /// Offers what waits to the newest subscriber of its loop, as far as its window allows.
    pub(super) fn offer(&mut self, owner: Owner) {
        let Some(id) = self.subscriptions.newest_of(owner) else { return };
        let Some(subscription) = self.subscriptions.get(id) else { return };
        let Some(of_session) = self.notices.sessions.get_mut(&owner.session) else { return };
        let unanswered = self.notices.unanswered.entry(id).or_insert(0);
        let durable = self.journal.durable();
        let waits = |open: &&mut Open| {
            open.owner == owner && open.offered == Offered::No && open.order <= durable
        };
        for open in of_session.open.values_mut().filter(waits) {
            if *unanswered >= WINDOW {
                break;
            }
            crate::failpoint::hit("offer-before");
            if !subscription.send(Notice::Offer(open.notification.clone())) {
                break;
            }
            crate::failpoint::hit("offer-after");
            open.offered = Offered::To(id);
            *unanswered += 1;
        }
    }

    /// A loop answers.
    pub(super) fn answer_notification(
        &mut self,
        owner: Owner,
        command_id: Uuid,
        answer: Answer,
        reply: Reply<()>,
    ) {
        match self.take_answer(owner, command_id, answer) {
            Ok(true) => {
                let replies = &mut self.notices.replies;
                replies.entry((owner.session, command_id)).or_default().push(reply);
            }
            Ok(false) => drop(reply.send(Ok(()))),
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
        self.offer(owner);
    }

    /// Whether the answer has to become durable first.
    fn take_answer(
        &mut self,
        owner: Owner,
        command_id: Uuid,
        answer: Answer,
    ) -> Result<bool, Refusal> {
        let of_session = self.notices.sessions.entry(owner.session).or_default();
        let number = of_session.numbers.get(&command_id).copied();
        let open = number.and_then(|number| of_session.open.get_mut(&number));
        let Some(open) = open.filter(|open| open.owner == owner) else {
            return self.repeated_answer(owner, command_id, answer).map(|()| false);
        };
        if open.order > self.journal.durable() {
            return Err(Refusal::NoNotification);
        }
        if let Offered::To(id) = open.offered
            && let Some(count) = self.notices.unanswered.get_mut(&id)
        {
            *count = count.saturating_sub(1);
        }
        match answer {
            Answer::Stopped => {
                let at = self.clock.monotonic() + STOPPED_AGAIN;
                open.offered = Offered::Stopped(at);
                self.timers.arm(at, Due::Stopped(owner));
                Ok(false)
            }
            Answer::Final(disposition) => {
                self.close_notification(owner, command_id, disposition);
                Ok(true)
            }
        }
    }

    /// An answer to what is answered already.
    fn repeated_answer(
        &self,
        owner: Owner,
        command_id: Uuid,
        answer: Answer,
    ) -> Result<(), Refusal> {
        let of_session = self.notices.sessions.get(&owner.session);
        if let Some((_, collision)) = of_session.and_then(|all| all.collisions.get(&command_id))
            && collision.loop_id == owner.loop_id
        {
            return match answer {
                Answer::Final(Disposition::Accepted) => Err(Refusal::Invalid {
                    field: "disposition",
                    message: "`disposition` was `collision` before".to_owned(),
                }),
                Answer::Final(Disposition::Duplicate | Disposition::Collision)
                | Answer::Stopped => Ok(()),
            };
        }
        let is_remembered =
            of_session.is_some_and(|all| all.answered.contains(&(command_id, owner)));
        let is_marked = || {
            self.table.newest_first(Some(owner.session)).any(|entry| {
                entry.record.ids.notification == command_id
                    && entry.owner == owner
                    && entry.record.published.acknowledged
            })
        };
        if is_remembered || is_marked() { Ok(()) } else { Err(Refusal::NoNotification) }
    }

    /// The final answer: in the log with the mark of the record, then in its file.
    fn close_notification(&mut self, owner: Owner, command_id: Uuid, disposition: Disposition) {
        let session = owner.session;
        let Some(of_session) = self.notices.sessions.get_mut(&session) else { return };
        let Some(number) = of_session.numbers.remove(&command_id) else { return };
        let Some(open) = of_session.open.remove(&number) else { return };
        let process_id = open.notification.process_id();
        let acknowledgement = Acknowledgement {
            command_id,
            session_id: session,
            loop_id: owner.loop_id,
            process_id,
            disposition,
        };
        crate::failpoint::hit("ack-before-append");
        let mut batch = vec![LogRecord::from(acknowledgement.clone())];
        if let Some(entry) = self.table.get_mut(process_id) {
            entry.record.published.acknowledged = true;
            batch.push(LogRecord::process(&entry.record));
        }
        let submitted = self.journal.submit(Tag::Answer(session, command_id), batch);
        crate::failpoint::hit("ack-after-append");
        if let (Some(entry), Some(record)) = (self.table.get_mut(process_id), submitted.get(1)) {
            entry.seq = record.seq;
        }
        let seq = submitted.first().map_or(number, |submitted| submitted.seq);
        if disposition == Disposition::Collision {
            tracing::error!(%command_id, "a loop holds another payload under this notification");
            of_session.collisions.insert(command_id, (seq, acknowledgement));
        }
        of_session.answered.push_back((command_id, owner));
        if of_session.answered.len() > ANSWERS_MAX {
            of_session.answered.pop_front();
        }
        self.rewrite_manifest(process_id);
    }

    /// The answer is durable, or could not be saved.
    pub(super) fn answer_logged(&mut self, session: SessionId, command_id: Uuid, saved: bool) {
        crate::failpoint::hit("ack-durable");
        for reply in self.notices.replies.remove(&(session, command_id)).unwrap_or_default() {
            let storage = Refusal::Setup { cause: "storage", process_id: None };
            drop(reply.send(if saved { Ok(()) } else { Err(storage) }));
        }
    }

    /// What was stopped some time ago is offered again.
    pub(super) fn stopped_due(&mut self, owner: Owner, now: Instant) {
        let Some(of_session) = self.notices.sessions.get_mut(&owner.session) else { return };
        for open in of_session.open.values_mut().filter(|open| open.owner == owner) {
            if matches!(open.offered, Offered::Stopped(at) if at <= now) {
                open.offered = Offered::No;
            }
        }
        self.offer(owner);
    }

    /// Notifications that are older than the retention age go.
    pub(super) fn drop_old_notifications(&mut self, session: SessionId, before: Timestamp) {
        let Some(of_session) = self.notices.sessions.get(&session) else { return };
        let old: Vec<u64> = of_session
            .open
            .iter()
            .filter(|(_, open)| open.ended_at <= before)
            .map(|(number, _)| *number)
            .collect();
        for number in old {
            self.drop_notification(session, number, true);
        }
    }

    /// The record of a process is removed: its notification stays, if somebody might want it. Then
    /// it has to be written again, since so far it may stand in the file of the record only.
    pub(super) fn record_gone(
        &mut self,
        session: SessionId,
        command_id: Uuid,
    ) -> Option<Notification> {
        let is_wanted =
            self.sessions.get(&session).is_some_and(|known| known.record.had_subscriber);
        let of_session = self.notices.sessions.get(&session)?;
        let number = of_session.numbers.get(&command_id).copied()?;
        if is_wanted {
            return of_session.open.get(&number).map(|open| open.notification.clone());
        }
        self.drop_notification(session, number, false);
        None
    }

    fn drop_notification(&mut self, session: SessionId, number: u64, is_counted: bool) {
        let Some(of_session) = self.notices.sessions.get_mut(&session) else { return };
        let Some(open) = of_session.open.remove(&number) else { return };
        let command_id = open.notification.command_id();
        of_session.numbers.remove(&command_id);
        if let Offered::To(id) = open.offered
            && let Some(count) = self.notices.unanswered.get_mut(&id)
        {
            *count = count.saturating_sub(1);
        }
        self.notices.dropped += u64::from(is_counted);
        let removal = Removal::Notification { session_id: session, command_id };
        self.journal.submit(Tag::Other, vec![removal.into()]);
    }

    /// All of a session that goes.
    pub(super) fn forget_notifications(&mut self, session: SessionId) {
        self.notices.sessions.remove(&session);
    }

    /// Unacknowledged ones whose record is gone, and marked ones, for a snapshot.
    pub(super) fn standing_notices(&self) -> Vec<(u64, LogRecord)> {
        let is_gone = |handle: Handle| self.table.get(handle).is_none();
        let mut records = Vec::new();
        for of_session in self.notices.sessions.values() {
            let standing = of_session.open.values();
            let standing = standing.filter(|open| is_gone(open.notification.process_id()));
            records.extend(standing.map(|open| (open.seq, open.notification.clone().into())));
            let marked = of_session.collisions.values();
            records.extend(marked.map(|(seq, one)| (*seq, LogRecord::from(one.clone()))));
        }
        records
    }
}
