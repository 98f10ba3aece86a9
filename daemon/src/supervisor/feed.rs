//! The order of all events that are kept: each session's journal, and the order over all
//! sessions. Holds numbers only; an event itself is with the record of its process.
//! Source: spec, events, *Commit log and journals*.

use std::collections::{BTreeMap, HashMap};

use procd_core::{Handle, SessionId};

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) handle: Handle,
    /// The order of its batch: durable when the log has come so far.
    pub(super) order: u64,
    /// Its number over all sessions, of this run of the daemon.
    pub(super) number: u64,
    /// The highest number of an event that was dropped between the kept one before and this one.
    dropped_before: u64,
}

#[derive(Debug, Default)]
struct Journal {
    kept: BTreeMap<u64, Place>,
    /// The highest number dropped behind the last kept one.
    dropped_last: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Feed {
    journals: HashMap<SessionId, Journal>,
    all: BTreeMap<u64, (SessionId, u64)>,
    last: u64,
}

/// What there is of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first kept number at or after the one asked for; one after the last if there is none.
    pub(super) first_kept: u64,
    /// The last number that is durable, kept or dropped; 0 = none.
    pub(super) last: u64,
    /// Whether an event between the number asked for and the first kept one was dropped.
    pub(super) gap: bool,
}

impl Feed {
    /// A new event.
    pub(super) fn add(&mut self, session: SessionId, seq: u64, handle: Handle, order: u64) {
        self.last += 1;
        let journal = self.journals.entry(session).or_default();
        // Restored ones do not come in the order of their numbers.
        let is_last = journal.kept.last_key_value().is_none_or(|(last, _)| *last < seq);
        let dropped_before = if is_last { std::mem::take(&mut journal.dropped_last) } else { 0 };
        journal.kept.insert(seq, Place { handle, order, number: self.last, dropped_before });
        self.all.insert(self.last, (session, seq));
    }

    /// An event that is kept no more.
    pub(super) fn remove(&mut self, session: SessionId, seq: u64) {
        let Some(journal) = self.journals.get_mut(&session) else { return };
        let Some(place) = journal.kept.remove(&seq) else { return };
        self.all.remove(&place.number);
        match journal.kept.range_mut(seq..).next() {
            Some((_, next)) => next.dropped_before = next.dropped_before.max(seq),
            None => journal.dropped_last = journal.dropped_last.max(seq),
        }
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, session: SessionId) {
        for (_, place) in self.journals.remove(&session).unwrap_or_default().kept {
            self.all.remove(&place.number);
        }
    }

    /// What an earlier daemon had dropped: all that is known is the highest number.
    pub(super) fn dropped_through(&mut self, session: SessionId, seq: u64) {
        let journal = self.journals.entry(session).or_default();
        match journal.kept.range_mut(seq..).next() {
            Some((_, next)) => next.dropped_before = next.dropped_before.max(seq),
            None => journal.dropped_last = journal.dropped_last.max(seq),
        }
    }

    /// What a reader from `from` on finds.
    pub(super) fn extent(&self, session: SessionId, from: u64, durable: u64) -> Extent {
        let Some(journal) = self.journals.get(&session) else {
            return Extent { first_kept: 1, last: 0, gap: false };
        };
        let is_durable = |(_, place): &(&u64, &Place)| place.order <= durable;
        let newest = journal.kept.iter().rev().find(is_durable).map_or(0, |(seq, _)| *seq);
        let last = newest.max(journal.dropped_last);
        let (first_kept, dropped) = match journal.kept.range(from..).next() {
            Some((seq, place)) => (*seq, place.dropped_before),
            None => (last + 1, journal.dropped_last),
        };
        Extent { first_kept, last, gap: dropped != 0 && dropped >= from }
    }

    /// The first durable event at or after `from`, and whether one in between was dropped.
    pub(super) fn next_of(
        &self,
        session: SessionId,
        from: u64,
        durable: u64,
    ) -> Option<(u64, Place, bool)> {
        let (seq, place) = self.journals.get(&session)?.kept.range(from..).next()?;
        let is_gap = place.dropped_before != 0 && place.dropped_before >= from;
        (place.order <= durable).then_some((*seq, *place, is_gap))
    }

    /// The first durable event of any session at or after the number `from`.
    pub(super) fn next_of_all(&self, from: u64, durable: u64) -> Option<(u64, SessionId, u64)> {
        let (number, (session, seq)) = self.all.range(from..).next()?;
        let place = self.journals.get(session)?.kept.get(seq)?;
        (place.order <= durable).then_some((*number, *session, *seq))
    }

    /// The number over all sessions that the next event gets.
    pub(super) const fn next_number(&self) -> u64 {
        self.last + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const ALL: u64 = u64::MAX;

    fn session() -> SessionId {
        SessionId::new(Uuid::from_u128(5)).unwrap()
    }

    fn handle() -> Handle {
        Handle::from_bytes([1; 16])
    }

    proptest! {
        /// A gap is told exactly when an event between the number asked for and the first kept
        /// one was dropped, whatever is dropped in which order.
        #[test]
        fn gaps_are_exact(steps in prop::collection::vec((1u64..4, any::<prop::sample::Index>(), any::<bool>()), 1..40)) {
            let mut feed = Feed::default();
            let (mut kept, mut dropped, mut last) = (Vec::new(), Vec::new(), 0);
            for (hole, index, drops) in steps {
                if drops && !kept.is_empty() {
                    let seq = kept.remove(index.index(kept.len()));
                    dropped.push(seq);
                    feed.remove(session(), seq);
                } else {
                    last += hole;
                    kept.push(last);
                    feed.add(session(), last, handle(), 0);
                }
                for from in 0..=last + 1 {
                    let extent = feed.extent(session(), from, ALL);
                    let first = kept.iter().copied().find(|seq| *seq >= from);
                    let until = first.unwrap_or(u64::MAX);
                    let is_gap = dropped.iter().any(|seq| *seq >= from && *seq < until);
                    prop_assert_eq!(extent.gap, is_gap, "from {}", from);
                    prop_assert_eq!(extent.first_kept, first.unwrap_or(extent.last + 1));
                    prop_assert_eq!(extent.last, last);
                    let next = feed.next_of(session(), from, ALL).map(|(seq, _, gap)| (seq, gap));
                    prop_assert_eq!(next, first.map(|first| (first, is_gap)));
                }
            }
        }
    }

    #[test]
    fn what_is_not_durable_is_not_there_yet() {
        let mut feed = Feed::default();
        feed.add(session(), 3, handle(), 1);
        feed.add(session(), 4, handle(), 2);
        assert!(feed.next_of(session(), 1, 0).is_none());
        assert_eq!(feed.next_of(session(), 1, 1).unwrap().0, 3);
        assert!(feed.next_of(session(), 4, 1).is_none());
        assert_eq!(feed.extent(session(), 1, 1).last, 3);
        assert_eq!(feed.next_of_all(2, 2), Some((2, session(), 4)));
        feed.forget(session());
        assert_eq!(feed.next_of_all(0, ALL), None);
    }
}
