//! One connection: concurrent calls by id over one reader and one writer task.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use procd_protocol::envelope::{self, CANCEL, NoticeOut, Received, RequestOut};
use procd_protocol::limits::REQUESTS_IN_FLIGHT_MAX;
use procd_protocol::v1::{CancelParams, Params, StatusParams, UnsubscribeParams};
use procd_protocol::{RequestId, Word, codec};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::error::ClientError;
use crate::stream::Notice;

/// Frames that wait to be written; beyond it calls wait.
const WRITE_QUEUE_FRAMES: usize = 64;
/// Room made for each read, bytes.
const READ_BYTES: usize = 64 * 1024;
/// Notices of one request that wait to be taken. The daemon sends at most 64 events and 64 offers
/// ahead, or 4 chunks of an export.
const NOTICES_MAX: usize = 256;

/// Whether dropping the wait for an answer ends the request too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// The request goes on, its answer is thrown away.
    Leave,
    /// `$/cancel` is sent: ends a wait, and a start that has not been answered.
    Cancel,
}

pub(crate) type Answer = Result<Box<RawValue>, ClientError>;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: RequestId,
    pub(crate) answer: oneshot::Receiver<Answer>,
    /// What comes before or behind its answer, when that was asked for.
    pub(crate) notices: Option<mpsc::Receiver<Notice>>,
}

/// A connection to the daemon. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    end: End,
    outgoing: mpsc::Sender<BytesMut>,
    waiting: Arc<Mutex<Waiting>>,
    room: Arc<Semaphore>,
    has_ended: watch::Receiver<bool>,
    last_id: Arc<AtomicI64>,
    reader: AbortHandle,
    writer: AbortHandle,
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
    /// Who takes the notices of a request.
    streams: HashMap<RequestId, mpsc::Sender<Notice>>,
    ended: Option<ClientError>,
}

#[derive(Debug)]
struct Call {
    answer: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    /// Speaks over `stream`. Has to be called inside a tokio runtime.
    /// - `silence_max`: how long nothing may come of a daemon that is asked whether it is there.
    pub(crate) fn over<S>(stream: S, silence_max: Option<Duration>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(stream);
        let (outgoing, queue) = mpsc::channel(WRITE_QUEUE_FRAMES);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (end, has_ended) = watch::channel(false);
        let end = End { waiting: Arc::clone(&waiting), has_ended: Arc::new(end) };
        let writer = tokio::spawn(write_all(write, queue, end.clone())).abort_handle();
        let last_id = Arc::new(AtomicI64::new(0));
        let silence = silence_max.map(|max| Silence {
            max,
            outgoing: outgoing.downgrade(),
            last_id: Arc::clone(&last_id),
            writer: writer.clone(),
        });
        let reader = tokio::spawn(read_all(read, end.clone(), silence)).abort_handle();
        let in_flight = usize::try_from(REQUESTS_IN_FLIGHT_MAX).unwrap_or(1);
        let room = Arc::new(Semaphore::new(in_flight));
        Self { end, outgoing, waiting, room, has_ended, last_id, reader, writer }
    }

    /// Ends it from this side.
    pub(crate) fn end(&self) {
        self.reader.abort();
        self.writer.abort();
        self.end.tell(ClientError::disconnected("it was dropped"));
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
        let sent = self.send(method, params, false).await?;
        let is_armed = on_drop == OnDrop::Cancel;
        let mut guard = CancelOnDrop { connection: self, id: sent.id, is_armed };
        let answer = sent.answer.await;
        guard.is_armed = false;
        answer.unwrap_or_else(|_dropped| Err(self.ended()))
    }

    /// Sends a request whose answer is waited for elsewhere. With `has_notices`, those that belong
    /// to it are kept, until [`Self::forget`].
    pub(crate) async fn send(
        &self,
        method: &str,
        params: &impl Serialize,
        has_notices: bool,
    ) -> Result<Sent, ClientError> {
        let id = self.next_id();
        let frame = framed(&RequestOut { id, method, params, trace: None })?;
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_closed| self.ended())?;
        let Ok(place) = self.outgoing.reserve().await else {
            // Nothing can be written any more; the reader still finds out why.
            self.closed().await;
            return Err(self.ended());
        };
        let (call, answer) = oneshot::channel();
        let (stream, notices) = has_notices.then(|| mpsc::channel(NOTICES_MAX)).unzip();
        {
            let mut waiting = lock(&self.waiting);
            if let Some(ended) = &waiting.ended {
                return Err(ended.clone());
            }
            waiting.calls.insert(id, Call { answer: call, _room: room });
            waiting.streams.extend(stream.map(|stream| (id, stream)));
        }
        place.send(frame);
        Ok(Sent { id, answer, notices })
    }

    fn next_id(&self) -> RequestId {
        id_behind(&self.last_id)
    }

    /// Why nothing comes any more.
    pub(crate) fn ended(&self) -> ClientError {
        let waiting = lock(&self.waiting);
        waiting.ended.clone().unwrap_or_else(|| ClientError::disconnected("it was closed"))
    }

    /// Sends `$/cancel`.
    pub(crate) fn cancel(&self, id: RequestId) {
        self.tell(&NoticeOut { method: CANCEL, params: &CancelParams { request: id } });
    }

    /// Takes no more notices of a request.
    pub(crate) fn forget(&self, id: RequestId) {
        lock(&self.waiting).streams.remove(&id);
    }

    /// Ends a subscription. Nobody waits for the answer.
    pub(crate) fn unsubscribe(&self, id: RequestId) {
        self.tell_call(&UnsubscribeParams { request: id });
    }

    /// Makes a call whose answer nobody waits for. Never waits.
    pub(crate) fn tell_call<P: Params>(&self, params: &P) {
        let (id, method) = (self.next_id(), P::METHOD.as_str());
        self.tell(&RequestOut { id, method, params, trace: None });
    }

    /// Sends a message that is not waited for. Never waits: with the queue full a task waits in
    /// its place.
    pub(crate) fn tell(&self, message: &impl Serialize) {
        let Ok(frame) = framed(message) else { return };
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

fn id_behind(last_id: &AtomicI64) -> RequestId {
    loop {
        let number = last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(id) = RequestId::new(number) {
            return id;
        }
        last_id.store(0, Ordering::Relaxed);
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
async fn read_all<S: AsyncRead>(mut stream: ReadHalf<S>, end: End, silence: Option<Silence>) {
    let mut buffer = BytesMut::new();
    let mut refusal = None;
    let reason = loop {
        let next = next_frame(&mut stream, &mut buffer);
        let next = match &silence {
            Some(silence) => silence.heard(next).await,
            None => Ok(next.await),
        };
        let frame = match next {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => break ClientError::disconnected("the daemon closed it"),
            Ok(Err(error)) => break ClientError::disconnected(error.to_string()),
            Err(silent) => break silent,
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
            Ok(Received::Notice { method, params }) => {
                if let Some(full) = hand_out(&end.waiting, method, params) {
                    break full;
                }
            }
            Ok(Received::Reply { id: None, outcome: Ok(_) }) => {}
            Err(error) => break ClientError::nonsense(&error),
        }
    };
    end.tell(refusal.unwrap_or(reason));
}

/// Finds out that a daemon hangs: one that works answers a question in time, whatever else is
/// waited for.
struct Silence {
    max: Duration,
    /// Weak: the connection closes the queue when it is dropped.
    outgoing: mpsc::WeakSender<BytesMut>,
    last_id: Arc<AtomicI64>,
    writer: AbortHandle,
}

impl Silence {
    /// What `next` gives. When nothing has come for half the time, the daemon is asked; when
    /// nothing comes of that either, it is given up.
    /// # Errors
    /// [`ClientError::Silent`].
    async fn heard<T>(&self, next: impl Future<Output = T>) -> Result<T, ClientError> {
        let mut next = std::pin::pin!(next);
        if let Ok(heard) = tokio::time::timeout(self.max / 2, &mut next).await {
            return Ok(heard);
        }
        self.ask();
        match tokio::time::timeout(self.max / 2, next).await {
            Ok(heard) => Ok(heard),
            Err(_elapsed) => {
                // It takes nothing any more: what waits for room in its queue is to learn that.
                self.writer.abort();
                Err(ClientError::Silent { limit: self.max })
            }
        }
    }

    /// Makes a call whose answer nobody waits for: that it comes is enough.
    fn ask(&self) {
        let (id, method) = (id_behind(&self.last_id), StatusParams::METHOD.as_str());
        let message = RequestOut { id, method, params: &StatusParams::default(), trace: None };
        if let (Ok(frame), Some(outgoing)) = (framed(&message), self.outgoing.upgrade()) {
            // With the queue full there is enough that it could answer.
            outgoing.try_send(frame).ok();
        }
    }
}

/// Gives a notice to whoever takes those of its request. One of a later version, or of a request
/// that was dropped, is nobody's.
fn hand_out(
    waiting: &Mutex<Waiting>,
    method: String,
    params: Option<Box<RawValue>>,
) -> Option<ClientError> {
    let notice = Notice::read(method, params)?;
    let stream = lock(waiting).streams.get(&notice.request).cloned()?;
    match stream.try_send(notice) {
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
        // The reader never waits for one taker: everybody's answers come through it.
        Err(mpsc::error::TrySendError::Full(_)) => {
            Some(ClientError::nonsense(&"more notices came than may be on their way"))
        }
    }
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
            waiting.streams.clear();
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
