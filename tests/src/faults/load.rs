//! Several clients that start, end, stop, fail and read at once, and remember every word of the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use super::{client::Client, seed::Seed};
use crate::{Daemon, Wire, wait};

/// Ended records that the second session keeps, a count: so records are evicted all the time.
pub const KEPT: usize = 3;
/// Processes of the second session that run at one time, a count: fewer than its clients would like, so starts wait.
const RUN_AT_ONCE: usize = 4;

/// One record that a client was told of.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Which session.
    pub session: usize,
    /// The label it was started with.
    pub label: String,
    /// The last entry or result; its `state` may be `running`.
    pub entry: Value,
    /// Raw text of its output that was told, from the first byte on.
    pub text: String,
}

/// One loop of a session, and what it was told.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    /// Which session.
    pub session: usize,
    /// The notifications it was offered, by their id.
    pub offered: BTreeMap<String, Value>,
    /// Those it answered for good, and whether that was confirmed.
    pub answered: BTreeMap<String, bool>,
    /// The events it was sent, by their number.
    pub events: BTreeMap<u64, Value>,
}

/// A start that may be sent again.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// Which session.
    pub session: usize,
    /// Of which loop.
    pub loop_id: String,
    /// The whole request.
    pub params: Value,
    /// What was answered, if that came.
    pub handle: Option<String>,
}

/// All that the daemon has told.
#[derive(Debug, Default)]
pub struct Told {
    /// `session/open` of each session, `[0]` keeping all records and `[1]` only [`KEPT`]; nothing runs in the others.
    pub sessions: Vec<Value>,
    /// By handle.
    pub records: BTreeMap<String, Fact>,
    /// Labels of every start that was sent, answered or not.
    pub labels: BTreeSet<String>,
    /// A record whose file the round damaged.
    pub damaged: Option<String>,
    /// What each loop was told of its ends, by its id.
    pub loops: BTreeMap<String, Loop>,
    /// Starts under a `request_key`.
    pub keyed: Vec<Keyed>,
    /// Records that are pinned.
    pub pinned: BTreeSet<String>,
    /// Records that were removed, and whether that was confirmed.
    pub removed: BTreeMap<String, bool>,
    /// Refusals that no fault explains.
    pub refusals: Vec<String>,
    /// Whether spools were refused writes: output of what ran on then was in memory only.
    pub spools_refused: bool,
}

/// What the clients share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) told: Mutex<Told>,
    pub(super) stop: AtomicBool,
    pub(super) done: AtomicU64,
}

/// The clients at work.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
    began: std::time::Instant,
}

impl Load {
    /// Opens the sessions, unless `told` has them, and sets four clients to work. What a daemon that dies meanwhile
    /// leaves undone is no failure.
    #[must_use]
    pub fn begin(daemon: &Daemon, told: &Told, seed: u64) -> Self {
        let shared = Arc::new(Shared::default());
        shared.told.lock().unwrap().sessions.clone_from(&told.sessions);
        let mut clients = Vec::new();
        let (socket, cwd) = (daemon.socket(), daemon.cwd());
        let first = shared.clone();
        clients.push(std::thread::spawn(move || {
            open_sessions(&socket, &first);
            let opened = first.told.lock().unwrap().sessions.clone();
            let mut more = Vec::new();
            for (at, session) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
                let Some(opened) = opened.get(session).cloned() else { continue };
                let client = Client {
                    session,
                    opened,
                    socket: socket.clone(),
                    cwd: cwd.clone(),
                    name: format!("{seed:x}-{at}"),
                    shared: first.clone(),
                    seed: Seed(seed ^ at),
                };
                more.push(std::thread::spawn(move || client.work()));
            }
            for client in more {
                client.join().unwrap();
            }
        }));
        Self { shared, clients, began: wait::now() }
    }

    /// Whether it has worked that long and had that many answers.
    #[must_use]
    pub fn has_worked(&self, time: Duration, answers: u64) -> bool {
        self.began.elapsed() >= time && self.shared.done.load(Ordering::Acquire) >= answers
    }

    /// Works on until the daemon has gone, or the time is over.
    pub fn until_gone(&self, daemon: &mut Daemon, limit: Duration) {
        let deadline = wait::Deadline::after(limit);
        while deadline.left().is_some() && !daemon.is_gone() {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Ends the clients: what they were told goes to `told`.
    /// # Panics
    /// When a client was told something impossible.
    pub fn finish(self, told: &mut Told) {
        self.shared.stop.store(true, Ordering::Release);
        for client in self.clients {
            client.join().unwrap();
        }
        let mut heard = self.shared.told.lock().unwrap();
        told.sessions = std::mem::take(&mut heard.sessions);
        told.records.append(&mut heard.records);
        told.labels.append(&mut heard.labels);
        told.refusals.append(&mut heard.refusals);
        told.loops.append(&mut heard.loops);
        told.keyed.append(&mut heard.keyed);
        told.pinned.append(&mut heard.pinned);
        told.removed.append(&mut heard.removed);
    }
}

/// A connection to a daemon that may be gone, or not there yet.
pub(crate) fn connect(socket: &Path, stop: &AtomicBool) -> Option<Wire> {
    while !stop.load(Ordering::Acquire) {
        if let Ok(mut wire) = Wire::bare(socket)
            && wire.hello().is_ok()
        {
            return Some(wire);
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    None
}

fn open_sessions(socket: &Path, shared: &Shared) {
    let known = shared.told.lock().unwrap().sessions.len();
    // One more each time, which nothing runs in.
    for session in known..known.max(2) + 1 {
        let Some(mut wire) = connect(socket, &shared.stop) else { return };
        let quotas = if session == 1 {
            json!({"retained_session_max": KEPT, "running_session_max": RUN_AT_ONCE})
        } else {
            json!({})
        };
        match wire.call("session/open", json!({"quotas": quotas, "label": format!("s{session}")})) {
            Ok(opened) => shared.told.lock().unwrap().sessions.push(opened),
            Err(_) => return,
        }
    }
}
