//! What is live, for the beginning of a new part of the commit log.

use procd_store::event::Notification;
use procd_store::log::{LogRecord, Removal};

use super::entry::{Entry, Storage};
use super::task::Task;

impl Task {
    /// Sessions, the records of what runs or is not sealed yet with their events, removals whose
    /// files may still stand or whose key is still known, and notifications that outlived their
    /// record, each with its number.
    pub(super) fn snapshot(&self) -> Vec<(u64, LogRecord)> {
        let sessions = self
            .sessions
            .values()
            .map(|session| (session.seq, LogRecord::session(&session.record)));
        let unsealed = self.table.all().filter(|entry| entry.storage != Storage::Sealed);
        let removals =
            self.removing.values().map(|one| (one.seq, LogRecord::from(one.removal.clone())));
        let gone = self.removing_sessions.iter().map(|(session_id, seq)| {
            (*seq, LogRecord::from(Removal::Session { session_id: *session_id }))
        });
        sessions
            .chain(unsealed.flat_map(of_entry))
            .chain(removals)
            .chain(gone)
            .chain(self.kept_keys())
            .chain(self.standing_notices())
            .collect()
    }
}

fn of_entry(entry: &Entry) -> Vec<(u64, LogRecord)> {
    let record = (entry.seq, LogRecord::process(&entry.record));
    let events =
        entry.events.iter().map(|numbered| (numbered.seq, LogRecord::from(numbered.event.clone())));
    let mut records: Vec<_> = std::iter::once(record).chain(events).collect();
    if let Some(seq) = entry.notification_seq
        && let Ok(notification) = Notification::for_record(&entry.record)
    {
        records.push((seq, notification.into()));
    }
    records
}
