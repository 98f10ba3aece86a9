//! The start of the supervisor's task, with what was restored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use procd_core::quota::Ledger;
use procd_core::settings::Limits;
use procd_core::{End, Life, Owner};
use procd_store::folder::StateFolder;
use procd_store::log::CommitLog;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::api::{Prepared, Preparer, Supervisor};
use super::entry::{Entry, Storage as EndStorage};
use super::journal::Journal;
use super::runner::Runner;
use super::sessions::Session;
use super::storage::{DONE_MAX, Storage};
use super::table::Table;
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
        ledger: Ledger::new(parts.limits.running_daemon_max),
        timers: Timers::default(),
        journal: Journal::new(parts.log, commits),
        storage: Storage::new(parts.folder, stored),
        budgets: parts.budgets,
        news: news.clone(),
        restoring: Restoring { pending: HashSet::new(), done: Some(restored) },
        shutdown: None,
        removing: HashMap::new(),
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
        supervisor: Supervisor { commands, prepare: preparer(runner) },
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
        for process in recovered.processes {
            self.take_over_process(process);
        }
        for (seq, session, handle) in recovered.removals {
            self.removing.insert(handle, (session, seq));
            self.storage.remove_process(session, handle);
        }
        self.restoring.settle(None);
        crate::failpoint::hit("restore-taken-over");
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
        let shown = Snapshot { generation: 0, record: Arc::new(record.clone()), durable: true };
        let number = self.table.mint_number();
        let storage = match (is_lost, is_on_disk) {
            (true, _) => EndStorage::EndPending(None),
            (false, true) => EndStorage::Sealed,
            (false, false) => EndStorage::Sealing,
        };
        let leftovers = record.leftovers;
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
            output: output.clone(),
            active: None,
            storage,
        });
        if is_lost {
            self.restoring.pending.insert(handle);
            self.submit_end(handle);
        } else if !is_on_disk {
            self.storage.seal(handle, output);
        }
    }
}
