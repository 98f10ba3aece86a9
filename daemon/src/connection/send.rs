//! The send queue of one connection, bounded by count and bytes, and its writer. A queue that
//! stays full for 10 s closes its connection; nobody else notices. While nothing waits, whoever
//! has a frame writes it itself: a wake of the writer would come between an output and the client
//! that waits for it.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use procd_protocol::limits::{REPLIES_QUEUED_MAX, REPLY_BYTES_CONNECTION_MAX, SEND_STALL_MS};
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::as_count;
use super::budget::{Charge, ReplyAccount, ReplyBudget};

/// Longer frames are left to the writer: whoever made one may have more to do.
const DIRECT_BYTES_MAX: usize = 64 * 1024;
/// Frames of so many bytes, at least, leave much free memory behind.
const LONG_BYTES: usize = 256 * 1024;
/// How long a queue may stay full, and its last frames may take.
pub(super) const STALL: Duration = Duration::from_millis(SEND_STALL_MS);

/// The writing half. Locked for a whole frame each time.
type Io = Mutex<Pin<Box<dyn AsyncWrite + Send>>>;

/// The room that a frame takes until it is written.
#[derive(Debug)]
struct Room {
    _bytes: OwnedSemaphorePermit,
    _charge: Charge,
}

/// A frame that waits to be written.
#[derive(Debug)]
struct Queued {
    frame: Bytes,
    _room: Room,
    _waits: Waits,
}

/// One frame that is queued, or is about to be.
#[derive(Debug)]
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Puts frames in the queue. Clones share it.
#[derive(Clone)]
pub(super) struct SendQueue {
    frames: mpsc::Sender<Queued>,
    waiting: Arc<AtomicUsize>,
    /// The writer's: with it the connection is over.
    io: Weak<Io>,
    room: Arc<Semaphore>,
    account: Arc<ReplyAccount>,
    closing: CancellationToken,
}

/// Takes frames out of the queue.
pub(super) struct Writer {
    frames: mpsc::Receiver<Queued>,
    io: Arc<Io>,
    closing: CancellationToken,
}

/// A queue whose connection is closed by `closing`.
pub(super) fn queue<W: AsyncWrite + Send + 'static>(
    io: WriteHalf<W>,
    replies: Arc<ReplyBudget>,
    closing: CancellationToken,
) -> (SendQueue, Writer) {
    let (sender, frames) = mpsc::channel(as_count(REPLIES_QUEUED_MAX));
    let io: Arc<Io> = Arc::new(Mutex::new(Box::pin(io)));
    let queue = SendQueue {
        frames: sender,
        waiting: Arc::default(),
        io: Arc::downgrade(&io),
        room: Arc::new(Semaphore::new(as_count(REPLY_BYTES_CONNECTION_MAX))),
        account: Arc::new(replies.open(closing.clone())),
        closing: closing.clone(),
    };
    (queue, Writer { frames, io, closing })
}

impl SendQueue {
    /// Sends a frame; waits while there is no room, and closes the connection when that takes too
    /// long. A frame for a connection that closes is dropped.
    pub(super) async fn push(&self, frame: BytesMut) {
        let sending = tokio::time::timeout(STALL, self.send(frame));
        tokio::select! {
            biased;
            sent = sending => {
                if sent.is_err() {
                    tracing::warn!("a client did not read its replies; its connection is closed");
                    self.closing.cancel();
                }
            }
            () = self.closing.cancelled() => {}
        }
    }

    async fn send(&self, frame: BytesMut) -> Option<()> {
        if frame.len() <= DIRECT_BYTES_MAX && self.waiting.load(Ordering::Acquire) == 0 {
            let io = self.io.upgrade()?;
            if let (Ok(mut io), Some(_room)) = (io.try_lock(), self.try_room(&frame))
                // Again under the lock: what waits now would have been written first.
                && self.waiting.load(Ordering::Acquire) == 0
            {
                if let Err(error) = io.write_all(&frame).await {
                    left(&error, &self.closing);
                }
                return Some(());
            }
        }
        if frame.len() >= LONG_BYTES {
            self.account.note_long();
        }
        let waits = Waits::new(&self.waiting);
        let bytes = self.room.clone().acquire_many_owned(room_of(&frame)).await.ok()?;
        let charge = self.account.charge(frame.len()).await;
        let slot = self.frames.reserve().await.ok()?;
        let room = Room { _bytes: bytes, _charge: charge };
        slot.send(Queued { frame: frame.freeze(), _room: room, _waits: waits });
        Some(())
    }

    fn try_room(&self, frame: &BytesMut) -> Option<Room> {
        let bytes = self.room.clone().try_acquire_many_owned(room_of(frame)).ok()?;
        let charge = self.account.try_charge(frame.len())?;
        Some(Room { _bytes: bytes, _charge: charge })
    }

    /// Queues a frame only if there is room at once.
    pub(super) fn try_push(&self, frame: BytesMut) {
        let waits = Waits::new(&self.waiting);
        if let Some(room) = self.try_room(&frame) {
            let queued = Queued { frame: frame.freeze(), _room: room, _waits: waits };
            drop(self.frames.try_send(queued));
        }
    }
}

/// What a frame takes of the queue: a whole one at most, so that the longest fits.
fn room_of(frame: &BytesMut) -> u32 {
    let bytes = frame.len().min(as_count(REPLY_BYTES_CONNECTION_MAX));
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn left(error: &std::io::Error, closing: &CancellationToken) {
    tracing::debug!(%error, "a client left before its reply was written");
    closing.cancel();
}

impl Writer {
    /// Writes until every sender is gone or the connection closes, then ends the stream.
    pub(super) async fn run(mut self) {
        while let Some(queued) = self.frames.recv().await {
            let written = tokio::select! {
                written = write(&self.io, &queued.frame) => written,
                () = self.closing.cancelled() => return,
            };
            if let Err(error) = written {
                return left(&error, &self.closing);
            }
        }
        drop(self.io.lock().await.shutdown().await);
    }
}

async fn write(io: &Io, frame: &[u8]) -> std::io::Result<()> {
    io.lock().await.write_all(frame).await
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use tokio::io::AsyncReadExt;

    use super::*;

    const SENDERS: u8 = 8;
    const FRAMES: u8 = 200;

    fn frame(sender: u8, number: u8) -> BytesMut {
        // Some are written at once, some wait for the reader, some are left to the writer.
        let len = match number % 50 {
            49 => DIRECT_BYTES_MAX + 1,
            small => 2 + usize::from(small) * 40,
        };
        let mut frame = BytesMut::new();
        frame.put_u32(u32::try_from(len).unwrap());
        frame.put_slice(&[sender, number]);
        frame.put_bytes(sender, len - 2);
        frame
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_of_many_senders_stay_whole_and_in_the_order_of_each() {
        let (ours, mut theirs) = tokio::io::duplex(1_000);
        let (_read, write) = tokio::io::split(ours);
        let replies = Arc::new(ReplyBudget::new(1 << 30));
        let (queue, writer) = queue(write, replies, CancellationToken::new());
        let writing = tokio::spawn(writer.run());
        for sender in 0..SENDERS {
            let queue = queue.clone();
            tokio::spawn(async move {
                for number in 0..FRAMES {
                    queue.push(frame(sender, number)).await;
                }
            });
        }
        drop(queue);
        let mut next = [0_u8; SENDERS as usize];
        while let Ok(len) = theirs.read_u32().await {
            let mut body = vec![0; usize::try_from(len).unwrap()];
            theirs.read_exact(&mut body).await.unwrap();
            let number = &mut next[usize::from(body[0])];
            assert!(body[..] == frame(body[0], *number)[4..], "frame {number} of {}", body[0]);
            *number += 1;
        }
        assert_eq!(next, [FRAMES; SENDERS as usize]);
        writing.await.unwrap();
    }
}
