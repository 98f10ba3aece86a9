//! Pipes to store, on threads of their own: one task per process owns all its streams and the
//! single writer of its output. Nothing here knows a process, a request or a record.
//!
//! ```text
//! stream -> read -> spool (segment, then index) -> memory window and bounds -> listeners
//! ```
//!
//! A reader never slows a drain: bytes are pushed and bounds moved under a short lock that is
//! never held across a system call or an `.await`.

mod heat;
mod news;
mod output;
mod stream;
mod sync;
mod task;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

pub use news::{NewsLine, SpoolNews};
pub use output::{
    Budgets, DrainOptions, FinishedOutput, Listener, Output, OutputBounds, OutputWriter,
    complete_here,
};
pub use threads::Places;

use crate::clock::Clock;
use crate::lane::{LaneSender, Unsent, lane};
use sync::BackgroundSync;
use task::{ReadOut, lying};
use threads::{Place, Threads};

/// Questions to one drain that wait: its process asks one after the other, but gives up on some.
const ASKS_MAX: usize = 16;

/// The read ends of one process's output.
#[derive(Debug, Default)]
pub struct Streams {
    /// The stdout pipe, the one pipe of both streams, or the PTY's master.
    pub stdout: Option<OwnedFd>,
    /// The stderr pipe.
    pub stderr: Option<OwnedFd>,
    /// Whether `stdout` carries both streams: nothing is tagged then.
    pub merged: bool,
    /// Whether `stdout` is the master of a PTY.
    pub terminal: bool,
}

/// The threads that drain, and the background syncs of spools: at most one in flight per thread.
#[derive(Debug)]
pub struct Drains {
    threads: Threads,
    syncs: Arc<Semaphore>,
    clock: Clock,
}

impl Drains {
    /// Starts `workers` threads.
    /// # Errors
    /// When the system gives no thread or no epoll descriptor.
    pub fn new(workers: usize) -> io::Result<Self> {
        let workers = workers.max(1);
        let threads = Threads::new(workers)?;
        Ok(Self { threads, syncs: Arc::new(Semaphore::new(workers)), clock: Clock })
    }

    /// Which thread drains which output. Who waits for output waits there: the drain that has
    /// counted it then wakes it on the same thread.
    #[must_use]
    pub fn places(&self) -> Places {
        self.threads.places().clone()
    }

    /// Drains `streams` into `writer` until [`DrainTask::finish`]. Can be called on any thread.
    #[must_use]
    pub fn start(&self, writer: OutputWriter, streams: Streams) -> DrainTask {
        let output = writer.output();
        let (asks, asked) = lane(ASKS_MAX);
        let (finished, done) = oneshot::channel();
        let read_out = ReadOut::default();
        let place = self.threads.places().take(writer.name());
        if let Some(thread) = place.as_ref().and_then(Place::thread) {
            let clock = self.clock;
            let sync = BackgroundSync::new(Arc::clone(&self.syncs), clock);
            let laid = Arc::clone(&read_out);
            thread.spawn(async move {
                let result = task::drain(writer, streams, (sync, clock), laid, asked).await;
                if result.is_some_and(|result| finished.send(result).is_err()) {
                    tracing::debug!("an output was completed with nobody to ask for it");
                }
            });
        }
        DrainTask { output, asks: Some(asks), done, read_out, _place: place }
    }
}

/// The drain of one process. Dropping it is the same as finishing without waiting.
#[derive(Debug)]
pub struct DrainTask {
    output: Output,
    /// To catch up. Gone, it asks to finish.
    asks: Option<LaneSender<oneshot::Sender<()>>>,
    done: oneshot::Receiver<FinishedOutput>,
    read_out: ReadOut,
    _place: Option<Place>,
}

impl DrainTask {
    /// Completes when what each stream holds at this moment is in the output. Cancel safe.
    pub async fn catch_up(&self) {
        let (told, caught_up) = oneshot::channel();
        let Some(asks) = &self.asks else { return };
        match asks.send(told) {
            // A drain that ended meanwhile has read everything.
            Ok(()) => drop(caught_up.await),
            Err(Unsent::Closed) => {}
            Err(Unsent::Full) => tracing::error!("bug: more questions than a drain can have"),
        }
    }

    /// Reads what each stream holds at this moment, closes them and completes the output: to be
    /// called when the tree is proven empty. A stranger that still holds the other end is not
    /// waited for.
    pub async fn finish(mut self) -> FinishedOutput {
        if let Some(writer) = lying(&self.read_out).take() {
            return writer.finish();
        }
        self.asks = None;
        if let Ok(finished) = (&mut self.done).await {
            return finished;
        }
        tracing::error!("bug: a drain ended without completing its output");
        self.output.complete_without_writer()
    }
}
