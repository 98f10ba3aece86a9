//! The send queue of one connection, bounded by count and bytes, and its writer. A queue that
//! stays full for 10 s closes its connection; nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use procd_protocol::limits::{REPLIES_QUEUED_MAX, REPLY_BYTES_CONNECTION_MAX, SEND_STALL_MS};
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::as_count;
use super::budget::{Charge, ReplyAccount, ReplyBudget};

/// How long a queue may stay full, and its last frames may take.
pub(super) const STALL: Duration = Duration::from_millis(SEND_STALL_MS);

/// A frame that waits to be written, with the room it takes.
#[derive(Debug)]
struct Queued {
    frame: Bytes,
    _room: OwnedSemaphorePermit,
    _charge: Charge,
}

/// Puts frames in the queue. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SendQueue {
    frames: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    account: Arc<ReplyAccount>,
    closing: CancellationToken,
}

/// Takes frames out of the queue.
#[derive(Debug)]
pub(super) struct Writer {
    frames: mpsc::Receiver<Queued>,
    closing: CancellationToken,
}

/// A queue whose connection is closed by `closing`.
pub(super) fn queue(replies: Arc<ReplyBudget>, closing: CancellationToken) -> (SendQueue, Writer) {
    let (sender, frames) = mpsc::channel(as_count(REPLIES_QUEUED_MAX));
    let room = Arc::new(Semaphore::new(as_count(REPLY_BYTES_CONNECTION_MAX)));
    let account = Arc::new(replies.open(closing.clone()));
    let queue = SendQueue { frames: sender, room, account, closing: closing.clone() };
    (queue, Writer { frames, closing })
}

impl SendQueue {
    /// Queues a frame; waits while there is no room, and closes the connection when that takes
    /// too long. A frame for a connection that closes is dropped.
    pub(super) async fn push(&self, frame: &BytesMut) {
        let queueing = tokio::time::timeout(STALL, self.try_queue(frame));
        tokio::select! {
            queued = queueing => {
                if queued.is_err() {
                    tracing::warn!("a client did not read its replies; its connection is closed");
                    self.closing.cancel();
                }
            }
            () = self.closing.cancelled() => {}
        }
    }

    async fn try_queue(&self, frame: &BytesMut) -> Option<()> {
        let room = self.room.clone().acquire_many_owned(room_of(frame)).await.ok()?;
        let charge = self.account.charge(frame.len()).await;
        let slot = self.frames.reserve().await.ok()?;
        slot.send(Queued { frame: frame.clone().freeze(), _room: room, _charge: charge });
        Some(())
    }

    /// Queues a frame only if there is room at once.
    pub(super) fn try_push(&self, frame: &BytesMut) {
        let room = self.room.clone().try_acquire_many_owned(room_of(frame)).ok();
        let charge = self.account.try_charge(frame.len());
        if let (Some(room), Some(charge)) = (room, charge) {
            let queued = Queued { frame: frame.clone().freeze(), _room: room, _charge: charge };
            drop(self.frames.try_send(queued));
        }
    }
}

/// What a frame takes of the queue: a whole one at most, so that the longest fits.
fn room_of(frame: &BytesMut) -> u32 {
    let bytes = frame.len().min(as_count(REPLY_BYTES_CONNECTION_MAX));
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Writer {
    /// Writes until every sender is gone or the connection closes, then ends the stream.
    pub(super) async fn run<W: AsyncWrite>(mut self, mut io: WriteHalf<W>) {
        while let Some(queued) = self.frames.recv().await {
            let written = tokio::select! {
                written = io.write_all(&queued.frame) => written,
                () = self.closing.cancelled() => return,
            };
            if let Err(error) = written {
                tracing::debug!(%error, "a client left before its reply was written");
                self.closing.cancel();
                return;
            }
        }
        drop(io.shutdown().await);
    }
}
