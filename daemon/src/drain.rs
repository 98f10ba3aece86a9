//! Pipes to store, on threads of their own: one task per process that writes owns all its streams
//! and the single writer of its output. Nothing here knows a process, a request or a record.
//!
//! ```text
//! stream -> read -> spool (segment, then index) -> memory window and bounds -> listeners
//! ```
//!
//! A reader never slows a drain: bytes are pushed and bounds moved under a short lock that is
//! never held across a system call or an `.await`.

mod heat;
mod idle;
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

pub use news::{NewsLine, SpoolNews};
pub use output::{
    Budgets, DrainOptions, FinishedOutput, Listener, Output, OutputBounds, OutputWriter,
    complete_here,
};
pub use threads::Places;

use idle::{Drain, Rest};
use threads::{Place, Threads};

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

impl Streams {
    /// Those there are.
    fn each(&self) -> impl Iterator<Item = &OwnedFd> {
        self.stdout.iter().chain(&self.stderr)
    }
}

/// The threads that drain, and the background syncs of spools: at most one in flight per thread.
#[derive(Debug)]
pub struct Drains {
    threads: Threads,
}

impl Drains {
    /// Starts `workers` threads.
    /// # Errors
    /// When the system gives no thread or no epoll descriptor.
    pub fn new(workers: usize) -> io::Result<Self> {
        Ok(Self { threads: Threads::new(workers)? })
    }

    /// Which thread drains which output. Who waits for output waits there: the drain that has
    /// counted it then wakes it on the same thread.
    #[must_use]
    pub fn places(&self) -> Places {
        self.threads.places().clone()
    }

    /// Drains `streams` into `writer` until [`DrainTask::finish`]. Can be called on any thread, and
    /// wakes none before there is something to read.
    #[must_use]
    pub fn start(&self, writer: OutputWriter, streams: Streams) -> DrainTask {
        let output = writer.output();
        let place = self.threads.places().take(writer.name());
        let drain = Drain::start(place.thread(), writer, streams);
        DrainTask { output, drain, place }
    }
}

/// The drain of one process. Dropping it is the same as finishing without waiting.
#[derive(Debug)]
pub struct DrainTask {
    output: Output,
    drain: Arc<Drain>,
    place: Place,
}

impl DrainTask {
    /// Completes when what each stream holds at this moment is in the output. Cancel safe.
    pub async fn catch_up(&self) {
        if let Some(caught_up) = self.drain.ask_to_catch_up(self.place.thread()) {
            drop(caught_up.await);
        }
    }

    /// Reads what each stream holds at this moment, closes them and completes the output: to be
    /// called when the tree is proven empty. A stranger that still holds the other end is not
    /// waited for.
    pub async fn finish(self) -> FinishedOutput {
        match self.drain.end(self.place.thread()) {
            Rest::Write(writer) => return writer.finish(),
            Rest::Wait(done) => {
                if let Ok(finished) = done.await {
                    return finished;
                }
            }
            Rest::Nothing => {}
        }
        tracing::error!("bug: a drain ended without completing its output");
        self.output.complete_without_writer()
    }
}

impl Drop for DrainTask {
    fn drop(&mut self) {
        match self.drain.end(self.place.thread()) {
            Rest::Write(writer) => drop(writer.finish()),
            // Its task completes the output by itself; or it is complete.
            Rest::Wait(_) | Rest::Nothing => {}
        }
    }
}
