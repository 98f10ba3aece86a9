//! What the log knows of all that was ever submitted and still matters: the last number of each
//! session, the ids that are taken, and the records that later saves are held against.

use std::collections::{HashMap, HashSet};

use procd_core::{Handle, SessionId};

use super::line::{self, Encoded};
use super::record::{Kind, LogRecord, Payload, Removal};
use super::replay::Numbered;
use super::{CommitError, Submitted};
use crate::manifest::rules::{self, Stored, Violation};
use crate::record::Record;
use crate::scan::Restored;

/// After damage numbers may be lost that were given already: so many are left out.
const NUMBERS_SKIPPED: u64 = 1_000;

/// Ids that are remembered of one process, a count: the newest, however often a kind repeats.
const IDS_OF_PROCESS_MAX: usize = 256;

/// An id that is taken.
#[derive(Debug, Clone, Copy)]
struct Taken {
    seq: u64,
    digest: u128,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Index {
    last: HashMap<SessionId, u64>,
    taken: HashMap<u128, Taken>,
    /// The ids to forget with a process.
    of_process: HashMap<Handle, Vec<u128>>,
    /// Ids of removals: forgotten with the part they are in.
    removals: Vec<u128>,
    stored: HashMap<Handle, Stored>,
}

/// What a batch changes once all of it is found good.
#[derive(Default)]
struct Staged {
    stored: Vec<(Handle, Stored)>,
    taken: Vec<(u128, Taken)>,
    last: HashMap<SessionId, u64>,
    /// What the batch itself removes: the ids of it are free for the rest of the batch.
    removed: Vec<Handle>,
}

impl Index {
    /// Numbers a batch and encodes its line; empty when all of it is in the log already.
    pub(super) fn number(
        &mut self,
        batch: &[Encoded],
    ) -> Result<(Vec<u8>, Vec<Submitted>), CommitError> {
        let mut staged = Staged::default();
        let mut submitted = Vec::with_capacity(batch.len());
        for encoded in batch {
            self.check_rules(encoded, &mut staged)?;
            submitted.push(self.stage(encoded, &mut staged)?);
        }
        let fresh = || submitted.iter().zip(batch).filter(|(submitted, _)| submitted.appended);
        let line = if fresh().next().is_none() {
            Vec::new()
        } else {
            line::encode(fresh().map(|(submitted, encoded)| (submitted.seq, encoded)))?
        };
        self.apply(batch, staged);
        Ok((line, submitted))
    }

    /// A record obeys the rules against the stored one, and a notification has the id that its
    /// record gave it.
    fn check_rules(&self, encoded: &Encoded, staged: &mut Staged) -> Result<(), CommitError> {
        let Some(process) = encoded.process else {
            return Ok(());
        };
        let before = staged.stored.iter().rev().find(|(handle, _)| *handle == process);
        let before = before.map(|(_, stored)| stored).or_else(|| self.stored.get(&process));
        let conflict = |source| CommitError::Conflict { process, source };
        match &encoded.record.payload {
            Payload::Process(record) => {
                before
                    .map_or_else(|| rules::check_first(record), |stored| stored.check(record))
                    .map_err(conflict)?;
                staged.stored.push((process, Stored::of(record)));
                Ok(())
            }
            Payload::Notification(notification) => before
                .map_or(Ok(()), |stored| stored.check_notification(notification.command_id()))
                .map_err(conflict),
            Payload::Session(_)
            | Payload::Event(_)
            | Payload::Acknowledgement(_)
            | Payload::Removal(_) => Ok(()),
        }
    }

    fn stage(&self, encoded: &Encoded, staged: &mut Staged) -> Result<Submitted, CommitError> {
        let session = encoded.record.session;
        let repeats = matches!(encoded.kind, Kind::Session | Kind::Process);
        let (key, digest) = if repeats { (0, 0) } else { (encoded.key(), encoded.digest()) };
        if !repeats {
            let staged_before = staged.taken.iter().find(|(other, _)| *other == key);
            let is_freed = encoded.process.is_some_and(|process| staged.removed.contains(&process));
            let before = || self.taken.get(&key).filter(|_| !is_freed);
            match staged_before.map(|(_, taken)| taken).or_else(before) {
                Some(taken) if taken.digest == digest => {
                    return Ok(Submitted { seq: taken.seq, appended: false });
                }
                Some(_) => {
                    let (kind, id) = (encoded.kind, encoded.record.id.clone());
                    return Err(CommitError::Collision { kind, id });
                }
                None => {}
            }
        }
        let last = staged.last.entry(session).or_insert_with(|| self.last_seq(session));
        *last += 1;
        let seq = *last;
        if !repeats {
            staged.taken.push((key, Taken { seq, digest }));
        }
        if let Payload::Removal(Removal::Process { process_id, .. }) = &encoded.record.payload {
            staged.removed.push(*process_id);
        }
        Ok(Submitted { seq, appended: true })
    }

    fn apply(&mut self, batch: &[Encoded], staged: Staged) {
        self.last.extend(staged.last);
        self.stored.extend(staged.stored);
        let mut fresh: HashMap<u128, Taken> = staged.taken.into_iter().collect();
        for encoded in batch {
            if matches!(encoded.kind, Kind::Session | Kind::Process) {
                continue;
            }
            let key = encoded.key();
            if let Some(taken) = fresh.remove(&key) {
                self.take(key, taken, encoded);
            }
        }
    }

    fn take(&mut self, key: u128, taken: Taken, encoded: &Encoded) {
        self.taken.insert(key, taken);
        if let Some(process) = encoded.process {
            let keys = self.of_process.entry(process).or_default();
            keys.push(key);
            if keys.len() > IDS_OF_PROCESS_MAX {
                self.taken.remove(&keys.remove(0));
            }
        }
        if let Payload::Removal(removal) = &encoded.record.payload {
            self.removals.push(key);
            self.removed(removal);
        }
    }

    fn removed(&mut self, removal: &Removal) {
        match removal {
            Removal::Process { process_id, .. } => self.forget(*process_id),
            Removal::Session { session_id } => {
                let gone: Vec<Handle> = self
                    .stored
                    .iter()
                    .filter(|(_, stored)| stored.session() == *session_id)
                    .map(|(handle, _)| *handle)
                    .collect();
                for handle in gone {
                    self.forget(handle);
                }
            }
            Removal::Notification { .. } => {}
        }
    }

    fn forget(&mut self, process: Handle) {
        self.stored.remove(&process);
        for key in self.of_process.remove(&process).unwrap_or_default() {
            self.taken.remove(&key);
        }
    }

    /// Takes a record of the replay: numbers and ids as they are.
    pub(super) fn replayed(&mut self, numbered: &Numbered) {
        let Numbered { seq, record } = numbered;
        self.raise(record.session, *seq);
        match &record.payload {
            Payload::Process(process) => {
                self.stored.insert(process.process_id, Stored::of(process));
            }
            Payload::Session(_) => {}
            Payload::Event(_) | Payload::Notification(_) | Payload::Acknowledgement(_) => {
                self.adopt_id(*seq, record.clone());
            }
            Payload::Removal(removal) => {
                self.adopt_id(*seq, record.clone());
                // Also when it is repeated: what it removed is repeated before it.
                self.removed(removal);
            }
        }
    }

    fn raise(&mut self, session: SessionId, seq: u64) {
        let last = self.last.entry(session).or_insert(0);
        *last = (*last).max(seq);
    }

    /// Numbers that went with damaged lines are never given again.
    pub(super) fn skip_numbers_after_damage(&mut self, is_damaged: bool) {
        if is_damaged {
            for last in self.last.values_mut() {
                *last += NUMBERS_SKIPPED;
            }
        }
    }

    /// Takes over what only the files hold.
    pub(super) fn adopt(&mut self, restored: &Restored) {
        for (session, seq) in &restored.last_seqs {
            self.raise(*session, *seq);
        }
        for process in &restored.processes {
            self.adopt_record(&process.record);
            for held in &process.events {
                self.adopt_id(held.seq, LogRecord::from(held.event.clone()));
            }
        }
        for held in &restored.notifications {
            self.adopt_id(held.seq, LogRecord::from(held.notification.clone()));
        }
    }

    fn adopt_record(&mut self, record: &Record) {
        // The restored record is the newer of log and file.
        self.stored.insert(record.process_id, Stored::of(record));
    }

    fn adopt_id(&mut self, seq: u64, record: LogRecord) {
        // What was decoded can be encoded; its bytes may differ from those that were read.
        let Ok(encoded) = line::encode_record(record) else {
            return;
        };
        let (key, digest) = (encoded.key(), encoded.digest());
        // A snapshot repeats records under the same number.
        if !self.taken.contains_key(&key) {
            self.take(key, Taken { seq, digest }, &encoded);
        }
    }

    /// Ids taken, and records held.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.taken.len(), self.stored.len())
    }

    pub(super) fn last_seq(&self, session: SessionId) -> u64 {
        self.last.get(&session).copied().unwrap_or(0)
    }

    /// The lines of a snapshot, the closing one included. The ids of removals that are not in it
    /// are forgotten with the parts that held them.
    pub(super) fn snapshot(
        &mut self,
        records: Vec<(u64, LogRecord)>,
    ) -> Result<Vec<Vec<u8>>, CommitError> {
        /// Records of one line: few enough that damage costs little.
        const LINE_RECORDS: usize = 16;
        let mut encoded = Vec::with_capacity(records.len());
        for (seq, record) in records {
            let is_session = matches!(record.payload, Payload::Session(_));
            let seq = if is_session { self.last_seq(record.session).max(1) } else { seq };
            encoded.push((seq, line::encode_record(record)?));
        }
        let mut lines = Vec::with_capacity(encoded.len() / LINE_RECORDS + 2);
        for chunk in encoded.chunks(LINE_RECORDS) {
            lines.push(line::encode(chunk.iter().map(|(seq, encoded)| (*seq, encoded)))?);
        }
        lines.push(line::encode(std::iter::empty())?);
        self.forget_removals(&encoded);
        Ok(lines)
    }

    fn forget_removals(&mut self, snapshot: &[(u64, Encoded)]) {
        let is_state = |encoded: &Encoded| matches!(encoded.kind, Kind::Session | Kind::Process);
        let kept: HashSet<u128> = snapshot
            .iter()
            .filter(|(_, encoded)| !is_state(encoded))
            .map(|(_, encoded)| encoded.key())
            .collect();
        let (taken, stored) = (&mut self.taken, &self.stored);
        let mut keeps = |key: &u128| {
            let keeps = kept.contains(key);
            if !keeps {
                taken.remove(key);
            }
            keeps
        };
        self.removals.retain(&mut keeps);
        // Notifications that outlived their record, and the answers to them.
        self.of_process.retain(|process, keys| {
            if !stored.contains_key(process) {
                keys.retain(&mut keeps);
            }
            !keys.is_empty()
        });
    }
}

impl Stored {
    /// The id of a notification is the one in its record.
    fn check_notification(&self, command_id: uuid::Uuid) -> Result<(), Violation> {
        if self.notification_id() == command_id {
            return Ok(());
        }
        Err(Violation {
            rule: "one id in envelope, payload and manifest",
            field: "ids.notification",
            stored: self.notification_id().to_string(),
            refused: command_id.to_string(),
        })
    }
}
