//! Several clients that start, end, stop, fail and read at once, and remember every word of the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use super::seed::Seed;
use crate::{Daemon, Owner, Wire, binaries, wait};

/// Ended records that the second session keeps, a count: so records are evicted all the time.
pub const KEPT: usize = 3;
/// Processes that one client leaves running, a count.
const RUNNING_MAX: usize = 3;

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
    /// Refusals that no fault explains.
    pub refusals: Vec<String>,
}

/// What the clients share.
#[derive(Debug, Default)]
struct Shared {
    told: Mutex<Told>,
    stop: AtomicBool,
    done: AtomicU64,
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
    }
}

/// A connection to a daemon that may be gone, or not there yet.
fn connect(socket: &Path, stop: &AtomicBool) -> Option<Wire> {
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
        let quotas = if session == 1 { json!({"retained_session_max": KEPT}) } else { json!({}) };
        match wire.call("session/open", json!({"quotas": quotas, "label": format!("s{session}")})) {
            Ok(opened) => shared.told.lock().unwrap().sessions.push(opened),
            Err(_) => return,
        }
    }
}

/// One client of one loop.
struct Client {
    session: usize,
    opened: Value,
    socket: PathBuf,
    cwd: PathBuf,
    name: String,
    shared: Arc<Shared>,
    seed: Seed,
}

impl Client {
    fn work(mut self) {
        let Some(mut wire) = connect(&self.socket, &self.shared.stop) else { return };
        let loop_id = uuid::Uuid::new_v4().to_string();
        let params = json!({"session_id": self.opened["session_id"], "loop_id": loop_id, "session_key": self.opened["session_key"]});
        if wire.call("session/attach", params).is_err() {
            return;
        }
        let mut owner = Owner::attached(wire, self.opened.clone(), self.cwd.clone());
        let mut running = Vec::new();
        let mut count = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            count += 1;
            let label = format!("{}-{count}", self.name);
            if self.step(&mut owner, &label, &mut running).is_none() {
                return;
            }
            self.shared.done.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One call; none when the daemon has gone.
    fn step(&mut self, owner: &mut Owner, label: &str, running: &mut Vec<String>) -> Option<()> {
        let probe = binaries::probe();
        match self.seed.below(7) {
            0 | 1 => {
                let code = self.seed.below(256);
                let line = format!("echo {label}; exit {code}");
                self.start(owner, label, &["sh", "-c", &line], json!({})).map(drop)
            }
            2 => self.start(owner, label, &["/no/such/program"], json!({})).map(drop),
            3 => self
                .start(owner, label, &[&probe, "write", "150000"], json!({"limit_bytes": 64}))
                .map(drop),
            4 if running.len() < RUNNING_MAX => {
                let line = "echo on; exec sleep 600";
                let handle =
                    self.start(owner, label, &["sh", "-c", line], json!({"background": true}))?;
                running.extend(handle);
                Some(())
            }
            5 => {
                let Some(process) = running.first().cloned() else { return Some(()) };
                let params = json!({"process_id": process, "wait": "any", "timeout_ms": 50});
                let reply = self.call(owner, "process/output", params)?.ok()?;
                let text = reply["results"][0]["output"].as_str().unwrap_or_default().to_owned();
                let mut told = self.shared.told.lock().unwrap();
                if let Some(fact) = told.records.get_mut(&process) {
                    fact.text = text;
                }
                Some(())
            }
            _ => {
                let Some(process) = running.pop() else { return Some(()) };
                let mode = self.seed.choose(&["kill", "terminate"]);
                let params = json!({"process_id": process, "mode": mode, "grace_ms": 100});
                if let Ok(result) = self.call(owner, "process/stop", params)? {
                    let mut told = self.shared.told.lock().unwrap();
                    if let Some(fact) = told.records.get_mut(&process) {
                        fact.entry = result;
                    }
                }
                Some(())
            }
        }
    }

    /// Starts something: the handle, if there is a record.
    fn start(
        &self,
        owner: &mut Owner,
        label: &str,
        argv: &[&str],
        more: Value,
    ) -> Option<Option<String>> {
        self.shared.told.lock().unwrap().labels.insert(label.to_owned());
        let mut params = owner.start_params(argv, more);
        params["label"] = json!(label);
        let entry = match self.call(owner, "process/start", params)? {
            Ok(entry) => entry,
            Err(error) => match error["details"]["process_id"].as_str() {
                Some(handle) => json!({"process_id": handle, "state": "failed"}),
                None => return Some(None),
            },
        };
        let handle = entry["process_id"].as_str()?.to_owned();
        let text = entry["output"].as_str().unwrap_or_default().to_owned();
        let fact = Fact { session: self.session, label: label.to_owned(), entry, text };
        self.shared.told.lock().unwrap().records.insert(handle.clone(), fact);
        Some(Some(handle))
    }

    /// A call; none when the daemon has gone. A refusal that the load does not provoke is remembered.
    fn call(&self, owner: &mut Owner, method: &str, params: Value) -> Option<Result<Value, Value>> {
        match owner.wire.call(method, params) {
            Ok(reply) => Some(Ok(reply)),
            Err(Value::Null) => None,
            Err(error) => {
                let code = error["code"].as_str().unwrap_or_default();
                if !["spawn_failed", "supervisor_shutting_down"].contains(&code) {
                    let mut told = self.shared.told.lock().unwrap();
                    told.refusals.push(format!("{method}: {error}"));
                }
                Some(Err(error))
            }
        }
    }
}
