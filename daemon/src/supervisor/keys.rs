//! Request keys: what makes a start idempotent per owner. A key is known from the moment a start
//! with it is let through the gate; two at once join.
//! Source: spec, lifecycle, *Admission*.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use procd_core::{Handle, Owner, SessionId};
use procd_store::log::{KeptKey, LogRecord, Removal};
use procd_store::record::{Record, RequestKey};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};

use super::api::{Command, Passed, Reply, Started};
use super::entry::{Entry, SpawnAnswer};
use super::refusal::Refusal;
use super::runner::AskedKey;
use super::task::Task;

/// A key is known for so long at least, from the start of its process on.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// All keys that are known.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: HashMap<(Owner, String), Known>,
    /// Keys whose record is removed, in the order of their removal.
    removed: VecDeque<(Timestamp, Owner, String)>,
}

#[derive(Debug)]
enum Known {
    /// A start is between the gate and its record.
    Pending { body: [u8; 32], joined: Vec<Reply<Started>> },
    /// There is a record.
    Made(Handle),
    /// The record is removed.
    Removed { handle: Handle, seq: u64, kept: Box<KeptKey> },
}

/// A start between the gate and its answer. Dropped, its key is free again, unless there is a
/// record by then.
#[derive(Debug)]
pub(super) struct KeyGuard {
    owner: Owner,
    key: Option<String>,
    commands: mpsc::Sender<Command>,
    /// What joined callers are told when there is no record.
    pub(super) refusal: Refusal,
}

impl KeyGuard {
    pub(super) fn new(
        owner: Owner,
        key: Option<&AskedKey>,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        let key = key.map(|asked| asked.key.clone());
        Self { owner, key, commands, refusal: Refusal::Withdrawn }
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let refusal = self.refusal.clone();
        let freed = Command::KeyFreed { owner: self.owner, key, refusal };
        super::api::send_from_drop(&self.commands, freed);
    }
}

/// Hex of the salted hash. The body is hashed before, where it was read: it may be long.
fn salted(salt: &str, body: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(salt.as_bytes()).chain_update(body).finalize();
    hex(&digest)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").ok();
        text
    })
}

fn is_same(stored: Option<&RequestKey>, asked: &AskedKey) -> bool {
    stored.is_some_and(|stored| stored.body_sha256 == salted(&stored.salt, &asked.body))
}

impl Task {
    /// Steps 1 and 2: the gate, then a known key.
    pub(super) fn pass(&mut self, owner: Owner, key: Option<AskedKey>) -> Result<Passed, Refusal> {
        let gate = self.gate(owner)?;
        let Some(asked) = key else { return Ok(Passed::Go(gate)) };
        self.forget_old_keys();
        let (reply, answer) = oneshot::channel();
        match self.keys.known.get_mut(&(owner, asked.key.clone())) {
            None => {
                let pending = Known::Pending { body: asked.body, joined: Vec::new() };
                self.keys.known.insert((owner, asked.key), pending);
                return Ok(Passed::Go(gate));
            }
            Some(Known::Pending { body, .. }) if *body != asked.body => {
                return Err(Refusal::KeyCollision);
            }
            Some(Known::Pending { joined, .. }) => joined.push(reply),
            Some(Known::Removed { handle, kept, .. }) => {
                let is_same = is_same(Some(&kept.request_key), &asked);
                let removed = Refusal::KeyRemoved { process_id: *handle };
                return Err(if is_same { removed } else { Refusal::KeyCollision });
            }
            Some(Known::Made(handle)) => {
                let handle = *handle;
                let entry = self.table.get_mut(handle).ok_or(Refusal::Internal)?;
                if !is_same(entry.record.request_key.as_ref(), &asked) {
                    return Err(Refusal::KeyCollision);
                }
                join(entry, reply);
            }
        }
        Ok(Passed::Joined(answer))
    }

    /// The key of a new record, and who joined its start meanwhile.
    pub(super) fn keep_key(
        &mut self,
        owner: Owner,
        asked: Option<&AskedKey>,
        handle: Handle,
    ) -> Result<(Option<RequestKey>, Vec<Reply<Started>>), Refusal> {
        let Some(asked) = asked else { return Ok((None, Vec::new())) };
        let salt = hex(&self.random::<SALT_BYTES>()?);
        let body_sha256 = salted(&salt, &asked.body);
        let made = Known::Made(handle);
        let joined = match self.keys.known.insert((owner, asked.key.clone()), made) {
            Some(Known::Pending { joined, .. }) => joined,
            Some(Known::Made(_) | Known::Removed { .. }) | None => Vec::new(),
        };
        Ok((Some(RequestKey { key: asked.key.clone(), salt, body_sha256 }), joined))
    }

    /// A start was refused before its record: its key is not remembered.
    pub(super) fn key_freed(&mut self, owner: Owner, key: String, refusal: &Refusal) {
        let place = (owner, key);
        if !matches!(self.keys.known.get(&place), Some(Known::Pending { .. })) {
            return;
        }
        if let Some(Known::Pending { joined, .. }) = self.keys.known.remove(&place) {
            for reply in joined {
                drop(reply.send(Err(refusal.clone())));
            }
        }
    }

    /// A record of an earlier daemon.
    pub(super) fn restore_key(&mut self, record: &Record) {
        if let Some(key) = &record.request_key {
            let owner = Owner { session: record.session_id, loop_id: record.loop_id };
            self.keys.known.insert((owner, key.key.clone()), Known::Made(record.process_id));
        }
    }

    /// A removal of an earlier daemon whose key is still to be known.
    pub(super) fn restore_removed_key(&mut self, seq: u64, removal: Removal) {
        if let Removal::Process { session_id, process_id, key: Some(kept), .. } = removal {
            self.key_removed(session_id, process_id, seq, kept);
        }
    }

    /// The key to be kept beyond a record that is removed now.
    pub(super) fn kept_key(&mut self, record: &Record) -> Option<KeptKey> {
        let request_key = record.request_key.clone()?;
        let owner = Owner { session: record.session_id, loop_id: record.loop_id };
        self.keys.known.remove(&(owner, request_key.key.clone()));
        let until = record.created_at.checked_add(KNOWN_FOR).ok()?;
        let is_young = until > self.clock.wall();
        is_young.then_some(KeptKey { loop_id: record.loop_id, request_key, until })
    }

    pub(super) fn key_removed(
        &mut self,
        session: SessionId,
        handle: Handle,
        seq: u64,
        kept: KeptKey,
    ) {
        let owner = Owner { session, loop_id: kept.loop_id };
        let key = kept.request_key.key.clone();
        self.keys.removed.push_back((kept.until, owner, key.clone()));
        let removed = Known::Removed { handle, seq, kept: Box::new(kept) };
        self.keys.known.insert((owner, key), removed);
        self.forget_old_keys();
    }

    fn forget_old_keys(&mut self) {
        let now = self.clock.wall();
        while let Some((until, ..)) = self.keys.removed.front()
            && *until <= now
        {
            let Some((_, owner, key)) = self.keys.removed.pop_front() else { return };
            let place = (owner, key);
            if matches!(self.keys.known.get(&place), Some(Known::Removed { kept, .. }) if kept.until <= now)
            {
                self.keys.known.remove(&place);
            }
        }
    }

    /// The removals whose key is still to be known, for a snapshot.
    pub(super) fn kept_keys(&self) -> impl Iterator<Item = (u64, LogRecord)> {
        self.keys.known.iter().filter_map(|((owner, _), known)| match known {
            Known::Removed { handle, seq, kept } if !self.removing.contains_key(handle) => {
                let removal = Removal::Process {
                    session_id: owner.session,
                    process_id: *handle,
                    events_through: 0,
                    key: Some((**kept).clone()),
                };
                Some((*seq, removal.into()))
            }
            Known::Removed { .. } | Known::Pending { .. } | Known::Made(_) => None,
        })
    }
}

/// Answers like the start itself: at once if that was answered, else with it.
fn join(entry: &mut Entry, reply: Reply<Started>) {
    let view = entry.view();
    let failed = super::ending::start_refusal(entry);
    let answer = match entry.active.as_mut() {
        Some(active) if !active.start.durable || active.start.spawn != SpawnAnswer::Done => {
            active.start.replies.push(reply);
            return;
        }
        Some(_) => Ok(Started { view }),
        None => failed.map_or(Ok(Started { view }), Err),
    };
    drop(reply.send(answer));
}
