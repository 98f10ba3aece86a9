//! A supervisor, its state folder, and a runner that does what the test says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procd_core::quota::Ceilings;
use procd_core::settings::Limits;
use procd_core::{LeaderEnd, Owner, Tier};
use procd_store::folder::StateFolder;
use procd_store::log::CommitLog;
use procd_store::record::CommandRecord;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::drain::Budgets;
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{
    AskedLimits, AskedShell, Guard, Inspector, Order, OrderQueue, PlanFacts, Program, Report,
    Runner, Running, StartContext, StartRequest, StdinMode, TreeEnd, TreeView, place,
};
use crate::supervisor::{Parts, SessionRules, Started, Supervisor, spawn};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits with a deadline.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// A process that the test plays.
pub(super) struct Played {
    pub(super) context: StartContext,
    pub(super) orders: Arc<OrderQueue>,
}

impl Played {
    pub(super) async fn report(&self, report: Report) {
        self.context.reports.send(report).await;
    }

    pub(super) async fn order(&self) -> Order {
        soon("an order", self.orders.next()).await
    }

    /// Plays the rest of a life: the leader's end and the empty tree.
    pub(super) async fn end(self, leader: LeaderEnd) {
        self.report(Report::LeaderEnded { leader, leftovers: 0 }).await;
        self.empty().await;
    }

    pub(super) async fn empty(self) {
        let Self { context, .. } = self;
        context.writer.finish();
        context.reports.send(Report::TreeEmpty(TreeEnd::default())).await;
    }
}

#[derive(Debug)]
struct NoTree;

impl Inspector for NoTree {
    fn look(&self) -> Option<TreeView> {
        None
    }
}

/// Hands every start to the test.
struct Script {
    starts: mpsc::Sender<Played>,
    refusal: Option<Refusal>,
    limits: Limits,
}

impl Runner for Script {
    type Plan = ();

    async fn prepare(&self, request: &StartRequest) -> Result<((), PlanFacts), Refusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let facts = PlanFacts {
            command: CommandRecord { argv: Some(vec!["played".to_owned()]), ..Default::default() },
            tier: Tier::Cgroup,
            ceilings: Ceilings {
                memory_bytes: request.memory_bytes.unwrap_or(self.limits.memory_process_bytes),
                spool_bytes: request.spool_bytes.unwrap_or(self.limits.spool_process_bytes),
            },
            limits: BTreeMap::new(),
            claim: request.claim.as_ref().map(place::claim).transpose()?,
            variables: vec!["PATH".to_owned()],
            enforced: None,
        };
        Ok(((), facts))
    }

    fn start(&self, _plan: (), context: StartContext) -> Running {
        let orders = Arc::new(OrderQueue::default());
        let played = Played { context, orders: orders.clone() };
        assert!(self.starts.try_send(played).is_ok(), "the test takes each start");
        Running { orders, input: None, signaller: None, inspector: Arc::new(NoTree) }
    }
}

/// A supervisor over a state folder of its own.
pub(super) struct World {
    pub(super) supervisor: Supervisor,
    pub(super) path: PathBuf,
    task: tokio::task::JoinHandle<()>,
    starts: mpsc::Receiver<Played>,
}

fn fresh_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("procd-sup-{}-{number}", std::process::id()))
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(Limits::default(), None).await
    }

    pub(super) async fn with(limits: Limits, refusal: Option<Refusal>) -> Self {
        Self::at(fresh_path(), limits, refusal).await
    }

    /// A supervisor over a state folder that may have a past.
    pub(super) async fn at(path: PathBuf, limits: Limits, refusal: Option<Refusal>) -> Self {
        let boot_id = Uuid::from_u128(7);
        // An earlier daemon's tasks may still hold it, and need this thread to end.
        let place = path.clone();
        let opening = tokio::task::spawn_blocking(move || StateFolder::open(&place, PATIENCE));
        let folder = opening.await.expect("no panic").expect("the state folder opens");
        let (log, replay) = CommitLog::open(&folder).expect("the log opens");
        let restored = procd_store::scan::load(&folder, replay);
        log.adopt(&restored);
        let recovered =
            crate::recovery::recover(&folder, restored, boot_id, Clock, Clock.monotonic());
        let (starts, starts_in) = mpsc::channel(64);
        let script = Script { starts, refusal, limits: limits.clone() };
        let spawned = spawn(
            Arc::new(script),
            Parts {
                limits: Arc::new(limits),
                folder: Arc::new(folder),
                log,
                recovered,
                boot_id,
                budgets: Budgets::unlimited(),
                beat: None,
            },
        );
        soon("the restore", spawned.restored).await.expect("the restore ends");
        Self { supervisor: spawned.supervisor, path, task: spawned.task, starts: starts_in }
    }

    /// The end of this daemon, as its exit would be; the folder stays.
    pub(super) async fn close(self) -> PathBuf {
        let Self { supervisor, path, task, starts } = self;
        drop((supervisor, starts));
        soon("the supervisor's end", task).await.expect("the task ends");
        path
    }

    /// The end of the test.
    pub(super) async fn remove(self) {
        let path = self.close().await;
        // A disk job of the ended supervisor may still write.
        soon("the folder to go", async {
            while std::fs::remove_dir_all(&path).is_err() && path.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(super) async fn owner(&self) -> Owner {
        soon("a session", self.supervisor.open_session(SessionRules::default()))
            .await
            .expect("a session opens")
            .owner
    }

    /// Begins a start; gives its future and the process to play.
    pub(super) async fn begin(
        &mut self,
        owner: Owner,
        request: StartRequest,
    ) -> (tokio::task::JoinHandle<Result<Started, Refusal>>, Played) {
        let supervisor = self.supervisor.clone();
        let start = tokio::spawn(async move {
            supervisor.start(owner, request, &CancellationToken::new()).await
        });
        let played = soon("a start", self.starts.recv()).await.expect("the runner lives");
        (start, played)
    }

    /// A start that the test expects to be refused, joined or queued.
    pub(super) async fn start(
        &self,
        owner: Owner,
        request: StartRequest,
    ) -> Result<Started, Refusal> {
        let gone = CancellationToken::new();
        soon("an answer", self.supervisor.start(owner, request, &gone)).await
    }

    /// The process of a start that is under way already.
    pub(super) async fn played(&mut self) -> Played {
        soon("a start", self.starts.recv()).await.expect("the runner lives")
    }

    /// A process that ran and ended; its handle, once its end is seen.
    pub(super) async fn ended(
        &mut self,
        owner: Owner,
        request: StartRequest,
    ) -> procd_core::Handle {
        let (started, played) = self.running(owner, request).await;
        played.end(LeaderEnd::Code(0)).await;
        let mut view = started.view;
        soon("the end", view.ended()).await;
        view.handle
    }

    /// A process that runs.
    pub(super) async fn running(
        &mut self,
        owner: Owner,
        request: StartRequest,
    ) -> (Started, Played) {
        let (start, played) = self.begin(owner, request).await;
        played.report(Report::Spawned { pid: 4711 }).await;
        let started = soon("the reply", start).await.expect("no panic").expect("it starts");
        (started, played)
    }
}

pub(super) fn request() -> StartRequest {
    StartRequest {
        program: Program::Argv(vec!["played".into()]),
        cwd: None,
        env: Vec::new(),
        umask: None,
        stdin: StdinMode::Null,
        tty: None,
        merge_streams: false,
        timeout: None,
        memory_bytes: None,
        spool_bytes: None,
        label: None,
        origin: None,
        background: false,
        on_leader_exit: procd_core::OnLeaderExit::KillTree,
        queue_timeout: Duration::ZERO,
        key: None,
        claim: None,
        workspaces: Vec::new(),
        isolate: false,
        allow_client: false,
        shell: AskedShell::default(),
        limits: AskedLimits::default(),
        fence: None,
        guard: Guard::Off,
    }
}
