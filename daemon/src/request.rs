//! From the wire to the core and back: the only place that knows both. One file per group of
//! methods; every refusal gets its wire code in `error`, every role its methods in `roles`.
//!
//! Everything said to an owner is strict: no pid, no path but those it sent itself.

use std::sync::{Arc, OnceLock};

use procd_protocol::v1::{self, Call, Method};
use procd_protocol::words::Word;
use procd_protocol::{Details, ErrorBody, ErrorCode, RequestId, limits};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::session::{Binding, Bound, Role};
use crate::supervisor::Supervisor;

mod daemon;
mod error;
mod events;
mod export;
mod facts;
mod fold;
mod input;
mod keys;
mod lease;
mod metrics;
mod output;
mod page;
mod pattern;
mod process;
mod record;
mod roles;
mod search;
mod session;
mod start;
mod stretch;
mod tail;
mod until;
mod wait;

pub use events::Following;
pub use export::Export;
use export::Exports;
pub use facts::{ConnectionCount, Daemon, Facts, RestoreFacts, Shutdown, Stage};
pub use roles::Standing;

/// Big replies of one connection that may exist at a time beside its send queue: built, or
/// waiting for room there.
const TURNS: usize = 2;

/// One connected client, as its requests see it.
#[derive(Debug)]
pub struct Client {
    daemon: Arc<Daemon>,
    standing: Standing,
    binding: Binding,
    turns: Arc<Semaphore>,
    exports: Exports,
    /// What it named in its hello.
    features: OnceLock<Vec<String>>,
    _counted: ConnectionCount,
    /// Cancelled when the connection is to be closed at once.
    pub closing: CancellationToken,
}

impl Client {
    /// A client that has said nothing yet.
    #[must_use]
    pub fn new(daemon: Arc<Daemon>, standing: Standing) -> Arc<Self> {
        Arc::new(Self {
            _counted: daemon.count_connection(),
            daemon,
            standing,
            binding: Binding::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            exports: Exports::default(),
            features: OnceLock::new(),
            closing: CancellationToken::new(),
        })
    }

    /// The clock of the daemon.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.daemon.clock
    }

    /// Cancelled when the daemon ends.
    #[must_use]
    pub fn ending(&self) -> &CancellationToken {
        &self.daemon.ending
    }

    /// Reads a request and checks that the role of this connection may make it.
    /// # Errors
    /// `invalid_arguments` naming the field, `permission_denied`.
    pub fn admit(&self, method: &str, params: Option<&RawValue>) -> Result<Call, ErrorBody> {
        if let Some(known) = Method::from_word(method) {
            roles::check(self.standing, self.binding.role(), known)?;
        }
        Ok(Call::parse(method, params)?)
    }

    /// Whether it has shown whose it is.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.binding.role() != Role::Unbound
    }

    /// Answers a hello.
    /// # Errors
    /// `unsupported_version`, listing what the daemon speaks.
    pub fn hello(&self, hello: &v1::HelloParams) -> Result<v1::HelloResult, ErrorBody> {
        let result = daemon::hello(&self.daemon, hello)?;
        // A second hello changes nothing of the first.
        self.features.get_or_init(|| hello.features.clone().unwrap_or_default());
        Ok(result)
    }

    fn names_feature(&self, name: &str) -> bool {
        self.features.get().is_some_and(|features| features.iter().any(|one| one == name))
    }

    /// The client took chunks of an export; of one that is over the notice means nothing.
    pub fn continue_export(&self, taken: &v1::ExportContinueParams) {
        self.exports.go_on(taken.request, taken.chunks);
    }

    /// Where a request is to be carried out, if not on the control thread: a wait for output
    /// where that of its first process is drained, so that no other thread has to be woken in between.
    pub fn place_of(&self, call: &Call) -> Option<&Handle> {
        let Call::ProcessOutput(params) = call else { return None };
        let waits_for_output = match &params.wait {
            None | Some(v1::Wait::Simple(v1::WaitWord::Poll | v1::WaitWord::Exit)) => false,
            Some(v1::Wait::Simple(v1::WaitWord::Any | v1::WaitWord::All) | v1::Wait::Until(_)) => {
                true
            }
        };
        let first = params.targets().first().filter(|_| waits_for_output)?;
        self.daemon.drains.as_ref()?.of(process::handle(*first))
    }

    /// The binding that the role table made sure of.
    fn bound(&self) -> Result<Bound, ErrorBody> {
        self.binding.bound().ok_or_else(|| {
            ErrorBody::new(ErrorCode::PermissionDenied, "this connection has no session")
        })
    }

    /// The supervisor, once the restore is over.
    async fn supervisor(&self) -> Result<Supervisor, ErrorBody> {
        self.daemon.serving().await.ok_or_else(|| {
            ErrorBody::new(ErrorCode::SupervisorShuttingDown, "the daemon is shutting down")
        })
    }

    /// Waits until one more big reply may exist.
    async fn turn(&self) -> Turn {
        Turn { _held: self.turns.clone().acquire_owned().await.ok() }
    }
}

/// The right to hold one big reply.
#[derive(Debug, Default)]
pub struct Turn {
    _held: Option<OwnedSemaphorePermit>,
}

/// The room that the frame of a request takes, given back when dropped: at the answer, or before
/// where a call waits for long and keeps nothing of its parameters.
pub struct FrameRoom {
    _held: Box<dyn Send + Sync>,
}

impl FrameRoom {
    /// The room that `held` gives back.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl std::fmt::Debug for FrameRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameRoom").finish_non_exhaustive()
    }
}

/// The result of a request, and the room it takes until it is queued.
#[derive(Debug)]
pub struct Done {
    /// What is sent.
    pub reply: Reply,
    /// What comes before it, under the same id; its own reply then takes the place of `reply`.
    pub export: Option<Export>,
    /// What comes after it, under the same id.
    pub following: Option<Following>,
    _turn: Turn,
}

impl From<Reply> for Done {
    fn from(reply: Reply) -> Self {
        Self { reply, export: None, following: None, _turn: Turn::default() }
    }
}

impl Done {
    const fn big(reply: Reply, turn: Turn) -> Self {
        Self { reply, export: None, following: None, _turn: turn }
    }

    fn streamed(export: Export) -> Self {
        Self { export: Some(export), ..Reply::Empty(v1::Empty {}).into() }
    }

    fn followed(reply: Reply, following: Following) -> Self {
        Self { following: Some(following), ..reply.into() }
    }
}

/// The result of each method in force.
#[derive(Debug, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "named after their methods")]
pub enum Reply {
    Hello(Box<v1::HelloResult>),
    SessionOpen(Box<v1::SessionOpenResult>),
    SessionAttach(Box<v1::SessionAttachResult>),
    SessionClose(Box<v1::SessionCloseResult>),
    Start(Box<v1::StartResult>),
    Output(v1::OutputResult),
    Search(v1::SearchResult),
    Export(v1::ExportResult),
    Input(Box<v1::InputResult>),
    Stop(Box<v1::StopResult>),
    StopAll(v1::StopAllResult),
    SessionList(v1::SessionListResult),
    Signal(v1::SignalResult),
    Inspect(Box<v1::InspectResult>),
    List(v1::ListResult),
    Plan(Box<v1::PlanResult>),
    Remove(v1::RemoveResult),
    Pin(v1::PinResult),
    Subscribe(v1::SubscribeResult),
    LeaseAcquire(v1::LeaseAcquireResult),
    OperatorAttach(v1::OperatorAttachResult),
    Status(Box<v1::StatusResult>),
    Metrics(v1::MetricsResult),
    Reload(v1::ReloadResult),
    Empty(v1::Empty),
}

/// Bytes of a text that is worth taking out of its reply.
const LONG_TEXT_BYTES: usize = 4096;

impl Reply {
    /// The long texts of output, in their order; a NUL stands in the place of each. No other text
    /// of such a reply has one: safe text never does.
    pub fn take_long_texts(&mut self) -> Vec<String> {
        let take = |page: &mut v1::Page| {
            let text = page.output.as_mut().filter(|text| text.len() >= LONG_TEXT_BYTES)?;
            Some(std::mem::replace(text, "\0".to_owned()))
        };
        match self {
            Self::Output(result) => {
                let pages = result.results.iter_mut().filter_map(|entry| match entry {
                    v1::Entry::Page(page) => Some(page),
                    v1::Entry::Failed { .. } => None,
                });
                pages.filter_map(|page| take(page)).collect()
            }
            Self::Start(result) => take(&mut result.page).into_iter().collect(),
            Self::Input(result) => take(&mut result.page).into_iter().collect(),
            Self::Hello(_)
            | Self::SessionOpen(_)
            | Self::SessionAttach(_)
            | Self::SessionClose(_)
            | Self::Search(_)
            | Self::Export(_)
            | Self::Stop(_)
            | Self::StopAll(_)
            | Self::Signal(_)
            | Self::Inspect(_)
            | Self::List(_)
            | Self::Plan(_)
            | Self::Remove(_)
            | Self::Pin(_)
            | Self::Subscribe(_)
            | Self::LeaseAcquire(_)
            | Self::OperatorAttach(_)
            | Self::Status(_)
            | Self::SessionList(_)
            | Self::Metrics(_)
            | Self::Reload(_)
            | Self::Empty(_) => Vec::new(),
        }
    }
}

/// Carries out one request. Cancelled, it ends with `cancelled` and frees what it waited on; a
/// start does that itself, since its process is stopped with it.
/// # Errors
/// What the method refuses, as its wire error.
pub async fn answer(
    client: &Arc<Client>,
    id: RequestId,
    call: Call,
    cancel: &CancellationToken,
    room: FrameRoom,
) -> Result<Done, ErrorBody> {
    if let Call::ProcessStart(params) = call {
        return start::start(client, *params, cancel, room).await;
    }
    tokio::select! {
        biased;
        done = carry_out(client, id, call, cancel, room) => done,
        () = cancel.cancelled() => Err(error::cancelled(None)),
    }
}

async fn carry_out(
    client: &Arc<Client>,
    id: RequestId,
    call: Call,
    cancel: &CancellationToken,
    room: FrameRoom,
) -> Result<Done, ErrorBody> {
    match call {
        Call::Hello(params) => Ok(Reply::Hello(Box::new(client.hello(&params)?)).into()),
        Call::SessionOpen(params) => session::open(client, *params).await,
        Call::SessionAttach(params) => session::attach(client, *params).await,
        Call::SessionClose(params) => session::close(client, *params).await,
        // Its cancelling is its own: see `answer`.
        Call::ProcessStart(params) => {
            start::start(client, *params, &CancellationToken::new(), room).await
        }
        Call::ProcessOutput(params) => output::output(client, *params).await,
        Call::ProcessSearch(params) => search::search(client, *params).await,
        Call::ProcessExport(params) => export::export(client, *params, id, cancel).await,
        Call::ProcessInput(params) => input::input(client, *params, room).await,
        Call::ProcessStop(params) => process::stop(client, *params).await,
        Call::SessionStopAll(params) => process::stop_all(client, *params).await,
        Call::SessionList(params) => session::list(client, *params).await,
        Call::ProcessSignal(params) => process::signal(client, *params).await,
        Call::ProcessInspect(params) => process::inspect(client, *params).await,
        Call::ProcessList(params) => process::list(client, *params).await,
        Call::ProcessRemove(params) => process::remove(client, *params).await,
        Call::ProcessPin(params) => process::pin(client, *params).await,
        Call::EventsSubscribe(params) => events::subscribe(client, *params, id).await,
        Call::EventsAck(params) => events::acknowledge(client, *params).await,
        Call::EventsUnsubscribe(params) => events::unsubscribe(client, *params).await,
        Call::NotificationsAck(params) => events::answer(client, *params).await,
        Call::LeaseAcquire(params) => lease::acquire(client, *params, cancel).await,
        Call::LeaseRelease(params) => lease::release(client, *params).await,
        Call::OperatorAttach(params) => session::operator(client, *params).await,
        Call::DaemonStatus(_) => daemon::status(client).await,
        Call::DaemonMetrics(_) => metrics::metrics(client).await,
        Call::DaemonReload(_) => daemon::reload(client).await,
        Call::DaemonShutdown(params) => Ok(daemon::shutdown(client, &params)),
    }
}

/// `invalid_arguments` for one field.
fn invalid(field: &str, why: impl std::fmt::Display) -> ErrorBody {
    let details = Details { field: Some(field.to_owned()), ..Details::default() };
    ErrorBody::with_details(ErrorCode::InvalidArguments, format!("`{field}` {why}"), details)
}

/// A duration of the wire.
fn millis(ms: u64) -> std::time::Duration {
    std::time::Duration::from_millis(ms)
}

/// A limit of the protocol as a number of items or bytes.
fn as_count(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The reason of an operator's look at output, logged; owners need none.
fn log_reason(
    bound: &Bound,
    given: Option<&str>,
    method: Method,
    handles: &[procd_core::Handle],
) -> Result<(), ErrorBody> {
    let reason = match (bound, given) {
        (Bound::Owner { .. }, None) => return Ok(()),
        (Bound::Owner { .. }, Some(_)) => return Err(invalid("reason", "is for operators")),
        (Bound::Operator { .. }, Some(given)) => given,
        (Bound::Operator { reason: Some(reason), .. }, None) => reason,
        (Bound::Operator { reason: None, .. }, None) => {
            return Err(invalid("reason", "is missing: an operator says why it reads output"));
        }
    };
    let names: Vec<_> = handles.iter().map(procd_core::Handle::shortened).collect();
    tracing::info!(target: crate::AUDIT, %method, reason, processes = names.join(" "), "an operator looks at output");
    Ok(())
}

const _: () = assert!(limits::OUTPUT_REPLY_BYTES_MAX * 3 < limits::FRAME_BYTES_MAX);
