//! Removal and pins of ended processes. Removal is one step for every caller: before it the
//! process is readable, after it unknown. It is in the log, durable, before a file goes.
//! Source: spec, lifecycle, *Retention*.

use procd_core::{Handle, SessionId};
use procd_store::log::{LogRecord, Removal};
use procd_store::manifest::ManifestFile;
use procd_store::record::Record;

use super::api::{Caller, Pinned, Reply};
use super::entry::{Entry, Storage};
use super::journal::{Saved, Tag};
use super::refusal::Refusal;
use super::task::Task;

/// A removed process whose files may still stand.
#[derive(Debug)]
pub(super) struct Removing {
    pub(super) seq: u64,
    pub(super) removal: Removal,
    session: SessionId,
    is_durable: bool,
    /// A disk job of it is under way, which might still make a file.
    is_busy: bool,
    reply: Option<Reply<()>>,
}

impl Removing {
    /// One of an earlier daemon.
    pub(super) const fn standing(seq: u64, session: SessionId, removal: Removal) -> Self {
        Self { seq, removal, session, is_durable: true, is_busy: false, reply: None }
    }
}

impl Task {
    /// A caller removes an ended process.
    pub(super) fn remove_asked(&mut self, caller: Caller, handle: Handle, reply: Reply<()>) {
        let refusal = match self.table.find(caller, handle) {
            Err(refusal) => refusal,
            Ok(entry) if !entry.is_shown_terminal() => Refusal::Invalid {
                field: "process_id",
                message: "`process_id` is of a process that has not ended: stop it first"
                    .to_owned(),
            },
            Ok(_) => return self.remove_process(handle, Some(reply)),
        };
        drop(reply.send(Err(refusal)));
    }

    /// Removes an ended process.
    pub(super) fn remove_process(&mut self, handle: Handle, reply: Option<Reply<()>>) {
        if !self.table.get(handle).is_some_and(Entry::is_shown_terminal) {
            return;
        }
        let Some(entry) = self.table.remove(handle) else { return };
        let session = entry.owner.session;
        self.retention.forget(handle);
        if entry.record.pinned {
            self.retention.count_pinned(session, retained(&entry), false);
        }
        self.events_gone(session, entry.events.iter().map(|held| held.seq));
        let events_through = entry.events.last().map_or(0, |held| held.seq);
        let outlives = self.record_gone(session, entry.record.ids.notification);
        let key = self.kept_key(&entry.record);
        let removal = Removal::Process {
            session_id: session,
            process_id: handle,
            events_through,
            key: key.clone(),
        };
        crate::failpoint::hit("removal-before-append");
        let mut batch = vec![LogRecord::from(removal.clone())];
        batch.extend(outlives.map(LogRecord::from));
        let submitted = self.journal.submit(Tag::Removal(handle), batch);
        crate::failpoint::hit("removal-after-append");
        let seq = submitted.first().map_or(entry.seq, |submitted| submitted.seq);
        if let Some(key) = key {
            self.key_removed(session, handle, seq, key);
        }
        let is_busy = match entry.storage {
            Storage::Sealing | Storage::Writing { .. } => true,
            Storage::Live | Storage::EndPending(_) | Storage::Sealed | Storage::Unwritten(_) => {
                false
            }
        };
        let removing = Removing { seq, removal, session, is_durable: false, is_busy, reply };
        self.removing.insert(handle, removing);
    }

    /// The removal is durable, or not yet: then the files go at the next restore.
    pub(super) fn removal_logged(&mut self, handle: Handle, saved: Saved) {
        let Some(removing) = self.removing.get_mut(&handle) else { return };
        let is_durable = saved == Saved::Yes;
        crate::failpoint::hit("removal-durable");
        removing.is_durable = is_durable;
        if let Some(reply) = removing.reply.take() {
            let storage = Refusal::Setup { cause: "storage", process_id: None };
            drop(reply.send(if is_durable { Ok(()) } else { Err(storage) }));
        }
        self.remove_files(handle);
    }

    /// A disk job came to its end; whether it was of a process that is removed by now.
    pub(super) fn settle_removed(&mut self, handle: Handle) -> bool {
        let Some(removing) = self.removing.get_mut(&handle) else { return false };
        removing.is_busy = false;
        self.remove_files(handle);
        true
    }

    fn remove_files(&self, handle: Handle) {
        if let Some(removing) = self.removing.get(&handle)
            && removing.is_durable
            && !removing.is_busy
        {
            self.storage.remove_process(removing.session, handle);
        }
    }

    /// Pins an ended process, or gives it back to retention.
    pub(super) fn pin(
        &mut self,
        caller: Caller,
        handle: Handle,
        is_pinned: bool,
        reply: Reply<Pinned>,
    ) {
        match self.try_pin(caller, handle, is_pinned) {
            Ok((session, true)) => {
                let pinned_bytes = self.pinned_bytes(session);
                self.pin_replies.entry(handle).or_default().push((is_pinned, pinned_bytes, reply));
            }
            Ok((session, false)) => {
                let pinned_bytes = self.pinned_bytes(session);
                drop(reply.send(Ok(Pinned { is_pinned, pinned_bytes })));
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// The session, and whether something has to become durable first.
    fn try_pin(
        &mut self,
        caller: Caller,
        handle: Handle,
        is_pinned: bool,
    ) -> Result<(SessionId, bool), Refusal> {
        let entry = self.table.find(caller, handle)?;
        let (session, bytes) = (entry.owner.session, retained(entry));
        if !entry.is_shown_terminal() {
            return Err(Refusal::Invalid {
                field: "process_id",
                message: "`process_id` is of a process that has not ended".to_owned(),
            });
        }
        if entry.record.pinned == is_pinned {
            return Ok((session, false));
        }
        if is_pinned {
            self.check_pin(session, bytes)?;
        }
        self.retention.count_pinned(session, bytes, is_pinned);
        self.retention.set_pinned(handle, is_pinned);
        let entry = self.table.find_mut(caller, handle)?;
        entry.record.pinned = is_pinned;
        let durable = entry.shown.borrow().durable;
        entry.show(durable);
        let batch = vec![LogRecord::process(&entry.record)];
        let submitted = self.journal.submit(Tag::Pin(handle), batch);
        if let (Some(entry), Some(record)) = (self.table.get_mut(handle), submitted.first()) {
            entry.seq = record.seq;
        }
        self.rewrite_manifest(handle);
        self.retain(session);
        Ok((session, true))
    }

    /// A pin is durable, or could not be saved.
    pub(super) fn pin_logged(&mut self, handle: Handle, saved: Saved) {
        for (is_pinned, pinned_bytes, reply) in self.pin_replies.remove(&handle).unwrap_or_default()
        {
            let storage = Refusal::Setup { cause: "storage", process_id: None };
            let pinned = Pinned { is_pinned, pinned_bytes };
            drop(reply.send(if saved == Saved::Yes { Ok(pinned) } else { Err(storage) }));
        }
    }

    /// Writes the file of a sealed record anew: it has a new mark.
    pub(super) fn rewrite_manifest(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        match entry.storage {
            // The seal writes the record as it is then.
            Storage::Live | Storage::EndPending(_) | Storage::Sealing => {}
            Storage::Writing { .. } => entry.storage = Storage::Writing { is_outdated: true },
            Storage::Sealed | Storage::Unwritten(_) => self.write_manifest(handle),
        }
    }

    pub(super) fn write_manifest(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        entry.storage = Storage::Writing { is_outdated: false };
        self.storage.write_manifest(ManifestFile {
            record: Record::clone(&entry.record),
            events: entry.events.clone(),
            notification_seq: entry.notification_seq,
        });
    }
}

/// Bytes of output that are kept.
pub(super) fn retained(entry: &Entry) -> u64 {
    entry.record.total_bytes.saturating_sub(entry.record.retained_from)
}
