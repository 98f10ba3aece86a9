//! The process table and its orders: by handle, by age, by session.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map};

use procd_core::{Handle, SessionId};

use super::api::Caller;
use super::entry::Entry;
use super::refusal::Refusal;
use super::tally::{Tallies, Whose};
use super::view::Totals;

/// All processes the daemon knows.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Boxed: a table of large values is half empty after it has grown.
    entries: HashMap<Handle, Box<Entry>>,
    by_age: BTreeMap<u64, Handle>,
    by_session: HashMap<SessionId, BTreeMap<u64, Handle>>,
    tallies: Tallies,
    next_number: u64,
    /// Handles whose record is in quarantine.
    corrupt: HashSet<Handle>,
}

impl Table {
    /// The number of the next entry.
    pub(super) fn mint_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn insert(&mut self, mut entry: Entry) {
        let state = entry.shown.borrow().record.state;
        entry.tally = self.tallies.add(entry.owner, state);
        let (handle, number, session) = (entry.handle, entry.number, entry.owner.session);
        self.by_age.insert(number, handle);
        self.by_session.entry(session).or_default().insert(number, handle);
        self.entries.insert(handle, Box::new(entry));
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Entry> {
        let entry = self.entries.remove(&handle)?;
        self.by_age.remove(&entry.number);
        self.tallies.remove(entry.owner, entry.shown.borrow().record.state);
        if let hash_map::Entry::Occupied(mut of_session) =
            self.by_session.entry(entry.owner.session)
        {
            of_session.get_mut().remove(&entry.number);
            if of_session.get().is_empty() {
                of_session.remove();
            }
        }
        Some(*entry)
    }

    pub(super) fn contains(&self, handle: Handle) -> bool {
        self.entries.contains_key(&handle) || self.corrupt.contains(&handle)
    }

    /// Takes over the handles whose record is in quarantine.
    pub(super) fn set_corrupt(&mut self, corrupt: HashSet<Handle>) {
        self.corrupt = corrupt;
    }

    /// What a caller is told of a handle it cannot have: only an operator learns of damage.
    fn absent(&self, caller: Caller, handle: Handle) -> Refusal {
        match caller {
            Caller::Operator if self.corrupt.contains(&handle) => Refusal::ManifestCorrupt,
            Caller::Operator | Caller::Owner(_) => Refusal::NotFound,
        }
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Entry> {
        self.entries.get(&handle).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Entry> {
        self.entries.get_mut(&handle).map(Box::as_mut)
    }

    /// The entry if `caller` has authority over it: unknown and foreign get the same answer.
    pub(super) fn find(&self, caller: Caller, handle: Handle) -> Result<&Entry, Refusal> {
        let entry = self.get(handle);
        let entry = entry.filter(|entry| may_touch(caller, entry));
        entry.ok_or_else(|| self.absent(caller, handle))
    }

    /// The same to change it.
    pub(super) fn find_mut(
        &mut self,
        caller: Caller,
        handle: Handle,
    ) -> Result<&mut Entry, Refusal> {
        let absent = self.absent(caller, handle);
        let entry = self.get_mut(handle);
        entry.filter(|entry| may_touch(caller, entry)).ok_or(absent)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(Box::as_ref)
    }

    /// How many are shown in each state.
    pub(super) fn totals(&self, whose: Whose) -> Totals {
        self.tallies.of(whose)
    }

    /// Newest first; of one session, or of all.
    pub(super) fn newest_first(&self, session: Option<SessionId>) -> impl Iterator<Item = &Entry> {
        let order = match session {
            None => Some(&self.by_age),
            Some(session) => self.by_session.get(&session),
        };
        let handles = order.into_iter().flat_map(|order| order.values().rev());
        handles.filter_map(|handle| self.get(*handle))
    }

    /// The handles of a session's processes that have not ended for its readers.
    pub(super) fn live_of(&self, session: Option<SessionId>) -> Vec<Handle> {
        let live = self.newest_first(session).filter(|entry| !entry.is_shown_terminal());
        live.map(|entry| entry.handle).collect()
    }
}

fn may_touch(caller: Caller, entry: &Entry) -> bool {
    match caller {
        Caller::Operator => true,
        Caller::Owner(owner) => entry.owner == owner,
    }
}
