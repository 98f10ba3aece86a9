//! The close of a session: what runs in it is stopped, then its record says closed, then the callers
//! hear what became of each process.

use std::time::Duration;

use procd_core::{Owner, SessionId};
use procd_store::log::LogRecord;

use crate::supervisor::api::{Reply, SessionState, StopAllOutcome};
use crate::supervisor::journal::Tag;
use crate::supervisor::refusal::Refusal;
use crate::supervisor::sessions::Session;
use crate::supervisor::task::Task;

/// The close of a session under way; concurrent callers share it.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct CloseRun {
    pub(in crate::supervisor) replies: Vec<Reply<StopAllOutcome>>,
    pub(in crate::supervisor) targets: Vec<procd_core::Handle>,
    pub(in crate::supervisor) purge: bool,
    pub(in crate::supervisor) outcome: Option<StopAllOutcome>,
}

impl Task {
    /// Stops what runs in a session, then closes it.
    pub(in crate::supervisor) fn close_session(
        &mut self,
        owner: Owner,
        purge: bool,
        grace: Option<Duration>,
        reply: Reply<StopAllOutcome>,
    ) {
        if let Some(run) = self.sessions.get_mut(&owner.session).and_then(|s| s.close.as_mut()) {
            run.purge |= purge;
            run.replies.push(reply);
            return;
        }
        let run = CloseRun { replies: vec![reply], purge, ..CloseRun::default() };
        self.begin_close(owner.session, run, grace);
    }

    pub(super) fn begin_close(
        &mut self,
        id: SessionId,
        mut run: CloseRun,
        grace: Option<Duration>,
    ) {
        run.targets = self.table.live_of(Some(id));
        let targets = run.targets.clone();
        let Some(session) = self.sessions.get_mut(&id) else {
            for reply in run.replies {
                drop(reply.send(Err(Refusal::SessionNotFound)));
            }
            return;
        };
        session.idle_at = None;
        session.close = Some(run);
        if session.state() == SessionState::Open {
            session.record.state = procd_store::session::SessionState::Closing;
            self.save_session(id);
        }
        self.refuse_waiters(Some(id));
        self.ask_all_to_end(&targets, grace);
        self.check_runs();
    }

    /// Goes on with closes that an earlier daemon had begun.
    pub(in crate::supervisor) fn finish_closes(&mut self) {
        let is_closing = |session: &&Session| session.state() == SessionState::Closing;
        let closing = self.sessions.values().filter(is_closing);
        let ids: Vec<SessionId> = closing.map(|session| session.record.session_id).collect();
        for id in ids {
            self.begin_close(id, CloseRun::default(), None);
        }
    }

    /// Ends the close runs whose targets have all ended or are named as failures.
    pub(in crate::supervisor) fn check_closes(&mut self) {
        let closing: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.close.as_ref().is_some_and(|run| run.outcome.is_none()))
            .map(|(id, _)| *id)
            .collect();
        for id in closing {
            let Some(run) = self.sessions.get(&id).and_then(|session| session.close.as_ref())
            else {
                continue;
            };
            if let Some(outcome) = self.outcome_of(&run.targets) {
                self.commit_close(id, outcome);
            }
        }
    }

    fn commit_close(&mut self, id: SessionId, outcome: StopAllOutcome) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(run) = session.close.as_mut() {
            run.outcome = Some(outcome);
        }
        session.record.state = procd_store::session::SessionState::Closed;
        session.record.closed_at = Some(self.clock.wall_after(session.record.created_at));
        let submitted =
            self.journal.submit(Tag::SessionClosed(id), vec![LogRecord::session(&session.record)]);
        if let Some(submitted) = submitted.first() {
            session.seq = submitted.seq;
        }
    }

    /// The closed record is durable, or could not be saved: the callers get the outcome.
    pub(in crate::supervisor) fn session_closed(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(run) = session.close.take() else { return };
        self.storage.write_session(session.record.clone());
        let outcome = run.outcome.unwrap_or_default();
        for reply in run.replies {
            drop(reply.send(Ok(outcome.clone())));
        }
        if run.purge {
            let handles: Vec<_> = self.table.newest_first(Some(id)).map(|e| e.handle).collect();
            for handle in handles {
                self.remove_process(handle, None);
            }
        }
    }
}
