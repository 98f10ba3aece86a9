//! Looks at the table: one process, a page of them, sums.

use procd_core::{Handle, SessionId, SpoolState};

use super::api::{Caller, ListFilter, ListPage, SessionFacts, Status};
use super::entry::Entry;
use super::refusal::Refusal;
use super::tally::Whose;
use super::task::Task;
use super::view::ProcessView;

/// Where a page ends and the next begins: the number of its last record, and its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceInList {
    /// The order of registration, of this run of the daemon.
    pub number: u64,
    /// The handle: it is found by that after a restart, unless it is removed.
    pub handle: Handle,
}

impl Task {
    /// The reading side of one process. Reading counts as use.
    pub(super) fn find(&mut self, caller: Caller, handle: Handle) -> Result<ProcessView, Refusal> {
        let view = self.table.find(caller, handle).map(Entry::view)?;
        self.retention.used(handle);
        Ok(view)
    }

    pub(super) fn list(&self, caller: Caller, filter: &ListFilter) -> Result<ListPage, Refusal> {
        let session = match caller {
            Caller::Owner(owner) => Some(owner.session),
            Caller::Operator => filter.session,
        };
        if let (Caller::Operator, Some(id)) = (caller, session)
            && !self.sessions.contains_key(&id)
        {
            return Err(Refusal::SessionNotFound);
        }
        let may_see = |entry: &Entry| match caller {
            Caller::Owner(owner) => filter.whole_session || entry.owner == owner,
            Caller::Operator => true,
        };
        let before = match filter.after {
            None => u64::MAX,
            // A record that was removed meanwhile still tells where it was.
            Some(after) => self.table.get(after.handle).map_or(after.number, |e| e.number),
        };
        let mut views = Vec::new();
        let mut next = None;
        for entry in self.table.newest_first(session) {
            if entry.number >= before || !may_see(entry) || !fits_filter(entry, filter) {
                continue;
            }
            if views.len() == filter.limit {
                next = views.last().map(PlacedView::place);
                break;
            }
            views.push(PlacedView { number: entry.number, view: entry.view() });
        }
        let whose = match caller {
            Caller::Owner(owner) if !filter.whole_session => Whose::Owner(owner),
            Caller::Owner(_) | Caller::Operator => session.into(),
        };
        let free = match caller {
            Caller::Owner(owner) => self.ledger.free(owner),
            Caller::Operator => None,
        };
        Ok(ListPage { views, next, totals: self.table.totals(whose), free })
    }

    fn degraded_outputs(&self) -> u64 {
        let live = self.table.live_of(None);
        let is_degraded = |entry: &&Entry| entry.output.spool_status().0 == SpoolState::Degraded;
        live.into_iter().filter_map(|handle| self.table.get(handle)).filter(is_degraded).count()
            as u64
    }

    pub(super) fn status(&self, session: Option<SessionId>) -> Status {
        Status {
            sessions: self.sessions.len() as u64,
            idle_clocks: self.sessions.values().filter(|one| one.has_idle_clock()).count() as u64,
            totals: self.table.totals(session.into()),
            storage_writable: self.journal.is_writable(),
            dropped_notifications: self.notices.dropped,
            collisions: self.notices.collisions(),
            degraded_outputs: self.degraded_outputs(),
            session: session.and_then(|id| self.sessions.get(&id)).map(|session| SessionFacts {
                label: session.record.label.clone(),
                state: session.state(),
            }),
        }
    }
}

/// A view with its place.
#[derive(Debug, Clone)]
pub struct PlacedView {
    number: u64,
    /// The view.
    pub view: ProcessView,
}

impl PlacedView {
    /// Where a page goes on after it.
    #[must_use]
    pub const fn place(&self) -> PlaceInList {
        PlaceInList { number: self.number, handle: self.view.handle }
    }
}

fn fits_filter(entry: &Entry, filter: &ListFilter) -> bool {
    let snapshot = entry.shown.borrow();
    filter.state.is_none_or(|state| snapshot.record.state == state)
        && filter.label.as_ref().is_none_or(|label| snapshot.record.label.as_ref() == Some(label))
}
