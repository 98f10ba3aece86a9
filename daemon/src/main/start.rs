//! The order of the start: configuration, locks, log, guardian, socket; then the runtimes.
//!
//! Two daemons that start at once meet at the socket's lock first: the loser leaves as soon as
//! the winner answers, instead of waiting for a state folder that it will never get. The
//! guardian is made before any thread exists.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use procd::config::places::{self, Environment};
use procd::config::{self, Config, ConfigError, Live};
use procd::drain::{Budgets, Drains};
use procd::notify::{self, Notifier};
use procd::process::environment::EnvironmentOptions;
use procd::process::{RealRunner, RunnerOptions};
use procd::{Parts, lingering, socket};
use procd_core::Tier;
use procd_store::folder::StateFolder;
use procd_sys::containment::{Containment, ContainmentOptions, Established, Mode};
use procd_sys::guardian::Launched;
use procd_sys::image::ChildOptions;
use procd_sys::isolation::Isolation;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::descriptors::raise_open_files;
use crate::logging;
use crate::private::{Announcement, LogFile, leave_session};

/// How long an orphaned guardian of an earlier daemon may take to finish.
const ORPHAN: Duration = Duration::from_secs(5);
/// Threads that drain, at most.
const DRAIN_THREADS_MAX: usize = 4;
/// How long blocking work may hold up the exit.
const LAST_WORK: Duration = Duration::from_secs(1);
/// How long the guardian may take to end after its daemon's work.
const GUARDIAN_END: Duration = Duration::from_secs(1);

type Failed = Box<dyn Error + Send + Sync>;

/// A step of the start that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {deed}")]
struct StepError {
    deed: &'static str,
    source: io::Error,
}

fn step<T>(deed: &'static str, result: io::Result<T>) -> Result<T, StepError> {
    result.map_err(|source| StepError { deed, source })
}

/// Starts the daemon and runs it to its end.
/// # Errors
/// What failed, with its causes.
pub(crate) fn run(arguments: Arguments, announcement: &Announcement) -> Result<(), Failed> {
    // Whatever we were given: nothing of ours is ever open to others.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let environment = Environment::of_process();
    let source = Source::new(&arguments, &environment)?;
    let config = source.load()?;
    if arguments.check {
        logging::print(&config.to_text());
        return Ok(());
    }
    let uid = rustix::process::geteuid().as_raw();
    let socket_path = match &arguments.socket {
        Some(path) => places::checked_socket_path(std::path::absolute(path)?)?,
        None => places::socket_path(&environment, uid)?,
    };
    let state_path = state_path(&arguments, &environment)?;
    step("enter `/`", std::env::set_current_dir("/"))?;
    let handed = handed_over(&environment)?;
    let locked = socket::lock(&socket_path, ORPHAN, handed.is_some())?;
    let folder = Arc::new(StateFolder::open(&state_path, ORPHAN)?);
    start_logging(&config, arguments.private, folder.path())?;
    let instance_id = Uuid::new_v4();
    let ground = ground(&config, &folder, instance_id, locked.lock().as_fd())?;
    let socket = match handed {
        Some(handed) => locked.adopt(handed)?,
        None => locked.bind()?,
    };
    let drains = Arc::new(step("start the drains", Drains::new(drain_threads()))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = step("start the control runtime", runtime)?;
    let budgets = budgets(&config, &folder);
    let places = drains.places();
    let announcement = announcement.clone();
    let notifier = Notifier::new(environment.get("NOTIFY_SOCKET"));
    let watchdog =
        notify::watchdog(environment.get("WATCHDOG_USEC"), environment.get("WATCHDOG_PID"));
    let Ground { containment, isolation, guardian, held, open_files_soft } = ground;
    let ended = runtime.block_on(async {
        let options_of = options_in(folder.path(), isolation, open_files_soft);
        let tier = containment.tier();
        let guarantees = guarantees(tier, isolation);
        let options = options_of(&config);
        let runner = RealRunner::new(options, containment.clone(), guardian, held, drains);
        let runner = Arc::new(step("watch the guardian", runner)?);
        let settings = live(config, source, &runner, &budgets, options_of);
        let parts = Parts {
            settings: Arc::new(settings),
            notifier,
            watchdog,
            lingering_hint: lingering_hint(uid),
            socket,
            folder,
            tier,
            guarantees,
            warnings: warnings(&containment),
            budgets,
            drains: Some(places),
            instance_id,
            boot_id: boot_id(),
            is_private: arguments.private,
            ready: Box::new(move || announcement.ready()),
        };
        procd::run(runner, parts).await.map_err(Failed::from)
    });
    runtime.shutdown_timeout(LAST_WORK);
    // With the runtime the link to the guardian is gone, and so it ends. What still lives then is
    // the next start's to end.
    if !containment.finish(GUARDIAN_END) {
        tracing::warn!("the guardian or a control group of this daemon stays behind");
    }
    ended
}

fn state_path(arguments: &Arguments, environment: &Environment) -> Result<PathBuf, Failed> {
    Ok(match &arguments.state_dir {
        Some(path) => std::path::absolute(path)?,
        None => places::state_folder(environment)?,
    })
}

/// Where the configuration is read from, at the start and again.
struct Source {
    file: Option<(PathBuf, bool)>,
    environment: Environment,
    flags: Vec<String>,
}

impl Source {
    fn new(arguments: &Arguments, environment: &Environment) -> io::Result<Self> {
        let file = match &arguments.config {
            // The daemon's own folder is `/` before the file is read again.
            Some(named) => Some((std::path::absolute(named)?, true)),
            None => places::config_file(environment),
        };
        Ok(Self { file, environment: environment.clone(), flags: arguments.set.clone() })
    }

    fn load(&self) -> Result<Config, ConfigError> {
        let file = self.file.as_ref().map(|(path, must_exist)| (path.as_path(), *must_exist));
        config::load(file, &self.environment, &self.flags)
    }
}

/// The configuration in force, and how a new one reaches those who keep a copy.
fn live(
    config: Config,
    source: Source,
    runner: &Arc<RealRunner>,
    budgets: &Budgets,
    options_of: impl Fn(&Config) -> RunnerOptions + Send + Sync + 'static,
) -> Live {
    let (runner, budgets) = (runner.clone(), budgets.clone());
    let apply = move |config: &Config| {
        runner.configure(options_of(config));
        budgets.memory.set_max(config.limits.memory_daemon_bytes);
        budgets.spool.set_max(config.limits.spool_daemon_bytes);
    };
    Live::new(config, Box::new(move || source.load()), Box::new(apply))
}

/// The socket that a service manager made, if one did.
fn handed_over(environment: &Environment) -> Result<Option<OwnedFd>, StepError> {
    let word = |name| environment.get(name).and_then(|word| word.to_str());
    let taken = procd_sys::inherited::listening_socket(word("LISTEN_PID"), word("LISTEN_FDS"));
    step("take over the socket of the service manager", taken)
}

/// That everything ends with the login: logged once, shown by `daemon/status`.
fn lingering_hint(uid: u32) -> Option<String> {
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hint = lingering::hint(Path::new("/"), uid, &group)?;
    tracing::warn!("{hint}");
    Some(hint)
}

fn start_logging(config: &Config, is_private: bool, folder: &Path) -> Result<(), Failed> {
    if is_private {
        // A leader of a process group cannot leave its session: then a hang-up reaches it.
        let left = leave_session();
        logging::start(&config.choices, step("open the log", LogFile::open(folder))?);
        if let Err(error) = left {
            tracing::warn!(%error, "this daemon stays in the session of its terminal");
        }
    } else {
        logging::start(&config.choices, io::stderr);
    }
    for lowered in &config.lowered {
        tracing::info!(
            key = lowered.key,
            value = lowered.value,
            because = lowered.because,
            "lowered"
        );
    }
    Ok(())
}

/// What commands stand on.
struct Ground {
    containment: Containment,
    isolation: Option<Isolation>,
    guardian: Launched,
    held: Vec<OwnedFd>,
    open_files_soft: Option<u64>,
}

/// Finds the tier and launches the guardian, which holds both locks as long as it lives.
fn ground(
    config: &Config,
    folder: &StateFolder,
    instance_id: Uuid,
    socket_lock: std::os::fd::BorrowedFd<'_>,
) -> Result<Ground, Failed> {
    let choices = &config.choices;
    let Established { containment, swept, isolation } =
        procd_sys::containment::establish(&ContainmentOptions {
            mode: match choices.containment {
                config::Containment::Auto => Mode::Auto,
                config::Containment::Cgroup => Mode::Cgroup,
                config::Containment::Shim => Mode::Shim,
            },
            require_atomic: choices.require_atomic,
            cgroup_root: choices.cgroup_root.clone(),
            folder_id: folder.folder_id().to_string(),
            instance: instance_id.to_string(),
        });
    if !(swept.removed.is_empty() && swept.left.is_empty()) {
        tracing::info!(?swept, "what an earlier daemon had left was ended");
    }
    if !choices.no_new_privileges && containment.tier() == Some(Tier::Shim) {
        return Err(Box::new(config::ConfigError::Conflict {
            first: "no_new_privileges",
            second: "containment",
            message: "off, it needs tier 1, and this machine gives tier 2",
        }));
    }
    if let Err(reason) = &isolation {
        tracing::info!(reason, "no start can be isolated");
    }
    let isolation = isolation.ok();
    let locks = [folder.lock_fd(), socket_lock];
    let guardian = step("start the guardian", procd_sys::guardian::launch(&containment, &locks))?;
    let held = locks.iter().map(|lock| lock.try_clone_to_owned()).collect();
    let held = step("keep the locks for the next guardian", held)?;
    let open_files_soft = raise_open_files(&config.limits);
    Ok(Ground { containment, isolation, guardian, held, open_files_soft })
}

/// What a configuration means for commands, here and now.
fn options_in(
    state_folder: &Path,
    isolation: Option<Isolation>,
    open_files_soft: Option<u64>,
) -> impl Fn(&Config) -> RunnerOptions + Send + Sync + 'static {
    let folder = state_folder.to_owned();
    move |config| runner_options(config, isolation, open_files_soft, &folder)
}

fn runner_options(
    config: &Config,
    isolation: Option<Isolation>,
    open_files_soft: Option<u64>,
    state_folder: &Path,
) -> RunnerOptions {
    let choices = &config.choices;
    RunnerOptions {
        isolation,
        limits: Arc::new(config.limits.clone()),
        environment: EnvironmentOptions {
            inherited: std::env::vars_os().collect(),
            pass: choices.env_pass.clone(),
            block: choices.env_block.clone(),
            allow: choices.env_allow.clone(),
        },
        shell: choices.shell.clone(),
        child: ChildOptions {
            umask: choices.child_umask,
            open_files_soft,
            no_new_privileges: choices.no_new_privileges,
            nice: (choices.child_nice != 0).then_some(choices.child_nice),
            oom_score_adj: choices.child_oom_score_adj,
            terminal: false,
            fenced: false,
            limits: procd_sys::image::ChildLimits::default(),
        },
        state_folder: state_folder.to_owned(),
    }
}

fn budgets(config: &Config, folder: &StateFolder) -> Budgets {
    let spool = config.limits.spool_daemon_bytes;
    Budgets {
        memory: procd_store::budget::Budget::new(config.limits.memory_daemon_bytes),
        spool: procd_store::budget::Budget::beside_ballast(spool, folder.ballast_path()),
    }
}

fn drain_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(DRAIN_THREADS_MAX))
}

/// What a tier guarantees. Source: spec, containment, *Tiers*.
fn guarantees(tier: Option<Tier>, isolation: Option<Isolation>) -> Vec<String> {
    let isolated = "a process started with `isolate` sees no other, and the kernel ends it as one";
    let sentences: &[&str] = match tier {
        Some(Tier::Cgroup) => &[
            "each process has a control group of its own, joined before its first instruction",
            "the kernel ends the whole tree at once, and its emptiness is proven by the kernel",
        ],
        Some(Tier::Shim) => &[
            "each process has a shim that adopts and ends every descendant, however it detaches",
            "the tree is proven empty when the shim has no child left",
        ],
        // Of single processes only.
        Some(Tier::Pidns) | None => &[],
    };
    let isolated = isolation.and(tier).map(|_| isolated);
    sentences.iter().copied().chain(isolated).map(str::to_owned).collect()
}

/// What a person should know. The reasons name places of this machine: they go to the log.
fn warnings(containment: &Containment) -> Vec<String> {
    match containment {
        Containment::Cgroup(_) => Vec::new(),
        Containment::Shim { reason } => {
            tracing::info!(reason, "trees are held by shims");
            vec![
                "no delegated control groups: trees are held together by shims (tier 2)".to_owned(),
            ]
        }
        Containment::Unavailable { reason } => {
            tracing::error!(reason, "no containment as required: every start is refused");
            vec!["no containment as required: every start is refused".to_owned()]
        }
    }
}

/// The boot of this machine; a random one where it cannot be read, so that it fits no other.
fn boot_id() -> Uuid {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|text| Uuid::try_parse(text.trim()).ok())
        .unwrap_or_else(Uuid::new_v4)
}
