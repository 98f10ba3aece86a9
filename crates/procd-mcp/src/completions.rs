//! The ends of processes: announced to whoever watches their resources, and told with the next
//! result of a tool, once. None is answered to the daemon before it was told, so that a bridge that
//! is killed in between loses none.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use procd_client::{Notifications, Session};
use procd_protocol::ProcessId;
use procd_protocol::v1::Notification;
use tokio::sync::{broadcast, mpsc};

/// Ends whose result was told by a tool itself, until their notification comes.
const SHOWN_MAX: usize = 1024;
/// Changes that wait for a slow watcher; it is told of later ones all the same.
const CHANGES_MAX: usize = 256;
/// Answers on their way to the daemon.
const ANSWERS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Completions {
    state: Mutex<State>,
    changes: broadcast::Sender<ProcessId>,
}

#[derive(Debug, Default)]
struct State {
    /// Ends that are not told yet. The daemon sends at most 64 ahead.
    untold: VecDeque<Notification>,
    shown: VecDeque<ProcessId>,
    answers: Option<mpsc::Sender<Notification>>,
}

impl State {
    /// Whether the result of this end was shown already; else it is to be told.
    fn place(&mut self, end: &Notification) -> bool {
        let shown = self.shown.iter().position(|shown| *shown == end.process_id);
        match shown.and_then(|at| self.shown.remove(at)) {
            Some(_id) => true,
            None => {
                self.untold.push_back(end.clone());
                false
            }
        }
    }
}

impl Default for Completions {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        Self { state: Mutex::default(), changes }
    }
}

impl Completions {
    /// Watches the ends of a session's processes, until the session is gone.
    pub(crate) fn watch(self: &Arc<Self>, session: Session) {
        let (answers, to_answer) = mpsc::channel(ANSWERS_MAX);
        self.lock().answers = Some(answers);
        tokio::spawn(Arc::clone(self).follow(session, to_answer));
    }

    async fn follow(self: Arc<Self>, session: Session, mut answers: mpsc::Receiver<Notification>) {
        let Ok(mut notifications) = session.notifications().await else { return };
        loop {
            tokio::select! {
                next = notifications.next() => match next {
                    Ok(notification) => {
                        if self.take(&notification) {
                            accept(&mut notifications, &notification).await;
                        }
                    }
                    Err(_gone) => return,
                },
                told = answers.recv() => match told {
                    Some(told) => accept(&mut notifications, &told).await,
                    // Another session is watched by now.
                    None => return,
                },
            }
        }
    }

    /// Announces an end. Whether its result was shown already.
    fn take(&self, notification: &Notification) -> bool {
        let id = notification.process_id;
        let is_shown = self.lock().place(notification);
        // Nobody may be watching: that is fine.
        self.changes.send(id).ok();
        is_shown
    }

    /// The processes whose resources change, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<ProcessId> {
        self.changes.subscribe()
    }

    /// A tool's result shows these ends itself: what is left to tell beside it, told by that.
    pub(crate) fn tell(&self, shown: &HashSet<ProcessId>) -> Vec<Notification> {
        let mut state = self.lock();
        let untold = std::mem::take(&mut state.untold);
        let known: HashSet<ProcessId> = untold.iter().map(|end| end.process_id).collect();
        state.shown.extend(shown.difference(&known));
        while state.shown.len() > SHOWN_MAX {
            state.shown.pop_front();
        }
        if let Some(answers) = &state.answers {
            for end in &untold {
                // With the queue full it is offered again after a reconnect, and told again.
                answers.try_send(end.clone()).ok();
            }
        }
        untold.into_iter().filter(|end| !shown.contains(&end.process_id)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Should it be lost, the end is offered, and known, once more.
async fn accept(notifications: &mut Notifications, notification: &Notification) {
    notifications.accept(notification).await.ok();
}
