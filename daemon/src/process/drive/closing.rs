//! The end of a process: streams read out, leader reaped, everything given back, and then told.

use std::time::Duration;

use procd_core::LeaderEnd;

use super::{Driver, Phase, SIGKILL};
use crate::clock::Clock;
use crate::process::failure;
use crate::process::tree::{Shimmed, Tree};
use crate::process::watch::Seen;
use crate::supervisor::runner::{LossCause, Order, Report, SpawnFailure, TreeEnd};

/// How long what a dead guardian or shim left is waited for after its kill.
const LOST_MAX: Duration = Duration::from_secs(10);

impl Driver {
    /// Reaped before it is told as ended: the guardian has seen its group empty.
    pub(super) const fn on_reaped(&mut self) {
        self.is_reaped = true;
        let is_over = self.is_over();
        if let (Tree::Group(group), false) = (&mut self.tree, is_over) {
            group.seen_empty();
        }
    }

    /// The tree is proven empty: what its streams hold is read, then the leader reaped.
    pub(super) async fn close(mut self: Box<Self>) {
        let is_unreaped = matches!(self.tree, Tree::Group(_)) && !self.is_reaped;
        if is_unreaped {
            // Asked for now, answered while the streams are read out: neither needs the other. In
            // tier 2 the shim has done it, as the last part of the proof; in tier 1 the guardian, if
            // it saw the group empty at the leader's end.
            self.link.ask_reap(self.key).await;
        }
        let input_dropped_bytes = self.release().await;
        if is_unreaped {
            self.until_reaped().await;
        }
        let oom_killed = self.tree.oom_killed();
        let by_group = self.tree.group().and_then(|group| group.limit_exceeded());
        let limit_exceeded = self.watchdog.exceeded().or(by_group);
        self.link.forget(self.key).await;
        let report = match self.phase {
            Phase::Aborted | Phase::Unstarted { aborted: true, .. } => Report::Aborted,
            // Somebody else killed it before its exec.
            Phase::Unstarted { aborted: false, .. } => Report::SpawnFailed(failure::UNKNOWN),
            Phase::Over
            | Phase::Starting { .. }
            | Phase::Failing(_)
            | Phase::Running { .. }
            | Phase::Aborting { .. } => {
                self.answer_rest().await;
                let refused = std::mem::take(&mut self.refused);
                let signal_errors = refused.into_iter().map(|(_, error)| error).collect();
                Report::TreeEmpty(TreeEnd {
                    signal_errors,
                    input_dropped_bytes,
                    oom_killed,
                    limit_exceeded,
                })
            }
        };
        self.reports.send(report).await;
    }

    /// Tier 3 in tier 1: whether the kernel has ended the whole group for want of memory, the init
    /// with it. Then that was the leader's end too, though nobody is left who saw it.
    pub(super) async fn was_ended_for_memory(&mut self) -> bool {
        let Tree::Shim(Shimmed { leaf: Some(leaf), .. }) = &mut self.tree else { return false };
        if leaf.leaf().oom_kills() == 0 {
            return false;
        }
        let emptied = async {
            while !leaf.prove_empty() {
                leaf.changed().await;
            }
        };
        if tokio::time::timeout(LOST_MAX, emptied).await.is_err() {
            return false;
        }
        match self.phase {
            Phase::Over | Phase::Aborted => true,
            Phase::Running { .. } | Phase::Aborting { .. } => {
                self.on_ended(LeaderEnd::Signal { signal: SIGKILL, core_dumped: false }, 0).await;
                true
            }
            Phase::Starting { .. } | Phase::Failing(_) | Phase::Unstarted { .. } => false,
        }
    }

    /// Nothing was started, and nothing of it is left but an empty leaf.
    pub(super) async fn close_failed(mut self: Box<Self>, failure: SpawnFailure) {
        if let Some(group) = self.tree.group()
            && !group.prove_empty()
        {
            tracing::warn!("the control group of a failed start is left");
        }
        self.release().await;
        self.link.forget(self.key).await;
        self.reports.send(Report::SpawnFailed(failure)).await;
    }

    /// The end cannot be observed any more. What is left is killed first.
    pub(super) async fn close_lost(mut self: Box<Self>, cause: LossCause) {
        if tokio::time::timeout(LOST_MAX, self.end_what_is_left()).await.is_err() {
            tracing::error!(?cause, "a lost tree is not empty in time");
        }
        self.release().await;
        self.link.forget(self.key).await;
        self.reports.send(Report::Lost(cause)).await;
    }

    async fn end_what_is_left(&mut self) {
        self.kill_tree(None).await;
        if let Tree::Shim(shim) = &self.tree {
            self.watch.shim_closed().await;
            // Its socket closes while it exits.
            while shim.pid.is_some_and(procd_sys::is_alive) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if let Some(group) = self.tree.group() {
            while !group.prove_empty() {
                group.changed().await;
                group.kill().await;
            }
        }
    }

    /// Completes the output and closes the input; says how much of that a shutdown had dropped.
    async fn release(&mut self) -> u64 {
        self.inspector.show(None);
        if let Some(drain) = self.drain.take() {
            drain.finish().await;
        }
        self.terminal = None;
        // An order that came too late for anything else still counts what it drops.
        let mut late = Vec::new();
        while let Some(order) = self.orders.try_next() {
            match order {
                Order::CloseInput => {
                    if let Some(input) = &self.input {
                        input.shut_down();
                    }
                }
                Order::Signal(_, request) | Order::Kill(Some(request)) => late.push(request),
                Order::AbortSpawn | Order::Kill(None) | Order::TerminateLeftovers => {}
            }
        }
        self.asked.extend(late);
        self.input.as_ref().map_or(0, |input| input.close())
    }

    async fn until_reaped(&mut self) {
        let started = Clock.monotonic();
        loop {
            match self.watch.next().await {
                Seen::Reaped | Seen::GuardianLost | Seen::GuardianMissing => break,
                Seen::Reached { tag, alive, met } => {
                    self.note_refusals(tag, met);
                    self.answer(tag, alive).await;
                }
                Seen::Started { .. }
                | Seen::ShimStarted { .. }
                | Seen::Executed
                | Seen::Failed { .. }
                | Seen::DiedEarly
                | Seen::Ended { .. }
                | Seen::Empty
                | Seen::ShimGone { .. } => tracing::error!("bug: news after an end"),
            }
        }
        tracing::trace!(waited = ?Clock.since(started), "leader reaped");
    }

    /// Requests that came when nothing was left to signal.
    async fn answer_rest(&mut self) {
        for request in std::mem::take(&mut self.asked) {
            let errors = self.take_refusals(super::tag_of(request));
            self.reports.send(Report::Reached { request, alive: false, errors }).await;
        }
    }
}
