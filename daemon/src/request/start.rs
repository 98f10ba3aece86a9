//! process/start: from parameters to a start request, then as much waiting as was asked for.
//!
//! The start itself is a task of its own: once it is under way it outlives its connection.
//! Source: spec, lifecycle, *Foreground, background, yield*.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use procd_core::settings::Limits;
use procd_core::{Handle, OriginId, Owner, StopMode};
use procd_protocol::v1::{self, OnLeaderExit, Stdin, WokeBy};
use procd_protocol::words::Open;
use procd_protocol::{Base64Bytes, ErrorBody, limits};
use procd_store::record::TtySize;
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::{cancelled, of_read, wire};
use super::output::{self, page_at};
use super::page::{self, Form, Room};
use super::process::owner_of;
use super::wait::sleep_until;
use super::{Client, Done, FrameRoom, Reply, as_count, invalid, lease, millis, record, tail};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{
    AskedFence, AskedKey, AskedLimits, AskedShell, Guard, Program, StartRequest, StdinMode,
};
use crate::supervisor::view::{ProcessView, Snapshot};
use crate::supervisor::{Caller, Started, Supervisor};

/// The size of a terminal if none is asked for.
const ROWS: u16 = 24;
const COLS: u16 = 80;

/// How long a cancelled start may take to tell which process it had made.
const CANCELLED_START: Duration = Duration::from_secs(2);

/// How the caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Not at all.
    Background,
    /// So long at most.
    Yield(Duration),
    /// To the end.
    Foreground,
}

pub(super) async fn start(
    client: &Arc<Client>,
    params: v1::StartParams,
    cancel: &CancellationToken,
    room: FrameRoom,
) -> Result<Done, ErrorBody> {
    let owner = owner_of(client.bound()?.caller())?;
    let mode = mode(&params);
    let limits = client.daemon.limits();
    let limit = as_count(params.limit_bytes.unwrap_or(limits.inline_bytes));
    let is_dry = params.dry_run.unwrap_or(false);
    let require_success = params.require_success == Some(true);
    let fold = params.fold == Some(true);
    let request = request(params, mode, &limits)?;
    let supervisor = tokio::select! {
        supervisor = client.supervisor() => supervisor?,
        () = cancel.cancelled() => return Err(cancelled(None)),
    };
    if is_dry {
        return plan(&supervisor, owner, request, cancel).await;
    }
    let starting = Starting::begin(supervisor.clone(), owner, request);
    let Started { view } = starting.finish(cancel).await?;
    // A command may run for days.
    drop(room);
    let unanswered = Unanswered { supervisor, owner, handle: view.handle };
    let mut watched = view.clone();
    let woke_by = tokio::select! {
        biased;
        woke_by = unanswered.wait(client, &mut watched, mode) => woke_by?,
        () = cancel.cancelled() => {
            unanswered.stop();
            return Err(cancelled(Some(view.handle)));
        }
    };
    let turn = client.turn().await;
    let snapshot = view.now();
    let form = Form { fold, ..Form::text(limit) };
    let result = result(&view, &snapshot, woke_by, form).await;
    let result = result.map_err(|refusal| wire(&refusal))?;
    if require_success {
        output::require_success(&result.page)?;
    }
    Ok(Done::big(Reply::Start(Box::new(result)), turn))
}

/// What a start would be.
async fn plan(
    supervisor: &Supervisor,
    owner: Owner,
    request: StartRequest,
    cancel: &CancellationToken,
) -> Result<Done, ErrorBody> {
    let facts = tokio::select! {
        facts = supervisor.plan(owner, request) => facts,
        () = cancel.cancelled() => return Err(cancelled(None)),
    };
    let plan = record::plan(facts.map_err(|refusal| wire(&refusal))?);
    Ok(Reply::Plan(Box::new(v1::PlanResult { plan })).into())
}

/// The key of a start with the hash of its parameters, as they are whatever their order.
fn key(params: &v1::StartParams) -> Result<Option<AskedKey>, ErrorBody> {
    let Some(key) = &params.request_key else { return Ok(None) };
    let body = serde_json::to_value(params).and_then(|value| serde_json::to_vec(&value));
    let body = body.map_err(|error| {
        tracing::error!(%error, "bug: parameters cannot be written");
        wire(&Refusal::Internal)
    })?;
    Ok(Some(AskedKey { key: key.clone(), body: Sha256::digest(&body).into() }))
}

fn mode(params: &v1::StartParams) -> Mode {
    match (params.background, params.yield_time_ms) {
        (Some(true), _) => Mode::Background,
        (Some(false) | None, Some(ms)) => Mode::Yield(millis(ms)),
        (Some(false) | None, None) => Mode::Foreground,
    }
}

/// What the supervisor is asked for. Form and ranges were checked when the request was read.
fn request(
    params: v1::StartParams,
    mode: Mode,
    limits: &Limits,
) -> Result<StartRequest, ErrorBody> {
    let ceiling = |field: &str, value: Option<u64>, max: u64| match value {
        Some(value) if value > max => {
            Err(invalid(field, format_args!("is {value}, above the ceiling of {max} bytes")))
        }
        Some(_) | None => Ok(value),
    };
    let key = key(&params)?;
    let memory_bytes = ceiling("memory_bytes", params.memory_bytes, limits.memory_process_bytes)?;
    let spool_bytes = ceiling("spool_bytes", params.spool_bytes, limits.spool_process_bytes)?;
    let program = program(params.argv, params.argv_base64, params.command)?;
    let fence = fence(params.workspace.as_ref());
    let on_leader_exit = match params.on_leader_exit {
        None | Some(OnLeaderExit::KillTree) => procd_core::OnLeaderExit::KillTree,
        Some(OnLeaderExit::KeepTree) => procd_core::OnLeaderExit::KeepTree,
    };
    let umask = params.umask.and_then(|umask| u32::try_from(umask).ok());
    let tty = (params.tty == Some(true)).then(|| terminal_size(params.rows, params.cols));
    let origin = params.origin.map(|id| OriginId::new(id.uuid())).transpose();
    Ok(StartRequest {
        program,
        cwd: params.cwd.map(OsString::from).or(params.cwd_base64.map(raw)).map(PathBuf::from),
        env: variables(params.env, params.env_base64),
        umask,
        stdin: stdin(params.stdin, mode, tty.is_some()),
        tty,
        merge_streams: params.merge_streams.unwrap_or(false),
        timeout: params.timeout_ms.map(millis),
        memory_bytes,
        spool_bytes,
        label: params.label,
        origin: origin.map_err(|error| invalid("origin", error))?,
        background: mode == Mode::Background,
        on_leader_exit,
        queue_timeout: params.queue_timeout_ms.map(millis).unwrap_or_default(),
        key,
        claim: params.workspace.map(lease::claim),
        workspaces: Vec::new(),
        isolate: params.isolate.unwrap_or(false),
        allow_client: params.allow_client.unwrap_or(false),
        shell: AskedShell {
            program: params.shell.map(OsString::from),
            login: params.login.unwrap_or(false),
        },
        limits: resource_limits(params.limits, params.limits_required, params.limits_fallback),
        fence,
        guard: Guard::Off,
    })
}

/// Bytes that need not be UTF-8.
fn raw(bytes: Base64Bytes) -> OsString {
    OsString::from_vec(bytes.0)
}

fn program(
    argv: Option<Vec<String>>,
    argv_base64: Option<Vec<Base64Bytes>>,
    command: Option<String>,
) -> Result<Program, ErrorBody> {
    match (argv, argv_base64, command) {
        (Some(argv), None, None) => {
            Ok(Program::Argv(argv.into_iter().map(OsString::from).collect()))
        }
        (None, Some(argv), None) => Ok(Program::Argv(argv.into_iter().map(raw).collect())),
        (None, None, Some(line)) => Ok(Program::Line(OsString::from(line))),
        (_, _, _) => Err(invalid("argv", "or `argv_base64` or `command` has to be there alone")),
    }
}

fn fence(claim: Option<&v1::WorkspaceClaim>) -> Option<AskedFence> {
    let claim = claim.filter(|claim| claim.enforce == Some(true))?;
    let paths = claim.paths_read.as_ref();
    Some(AskedFence { paths_read: paths.map(|paths| paths.iter().map(PathBuf::from).collect()) })
}

fn resource_limits(
    limits: Option<v1::ResourceLimits>,
    required: Option<bool>,
    fallback: Option<v1::LimitsFallback>,
) -> AskedLimits {
    let limits = limits.unwrap_or_default();
    AskedLimits {
        memory_bytes_max: limits.memory_bytes_max,
        cpu_max: limits.cpu_max,
        pids_max: limits.pids_max,
        open_files_max: limits.open_files_max,
        core_bytes_max: limits.core_bytes_max,
        cpu_seconds_max: limits.cpu_seconds_max,
        address_space_bytes_max: limits.address_space_bytes_max,
        are_required: required.unwrap_or(false),
        fallback_watchdog: fallback == Some(v1::LimitsFallback::Watchdog),
    }
}

/// Ranges were checked when the request was read.
fn terminal_size(rows: Option<u64>, cols: Option<u64>) -> TtySize {
    let characters = |value: Option<u64>, usual| {
        value.map_or(usual, |value| u16::try_from(value).unwrap_or(u16::MAX))
    };
    TtySize { rows: characters(rows, ROWS), cols: characters(cols, COLS) }
}

fn variables(
    env: Option<v1::Env>,
    env_base64: Option<v1::EnvBase64>,
) -> Vec<(OsString, Option<OsString>)> {
    let texts = env.map(|env| env.0).unwrap_or_default();
    let texts = texts.into_iter().map(|(name, value)| (name.into(), value.map(OsString::from)));
    let bytes = env_base64.map(|env| env.0).unwrap_or_default();
    texts.chain(bytes.into_iter().map(|(name, value)| (name.into(), Some(raw(value))))).collect()
}

/// A plain foreground command gets no stdin, so that `cat` or `rg` ends at once.
const fn stdin(given: Option<Stdin>, mode: Mode, tty: bool) -> StdinMode {
    match (given, mode) {
        (None, Mode::Foreground) if tty => StdinMode::Pipe,
        (Some(Stdin::Pipe), _) | (None, Mode::Background | Mode::Yield(_)) => StdinMode::Pipe,
        (Some(Stdin::Null), _) | (None, Mode::Foreground) => StdinMode::Null,
    }
}

/// A start under way, in a task of its own.
struct Starting {
    supervisor: Supervisor,
    owner: Owner,
    task: JoinHandle<Result<Started, Refusal>>,
    /// Cancelled when nobody waits for it any more: one that is queued is dropped then.
    gone: DropGuard,
}

impl Starting {
    fn begin(supervisor: Supervisor, owner: Owner, request: StartRequest) -> Self {
        let starter = supervisor.clone();
        let gone = CancellationToken::new();
        let token = gone.clone();
        let task = tokio::spawn(async move { starter.start(owner, request, &token).await });
        Self { supervisor, owner, task, gone: gone.drop_guard() }
    }

    /// Waits for it. Cancelled meanwhile, what it makes is stopped at once.
    async fn finish(mut self, cancel: &CancellationToken) -> Result<Started, ErrorBody> {
        tokio::select! {
            biased;
            started = &mut self.task => return flat(started).map_err(|refusal| wire(&refusal)),
            () = cancel.cancelled() => {}
        }
        drop(self.gone);
        let (supervisor, owner) = (self.supervisor, self.owner);
        let task = self.task;
        let stopping = tokio::spawn(async move {
            let handle = flat(task.await).ok()?.view.handle;
            Unanswered { supervisor, owner, handle }.stop();
            Some(handle)
        });
        let told = tokio::time::timeout(CANCELLED_START, stopping).await;
        Err(cancelled(told.ok().and_then(Result::ok).flatten()))
    }
}

fn flat(
    joined: Result<Result<Started, Refusal>, tokio::task::JoinError>,
) -> Result<Started, Refusal> {
    joined.unwrap_or_else(|error| {
        tracing::error!(%error, "bug: a start panicked");
        Err(Refusal::Internal)
    })
}

/// A process whose start has not been answered yet.
struct Unanswered {
    supervisor: Supervisor,
    owner: Owner,
    handle: Handle,
}

impl Unanswered {
    /// Waits as asked; why the waiting ended.
    async fn wait(
        &self,
        client: &Client,
        view: &mut ProcessView,
        mode: Mode,
    ) -> Result<WokeBy, ErrorBody> {
        let deadline = match mode {
            Mode::Background => return Ok(WokeBy::Poll),
            Mode::Yield(limit) => Some(Instant::now() + limit),
            Mode::Foreground => None,
        };
        let woke_by = tokio::select! {
            biased;
            is_over = view.leader_ended() => match is_over {
                true => return Ok(WokeBy::Exit),
                false => WokeBy::LeaderExited,
            },
            () = client.ending().cancelled() => return Ok(WokeBy::Shutdown),
            () = sleep_until(deadline) => WokeBy::Timeout,
        };
        let handed_over = self.supervisor.background(self.owner, self.handle).await;
        match handed_over.map_err(|refusal| wire(&refusal))? {
            true => Ok(woke_by),
            // The end came first: it is the reply.
            false => {
                drop(view.ended().await);
                Ok(WokeBy::Exit)
            }
        }
    }

    /// Stops the process politely; nobody waits for that.
    fn stop(&self) {
        let (supervisor, caller) = (self.supervisor.clone(), Caller::Owner(self.owner));
        let handle = self.handle;
        drop(tokio::spawn(async move {
            let stopped = supervisor.stop(caller, handle, StopMode::Terminate, None).await;
            if let Err(refusal) = stopped {
                tracing::warn!(%refusal, handle = handle.shortened(), "a cancelled start lives on");
            }
        }));
    }
}

/// The entry, or head and tail of an ended process whose text does not fit.
async fn result(
    view: &ProcessView,
    snapshot: &Snapshot,
    woke_by: WokeBy,
    form: Form,
) -> Result<v1::StartResult, Refusal> {
    let page = page_at(view, snapshot, 0, form, &mut Room::of_reply()).await?;
    let origin = procd_protocol::OriginId::new(snapshot.record.origin.uuid());
    let mut result = v1::StartResult {
        page,
        origin: origin.ok_or(Refusal::Internal)?,
        woke_by: Open::Known(woke_by),
        truncated: false,
        head: None,
        tail: None,
        omitted_bytes: None,
    };
    if snapshot.is_terminal() && result.page.more {
        truncate(&mut result, view, form).await?;
    }
    Ok(result)
}

async fn truncate(
    result: &mut v1::StartResult,
    view: &ProcessView,
    form: Form,
) -> Result<(), Refusal> {
    let (head_limit, tail_limit) = procd_text::split_limit(form.limit);
    let first = Form { limit: head_limit, ..form };
    let head = page::content(&view.output, 0, true, first, Room::of_reply()).await;
    let head = head.map_err(|error| of_read(&error))?;
    let last = Form { limit: tail_limit, ..form };
    let shown = tail::with_head(&view.output, head, last).await;
    let shown = shown.map_err(|error| of_read(&error))?;
    let page = &mut result.page;
    page.output = None;
    page.next_cursor = page.total_bytes;
    page.more = false;
    page.eof = true;
    page.held_bytes = None;
    page.pending_line = None;
    page.artifact.end_cursor = page.total_bytes;
    result.truncated = true;
    result.omitted_bytes = Some(shown.omitted_bytes);
    result.head = Some(shown.head);
    result.tail = Some(shown.tail);
    Ok(())
}

/// The default of `limit_bytes` may not be above what a page holds.
const _: () = assert!(limits::LIMIT_BYTES_DEFAULT <= limits::LIMIT_BYTES_MAX);
