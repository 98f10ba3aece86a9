//! Pipes to store, on threads of their own: what is drained of one process, all its streams and the
//! single writer of its output, lies in a slot of one thread. Nothing here knows a process, a request
//! or a record.
//!
//! ```text
//! stream -> read -> spool (segment, then index) -> memory window and bounds -> listeners
//! ```
//!
//! A reader never slows a drain: bytes are pushed and bounds moved under a short lock that is
//! never held across a system call or an `.await`. A beginning wakes no thread, and an end only
//! where bytes still lie in a pipe: those are read, and written, by its drain thread alone.

mod drained;
mod heat;
mod news;
mod output;
mod pump;
mod stream;
mod sync;
#[cfg(test)]
mod tests;
mod threads;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use news::{NewsLine, SpoolNews};
pub use output::{
    Budgets, DrainOptions, FinishedOutput, Listener, Output, OutputBounds, OutputWriter,
    complete_here,
};
pub use threads::Places;

use drained::{Slot, Which};
use pump::Pump;
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

/// The threads that drain.
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
    /// wakes none.
    #[must_use]
    pub fn start(&self, writer: OutputWriter, streams: Streams) -> DrainTask {
        let output = writer.output();
        let place = self.threads.places().take(writer.name());
        let slot = place.thread().pump.add(writer, streams);
        DrainTask { output, place, slot: Some(slot) }
    }
}

#[cfg(test)]
impl Drains {
    /// Turns of streams on all threads.
    fn turns(&self) -> u64 {
        self.threads.places().turns()
    }
}

/// The drain of one process. Dropping it is the same as finishing without waiting.
#[derive(Debug)]
pub struct DrainTask {
    output: Output,
    place: Place,
    /// Gone once it is being finished.
    slot: Option<Arc<Slot>>,
}

impl DrainTask {
    /// Completes when what each stream holds at this moment is in the output. Cancel safe.
    pub async fn catch_up(&self) {
        let Some(slot) = &self.slot else { return };
        if slot.try_lock().is_some_and(|drained| drained.is_caught_up()) {
            return;
        }
        let (thread, slot) = (Arc::clone(self.place.thread()), Arc::clone(slot));
        // Not waited for any more, it is carried out all the same.
        let reading = async move { read_what_is_there(&thread.pump, &slot).await };
        let caught_up = self.place.thread().handle.spawn(reading);
        if caught_up.await.is_err() {
            tracing::debug!("a drain thread ended before it had caught up");
        }
    }

    /// Reads what each stream holds at this moment, closes them and completes the output: to be
    /// called when the tree is proven empty. A stranger that still holds the other end is not
    /// waited for.
    pub async fn finish(mut self) -> FinishedOutput {
        let finished = match self.finish_or_ask() {
            Ok(finished) => finished,
            Err(asked) => asked.await.ok().flatten(),
        };
        finished.unwrap_or_else(|| {
            tracing::error!("bug: a drain ended without completing its output");
            self.output.complete_without_writer()
        })
    }

    /// Completes the output at once where nothing is to be read any more, which is how it is at
    /// the end of most; or asks its thread to do so. `None` = there is no writer any more.
    fn finish_or_ask(
        &mut self,
    ) -> Result<Option<FinishedOutput>, oneshot::Receiver<Option<FinishedOutput>>> {
        let Some(slot) = self.slot.take() else { return Ok(None) };
        let thread = Arc::clone(self.place.thread());
        let pump = &thread.pump;
        if let Some(mut drained) = slot.try_lock()
            && drained.is_over()
        {
            let writer = drained.close(pump.epoll());
            drop(drained);
            pump.remove(slot.key());
            return Ok(writer.map(OutputWriter::finish));
        }
        let (told, finished) = oneshot::channel();
        let handle = thread.handle.clone();
        handle.spawn(async move {
            let pump = &thread.pump;
            read_what_is_there(pump, &slot).await;
            let writer = slot.lock().close(pump.epoll());
            pump.remove(slot.key());
            if told.send(writer.map(OutputWriter::finish)).is_err() {
                tracing::debug!("an output was completed with nobody to ask for it");
            }
        });
        Err(finished)
    }
}

impl Drop for DrainTask {
    fn drop(&mut self) {
        drop(self.finish_or_ask());
    }
}

/// Reads what each stream holds now. On its drain thread only.
async fn read_what_is_there(pump: &Pump, slot: &Slot) {
    for which in Which::BOTH {
        // The measure is taken once: whoever has the other end may go on writing for ever.
        let mut left = slot.lock().waiting(which);
        while left > 0 {
            let Some(len) = pump.read_rest(slot, which, left) else { break };
            left = left.saturating_sub(len);
            tokio::task::yield_now().await;
        }
    }
}
