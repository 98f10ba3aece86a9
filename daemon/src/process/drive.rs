//! One process from its start request to its end: the only place that signals, and that knows
//! when a tree is empty.
//!
//! ```text
//! Starting --Executed--> Running --Ended--> Over --proven empty--> drained, reaped, told
//!    |  \--(aborted) Executed--> Aborting --Ended--^
//!    \--Failed, DiedEarly-----------------> told once everything of it is gone
//! ```

mod closing;
mod signals;
mod waiting;
mod watchdog;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procd_core::LeaderEnd;
use procd_core::life::{Request, TreeSignal};
use procd_store::record::SignalError;
use procd_sys::message::{self, Tag, Target};
use procd_sys::terminal::Terminal;
use procd_sys::{Sent, Signalled, names};
use tokio::time::Instant;

use super::failure;
use super::fence::Scratch;
use super::guardian::GuardianLink;
use super::input::Stdin;
use super::inspect::{Place, TreeInspector};
use super::lineage::Grown;
use super::signals::SignalOrder;
use super::tree::{Shimmed, Tree, sigterm};
use super::watch::{Seen, TAG_LEFTOVERS, TAG_NAMED, TAG_NONE, Watch, request_of, tag_of};
use crate::clock::Clock;
use crate::drain::DrainTask;
use crate::lane::LaneReceiver;
use crate::supervisor::runner::{LossCause, Order, OrderQueue, Report, ReportSender, SpawnFailure};

const SIGINT: i32 = rustix::process::Signal::INT.as_raw();
const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

use waiting::{Event, changed, of};
pub(super) use watchdog::Watchdog;

/// A killed tree that is not empty is complained of this often.
const COMPLAIN_EACH: Duration = Duration::from_secs(10);
/// How long the end of a leader waits for what it wrote.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);
/// Between two writes of a kill: first and longest.
const KILL_PAUSE_FIRST: Duration = Duration::from_millis(20);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The exec is not answered.
    Starting { leader: Option<i32>, aborted: bool },
    /// It could not exec; the shim is not gone yet.
    Failing(SpawnFailure),
    /// Told as spawned.
    Running { leader: i32 },
    /// Its exec and an abort crossed: killed, not told. Its end decides which was first.
    Aborting { leader: i32 },
    /// It died before its exec, not reaped.
    Unstarted { aborted: bool, ended: bool },
    /// The leader ended and that was told.
    Over,
    /// The leader ended by the abort.
    Aborted,
}

/// A kill under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillClock {
    since: Instant,
    again_at: Instant,
    pause: Duration,
    complain_at: Instant,
}

/// Why the observation of a tree ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Empty,
    Failed(SpawnFailure),
    Lost(LossCause),
}

pub(super) struct Driver {
    pub(super) key: u64,
    pub(super) link: GuardianLink,
    pub(super) watch: Watch,
    pub(super) tree: Tree,
    pub(super) phase: Phase,
    pub(super) drain: Option<DrainTask>,
    pub(super) reports: ReportSender,
    pub(super) orders: Arc<OrderQueue>,
    pub(super) input: Option<Stdin>,
    /// Held until the tree is empty, and with it everything that was written to it.
    pub(super) terminal: Option<Arc<Terminal>>,
    pub(super) signals: LaneReceiver<SignalOrder>,
    /// Named signals that are not answered.
    pub(super) named: VecDeque<SignalOrder>,
    pub(super) inspector: Arc<TreeInspector>,
    /// The leader, once it exists, and also when it has ended.
    pub(super) pid: Option<i32>,
    pub(super) kill: Option<KillClock>,
    /// The guardian saw the group empty at the leader's end and reaped it at once.
    pub(super) is_reaped: bool,
    /// Requests whose signal went out and that are not answered.
    pub(super) asked: Vec<Request>,
    /// What members refused, by the tag of the signal.
    pub(super) refused: Vec<(Tag, SignalError)>,
    /// Counts among the trees of this daemon until its end is told.
    pub(super) grown: Grown,
    /// Its limits that are held by looking.
    pub(super) watchdog: Watchdog,
    /// Removed when its tree is gone.
    pub(super) _scratch: Option<Scratch>,
}

impl Driver {
    /// Whatever is not waited in for long has its place on the heap while it lasts: a process at
    /// rest keeps room for its largest step otherwise.
    pub(super) async fn run(mut self: Box<Self>) {
        let outcome = self.observe().await;
        match outcome {
            Outcome::Empty => Box::pin(self.close()).await,
            Outcome::Failed(failure) => Box::pin(self.close_failed(failure)).await,
            Outcome::Lost(cause) => Box::pin(self.close_lost(cause)).await,
        }
    }

    async fn observe(&mut self) -> Outcome {
        loop {
            let is_over = self.is_over();
            if is_over && self.is_group_empty() {
                Box::pin(self.withhold()).await;
                return Outcome::Empty;
            }
            let due = self.kill.map(|kill| kill.again_at.min(kill.complain_at));
            let due = due.map(|due| Box::pin(tokio::time::sleep_until(due)));
            let change = (is_over || self.is_being_killed())
                .then(|| Box::pin(changed(&mut self.tree, is_over)));
            let look = (!is_over && self.watchdog.is_on())
                .then(|| Box::pin(self.watchdog.look(&self.inspector)));
            let event = tokio::select! {
                biased;
                seen = self.watch.next() => Event::Seen(seen),
                order = self.orders.next() => Event::Order(order),
                Some(order) = self.signals.recv() => Event::Named(order),
                () = of(due) => Event::KillDue,
                () = of(change) => continue,
                look = of(look) => Event::Look(look),
            };
            if let Some(outcome) = Box::pin(self.handle(event)).await {
                return outcome;
            }
        }
    }

    async fn handle(&mut self, event: Event) -> Option<Outcome> {
        match event {
            Event::Seen(seen) => return self.on_seen(seen).await,
            Event::Order(order) => self.on_order(order).await,
            Event::Named(order) => self.on_named(order).await,
            Event::KillDue => self.on_kill_due().await,
            Event::Look(look) => self.on_look(look).await,
        }
        None
    }

    /// In a test's build a killed tree can be taken for unproven so long; what follows is as if it
    /// were. Nothing else.
    async fn withhold(&mut self) {
        let Some(ms) = crate::failpoint::value("tree-proof-withheld-ms") else { return };
        while let Some(kill) = self.kill {
            let end = kill.since + Duration::from_millis(ms);
            if Clock.monotonic() >= end {
                return;
            }
            tokio::time::sleep_until(end.min(kill.complain_at)).await;
            self.on_kill_due().await;
        }
    }

    const fn is_being_killed(&self) -> bool {
        match &self.tree {
            Tree::Group(group) => group.is_being_killed(),
            Tree::Shim(_) => false,
        }
    }

    const fn is_over(&self) -> bool {
        match self.phase {
            Phase::Over | Phase::Aborted | Phase::Unstarted { ended: true, .. } => true,
            Phase::Starting { .. }
            | Phase::Failing(_)
            | Phase::Running { .. }
            | Phase::Aborting { .. }
            | Phase::Unstarted { ended: false, .. } => false,
        }
    }

    /// Tier 1's proof; tier 2's comes from the shim.
    fn is_group_empty(&mut self) -> bool {
        match &mut self.tree {
            Tree::Group(group) => group.prove_empty(),
            Tree::Shim(_) => false,
        }
    }

    // What happens.

    async fn on_seen(&mut self, seen: Seen) -> Option<Outcome> {
        match seen {
            Seen::Started { pid } => self.on_started(pid).await,
            Seen::ShimStarted { pid } => {
                if let Tree::Shim(shim) = &mut self.tree {
                    shim.pid = Some(pid);
                    self.grown.shim_is(pid);
                }
                self.show();
            }
            Seen::Executed => self.on_executed().await,
            Seen::Failed { stage, errno, gone } => {
                let is_group = matches!(self.tree, Tree::Group(_));
                let failure = failure::of(stage, errno, is_group);
                if gone {
                    return Some(Outcome::Failed(failure));
                }
                self.phase = Phase::Failing(failure);
            }
            Seen::DiedEarly => {
                let aborted = matches!(self.phase, Phase::Starting { aborted: true, .. });
                self.phase = Phase::Unstarted { aborted, ended: false };
            }
            Seen::Ended { end, leftovers } => self.on_ended(end, leftovers).await,
            Seen::Reached { tag: TAG_NAMED, met, .. } => self.on_named_reached(met).await,
            Seen::Reached { tag, alive, met } => {
                self.on_reached(tag, met).await;
                self.answer(tag, alive).await;
            }
            Seen::Reaped => self.on_reaped(),
            Seen::Empty => {
                if let Tree::Shim(shim) = &mut self.tree {
                    shim.is_empty = true;
                    // That is the proof, but for an init: the kernel ends what is left with it.
                    if !shim.is_init && self.is_over() {
                        self.withhold().await;
                        return Some(Outcome::Empty);
                    }
                }
            }
            Seen::ShimGone { clean } => return Some(self.on_shim_gone(clean).await),
            Seen::GuardianLost => return Some(Outcome::Lost(LossCause::GuardianLost)),
            Seen::GuardianMissing => return Some(Outcome::Failed(failure::NO_GUARDIAN)),
        }
        None
    }

    async fn on_started(&mut self, pid: i32) {
        let Phase::Starting { leader, aborted } = &mut self.phase else { return };
        *leader = Some(pid);
        let aborted = *aborted;
        self.pid = Some(pid);
        self.show();
        if aborted {
            self.kill_tree(None).await;
        }
    }

    async fn on_executed(&mut self) {
        match self.phase {
            Phase::Starting { leader: Some(leader), aborted: false } => {
                self.phase = Phase::Running { leader };
                self.reports.send(Report::Spawned { pid: leader }).await;
            }
            Phase::Starting { leader: Some(leader), aborted: true } => {
                self.phase = Phase::Aborting { leader };
            }
            Phase::Starting { leader: None, .. }
            | Phase::Failing(_)
            | Phase::Running { .. }
            | Phase::Aborting { .. }
            | Phase::Unstarted { .. }
            | Phase::Over
            | Phase::Aborted => tracing::error!(phase = ?self.phase, "bug: an exec now"),
        }
    }

    async fn on_ended(&mut self, end: LeaderEnd, seen_by_shim: u32) {
        let leader = match self.phase {
            Phase::Running { leader } => leader,
            Phase::Aborting { .. } if end.signal() == Some(SIGKILL) => {
                self.phase = Phase::Aborted;
                return;
            }
            // It ran and ended by itself before the abort met it: that is what happened.
            Phase::Aborting { leader } => {
                self.reports.send(Report::Spawned { pid: leader }).await;
                leader
            }
            Phase::Unstarted { aborted, .. } => {
                self.phase = Phase::Unstarted { aborted, ended: true };
                return;
            }
            Phase::Starting { .. } | Phase::Failing(_) | Phase::Over | Phase::Aborted => {
                tracing::error!(phase = ?self.phase, "bug: an end now");
                return;
            }
        };
        self.watchdog.leader_ended(leader, end);
        self.phase = Phase::Over;
        let leftovers = match &self.tree {
            Tree::Group(_) if self.is_reaped => 0,
            Tree::Group(group) => group.count(Some(leader)).await,
            Tree::Shim(_) => seen_by_shim,
        };
        let order = if leftovers > 0 { self.catch_up().await } else { None };
        self.reports.send(Report::LeaderEnded { leader: end, leftovers }).await;
        if let Some(order) = order {
            self.on_order(order).await;
        }
    }

    /// What the leader has written is read before its end is told, since whoever hears of it looks
    /// at the output. Not at the cost of an order, which comes back, nor for ever on a dead disk.
    async fn catch_up(&self) -> Option<Order> {
        let drain = self.drain.as_ref()?;
        let catching_up = tokio::time::timeout(CATCH_UP_MAX, drain.catch_up());
        tokio::select! {
            biased;
            order = self.orders.next() => Some(order),
            caught_up = catching_up => {
                if caught_up.is_err() {
                    tracing::warn!("the end of a leader is told before its output was read");
                }
                None
            }
        }
    }

    async fn on_shim_gone(&mut self, clean: bool) -> Outcome {
        let is_empty = matches!(&self.tree, Tree::Shim(shim) if shim.is_empty);
        if let Phase::Failing(failure) = self.phase {
            return Outcome::Failed(failure);
        }
        if is_empty && self.is_over() {
            self.prove_leaf_empty().await;
            self.withhold().await;
            Outcome::Empty
        } else if self.was_ended_for_memory().await {
            Outcome::Empty
        } else if clean {
            Outcome::Lost(LossCause::EndUnobserved)
        } else {
            // Also one that had not told of its command yet: that may have run, and ended it.
            Outcome::Lost(LossCause::ContainmentLost)
        }
    }

    /// The init's own group: its init has gone, and everything with it.
    async fn prove_leaf_empty(&mut self) {
        let Tree::Shim(Shimmed { leaf: Some(leaf), .. }) = &mut self.tree else { return };
        while !leaf.prove_empty() {
            leaf.changed().await;
        }
    }

    // What is asked.

    async fn on_order(&mut self, order: Order) {
        match order {
            Order::AbortSpawn => self.abort().await,
            Order::Signal(signal, request) => {
                let signal = match signal {
                    TreeSignal::Interrupt => SIGINT,
                    TreeSignal::Terminate => sigterm(),
                };
                self.asked.push(request);
                if signal == SIGINT && self.terminal.is_some() {
                    self.look_for(request).await;
                } else {
                    self.signal_tree(signal, tag_of(request)).await;
                }
            }
            Order::Kill(request) => {
                self.asked.extend(request);
                self.kill_tree(request).await;
            }
            Order::TerminateLeftovers => self.signal_tree(sigterm(), TAG_LEFTOVERS).await,
            Order::CloseInput => {
                if let Some(input) = &self.input {
                    input.shut_down();
                }
            }
        }
    }

    async fn abort(&mut self) {
        let Phase::Starting { leader, aborted } = &mut self.phase else { return };
        *aborted = true;
        // Before the clone has returned a kill could miss the child: it waits for that.
        if leader.is_some() {
            self.kill_tree(None).await;
        }
    }

    /// An interrupt of a terminal goes to its foreground process group; first the leader is looked
    /// at.
    async fn look_for(&mut self, request: Request) {
        let tag = tag_of(request);
        match &self.tree {
            Tree::Group(_) => self.link.ask_signal(self.key, 0, tag).await,
            Tree::Shim(_) => {
                let target = Target::Leader;
                let look = message::Request::Signal { key: self.key, signal: 0, tag, target };
                if !self.watch.ask_shim(look) {
                    tracing::debug!("a shim that is gone was asked for a look");
                }
            }
        }
    }

    /// The leader was met; now the other members of its group.
    pub(super) async fn on_reached(&mut self, tag: Tag, met: Signalled) {
        self.note_refusals(tag, met);
        let leader = self.live_leader();
        let signal = match request_of(tag) {
            Some(Request::Interrupt) => {
                if let Some(terminal) = &self.terminal {
                    if let Err(error) = terminal.signal_foreground(SIGINT) {
                        tracing::debug!(%error, "a terminal could not be interrupted");
                    }
                    return;
                }
                SIGINT
            }
            Some(Request::Terminate | Request::Shutdown | Request::Deadline) => sigterm(),
            // The whole group was killed at once.
            Some(Request::Kill) | None => return,
        };
        if let Tree::Group(group) = &mut self.tree {
            let met = group.signal(Sent::polite(signal), leader).await;
            self.note_refusals(tag, met);
        }
    }

    const fn live_leader(&self) -> Option<i32> {
        match self.phase {
            Phase::Starting { leader, .. } => leader,
            Phase::Running { leader } | Phase::Aborting { leader } => Some(leader),
            Phase::Failing(_) | Phase::Unstarted { .. } | Phase::Over | Phase::Aborted => None,
        }
    }

    async fn signal_tree(&mut self, signal: i32, tag: Tag) {
        let leader = self.live_leader();
        match &mut self.tree {
            Tree::Group(group) => {
                if tag == TAG_LEFTOVERS {
                    let met = group.signal(Sent::polite(signal), leader).await;
                    self.note_refusals(tag, met);
                    return;
                }
                // The leader is the guardian's to look at and to signal, and comes first: one that
                // waits for its members would end by itself if they were met before it. They are
                // signalled when the guardian has answered.
                self.link.ask_signal(self.key, signal, tag).await;
                if signal == sigterm() {
                    self.link.ask_signal(self.key, SIGCONT, TAG_NONE).await;
                }
            }
            Tree::Shim(_) => {
                let target = Target::Tree;
                let request = message::Request::Signal { key: self.key, signal, tag, target };
                if !self.watch.ask_shim(request) {
                    tracing::debug!("a shim that is gone was asked for a signal");
                }
            }
        }
    }

    async fn kill_tree(&mut self, request: Option<Request>) {
        let now = Clock.monotonic();
        let clock = KillClock {
            since: now,
            again_at: now + KILL_PAUSE_FIRST,
            pause: KILL_PAUSE_FIRST,
            complain_at: now + COMPLAIN_EACH,
        };
        self.kill.get_or_insert(clock);
        let tag = request.map_or(TAG_NONE, tag_of);
        match &mut self.tree {
            Tree::Group(group) => {
                if request.is_some() {
                    self.link.ask_signal(self.key, SIGKILL, tag).await;
                }
                group.begin_kill();
            }
            Tree::Shim(_) => {
                if !self.watch.ask_shim(message::Request::Kill { tag }) {
                    tracing::debug!("a shim that is gone was asked for a kill");
                }
            }
        }
    }

    async fn on_kill_due(&mut self) {
        let Some(mut clock) = self.kill else { return };
        let now = Clock.monotonic();
        if now >= clock.again_at {
            clock.pause = (clock.pause * 2).min(KILL_PAUSE_MAX);
            clock.again_at = now + clock.pause;
            // The shim repeats its kills itself.
            if let Tree::Group(group) = &mut self.tree {
                group.begin_kill();
            }
        }
        if now >= clock.complain_at {
            clock.complain_at = now + COMPLAIN_EACH;
            let waited = now.saturating_duration_since(clock.since);
            let live = self.count_live().await;
            if matches!(self.phase, Phase::Running { .. } | Phase::Over) {
                self.reports.send(Report::NotEmpty { live, waited }).await;
            }
        }
        self.kill = Some(clock);
    }

    async fn count_live(&self) -> u32 {
        match &self.tree {
            Tree::Group(group) => group.count(None).await,
            Tree::Shim(shim) => {
                let Some(pid) = shim.pid else { return 0 };
                let look = tokio::task::spawn_blocking(move || procd_sys::live_tree(pid)).await;
                look.map_or(0, |tree| u32::try_from(tree.pids.len()).unwrap_or(u32::MAX))
            }
        }
    }

    // What is told.

    fn note_refusals(&mut self, tag: Tag, met: Signalled) {
        let Signalled { refused: count, errno, .. } = met;
        if count == 0 {
            return;
        }
        let signal = match request_of(tag) {
            Some(Request::Interrupt) => SIGINT,
            Some(Request::Kill) => SIGKILL,
            Some(Request::Terminate | Request::Shutdown | Request::Deadline) | None => sigterm(),
        };
        let (signal, errno) = (names::signal_name(signal), names::errno_name(errno));
        self.refused.push((tag, SignalError { signal, errno, count }));
    }

    /// Answers a request once its signal went out.
    async fn answer(&mut self, tag: Tag, alive: bool) {
        let Some(request) = request_of(tag) else { return };
        let Some(index) = self.asked.iter().position(|&asked| asked == request) else { return };
        self.asked.remove(index);
        let errors = self.take_refusals(tag);
        self.reports.send(Report::Reached { request, alive, errors }).await;
    }

    fn take_refusals(&mut self, tag: Tag) -> Vec<SignalError> {
        let (taken, kept) = std::mem::take(&mut self.refused)
            .into_iter()
            .partition::<Vec<_>, _>(|(of, _)| *of == tag);
        self.refused = kept;
        taken.into_iter().map(|(_, error)| error).collect()
    }

    /// What a shim says and what the guardian says of it come by two ways: a short leader may have
    /// ended before the shim is known here.
    fn show(&self) {
        let Some(leader) = self.pid else { return };
        let place = match &self.tree {
            Tree::Group(group) => Some(Place::Leaf(Arc::clone(group.leaf()))),
            Tree::Shim(shim) => shim.pid.map(Place::Shim),
        };
        if let Some(place) = place {
            self.inspector.show(Some((place, leader)));
        }
    }
}
