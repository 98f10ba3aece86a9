//! A daemon whose supervisor, store and drains are real and whose commands the test plays: it
//! writes to their pipes, reads what was put in their stdin, and says how they end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use procd_core::quota::Ceilings;
use procd_core::settings::Limits;
use procd_core::{LeaderEnd, Tier};
use procd_store::folder::StateFolder;
use procd_store::log::CommitLog;
use procd_store::record::CommandRecord;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{PATIENCE, Restoring, Wire, daemon_at};
use crate::clock::Clock;
use crate::drain::{Budgets, DrainTask, Drains, Streams};
use crate::request::{Daemon, RestoreFacts, Stage};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{
    Given, Input, InputAccepted, InputError, Inspector, Later, Order, OrderQueue, PlanFacts,
    Report, ReportSender, Runner, Running, StartContext, StartRequest, StdinMode, TreeEnd,
    TreeView,
};
use crate::supervisor::{Parts, spawn};

/// A command in the hands of the test.
pub(super) struct Played {
    pub(super) request: StartRequest,
    pub(super) orders: Arc<OrderQueue>,
    pub(super) stdin: Arc<Stdin>,
    reports: ReportSender,
    drain: DrainTask,
    stdout: File,
    stderr: File,
}

impl Played {
    pub(super) async fn report(&self, report: Report) {
        self.reports.send(report).await;
    }

    /// The exec succeeds.
    pub(super) async fn spawned(&self) {
        self.report(Report::Spawned { pid: 4711 }).await;
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.stdout.write_all(bytes).unwrap();
    }

    pub(super) fn write_stderr(&mut self, bytes: &[u8]) {
        self.stderr.write_all(bytes).unwrap();
    }

    pub(super) async fn order(&self) -> Order {
        tokio::time::timeout(PATIENCE, self.orders.next()).await.expect("an order in time")
    }

    /// The leader ends and with it the tree.
    pub(super) async fn end(self, leader: LeaderEnd) {
        self.report(Report::LeaderEnded { leader, leftovers: 0 }).await;
        let Self { reports, drain, stdout, stderr, .. } = self;
        drop((stdout, stderr));
        drain.finish().await;
        reports.send(Report::TreeEmpty(TreeEnd::default())).await;
    }
}

/// A stdin that keeps what it gets; holds 10 bytes.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    taken: Mutex<(Vec<u8>, bool)>,
}

impl Stdin {
    pub(super) fn taken(&self) -> (Vec<u8>, bool) {
        self.taken.lock().unwrap().clone()
    }
}

impl Input for Stdin {
    fn push(&self, given: Given<'_>) -> Result<InputAccepted, InputError> {
        let Given { bytes, eof, .. } = given;
        let mut taken = self.taken.lock().unwrap();
        if taken.1 && !bytes.is_empty() {
            return Err(InputError::Closed);
        }
        let pending_bytes = taken.0.len() as u64;
        if pending_bytes + bytes.len() as u64 > 10 {
            return Err(InputError::Backpressure { pending_bytes, free_bytes: 10 - pending_bytes });
        }
        taken.0.extend_from_slice(bytes);
        taken.1 |= eof;
        let accepted_bytes = bytes.len() as u64;
        let pending_bytes = taken.0.len() as u64;
        Ok(InputAccepted { accepted_bytes, pending_bytes, discarded_bytes: 0 })
    }

    fn flushed(&self) -> Later<'_, ()> {
        let is_closed = self.taken.lock().unwrap().1;
        Box::pin(async move {
            if !is_closed {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[derive(Debug)]
struct Tree;

impl Inspector for Tree {
    fn look(&self) -> Option<TreeView> {
        let pids = vec![4711, 4712];
        Some(TreeView { live_descendants: 1, pids, cpu_ms: 5, memory_bytes: 6 })
    }
}

/// Hands every start to the test.
struct Script {
    starts: mpsc::Sender<Played>,
    drains: Drains,
    limits: Limits,
}

impl Runner for Script {
    type Plan = StartRequest;

    async fn prepare(&self, request: &StartRequest) -> Result<(StartRequest, PlanFacts), Refusal> {
        let facts = PlanFacts {
            command: CommandRecord { argv: Some(vec!["played".to_owned()]), ..Default::default() },
            tier: Tier::Cgroup,
            ceilings: Ceilings {
                memory_bytes: request.memory_bytes.unwrap_or(self.limits.memory_process_bytes),
                spool_bytes: request.spool_bytes.unwrap_or(self.limits.spool_process_bytes),
            },
            limits: BTreeMap::new(),
            claim: None,
            variables: Vec::new(),
            enforced: None,
        };
        Ok((request.clone(), facts))
    }

    fn start(&self, plan: StartRequest, context: StartContext) -> Running {
        let orders = Arc::new(OrderQueue::default());
        let stdin = Arc::new(Stdin::default());
        let input: Option<Arc<dyn Input>> = match plan.stdin {
            StdinMode::Pipe => Some(stdin.clone()),
            StdinMode::Null => None,
        };
        let (stdout, stdout_write) = pipe();
        let (stderr, stderr_write) = pipe();
        let streams =
            Streams { stdout: Some(stdout), stderr: Some(stderr), merged: false, terminal: false };
        let played = Played {
            request: plan,
            orders: orders.clone(),
            stdin,
            reports: context.reports,
            drain: self.drains.start(context.writer, streams),
            stdout: stdout_write.into(),
            stderr: stderr_write.into(),
        };
        assert!(self.starts.try_send(played).is_ok(), "the test takes each start");
        Running { orders, input, signaller: None, inspector: Arc::new(Tree) }
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::io::ioctl_fionbio(&read, true).unwrap();
    (read, write)
}

/// A serving daemon over a state folder of its own.
pub(super) struct World {
    holder: Restoring,
    path: PathBuf,
    starts: mpsc::Receiver<Played>,
    pub(super) supervisor: crate::supervisor::Supervisor,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("procd-upper-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let boot_id = Uuid::from_u128(7);
        let folder = StateFolder::open(&path, PATIENCE).expect("the state folder opens");
        let (log, replay) = CommitLog::open(&folder).expect("the log opens");
        let restored = procd_store::scan::load(&folder, replay);
        log.adopt(&restored);
        let recovered =
            crate::recovery::recover(&folder, restored, boot_id, Clock, Clock.monotonic());
        let (starts, starts_in) = mpsc::channel(64);
        let drains = Drains::new(1).expect("a drain thread");
        let script = Script { starts, drains, limits: limits.clone() };
        let parts = Parts {
            limits: Arc::new(limits),
            folder: Arc::new(folder),
            log,
            recovered,
            boot_id,
            budgets: Budgets::unlimited(),
            beat: None,
        };
        let spawned = spawn(Arc::new(script), parts);
        spawned.restored.await.expect("the restore ends");
        let facts = Arc::new(RestoreFacts::default());
        let supervisor = spawned.supervisor;
        let holder = daemon_at(Stage::Serving(supervisor.clone(), facts));
        Self { holder, path, starts: starts_in, supervisor }
    }

    pub(super) fn daemon(&self) -> &Arc<Daemon> {
        &self.holder.daemon
    }

    /// A connection of a new session.
    pub(super) async fn owner(&self) -> Wire {
        let mut wire = Wire::greeted(self.daemon()).await;
        wire.result("session/open", json!({})).await;
        wire
    }

    pub(super) async fn operator(&self) -> Wire {
        let mut wire = Wire::greeted(self.daemon()).await;
        wire.result("operator/attach", json!({"reason": "test"})).await;
        wire
    }

    /// The next command that was started.
    pub(super) async fn played(&mut self) -> Played {
        let played = tokio::time::timeout(PATIENCE, self.starts.recv()).await;
        played.expect("a start in time").expect("the runner lives")
    }

    /// A command in the background, its handle and the one that plays it.
    pub(super) async fn running(&mut self, wire: &mut Wire) -> (String, Played) {
        self.running_with(wire, json!({"argv": ["played"], "background": true})).await
    }

    pub(super) async fn running_with(
        &mut self,
        wire: &mut Wire,
        params: Value,
    ) -> (String, Played) {
        let id = wire.ask("process/start", params).await;
        let played = self.played().await;
        played.spawned().await;
        let reply = wire.reply().await;
        assert_eq!(reply["id"], id, "{reply}");
        let handle = reply["result"]["process_id"].as_str().expect("a handle").to_owned();
        (handle, played)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A disk job may still write: what it leaves is a folder in the place for such.
        for _ in 0..100 {
            if std::fs::remove_dir_all(&self.path).is_ok() || !self.path.exists() {
                return;
            }
        }
    }
}
