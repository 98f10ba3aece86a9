//! Reads frames. No byte of one is taken before there is room for it, neither in the
//! connection's budget nor in the daemon's, and none is taken for longer than 30 s. Small frames
//! have room of their connection's own: clients that fill the daemon's room stall no other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use procd_protocol::codec::FrameError;
use procd_protocol::limits::{
    FRAME_BYTES_MAX, FRAME_HEADER_BYTES, HALF_FRAME_TIMEOUT_MS, REQUEST_BYTES_CONNECTION_MAX,
};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader, ReadHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::as_count;

/// What one read asks the system for, bytes; small frames come several at a time, and the rest of
/// a longer one comes without this buffer. Every connection keeps it.
const READ_BYTES: usize = 4 * 1024;
/// How much of a long frame is accounted for at a time: what a client announces and does not
/// send takes nothing from the others.
const STEP_BYTES: usize = 256 * 1024;

/// Room for small frames that is a connection's own, bytes; part of the daemon's room that the
/// other connections never get.
pub(super) const OWN_BYTES: usize = 64 * 1024;

/// One frame, with the room it takes until its request is answered.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) held: Held,
}

/// Room in the connection's budget and in the daemon's, or in what of that is the connection's
/// own; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    connection: OwnedSemaphorePermit,
    daemon: OwnedSemaphorePermit,
}

impl Held {
    /// Gives back all but the first `bytes`: the request is read, and holds no more than that.
    pub(super) fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.connection, &mut self.daemon] {
            drop(permit.split(permit.num_permits().saturating_sub(bytes)));
        }
    }
}

/// Why there are no more frames.
#[derive(Debug)]
pub(super) enum FrameEnd {
    /// The client has closed, between frames.
    Closed,
    /// The client has closed inside a frame, or the system failed.
    Broken(io::Error),
    /// A half frame got too old.
    Stalled,
    /// The stream cannot be read any further.
    Refused(FrameError),
}

/// Reads frames off one connection.
pub(super) struct FrameReader<R> {
    io: BufReader<ReadHalf<R>>,
    connection: Arc<Semaphore>,
    own: Arc<Semaphore>,
    daemon: Arc<Semaphore>,
}

impl<R: AsyncRead> FrameReader<R> {
    /// `daemon`: the room for requests of all connections, bytes.
    pub(super) fn new(io: ReadHalf<R>, daemon: Arc<Semaphore>) -> Self {
        Self {
            io: BufReader::with_capacity(READ_BYTES, io),
            connection: Arc::new(Semaphore::new(as_count(REQUEST_BYTES_CONNECTION_MAX))),
            own: Arc::new(Semaphore::new(OWN_BYTES)),
            daemon,
        }
    }

    /// The next frame. Silence before one is fine. Not cancel safe.
    pub(super) async fn next(&mut self) -> Result<Frame, FrameEnd> {
        let mut header = [0; FRAME_HEADER_BYTES];
        match self.io.read(&mut header[..1]).await {
            Ok(0) => return Err(FrameEnd::Closed),
            Ok(_) => {}
            Err(error) => return Err(FrameEnd::Broken(error)),
        }
        let mut deadline = Instant::now() + Duration::from_millis(HALF_FRAME_TIMEOUT_MS);
        fill(&mut self.io, &mut header[1..], deadline).await?;
        let length = checked(header).map_err(FrameEnd::Refused)?;
        let mut held: Option<Held> = None;
        let mut bytes = BytesMut::new();
        while bytes.len() < length {
            let step = STEP_BYTES.min(length - bytes.len());
            // Waiting for room is not the client's delay.
            let waiting = Instant::now();
            self.take_room(step, &mut held).await?;
            deadline += waiting.elapsed();
            let start = bytes.len();
            bytes.resize(start + step, 0);
            fill(&mut self.io, &mut bytes[start..], deadline).await?;
        }
        let held = held.ok_or(FrameEnd::Refused(FrameError::Empty))?;
        Ok(Frame { bytes: bytes.freeze(), held })
    }

    async fn take_room(&self, bytes: usize, held: &mut Option<Held>) -> Result<(), FrameEnd> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let take = |room: &Arc<Semaphore>| room.clone().acquire_many_owned(permits);
        let gone = |_closed| FrameEnd::Broken(io::ErrorKind::NotConnected.into());
        let connection = take(&self.connection).await.map_err(gone)?;
        match held {
            Some(held) => {
                held.connection.merge(connection);
                held.daemon.merge(take(&self.daemon).await.map_err(gone)?);
            }
            None => {
                // A frame of one step may fit into the own room; a longer one never does.
                let daemon = match self.own.clone().try_acquire_many_owned(permits) {
                    Ok(own) => own,
                    Err(_full) => take(&self.daemon).await.map_err(gone)?,
                };
                *held = Some(Held { connection, daemon });
            }
        }
        Ok(())
    }

    /// Reads and forgets, until the client closes.
    pub(super) async fn discard(&mut self) {
        let mut sink = vec![0; READ_BYTES];
        while self.io.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    }
}

async fn fill<R: AsyncRead + Unpin>(
    io: &mut R,
    to: &mut [u8],
    deadline: Instant,
) -> Result<(), FrameEnd> {
    match tokio::time::timeout_at(deadline, io.read_exact(to)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(FrameEnd::Broken(error)),
        Err(_elapsed) => Err(FrameEnd::Stalled),
    }
}

/// Judges a length before any room is made for it.
fn checked(header: [u8; FRAME_HEADER_BYTES]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(header);
    match usize::try_from(length) {
        Ok(0) => Err(FrameError::Empty),
        Ok(fitting) if u64::from(length) <= FRAME_BYTES_MAX => Ok(fitting),
        Ok(_) | Err(_) => Err(FrameError::TooLarge { length: u64::from(length) }),
    }
}
