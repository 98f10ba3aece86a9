//! What is kept of ended processes, and how one is removed. Running ones are never touched.

use procd_core::{Handle, SessionId};

use super::entry::{Entry, Storage};
use super::journal::Tag;
use super::task::Task;

impl Task {
    /// Removes the oldest sealed processes of a session beyond what it keeps.
    pub(super) fn retain(&mut self, session: SessionId) {
        let own =
            self.sessions.get(&session).and_then(|known| known.record.quotas.retained_session_max);
        let max = self.limits.retained_session_max;
        let max = usize::try_from(own.map_or(max, |own| own.min(max))).unwrap_or(usize::MAX);
        let mut ended: Vec<_> = self
            .table
            .newest_first(Some(session))
            .filter(|entry| entry.storage == Storage::Sealed && !entry.record.pinned)
            .map(|entry| (entry.record.finished_at, entry.handle))
            .collect();
        let Some(surplus) = ended.len().checked_sub(max).filter(|surplus| *surplus > 0) else {
            return;
        };
        ended.sort_unstable();
        for (_, handle) in ended.into_iter().take(surplus) {
            self.remove_process(handle);
        }
    }

    /// Removes an ended process in one step: before it the process is readable, after it unknown.
    /// Its record in the log is durable before a file goes.
    pub(super) fn remove_process(&mut self, handle: Handle) {
        if !self.table.get(handle).is_some_and(Entry::is_shown_terminal) {
            return;
        }
        let Some(entry) = self.table.remove(handle) else { return };
        let session = entry.owner.session;
        let removal = super::records::removal(session, handle);
        crate::failpoint::hit("removal-before-append");
        let submitted = self.journal.submit(Tag::Removal(session, handle), vec![removal]);
        crate::failpoint::hit("removal-after-append");
        let seq = submitted.first().map_or(entry.seq, |submitted| submitted.seq);
        self.removing.insert(handle, (session, seq));
    }
}
