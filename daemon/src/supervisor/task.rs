//! The supervisor's task: one closed set of events in, one handler each. Nothing in here waits
//! for a process, a disk or a client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use procd_core::quota::Ledger;
use procd_core::settings::Limits;
use procd_core::{Handle, Owner, SessionId};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::api::{
    Caller, Command, Gate, ListFilter, ListPage, SESSION_KEY_BYTES, SessionFacts, SessionState,
    Status,
};
use super::entry::Entry;
use super::journal::{Committed, Journal, Saved, Tag};
use super::refusal::Refusal;
use super::runner::Report;
use super::sessions::{EarlyAttach, Sessions};
use super::shutdown::ShutdownRun;
use super::storage::{Done, Storage};
use super::table::Table;
use super::timers::{Due, Timers};
use super::view::Totals;
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
    pub(super) openings: HashMap<SessionId, (Owner, Option<[u8; SESSION_KEY_BYTES]>)>,
    pub(super) ledger: Ledger,
    pub(super) timers: Timers,
    pub(super) journal: Journal,
    pub(super) storage: Storage,
    pub(super) budgets: Budgets,
    pub(super) news: SpoolNews,
    /// Lost processes whose batch is under way, and who waits for them.
    pub(super) restoring: Restoring,
    pub(super) shutdown: Option<ShutdownRun>,
    /// Removed processes whose files may still stand, with the number of their removal.
    pub(super) removing: HashMap<Handle, (SessionId, u64)>,
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
            Command::Detached { session } => self.detached(session),
            Command::CloseSession { owner, purge, grace, reply } => {
                self.close_session(owner, purge, grace, reply);
            }
            Command::Gate { owner, reply } => drop(reply.send(self.gate(owner))),
            Command::Admit { owner, request, prepared, reply } => {
                self.admit(owner, &request, prepared, reply);
            }
            Command::Background { owner, handle, reply } => {
                drop(reply.send(self.background(owner, handle)));
            }
            Command::Find { caller, handles, reply } => {
                let find = |handle| self.table.find(caller, handle).map(Entry::view);
                drop(reply.send(handles.into_iter().map(find).collect()));
            }
            Command::Stop { caller, handle, mode, grace, reply } => {
                self.stop(caller, handle, mode, grace, reply);
            }
            Command::List { caller, filter, reply } => {
                drop(reply.send(self.list(caller, &filter)));
            }
            Command::Status { session, reply } => drop(reply.send(self.status(session))),
            Command::Shutdown { grace, reply } => self.begin_shutdown(grace, reply),
            Command::HastenShutdown => self.hasten_shutdown(),
        }
    }

    fn committed(&mut self, Committed { tag, saved }: Committed) {
        let is_durable = saved == Saved::Yes;
        match tag {
            Tag::Start(handle) => self.start_logged(handle, is_durable),
            Tag::End(handle) => self.end_logged(handle, saved),
            Tag::SessionOpened(session) => self.session_logged(session, is_durable),
            Tag::SessionClosed(session) => self.session_closed(session),
            // Not durable yet: the files go at the next restore.
            Tag::Removal(session, handle) if is_durable => {
                crate::failpoint::hit("removal-durable");
                self.storage.remove_process(session, handle);
            }
            Tag::Removal(..) | Tag::Update(_) | Tag::Snapshot => {}
        }
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
            Done::Manifest { handle, is_stored } => self.manifest_stored(handle, is_stored),
        }
    }

    fn time_has_passed(&mut self) {
        let now = self.clock.monotonic();
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Process(handle) => self.process_due(handle, now),
                Due::Session(id) => self.session_due(id, now),
                Due::Shutdown => self.check_runs(),
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

    /// Processes that `which` accepts, by the state that readers see.
    pub(super) fn totals(
        &self,
        which: impl Fn(&Entry) -> bool,
        session: Option<SessionId>,
    ) -> Totals {
        let mut totals = Totals::new();
        for entry in self.table.newest_first(session).filter(|entry| which(entry)) {
            *totals.entry(entry.shown.borrow().record.state).or_insert(0) += 1;
        }
        totals
    }

    fn list(&self, caller: Caller, filter: &ListFilter) -> Result<ListPage, Refusal> {
        let session = match caller {
            Caller::Owner(owner) => Some(owner.session),
            Caller::Operator => filter.session,
        };
        if let (Caller::Operator, Some(id)) = (caller, session)
            && !self.sessions.contains_key(&id)
        {
            return Err(Refusal::SessionNotFound);
        }
        let may_see = |entry: &Entry| match caller {
            Caller::Owner(owner) => filter.whole_session || entry.owner == owner,
            Caller::Operator => true,
        };
        let before = match filter.after {
            None => u64::MAX,
            Some(handle) => {
                let after = self.table.get(handle).filter(|entry| may_see(entry));
                let after =
                    after.filter(|entry| session.is_none_or(|id| entry.owner.session == id));
                after.ok_or(Refusal::NotFound)?.number
            }
        };
        let mut views = Vec::new();
        let mut next = None;
        for entry in self.table.newest_first(session) {
            if entry.number >= before || !may_see(entry) || !fits_filter(entry, filter) {
                continue;
            }
            if views.len() == filter.limit {
                next = views.last().map(|view: &super::view::ProcessView| view.handle);
                break;
            }
            views.push(entry.view());
        }
        let free = match caller {
            Caller::Owner(owner) => self.ledger.free(owner),
            Caller::Operator => None,
        };
        Ok(ListPage { views, next, totals: self.totals(may_see, session), free })
    }

    fn status(&self, session: Option<SessionId>) -> Status {
        Status {
            sessions: self.sessions.len() as u64,
            totals: self.totals(|_| true, session),
            storage_writable: self.journal.is_writable(),
            session: session.and_then(|id| self.sessions.get(&id)).map(|session| SessionFacts {
                label: session.record.label.clone(),
                state: session.state(),
            }),
        }
    }
}

fn fits_filter(entry: &Entry, filter: &ListFilter) -> bool {
    let snapshot = entry.shown.borrow();
    filter.state.is_none_or(|state| snapshot.record.state == state)
        && filter.label.as_ref().is_none_or(|label| snapshot.record.label.as_ref() == Some(label))
}
