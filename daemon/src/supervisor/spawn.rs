//! The start of the supervisor's task, with what was restored.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use procd_core::quota::Ledger;
use procd_core::settings::Limits;
use procd_core::{End, Life, Owner};
use procd_store::folder::StateFolder;
use procd_store::log::{CommitLog, Removal};
use procd_store::manifest::NumberedEvent;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::api::{Prepared, Preparer};
use super::entry::{Entry, SharedRecord, Storage as EndStorage};
use super::feed::Feed;
use super::figures::Beat;
use super::handle::Supervisor;
use super::journal::Journal;
use super::keys::Keys;
use super::leases::Leases;
use super::notices::Notices;
use super::queue::Queue;
use super::removal::{Removing, retained};
use super::retention::{Kept, Retention};
use super::runner::Runner;
use super::sessions::Session;
use super::storage::{DONE_MAX, Storage};
use super::subscriptions::Subscriptions;
use super::table::Table;
use super::tally::Tally;
use super::task::{COMMANDS_MAX, COMMITS_MAX, Inbox, REPORTS_MAX, Restoring, Task};
use super::timers::Timers;
use super::view::Snapshot;
use crate::clock::Clock;
use crate::drain::{Budgets, SpoolNews};
use crate::recovery::{Recovered, RecoveredProcess};

/// What the supervisor is made of.
#[derive(Debug)]
pub struct Parts {
    /// The effective limits.
    pub limits: Arc<Limits>,
    /// The state folder, locked.
    pub folder: Arc<StateFolder>,
    /// Its commit log.
    pub log: CommitLog,
    /// What was read back.
    pub recovered: Recovered,
    /// This boot.
    pub boot_id: Uuid,
    /// The daemon's limits on what is really used.
    pub budgets: Budgets,
    /// Where it tells that it works, if anybody wants to know.
    pub beat: Option<Beat>,
}

/// A supervisor under way.
#[derive(Debug)]
pub struct Spawned {
    /// The handle.
    pub supervisor: Supervisor,
    /// The task; ends when no handle is left.
    pub task: JoinHandle<()>,
    /// Resolves when every lost process is committed: the end of the restore.
    pub restored: oneshot::Receiver<()>,
}

/// Starts the supervisor's task on the current runtime.
pub fn spawn<R: Runner>(runner: Arc<R>, parts: Parts) -> Spawned {
    let (commands, commands_in) = mpsc::channel(COMMANDS_MAX);
    let (reports, reports_in) = mpsc::channel(REPORTS_MAX);
    let (commits, commits_in) = mpsc::channel(COMMITS_MAX);
    let (stored, stored_in) = mpsc::channel(DONE_MAX);
    let (restored, restored_in) = oneshot::channel();
    let news = SpoolNews::default();
    let mut task = Task {
        clock: Clock,
        boot_id: parts.boot_id,
        table: Table::default(),
        sessions: HashMap::new(),
        openings: HashMap::new(),
        last_connection: 0,
        leases: Leases::default(),
        queue: Queue::default(),
        keys: Keys::default(),
        feed: Feed::default(),
        subscriptions: Subscriptions::default(),
        notices: Notices::default(),
        retention: Retention::default(),
        publishing: VecDeque::new(),
        is_asking: false,
        ledger: Ledger::new(parts.limits.running_daemon_max),
        timers: Timers::default(),
        journal: Journal::new(parts.log, commits),
        storage: Storage::new(parts.folder, stored),
        budgets: parts.budgets,
        news: news.clone(),
        beat: parts.beat,
        restoring: Restoring { pending: HashSet::new(), done: Some(restored) },
        shutdown: None,
        removing: HashMap::new(),
        removing_sessions: HashMap::new(),
        pin_replies: HashMap::new(),
        reports,
        own_commands: commands.downgrade(),
        limits: parts.limits,
    };
    task.take_over(parts.recovered);
    let inbox = Inbox {
        commands: commands_in,
        reports: reports_in,
        commits: commits_in,
        stored: stored_in,
        news,
    };
    Spawned {
        supervisor: Supervisor {
            commands,
            prepare: preparer(runner),
            tickets: Arc::new(AtomicU64::new(0)),
        },
        task: tokio::spawn(task.run(inbox)),
        restored: restored_in,
    }
}

/// Hides the runner's type: nobody above the supervisor knows it.
fn preparer<R: Runner>(runner: Arc<R>) -> Arc<Preparer> {
    Arc::new(move |request| {
        let runner = runner.clone();
        Box::pin(async move {
            let (plan, facts) = runner.prepare(&request).await?;
            Ok(Prepared { facts, launch: Box::new(move |context| runner.start(plan, context)) })
        })
    })
}

impl Task {
    /// Takes over what was read back: sessions with their idle clocks, ended processes, and lost
    /// ones, whose terminal batch is committed now.
    fn take_over(&mut self, recovered: Recovered) {
        for (seq, record) in recovered.sessions {
            let session = Session::restored(record, seq, &self.limits);
            self.ledger.open(session.record.session_id, session.limits(&self.limits));
            self.sessions.insert(session.record.session_id, session);
        }
        self.start_idle_clocks();
        self.table.set_corrupt(recovered.corrupt);
        for (seq, removal) in recovered.kept_keys {
            self.restore_removed_key(seq, removal);
        }
        for process in recovered.processes {
            self.take_over_process(process);
        }
        self.take_over_events();
        for (seq, removal) in recovered.removals {
            self.take_over_removal(seq, removal);
        }
        for (seq, notification) in recovered.notifications {
            let entry = self.table.get(notification.process_id());
            let ended_at = entry.and_then(|entry| entry.record.finished_at);
            let ended_at = ended_at.unwrap_or_else(|| self.clock.wall());
            self.notification_made(notification, seq, 0, ended_at);
        }
        for collision in recovered.collisions {
            self.restore_collision(collision);
        }
        self.take_over_retention();
        // What was kept under a larger limit, or by a daemon that died in between.
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.retain(session);
        }
        self.finish_closes();
        self.beat();
        self.restoring.settle(None);
        crate::failpoint::hit("restore-taken-over");
    }

    /// The journals: the events of all records by their numbers.
    fn take_over_events(&mut self) {
        let mut events: Vec<_> = self
            .table
            .all()
            .flat_map(|entry| {
                let of = |held: &NumberedEvent| (entry.owner.session, held.seq, entry.handle);
                entry.events.iter().map(of).collect::<Vec<_>>()
            })
            .collect();
        events.sort_unstable();
        for (session, seq, handle) in events {
            self.feed.add(session, seq, handle, 0);
        }
        for (id, session) in &self.sessions {
            self.feed.dropped_through(*id, session.record.events_dropped_through);
        }
    }

    fn take_over_removal(&mut self, seq: u64, removal: Removal) {
        match removal {
            Removal::Process { session_id, process_id, .. } => {
                let standing = Removing::standing(seq, session_id, removal);
                self.removing.insert(process_id, standing);
                self.storage.remove_process(session_id, process_id);
            }
            Removal::Session { session_id } => {
                self.removing_sessions.insert(session_id, seq);
                self.storage.remove_session(session_id);
            }
            Removal::Notification { .. } => {}
        }
    }

    /// What ended and is sealed counts for retention: by the time of its end until it is used.
    fn take_over_retention(&mut self) {
        let sealed = self.table.all().filter(|entry| entry.storage == EndStorage::Sealed);
        let mut kept: Vec<_> = sealed
            .map(|entry| {
                let at = entry.record.finished_at.unwrap_or(entry.record.created_at);
                let bytes = retained(entry);
                (at, entry.handle, entry.owner.session, bytes, entry.record.pinned)
            })
            .collect();
        kept.sort_unstable();
        let measured: Vec<_> =
            kept.iter().map(|(_, handle, session, ..)| (*session, *handle)).collect();
        for (at, handle, session, bytes, is_pinned) in kept {
            self.session_used_at(session, at);
            self.retention.keep(handle, Kept::new(session, at, bytes, is_pinned));
            if is_pinned {
                self.retention.count_pinned(session, bytes, true);
            }
        }
        self.storage.measure(measured);
        self.arm_retention();
    }

    fn take_over_process(&mut self, process: RecoveredProcess) {
        let RecoveredProcess { seq, record, events, notification_seq, output, is_on_disk, is_lost } =
            process;
        let handle = record.process_id;
        let owner = Owner { session: record.session_id, loop_id: record.loop_id };
        let end = End {
            state: record.state,
            reason: record.reason.unwrap_or(End::LOST.reason),
            exit_code: record.exit_code,
            escalated: record.escalated,
        };
        let leader = record.leader.as_ref().map(procd_store::record::LeaderRecord::end);
        let record = SharedRecord::new(record);
        let shown = Snapshot { generation: 0, record: record.share(), durable: true };
        let number = self.table.mint_number();
        let storage = match (is_lost, is_on_disk) {
            (true, _) => EndStorage::EndPending(None),
            (false, true) => EndStorage::Sealed,
            (false, false) => EndStorage::Sealing,
        };
        let leftovers = record.leftovers;
        self.restore_key(&record);
        self.table.insert(Entry {
            handle,
            owner,
            number,
            life: Life::Ended { end, leader, leftovers, ended_by: record.ended_by },
            record,
            seq,
            events,
            notification_seq,
            shown: watch::Sender::new(shown),
            tally: Tally::default(),
            output: output.clone(),
            active: None,
            storage,
            left: None,
        });
        if is_lost {
            self.restoring.pending.insert(handle);
            self.submit_end(handle);
        } else if !is_on_disk {
            self.storage.seal(handle, output);
        }
    }
}
