//! The link to the guardian: one task that sends requests, hands reports to the process they speak
//! of, and puts a new guardian in the place of one that died.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procd_sys::channel;
use procd_sys::containment::Containment;
use procd_sys::guardian::{self, Launched};
use procd_sys::message::{Hold, Report, Request, Tag, Target};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::watched::watched_both;
use crate::lane::{LaneReceiver, LaneSender, Unsent, lane};

/// Requests that wait for the link; a full queue holds its process back.
const REQUESTS_MAX: usize = 1024;
/// Reports of one process that wait for its task: the few of a life, and one for each of the
/// orders that can be under way.
const REPORTS_MAX: usize = 64;
/// Between two tries to start a guardian.
const RELAUNCH_PAUSE: Duration = Duration::from_secs(1);
/// While the daemon still has children that fell from a dead guardian: how often it reaps.
const REAP_TICK: Duration = Duration::from_millis(100);
/// For so long after the end of a guardian.
const REAP_TICKS_MAX: u32 = 600;
/// So many of them shims have to end their trees themselves.
const SHIMS_END_TICKS: u32 = 5;
/// Rounds against orphans in one tick.
const KILL_ROUNDS: u32 = 16;

/// What the task of a process learns from the link.
#[derive(Debug)]
pub(super) enum News {
    /// A report of the guardian.
    Report(Report),
    /// The guardian died.
    Lost,
    /// There was none, and nothing was sent.
    Missing,
}

enum Message {
    Start { key: u64, hold: Hold, descriptors: Vec<OwnedFd>, to: LaneSender<News> },
    Signal { key: u64, signal: i32, tag: Tag },
    Reap { key: u64 },
    Forget { key: u64 },
}

/// The way to the guardian. Clones share it; the last one dropped ends the guardian, and with it
/// everything that runs.
#[derive(Debug, Clone)]
pub(super) struct GuardianLink {
    messages: mpsc::Sender<Message>,
    next_key: Arc<AtomicU64>,
    status: Arc<Status>,
}

#[derive(Debug, Default)]
struct Status {
    pid: AtomicU64,
    escaped: Arc<AtomicU64>,
}

impl GuardianLink {
    /// Takes over a guardian that was launched before any thread.
    /// - `held`: the locks that a new guardian gets too.
    pub(super) fn start(
        containment: Containment,
        launched: Launched,
        held: Vec<OwnedFd>,
    ) -> std::io::Result<Self> {
        let (messages, inbox) = mpsc::channel(REQUESTS_MAX);
        let status = Arc::new(Status::default());
        let task = Task {
            containment,
            held,
            watchers: HashMap::new(),
            waiting: VecDeque::new(),
            status: Arc::clone(&status),
        };
        let guardian = task.take_over(launched)?;
        tokio::spawn(task.run(guardian, inbox));
        Ok(Self { messages, next_key: Arc::new(AtomicU64::new(1)), status })
    }

    pub(super) fn mint_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// The pid of the guardian, for operators.
    pub(super) fn pid(&self) -> Option<i32> {
        i32::try_from(self.status.pid.load(Ordering::Relaxed)).ok().filter(|&pid| pid > 0)
    }

    /// How many processes were found outside every leaf.
    pub(super) fn escaped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.status.escaped)
    }

    /// Asks for a start; its news come by the receiver.
    pub(super) async fn ask_start(
        &self,
        key: u64,
        hold: Hold,
        descriptors: Vec<OwnedFd>,
    ) -> LaneReceiver<News> {
        let (to, news) = lane(REPORTS_MAX);
        self.send(Message::Start { key, hold, descriptors, to }).await;
        news
    }

    pub(super) async fn ask_signal(&self, key: u64, signal: i32, tag: Tag) {
        self.send(Message::Signal { key, signal, tag }).await;
    }

    pub(super) async fn ask_reap(&self, key: u64) {
        self.send(Message::Reap { key }).await;
    }

    pub(super) async fn forget(&self, key: u64) {
        self.send(Message::Forget { key }).await;
    }

    async fn send(&self, message: Message) {
        if self.messages.send(message).await.is_err() {
            tracing::debug!("a request after the end of the link");
        }
    }
}

struct Guardian {
    control: AsyncFd<OwnedFd>,
    /// Kept so that its number stays its own until it was reaped.
    _pidfd: OwnedFd,
}

struct Task {
    containment: Containment,
    held: Vec<OwnedFd>,
    watchers: HashMap<u64, LaneSender<News>>,
    /// Requests the socket did not take yet.
    waiting: VecDeque<(Request, Vec<OwnedFd>)>,
    status: Arc<Status>,
}

/// Why the link stopped serving a guardian.
enum Stop {
    GuardianGone,
    NobodyLeft,
}

impl Task {
    async fn run(mut self, first: Guardian, mut inbox: mpsc::Receiver<Message>) {
        let mut guardian = first;
        loop {
            match self.serve(&guardian, &mut inbox).await {
                Stop::NobodyLeft => return,
                Stop::GuardianGone => {}
            }
            drop(guardian);
            self.lose_all().await;
            guardian = loop {
                match self.relaunch() {
                    Ok(new) => break new,
                    Err(error) => tracing::error!(%error, "no new guardian could be started"),
                }
                if !self.refuse_for(RELAUNCH_PAUSE, &mut inbox).await {
                    return;
                }
            };
            tokio::spawn(end_adopted(Arc::clone(&self.status)));
        }
    }

    fn take_over(&self, launched: Launched) -> std::io::Result<Guardian> {
        let pid = u64::from(launched.pid.unsigned_abs());
        self.status.pid.store(pid, Ordering::Relaxed);
        Ok(Guardian { control: watched_both(launched.control)?, _pidfd: launched.pidfd })
    }

    fn relaunch(&self) -> std::io::Result<Guardian> {
        let held: Vec<BorrowedFd<'_>> = self.held.iter().map(AsFd::as_fd).collect();
        let launched = guardian::launch(&self.containment, &held)?;
        tracing::warn!(pid = launched.pid, "a new guardian was started");
        self.take_over(launched)
    }

    async fn serve(&mut self, guardian: &Guardian, inbox: &mut mpsc::Receiver<Message>) -> Stop {
        loop {
            let is_waiting = !self.waiting.is_empty();
            let gone = tokio::select! {
                biased;
                readable = guardian.control.readable() => match readable {
                    Ok(mut guard) => {
                        let open = self.receive(&guardian.control);
                        if open == Ok(true) {
                            guard.clear_ready();
                        }
                        open.is_err()
                    }
                    Err(_) => true,
                },
                writable = guardian.control.writable(), if is_waiting => match writable {
                    Ok(mut guard) => {
                        let all = self.send_waiting(&guardian.control);
                        if all == Ok(false) {
                            guard.clear_ready();
                        }
                        all.is_err()
                    }
                    Err(_) => true,
                },
                message = inbox.recv(), if !is_waiting => match message {
                    Some(message) => {
                        self.accept(message);
                        self.send_waiting(&guardian.control).is_err()
                    }
                    None => return Stop::NobodyLeft,
                },
            };
            if gone {
                return Stop::GuardianGone;
            }
        }
    }

    fn accept(&mut self, message: Message) {
        match message {
            Message::Start { key, hold, descriptors, to } => {
                self.watchers.insert(key, to);
                self.waiting.push_back((Request::Start { key, hold }, descriptors));
            }
            Message::Signal { key, signal, tag } => {
                let target = Target::Leader;
                let request = Request::Signal { key, signal, tag, target };
                self.waiting.push_back((request, Vec::new()));
            }
            Message::Reap { key } => self.waiting.push_back((Request::Reap { key }, Vec::new())),
            Message::Forget { key } => {
                self.watchers.remove(&key);
            }
        }
    }

    /// Sends what waits: `Ok(false)` = the socket is full.
    fn send_waiting(&mut self, control: &AsyncFd<OwnedFd>) -> Result<bool, Gone> {
        while let Some((request, descriptors)) = self.waiting.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match channel::send(control.get_ref(), &request.encode(), &borrowed) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Gone),
            }
        }
        Ok(true)
    }

    /// Takes what has come: `Ok(true)` = nothing is left to read.
    fn receive(&mut self, control: &AsyncFd<OwnedFd>) -> Result<bool, Gone> {
        loop {
            match channel::receive(control.get_ref()) {
                Ok(Some(received)) => match Report::decode(&received.bytes) {
                    Ok(report) => self.dispatch(report),
                    Err(_) => tracing::error!("bug: a malformed report of the guardian"),
                },
                Ok(None) => return Err(Gone),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Err(Gone),
            }
        }
    }

    fn dispatch(&mut self, report: Report) {
        if let Report::Escaped { count } = report {
            self.status.escaped.store(count, Ordering::Relaxed);
            tracing::warn!(count, "processes outside every control group of ours were killed");
        }
        let Some(key) = report.key() else { return };
        let Some(to) = self.watchers.get(&key) else { return };
        match to.send(News::Report(report)) {
            Ok(()) => {}
            Err(Unsent::Full) => {
                tracing::error!(key, "bug: more reports than a process can have");
            }
            Err(Unsent::Closed) => {
                self.watchers.remove(&key);
            }
        }
    }

    /// The guardian is gone, and its children are ours now: everything it held is ended.
    async fn lose_all(&mut self) {
        tracing::error!(running = self.watchers.len(), "the guardian died");
        self.status.pid.store(0, Ordering::Relaxed);
        self.waiting.clear();
        if let Containment::Cgroup(payload) = &self.containment {
            let payload = Arc::clone(payload);
            let killed = tokio::task::spawn_blocking(move || payload.kill()).await;
            if let Ok(Err(error)) = killed {
                tracing::error!(%error, "the payload could not be killed");
            }
        }
        for (_, to) in self.watchers.drain() {
            // A full queue cannot be, and a closed one has nobody to tell.
            drop(to.send(News::Lost));
        }
        guardian::reap_adopted();
    }

    /// Refuses what is asked while there is no guardian; `false` = nobody asks any more.
    async fn refuse_for(&mut self, time: Duration, inbox: &mut mpsc::Receiver<Message>) -> bool {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return true,
                message = inbox.recv() => match message {
                    Some(Message::Start { to, .. }) => drop(to.send(News::Missing)),
                    Some(Message::Signal { .. } | Message::Reap { .. } | Message::Forget { .. }) => {}
                    None => return false,
                },
            }
        }
    }
}

/// The guardian cannot be reached any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gone;

/// What fell to the daemon must neither live on nor stay as zombies. Shims end their own trees,
/// being told to; what is left after that has lost its shim too.
async fn end_adopted(status: Arc<Status>) {
    for tick in 0..REAP_TICKS_MAX {
        tokio::time::sleep(REAP_TICK).await;
        guardian::reap_adopted();
        let guardian = i32::try_from(status.pid.load(Ordering::Relaxed)).unwrap_or(0);
        let mut rounds = if tick < SHIMS_END_TICKS { 0 } else { KILL_ROUNDS };
        // Each round meets what the one before has orphaned.
        while rounds > 0 && guardian::kill_adopted(guardian) {
            rounds -= 1;
        }
    }
}
