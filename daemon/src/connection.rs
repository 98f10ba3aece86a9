//! One client: frames in, replies out, each request a task of its own.
//!
//! ```text
//! socket -> frames -> envelope -> request (a task each) -> send queue -> socket
//! ```
//!
//! Everything a client can make the daemon hold is counted: bytes and number of its requests,
//! bytes and number of its replies, age of a half frame, protocol errors a minute. What is over
//! a bound costs this client only. No lock is held while its socket is written.
//! Source: spec, protocol; output, *Waiting*.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use procd_protocol::envelope::Trace;
use procd_protocol::v1::Call;
use procd_protocol::{ErrorBody, ErrorCode, RequestId, codec, limits};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub mod budget;
mod errors;
mod frames;
mod reading;
mod replies;
mod send;
mod turns;

use budget::Budgets;
use errors::ErrorRate;
use frames::{Frame, FrameEnd, FrameReader};
use reading::{Said, Told};
use replies::{error_frame, reply_frame};
use send::SendQueue;

use crate::request::{self, Client, Done, Export, Reply};

/// After an error that ends the connection: how long its last words may take to be read.
const PARTING: Duration = Duration::from_secs(1);

/// At the end of the daemon: how long the last replies may take.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// What a wait keeps of its request at most, bytes: 64 handles and a pattern of 4 KiB.
const WAIT_BYTES: usize = 16 * 1024;

/// Serves one client until it leaves, breaks the rules, or `client.closing` is cancelled.
/// Its processes do not depend on it; its waits end with it.
pub async fn serve<S>(io: S, client: Arc<Client>, budgets: Arc<Budgets>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = tokio::io::split(io);
    let closing = client.closing.clone();
    let (queue, writer) = send::queue(write, budgets.replies.clone(), closing.clone());
    let writing = tokio::spawn(writer.run());
    let mut frames = FrameReader::new(read, budgets.requests.clone());
    let mut connection = Connection {
        client,
        queue,
        flight: Arc::default(),
        slots: Arc::new(Semaphore::new(as_count(limits::REQUESTS_IN_FLIGHT_MAX))),
        errors: ErrorRate::default(),
        tasks: JoinSet::new(),
        budgets,
    };
    let ending = connection.client.ending().clone();
    let is_parting = tokio::select! {
        is_parting = connection.run(&mut frames) => is_parting,
        () = closing.cancelled() => false,
        () = ending.cancelled() => connection.finish().await,
    };
    // Ends the waits of this client; what has to outlive it (a start, a stop) is not among them.
    connection.tasks.abort_all();
    drop(connection);
    finish_writing(writing, &closing).await;
    if is_parting {
        // Its last words are lost if the socket is closed while it still sends.
        drop(tokio::time::timeout(PARTING, frames.discard()).await);
    }
}

/// Lets the last replies be written, but for no longer than a full queue may stall.
async fn finish_writing(mut writing: JoinHandle<()>, closing: &CancellationToken) {
    let written = tokio::select! {
        written = &mut writing => written,
        () = tokio::time::sleep(send::STALL) => {
            closing.cancel();
            writing.await
        }
    };
    if written.is_err() {
        tracing::error!("bug: the writer of a connection panicked");
    }
}

/// A limit of the protocol as a number of items.
fn as_count(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The reading side of one connection.
struct Connection {
    client: Arc<Client>,
    queue: SendQueue,
    flight: Arc<Flight>,
    slots: Arc<Semaphore>,
    errors: ErrorRate,
    tasks: JoinSet<()>,
    budgets: Arc<Budgets>,
}

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Frame,
    End,
}

impl Connection {
    /// Reads until the end; whether the client was told why it ends.
    async fn run<R: AsyncRead + Send>(&mut self, frames: &mut FrameReader<R>) -> bool {
        let deadline = Instant::now() + Duration::from_millis(limits::HELLO_TIMEOUT_MS);
        let first = tokio::time::timeout_at(deadline, frames.next()).await;
        let Ok(first) = first else {
            tracing::debug!("a connection said no hello in time");
            return false;
        };
        self.turn().await;
        let mut next = self.take(first, true).await;
        while next == Some(Next::Frame) {
            while self.tasks.try_join_next().is_some() {}
            let frame = frames.next().await;
            self.turn().await;
            next = self.take(frame, false).await;
        }
        next == Some(Next::End)
    }

    /// Waits until the next frame may be looked at: what a client says in one piece is worth many
    /// turns of others.
    async fn turn(&self) {
        let now = self.client.clock().monotonic();
        if self.client.is_bound() && !self.errors.has_any(now) {
            tokio::task::consume_budget().await;
        } else {
            self.budgets.turns.next().await;
        }
    }

    /// The daemon ends: what is in flight comes back by itself and is still answered.
    async fn finish(&mut self) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        drop(tokio::time::timeout(LAST_REPLIES, all).await);
        false
    }

    /// One frame, or the end of them. `None` when nobody is there to be told.
    async fn take(&mut self, frame: Result<Frame, FrameEnd>, is_first: bool) -> Option<Next> {
        let body = match frame {
            Ok(frame) => return Some(self.handle(frame, is_first).await),
            Err(FrameEnd::Closed) => return None,
            Err(FrameEnd::Broken(error)) => {
                tracing::debug!(%error, "a connection broke");
                return None;
            }
            Err(FrameEnd::Stalled) => {
                tracing::debug!("a half frame was not completed in time");
                return None;
            }
            Err(FrameEnd::Refused(codec::FrameError::Empty)) => {
                ErrorBody::new(ErrorCode::InvalidArguments, "a frame of zero bytes")
            }
            Err(FrameEnd::Refused(error @ codec::FrameError::TooLarge { .. })) => {
                ErrorBody::new(ErrorCode::FrameTooLarge, error.to_string())
            }
        };
        self.refuse(None, &body, None).await;
        Some(Next::End)
    }

    async fn handle(&mut self, frame: Frame, is_first: bool) -> Next {
        let said = reading::read(&self.client, &frame.bytes, &self.budgets.long_frames).await;
        match said {
            Said::Request { ticket, is_hello: false, .. } if is_first => {
                let body = refused_method("`hello` has to be the first request");
                self.refuse(Some(ticket.id), &body, ticket.trace.as_ref()).await;
                Next::End
            }
            Said::Notice(_) if is_first => {
                let body = refused_method("`hello` has to be the first request");
                self.refuse(None, &body, None).await;
                Next::End
            }
            Said::Request { ticket, call, .. } => match call {
                Ok(Call::Hello(hello)) => self.hello(ticket, &hello).await,
                Ok(call) => self.start(ticket, call, frame.held).await,
                Err(body) if is_first => {
                    self.refuse(Some(ticket.id), &body, ticket.trace.as_ref()).await;
                    Next::End
                }
                Err(body) => self.refuse_request(ticket, &body).await,
            },
            Said::Notice(Ok(Told::Continue(taken))) => {
                self.client.continue_export(&taken);
                Next::Frame
            }
            Said::Notice(Ok(Told::Cancel(cancel))) => {
                // What is no longer in flight was answered before the notice came.
                self.flight.cancel(cancel.request);
                Next::Frame
            }
            Said::Notice(Err(body)) => self.protocol_error(body, false).await,
            Said::Neither(body) => self.protocol_error(body, is_first).await,
        }
    }

    async fn hello(&mut self, ticket: Ticket, hello: &procd_protocol::v1::HelloParams) -> Next {
        match self.client.hello(hello) {
            Ok(result) => {
                let mut reply = Reply::Hello(Box::new(result));
                self.queue.push(reply_frame(&ticket, &mut reply)).await;
                Next::Frame
            }
            Err(body) => {
                self.refuse(Some(ticket.id), &body, ticket.trace.as_ref()).await;
                Next::End
            }
        }
    }

    /// Starts a request as a task of its own.
    async fn start(&mut self, ticket: Ticket, call: Call, mut held: frames::Held) -> Next {
        let Some(slot) = self.slot_for(&call) else {
            let max = limits::REQUESTS_IN_FLIGHT_MAX;
            let text = format!("{max} requests of this connection are in flight");
            let body = ErrorBody::new(ErrorCode::TooManyRequests, text);
            return self.refuse(Some(ticket.id), &body, ticket.trace.as_ref()).await;
        };
        let cancel = CancellationToken::new();
        if !self.flight.enter(ticket.id, cancel.clone()) {
            let text = format!("the id {} is already in flight", ticket.id.number());
            let details =
                procd_protocol::Details { field: Some("id".into()), ..Default::default() };
            let body = ErrorBody::with_details(ErrorCode::InvalidArguments, text, details);
            return self.protocol_error(body, false).await;
        }
        let unanswered = Unanswered {
            ticket,
            queue: self.queue.clone(),
            flight: self.flight.clone(),
            slot: Some(slot),
        };
        // What may wait for long must not keep the room of a frame that it has not kept.
        if matches!(call, Call::ProcessOutput(_)) {
            held.shrink(WAIT_BYTES);
        }
        let client = self.client.clone();
        let place = self.client.place_of(&call).cloned();
        let carrying_out = async move {
            let method = call.method();
            let started = client.clock().monotonic();
            let room = request::FrameRoom::new(held);
            let outcome = request::answer(&client, unanswered.ticket.id, call, &cancel, room).await;
            let took_ms = client.clock().since(started).as_millis();
            tracing::debug!(%method, trace = unanswered.traceparent(), took_ms, "answered");
            unanswered.answer(outcome).await;
        };
        match place {
            Some(place) => self.tasks.spawn_on(carrying_out, &place),
            None => self.tasks.spawn(carrying_out),
        };
        Next::Frame
    }

    /// A place among those in flight. A subscription keeps its own until it ends, so it leaves one
    /// for the call that ends it.
    fn slot_for(&self, call: &Call) -> Option<OwnedSemaphorePermit> {
        let spare = usize::from(matches!(call, Call::EventsSubscribe(_)));
        let wanted = u32::try_from(1 + spare).unwrap_or(u32::MAX);
        let mut slot = self.slots.clone().try_acquire_many_owned(wanted).ok()?;
        drop(slot.split(spare));
        Some(slot)
    }

    /// A refused request; an unknown method is a protocol error.
    async fn refuse_request(&mut self, ticket: Ticket, body: &ErrorBody) -> Next {
        self.refuse(Some(ticket.id), body, ticket.trace.as_ref()).await;
        if body.details.field.as_deref() == Some("method") {
            self.count_error()
        } else {
            Next::Frame
        }
    }

    async fn protocol_error(&mut self, body: ErrorBody, is_first: bool) -> Next {
        self.refuse(None, &body, None).await;
        if is_first { Next::End } else { self.count_error() }
    }

    fn count_error(&mut self) -> Next {
        if self.errors.is_too_many(self.client.clock().monotonic()) {
            tracing::warn!("a client made too many protocol errors; its connection is closed");
            return Next::End;
        }
        Next::Frame
    }

    async fn refuse(&self, id: Option<RequestId>, body: &ErrorBody, trace: Option<&Trace>) -> Next {
        self.queue.push(error_frame(id, body, trace)).await;
        Next::Frame
    }
}

fn refused_method(text: &str) -> ErrorBody {
    let details = procd_protocol::Details { field: Some("method".into()), ..Default::default() };
    ErrorBody::with_details(ErrorCode::InvalidArguments, text, details)
}

/// What a reply needs of its request.
#[derive(Debug)]
struct Ticket {
    id: RequestId,
    trace: Option<Trace>,
}

/// The requests in flight and how to cancel each.
#[derive(Debug, Default)]
struct Flight(Mutex<HashMap<RequestId, CancellationToken>>);

impl Flight {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<RequestId, CancellationToken>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// False when the id is in flight already.
    fn enter(&self, id: RequestId, cancel: CancellationToken) -> bool {
        self.with(|flight| match flight.entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(cancel);
                true
            }
        })
    }

    fn leave(&self, id: RequestId) {
        self.with(|flight| drop(flight.remove(&id)));
    }

    fn cancel(&self, id: RequestId) {
        if let Some(token) = self.with(|flight| flight.get(&id).cloned()) {
            token.cancel();
        }
    }
}

/// A request without its reply. Dropped by a panic it answers `internal`, so that no client
/// waits for ever.
struct Unanswered {
    ticket: Ticket,
    queue: SendQueue,
    flight: Arc<Flight>,
    slot: Option<OwnedSemaphorePermit>,
}

impl Unanswered {
    /// Sends the notices of an export; its reply.
    async fn stream(&self, mut export: Export) -> Result<Done, ErrorBody> {
        while let Some(frame) = export.next().await? {
            self.queue.push(frame).await;
        }
        Ok(export.finish().into())
    }

    fn traceparent(&self) -> Option<&str> {
        self.ticket.trace.as_ref().map(|trace| trace.traceparent.as_str())
    }

    async fn answer(mut self, mut outcome: Result<Done, ErrorBody>) {
        if let Some(export) = outcome.as_mut().ok().and_then(|done| done.export.take()) {
            outcome = self.stream(export).await;
        }
        let slot = self.slot.take();
        let following = outcome.as_mut().ok().and_then(|done| done.following.take());
        let frame = match &mut outcome {
            Ok(done) => reply_frame(&self.ticket, &mut done.reply),
            Err(body) => error_frame(Some(self.ticket.id), body, self.ticket.trace.as_ref()),
        };
        let Some(mut following) = following else {
            // The id is free before its reply can be seen: a client may use it again at once.
            self.flight.leave(self.ticket.id);
            self.queue.push(frame).await;
            // Only now may the next big page be built, and the next request come in.
            drop((outcome, slot));
            return;
        };
        // A subscription keeps its id, and its place among those in flight, until it ends.
        self.queue.push(frame).await;
        drop(outcome);
        while let Some(frame) = following.next().await {
            self.queue.push(frame).await;
        }
        self.flight.leave(self.ticket.id);
        drop(slot);
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.slot.is_some() && std::thread::panicking() {
            tracing::error!("bug: a request panicked");
            let body = ErrorBody::new(ErrorCode::Internal, "internal error");
            self.flight.leave(self.ticket.id);
            self.queue.try_push(error_frame(
                Some(self.ticket.id),
                &body,
                self.ticket.trace.as_ref(),
            ));
        }
    }
}

/// Why a connection is refused before anything is read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The kernel does not say who the peer is.
    Unknown,
    /// A peer of another user.
    OtherUser,
    /// A peer that is supervised itself.
    Supervised,
    /// So many are open already.
    Full {
        /// The limit.
        max: u64,
    },
}

impl Refused {
    /// The one frame that says so.
    #[must_use]
    pub fn frame(self) -> BytesMut {
        let (code, text) = match self {
            Self::Unknown => {
                (ErrorCode::PermissionDenied, "it cannot be told who connects".to_owned())
            }
            Self::OtherUser => {
                let text = "only the user of this daemon may connect".to_owned();
                (ErrorCode::PermissionDenied, text)
            }
            Self::Supervised => {
                let text = "a supervised process may not connect: its start has no `allow_client`";
                (ErrorCode::PermissionDenied, text.to_owned())
            }
            Self::Full { max } => {
                (ErrorCode::TooManyRequests, format!("{max} connections are open"))
            }
        };
        error_frame(None, &ErrorBody::new(code, text), None)
    }
}

#[cfg(test)]
mod tests;
