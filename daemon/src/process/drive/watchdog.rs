//! Limits of a tree that nothing but a look now and then can hold, and the limit on CPU seconds,
//! which is told by how the leader ended.

use std::sync::Arc;

use procd_core::LeaderEnd;
use tokio::time::Instant;

use super::{Driver, SIGKILL};
use crate::clock::Clock;
use crate::process::inspect::TreeInspector;
use crate::process::limits::{SAMPLE_EACH, Watched};
use crate::supervisor::runner::{Inspector, TreeView};

const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// What is watched of one process, and what it exceeded.
#[derive(Debug)]
pub(in crate::process) struct Watchdog {
    watched: Watched,
    cpu_seconds_max: Option<u64>,
    next: Option<Instant>,
    exceeded: Option<&'static str>,
}

impl Watchdog {
    pub(in crate::process) fn new(watched: Watched, cpu_seconds_max: Option<u64>) -> Self {
        let next = (!watched.is_nothing()).then(|| Clock.monotonic() + SAMPLE_EACH);
        Self { watched, cpu_seconds_max, next, exceeded: None }
    }

    /// Whether a look is to come.
    pub(super) const fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// The limit that was hit, as the record names it.
    pub(super) const fn exceeded(&self) -> Option<&'static str> {
        self.exceeded
    }

    /// The next look at the tree; never comes where nothing is watched. Cancel safe: a look that
    /// is cut off is due again.
    pub(super) async fn look(&mut self, inspector: &Arc<TreeInspector>) -> Option<TreeView> {
        let Some(due) = self.next else { return std::future::pending().await };
        tokio::time::sleep_until(due).await;
        let inspector = Arc::clone(inspector);
        let look = tokio::task::spawn_blocking(move || inspector.look()).await;
        self.next = Some(Clock.monotonic() + SAMPLE_EACH);
        look.ok().flatten()
    }

    /// The kernel sends SIGXCPU at the limit and SIGKILL a second later. What a leader used is seen
    /// as long as it is not reaped: of one that a shim holds only SIGXCPU tells.
    pub(super) fn leader_ended(&mut self, leader: i32, end: LeaderEnd) {
        let Some(max) = self.cpu_seconds_max else { return };
        let by_kernel = match end.signal() {
            Some(SIGXCPU) => true,
            Some(SIGKILL) => {
                procd_sys::cpu_ms(leader).is_some_and(|ms| ms >= max.saturating_mul(1000))
            }
            Some(_) | None => false,
        };
        if by_kernel {
            self.exceeded.get_or_insert("cpu");
        }
    }
}

impl Driver {
    /// A tree above one of its limits is killed; what names its end is its signal.
    pub(super) async fn on_look(&mut self, tree: Option<TreeView>) {
        let Some(limit) = tree.and_then(|tree| self.watchdog.watched.exceeded(&tree)) else {
            return;
        };
        tracing::info!(limit, "a tree is above a limit that is held by looking: it is killed");
        self.watchdog.exceeded = Some(limit);
        self.watchdog.next = None;
        self.kill_tree(None).await;
    }
}
