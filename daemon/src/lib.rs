//! The supervisor daemon. This root wires tasks and does nothing else.
//!
//! A module imports only modules lower in this list; `clock`, `config`, `failpoint`, `lane` and
//! `metrics` aside:
//! `socket`, `connection`, `request`, `session`, `supervisor`, `recovery`, `process`, `drain`.
//!
//! ```text
//! main: arguments, configuration, locks, guardian, socket; then, on the control runtime, `run`:
//!     accept and keep the socket   (answers hello and daemon/status from here on)
//!     restore -> supervisor        (answers everything from here on, says ready)
//!     a wish to end -> supervisor's shutdown -> waits come back -> sockets close
//! ```
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use procd_core::Tier;
use procd_core::settings::Limits;
use procd_store::folder::StateFolder;
use procd_store::log::CommitLog;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The target of log lines that are never left out: why an operator looked at something.
pub const AUDIT: &str = "procd::audit";

pub mod clock;
pub mod config;
pub mod connection;
pub mod drain;
pub mod failpoint;
pub mod lane;
pub mod metrics;
pub mod process;
pub mod recovery;
pub mod request;
pub mod session;
pub mod socket;
pub mod supervisor;

#[path = "lib/accept.rs"]
mod accept;
#[path = "lib/idle.rs"]
mod idle;
#[path = "lib/lingering.rs"]
pub mod lingering;
#[path = "lib/notify.rs"]
pub mod notify;
#[path = "lib/signals.rs"]
mod signals;
#[path = "lib/watched.rs"]
mod watched;

use clock::Clock;
use config::Live;
use drain::Budgets;
use metrics::METRICS;
use notify::Notifier;
use request::{Daemon, Facts, RestoreFacts, Shutdown, Stage};
use signals::Asked;
use supervisor::runner::Runner;
use supervisor::view::Totals;
use supervisor::{Beat, StopAllOutcome, Supervisor};

/// How long the sockets may take to close at the end.
const CLOSING: Duration = Duration::from_secs(3);
/// How long the supervisor may take to put away its last records and spools.
const PUTTING_AWAY: Duration = Duration::from_secs(5);
/// Between two words on what the daemon does, without a watchdog.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What the daemon is made of. Locks are held, the socket is bound, the guardian runs.
pub struct Parts {
    /// The configuration in force.
    pub settings: Arc<Live>,
    /// The service manager.
    pub notifier: Notifier,
    /// How often it wants to hear that the supervisor works.
    pub watchdog: Option<Duration>,
    /// That everything ends with the login, where that is so.
    pub lingering_hint: Option<String>,
    /// The socket with its lock.
    pub socket: socket::Bound,
    /// The state folder, locked.
    pub folder: Arc<StateFolder>,
    /// How trees are held together here; none = every start is refused.
    pub tier: Option<Tier>,
    /// What the tier guarantees, a sentence each.
    pub guarantees: Vec<String>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// The limits that all outputs share.
    pub budgets: Budgets,
    /// The threads that drain: whoever waits for output waits there.
    pub drains: Option<drain::Places>,
    /// This run.
    pub instance_id: Uuid,
    /// This boot.
    pub boot_id: Uuid,
    /// Whether it ends by itself when nobody needs it.
    pub is_private: bool,
    /// Called once, when everything is answered.
    pub ready: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// A daemon that ended otherwise than it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Some task of the start could not be made.
    #[error("cannot {deed}")]
    Start {
        /// What was to be done.
        deed: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The state folder cannot be read.
    #[error("cannot restore the state folder")]
    Restore(#[source] procd_store::StoreError),
    /// A task panicked.
    #[error("internal error: {0} panicked")]
    Bug(&'static str),
    /// Its socket or state folder was taken away.
    #[error("{0}")]
    Displaced(String),
    /// Trees that were not proven empty; their records stay `running`.
    #[error("{0} processes were not proven ended; the next start marks them lost")]
    Unfinished(usize),
}

/// Runs the daemon until it is asked to end. The current runtime is the control runtime.
/// # Errors
/// [`RunError`]; without one the end was orderly.
pub async fn run<R: Runner>(runner: Arc<R>, parts: Parts) -> Result<(), RunError> {
    let mut signals = signals::Signals::new()
        .map_err(|source| RunError::Start { deed: "listen to signals", source })?;
    let lineage = runner.lineage();
    let (stage_sender, stage) = watch::channel(Stage::Restoring(RestoreFacts::default()));
    let (wish, mut wishes) = mpsc::channel(1);
    let daemon = Arc::new(Daemon {
        facts: facts(&parts, runner.escaped()),
        clock: Clock,
        started: Clock.monotonic(),
        stage,
        shutdown: wish,
        ending: CancellationToken::new(),
        connections: Arc::default(),
        drains: parts.drains.clone(),
        settings: parts.settings.clone(),
    });
    let beat = beat(&parts.notifier, parts.watchdog);
    let Parts { socket, folder, budgets, boot_id, is_private, ready, notifier, .. } = parts;
    let mut accepting = accept::start(socket, folder.clone(), daemon.clone(), lineage)
        .map_err(|source| RunError::Start { deed: "watch the socket", source })?;
    let limits = Arc::new(daemon.limits());
    let restoring = restore(runner, limits, folder, budgets, boot_id, beat);
    let progress = || format!("restoring, {} records read", METRICS.restored.get());
    let restoring = notifier.while_busy(progress, restoring);
    let restored = tokio::select! {
        restored = restoring => restored?,
        () = signals.next_end() => {
            notifier.tell("STOPPING=1");
            tracing::info!("asked to end before the restore was over");
            return close(&daemon, accepting.tasks).await;
        }
    };
    let Serving { supervisor, task, facts } = restored;
    // Sending fails only when nobody looks any more.
    drop(stage_sender.send(Stage::Serving(supervisor.clone(), Arc::new(facts))));
    tracing::info!("serving");
    ready();
    notifier.ready();
    let private_exit = daemon.settings.current().choices.private_exit;
    let idle = idle::watch(&daemon, &supervisor, is_private, private_exit);
    let (wish, displaced) = tokio::select! {
        () = serve_signals(&mut signals, &daemon, &notifier) => (Shutdown { grace: None }, None),
        wish = wishes.recv() => (wish.unwrap_or(Shutdown { grace: None }), None),
        () = idle => (Shutdown { grace: None }, None),
        reason = &mut accepting.displaced => {
            (Shutdown { grace: None }, Some(reason.unwrap_or_else(|_| "accepting ended".to_owned())))
        }
    };
    if let Some(reason) = &displaced {
        tracing::error!(reason, "the daemon ends");
    }
    notifier.tell("STOPPING=1\nSTATUS=stopping every process");
    let stopping = shut_down(&supervisor, &mut signals, wish);
    let outcome = notifier.while_busy(|| "stopping every process".to_owned(), stopping).await;
    close(&daemon, accepting.tasks).await?;
    drop((supervisor, stage_sender, daemon));
    if tokio::time::timeout(PUTTING_AWAY, task).await.is_err() {
        tracing::error!("records and spools were not all put away in time");
    }
    match (displaced, outcome.failures.len()) {
        (Some(reason), _) => Err(RunError::Displaced(reason)),
        (None, 0) => Ok(()),
        (None, unfinished) => Err(RunError::Unfinished(unfinished)),
    }
}

/// Serves SIGHUP until a signal asks for the end.
async fn serve_signals(signals: &mut signals::Signals, daemon: &Daemon, notifier: &Notifier) {
    while signals.next().await == Asked::Reload {
        notifier.reloading();
        // What became of it is in the log.
        drop(daemon.reload().await);
        notifier.ready();
    }
}

/// The supervisor's sign of life: it feeds the watchdog, and says what runs.
fn beat(notifier: &Notifier, watchdog: Option<Duration>) -> Option<Beat> {
    let notifier = notifier.clone();
    notifier.is_heard().then(|| Beat {
        every: watchdog.unwrap_or(TELL_EVERY).min(TELL_EVERY),
        tell: Box::new(move |totals| {
            notifier.tell(&format!("WATCHDOG=1\nSTATUS={}", status_line(totals)));
        }),
    })
}

fn status_line(totals: &Totals) -> String {
    let live = |state: &procd_core::ProcessState| !state.is_terminal();
    let count = |is_live: bool| -> u64 {
        totals.iter().filter(|(state, _)| live(state) == is_live).map(|(_, count)| count).sum()
    };
    format!("serving: {} processes run, {} have ended", count(true), count(false))
}

fn facts(parts: &Parts, escaped: Arc<AtomicU64>) -> Facts {
    Facts {
        tier: parts.tier,
        guarantees: parts.guarantees.clone(),
        instance_id: parts.instance_id,
        boot_id: parts.boot_id,
        warnings: parts.warnings.clone(),
        lingering_hint: parts.lingering_hint.clone(),
        state_format: u32::try_from(procd_store::folder::FORMAT).unwrap_or(u32::MAX),
        escaped,
    }
}

/// A daemon that has read back its state.
struct Serving {
    supervisor: Supervisor,
    task: JoinHandle<()>,
    facts: RestoreFacts,
}

/// Reads the state folder back and starts the supervisor with it.
async fn restore<R: Runner>(
    runner: Arc<R>,
    limits: Arc<Limits>,
    folder: Arc<StateFolder>,
    budgets: Budgets,
    boot_id: Uuid,
    beat: Option<Beat>,
) -> Result<Serving, RunError> {
    let reading = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || {
            let begun = Clock.monotonic();
            let (log, replay) = CommitLog::open(&folder)?;
            log.time_syncs(|| Clock.monotonic().into_std());
            let read = || METRICS.restored.add(1);
            let restored = procd_store::scan::load_counting(&folder, replay, &read);
            log.adopt(&restored);
            Ok((log, recovery::recover(&folder, restored, boot_id, Clock, begun)))
        }
    });
    let read = reading.await.map_err(|_panic| RunError::Bug("the restore"))?;
    let (log, recovered) = read.map_err(RunError::Restore)?;
    let facts = restore_facts(&recovered);
    let parts = supervisor::Parts { limits, folder, log, recovered, boot_id, budgets, beat };
    let spawned = supervisor::spawn(runner, parts);
    // The end of the task is the end of the restore too: then nothing more will come.
    drop(spawned.restored.await);
    Ok(Serving { supervisor: spawned.supervisor, task: spawned.task, facts })
}

fn restore_facts(recovered: &recovery::Recovered) -> RestoreFacts {
    let lost = recovered.processes.iter().filter(|process| process.is_lost);
    let report = &recovered.report;
    RestoreFacts {
        records: u64::try_from(recovered.processes.len()).unwrap_or(u64::MAX),
        sessions: report.sessions,
        lost: lost.map(|process| process.record.process_id).collect(),
        damage: report
            .damage
            .iter()
            .map(|damage| (damage.what.clone(), damage.reason.clone()))
            .collect(),
        took: report.duration,
    }
}

/// The supervisor's shutdown; a further signal skips the rest of its grace.
async fn shut_down(
    supervisor: &Supervisor,
    signals: &mut signals::Signals,
    wish: Shutdown,
) -> StopAllOutcome {
    let ending = supervisor.shutdown(wish.grace);
    tokio::pin!(ending);
    loop {
        tokio::select! {
            outcome = &mut ending => {
                for failure in &outcome.failures {
                    let handle = failure.process_id.shortened();
                    tracing::error!(handle, "a process was not proven ended");
                }
                return outcome;
            }
            () = signals.next_end() => {
                tracing::info!("a second signal: the rest of the grace is skipped");
                supervisor.hasten_shutdown().await;
            }
        }
    }
}

/// Lets the waits come back, then closes the sockets.
async fn close(daemon: &Daemon, accepting: JoinHandle<()>) -> Result<(), RunError> {
    daemon.ending.cancel();
    match tokio::time::timeout(CLOSING, accepting).await {
        Ok(Ok(())) => {}
        Ok(Err(_panic)) => return Err(RunError::Bug("the accepting task")),
        Err(_elapsed) => tracing::warn!("some connections did not close in time"),
    }
    Ok(())
}
