//! Waiting for output and ends: woken by appends and by new snapshots, never by polling, with no
//! timer unless the caller gave a time. Source: spec, output, *Waiting*.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use procd_protocol::ErrorBody;
use procd_protocol::v1::{Encoding, WokeBy};
use procd_store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::wire;
use super::page::{self, Form, Room};
use super::stretch::Filter;
use super::{Client, as_count};
use crate::session::Bound;
use crate::supervisor::view::{ProcessView, Snapshot};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// One process has output or is terminal.
    Any,
    /// Each has output or is terminal.
    All,
    /// All are terminal.
    Exit,
}

/// One process that is waited for.
#[derive(Debug)]
pub(super) struct Target {
    view: ProcessView,
    snapshot: watch::Receiver<Snapshot>,
    /// Up to here there is nothing that the call would return.
    scanned: u64,
    standing: Standing,
}

/// Where one process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing yet.
    Waiting,
    /// It has output.
    Output,
    /// It is terminal.
    Ended,
    /// It cannot be read: settled, and satisfies nothing.
    Broken,
}

impl Target {
    /// A process, waited for from `cursor` on.
    pub(super) fn new(view: &ProcessView, cursor: u64) -> Self {
        Self {
            snapshot: view.snapshot.clone(),
            view: view.clone(),
            scanned: cursor,
            standing: Standing::Waiting,
        }
    }

    async fn look(&mut self, goal: Goal, form: Form) {
        if matches!(self.standing, Standing::Ended | Standing::Broken) {
            return;
        }
        if self.snapshot.borrow_and_update().is_terminal() {
            self.standing = Standing::Ended;
        } else if goal != Goal::Exit && self.standing == Standing::Waiting {
            self.standing = match self.has_output(form).await {
                Ok(true) => Standing::Output,
                Ok(false) => Standing::Waiting,
                Err(_error) => Standing::Broken,
            };
        }
    }

    /// Whether there is a byte that the call would return or strip for good.
    async fn has_output(&mut self, form: Form) -> Result<bool, StoreError> {
        let bounds = self.view.output.bounds();
        if bounds.total <= self.scanned {
            return Ok(false);
        }
        if form.filter == Filter::Combined && form.encoding == Encoding::Base64 {
            return Ok(true);
        }
        let form = Form { limit: 1, tags: false, ..form };
        loop {
            let room = Room::of_reply();
            let output = &self.view.output;
            let found = page::content(output, self.scanned, false, form, room).await?;
            if found.covered > 0 {
                return Ok(true);
            }
            // Only the other stream's bytes, or some that are held back.
            if found.next <= self.scanned {
                return Ok(false);
            }
            self.scanned = found.next;
        }
    }

    /// Completes when something may have changed since this call.
    fn changed(&self, goal: Goal) -> Vec<Wake> {
        let mut snapshot = self.snapshot.clone();
        let mut wakes: Vec<Wake> = vec![Box::pin(async move {
            // Without a supervisor nothing changes any more: the end of the daemon wakes us.
            if snapshot.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })];
        if goal != Goal::Exit && self.standing == Standing::Waiting {
            wakes.push(Box::pin(self.view.output.listen()));
        }
        wakes
    }
}

type Wake = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Completes with the first of them.
async fn first_of(mut wakes: Vec<Wake>) {
    std::future::poll_fn(|context| {
        let is_ready = wakes.iter_mut().any(|wake| wake.as_mut().poll(context).is_ready());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Whether the goal is reached, and by what; at once also when there is nobody to wait for.
fn reached(goal: Goal, targets: &[Target]) -> Option<WokeBy> {
    let standing = |wanted| targets.iter().filter(move |target| target.standing == wanted).count();
    let (ended, output, broken) =
        (standing(Standing::Ended), standing(Standing::Output), standing(Standing::Broken));
    let settled = ended + broken;
    let is_all = settled + output == targets.len();
    let by = if output > 0 && ended == 0 { WokeBy::Output } else { WokeBy::Exit };
    match goal {
        Goal::Exit if settled == targets.len() => Some(WokeBy::Exit),
        Goal::Any if ended + output > 0 || is_all => Some(by),
        Goal::All if is_all => Some(if output > 0 { WokeBy::Output } else { WokeBy::Exit }),
        Goal::Exit | Goal::Any | Goal::All => None,
    }
}

/// Waits until the goal is reached or the time is over. Takes a slot only if it has to block,
/// and gives it back the moment it is dropped.
pub(super) async fn wait(
    client: &Client,
    bound: &Bound,
    targets: &mut [Target],
    form: Form,
    (goal, limit): (Goal, Option<Duration>),
) -> Result<WokeBy, ErrorBody> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut slot = None;
    loop {
        // First listen, then look: what happens between the two wakes us.
        let mut wakes = Vec::with_capacity(targets.len().min(as_count(64)) * 2);
        for target in targets.iter_mut() {
            target.snapshot.mark_unchanged();
            wakes.extend(target.changed(goal));
            target.look(goal, form).await;
        }
        if let Some(by) = reached(goal, targets) {
            return Ok(by);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(WokeBy::Timeout);
        }
        if slot.is_none() {
            slot = Some(bound.waiters().take().map_err(|refusal| wire(&refusal))?);
        }
        tokio::select! {
            () = first_of(wakes) => {}
            () = sleep_until(deadline) => {}
            () = client.ending().cancelled() => return Ok(WokeBy::Shutdown),
        }
    }
}

/// Sleeps until the deadline; for ever without one.
pub(super) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
