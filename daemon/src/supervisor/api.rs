//! What the supervisor is asked, and what it answers: values only.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procd_core::lease::Claim;
use procd_core::quota::Free;
use procd_core::settings::Limits;
use procd_core::{Handle, LoopId, Owner, ProcessState, SessionId, StopMode};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::figures::{Figures, PlaceOfSession, SessionPage};
use super::list::{PlaceInList, PlacedView};
use super::notices::Answer;
use super::refusal::Refusal;
use super::runner::{AskedKey, PlanFacts, Running, StartContext, StartRequest};
use super::subscriptions::{Subscribe, Subscribed};
use super::view::{ProcessView, Snapshot, Totals, WaiterSlots};

/// Bytes of a session key.
pub const SESSION_KEY_BYTES: usize = 32;

/// On whose behalf a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Exactly one owner.
    Owner(Owner),
    /// An operator: sees all.
    Operator,
}

/// The rules of a session to be opened.
#[derive(Debug, Clone, Default)]
pub struct SessionRules {
    /// Chosen by the client, or minted.
    pub session_id: Option<SessionId>,
    /// The loop that opens it; minted if absent.
    pub loop_id: Option<LoopId>,
    /// Brought by the client, or minted.
    pub key: Option<[u8; SESSION_KEY_BYTES]>,
    /// What people call it.
    pub label: Option<String>,
    /// Declared workspaces, absolute folders.
    pub workspaces: Vec<PathBuf>,
    /// Whether the guard is on.
    pub guard: bool,
    /// Closes by itself after that long without a connection.
    pub idle_close: Option<Duration>,
    /// Limits that are lower than the configured ones.
    pub quotas: SessionQuotas,
}

/// What a session may lower for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionQuotas {
    /// A count.
    pub running_loop_max: Option<u64>,
    /// A count.
    pub running_session_max: Option<u64>,
    /// Bytes.
    pub memory_session_bytes: Option<u64>,
    /// Bytes.
    pub spool_session_bytes: Option<u64>,
    /// A count.
    pub retained_session_max: Option<u64>,
    /// A count.
    pub waiters_session_max: Option<u64>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Takes starts.
    Open,
    /// Being closed.
    Closing,
    /// Readable only.
    Closed,
}

/// A session that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Whose calls the connection makes from now on.
    pub owner: Owner,
    /// The key, only if it was minted.
    pub minted_key: Option<[u8; SESSION_KEY_BYTES]>,
    /// What is left.
    pub free: Free,
    /// Slots for blocking calls, shared by all connections of the session.
    pub waiters: WaiterSlots,
    /// Counts as an attached connection until dropped.
    pub attachment: Arc<Attachment>,
}

/// A session that was attached.
#[derive(Debug, Clone)]
pub struct Attached {
    /// Whose calls the connection makes from now on.
    pub owner: Owner,
    /// What people call it.
    pub label: Option<String>,
    /// Its state.
    pub state: SessionState,
    /// Its processes by state.
    pub totals: Totals,
    /// What is left.
    pub free: Free,
    /// Slots for blocking calls, shared by all connections of the session.
    pub waiters: WaiterSlots,
    /// Counts as an attached connection until dropped.
    pub attachment: Arc<Attachment>,
}

/// An attached connection; the idle clock of its session stands still while one exists.
#[derive(Debug)]
pub struct Attachment {
    session: Option<SessionId>,
    connection: u64,
    gone: mpsc::WeakSender<Command>,
}

impl Attachment {
    pub(super) fn new(
        session: Option<SessionId>,
        connection: u64,
        gone: mpsc::WeakSender<Command>,
    ) -> Arc<Self> {
        Arc::new(Self { session, connection, gone })
    }

    /// One that no supervisor knows.
    #[cfg(test)]
    pub(crate) fn detached() -> Arc<Self> {
        Self::new(None, 0, mpsc::channel(1).0.downgrade())
    }

    /// The number of the connection: what it holds ends with it.
    #[must_use]
    pub const fn connection(&self) -> u64 {
        self.connection
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let (session, connection) = (self.session, self.connection);
        if let Some(commands) = self.gone.upgrade() {
            send_from_drop(&commands, Command::Detached { session, connection });
        }
    }
}

/// Sends a command from where nothing can wait.
pub(super) fn send_from_drop(commands: &mpsc::Sender<Command>, command: Command) {
    match commands.try_send(command) {
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        // A full queue: wait for room, but not here.
        Err(mpsc::error::TrySendError::Full(command)) => {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                let commands = commands.clone();
                drop(runtime.spawn(async move { drop(commands.send(command).await) }));
            }
        }
    }
}

/// A process that was started.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its reading side.
    pub view: ProcessView,
}

/// What a pin came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// As it is now.
    pub is_pinned: bool,
    /// Retained bytes of the pinned outputs of the session.
    pub pinned_bytes: u64,
}

/// A client's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub id: Uuid,
}

/// Calls off what waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    pub(super) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// How long something may wait, and how it is called off.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) timeout: Duration,
}

/// What the gate says.
#[derive(Debug)]
pub enum Passed {
    /// Go on.
    Go(Gate),
    /// The key is known: the answer is that of its start.
    Joined(oneshot::Receiver<Result<Started, Refusal>>),
}

/// What a stop came to.
#[derive(Debug, Clone)]
pub struct StopOutcome {
    /// The handle.
    pub process_id: Handle,
    /// The record as it is now.
    pub snapshot: Snapshot,
    /// Why it is not what was asked: [`Refusal::Teardown`].
    pub error: Option<Refusal>,
}

/// What the close of a session came to.
#[derive(Debug, Clone, Default)]
pub struct StopAllOutcome {
    /// Processes that were stopped by it, a count.
    pub stopped: u64,
    /// Those that were not proven ended.
    pub failures: Vec<StopOutcome>,
}

/// Which of a caller's processes a stop of many is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StopScope {
    /// An owner's whole session in place of its loop.
    pub whole_session: bool,
    /// The session an operator names.
    pub session: Option<SessionId>,
}

/// Which records to list. All given conditions hold together.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// An owner's whole session in place of its loop.
    pub whole_session: bool,
    /// An operator's choice of one session.
    pub session: Option<SessionId>,
    /// Only this state.
    pub state: Option<ProcessState>,
    /// Only this label.
    pub label: Option<String>,
    /// Records per page.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<PlaceInList>,
}

/// One page of records, newest first.
#[derive(Debug, Clone, Default)]
pub struct ListPage {
    /// The views.
    pub views: Vec<PlacedView>,
    /// Where the next page begins.
    pub next: Option<PlaceInList>,
    /// All that the caller may see, by state, whatever the filter.
    pub totals: Totals,
    /// What is left for an owner.
    pub free: Option<Free>,
}

/// Facts for `daemon/status`.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Sessions known, a count.
    pub sessions: u64,
    /// Open sessions whose idle clock runs, a count: they will close by themselves.
    pub idle_clocks: u64,
    /// Processes by state (of the caller's session for an owner).
    pub totals: Totals,
    /// Whether the commit log can be written.
    pub storage_writable: bool,
    /// Notifications that went unacknowledged since the start of the daemon, a count.
    pub dropped_notifications: u64,
    /// Notifications that met another payload in their loop, a count.
    pub collisions: u64,
    /// Outputs of running processes that cannot be written to disk, a count.
    pub degraded_outputs: u64,
    /// The session that was named, if there is one.
    pub session: Option<SessionFacts>,
}

/// What a session's own status shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// What people call it.
    pub label: Option<String>,
    /// Its state.
    pub state: SessionState,
}

/// A prepared start: what the record says of it, and the one-time act of starting it.
pub struct Prepared {
    pub(super) facts: PlanFacts,
    pub(super) launch: Box<dyn FnOnce(StartContext) -> Running + Send>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A future that can be sent to another thread.
pub(super) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Turns requests into prepared starts: a runner, its type hidden.
pub(super) type Preparer =
    dyn Fn(Arc<StartRequest>) -> Later<Result<Prepared, Refusal>> + Send + Sync;
/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Everything that can be asked of the supervisor's task.
#[derive(Debug)]
pub enum Command {
    /// A new session.
    OpenSession { rules: Box<SessionRules>, reply: Reply<Opened> },
    /// A connection that knows the key.
    AttachSession { owner: Owner, key: [u8; SESSION_KEY_BYTES], reply: Reply<Attached> },
    /// The end of an attached connection.
    Detached { session: Option<SessionId>, connection: u64 },
    /// An operator's connection.
    AttachOperator { reply: oneshot::Sender<Arc<Attachment>> },
    /// The removal of an ended process.
    Remove { caller: Caller, handle: Handle, reply: Reply<()> },
    /// The pin of an ended process.
    Pin { caller: Caller, handle: Handle, is_pinned: bool, reply: Reply<Pinned> },
    /// A subscription to events.
    Subscribe { caller: Caller, asked: Box<Subscribe>, reply: Reply<Subscribed> },
    /// All up to a number is acknowledged.
    AcknowledgeEvents { connection: u64, request: i64, up_to: u64, reply: Reply<()> },
    /// The end of a subscription.
    Unsubscribe { connection: u64, request: i64, reply: Reply<()> },
    /// The answer of a loop to a notification.
    AnswerNotification { owner: Owner, command_id: Uuid, answer: Answer, reply: Reply<()> },
    /// The end of a session.
    CloseSession {
        owner: Owner,
        purge: bool,
        grace: Option<Duration>,
        reply: Reply<StopAllOutcome>,
    },
    /// Steps 1 and 2 of an admission, and the facts of the session that a request needs.
    Gate { owner: Owner, key: Option<AskedKey>, reply: Reply<Passed> },
    /// A start with a key ended without a record.
    KeyFreed { owner: Owner, key: String, refusal: Refusal },
    /// Steps 4 to 9 of an admission.
    Admit {
        owner: Owner,
        request: Arc<StartRequest>,
        prepared: Box<Prepared>,
        ticket: Ticket,
        reply: Reply<Started>,
    },
    /// A client's claim on a workspace.
    AcquireLease { owner: Owner, connection: u64, claim: Claim, wait: Waiting, reply: Reply<Lease> },
    /// The end of a client's claim.
    ReleaseLease { owner: Owner, id: Uuid, reply: Reply<()> },
    /// Whoever waits in the queue under this ticket waits no more.
    Withdraw { ticket: Ticket },
    /// A foreground start is handed over to the background; false if its end came first.
    Background { owner: Owner, handle: Handle, reply: Reply<bool> },
    /// Reading sides, in the order asked.
    Find {
        caller: Caller,
        handles: Vec<Handle>,
        reply: oneshot::Sender<Vec<Result<ProcessView, Refusal>>>,
    },
    /// The end of one process.
    Stop {
        caller: Caller,
        handle: Handle,
        mode: StopMode,
        grace: Option<Duration>,
        reply: Reply<StopOutcome>,
    },
    /// The end of many: each is asked at once, and answers for itself.
    StopAll {
        caller: Caller,
        which: StopScope,
        mode: StopMode,
        grace: Option<Duration>,
        reply: Reply<Vec<oneshot::Receiver<Result<StopOutcome, Refusal>>>>,
    },
    /// A page of records.
    List { caller: Caller, filter: Box<ListFilter>, reply: Reply<ListPage> },
    /// Facts of the daemon.
    Status { session: Option<SessionId>, reply: oneshot::Sender<Status> },
    /// A page of sessions.
    ListSessions {
        limit: usize,
        after: Option<PlaceOfSession>,
        reply: oneshot::Sender<SessionPage>,
    },
    /// Figures for the metrics.
    Figures { reply: oneshot::Sender<Figures> },
    /// New limits.
    Configure { limits: Arc<Limits>, reply: oneshot::Sender<()> },
    /// The end of everything. Concurrent callers share one run.
    Shutdown { grace: Option<Duration>, reply: oneshot::Sender<StopAllOutcome> },
    /// A second signal during a shutdown: no grace any more.
    HastenShutdown,
}

/// What step 1 of an admission tells.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The session's declared workspaces.
    pub workspaces: Vec<PathBuf>,
    /// Whether the guard is on.
    pub guard: bool,
}
