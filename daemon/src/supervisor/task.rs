//! The supervisor's task: one closed set of events in, one handler each. Nothing in here waits
//! for a process, a disk or a client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use procd_core::quota::Ledger;
use procd_core::settings::Limits;
use procd_core::{Handle, Owner, SessionId};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::api::{Command, Gate, Pinned, Reply, SessionState};
use super::entry::Entry;
use super::feed::Feed;
use super::figures::Beat;
use super::journal::{Committed, Journal, Saved, Tag};
use super::keys::Keys;
use super::leases::Leases;
use super::notices::Notices;
use super::publish::Publishing;
use super::queue::Queue;
use super::refusal::Refusal;
use super::removal::Removing;
use super::retention::Retention;
use super::runner::Report;
use super::sessions::{EarlyAttach, Opening, Sessions};
use super::shutdown::ShutdownRun;
use super::storage::{Done, Storage};
use super::subscriptions::Subscriptions;
use super::table::Table;
use super::timers::{Due, Timers};
use crate::clock::Clock;
use crate::drain::{Budgets, SpoolNews};

/// Commands that wait for the supervisor, a count; a full queue makes connections wait.
pub(super) const COMMANDS_MAX: usize = 1024;
/// Reports that wait for the supervisor, a count; a full queue makes process tasks wait.
pub(super) const REPORTS_MAX: usize = 1024;
/// Finished batches that wait for the supervisor, a count; a full queue makes the committer wait.
pub(super) const COMMITS_MAX: usize = 1024;

/// Everything that can happen to the supervisor.
enum Event {
    Command(Command),
    Report(Handle, Report),
    Committed(Committed),
    Stored(Done),
    SpoolChanged(Handle),
    TimeHasPassed,
}

/// The sole owner of processes and sessions.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) clock: Clock,
    pub(super) limits: Arc<Limits>,
    pub(super) boot_id: Uuid,
    pub(super) table: Table,
    pub(super) sessions: Sessions,
    pub(super) openings: HashMap<SessionId, Opening>,
    pub(super) last_connection: u64,
    pub(super) ledger: Ledger,
    pub(super) leases: Leases,
    pub(super) queue: Queue,
    pub(super) keys: Keys,
    pub(super) feed: Feed,
    pub(super) subscriptions: Subscriptions,
    pub(super) notices: Notices,
    pub(super) retention: Retention,
    pub(super) publishing: VecDeque<Publishing>,
    pub(super) is_asking: bool,
    pub(super) timers: Timers,
    pub(super) journal: Journal,
    pub(super) storage: Storage,
    pub(super) budgets: Budgets,
    pub(super) news: SpoolNews,
    pub(super) beat: Option<Beat>,
    /// Lost processes whose batch is under way, and who waits for them.
    pub(super) restoring: Restoring,
    pub(super) shutdown: Option<ShutdownRun>,
    /// Removed processes whose files may still stand, with the number of their removal.
    pub(super) removing: HashMap<Handle, Removing>,
    /// Removed sessions whose files may still stand, with the number of their removal.
    pub(super) removing_sessions: HashMap<SessionId, u64>,
    /// Who waits for a pin to be durable: what was asked and the sum then.
    pub(super) pin_replies: HashMap<Handle, Vec<(bool, u64, Reply<Pinned>)>>,
    pub(super) reports: mpsc::Sender<(Handle, Report)>,
    pub(super) own_commands: mpsc::WeakSender<Command>,
}

/// The end of the restore: reached when every lost process is committed.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    pub(super) pending: HashSet<Handle>,
    pub(super) done: Option<oneshot::Sender<()>>,
}

impl Restoring {
    /// One lost process is committed, or could not be; tells when none is left.
    pub(super) fn settle(&mut self, handle: Option<Handle>) {
        if let Some(handle) = handle {
            self.pending.remove(&handle);
        }
        if self.pending.is_empty()
            && let Some(done) = self.done.take()
        {
            // Nobody waits for it when the daemon goes down during its restore.
            done.send(()).ok();
        }
    }
}

/// The queues into the task.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) reports: mpsc::Receiver<(Handle, Report)>,
    pub(super) commits: mpsc::Receiver<Committed>,
    pub(super) stored: mpsc::Receiver<Done>,
    pub(super) news: SpoolNews,
}

impl Task {
    /// Runs until nobody holds a handle to the supervisor any more.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        loop {
            let event = tokio::select! {
                Some((handle, report)) = inbox.reports.recv() => Event::Report(handle, report),
                Some(committed) = inbox.commits.recv() => Event::Committed(committed),
                Some(done) = inbox.stored.recv() => Event::Stored(done),
                handle = inbox.news.next() => Event::SpoolChanged(handle),
                () = self.timers.wait() => Event::TimeHasPassed,
                command = inbox.commands.recv() => match command {
                    Some(command) => Event::Command(command),
                    None => return,
                },
            };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Command(command) => self.command(command),
            Event::Report(handle, report) => self.report(handle, report),
            Event::Committed(committed) => self.committed(committed),
            Event::Stored(done) => self.stored(done),
            Event::SpoolChanged(handle) => self.spool_changed(handle),
            Event::TimeHasPassed => self.time_has_passed(),
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::OpenSession { rules, reply } => self.open_session(*rules, reply),
            Command::AttachSession { owner, key, reply } => {
                self.attach_session(EarlyAttach { owner, key, reply });
            }
            Command::AttachOperator { reply } => drop(reply.send(self.attach_operator())),
            Command::Detached { session, connection } => self.detached(session, connection),
            Command::CloseSession { owner, purge, grace, reply } => {
                self.close_session(owner, purge, grace, reply);
            }
            Command::Gate { owner, key, reply } => drop(reply.send(self.pass(owner, key))),
            Command::KeyFreed { owner, key, refusal } => self.key_freed(owner, key, &refusal),
            Command::Admit { owner, request, prepared, ticket, reply } => {
                self.admit(owner, request, prepared, ticket, reply);
            }
            Command::AcquireLease { owner, connection, claim, wait, reply } => {
                self.acquire_lease(owner, connection, claim, wait, reply);
            }
            Command::ReleaseLease { owner, id, reply } => {
                drop(reply.send(self.release_lease(owner, id)));
            }
            Command::Withdraw { ticket } => self.withdraw(ticket),
            Command::Background { owner, handle, reply } => {
                drop(reply.send(self.background(owner, handle)));
            }
            Command::Find { caller, handles, reply } => {
                let found = handles.into_iter().map(|handle| self.find(caller, handle)).collect();
                drop(reply.send(found));
            }
            Command::Remove { caller, handle, reply } => self.remove_asked(caller, handle, reply),
            Command::Pin { caller, handle, is_pinned, reply } => {
                self.pin(caller, handle, is_pinned, reply);
            }
            Command::Subscribe { caller, asked, reply } => {
                drop(reply.send(self.subscribe(caller, *asked)));
            }
            Command::AcknowledgeEvents { connection, request, up_to, reply } => {
                drop(reply.send(self.acknowledge_events(connection, request, up_to)));
            }
            Command::Unsubscribe { connection, request, reply } => {
                drop(reply.send(self.unsubscribe(connection, request)));
            }
            Command::AnswerNotification { owner, command_id, answer, reply } => {
                self.answer_notification(owner, command_id, answer, reply);
            }
            Command::Stop { caller, handle, mode, grace, reply } => {
                self.stop(caller, handle, mode, grace, reply);
            }
            Command::StopAll { caller, which, mode, grace, reply } => {
                drop(reply.send(self.stop_all(caller, which, mode, grace)));
            }
            Command::List { caller, filter, reply } => {
                drop(reply.send(self.list(caller, &filter)));
            }
            Command::Status { session, reply } => drop(reply.send(self.status(session))),
            Command::ListSessions { limit, after, reply } => {
                drop(reply.send(self.list_sessions(limit, after)));
            }
            Command::Figures { reply } => drop(reply.send(self.figures())),
            Command::Configure { limits, reply } => {
                self.configure(limits);
                // Whoever asked may be gone.
                reply.send(()).ok();
            }
            Command::Shutdown { grace, reply } => self.begin_shutdown(grace, reply),
            Command::HastenShutdown => self.hasten_shutdown(),
        }
    }

    fn committed(&mut self, Committed { tag, saved, order }: Committed) {
        let is_durable = saved == Saved::Yes;
        if is_durable {
            self.journal.note_durable(order);
        } else {
            self.ask_again();
        }
        match tag {
            Tag::Start(handle) => self.start_logged(handle, is_durable),
            Tag::End(handle) => self.end_logged(handle, saved),
            Tag::SessionOpened(session) => self.session_logged(session, is_durable),
            Tag::SessionClosed(session) => self.session_closed(session),
            Tag::Removal(handle) => self.removal_logged(handle, saved),
            Tag::Pin(handle) => self.pin_logged(handle, saved),
            Tag::Answer(session, command_id) => {
                self.answer_logged(session, command_id, is_durable);
            }
            // Not durable yet: the files go at the next restore.
            Tag::SessionRemoved(session) if is_durable => self.storage.remove_session(session),
            Tag::Asked => self.is_asking = false,
            Tag::SessionRemoved(_)
            | Tag::SessionChanged
            | Tag::Update(_)
            | Tag::Other
            | Tag::Snapshot => {}
        }
        self.publish_durable();
        if self.journal.part_is_full() {
            let snapshot = self.snapshot();
            self.journal.start_part(snapshot);
        }
    }

    fn stored(&mut self, done: Done) {
        match done {
            Done::Session { id, refusal } => self.session_stored(id, refusal),
            Done::Sealed { handle, result } => self.sealed(handle, result),
            Done::Removed { handle } => drop(self.removing.remove(&handle)),
            Done::Manifests(stored) => {
                for (handle, stored) in stored {
                    self.manifest_stored(handle, stored);
                }
                self.check_runs();
            }
            Done::SessionRemoved { id } => drop(self.removing_sessions.remove(&id)),
            Done::Measured { processes, other_bytes } => {
                self.retention.other_bytes = other_bytes;
                for (handle, bytes) in processes {
                    self.retention.measured(handle, bytes);
                }
            }
            Done::Swept => {}
        }
    }

    fn time_has_passed(&mut self) {
        let now = self.clock.monotonic();
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Process(handle) => self.process_due(handle, now),
                Due::Session(id) => self.session_due(id, now),
                Due::Queue(number) => self.queue_due(number, now),
                Due::Stopped(owner) => self.stopped_due(owner, now),
                Due::Retention => self.retention_due(),
                Due::Journal => self.journal.barrier(Tag::Asked),
                Due::Flush => self.journal.flush(),
                Due::Shutdown => self.check_runs(),
                Due::Beat => self.beat(),
            }
        }
    }

    /// Arms the hint for whatever is due next for a process.
    pub(super) fn arm(&mut self, handle: Handle) {
        if let Some(at) = self.table.get(handle).and_then(Entry::next_due) {
            self.timers.arm(at, Due::Process(handle));
        }
    }

    /// The graceful period if a request names none.
    pub(super) fn grace(&self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(Duration::from_millis(self.limits.grace_ms))
    }

    /// Bytes from the system's random source.
    /// # Errors
    /// [`Refusal::Setup`] (`handle`) when it fails.
    #[expect(clippy::unused_self, reason = "the one door to the random source")]
    pub(super) fn random<const N: usize>(&self) -> Result<[u8; N], Refusal> {
        use rand::TryRng as _;
        let mut bytes = [0; N];
        match rand::rngs::SysRng.try_fill_bytes(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                tracing::error!(error = %error, "the random source failed");
                Err(Refusal::Setup { cause: "handle", process_id: None })
            }
        }
    }

    /// Step 1 of an admission.
    pub(super) fn gate(&self, owner: Owner) -> Result<Gate, Refusal> {
        if self.shutdown.is_some() {
            return Err(Refusal::ShuttingDown { what: "daemon" });
        }
        let session = self.sessions.get(&owner.session).ok_or(Refusal::SessionNotFound)?;
        match session.state() {
            SessionState::Open => {}
            SessionState::Closing | SessionState::Closed => {
                return Err(Refusal::ShuttingDown { what: "session" });
            }
        }
        if !self.journal.is_writable() {
            return Err(Refusal::Setup { cause: "storage", process_id: None });
        }
        Ok(Gate { workspaces: session.record.workspaces.clone(), guard: session.record.guard })
    }
}
