//! Admission: the steps from a prepared request to a running process, undone as a whole when one
//! fails.

use procd_core::lease::{Claim, ClaimKind};
use procd_core::life::Request;
use procd_core::queue::Granted;
use procd_core::quota::Ceilings;
use procd_core::state::{Access, ProcessState, SpoolState};
use procd_core::{Handle, Life, OriginId, Owner, Requests};
use procd_store::log::LogRecord;
use procd_store::record::{
    AccessRecord, OsMetadata, PublicationMarks, RECORD_VERSION, Record, StableIds,
};
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

use super::api::{Gate, Prepared, Reply, Started, Ticket};
use super::entry::{Active, DueTimes, Entry, SharedRecord, SpawnAnswer, StartPhase, Storage};
use super::journal::Tag;
use super::queue::{QueuedStart, Wish};
use super::refusal::Refusal;
use super::runner::{Guard, PlanFacts, ReportSender, StartContext, StartRequest};
use super::tally::Tally;
use super::task::Task;
use super::view::Snapshot;
use crate::drain::{DrainOptions, Output, OutputWriter};
use crate::metrics::METRICS;

/// Bytes of a handle, and of an id.
const ID_BYTES: usize = 16;
/// Tries to mint a handle that no record has.
const HANDLE_TRIES: usize = 8;

/// Resolves the working folder of a request against its session.
/// # Errors
/// `Invalid` for a relative folder in a session that declares no workspace.
pub(super) fn place(request: &mut StartRequest, gate: Gate) -> Result<(), Refusal> {
    let first = gate.workspaces.first();
    match (&request.cwd, first) {
        (None, Some(workspace)) => request.cwd = Some(workspace.clone()),
        (Some(cwd), Some(workspace)) if cwd.is_relative() => {
            request.cwd = Some(workspace.join(cwd));
        }
        (Some(cwd), None) if cwd.is_relative() => {
            return Err(Refusal::Invalid {
                field: "cwd",
                message: "a relative `cwd` needs a session that declares a workspace".to_owned(),
            });
        }
        (None, None) | (Some(_), _) => {}
    }
    request.workspaces = gate.workspaces;
    request.guard = if gate.guard { Guard::On } else { Guard::Off };
    Ok(())
}

impl Task {
    /// Step 4: takes what the plan needs, or waits for it.
    pub(super) fn admit(
        &mut self,
        owner: Owner,
        request: Arc<StartRequest>,
        prepared: Box<Prepared>,
        ticket: Ticket,
        reply: Reply<Started>,
    ) {
        // A close or a shutdown may have begun while the plan was made.
        let open =
            self.gate(owner).and_then(|_| self.check_disk(prepared.facts.ceilings.spool_bytes));
        if let Err(refusal) = open {
            drop(reply.send(Err(refusal)));
            return;
        }
        let timeout = request.queue_timeout;
        let start = QueuedStart { owner, request, prepared, reply };
        self.enqueue(Wish::Start(Box::new(start)), ticket, timeout);
    }

    /// Steps 5 to 7, with what was granted; the reply goes out at 9, or with the refusal of the
    /// step that failed.
    pub(super) fn begin(&mut self, start: QueuedStart, granted: Granted) {
        let QueuedStart { owner, request, prepared, reply } = start;
        let Prepared { facts, launch } = *prepared;
        let made = self.gate(owner).and_then(|_| self.mint()).and_then(|(handle, ids)| {
            self.keep_key(owner, request.key.as_ref(), handle).map(|key| (handle, ids, key))
        });
        let (handle, ids, (key, joined)) = match made {
            Ok(made) => made,
            Err(refusal) => {
                self.give_back(granted);
                drop(reply.send(Err(refusal)));
                return;
            }
        };
        METRICS.starts.add(1);
        let Granted { reservation, lease } = granted;
        if let Some(lease) = lease {
            self.leases.held.name(lease, handle);
        }
        let ceilings = facts.ceilings;
        let announces = facts.claim.as_ref().is_some_and(|claim| writes(claim.kind));
        let mut record = self.new_record((handle, ids), owner, &request, facts);
        record.request_key = key;
        crate::failpoint::hit("start-before-append");
        let started = announces.then(|| super::records::workspace_started(&mut record)).flatten();
        let mut batch = vec![LogRecord::process(&record)];
        batch.extend(started.clone().map(LogRecord::from));
        let submitted = self.journal.submit(Tag::Start(handle), batch);
        crate::failpoint::hit("start-after-append");
        let (output, writer) = self.new_output(owner, handle, ceilings);
        let reports = ReportSender::new(handle, self.reports.clone());
        let running = launch(StartContext { handle, owner, writer, reports });
        crate::failpoint::hit("spawn-requested");
        let record = SharedRecord::new(record);
        let snapshot = Snapshot { generation: 0, record: record.share(), durable: true };
        let number = self.table.mint_number();
        let mut replies = joined;
        replies.push(reply);
        self.table.insert(Entry {
            handle,
            owner,
            number,
            life: Life::Starting { requests: Requests::default(), rule: request.on_leader_exit },
            record,
            seq: 0,
            events: Vec::new(),
            notification_seq: None,
            shown: watch::Sender::new(snapshot),
            tally: Tally::default(),
            output,
            active: Some(Active {
                running,
                reservation,
                lease,
                announces,
                admitted: self.clock.monotonic(),
                started: None,
                start: StartPhase { replies, durable: false, spawn: SpawnAnswer::Pending },
                due: DueTimes::default(),
                stops: Vec::new(),
                timeout: request.timeout,
                background: request.background,
                failed: None,
                teardown: None,
                spool_rests_until: None,
            }),
            storage: Storage::Live,
            left: None,
        });
        self.remember(handle, started.into_iter().collect(), &submitted);
        crate::failpoint::hit("start-registered");
    }

    fn new_output(
        &self,
        owner: Owner,
        handle: Handle,
        ceilings: Ceilings,
    ) -> (Output, OutputWriter) {
        Output::create(
            self.storage.spool_path(owner.session, &handle),
            DrainOptions {
                memory_bytes: ceilings.memory_bytes,
                spool_bytes: ceilings.spool_bytes,
                boot_id: self.boot_id,
                budgets: self.budgets.clone(),
                news: Some(self.news.line(handle)),
            },
        )
    }

    /// A handle that is not in use, and the ids of what will be told of its process, in one draw.
    fn mint(&self) -> Result<(Handle, StableIds), Refusal> {
        for _ in 0..HANDLE_TRIES {
            let drawn = self.random::<{ 6 * ID_BYTES }>()?;
            let (ids, _) = drawn.as_chunks::<ID_BYTES>();
            let &[handle, started, backgrounded, completed, lost, notification] = ids else {
                break;
            };
            let uuid = |bytes| uuid::Builder::from_random_bytes(bytes).into_uuid();
            let handle = Handle::from_bytes(handle);
            if self.table.contains(handle) {
                continue;
            }
            let ids = StableIds {
                started: uuid(started),
                backgrounded: uuid(backgrounded),
                completed: uuid(completed),
                lost: uuid(lost),
                notification: uuid(notification),
            };
            return Ok((handle, ids));
        }
        Err(Refusal::Setup { cause: "handle", process_id: None })
    }

    fn new_record(
        &self,
        (handle, ids): (Handle, StableIds),
        owner: Owner,
        request: &StartRequest,
        facts: PlanFacts,
    ) -> Record {
        let access = access_of(facts.claim.as_ref());
        Record {
            version: RECORD_VERSION,
            process_id: handle,
            session_id: owner.session,
            loop_id: owner.loop_id,
            origin: request.origin.unwrap_or_else(mint_origin),
            label: request.label.clone(),
            command: facts.command,
            access: AccessRecord { asked: access, effective: access, enforced: facts.enforced },
            tty: request.tty,
            tier: facts.tier,
            limits: facts.limits,
            state: ProcessState::Starting,
            reason: None,
            exit_code: None,
            leader: None,
            escalated: false,
            ended_by: None,
            leftovers: 0,
            signal_errors: Vec::new(),
            input_dropped_bytes: 0,
            oom_killed: false,
            limit_exceeded: None,
            created_at: self.clock.wall(),
            started_at: None,
            finished_at: None,
            deadline_at: None,
            duration_ms: None,
            total_bytes: 0,
            retained_from: 0,
            spool_state: SpoolState::Open,
            spool_lost_bytes: 0,
            sha256: None,
            pinned: false,
            diagnostic: None,
            ids,
            ordinals: std::collections::BTreeMap::new(),
            published: PublicationMarks::default(),
            request_key: None,
            boot_id: self.boot_id,
            os: OsMetadata::default(),
        }
    }

    /// The starting record is durable, or could not be saved: then the tree is killed before the
    /// error goes out.
    pub(super) fn start_logged(&mut self, handle: Handle, is_durable: bool) {
        let Some(active) = self.table.get_mut(handle).and_then(|entry| entry.active.as_mut())
        else {
            return;
        };
        if is_durable {
            crate::failpoint::hit("start-durable");
            active.start.durable = true;
            self.answer_start(handle);
        } else {
            active.failed = Some("storage".to_owned());
            self.drive(handle, procd_core::Event::Requested(Request::Kill), None);
        }
    }

    /// Sends the reply of a start once both its record is durable and its spawn was answered.
    /// What failed is answered with the terminal record, in `end_shown`.
    pub(super) fn answer_start(&mut self, handle: Handle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let view = entry.view();
        let Some(active) = entry.active.as_mut() else { return };
        if !active.start.durable || active.start.spawn != SpawnAnswer::Done {
            return;
        }
        if !active.start.replies.is_empty() {
            crate::failpoint::hit("start-before-reply");
        }
        for reply in active.start.replies.drain(..) {
            // A client that is gone changes nothing: the process is its session's.
            drop(reply.send(Ok(Started { view: view.clone() })));
        }
    }
}

/// An origin for a request that names none; a random UUID is never nil.
fn mint_origin() -> OriginId {
    loop {
        if let Ok(origin) = OriginId::new(Uuid::new_v4()) {
            return origin;
        }
    }
}

/// Whether a process with such a claim may change its workspace.
const fn writes(kind: ClaimKind) -> bool {
    match kind {
        ClaimKind::ScopedWrite | ClaimKind::BroadWrite | ClaimKind::Unclaimed => true,
        ClaimKind::ReadOnly | ClaimKind::StructuredWrite | ClaimKind::Snapshot => false,
    }
}

/// What the record says of a claim.
#[must_use]
pub fn access_of(claim: Option<&Claim>) -> Access {
    claim.map_or(Access::Unclaimed, |claim| access(claim.kind))
}

/// Clients' kinds are no access of a process.
const fn access(kind: ClaimKind) -> Access {
    match kind {
        ClaimKind::ReadOnly => Access::ReadOnly,
        ClaimKind::ScopedWrite => Access::ScopedWrite,
        ClaimKind::BroadWrite => Access::BroadWrite,
        ClaimKind::Unclaimed | ClaimKind::StructuredWrite | ClaimKind::Snapshot => {
            Access::Unclaimed
        }
    }
}
