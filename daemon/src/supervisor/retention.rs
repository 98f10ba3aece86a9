//! What is kept of ended processes: least recently used first, by count, by age, by bytes.
//! Running ones are never touched, pinned ones only by their owner. The cost of one end does not
//! grow with what is kept. Source: spec, lifecycle, *Retention*.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use procd_core::quota::Scope;
use procd_core::{Handle, SessionId};
use procd_store::log::Removal;

use super::api::SessionState;
use super::journal::Tag;
use super::refusal::Refusal;
use super::sessions::Session;
use super::task::Task;
use super::timers::Due;

/// How long the next look at ages is put off at most: the wall clock may be set meanwhile.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(3600);
/// And at least.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(100);
/// So much of `disk_bytes` is kept free by eviction: a share of it, at most these bytes.
const MARGIN_SHARE: u64 = 16;
const MARGIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One ended process whose files stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) session: SessionId,
    pub(super) finished_at: Timestamp,
    /// What its files take, bytes.
    pub(super) disk_bytes: u64,
    pub(super) is_pinned: bool,
    /// When it was used last, as a count that goes up.
    used: u64,
}

/// The orders in which ended processes go. Pinned ones are in none.
#[derive(Debug, Default)]
pub(super) struct Retention {
    kept: HashMap<Handle, Kept>,
    by_use: BTreeSet<(u64, Handle)>,
    by_age: BTreeSet<(Timestamp, Handle)>,
    of_session: HashMap<SessionId, BTreeSet<(u64, Handle)>>,
    disk_bytes: u64,
    uses: u64,
    /// When those that ended were used last whose files do not stand yet.
    early: HashMap<Handle, u64>,
    /// What else the state folder holds, as it was measured last, bytes.
    pub(super) other_bytes: u64,
    /// Retained bytes of pinned outputs.
    pinned: HashMap<SessionId, u64>,
    is_armed: bool,
}

impl Retention {
    /// A process whose files stand from now on.
    pub(super) fn keep(&mut self, handle: Handle, mut kept: Kept) {
        // Files are written side by side: which of two stand first says nothing of their ends.
        let used = self.early.remove(&handle);
        self.forget(handle);
        kept.used = used.unwrap_or_else(|| self.next_use());
        self.disk_bytes += kept.disk_bytes;
        self.enter(handle, kept);
        self.kept.insert(handle, kept);
    }

    const fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// It ended, which counts as use. Its files do not stand yet.
    pub(super) fn ended(&mut self, handle: Handle) {
        let used = self.next_use();
        self.early.insert(handle, used);
    }

    fn enter(&mut self, handle: Handle, kept: Kept) {
        if kept.is_pinned {
            return;
        }
        self.by_use.insert((kept.used, handle));
        self.by_age.insert((kept.finished_at, handle));
        self.of_session.entry(kept.session).or_default().insert((kept.used, handle));
    }

    fn leave(&mut self, handle: Handle, kept: Kept) {
        self.by_use.remove(&(kept.used, handle));
        self.by_age.remove(&(kept.finished_at, handle));
        if let Some(of_session) = self.of_session.get_mut(&kept.session) {
            of_session.remove(&(kept.used, handle));
            if of_session.is_empty() {
                self.of_session.remove(&kept.session);
            }
        }
    }

    fn change(&mut self, handle: Handle, change: impl FnOnce(&mut Kept)) {
        let Some(before) = self.kept.get(&handle).copied() else { return };
        self.leave(handle, before);
        let mut after = before;
        change(&mut after);
        self.disk_bytes = self.disk_bytes.saturating_sub(before.disk_bytes) + after.disk_bytes;
        self.kept.insert(handle, after);
        self.enter(handle, after);
    }

    /// It was read.
    pub(super) fn used(&mut self, handle: Handle) {
        let used = self.next_use();
        if let Some(early) = self.early.get_mut(&handle) {
            *early = used;
        }
        self.change(handle, |kept| kept.used = used);
    }

    /// What its files take was measured.
    pub(super) fn measured(&mut self, handle: Handle, disk_bytes: u64) {
        self.change(handle, |kept| kept.disk_bytes = disk_bytes);
    }

    pub(super) fn set_pinned(&mut self, handle: Handle, is_pinned: bool) {
        self.change(handle, |kept| kept.is_pinned = is_pinned);
    }

    /// It is removed.
    pub(super) fn forget(&mut self, handle: Handle) {
        self.early.remove(&handle);
        if let Some(kept) = self.kept.remove(&handle) {
            self.leave(handle, kept);
            self.disk_bytes = self.disk_bytes.saturating_sub(kept.disk_bytes);
        }
    }

    /// The least recently used of a session that keeps more than `max`.
    fn surplus(&self, session: SessionId, max: u64) -> Option<Handle> {
        let of_session = self.of_session.get(&session)?;
        let count = u64::try_from(of_session.len()).unwrap_or(u64::MAX);
        (count > max).then(|| of_session.first().map(|(_, handle)| *handle)).flatten()
    }

    fn expired(&self, before: Timestamp) -> Option<Handle> {
        self.by_age.first().filter(|(at, _)| *at <= before).map(|(_, handle)| *handle)
    }

    fn oldest(&self) -> Option<Handle> {
        self.by_use.first().map(|(_, handle)| *handle)
    }

    /// Retained bytes of the pinned outputs of a session, and of all.
    fn pinned_bytes(&self, session: SessionId) -> (u64, u64) {
        let own = self.pinned.get(&session).copied().unwrap_or(0);
        (own, self.pinned.values().sum())
    }

    /// Counts the bytes of a pinned output in, or out.
    pub(super) fn count_pinned(&mut self, session: SessionId, bytes: u64, is_pinned: bool) {
        let sum = self.pinned.entry(session).or_insert(0);
        *sum = if is_pinned { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
        if *sum == 0 {
            self.pinned.remove(&session);
        }
    }
}

impl Kept {
    pub(super) const fn new(
        session: SessionId,
        finished_at: Timestamp,
        disk_bytes: u64,
        is_pinned: bool,
    ) -> Self {
        Self { session, finished_at, disk_bytes, is_pinned, used: 0 }
    }
}

impl Task {
    /// Removes what a session keeps beyond its count.
    pub(super) fn retain(&mut self, session: SessionId) {
        let own =
            self.sessions.get(&session).and_then(|known| known.record.quotas.retained_session_max);
        let max = self.limits.retained_session_max;
        let max = own.map_or(max, |own| own.min(max));
        while let Some(handle) = self.retention.surplus(session, max) {
            self.evict(handle);
        }
        self.evict_for_room(self.margin());
        self.arm_retention();
    }

    fn evict(&mut self, handle: Handle) {
        crate::failpoint::hit("eviction-before");
        self.retention.forget(handle);
        self.remove_process(handle, None);
        crate::failpoint::hit("eviction-after");
    }

    pub(super) fn margin(&self) -> u64 {
        let share = self.limits.disk_bytes / MARGIN_SHARE;
        if share < MARGIN_BYTES_MAX { share } else { MARGIN_BYTES_MAX }
    }

    /// What the state folder takes, bytes: files of ended processes, spools of running ones, log
    /// and quarantine.
    pub(super) fn disk_used(&self) -> u64 {
        let kept = self.retention.disk_bytes.saturating_add(self.retention.other_bytes);
        kept.saturating_add(self.budgets.spool.used())
    }

    /// Removes the least recently used of all sessions until `bytes` are free.
    pub(super) fn evict_for_room(&mut self, bytes: u64) {
        while self.disk_used().saturating_add(bytes) > self.limits.disk_bytes {
            let Some(handle) = self.retention.oldest() else { return };
            tracing::info!(handle = %handle.shortened(), "evicted: the disk is to be kept free");
            self.evict(handle);
        }
    }

    /// Whether a start finds room for one segment, after eviction.
    pub(super) fn check_disk(&mut self, spool_bytes: u64) -> Result<(), Refusal> {
        let segment = procd_store::spool::segment_bytes(spool_bytes);
        self.evict_for_room(segment);
        let (max, in_use) = (self.limits.disk_bytes, self.disk_used());
        if in_use.saturating_add(segment) > max {
            return Err(Refusal::Disk { max, in_use });
        }
        Ok(())
    }

    /// A look at all ages; more often when something is due sooner.
    pub(super) fn retention_due(&mut self) {
        self.retention.is_armed = false;
        let age = Duration::from_millis(self.limits.retention_ms);
        let Ok(before) = self.clock.wall().checked_sub(age) else { return };
        while let Some(handle) = self.retention.expired(before) {
            self.evict(handle);
        }
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.drop_old_notifications(session, before);
            self.retire_session(session, before);
        }
        self.storage.sweep_quarantine(age);
        self.arm_retention();
    }

    /// Removes a session that nobody used since `before`: none is attached, nothing of it runs or
    /// is pinned.
    pub(super) fn retire_session(&mut self, id: SessionId, before: Timestamp) {
        let Some(session) = self.sessions.get(&id) else { return };
        let holds = |entry: &super::entry::Entry| !entry.is_shown_terminal() || entry.record.pinned;
        if !session.is_unused_since(before) || self.table.newest_first(Some(id)).any(holds) {
            return;
        }
        tracing::info!(session = %id, %before, "unused since: removed");
        let handles: Vec<_> = self.table.newest_first(Some(id)).map(|e| e.handle).collect();
        for handle in handles {
            self.remove_process(handle, None);
        }
        self.end_subscriptions_to(id);
        self.forget_notifications(id);
        self.feed.forget(id);
        self.ledger.close(id);
        self.sessions.remove(&id);
        let removal = Removal::Session { session_id: id };
        let submitted = self.journal.submit(Tag::SessionRemoved(id), vec![removal.into()]);
        let seq = submitted.first().map_or(0, |submitted| submitted.seq);
        self.removing_sessions.insert(id, seq);
    }

    /// With as many sessions as there may be, the closed one that was used longest ago goes: else
    /// whoever opens one for each piece of work has none left long before the first is old enough.
    pub(super) fn make_room_for_session(&mut self) -> bool {
        let is_closed =
            |(_, session): &(&SessionId, &Session)| session.state() == SessionState::Closed;
        let closed = self.sessions.iter().filter(is_closed);
        let mut closed: Vec<_> = closed.map(|(id, session)| (session.used_at(), *id)).collect();
        closed.sort_unstable();
        let now = self.clock.wall();
        closed.into_iter().any(|(_, id)| {
            self.retire_session(id, now);
            !self.sessions.contains_key(&id)
        })
    }

    /// Arms the next look at ages.
    pub(super) fn arm_retention(&mut self) {
        if self.retention.is_armed {
            return;
        }
        let age = Duration::from_millis(self.limits.retention_ms);
        let oldest = self.retention.by_age.first().map(|(at, _)| *at);
        let left = oldest.map_or(age, |at| {
            let old = self.clock.wall().duration_since(at);
            age.saturating_sub(old.try_into().unwrap_or(Duration::ZERO))
        });
        let at = self.clock.monotonic() + left.clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX);
        self.timers.arm(at, Due::Retention);
        self.retention.is_armed = true;
    }

    /// Whether a pin fits the ceilings of pinned bytes.
    pub(super) fn check_pin(&self, session: SessionId, bytes: u64) -> Result<(), Refusal> {
        let (own, all) = self.retention.pinned_bytes(session);
        let limits = [
            (Scope::Session, self.limits.pinned_session_bytes, own),
            (Scope::Daemon, self.limits.pinned_daemon_bytes, all),
        ];
        for (scope, max, in_use) in limits {
            if in_use.saturating_add(bytes) > max {
                return Err(Refusal::Pinned { scope, max, in_use });
            }
        }
        Ok(())
    }

    /// Retained bytes of the pinned outputs of a session.
    pub(super) fn pinned_bytes(&self, session: SessionId) -> u64 {
        self.retention.pinned_bytes(session).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn handle(number: u8) -> Handle {
        Handle::from_bytes([number; 16])
    }

    fn session() -> SessionId {
        SessionId::new(Uuid::from_u128(9)).unwrap()
    }

    fn kept(second: i64, bytes: u64, is_pinned: bool) -> Kept {
        Kept::new(session(), Timestamp::from_second(second).unwrap(), bytes, is_pinned)
    }

    #[test]
    fn a_read_counts_as_use_but_makes_nothing_younger() {
        let mut retention = Retention::default();
        for number in 1..=3 {
            retention.keep(handle(number), kept(i64::from(number), 10, false));
        }
        retention.used(handle(1));
        assert_eq!(retention.surplus(session(), 2), Some(handle(2)));
        assert_eq!(retention.oldest(), Some(handle(2)));
        let before = Timestamp::from_second(1).unwrap();
        assert_eq!(retention.expired(before), Some(handle(1)));
        assert_eq!(retention.surplus(session(), 3), None);
    }

    /// Symptom: of two that ended one after the other the later one was evicted. Cause: what
    /// counted was when their files stood.
    #[test]
    fn the_order_is_that_of_ends_and_reads_not_of_files() {
        let mut retention = Retention::default();
        for number in 1..=3 {
            retention.ended(handle(number));
        }
        retention.used(handle(1));
        for number in [3, 1, 2] {
            retention.keep(handle(number), kept(i64::from(number), 10, false));
        }
        assert_eq!(retention.surplus(session(), 2), Some(handle(2)));
        retention.forget(handle(2));
        assert_eq!(retention.surplus(session(), 1), Some(handle(3)));
        assert!(retention.early.is_empty());
    }

    #[test]
    fn a_pinned_one_is_in_no_order_and_its_bytes_are_still_counted() {
        let mut retention = Retention::default();
        retention.keep(handle(1), kept(1, 10, true));
        retention.keep(handle(2), kept(2, 5, false));
        assert_eq!(retention.oldest(), Some(handle(2)));
        assert_eq!(retention.disk_bytes, 15);
        retention.set_pinned(handle(1), false);
        assert_eq!(retention.surplus(session(), 1), Some(handle(1)));
        retention.measured(handle(1), 100);
        assert_eq!(retention.disk_bytes, 105);
        retention.forget(handle(1));
        retention.forget(handle(2));
        assert_eq!(retention.disk_bytes, 0);
        assert!(retention.of_session.is_empty() && retention.by_age.is_empty());
    }
}
