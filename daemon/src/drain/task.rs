//! The drain task of one process.
//!
//! ```text
//! (readable -> one read -> append)* -> asked to finish -> read what is there -> complete
//!        ^--- asked to catch up -> read what is there
//!        \--- both pipes at their end -> lays the writer down for whoever ends the process
//! ```
//!
//! It sleeps when nothing is due and holds no buffer then: a thread has one for all its tasks.

use std::cell::RefCell;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use procd_store::spool::Source;
use tokio::sync::oneshot;

use super::Streams;
use super::output::{FinishedOutput, OutputWriter};
use super::stream::{ReadOutcome, Stream};
use super::sync::{BackgroundSync, SyncStep};
use crate::clock::Clock;
use crate::lane::LaneReceiver;

/// Bytes read at once: a quarter of a grown pipe, so that reader and writer overlap.
const BUFFER_BYTES: usize = 256 * 1024;
/// A read of fewer bytes comes from a command that somebody may be talking with.
const QUIET_BYTES: usize = 4 * 1024;
/// So many reads in a row, or so many bytes, then others have their turn: with many loud ones it
/// is what the end of a quiet one waits for.
const TURN_READS: u32 = 32;
const TURN_BYTES: usize = 1024 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into_boxed_slice());
}

/// What the task waits for.
enum Event {
    Stdout,
    Stderr,
    CatchUp(oneshot::Sender<()>),
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
    bytes: usize,
}

/// Where the writer lies once nobody can write any more: whoever ends the process completes the
/// output then, without a change of threads. Held for moves in memory only.
pub(super) type ReadOut = Arc<Mutex<Option<OutputWriter>>>;

/// What lies there.
pub(super) fn lying(read_out: &ReadOut) -> MutexGuard<'_, Option<OutputWriter>> {
    read_out.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drains until asked to finish; a dropped asker asks too. `None` = somebody else has completed
/// the output.
pub(super) async fn drain(
    writer: OutputWriter,
    streams: Streams,
    sync: BackgroundSync,
    read_out: ReadOut,
    mut asked: LaneReceiver<oneshot::Sender<()>>,
) -> Option<FinishedOutput> {
    let first = if streams.merged { Source::Mixed } else { Source::Stdout };
    let mut drain = Drain {
        writer,
        stdout: watch(streams.stdout, first, streams.terminal),
        stderr: watch(streams.stderr, Source::Stderr, false),
        sync,
        clock: Clock,
        reads: 0,
        bytes: 0,
    };
    loop {
        let event = tokio::select! {
            () = readable(&mut drain.stdout) => Event::Stdout,
            () = readable(&mut drain.stderr) => Event::Stderr,
            ask = asked.recv() => ask.map_or(Event::Finish, Event::CatchUp),
            step = drain.sync.next() => Event::Sync(step),
        };
        match event {
            Event::Stdout => drain.read(Which::Stdout).await,
            Event::Stderr => drain.read(Which::Stderr).await,
            Event::Sync(step) => {
                drain.sync.step(step, drain.writer.spool());
                drain.writer.note_status();
            }
            Event::CatchUp(told) => {
                if drain.read_what_is_there().await > 0 {
                    drain.sync.note_write();
                }
                if told.send(()).is_err() {
                    tracing::debug!("whoever asked for an output has gone on without it");
                }
            }
            Event::Finish => {
                drain.read_what_is_there().await;
                drop((drain.stdout.take(), drain.stderr.take()));
                return Some(drain.writer.finish());
            }
        }
        if drain.is_read_out() {
            // Before the writer lies there: whoever completes the output finds no pipe open.
            drop((drain.stdout.take(), drain.stderr.take()));
            *lying(&read_out) = Some(drain.writer);
            return keep_synced(drain.sync, &read_out, asked).await;
        }
    }
}

/// The rest of a drain that has nothing to read any more.
async fn keep_synced(
    mut sync: BackgroundSync,
    read_out: &ReadOut,
    mut asked: LaneReceiver<oneshot::Sender<()>>,
) -> Option<FinishedOutput> {
    loop {
        tokio::select! {
            ask = asked.recv() => match ask {
                Some(told) => drop(told.send(())),
                None => return lying(read_out).take().map(OutputWriter::finish),
            },
            step = sync.next() => {
                let mut lying = lying(read_out);
                let writer = lying.as_mut()?;
                sync.step(step, writer.spool());
                writer.note_status();
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
            ReadOutcome::Bytes(len) => {
                self.sync.note_write();
                self.reads += 1;
                self.bytes += len;
            }
            ReadOutcome::Empty | ReadOutcome::End => (self.reads, self.bytes) = (0, 0),
        }
        // Whoever waits for a few bytes is served before the pipe is looked at again.
        let is_quiet = matches!(outcome, ReadOutcome::Bytes(len) if len < QUIET_BYTES);
        if self.reads >= TURN_READS || self.bytes >= TURN_BYTES || is_quiet {
            (self.reads, self.bytes) = (0, 0);
            tokio::task::yield_now().await;
        }
    }

    /// Whether nothing more can come. A terminal can be opened again by its name.
    fn is_read_out(&self) -> bool {
        let is_over = |stream: &Option<Stream>| stream.as_ref().is_none_or(Stream::is_over);
        is_over(&self.stdout) && is_over(&self.stderr)
    }

    /// Reads what each stream holds now: so many bytes.
    async fn read_what_is_there(&mut self) -> usize {
        let mut count = 0;
        for stream in [&self.stdout, &self.stderr].into_iter().flatten() {
            // The measure is taken once: whoever has the other end may go on writing for ever.
            let mut left = stream.waiting();
            while left > 0 {
                let Some(len) = read_rest(&mut self.writer, stream, left, self.clock) else {
                    break;
                };
                left = left.saturating_sub(len);
                count += len;
                tokio::task::yield_now().await;
            }
        }
        count
    }
}

fn read_rest(
    writer: &mut OutputWriter,
    stream: &Stream,
    left: usize,
    clock: Clock,
) -> Option<usize> {
    BUFFER.with_borrow_mut(|buffer| {
        let len = left.min(buffer.len());
        match stream.read_now(buffer.get_mut(..len)?) {
            ReadOutcome::Bytes(len) => {
                append(writer, buffer, len, stream.source(), clock);
                Some(len)
            }
            ReadOutcome::Empty | ReadOutcome::End => None,
        }
    })
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
