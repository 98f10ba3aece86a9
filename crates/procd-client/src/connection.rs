//! One connection: concurrent calls by id over one reader and one writer task.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use procd_protocol::envelope::{self, CANCEL, NoticeOut, Received, RequestOut};
use procd_protocol::limits::REQUESTS_IN_FLIGHT_MAX;
use procd_protocol::v1::{CancelParams, Params};
use procd_protocol::{RequestId, Word, codec};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::error::ClientError;

/// Frames that wait to be written; beyond it calls wait.
const WRITE_QUEUE_FRAMES: usize = 64;
/// Room made for each read, bytes.
const READ_BYTES: usize = 64 * 1024;

/// Whether dropping the wait for an answer ends the request too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// The request goes on, its answer is thrown away.
    Leave,
    /// `$/cancel` is sent: ends a wait, and a start that has not been answered.
    Cancel,
}

type Answer = Result<Box<RawValue>, ClientError>;

/// A connection to the daemon. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    outgoing: mpsc::Sender<BytesMut>,
    waiting: Arc<Mutex<Waiting>>,
    room: Arc<Semaphore>,
    has_ended: watch::Receiver<bool>,
    last_id: AtomicI64,
    reader: tokio::task::AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The writer ends by itself when its queue is closed and written.
        self.reader.abort();
    }
}

/// Who waits for an answer; after the end, why there is none any more.
#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<RequestId, Call>,
    ended: Option<ClientError>,
}

#[derive(Debug)]
struct Call {
    answer: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    /// Speaks over `stream`. Has to be called inside a tokio runtime.
    pub(crate) fn over<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(stream);
        let (outgoing, queue) = mpsc::channel(WRITE_QUEUE_FRAMES);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (end, has_ended) = watch::channel(false);
        let end = End { waiting: Arc::clone(&waiting), has_ended: Arc::new(end) };
        let reader = tokio::spawn(read_all(read, end.clone())).abort_handle();
        tokio::spawn(write_all(write, queue, end));
        let in_flight = usize::try_from(REQUESTS_IN_FLIGHT_MAX).unwrap_or(1);
        let room = Arc::new(Semaphore::new(in_flight));
        Self { outgoing, waiting, room, has_ended, last_id: AtomicI64::new(0), reader }
    }

    /// Whether it cannot be used any more.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.waiting).ended.is_some()
    }

    /// Waits until it cannot be used any more.
    pub(crate) async fn closed(&self) {
        // The sender goes with the tasks of the connection: that is the end, too.
        self.has_ended.clone().wait_for(|has_ended| *has_ended).await.ok();
    }

    /// Sends a request and waits for its answer. Beyond the requests that a connection may have
    /// in flight it waits before it sends.
    pub(crate) async fn call<P: Params>(
        &self,
        params: &P,
        on_drop: OnDrop,
    ) -> Result<P::Result, ClientError> {
        let raw = self.call_raw(P::METHOD.as_str(), params, on_drop).await?;
        serde_json::from_str(raw.get()).map_err(|error| ClientError::nonsense(&error))
    }

    /// As [`Self::call`], for any method and parameters.
    pub(crate) async fn call_raw(
        &self,
        method: &str,
        params: &impl Serialize,
        on_drop: OnDrop,
    ) -> Answer {
        let id = self.next_id();
        let frame = framed(&RequestOut { id, method, params, trace: None })?;
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_closed| self.ended())?;
        let Ok(place) = self.outgoing.reserve().await else {
            // Nothing can be written any more; the reader still finds out why.
            self.closed().await;
            return Err(self.ended());
        };
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if let Some(ended) = &waiting.ended {
                return Err(ended.clone());
            }
            waiting.calls.insert(id, Call { answer, _room: room });
        }
        place.send(frame);
        let mut guard = CancelOnDrop { connection: self, id, is_armed: on_drop == OnDrop::Cancel };
        let answer = answered.await;
        guard.is_armed = false;
        answer.unwrap_or_else(|_dropped| Err(self.ended()))
    }

    fn next_id(&self) -> RequestId {
        loop {
            let number = self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if let Some(id) = RequestId::new(number) {
                return id;
            }
            self.last_id.store(0, Ordering::Relaxed);
        }
    }

    fn ended(&self) -> ClientError {
        let waiting = lock(&self.waiting);
        waiting.ended.clone().unwrap_or_else(|| ClientError::disconnected("it was closed"))
    }

    /// Sends `$/cancel`. Never waits: with the queue full a task waits in its place.
    fn cancel(&self, id: RequestId) {
        let notice = NoticeOut { method: CANCEL, params: &CancelParams { request: id } };
        let Ok(frame) = framed(&notice) else { return };
        match self.outgoing.try_send(frame) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(frame)) => {
                let outgoing = self.outgoing.clone();
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { outgoing.send(frame).await });
                }
            }
        }
    }
}

/// Cancels a request whose answer nobody waits for any more.
struct CancelOnDrop<'c> {
    connection: &'c Connection,
    id: RequestId,
    is_armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.connection.cancel(self.id);
        }
    }
}

fn framed(message: &impl Serialize) -> Result<BytesMut, ClientError> {
    let mut frame = BytesMut::new();
    codec::encode_with(&mut frame, |to| serde_json::to_writer(to, message))
        .map_err(|error| ClientError::Unsendable { message: error.to_string() })?;
    Ok(frame)
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands every answer to its call, until the stream ends.
async fn read_all<S: AsyncRead>(mut stream: ReadHalf<S>, end: End) {
    let mut buffer = BytesMut::new();
    let mut refusal = None;
    let reason = loop {
        let frame = match next_frame(&mut stream, &mut buffer).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break ClientError::disconnected("the daemon closed it"),
            Err(error) => break ClientError::disconnected(error.to_string()),
        };
        match envelope::parse_received(&frame) {
            Ok(Received::Reply { id: Some(id), outcome }) => {
                let call = lock(&end.waiting).calls.remove(&id);
                let answer = outcome.map_err(ClientError::Refused);
                // Nobody waits any more for what was dropped meanwhile.
                call.map(|call| call.answer.send(answer).is_ok());
            }
            // A refusal of the connection itself: the last words before it is closed.
            Ok(Received::Reply { id: None, outcome: Err(body) }) => {
                refusal = Some(ClientError::Refused(body));
            }
            // Notices of a later version, or of subscriptions nobody here makes.
            Ok(Received::Notice { .. } | Received::Reply { id: None, outcome: Ok(_) }) => {}
            Err(error) => break ClientError::nonsense(&error),
        }
    };
    end.tell(refusal.unwrap_or(reason));
}

/// The next frame of the stream; `None` at its end.
async fn next_frame<S: AsyncRead>(
    stream: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
) -> io::Result<Option<Bytes>> {
    loop {
        let decoded = codec::decode(buffer);
        if let Some(frame) = decoded.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))? {
            return Ok(Some(frame));
        }
        buffer.reserve(READ_BYTES);
        if stream.read_buf(buffer).await? == 0 {
            let is_cut = !buffer.is_empty();
            return if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
        }
    }
}

/// Writes every frame of the queue, until it is closed or the stream breaks.
async fn write_all<S: AsyncWrite>(
    mut stream: WriteHalf<S>,
    mut queue: mpsc::Receiver<BytesMut>,
    end: End,
) {
    while let Some(frame) = queue.recv().await {
        let Err(error) = stream.write_all(&frame).await else { continue };
        queue.close();
        // A daemon that has hung up may have said why: the reader ends the calls then.
        let kind = error.kind();
        if !matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            end.tell(ClientError::disconnected(error.to_string()));
        }
        return;
    }
    // The daemon sees the end of our requests.
    stream.shutdown().await.ok();
}

/// The end of a connection, for the tasks that see it.
#[derive(Debug, Clone)]
struct End {
    waiting: Arc<Mutex<Waiting>>,
    has_ended: Arc<watch::Sender<bool>>,
}

impl End {
    /// Nothing comes any more: every call learns why. The first reason stays.
    fn tell(&self, reason: ClientError) {
        let (calls, reason) = {
            let mut waiting = lock(&self.waiting);
            let reason = waiting.ended.get_or_insert(reason).clone();
            (std::mem::take(&mut waiting.calls), reason)
        };
        for call in calls.into_values() {
            // A call that was dropped meanwhile needs no reason.
            call.answer.send(Err(reason.clone())).ok();
        }
        self.has_ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests;
