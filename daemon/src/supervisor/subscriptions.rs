//! Subscriptions: who is told which events. What a subscriber has not acknowledged is bounded;
//! the rest waits in the journal, as numbers. A slow one costs nobody anything.
//! Source: spec, events, *Subscribing*.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use procd_core::{Handle, Owner, SessionId};
use procd_store::event::{Event, EventKind, Notification};
use tokio::sync::mpsc;

use super::api::Caller;
use super::refusal::Refusal;
use super::task::Task;

/// Records in flight that are not acknowledged, a count; the same for notifications.
pub(super) const WINDOW: usize = 64;
/// What one subscription may have queued on its way to its connection: both windows.
const SINK_MAX: usize = 2 * WINDOW;

/// What a subscriber is sent.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event of the journal.
    Record {
        /// Its number; of a subscription to all sessions its own count.
        seq: u64,
        /// The event.
        event: Event,
        /// Whether events before it were dropped before they could be sent.
        gap: bool,
    },
    /// A completion notification.
    Offer(Notification),
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// Its connection.
    pub connection: u64,
    /// The request it belongs to.
    pub request: i64,
    /// Events from that number on; absent = from now on.
    pub from_seq: Option<u64>,
    /// Only these kinds.
    pub kinds: Option<BTreeSet<EventKind>>,
    /// An owner's whole session in place of its loop.
    pub whole_session: bool,
    /// An operator's choice of one session.
    pub session: Option<SessionId>,
    /// Whether completion notifications of the loop come too.
    pub notifications: bool,
}

/// A subscription that stands.
#[derive(Debug)]
pub struct Subscribed {
    /// The first event there is.
    pub first_kept_seq: u64,
    /// The last event there is.
    pub last_seq: u64,
    /// Whether some between the one asked for and the first kept are gone.
    pub gap: bool,
    /// What comes; closed when the subscription ends.
    pub notices: mpsc::Receiver<Notice>,
}

/// The name of a subscription: newer ones are higher.
pub(super) type SubscriptionId = u64;

/// Whose events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    Loop(Owner),
    Session(SessionId),
    All,
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    connection: u64,
    request: i64,
    range: Range,
    kinds: Option<BTreeSet<EventKind>>,
    /// The next number to look at: of the session, or over all of them.
    cursor: u64,
    /// What was sent of all sessions, a count.
    sent: u64,
    unacknowledged: VecDeque<u64>,
    /// Whose notifications it takes.
    pub(super) notifications: Option<Owner>,
    sink: mpsc::Sender<Notice>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    known: BTreeMap<SubscriptionId, Subscription>,
    of_request: HashMap<(u64, i64), SubscriptionId>,
    of_session: HashMap<SessionId, BTreeSet<SubscriptionId>>,
    of_all: BTreeSet<SubscriptionId>,
    last: SubscriptionId,
}

impl Subscriptions {
    /// Whether anybody is told of events.
    pub(super) fn are_any(&self) -> bool {
        !self.known.is_empty()
    }

    pub(super) fn get(&self, id: SubscriptionId) -> Option<&Subscription> {
        self.known.get(&id)
    }

    /// The newest subscription that takes notifications of a loop.
    pub(super) fn newest_of(&self, owner: Owner) -> Option<SubscriptionId> {
        let of_session = self.of_session.get(&owner.session)?;
        let takes = |id: &&SubscriptionId| {
            self.known.get(id).is_some_and(|one| one.notifications == Some(owner))
        };
        of_session.iter().rev().find(takes).copied()
    }

    fn insert(&mut self, subscription: Subscription) -> SubscriptionId {
        self.last += 1;
        let id = self.last;
        match subscription.range {
            Range::Loop(Owner { session, .. }) | Range::Session(session) => {
                self.of_session.entry(session).or_default().insert(id);
            }
            Range::All => drop(self.of_all.insert(id)),
        }
        self.of_request.insert((subscription.connection, subscription.request), id);
        self.known.insert(id, subscription);
        id
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let subscription = self.known.remove(&id)?;
        self.of_request.remove(&(subscription.connection, subscription.request));
        self.of_all.remove(&id);
        if let Range::Loop(Owner { session, .. }) | Range::Session(session) = subscription.range
            && let Some(of_session) = self.of_session.get_mut(&session)
        {
            of_session.remove(&id);
            if of_session.is_empty() {
                self.of_session.remove(&session);
            }
        }
        Some(subscription)
    }
}

impl Subscription {
    /// Sends, or tells that the subscriber is gone.
    pub(super) fn send(&self, notice: Notice) -> bool {
        match self.sink.try_send(notice) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::error!("bug: a subscription sent more than its windows");
                false
            }
        }
    }

    fn wants(&self, event: &Event) -> bool {
        let is_meant = match self.range {
            Range::Loop(owner) => event.loop_id() == owner.loop_id,
            Range::Session(_) | Range::All => true,
        };
        is_meant && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind()))
    }
}

impl Task {
    /// A new subscription. Notices come after the answer: the one who asked sends them on.
    pub(super) fn subscribe(
        &mut self,
        caller: Caller,
        asked: Subscribe,
    ) -> Result<Subscribed, Refusal> {
        let range = self.range(caller, &asked)?;
        let durable = self.journal.durable();
        let (cursor, extent) = match range {
            Range::Loop(Owner { session, .. }) | Range::Session(session) => {
                let last = self.feed.extent(session, 1, durable).last;
                let from = asked.from_seq.unwrap_or(last + 1);
                (from, self.feed.extent(session, from, durable))
            }
            Range::All => {
                let extent = super::feed::Extent { first_kept: 1, last: 0, gap: false };
                (self.feed.next_number(), extent)
            }
        };
        let (sink, notices) = mpsc::channel(SINK_MAX);
        let owner = match caller {
            Caller::Owner(owner) if asked.notifications => Some(owner),
            Caller::Owner(_) | Caller::Operator => None,
        };
        let id = self.subscriptions.insert(Subscription {
            connection: asked.connection,
            request: asked.request,
            range,
            kinds: asked.kinds,
            cursor,
            sent: 0,
            unacknowledged: VecDeque::new(),
            notifications: owner,
            sink,
        });
        self.pump(id);
        if let Some(owner) = owner {
            self.notifications_wanted(owner);
        }
        let super::feed::Extent { first_kept, last, gap } = extent;
        Ok(Subscribed { first_kept_seq: first_kept, last_seq: last, gap, notices })
    }

    fn range(&self, caller: Caller, asked: &Subscribe) -> Result<Range, Refusal> {
        match (caller, asked.session) {
            (Caller::Owner(owner), _) if asked.whole_session => Ok(Range::Session(owner.session)),
            (Caller::Owner(owner), _) => Ok(Range::Loop(owner)),
            (Caller::Operator, Some(session)) if self.sessions.contains_key(&session) => {
                Ok(Range::Session(session))
            }
            (Caller::Operator, Some(_)) => Err(Refusal::SessionNotFound),
            (Caller::Operator, None) if asked.from_seq.is_some() => Err(Refusal::Invalid {
                field: "from_seq",
                message: "`from_seq` needs a `session_id`: all sessions have no common numbers"
                    .to_owned(),
            }),
            (Caller::Operator, None) => Ok(Range::All),
        }
    }

    /// All up to a number is acknowledged.
    pub(super) fn acknowledge_events(
        &mut self,
        connection: u64,
        request: i64,
        up_to: u64,
    ) -> Result<(), Refusal> {
        let id = self.subscription_of(connection, request)?;
        if let Some(subscription) = self.subscriptions.known.get_mut(&id) {
            let waiting = &mut subscription.unacknowledged;
            while waiting.front().is_some_and(|seq| *seq <= up_to) {
                waiting.pop_front();
            }
        }
        self.pump(id);
        Ok(())
    }

    fn subscription_of(&self, connection: u64, request: i64) -> Result<SubscriptionId, Refusal> {
        let id = self.subscriptions.of_request.get(&(connection, request)).copied();
        id.ok_or_else(|| Refusal::Invalid {
            field: "for",
            message: "`for` is no subscription of this connection".to_owned(),
        })
    }

    /// Ends one subscription.
    pub(super) fn unsubscribe(&mut self, connection: u64, request: i64) -> Result<(), Refusal> {
        let id = self.subscription_of(connection, request)?;
        self.end_subscription(id);
        Ok(())
    }

    /// Ends those of a connection that is gone.
    pub(super) fn end_subscriptions_of(&mut self, connection: u64) {
        let of_connection = self.subscriptions.of_request.iter();
        let ids: Vec<_> =
            of_connection.filter(|((of, _), _)| *of == connection).map(|(_, id)| *id).collect();
        for id in ids {
            self.end_subscription(id);
        }
    }

    /// Those of a session that goes.
    pub(super) fn end_subscriptions_to(&mut self, session: SessionId) {
        let ids = self.subscriptions.of_session.get(&session).cloned().unwrap_or_default();
        for id in ids {
            self.end_subscription(id);
        }
    }

    fn end_subscription(&mut self, id: SubscriptionId) {
        let Some(gone) = self.subscriptions.remove(id) else { return };
        if let Some(owner) = gone.notifications {
            self.offers_lost(owner, id);
        }
    }

    /// Events of these sessions have become durable.
    pub(super) fn pump_sessions(&mut self, sessions: &BTreeSet<SessionId>) {
        let mut ids = self.subscriptions.of_all.clone();
        for session in sessions {
            ids.extend(self.subscriptions.of_session.get(session).into_iter().flatten());
        }
        for id in ids {
            self.pump(id);
        }
    }

    /// Sends what there is, as far as the window allows.
    fn pump(&mut self, id: SubscriptionId) {
        while let Some((cursor, found)) = self.next_for(id) {
            let Some(subscription) = self.subscriptions.known.get_mut(&id) else { return };
            subscription.cursor = cursor;
            let Some((seq, event, gap)) = found else { continue };
            if !subscription.wants(&event) {
                continue;
            }
            subscription.sent += 1;
            let seq = match subscription.range {
                Range::All => subscription.sent,
                Range::Loop(_) | Range::Session(_) => seq,
            };
            subscription.unacknowledged.push_back(seq);
            if !subscription.send(Notice::Record { seq, event, gap }) {
                self.end_subscription(id);
                return;
            }
        }
    }

    /// The next event for a subscription with room, and where to go on; the event is missing if
    /// it was dropped meanwhile.
    #[expect(clippy::type_complexity, reason = "a value between two neighbours")]
    fn next_for(&self, id: SubscriptionId) -> Option<(u64, Option<(u64, Event, bool)>)> {
        let subscription = self.subscriptions.known.get(&id)?;
        if subscription.unacknowledged.len() >= WINDOW {
            return None;
        }
        let (durable, cursor) = (self.journal.durable(), subscription.cursor);
        match subscription.range {
            Range::Loop(Owner { session, .. }) | Range::Session(session) => {
                let (seq, place, gap) = self.feed.next_of(session, cursor, durable)?;
                let event = self.event(place.handle, seq);
                Some((seq + 1, event.map(|event| (seq, event, gap && cursor > 0))))
            }
            Range::All => {
                let (number, session, seq) = self.feed.next_of_all(cursor, durable)?;
                let place = self.feed.next_of(session, seq, durable)?.1;
                let event = self.event(place.handle, seq);
                Some((number + 1, event.map(|event| (seq, event, false))))
            }
        }
    }

    fn event(&self, handle: Handle, seq: u64) -> Option<Event> {
        let events = &self.table.get(handle)?.events;
        let at = events.binary_search_by_key(&seq, |held| held.seq).ok()?;
        events.get(at).map(|held| held.event.clone())
    }
}
