//! The first steps of a process: from the plan to the request for its start.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use procd_sys::cgroup::Leaf;
use procd_sys::cgroup::controllers::GroupLimits;
use procd_sys::containment::Containment;
use procd_sys::message;
use procd_sys::terminal::Terminal;
use tokio::io::unix::AsyncFd;

use super::drive::{Driver, Phase, Watchdog};
use super::fence::Scratch;
use super::guardian::{GuardianLink, News};
use super::input::Stdin;
use super::inspect::TreeInspector;
use super::lineage::{Grown, Trees, leaf_name};
use super::materials::{self, Hold, Materials, system_failure};
use super::plan::Plan;
use super::signals::SignalOrder;
use super::tree::{Group, Shimmed, Tree};
use super::watch::Watch;
use crate::drain::{Drains, OutputWriter, Streams};
use crate::lane::LaneReceiver;
use crate::supervisor::runner::{
    Order, OrderQueue, Report, ReportSender, SpawnCause, SpawnFailure,
};
use crate::watched::watched_both;

/// The named point of the taking.
const MATERIALS: &str = "spawn-materials";

/// A start under way.
pub(super) struct Start {
    pub(super) containment: Containment,
    pub(super) link: GuardianLink,
    pub(super) drains: Arc<Drains>,
    pub(super) plan: Plan,
    pub(super) writer: OutputWriter,
    pub(super) reports: ReportSender,
    pub(super) orders: Arc<OrderQueue>,
    pub(super) signals: LaneReceiver<SignalOrder>,
    pub(super) input: Option<Stdin>,
    pub(super) inspector: Arc<TreeInspector>,
    pub(super) trees: Arc<Trees>,
}

/// What is known of a process before its plan is used up.
struct Begun {
    key: u64,
    watchdog: Watchdog,
    grown: Grown,
}

/// Materials in the hands of the runtime.
struct Ready {
    descriptors: Vec<OwnedFd>,
    streams: Streams,
    terminal: Option<Arc<Terminal>>,
    tree: Tree,
    shim: Option<AsyncFd<OwnedFd>>,
    kind: message::Hold,
    scratch: Option<Scratch>,
}

impl Start {
    /// Up to the request for the start; the rest of its life is a task of its own, so that a process
    /// at rest does not keep the room that its start took.
    pub(super) async fn run(mut self) {
        let key = self.link.mint_key();
        let begun = Begun {
            key,
            watchdog: Watchdog::new(self.plan.watched, self.plan.cpu_seconds_max),
            grown: self.trees.grow(key, self.plan.may_connect),
        };
        let mut ready = match self.make_ready(key).await {
            Ok(ready) => ready,
            Err(report) => return self.give_up(report).await,
        };
        let descriptors = std::mem::take(&mut ready.descriptors);
        let news = self.link.ask_start(key, ready.kind, descriptors).await;
        tokio::spawn(Box::new(self.driver(begun, ready, news)).run());
    }

    fn driver(self, begun: Begun, ready: Ready, news: LaneReceiver<News>) -> Driver {
        let Begun { key, watchdog, grown } = begun;
        let Ready { descriptors: _, streams, terminal, tree, shim, kind: _, scratch } = ready;
        Driver {
            key,
            link: self.link,
            watch: Watch::new(news, shim),
            tree,
            phase: Phase::Starting { leader: None, aborted: false },
            drain: Some(self.drains.start(self.writer, streams)),
            reports: self.reports,
            orders: self.orders,
            input: self.input,
            terminal,
            signals: self.signals,
            named: std::collections::VecDeque::new(),
            inspector: self.inspector,
            pid: None,
            kill: None,
            is_reaped: false,
            asked: Vec::new(),
            refused: Vec::new(),
            grown,
            watchdog,
            _scratch: scratch,
        }
    }

    /// Takes the materials, unless a stop came first.
    async fn make_ready(&mut self, key: u64) -> Result<Ready, Report> {
        if self.is_aborted() {
            return Err(Report::Aborted);
        }
        let plan = std::mem::replace(&mut self.plan, Plan::used());
        let containment = self.containment.clone();
        let group = plan.group;
        let is_quick = materials::are_quick(&plan) && !crate::failpoint::is_armed(MATERIALS);
        let take = move || {
            crate::failpoint::hit(MATERIALS);
            Materials::take(plan, &containment, leaf_name(key))
        };
        // Two changes of threads take longer than the work.
        let taken = if is_quick { Ok(take()) } else { tokio::task::spawn_blocking(take).await };
        let materials = match taken {
            Ok(taken) => taken.map_err(Report::SpawnFailed)?,
            Err(error) => {
                tracing::error!(%error, "bug: the taking of materials did not end");
                let failure = SpawnFailure { cause: SpawnCause::Other, errno: 0 };
                return Err(Report::SpawnFailed(failure));
            }
        };
        let Materials { descriptors, streams, stdin, terminal, hold, scratch } = materials;
        let (leaf, kind) = (hold.leaf().map(Arc::clone), hold.kind());
        let result = if self.is_aborted() {
            Err(Report::Aborted)
        } else {
            self.watch_all(stdin, terminal.as_ref(), hold, group)
                .map_err(|error| Report::SpawnFailed(system_failure(&error)))
        };
        match result {
            Ok((tree, shim)) => {
                Ok(Ready { descriptors, streams, terminal, tree, shim, kind, scratch })
            }
            Err(report) => {
                remove_unused(leaf).await;
                Err(report)
            }
        }
    }

    fn watch_all(
        &self,
        stdin: Option<OwnedFd>,
        terminal: Option<&Arc<Terminal>>,
        hold: Hold,
        group: GroupLimits,
    ) -> std::io::Result<(Tree, Option<AsyncFd<OwnedFd>>)> {
        match (&self.input, stdin, terminal) {
            (Some(Stdin::Pipe(input)), Some(stdin), _) => input.attach(stdin)?,
            (Some(Stdin::Terminal(input)), _, Some(terminal)) => input.attach(terminal)?,
            (Some(Stdin::Pipe(_) | Stdin::Terminal(_)) | None, _, _) => {}
        }
        Ok(match hold {
            Hold::Leaf(leaf) => (Tree::Group(Group::new(leaf, group)), None),
            Hold::Shim(socket) => (Tree::Shim(Shimmed::default()), Some(watched_both(socket)?)),
            Hold::Init { socket, leaf, isolation: _ } => {
                let shim = Shimmed {
                    leaf: leaf.map(|leaf| Group::new(leaf, group)),
                    is_init: true,
                    ..Shimmed::default()
                };
                (Tree::Shim(shim), Some(watched_both(socket)?))
            }
        })
    }

    /// Whether a stop has come; other orders that make sense this early are carried out.
    fn is_aborted(&self) -> bool {
        while let Some(order) = self.orders.try_next() {
            match order {
                Order::AbortSpawn => return true,
                Order::CloseInput => {
                    if let Some(input) = &self.input {
                        input.shut_down();
                    }
                }
                Order::Signal(..) | Order::Kill(_) | Order::TerminateLeftovers => {
                    tracing::error!(?order, "bug: an order before the spawn");
                }
            }
        }
        false
    }

    /// Nothing was started: the output is complete, and empty.
    async fn give_up(self, report: Report) {
        if let Some(input) = &self.input {
            input.close();
        }
        self.drains.start(self.writer, Streams::default()).finish().await;
        self.reports.send(report).await;
    }
}

/// A leaf nobody was cloned into.
async fn remove_unused(leaf: Option<Arc<Leaf>>) {
    let Some(leaf) = leaf else { return };
    match tokio::task::spawn_blocking(move || leaf.remove()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "an unused control group is left"),
        Err(error) => tracing::error!(%error, "bug: a removal did not end"),
    }
}
