//! Waiting for output and ends: woken by appends and by new snapshots, never by polling, with no
//! timer unless the caller gave a time. Source: spec, output, *Waiting*.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use procd_core::Handle;
use procd_protocol::ErrorBody;
use procd_protocol::v1::{Encoding, WokeBy};
use procd_store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::wire;
use super::fold::Fold;
use super::page::{self, Form, Room};
use super::stretch::Filter;
use super::until::{Found, Progress, Until, Watcher};
use super::{Client, as_count};
use crate::session::Bound;
use crate::supervisor::view::{ProcessView, Snapshot};

/// What is waited for.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// One process has output or is terminal.
    Any,
    /// Each has output or is terminal.
    All,
    /// All are terminal.
    Exit,
    /// Conditions hold.
    Until(Box<Until>),
}

impl Goal {
    /// Whether output can bring it nearer.
    const fn looks_at_output(&self) -> bool {
        match self {
            Self::Any | Self::All | Self::Until(_) => true,
            Self::Exit => false,
        }
    }
}

/// One process that is waited for.
#[derive(Debug)]
pub(super) struct Target {
    view: ProcessView,
    snapshot: watch::Receiver<Snapshot>,
    /// Up to here there is nothing that the call would return.
    scanned: u64,
    standing: Standing,
    watcher: Option<Watcher>,
    /// What was folded so far: each byte once.
    fold: Option<Fold>,
}

/// Where one process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing yet.
    Waiting,
    /// It has output.
    Output,
    /// Its conditions hold.
    Met(WokeBy),
    /// Bytes were lost before a pattern saw them.
    Gap,
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
            watcher: None,
            fold: None,
        }
    }

    /// The handle, and what a pattern found.
    pub(super) fn into_found(self) -> Option<(Handle, Found)> {
        Some((self.view.handle, self.watcher?.found?))
    }

    async fn look(&mut self, goal: &Goal, form: Form, deadline: Option<Instant>) {
        if matches!(self.standing, Standing::Ended | Standing::Broken | Standing::Gap) {
            return;
        }
        let is_ended = self.snapshot.borrow_and_update().is_terminal();
        self.standing = match goal {
            Goal::Until(until) => self.watch(until, is_ended, deadline).await,
            Goal::Any | Goal::All | Goal::Exit if is_ended => Standing::Ended,
            Goal::Any | Goal::All if self.standing == Standing::Waiting => {
                match self.has_output(form).await {
                    Ok(true) => Standing::Output,
                    Ok(false) => Standing::Waiting,
                    Err(_error) => Standing::Broken,
                }
            }
            Goal::Any | Goal::All | Goal::Exit => self.standing,
        };
    }

    /// Looks at the conditions; an ended process is settled whatever they are.
    async fn watch(&mut self, until: &Until, is_ended: bool, by: Option<Instant>) -> Standing {
        let output = &self.view.output;
        let watcher = self
            .watcher
            .get_or_insert_with(|| Watcher::new(until, self.scanned, output, Instant::now()));
        match watcher.look(output, is_ended, by).await {
            Ok(Progress::Met(by)) => Standing::Met(by),
            Ok(Progress::Gap) => Standing::Gap,
            Ok(Progress::Open) if is_ended => Standing::Ended,
            Ok(Progress::Open) => Standing::Waiting,
            Err(_error) => Standing::Broken,
        }
    }

    /// When something is due for it if nothing happens.
    fn due(&self) -> Option<Instant> {
        self.watcher.as_ref().filter(|_| self.standing == Standing::Waiting)?.quiet_at()
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
        if form.fold {
            let fold = self.fold.get_or_insert_with(|| Fold::new(self.scanned, form.filter, 1));
            fold.advance(&self.view.output, false).await?;
            return Ok(fold.has_line());
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
    fn changed(&self, goal: &Goal) -> Vec<Wake> {
        let mut snapshot = self.snapshot.clone();
        let mut wakes: Vec<Wake> = vec![Box::pin(async move {
            // Without a supervisor nothing changes any more: the end of the daemon wakes us.
            if snapshot.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })];
        if goal.looks_at_output() && matches!(self.standing, Standing::Waiting | Standing::Met(_)) {
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
fn reached(goal: &Goal, targets: &[Target]) -> Option<WokeBy> {
    if let Goal::Until(until) = goal {
        return met(until, targets);
    }
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
        Goal::Exit | Goal::Any | Goal::All | Goal::Until(_) => None,
    }
}

/// The same for conditions. A gap ends the wait in any case.
fn met(until: &Until, targets: &[Target]) -> Option<WokeBy> {
    let mut settled = 0;
    let (mut met, mut ended) = (None, None);
    for target in targets {
        match target.standing {
            Standing::Gap => return Some(WokeBy::Gap),
            Standing::Met(by) => met = met.or(Some(by)),
            Standing::Ended => ended = Some(WokeBy::Exit),
            Standing::Broken => {}
            Standing::Waiting | Standing::Output => continue,
        }
        settled += 1;
    }
    let by = met.or(ended);
    if settled == targets.len() {
        return Some(by.unwrap_or(WokeBy::Exit));
    }
    by.filter(|_| !until.all_processes)
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
            wakes.extend(target.changed(&goal));
            target.look(&goal, form, deadline).await;
        }
        if let Some(by) = reached(&goal, targets) {
            return Ok(by);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(WokeBy::Timeout);
        }
        if slot.is_none() {
            slot = Some(bound.waiters().take().map_err(|refusal| wire(&refusal))?);
        }
        let due = targets.iter().filter_map(Target::due).chain(deadline).min();
        tokio::select! {
            () = first_of(wakes) => {}
            () = sleep_until(due) => {}
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
