//! The handle through which the rest of the daemon reaches the supervisor: each call is one
//! message and one one-shot answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procd_core::settings::Limits;
use procd_core::{Handle, Owner, SessionId, StopMode};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::api::{
    Attached, Attachment, Caller, Command, Gate, Lease, ListFilter, ListPage, Opened, Passed,
    Pinned, Preparer, Reply, SESSION_KEY_BYTES, SessionRules, Started, Status, StopAllOutcome,
    StopOutcome, StopScope, Ticket, Waiting,
};
use super::figures::{Figures, PlaceOfSession, SessionPage};
use super::keys::KeyGuard;
use super::notices::Answer;
use super::refusal::Refusal;
use super::runner::{AskedClaim, PlanFacts, StartRequest};
use super::subscriptions::{Subscribe, Subscribed};
use super::view::ProcessView;

/// The handle to the supervisor's task. Every call is answered, at the latest by
/// [`Refusal::ShuttingDown`] when the task is gone.
#[derive(Clone)]
pub struct Supervisor {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) prepare: Arc<Preparer>,
    pub(super) tickets: Arc<AtomicU64>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

const GONE: Refusal = Refusal::ShuttingDown { what: "daemon" };

impl Supervisor {
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        self.put(command).await.unwrap_or(Err(GONE))
    }

    /// Sends one command and waits for its answer; `None` when the task is gone.
    async fn put<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Opens a session.
    /// # Errors
    /// `Invalid` (an id in use, a bad workspace), `TooMany` (sessions), `Setup` (storage),
    /// `ShuttingDown`.
    pub async fn open_session(&self, rules: SessionRules) -> Result<Opened, Refusal> {
        self.ask(|reply| Command::OpenSession { rules: Box::new(rules), reply }).await
    }

    /// Attaches to a session as any loop of it.
    /// # Errors
    /// `SessionNotFound` for an unknown session and for a wrong key alike.
    pub async fn attach_session(
        &self,
        owner: Owner,
        key: [u8; SESSION_KEY_BYTES],
    ) -> Result<Attached, Refusal> {
        self.ask(|reply| Command::AttachSession { owner, key, reply }).await
    }

    /// Stops every process of the session and closes it; `purge` removes its data.
    /// # Errors
    /// `SessionNotFound`.
    pub async fn close_session(
        &self,
        owner: Owner,
        purge: bool,
        grace: Option<Duration>,
    ) -> Result<StopAllOutcome, Refusal> {
        self.ask(|reply| Command::CloseSession { owner, purge, grace, reply }).await
    }

    /// Starts a process: gate, prepare, reserve, mint, record, spawn. Answers when the record is
    /// durable and the exec has succeeded or failed. The waiting for its end is the caller's.
    /// - `gone`: cancelled when nobody waits for the answer any more: a start that is still
    ///   queued is dropped then.
    /// # Errors
    /// As in the spec's *Admission*; `Spawn` and late `Setup` carry the handle of the record.
    pub async fn start(
        &self,
        owner: Owner,
        mut request: StartRequest,
        gone: &CancellationToken,
    ) -> Result<Started, Refusal> {
        let gate = loop {
            let key = request.key.clone();
            match self.ask(|reply| Command::Gate { owner, key, reply }).await? {
                Passed::Go(gate) => break gate,
                Passed::Joined(answer) => match answer.await.unwrap_or(Err(GONE)) {
                    // The one that was joined gave up: now it is this one's turn.
                    Err(Refusal::Withdrawn) if !gone.is_cancelled() => {}
                    answer => return answer,
                },
            }
        };
        let mut guard = KeyGuard::new(owner, request.key.as_ref(), self.commands.clone());
        let started = self.admit(owner, gate, &mut request, gone).await;
        if let Err(refusal) = &started {
            guard.refusal = refusal.clone();
        }
        started
    }

    async fn admit(
        &self,
        owner: Owner,
        gate: Gate,
        request: &mut StartRequest,
        gone: &CancellationToken,
    ) -> Result<Started, Refusal> {
        super::admission::place(request, gate)?;
        let request = Arc::new(request.clone());
        let prepared = Box::new((self.prepare)(request.clone()).await?);
        let ticket = self.ticket();
        let admitted = self.ask(|reply| Command::Admit { owner, request, prepared, ticket, reply });
        self.unless_gone(admitted, ticket, gone).await
    }

    /// What a start would be, without starting it.
    /// # Errors
    /// As [`Supervisor::start`] up to its preparation.
    pub async fn plan(
        &self,
        owner: Owner,
        mut request: StartRequest,
    ) -> Result<PlanFacts, Refusal> {
        match self.ask(|reply| Command::Gate { owner, key: None, reply }).await? {
            Passed::Go(gate) => super::admission::place(&mut request, gate)?,
            Passed::Joined(_) => return Err(Refusal::Internal),
        }
        (self.prepare)(Arc::new(request)).await.map(|prepared| prepared.facts)
    }

    /// Claims a workspace for a client's own edits or copies; waits for it at most `timeout`.
    /// # Errors
    /// `Parameter`, `Busy`, `ShuttingDown`, `Withdrawn`.
    pub async fn acquire_lease(
        &self,
        owner: Owner,
        connection: u64,
        asked: AskedClaim,
        timeout: Duration,
        gone: &CancellationToken,
    ) -> Result<Lease, Refusal> {
        let claim = super::leases::resolve(asked).await?;
        let ticket = self.ticket();
        let wait = Waiting { ticket, timeout };
        let acquired =
            self.ask(|reply| Command::AcquireLease { owner, connection, claim, wait, reply });
        self.unless_gone(acquired, ticket, gone).await
    }

    /// Gives a client's claim back.
    /// # Errors
    /// `NotFound`.
    pub async fn release_lease(&self, owner: Owner, id: Uuid) -> Result<(), Refusal> {
        self.ask(|reply| Command::ReleaseLease { owner, id, reply }).await
    }

    fn ticket(&self) -> Ticket {
        Ticket::new(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits for an answer; once nobody waits for that, what is queued is called off.
    async fn unless_gone<T>(
        &self,
        answer: impl Future<Output = Result<T, Refusal>>,
        ticket: Ticket,
        gone: &CancellationToken,
    ) -> Result<T, Refusal> {
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = gone.cancelled() => {}
        }
        drop(self.commands.send(Command::Withdraw { ticket }).await);
        answer.await
    }

    /// Hands a foreground start over to the background: publishes `backgrounded`.
    /// Returns false when its end came first: then the terminal result is the reply.
    /// # Errors
    /// `NotFound`.
    pub async fn background(&self, owner: Owner, handle: Handle) -> Result<bool, Refusal> {
        self.ask(|reply| Command::Background { owner, handle, reply }).await
    }

    /// The reading sides of several processes, in the order asked.
    pub async fn find_all(
        &self,
        caller: Caller,
        handles: Vec<Handle>,
    ) -> Vec<Result<ProcessView, Refusal>> {
        let count = handles.len();
        let answer = self.put(|reply| Command::Find { caller, handles, reply }).await;
        answer.unwrap_or_else(|| vec![Err(GONE); count])
    }

    /// The reading side of one process.
    /// # Errors
    /// `NotFound`, the same for unknown, removed and foreign handles.
    pub async fn find(&self, caller: Caller, handle: Handle) -> Result<ProcessView, Refusal> {
        self.find_all(caller, vec![handle]).await.pop().unwrap_or(Err(GONE))
    }

    /// Stops a process. Terminate and kill answer when the tree is proven empty and its end is
    /// saved; interrupt after its end or its grace. Dropping the future changes nothing.
    /// # Errors
    /// `NotFound`; a tree that is not proven empty is an outcome with `error`.
    pub async fn stop(
        &self,
        caller: Caller,
        handle: Handle,
        mode: StopMode,
        grace: Option<Duration>,
    ) -> Result<StopOutcome, Refusal> {
        self.ask(|reply| Command::Stop { caller, handle, mode, grace, reply }).await
    }

    /// Stops all that runs of a loop or a session, in one grace period; answers when the last has
    /// ended. What vanishes meanwhile is left out.
    /// # Errors
    /// `SessionNotFound`.
    pub async fn stop_all(
        &self,
        caller: Caller,
        which: StopScope,
        mode: StopMode,
        grace: Option<Duration>,
    ) -> Result<Vec<StopOutcome>, Refusal> {
        let stops =
            self.ask(|reply| Command::StopAll { caller, which, mode, grace, reply }).await?;
        let mut outcomes = Vec::with_capacity(stops.len());
        for stop in stops {
            outcomes.extend(stop.await.ok().and_then(Result::ok));
        }
        Ok(outcomes)
    }

    /// Takes note of an operator's connection.
    pub async fn attach_operator(&self) -> Option<Arc<Attachment>> {
        self.put(|reply| Command::AttachOperator { reply }).await
    }

    /// Removes an ended process; durable on return.
    /// # Errors
    /// `NotFound`, `Invalid` (it has not ended), `Setup` (storage).
    pub async fn remove(&self, caller: Caller, handle: Handle) -> Result<(), Refusal> {
        self.ask(|reply| Command::Remove { caller, handle, reply }).await
    }

    /// Exempts an ended process from retention, or gives it back; durable on return.
    /// # Errors
    /// `NotFound`, `Invalid` (it has not ended), `Pinned`, `Setup` (storage).
    pub async fn pin(
        &self,
        caller: Caller,
        handle: Handle,
        is_pinned: bool,
    ) -> Result<Pinned, Refusal> {
        self.ask(|reply| Command::Pin { caller, handle, is_pinned, reply }).await
    }

    /// Subscribes to events, and to notifications.
    /// # Errors
    /// `SessionNotFound`; `Invalid` (`from_seq` of all sessions).
    pub async fn subscribe(&self, caller: Caller, asked: Subscribe) -> Result<Subscribed, Refusal> {
        self.ask(|reply| Command::Subscribe { caller, asked: Box::new(asked), reply }).await
    }

    /// Acknowledges events up to a number.
    /// # Errors
    /// `Invalid` for no subscription of this connection.
    pub async fn acknowledge_events(
        &self,
        connection: u64,
        request: i64,
        up_to: u64,
    ) -> Result<(), Refusal> {
        self.ask(|reply| Command::AcknowledgeEvents { connection, request, up_to, reply }).await
    }

    /// Ends a subscription.
    /// # Errors
    /// `Invalid` for no subscription of this connection.
    pub async fn unsubscribe(&self, connection: u64, request: i64) -> Result<(), Refusal> {
        self.ask(|reply| Command::Unsubscribe { connection, request, reply }).await
    }

    /// Answers a notification; a final answer is durable on return.
    /// # Errors
    /// `NoNotification`; `Invalid` (`accepted` after `collision`); `Setup` (storage).
    pub async fn answer_notification(
        &self,
        owner: Owner,
        command_id: Uuid,
        answer: Answer,
    ) -> Result<(), Refusal> {
        self.ask(|reply| Command::AnswerNotification { owner, command_id, answer, reply }).await
    }

    /// Lists records, newest first.
    /// # Errors
    /// `SessionNotFound` for an operator's unknown session; `Invalid` for an unknown `after`.
    pub async fn list(&self, caller: Caller, filter: ListFilter) -> Result<ListPage, Refusal> {
        self.ask(|reply| Command::List { caller, filter: Box::new(filter), reply }).await
    }

    /// Facts of the daemon, of one session if it is named.
    pub async fn status(&self, session: Option<SessionId>) -> Status {
        self.put(|reply| Command::Status { session, reply }).await.unwrap_or_default()
    }

    /// A page of sessions, newest first.
    pub async fn list_sessions(&self, limit: usize, after: Option<PlaceOfSession>) -> SessionPage {
        self.put(|reply| Command::ListSessions { limit, after, reply }).await.unwrap_or_default()
    }

    /// Figures of this moment.
    pub async fn figures(&self) -> Figures {
        self.put(|reply| Command::Figures { reply }).await.unwrap_or_default()
    }

    /// New limits, for starts, sessions and removals from now on.
    pub async fn configure(&self, limits: Arc<Limits>) {
        self.put(|reply| Command::Configure { limits, reply }).await.unwrap_or_default();
    }

    /// Ends everything, once; answers when every tree is proven empty or named as a failure.
    pub async fn shutdown(&self, grace: Option<Duration>) -> StopAllOutcome {
        self.put(|reply| Command::Shutdown { grace, reply }).await.unwrap_or_default()
    }

    /// Skips the rest of the grace of a shutdown.
    pub async fn hasten_shutdown(&self) {
        drop(self.commands.send(Command::HastenShutdown).await);
    }
}
