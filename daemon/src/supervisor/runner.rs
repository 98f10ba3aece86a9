//! The seam between the supervisor and whatever really runs a command. The supervisor's tests
//! put a scripted runner here, with no process.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use procd_core::lease::Claim;
use procd_core::life::{Request, TreeSignal};
use procd_core::quota::Ceilings;
use procd_core::{Handle, LeaderEnd, Owner, Tier};
use procd_store::record::{CommandRecord, LimitOutcome, SignalError, TtySize};
use tokio::sync::{Notify, mpsc};

use super::refusal::Refusal;
use crate::drain::OutputWriter;

pub mod place;
mod request;

pub use request::{
    AskedClaim, AskedFence, AskedKey, AskedLimits, AskedShell, Guard, Program, StartRequest,
    StdinMode,
};

/// What the record says of a plan. The plan itself is the runner's own.
#[derive(Debug, Clone)]
pub struct PlanFacts {
    /// What runs and where, as asked, cut to size.
    pub command: CommandRecord,
    /// How the tree will be held together.
    pub tier: Tier,
    /// What it reserves.
    pub ceilings: Ceilings,
    /// Each limit's outcome.
    pub limits: BTreeMap<String, LimitOutcome>,
    /// What it claims of a workspace, resolved; an unclaimed one in a declared workspace too.
    pub claim: Option<Claim>,
    /// Names of the variables of its environment, sorted.
    pub variables: Vec<String>,
    /// What holds it to its access; absent = nothing but its clients' word.
    pub enforced: Option<String>,
}

/// Runs commands. `prepare` checks everything and spawns nothing; `start` spawns.
pub trait Runner: Send + Sync + 'static {
    /// A frozen plan: program, opened folder, built environment, limits, tier. Holds only plain
    /// descriptors; dropping it releases everything.
    type Plan: Send + 'static;

    /// Turns a request into a plan, once. Spawns, reserves and takes nothing.
    /// # Errors
    /// [`Refusal`] for what cannot be had.
    fn prepare(
        &self,
        request: &StartRequest,
    ) -> impl Future<Output = Result<(Self::Plan, PlanFacts), Refusal>> + Send;

    /// Starts a plan. Returns at once; what happens comes by `context.reports`: first exactly one
    /// of `Spawned`, `SpawnFailed`, `Aborted`, `Lost`; then as the enum says.
    fn start(&self, plan: Self::Plan, context: StartContext) -> Running;

    /// Tells who of those that connect is supervised itself.
    fn lineage(&self) -> Arc<dyn Lineage> {
        Arc::new(NoLineage)
    }

    /// Counts processes that were found outside every tree and killed.
    fn escaped(&self) -> Arc<AtomicU64> {
        Arc::default()
    }
}

/// What a connector is to this daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinship {
    /// None of its trees.
    Stranger,
    /// Of a tree.
    Supervised {
        /// Whether the start of that tree allowed it.
        may_connect: bool,
    },
    /// Of a tree that is just beginning: to be asked again soon.
    Unsettled,
    /// It cannot be told, and there are trees it may be of.
    Unknown,
}

/// Tells what a connector is. Reads procfs; does not wait.
pub trait Lineage: Send + Sync + std::fmt::Debug {
    /// As it is now.
    fn judge(&self, peer: &procd_sys::peer::Peer) -> Kinship;
}

/// Of a runner without processes: everybody is a stranger.
#[derive(Debug)]
struct NoLineage;

impl Lineage for NoLineage {
    fn judge(&self, _: &procd_sys::peer::Peer) -> Kinship {
        Kinship::Stranger
    }
}

/// What a start is given beside its plan.
#[derive(Debug)]
pub struct StartContext {
    /// The handle.
    pub handle: Handle,
    /// The owner.
    pub owner: Owner,
    /// Where its output goes. Single writer: handed to the drains.
    pub writer: OutputWriter,
    /// Where reports go. Sending waits when the supervisor is busy; it never waits for a process.
    pub reports: ReportSender,
}

/// Sends the reports of one process, in order.
#[derive(Debug, Clone)]
pub struct ReportSender {
    handle: Handle,
    to: mpsc::Sender<(Handle, Report)>,
}

impl ReportSender {
    /// A sender for the reports of `handle`.
    #[must_use]
    pub const fn new(handle: Handle, to: mpsc::Sender<(Handle, Report)>) -> Self {
        Self { handle, to }
    }

    /// Sends one report; lost only when the supervisor is gone, and then nobody is left to tell.
    pub async fn send(&self, report: Report) {
        if self.to.send((self.handle, report)).await.is_err() {
            tracing::debug!(handle = %self.handle.shortened(), "report after the supervisor's end");
        }
    }
}

/// A process under way, as the supervisor holds it.
#[derive(Debug)]
pub struct Running {
    /// What to do with it.
    pub orders: Arc<OrderQueue>,
    /// Its stdin, when it is a pipe, or its terminal.
    pub input: Option<Arc<dyn Input>>,
    /// Signals it by name.
    pub signaller: Option<Arc<dyn Signaller>>,
    /// Looks at its tree.
    pub inspector: Arc<dyn Inspector>,
}

/// What the supervisor may ask of a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Give up a spawn that has not been answered, kill what there is of it, and report
    /// `Aborted`. After `Spawned` was reported it means nothing.
    AbortSpawn,
    /// Signal the tree politely, then report `Reached` for the request.
    Signal(TreeSignal, Request),
    /// Kill the tree, then report `Reached` for the request, if one is named.
    Kill(Option<Request>),
    /// SIGTERM (and SIGCONT) to what outlived the leader.
    TerminateLeftovers,
    /// Drop queued input, counted, and close the stdin of a pipe.
    CloseInput,
}

/// Orders not yet carried out, in order. Bounded by construction: an order that waits already is
/// not queued twice, and there are fewer than twenty different ones.
#[derive(Debug, Default)]
pub struct OrderQueue {
    waiting: Mutex<VecDeque<Order>>,
    wake: Notify,
}

impl OrderQueue {
    /// Adds an order behind the others, unless the same one waits already.
    pub fn push(&self, order: Order) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains(&order) {
            waiting.push_back(order);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Takes the oldest order, waiting for one. For one consumer only; cancel safe.
    pub async fn next(&self) -> Order {
        loop {
            if let Some(order) = self.try_next() {
                return order;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the oldest order if there is one.
    pub fn try_next(&self) -> Option<Order> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// What a runner observes. Order: (`Spawned` (`Reached`* `LeaderEnded` `Reached`* `TreeEmpty`)) or
/// one of `SpawnFailed`, `Aborted`; `Lost` may come in place of any, and is then the last.
/// `NotEmpty` may come while a killed tree is not proven empty, each 10 s.
#[derive(Debug)]
pub enum Report {
    /// The exec succeeded.
    Spawned {
        /// For the record's os metadata and for operators only.
        pid: i32,
    },
    /// Clone, set-up or exec failed. Everything of it is gone and its output is complete.
    SpawnFailed(SpawnFailure),
    /// Given up before its exec. Everything of it is gone and its output is complete.
    Aborted,
    /// A signal went out for a request; was the leader alive just before?
    Reached {
        /// The request.
        request: Request,
        /// As the reaper saw it.
        alive: bool,
        /// What the kernel refused.
        errors: Vec<SignalError>,
    },
    /// The leader ended; it is not reaped yet.
    LeaderEnded {
        /// As `waitid` reported it.
        leader: LeaderEnd,
        /// Others of its tree alive then.
        leftovers: u32,
    },
    /// The tree is proven empty, the output complete, the leader reaped, the leaf removed.
    TreeEmpty(TreeEnd),
    /// A killed tree is not empty 10 s after SIGKILL, and after each 10 s more.
    NotEmpty {
        /// Members alive.
        live: u32,
        /// Since the kill.
        waited: Duration,
    },
    /// The end cannot be observed any more; what could be killed was.
    Lost(LossCause),
}

/// Facts that are known when a tree is empty.
#[derive(Debug, Default)]
pub struct TreeEnd {
    /// Signals refused that no `Reached` told.
    pub signal_errors: Vec<SignalError>,
    /// Queued input that was dropped.
    pub input_dropped_bytes: u64,
    /// Whether the control group counted an out-of-memory kill.
    pub oom_killed: bool,
    /// The limit that it hit: `memory`, `cpu` or `pids`.
    pub limit_exceeded: Option<&'static str>,
}

/// Why nothing could be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnFailure {
    /// What failed.
    pub cause: SpawnCause,
    /// The errno, as the kernel gave it; 0 if there is none.
    pub errno: i32,
}

/// What failed in a spawn. Words: protocol, *Error codes*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnCause {
    /// `spawn_failed`: `no_such_program`.
    NoSuchProgram,
    /// `spawn_failed`: `not_executable`.
    NotExecutable,
    /// `spawn_failed`: `bad_format`.
    BadFormat,
    /// `spawn_failed`: `cwd_missing`.
    CwdMissing,
    /// `spawn_failed`: `cwd_denied`.
    CwdDenied,
    /// `spawn_failed`: `cwd_not_directory`.
    CwdNotDirectory,
    /// `spawn_failed`: `argument_list_too_long`.
    ArgumentListTooLong,
    /// `spawn_failed`: `out_of_memory`.
    OutOfMemory,
    /// `spawn_failed`: `out_of_descriptors`.
    OutOfDescriptors,
    /// `spawn_failed`: `other`.
    Other,
    /// `process_setup_failed`: `control_group`.
    ControlGroup,
    /// `process_setup_failed`: `guardian`.
    Guardian,
    /// `pty_unavailable`.
    Terminal,
    /// `lifetime_enforcement_unavailable`: it could not be held to its access.
    Fence,
    /// `lifetime_enforcement_unavailable`.
    Isolation,
}

impl SpawnCause {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoSuchProgram,
        Self::NotExecutable,
        Self::BadFormat,
        Self::CwdMissing,
        Self::CwdDenied,
        Self::CwdNotDirectory,
        Self::ArgumentListTooLong,
        Self::OutOfMemory,
        Self::OutOfDescriptors,
        Self::Other,
        Self::ControlGroup,
        Self::Guardian,
    ];
}

/// Why an end could not be observed. Words: protocol, *Error codes*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// The guardian died.
    GuardianLost,
    /// The shim died: its tree was killed by the guardian.
    ContainmentLost,
    /// The reaper's report is missing.
    EndUnobserved,
}

/// Looks at a running tree. The calls read procfs or cgroupfs and may wait: call them off the
/// control thread.
pub trait Inspector: Send + Sync + std::fmt::Debug {
    /// A look at the tree as it is now; `None` once it is gone.
    fn look(&self) -> Option<TreeView>;
}

/// One look at a tree.
#[derive(Debug, Clone, Default)]
pub struct TreeView {
    /// Live descendants, the leader not counted.
    pub live_descendants: u32,
    /// Live pids, the leader's included. For operators only.
    pub pids: Vec<i32>,
    /// CPU time of the live members, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory of the live members, bytes.
    pub memory_bytes: u64,
}

/// A future of a trait object.
pub type Later<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whom a named signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// The leader alone.
    Leader,
    /// The whole tree; SIGSTOP and SIGCONT pause and resume it.
    Tree,
    /// The foreground process group of its terminal.
    Foreground,
}

/// What became of a named signal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Processes that got it.
    pub count: u32,
    /// What the kernel refused.
    pub errors: Vec<SignalError>,
}

/// Why a named signal could not be for whom it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRefusal {
    /// The process has no terminal.
    NoTerminal,
    /// So many signals wait already.
    Busy,
}

/// Signals a running process by name. Nothing of it is a request to end.
pub trait Signaller: Send + Sync + std::fmt::Debug {
    /// Sends the signal and says whom it met; nobody, when nothing runs.
    fn signal(
        &self,
        signal: i32,
        target: SignalTarget,
    ) -> Later<'_, Result<Delivered, SignalRefusal>>;
}

/// The stdin of a process that has a pipe or a terminal. All calls are serialised; none waits.
pub trait Input: Send + Sync + std::fmt::Debug {
    /// Carries out one call, in the order resize, bytes, keys, end: whole or not at all.
    /// # Errors
    /// [`InputError`]; then nothing of this call will ever be delivered.
    fn push(&self, given: Given<'_>) -> Result<InputAccepted, InputError>;

    /// Waits until the queue is empty and nothing unread is left in the pipe, or until input is
    /// closed.
    fn flushed(&self) -> Later<'_, ()>;
}

/// One call of input.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// Bytes for stdin.
    pub bytes: &'a [u8],
    /// What each key types; terminals only.
    pub keys: &'a [Vec<u8>],
    /// Whether stdin ends behind that.
    pub eof: bool,
    /// A new size; terminals only.
    pub size: Option<TtySize>,
}

/// What was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputAccepted {
    /// Bytes of this call.
    pub accepted_bytes: u64,
    /// Bytes that wait in the queue, these included.
    pub pending_bytes: u64,
    /// Bytes that waited and were thrown away by a key of this call.
    pub discarded_bytes: u64,
}

/// Why nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputError {
    /// The queue of the process or of the daemon has no room.
    Backpressure {
        /// Bytes that wait.
        pending_bytes: u64,
        /// Room, bytes.
        free_bytes: u64,
    },
    /// The end was sent, or the reader is gone.
    Closed,
    /// The daemon or the session shuts down.
    ShuttingDown,
    /// Keys or a size for what has no terminal.
    NoTerminal,
    /// The terminal is in line mode and would cut this line.
    LineTooLong,
}
