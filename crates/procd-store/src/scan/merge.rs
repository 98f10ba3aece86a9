//! What the log alone says, and how it goes together with the files: a sealed file beats an
//! unsealed record of the same result, else the log is newer.

use std::collections::{HashMap, HashSet};

use procd_core::state::SpoolState;
use procd_core::{Handle, SessionId};
use uuid::Uuid;

use super::{Restored, RestoredNotification, RestoredProcess};
use crate::damage::Damage;
use crate::event::{EventKind, Notification};
use crate::log::{Acknowledgement, Numbered, Payload, Removal, Replay};
use crate::manifest::{ManifestFile, NumberedEvent, keep_newest};
use crate::record::Record;
use crate::session::SessionRecord;

/// The log, reduced to what counts at its end.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) sessions: HashMap<SessionId, SessionRecord>,
    pub(super) processes: HashMap<Handle, (u64, Record)>,
    events: HashMap<Handle, Vec<NumberedEvent>>,
    notifications: HashMap<(SessionId, Uuid), (u64, Notification)>,
    answers: HashMap<(SessionId, Uuid), Acknowledgement>,
    /// Notifications that are due no more: removed, or answered as a record says.
    dropped: HashSet<(SessionId, Uuid)>,
    pub(super) removed_sessions: HashMap<SessionId, u64>,
    pub(super) removed: HashMap<Handle, (u64, Removal)>,
    last_seqs: HashMap<SessionId, u64>,
    events_dropped: HashMap<SessionId, u64>,
    pub(super) damage: Vec<Damage>,
}

impl Logged {
    pub(super) fn of(replay: Replay) -> Self {
        let mut logged = Self { damage: replay.damage, ..Self::default() };
        for numbered in replay.records {
            logged.take(numbered);
        }
        logged
    }

    fn take(&mut self, numbered: Numbered) {
        let Numbered { seq, record } = numbered;
        let session = record.session;
        let last = self.last_seqs.entry(session).or_insert(0);
        *last = (*last).max(seq);
        match record.payload {
            Payload::Session(record) => {
                self.removed_sessions.remove(&session);
                self.sessions.insert(session, *record);
            }
            Payload::Process(record) => {
                // A snapshot repeats the mark, not the answer, and the record may go later.
                if record.published.acknowledged {
                    self.dropped.insert((session, record.ids.notification));
                }
                self.processes.insert(record.process_id, (seq, *record));
            }
            Payload::Event(event) => {
                if let Ok(handle) = event.process_id().parse() {
                    add_event(self.events.entry(handle).or_default(), NumberedEvent { seq, event });
                }
            }
            Payload::Notification(notification) => {
                let key = (session, notification.command_id());
                self.notifications.entry(key).or_insert((seq, notification));
            }
            Payload::Acknowledgement(answer) => {
                self.answers.insert((session, answer.command_id), answer);
            }
            Payload::Removal(removal) => self.remove(seq, &removal),
        }
    }

    fn remove(&mut self, seq: u64, removal: &Removal) {
        match removal {
            Removal::Process { session_id, process_id, events_through, .. } => {
                let dropped = self.events_dropped.entry(*session_id).or_insert(0);
                *dropped = (*dropped).max(*events_through);
                self.removed.insert(*process_id, (seq, removal.clone()));
                self.processes.remove(process_id);
                self.events.remove(process_id);
            }
            Removal::Session { session_id } => {
                self.removed_sessions.insert(*session_id, seq);
                self.forget_session(*session_id);
            }
            Removal::Notification { session_id, command_id } => {
                self.dropped.insert((*session_id, *command_id));
            }
        }
    }

    /// Drops all that is known of a session, such as one that cannot be used.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        let of_session = |record: &Record| record.session_id == session;
        let gone = self.processes.extract_if(|_, (_, record)| of_session(record));
        for (handle, _) in gone {
            self.events.remove(&handle);
        }
        self.removed.retain(|_, (_, removal)| !is_of(removal, session));
        self.notifications.retain(|(other, _), _| *other != session);
        self.answers.retain(|(other, _), _| *other != session);
        self.dropped.retain(|(other, _)| *other != session);
    }

    /// The newer of log and file. `is_on_disk` says whether the file need not be written again.
    pub(super) fn merge(&mut self, file: ManifestFile) -> RestoredProcess {
        let handle = file.record.process_id;
        let ManifestFile { record: stored, mut events, notification_seq } = file;
        for event in self.events.remove(&handle).unwrap_or_default() {
            add_event(&mut events, event);
        }
        let (seq, logged) = match self.processes.remove(&handle) {
            Some((seq, record)) => (seq, Some(record)),
            None => (0, None),
        };
        // The log has the record as it was before the seal: the file says the rest.
        let newer = logged.filter(|record| match record.spool_state {
            SpoolState::Sealed | SpoolState::Corrupt => true,
            SpoolState::Open | SpoolState::Degraded => false,
        });
        let mut record = newer.unwrap_or_else(|| stored.clone());
        record.published.completed |= stored.published.completed;
        record.published.acknowledged |= stored.published.acknowledged;
        self.finish_process(record, events, seq, notification_seq, Some(&stored))
    }

    /// Whether the log has the event of its end too, if it has ended. A mark that came after the seal, such as a pin,
    /// is in the log without the events: those were in the file alone.
    pub(super) fn has_end_of(&self, handle: Handle) -> bool {
        let Some((_, record)) = self.processes.get(&handle) else { return false };
        let mut events = self.events.get(&handle).into_iter().flatten();
        !record.state.is_terminal()
            || events
                .any(|held| matches!(held.event.kind(), EventKind::Completed | EventKind::Lost))
    }

    /// A process that only the log has. Events that went with its file are told as a gap.
    pub(super) fn take_logged(&mut self, handle: Handle) -> Option<RestoredProcess> {
        let is_whole = self.has_end_of(handle);
        let (seq, record) = self.processes.remove(&handle)?;
        if !is_whole {
            let dropped = self.events_dropped.entry(record.session_id).or_insert(0);
            *dropped = (*dropped).max(seq);
        }
        let events = self.events.remove(&handle).unwrap_or_default();
        Some(self.finish_process(record, events, seq, None, None))
    }

    fn finish_process(
        &self,
        mut record: Record,
        mut events: Vec<NumberedEvent>,
        seq: u64,
        notification_seq: Option<u64>,
        stored: Option<&Record>,
    ) -> RestoredProcess {
        events.sort_by_key(|held| held.seq);
        keep_newest(&mut events);
        let key = (record.session_id, record.ids.notification);
        let notification_seq =
            self.notifications.get(&key).map(|(seq, _)| *seq).or(notification_seq);
        // The mark and the answer are one fact, and the log is the truth.
        record.published.acknowledged |= self.answers.contains_key(&key);
        let is_on_disk = stored.is_some_and(|stored| *stored == record);
        RestoredProcess { record, events, seq, notification_seq, is_on_disk }
    }
}

/// Whether a removal is of a process of `session`.
fn is_of(removal: &Removal, session: SessionId) -> bool {
    matches!(removal, Removal::Process { session_id, .. } if *session_id == session)
}

/// Adds an event under its first number; a repeated id is the same event.
fn add_event(events: &mut Vec<NumberedEvent>, new: NumberedEvent) {
    if events.iter().all(|held| held.event.event_id() != new.event.event_id()) {
        events.push(new);
    }
}

/// Takes what only the log has, and works out the notifications that are still due.
pub(super) fn finish(mut logged: Logged, restored: &mut Restored) {
    let only_logged: Vec<Handle> = logged.processes.keys().copied().collect();
    for handle in only_logged {
        restored.processes.extend(logged.take_logged(handle));
    }
    drop_ownerless(&logged, restored);
    restored.processes.sort_by(|a, b| {
        let key = |p: &RestoredProcess| {
            (p.record.session_id, p.record.created_at, p.seq, p.record.process_id)
        };
        key(a).cmp(&key(b))
    });
    let dropped = std::mem::take(&mut logged.events_dropped);
    restored.sessions.extend(logged.sessions.drain().map(|(id, mut record)| {
        let through = dropped.get(&id).copied().unwrap_or(0);
        record.events_dropped_through = record.events_dropped_through.max(through);
        record
    }));
    restored.sessions.sort_by_key(|record| (record.created_at, record.session_id));
    due_notifications(&mut logged, restored);
    restored.kept_keys = logged
        .removed
        .drain()
        .map(|(_, removed)| removed)
        .filter(|(_, removal)| matches!(removal, Removal::Process { key: Some(_), .. }))
        .collect();
    for (session, seq) in logged.last_seqs {
        raise(restored, session, seq);
    }
    let of_files: Vec<(SessionId, u64)> = restored.processes.iter().map(last_of).collect();
    for (session, seq) in of_files {
        raise(restored, session, seq);
    }
}

/// The highest number that a process holds.
fn last_of(process: &RestoredProcess) -> (SessionId, u64) {
    let of_events = process.events.last().map_or(0, |held| held.seq);
    let of_notification = process.notification_seq.unwrap_or(0);
    (process.record.session_id, of_events.max(of_notification))
}

/// A record without its session has no owner any more.
fn drop_ownerless(logged: &Logged, restored: &mut Restored) {
    let processes = std::mem::take(&mut restored.processes);
    for process in processes {
        let session = process.record.session_id;
        if logged.sessions.contains_key(&session) {
            restored.processes.push(process);
        } else {
            let what = format!("process {} in the log", process.record.process_id.shortened());
            let reason = format!("left out: the record of its session {session} is lost");
            restored.damage.push(Damage { what, reason });
        }
    }
}

fn raise(restored: &mut Restored, session: SessionId, seq: u64) {
    let last = restored.last_seqs.entry(session).or_insert(0);
    *last = (*last).max(seq);
}

/// Those of the log that nobody answered, and those of ended records whose part of the log went.
fn due_notifications(logged: &mut Logged, restored: &mut Restored) {
    for process in &restored.processes {
        let record = &process.record;
        let is_due = record.state.is_terminal() && !record.published.acknowledged;
        if let Some(seq) = process.notification_seq.filter(|_| is_due)
            && let Ok(notification) = Notification::for_record(record)
        {
            let key = (record.session_id, record.ids.notification);
            logged.notifications.entry(key).or_insert((seq, notification));
        }
    }
    // The answer may be in a part that went: then the mark of the record says it.
    let marked: HashSet<(SessionId, Uuid)> = restored
        .processes
        .iter()
        .filter(|process| process.record.published.acknowledged)
        .map(|process| (process.record.session_id, process.record.ids.notification))
        .collect();
    let due = logged.notifications.drain().filter(|(key, _)| {
        !logged.answers.contains_key(key) && !logged.dropped.contains(key) && !marked.contains(key)
    });
    restored.notifications =
        due.map(|(_, (seq, notification))| RestoredNotification { seq, notification }).collect();
    restored.notifications.sort_by_key(|held| (held.notification.session_id(), held.seq));
    let collided = |answer: &Acknowledgement| !answer.disposition.is_taken();
    restored.collisions = logged.answers.drain().map(|(_, a)| a).filter(collided).collect();
}
