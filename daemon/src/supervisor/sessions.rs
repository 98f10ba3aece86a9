//! Sessions: opening, attaching; closing is in `closing`. The supervisor's task owns them, so that a
//! start and a close that race are in one order.

mod closing;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use procd_core::quota::SessionLimits;
use procd_core::settings::Limits;
use procd_core::{LoopId, Owner, SessionId};
use procd_store::log::LogRecord;
use procd_store::session::{SessionQuotas as StoredQuotas, SessionRecord};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

pub(super) use closing::CloseRun;

use super::api::{
    Attached, Attachment, Opened, Reply, SESSION_KEY_BYTES, SessionRules, SessionState,
};
use super::journal::Tag;
use super::refusal::Refusal;
use super::tally::Whose;
use super::task::Task;
use super::timers::Due;
use super::view::WaiterSlots;

/// Tries to mint an id that is not in use.
const MINT_TRIES: usize = 8;
/// Attaches that wait for one open: as many as there are connections by default.
const EARLY_ATTACHES_MAX: usize = 1024;

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) record: SessionRecord,
    /// Its number in the log, for snapshots.
    pub(super) seq: u64,
    pub(super) waiters: WaiterSlots,
    /// The connections that are attached.
    attached: HashSet<u64>,
    /// Last attach, detach or end; for its retention.
    used_at: Timestamp,
    idle_at: Option<Instant>,
    opening: Option<Reply<Opened>>,
    /// Attaches that came before the open was durable: answered right behind it.
    early: Vec<EarlyAttach>,
    pub(super) close: Option<CloseRun>,
}

/// A session that is being opened, its record not durable yet.
#[derive(Debug)]
pub(super) struct Opening {
    owner: Owner,
    minted_key: Option<[u8; SESSION_KEY_BYTES]>,
    connection: u64,
}

/// An attach with everything its answer takes.
#[derive(Debug)]
pub(super) struct EarlyAttach {
    pub(super) owner: Owner,
    pub(super) key: [u8; SESSION_KEY_BYTES],
    pub(super) reply: Reply<Attached>,
}

impl Session {
    /// A session as it was read back.
    pub(super) fn restored(record: SessionRecord, seq: u64, limits: &Limits) -> Self {
        let waiters = WaiterSlots::new(lowered(
            record.quotas.waiters_session_max,
            limits.waiters_session_max,
        ));
        let used_at = record.closed_at.unwrap_or(record.created_at);
        Self {
            record,
            seq,
            waiters,
            attached: HashSet::new(),
            used_at,
            idle_at: None,
            opening: None,
            early: Vec::new(),
            close: None,
        }
    }

    /// Last attach, detach or end.
    pub(super) const fn used_at(&self) -> Timestamp {
        self.used_at
    }

    /// Whether its record is not durable yet.
    pub(super) const fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Takes over new limits.
    pub(super) fn configure(&self, limits: &Limits) {
        let own = self.record.quotas.waiters_session_max;
        self.waiters.set_max(lowered(own, limits.waiters_session_max));
    }

    /// Whether nobody is attached or about to be, and none was since `before`.
    pub(super) fn is_unused_since(&self, before: Timestamp) -> bool {
        let is_busy = !self.attached.is_empty() || self.opening.is_some() || self.close.is_some();
        !is_busy && self.used_at <= before
    }

    pub(super) fn state(&self) -> SessionState {
        self.record.state.into()
    }

    /// Whether it will close by itself unless somebody attaches.
    pub(super) const fn has_idle_clock(&self) -> bool {
        self.idle_at.is_some()
    }

    /// The ledger's limits of this session.
    pub(super) fn limits(&self, limits: &Limits) -> SessionLimits {
        let quotas = &self.record.quotas;
        let running_session_max = lowered(quotas.running_session_max, limits.running_session_max);
        // A session of one line of work may give that loop all of its own slots.
        let running_loop_max = quotas.running_loop_max.unwrap_or(limits.running_loop_max);
        SessionLimits {
            running_loop_max: running_loop_max.min(running_session_max),
            running_session_max,
            memory_bytes: lowered(quotas.memory_session_bytes, limits.memory_session_bytes),
            spool_bytes: lowered(quotas.spool_session_bytes, limits.spool_session_bytes),
        }
    }
}

/// A session may lower a limit, never raise it.
fn lowered(own: Option<u64>, configured: u64) -> u64 {
    own.map_or(configured, |own| own.min(configured))
}

/// Hex SHA-256 of a key: all that is ever stored of it.
fn key_hash(key: &[u8; SESSION_KEY_BYTES]) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares without telling by its time where the two differ.
fn is_same_hash(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// All sessions the daemon knows.
pub(super) type Sessions = HashMap<SessionId, Session>;

impl Task {
    pub(super) fn open_session(&mut self, rules: SessionRules, reply: Reply<Opened>) {
        if let Err(refusal) = self.try_open_session(rules, reply) {
            let (refusal, reply) = *refusal;
            drop(reply.send(Err(refusal)));
        }
    }

    fn try_open_session(
        &mut self,
        rules: SessionRules,
        reply: Reply<Opened>,
    ) -> Result<(), Box<(Refusal, Reply<Opened>)>> {
        let made = self.check_open(&rules).and_then(|()| {
            let session =
                mint_id(rules.session_id, SessionId::new, |id| self.sessions.contains_key(id))?;
            let loop_id = mint_id(rules.loop_id, LoopId::new, |_| false)?;
            let key = rules.key.map_or_else(|| self.random().map(Some), |_| Ok(None))?;
            Ok((Owner { session, loop_id }, key))
        });
        let (owner, minted_key) = match made {
            Ok(made) => made,
            Err(refusal) => return Err(Box::new((refusal, reply))),
        };
        let Some(key) = rules.key.or(minted_key) else {
            return Err(Box::new((Refusal::Internal, reply)));
        };
        let record = new_record(owner.session, &rules, &key, self.clock.wall());
        let mut session = Session::restored(record.clone(), 0, &self.limits);
        self.ledger.open(owner.session, session.limits(&self.limits));
        session.opening = Some(reply);
        self.last_connection += 1;
        session.attached.insert(self.last_connection);
        let connection = self.last_connection;
        self.openings.insert(owner.session, Opening { owner, minted_key, connection });
        self.sessions.insert(owner.session, session);
        self.storage.write_session(record);
        Ok(())
    }

    fn check_open(&mut self, rules: &SessionRules) -> Result<(), Refusal> {
        if self.shutdown.is_some() {
            return Err(Refusal::ShuttingDown { what: "daemon" });
        }
        if !self.journal.is_writable() {
            return Err(Refusal::Setup { cause: "storage", process_id: None });
        }
        if rules.session_id.is_some_and(|id| self.sessions.contains_key(&id)) {
            return Err(Refusal::Invalid {
                field: "session_id",
                message: "`session_id` is in use".to_owned(),
            });
        }
        let in_use = self.sessions.len() as u64;
        if in_use >= self.limits.sessions_max && !self.make_room_for_session() {
            return Err(Refusal::TooMany {
                what: "sessions_max",
                max: self.limits.sessions_max,
                in_use,
            });
        }
        Ok(())
    }

    /// The file of a session stands, or could not be written: a new one is logged next.
    pub(super) fn session_stored(&mut self, id: SessionId, refusal: Option<Refusal>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.opening.is_none() {
            return;
        }
        if let Some(refusal) = refusal {
            self.refuse_opening(id, refusal);
            return;
        }
        crate::failpoint::hit("session-before-append");
        let submitted =
            self.journal.submit(Tag::SessionOpened(id), vec![LogRecord::session(&session.record)]);
        session.seq = submitted.first().map_or(0, |submitted| submitted.seq);
    }

    fn refuse_opening(&mut self, id: SessionId, refusal: Refusal) {
        self.openings.remove(&id);
        self.ledger.close(id);
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(reply) = session.opening {
            drop(reply.send(Err(refusal)));
        }
        for attach in session.early {
            drop(attach.reply.send(Err(Refusal::SessionNotFound)));
        }
    }

    /// The record of a new session is durable, or could not be saved.
    pub(super) fn session_logged(&mut self, id: SessionId, is_durable: bool) {
        if !is_durable {
            self.refuse_opening(id, Refusal::Setup { cause: "storage", process_id: None });
            return;
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(reply) = session.opening.take() else { return };
        let early = std::mem::take(&mut session.early);
        self.arm_retention();
        self.answer_opening(id, reply);
        for attach in early {
            self.attach_session(attach);
        }
    }

    fn answer_opening(&mut self, id: SessionId, reply: Reply<Opened>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(Opening { owner, minted_key, connection }) = self.openings.remove(&id) else {
            return;
        };
        let Some(free) = self.ledger.free(owner) else {
            drop(reply.send(Err(Refusal::Internal)));
            return;
        };
        let waiters = session.waiters.clone();
        let attachment = Attachment::new(Some(id), connection, self.own_commands.clone());
        // A client that is gone drops the attachment, which starts the idle clock.
        drop(reply.send(Ok(Opened { owner, minted_key, free, waiters, attachment })));
    }

    /// Attaches, or waits for the open under way: a client that lost the race to open a session
    /// with a key they share was told that its id is in use, and must be able to attach next.
    pub(super) fn attach_session(&mut self, attach: EarlyAttach) {
        match self.sessions.get_mut(&attach.owner.session) {
            Some(session)
                if session.opening.is_some() && session.early.len() < EARLY_ATTACHES_MAX =>
            {
                session.early.push(attach);
            }
            Some(_) | None => {
                let answer = self.try_attach_session(attach.owner, &attach.key);
                drop(attach.reply.send(answer));
            }
        }
    }

    fn try_attach_session(
        &mut self,
        owner: Owner,
        key: &[u8; SESSION_KEY_BYTES],
    ) -> Result<Attached, Refusal> {
        // The same work for an unknown session as for a wrong key.
        let given = key_hash(key);
        let stored = self.sessions.get(&owner.session).filter(|session| session.opening.is_none());
        let expected = stored.map_or("", |session| session.record.key_sha256.as_str());
        if !is_same_hash(&given, expected) {
            return Err(Refusal::SessionNotFound);
        }
        let totals = self.table.totals(Whose::Session(owner.session));
        let free = self.ledger.free(owner).ok_or(Refusal::Internal)?;
        let session = self.sessions.get_mut(&owner.session).ok_or(Refusal::SessionNotFound)?;
        self.last_connection += 1;
        let connection = self.last_connection;
        session.attached.insert(connection);
        session.used_at = self.clock.wall();
        session.idle_at = None;
        Ok(Attached {
            owner,
            label: session.record.label.clone(),
            state: session.state(),
            totals,
            free,
            waiters: session.waiters.clone(),
            attachment: Attachment::new(Some(owner.session), connection, self.own_commands.clone()),
        })
    }

    /// A connection is gone: the last one starts the idle clock.
    pub(super) fn detached(&mut self, id: Option<SessionId>, connection: u64) {
        self.end_leases_of(connection);
        self.end_subscriptions_of(connection);
        let now = self.clock.monotonic();
        let Some(id) = id else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.attached.remove(&connection);
        session.used_at = self.clock.wall();
        start_idle_clock(session, now);
        if let Some(at) = session.idle_at {
            self.timers.arm(at, Due::Session(id));
        }
    }

    /// Starts the idle clocks of all sessions anew, after a restore.
    pub(super) fn start_idle_clocks(&mut self) {
        let now = self.clock.monotonic();
        for (id, session) in &mut self.sessions {
            start_idle_clock(session, now);
            if let Some(at) = session.idle_at {
                self.timers.arm(at, Due::Session(*id));
            }
        }
    }

    /// The idle clock of a session may have run out.
    pub(super) fn session_due(&mut self, id: SessionId, now: Instant) {
        let is_due = self
            .sessions
            .get(&id)
            .is_some_and(|session| session.idle_at.is_some_and(|at| at <= now));
        if is_due {
            tracing::info!(session = %id, "no connection for its idle time: closing");
            self.begin_close(id, CloseRun::default(), None);
        }
    }

    /// Whether a connection is attached to a session.
    pub(super) fn is_attached(&self, id: SessionId, connection: u64) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.attached.contains(&connection))
    }

    /// A session was used: its retention begins anew.
    pub(super) fn session_used(&mut self, id: SessionId) {
        let now = self.clock.wall();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.used_at = session.used_at.max(now);
        }
    }

    /// The same for the end of a restored process.
    pub(super) fn session_used_at(&mut self, id: SessionId, at: Timestamp) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.used_at = session.used_at.max(at);
        }
    }

    /// Saves what is changed in a session's record.
    pub(super) fn save_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let batch = vec![LogRecord::session(&session.record)];
        let submitted = self.journal.submit(Tag::SessionChanged, batch);
        if let Some(submitted) = submitted.first() {
            session.seq = submitted.seq;
        }
        self.storage.write_session(session.record.clone());
    }

    /// An operator's connection: it has no session.
    pub(super) fn attach_operator(&mut self) -> std::sync::Arc<Attachment> {
        self.last_connection += 1;
        Attachment::new(None, self.last_connection, self.own_commands.clone())
    }
}

fn start_idle_clock(session: &mut Session, now: Instant) {
    if session.attached.is_empty()
        && session.state() == SessionState::Open
        && session.close.is_none()
    {
        session.idle_at = session.record.idle_close_ms.map(|ms| now + Duration::from_millis(ms));
    }
}

fn new_record(
    id: SessionId,
    rules: &SessionRules,
    key: &[u8; SESSION_KEY_BYTES],
    now: Timestamp,
) -> SessionRecord {
    let quotas = rules.quotas;
    SessionRecord {
        version: procd_store::session::SESSION_VERSION,
        session_id: id,
        uid: rustix::process::getuid().as_raw(),
        key_sha256: key_hash(key),
        created_at: now,
        label: rules.label.clone(),
        workspaces: rules.workspaces.clone(),
        guard: rules.guard,
        idle_close_ms: rules
            .idle_close
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        quotas: StoredQuotas {
            running_loop_max: quotas.running_loop_max,
            running_session_max: quotas.running_session_max,
            memory_session_bytes: quotas.memory_session_bytes,
            spool_session_bytes: quotas.spool_session_bytes,
            retained_session_max: quotas.retained_session_max,
            waiters_session_max: quotas.waiters_session_max,
        },
        state: procd_store::session::SessionState::Open,
        closed_at: None,
        had_subscriber: false,
        events_dropped_through: 0,
    }
}

/// The given id, or a new one that is not in use.
fn mint_id<T: Copy>(
    given: Option<T>,
    new: impl Fn(Uuid) -> Result<T, procd_core::ids::IdError>,
    is_used: impl Fn(&T) -> bool,
) -> Result<T, Refusal> {
    if let Some(given) = given {
        return Ok(given);
    }
    (0..MINT_TRIES)
        .find_map(|_| new(Uuid::new_v4()).ok().filter(|id| !is_used(id)))
        .ok_or(Refusal::Internal)
}

impl From<procd_store::session::SessionState> for SessionState {
    fn from(state: procd_store::session::SessionState) -> Self {
        match state {
            procd_store::session::SessionState::Open => Self::Open,
            procd_store::session::SessionState::Closing => Self::Closing,
            procd_store::session::SessionState::Closed => Self::Closed,
        }
    }
}
