//! From batches that are durable to whoever is to be told: events to subscribers, notifications
//! to their loops. Nothing is told before it is durable.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use procd_core::{Handle, Owner, SessionId};
use procd_store::event::Event;
use procd_store::log::Submitted;
use procd_store::manifest::NumberedEvent;

use super::task::Task;
use super::timers::Due;

/// How long batches that are not durable wait until they are asked about.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A batch with something to tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publishing {
    order: u64,
    owner: Owner,
}

impl Task {
    /// Keeps the numbers of a batch just submitted: the record's, then its events'.
    pub(super) fn remember(&mut self, handle: Handle, events: Vec<Event>, submitted: &[Submitted]) {
        let order = self.journal.last_order();
        let Some(entry) = self.table.get_mut(handle) else { return };
        if let Some(record) = submitted.first() {
            entry.seq = record.seq;
        }
        let owner = entry.owner;
        let mut fresh = Vec::new();
        // There are few, and most processes live long with the first of them.
        entry.events.reserve_exact(events.len());
        for (event, submitted) in events.into_iter().zip(submitted.iter().skip(1)) {
            // An event that was there already is not kept twice.
            if submitted.appended {
                fresh.push(submitted.seq);
                entry.events.push(NumberedEvent { seq: submitted.seq, event });
            }
        }
        let before: Vec<u64> = entry.events.iter().map(|held| held.seq).collect();
        procd_store::manifest::keep_newest(&mut entry.events);
        let kept: HashSet<u64> = entry.events.iter().map(|held| held.seq).collect();
        for seq in fresh {
            self.feed.add(owner.session, seq, handle, order);
        }
        self.events_gone(owner.session, before.into_iter().filter(|seq| !kept.contains(seq)));
        self.publishing.push_back(Publishing { order, owner });
    }

    /// Events that are kept no more.
    pub(super) fn events_gone(&mut self, session: SessionId, seqs: impl Iterator<Item = u64>) {
        for seq in seqs {
            self.feed.remove(session, seq);
            if let Some(known) = self.sessions.get_mut(&session) {
                let through = &mut known.record.events_dropped_through;
                *through = (*through).max(seq);
            }
        }
    }

    /// Tells what has become durable.
    pub(super) fn publish_durable(&mut self) {
        let durable = self.journal.durable();
        let mut owners = HashSet::new();
        while let Some(next) = self.publishing.front()
            && next.order <= durable
        {
            owners.insert(next.owner);
            self.publishing.pop_front();
        }
        if owners.is_empty() {
            return;
        }
        let sessions: BTreeSet<SessionId> = owners.iter().map(|owner| owner.session).collect();
        self.pump_sessions(&sessions);
        for owner in owners {
            self.offer(owner);
        }
    }

    /// Something is not durable: asks until it is.
    pub(super) fn ask_again(&mut self) {
        if !self.is_asking {
            self.is_asking = true;
            self.timers.arm(self.clock.monotonic() + ASK_AGAIN, Due::Journal);
        }
    }
}
