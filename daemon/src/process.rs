//! Processes: what the supervisor decides is done here, through the guardian. One task a process;
//! the only module that signals. Must not know the wire, records or sessions.
//!
//! ```text
//! StartRequest --prepare--> Plan --start--> materials -> guardian -> exec -> end -> empty -> reaped
//! ```

mod descriptors;
mod drive;
pub mod environment;
mod failure;
mod fence;
mod guard;
mod guardian;
mod input;
mod inspect;
mod limits;
mod lineage;
mod materials;
pub mod plan;
mod signals;
mod spawn;
mod tree;
mod watch;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use procd_core::Tier;
use procd_core::settings::Limits;
use procd_sys::cgroup::Payload;
use procd_sys::containment::Containment;
use procd_sys::guardian::Launched;
use procd_sys::image::ChildOptions;
use procd_sys::isolation::Isolation;

use crate::drain::Drains;
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{
    Lineage, OrderQueue, PlanFacts, Runner, Running, Signaller, StartContext, StartRequest,
    StdinMode,
};
use environment::EnvironmentOptions;
use guardian::GuardianLink;
use input::terminal::TerminalInput;
use input::{InputBudget, PipeInput, Stdin};
use inspect::TreeInspector;
use lineage::Trees;
use plan::{Ground, Plan};
use signals::SignalQueue;
use spawn::Start;

/// The shell of a text where there is one.
const BASH: &str = "/bin/bash";

/// What the configuration says of commands.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    /// The effective limits.
    pub limits: Arc<Limits>,
    /// How a start is isolated; `None` = none can be.
    pub isolation: Option<Isolation>,
    /// What commands find in their environment.
    pub environment: EnvironmentOptions,
    /// The shell of `command`; absent = /bin/bash if there, else /bin/sh.
    pub shell: Option<PathBuf>,
    /// What every child sets before its exec; the umask is the default one.
    pub child: ChildOptions,
    /// The state folder: the guard knows it, and temporary folders of commands are made in it.
    pub state_folder: PathBuf,
}

impl RunnerOptions {
    fn shell(&self) -> PathBuf {
        let bash = Path::new(BASH);
        match &self.shell {
            Some(shell) => shell.clone(),
            None if bash.exists() => bash.to_owned(),
            None => "/bin/sh".into(),
        }
    }
}

/// The runner of real commands.
#[derive(Debug)]
pub struct RealRunner {
    options: RwLock<Arc<RunnerOptions>>,
    containment: Containment,
    link: GuardianLink,
    drains: Arc<Drains>,
    input: Arc<InputBudget>,
    trees: Arc<Trees>,
}

impl RealRunner {
    /// Takes over what was made before the runtime. To be called on the control runtime.
    /// - `held`: the locks, for a guardian that has to be started anew.
    /// # Errors
    /// The guardian's link cannot be watched.
    pub fn new(
        options: RunnerOptions,
        containment: Containment,
        guardian: Launched,
        held: Vec<OwnedFd>,
        drains: Arc<Drains>,
    ) -> std::io::Result<Self> {
        let link = GuardianLink::start(containment.clone(), guardian, held)?;
        let input = Arc::new(InputBudget::new(options.limits.input_daemon_bytes));
        let trees = Arc::new(Trees::new(&containment));
        let leftovers = fence::leftovers(&options.state_folder.join(plan::SCRATCH));
        drop(tokio::task::spawn_blocking(move || {
            leftovers.iter().for_each(|it| fence::remove(it))
        }));
        let options = RwLock::new(Arc::new(options));
        Ok(Self { options, containment, link, drains, input, trees })
    }

    /// Other options, for what starts from now on.
    pub fn configure(&self, options: RunnerOptions) {
        self.input.set_max(options.limits.input_daemon_bytes);
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }

    fn options(&self) -> Arc<RunnerOptions> {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tier that commands get; `None` = no start is possible.
    #[must_use]
    pub const fn tier(&self) -> Option<Tier> {
        self.containment.tier()
    }

    /// The pid of the guardian, for operators; `None` while there is none.
    #[must_use]
    pub fn guardian_pid(&self) -> Option<i32> {
        self.link.pid()
    }
}

impl RealRunner {
    /// What clients can write to, or resize.
    fn stdin(&self, plan: &Plan) -> Option<Stdin> {
        let bytes_max = self.options().limits.input_process_bytes;
        let budget = Arc::clone(&self.input);
        let takes_input = plan.stdin == StdinMode::Pipe;
        if plan.tty.is_some() {
            let input = TerminalInput::new(budget, bytes_max, takes_input);
            return Some(Stdin::Terminal(input));
        }
        takes_input.then(|| Stdin::Pipe(PipeInput::new(budget, bytes_max)))
    }
}

impl Runner for RealRunner {
    type Plan = Plan;

    fn escaped(&self) -> Arc<AtomicU64> {
        self.link.escaped()
    }

    fn lineage(&self) -> Arc<dyn Lineage> {
        Arc::clone(&self.trees) as Arc<dyn Lineage>
    }

    async fn prepare(&self, request: &StartRequest) -> Result<(Plan, PlanFacts), Refusal> {
        let tier = match &self.containment {
            Containment::Cgroup(_) => Tier::Cgroup,
            Containment::Shim { .. } => Tier::Shim,
            Containment::Unavailable { reason } => {
                return Err(Refusal::Containment { message: reason.clone() });
            }
        };
        let payload = self.containment.payload();
        let controllers = payload.map(Payload::controllers).unwrap_or_default();
        let ground = Ground { tier, controllers };
        let options = self.options();
        if let Some(made) = plan::make_quickly(&options, ground, request) {
            return made;
        }
        let request = request.clone();
        let make = move || plan::make(&options, ground, &request);
        match tokio::task::spawn_blocking(make).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "bug: a preparation did not end");
                Err(Refusal::Internal)
            }
        }
    }

    fn start(&self, plan: Plan, context: StartContext) -> Running {
        let orders = Arc::new(OrderQueue::default());
        let inspector = Arc::new(TreeInspector::default());
        let (signaller, signals) = SignalQueue::new();
        let input = self.stdin(&plan);
        let running = Running {
            orders: Arc::clone(&orders),
            input: input.as_ref().map(Stdin::for_clients),
            signaller: Some(signaller as Arc<dyn Signaller>),
            inspector: inspector.clone(),
        };
        let start = Start {
            containment: self.containment.clone(),
            link: self.link.clone(),
            drains: Arc::clone(&self.drains),
            plan,
            writer: context.writer,
            reports: context.reports,
            orders,
            signals,
            input,
            inspector,
            trees: Arc::clone(&self.trees),
        };
        tokio::spawn(start.run());
        running
    }
}
