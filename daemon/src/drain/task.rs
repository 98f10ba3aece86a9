//! The drain task of one process.
//!
//! ```text
//! (readable -> one read -> append)* -> asked to finish -> read what is left -> complete
//! ```
//!
//! It sleeps when nothing is due and holds no buffer then: a thread has one for all its tasks.

use std::cell::RefCell;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use procd_store::spool::Source;
use tokio::sync::{Semaphore, oneshot};

use super::Streams;
use super::output::{FinishedOutput, OutputWriter};
use super::stream::{ReadOutcome, Stream};
use super::sync::{BackgroundSync, SyncStep};
use crate::clock::Clock;

/// Bytes read at once: a quarter of a grown pipe, so that reader and writer overlap.
const BUFFER_BYTES: usize = 256 * 1024;
/// So many reads in a row, then others have their turn, a count.
const TURN_READS: u32 = 32;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into_boxed_slice());
}

/// What the task waits for.
enum Event {
    Stdout,
    Stderr,
    Finish,
    Sync(SyncStep),
}

struct Drain {
    writer: OutputWriter,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    sync: BackgroundSync,
    clock: Clock,
    reads: u32,
}

/// Drains until asked to finish; a dropped asker asks too.
pub(super) async fn drain(
    writer: OutputWriter,
    streams: Streams,
    syncs: Arc<Semaphore>,
    clock: Clock,
    mut finish: oneshot::Receiver<()>,
) -> FinishedOutput {
    let first = if streams.merged { Source::Mixed } else { Source::Stdout };
    let mut drain = Drain {
        writer,
        stdout: watch(streams.stdout, first, streams.terminal),
        stderr: watch(streams.stderr, Source::Stderr, false),
        sync: BackgroundSync::new(syncs, clock),
        clock,
        reads: 0,
    };
    loop {
        let event = tokio::select! {
            () = readable(&mut drain.stdout) => Event::Stdout,
            () = readable(&mut drain.stderr) => Event::Stderr,
            _ = &mut finish => Event::Finish,
            step = drain.sync.next() => Event::Sync(step),
        };
        match event {
            Event::Stdout => drain.read(Which::Stdout).await,
            Event::Stderr => drain.read(Which::Stderr).await,
            Event::Sync(step) => {
                drain.sync.step(step, drain.writer.spool());
                drain.writer.note_status();
            }
            Event::Finish => {
                drain.read_what_is_left().await;
                return drain.writer.finish();
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Stdout,
    Stderr,
}

impl Drain {
    /// One read of one stream, so that the other one has its turn.
    async fn read(&mut self, which: Which) {
        let slot = match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        };
        let Some(stream) = slot else { return };
        let now = self.clock.monotonic();
        let outcome = BUFFER.with_borrow_mut(|buffer| {
            let outcome = stream.read(buffer, now);
            if let ReadOutcome::Bytes(len) = outcome {
                append(&mut self.writer, buffer, len, stream.source(), self.clock);
            }
            outcome
        });
        match outcome {
            ReadOutcome::Bytes(_) => {
                self.sync.note_write();
                self.reads += 1;
            }
            ReadOutcome::Empty | ReadOutcome::End => self.reads = 0,
        }
        if self.reads >= TURN_READS {
            self.reads = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Reads what each stream holds now and closes it.
    async fn read_what_is_left(&mut self) {
        for stream in [self.stdout.take(), self.stderr.take()].into_iter().flatten() {
            // The measure is taken once: a stranger may go on writing for ever.
            let mut left = stream.waiting();
            while left > 0 {
                let Some(len) = self.read_rest(&stream, left) else { break };
                left = left.saturating_sub(len);
                tokio::task::yield_now().await;
            }
        }
    }

    fn read_rest(&mut self, stream: &Stream, left: usize) -> Option<usize> {
        BUFFER.with_borrow_mut(|buffer| {
            let len = left.min(buffer.len());
            match stream.read_now(buffer.get_mut(..len)?) {
                ReadOutcome::Bytes(len) => {
                    append(&mut self.writer, buffer, len, stream.source(), self.clock);
                    Some(len)
                }
                ReadOutcome::Empty | ReadOutcome::End => None,
            }
        })
    }
}

fn append(writer: &mut OutputWriter, buffer: &[u8], len: usize, source: Source, clock: Clock) {
    let nanoseconds = clock.wall().as_nanosecond();
    let at_unix_ns = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
    writer.append(buffer.get(..len).unwrap_or(buffer), source, at_unix_ns);
}

async fn readable(stream: &mut Option<Stream>) {
    match stream {
        Some(stream) => stream.readable().await,
        None => pending().await,
    }
}

fn watch(end: Option<OwnedFd>, source: Source, terminal: bool) -> Option<Stream> {
    match Stream::new(end?, source, terminal) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::error!(?source, %error, "a stream cannot be watched and is closed");
            None
        }
    }
}
