//! The background sync of one running spool: a second after a write, or the length of the
//! previous sync if that is longer. At most one sync per drain thread is in flight, over all
//! spools. No write waits for it, and a spool at rest has no timer.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use procd_store::spool::{SpoolWriter, SyncMark};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::clock::Clock;

/// How long after a write at the earliest.
const INTERVAL: Duration = Duration::from_secs(1);

type Turn = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// What the syncs of all spools share.
#[derive(Debug, Clone)]
pub(super) struct Syncs {
    turns: Arc<Semaphore>,
    clock: Clock,
}

impl Syncs {
    /// So many may be in flight.
    pub(super) fn new(count: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(count)), clock: Clock }
    }

    /// That of one spool.
    pub(super) fn of_one(&self) -> BackgroundSync {
        BackgroundSync {
            turns: Arc::clone(&self.turns),
            clock: self.clock,
            phase: Phase::Idle,
            dirty: false,
            length: Duration::ZERO,
        }
    }
}

/// Where the background sync of one spool stands.
#[derive(Debug)]
pub(super) struct BackgroundSync {
    turns: Arc<Semaphore>,
    clock: Clock,
    phase: Phase,
    /// Something was written since the last batch was taken.
    dirty: bool,
    length: Duration,
}

enum Phase {
    Idle,
    Due(Pin<Box<Sleep>>),
    Waiting(Turn),
    Running(JoinHandle<(io::Result<SyncMark>, Duration)>),
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Due(_) => "Due",
            Self::Waiting(_) => "Waiting",
            Self::Running(_) => "Running",
        })
    }
}

/// What the task has to do for it.
pub(super) enum SyncStep {
    /// It is this spool's turn: take a batch.
    Turn(OwnedSemaphorePermit),
    /// A batch is on disk, or not.
    Done(io::Result<SyncMark>),
}

impl BackgroundSync {
    /// Something was written.
    pub(super) fn note_write(&mut self) {
        self.dirty = true;
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Due(Box::pin(tokio::time::sleep(INTERVAL.max(self.length))));
        }
    }

    /// Waits for the next step. Cancel safe: what was waited for stays in the phase.
    pub(super) async fn next(&mut self) -> SyncStep {
        loop {
            match &mut self.phase {
                Phase::Idle => pending::<()>().await,
                Phase::Due(sleep) => {
                    sleep.as_mut().await;
                    self.phase = Phase::Waiting(Box::pin(Arc::clone(&self.turns).acquire_owned()));
                }
                Phase::Waiting(turn) => {
                    let turn = turn.as_mut().await;
                    self.phase = Phase::Idle;
                    if let Ok(permit) = turn {
                        return SyncStep::Turn(permit);
                    }
                }
                Phase::Running(running) => {
                    let (result, length) = match running.await {
                        Ok(done) => done,
                        Err(failure) => (Err(io::Error::other(failure)), Duration::ZERO),
                    };
                    self.length = length;
                    self.phase = Phase::Idle;
                    return SyncStep::Done(result);
                }
            }
        }
    }

    /// Carries out a step.
    pub(super) fn step(&mut self, step: SyncStep, spool: &mut SpoolWriter) {
        match step {
            SyncStep::Turn(permit) => {
                self.dirty = false;
                if let Some(batch) = spool.sync_batch() {
                    let clock = self.clock;
                    self.phase = Phase::Running(tokio::task::spawn_blocking(move || {
                        let start = clock.monotonic();
                        let result = batch.run();
                        drop(permit);
                        (result, clock.since(start))
                    }));
                }
            }
            SyncStep::Done(result) => {
                match result {
                    Ok(mark) => spool.mark_synced(mark),
                    Err(error) => spool.sync_failed(&error),
                }
                if self.dirty {
                    self.note_write();
                }
            }
        }
    }
}
