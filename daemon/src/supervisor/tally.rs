//! How many processes are shown in each state, counted as they change: a list costs the same
//! beside whatever else is retained.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use procd_core::state::ProcessState;
use procd_core::{LoopId, Owner, SessionId};

use super::view::Totals;

/// Whose processes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    All,
    Session(SessionId),
    Owner(Owner),
}

impl From<Option<SessionId>> for Whose {
    fn from(session: Option<SessionId>) -> Self {
        session.map_or(Self::All, Self::Session)
    }
}

/// The count of one owner, shared by its entries. Only the supervisor's task locks it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(Arc<Mutex<Totals>>);

impl Tally {
    /// One more is shown in this state.
    fn add(&self, state: ProcessState) {
        *self.totals().entry(state).or_insert(0) += 1;
    }

    /// One is not shown any more.
    fn remove(&self, state: ProcessState) {
        let mut totals = self.totals();
        if let Some(count) = totals.get_mut(&state) {
            *count -= 1;
            if *count == 0 {
                totals.remove(&state);
            }
        }
    }

    /// One is shown in another state than before.
    pub(super) fn moved(&self, from: ProcessState, to: ProcessState) {
        if from != to {
            self.remove(from);
            self.add(to);
        }
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counts of all owners who have processes.
#[derive(Debug, Default)]
pub(super) struct Tallies(HashMap<SessionId, HashMap<LoopId, Tally>>);

impl Tallies {
    /// Counts one more; the count that it has to change from now on.
    pub(super) fn add(&mut self, owner: Owner, state: ProcessState) -> Tally {
        let tally = self.0.entry(owner.session).or_default().entry(owner.loop_id).or_default();
        tally.add(state);
        tally.clone()
    }

    /// Counts one less, that was shown in this state.
    pub(super) fn remove(&mut self, owner: Owner, state: ProcessState) {
        let Some(loops) = self.0.get_mut(&owner.session) else { return };
        if let Some(tally) = loops.get(&owner.loop_id) {
            tally.remove(state);
            if tally.totals().is_empty() {
                loops.remove(&owner.loop_id);
            }
        }
        if loops.is_empty() {
            self.0.remove(&owner.session);
        }
    }

    /// The sum of these.
    pub(super) fn of(&self, whose: Whose) -> Totals {
        let mut sum = Totals::new();
        let mut add = |tally: &Tally| {
            for (&state, &count) in &*tally.totals() {
                *sum.entry(state).or_insert(0) += count;
            }
        };
        let of_session = |session| self.0.get(&session).into_iter().flat_map(HashMap::values);
        match whose {
            Whose::All => self.0.values().flat_map(HashMap::values).for_each(&mut add),
            Whose::Session(session) => of_session(session).for_each(&mut add),
            Whose::Owner(owner) => {
                self.0.get(&owner.session).and_then(|loops| loops.get(&owner.loop_id)).map(add);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_what_is_shown_and_what_is_gone_leaves_none() {
        let session = |number| SessionId::new(uuid::Uuid::from_u128(number)).unwrap();
        let (one, other) = (session(1), session(2));
        let owner = |session, number| Owner {
            session,
            loop_id: LoopId::new(uuid::Uuid::from_u128(number)).unwrap(),
        };
        let mut all = Tallies::default();
        let first = all.add(owner(one, 1), ProcessState::Starting);
        all.add(owner(one, 2), ProcessState::Running);
        all.add(owner(other, 1), ProcessState::Running);
        first.moved(ProcessState::Starting, ProcessState::Running);
        let running = |count| Totals::from([(ProcessState::Running, count)]);
        assert_eq!(all.of(Whose::All), running(3));
        assert_eq!(all.of(Whose::Session(one)), running(2));
        assert_eq!(all.of(Whose::Owner(owner(one, 1))), running(1));
        first.moved(ProcessState::Running, ProcessState::Exited);
        all.remove(owner(one, 1), ProcessState::Exited);
        assert_eq!(all.of(Whose::Session(one)), running(1));
        all.remove(owner(one, 2), ProcessState::Running);
        all.remove(owner(other, 1), ProcessState::Running);
        assert!(all.0.is_empty());
        assert_eq!(all.of(Whose::All), Totals::new());
    }
}
