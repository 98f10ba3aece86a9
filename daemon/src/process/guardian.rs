//! The link to the guardian: one task that sends requests, hands reports to the process they speak
//! of, and puts a new guardian in the place of one that died.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use procd_sys::channel;
use procd_sys::containment::Containment;
use procd_sys::guardian::{self, Launched};
use procd_sys::message::{Hold, Report, Request, Tag, Target};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::lane::{LaneReceiver, LaneSender, Unsent, lane};
use crate::watched::watched_both;

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

/// What is asked of the guardian, or of the link itself.
enum Message {
    Start {
        key: u64,
        hold: Hold,
        descriptors: Vec<OwnedFd>,
        to: LaneSender<News>,
    },
    /// Whoever watches is noted.
    Asked(Request, Vec<OwnedFd>),
    Forget {
        key: u64,
    },
}

/// A request with what goes along.
type Asked = (Request, Vec<OwnedFd>);

/// The way to the guardian. Clones share it; the last one dropped ends the guardian, and with it
/// everything that runs.
#[derive(Debug, Clone)]
pub(super) struct GuardianLink {
    messages: mpsc::Sender<Message>,
    next_key: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

/// What the senders share with the task. The lock is never held across an `.await`.
#[derive(Debug, Default)]
struct Shared {
    pid: AtomicU64,
    escaped: Arc<AtomicU64>,
    wire: Mutex<Wire>,
}

#[derive(Debug, Default)]
struct Wire {
    /// The socket, while there is a guardian.
    control: Option<Arc<AsyncFd<OwnedFd>>>,
    watchers: HashMap<u64, LaneSender<News>>,
    /// Messages on their way by the task: nothing may overtake them.
    queued: usize,
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    /// Sends at once, without a turn of the task. Gives back what has to wait: counted then, since
    /// it goes by the task.
    fn send_now(&mut self, message: Message) -> Result<(), Message> {
        let refused = match (&self.control, self.queued) {
            (Some(control), 0) => {
                let control = Arc::clone(control);
                self.try_send(control.get_ref(), message)
            }
            (Some(_) | None, _) => Err(message),
        };
        self.queued += usize::from(refused.is_err());
        refused
    }

    fn try_send(&mut self, control: &OwnedFd, message: Message) -> Result<(), Message> {
        let (request, descriptors) = match self.accept(message) {
            Some(asked) => asked,
            None => return Ok(()),
        };
        match send(control, request, &descriptors) {
            Sent::Whole => Ok(()),
            // Its end is seen by the task, which tells all who watch.
            Sent::Gone => Ok(()),
            Sent::Full => Err(Message::Asked(request, descriptors)),
        }
    }

    /// Notes who watches. What is left is for the socket.
    fn accept(&mut self, message: Message) -> Option<Asked> {
        Some(match message {
            Message::Start { key, hold, descriptors, to } => {
                self.watchers.insert(key, to);
                (Request::Start { key, hold }, descriptors)
            }
            Message::Asked(request, descriptors) => (request, descriptors),
            Message::Forget { key } => {
                self.watchers.remove(&key);
                return None;
            }
        })
    }
}

enum Sent {
    Whole,
    /// The socket has no room now.
    Full,
    /// Nobody is there.
    Gone,
}

fn send(control: &OwnedFd, request: Request, descriptors: &[OwnedFd]) -> Sent {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    match channel::send(control, &request.encode(), &borrowed) {
        Ok(()) => Sent::Whole,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Sent::Full,
        Err(_) => Sent::Gone,
    }
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
        let shared = Arc::new(Shared::default());
        let task =
            Task { containment, held, waiting: VecDeque::new(), shared: Arc::clone(&shared) };
        let guardian = task.take_over(launched)?;
        tokio::spawn(task.run(guardian, inbox));
        Ok(Self { messages, next_key: Arc::new(AtomicU64::new(1)), shared })
    }

    pub(super) fn mint_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// The pid of the guardian, for operators.
    pub(super) fn pid(&self) -> Option<i32> {
        i32::try_from(self.shared.pid.load(Ordering::Relaxed)).ok().filter(|&pid| pid > 0)
    }

    /// How many processes were found outside every leaf.
    pub(super) fn escaped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.escaped)
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
        let request = Request::Signal { key, signal, tag, target: Target::Leader };
        self.send(Message::Asked(request, Vec::new())).await;
    }

    pub(super) async fn ask_reap(&self, key: u64) {
        self.send(Message::Asked(Request::Reap { key }, Vec::new())).await;
    }

    pub(super) async fn forget(&self, key: u64) {
        self.send(Message::Forget { key }).await;
    }

    async fn send(&self, message: Message) {
        let Err(message) = self.shared.wire().send_now(message) else { return };
        if self.messages.send(message).await.is_err() {
            tracing::debug!("a request after the end of the link");
        }
    }
}

struct Guardian {
    control: Arc<AsyncFd<OwnedFd>>,
    /// Kept so that its number stays its own until it was reaped.
    _pidfd: OwnedFd,
}

struct Task {
    containment: Containment,
    held: Vec<OwnedFd>,
    /// Requests the socket did not take yet.
    waiting: VecDeque<Asked>,
    shared: Arc<Shared>,
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
            tokio::spawn(end_adopted(Arc::clone(&self.shared)));
        }
    }

    fn take_over(&self, launched: Launched) -> std::io::Result<Guardian> {
        let pid = u64::from(launched.pid.unsigned_abs());
        let control = Arc::new(watched_both(launched.control)?);
        self.shared.pid.store(pid, Ordering::Relaxed);
        self.shared.wire().control = Some(Arc::clone(&control));
        Ok(Guardian { control, _pidfd: launched.pidfd })
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
        let mut wire = self.shared.wire();
        match wire.accept(message) {
            // Whoever asked before the end of a guardian has been told of that.
            Some((Request::Start { key, .. }, _)) if !wire.watchers.contains_key(&key) => {
                wire.queued -= 1;
            }
            Some(asked) => self.waiting.push_back(asked),
            None => wire.queued -= 1,
        }
    }

    /// Sends what waits: `Ok(false)` = the socket is full.
    fn send_waiting(&mut self, control: &AsyncFd<OwnedFd>) -> Result<bool, Gone> {
        while let Some((request, descriptors)) = self.waiting.front() {
            match send(control.get_ref(), *request, descriptors) {
                Sent::Whole => {
                    self.shared.wire().queued -= 1;
                    drop(self.waiting.pop_front());
                }
                Sent::Full => return Ok(false),
                Sent::Gone => return Err(Gone),
            }
        }
        Ok(true)
    }

    /// Takes what has come: `Ok(true)` = nothing is left to read.
    fn receive(&mut self, control: &AsyncFd<OwnedFd>) -> Result<bool, Gone> {
        loop {
            match channel::receive(control.get_ref()) {
                Ok(Some(received)) => self.dispatch_all(&received.bytes),
                Ok(None) => return Err(Gone),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Err(Gone),
            }
        }
    }

    fn dispatch_all(&mut self, mut datagram: &[u8]) {
        while !datagram.is_empty() {
            let Ok((report, rest)) = Report::decode_first(datagram) else {
                tracing::error!("bug: a malformed report of the guardian");
                return;
            };
            self.dispatch(report);
            datagram = rest;
        }
    }

    fn dispatch(&mut self, report: Report) {
        if let Report::Escaped { count } = report {
            self.shared.escaped.store(count, Ordering::Relaxed);
            tracing::warn!(count, "processes outside every control group of ours were killed");
        }
        let Some(key) = report.key() else { return };
        let mut wire = self.shared.wire();
        let Some(to) = wire.watchers.get(&key) else { return };
        match to.send(News::Report(report)) {
            Ok(()) => {}
            Err(Unsent::Full) => {
                tracing::error!(key, "bug: more reports than a process can have");
            }
            Err(Unsent::Closed) => {
                wire.watchers.remove(&key);
            }
        }
    }

    /// The guardian is gone, and its children are ours now: everything it held is ended.
    async fn lose_all(&mut self) {
        self.shared.pid.store(0, Ordering::Relaxed);
        let watchers = {
            let mut wire = self.shared.wire();
            wire.control = None;
            wire.queued -= self.waiting.len();
            std::mem::take(&mut wire.watchers)
        };
        tracing::error!(running = watchers.len(), "the guardian died");
        self.waiting.clear();
        if let Containment::Cgroup(payload) = &self.containment {
            let payload = Arc::clone(payload);
            let killed = tokio::task::spawn_blocking(move || payload.kill()).await;
            if let Ok(Err(error)) = killed {
                tracing::error!(%error, "the payload could not be killed");
            }
        }
        for to in watchers.into_values() {
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
                message = inbox.recv() => {
                    let Some(message) = message else { return false };
                    self.shared.wire().queued -= 1;
                    if let Message::Start { to, .. } = message {
                        drop(to.send(News::Missing));
                    }
                }
            }
        }
    }
}

/// The guardian cannot be reached any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gone;

/// What fell to the daemon must neither live on nor stay as zombies. Shims end their own trees,
/// being told to; what is left after that has lost its shim too.
async fn end_adopted(shared: Arc<Shared>) {
    for tick in 0..REAP_TICKS_MAX {
        tokio::time::sleep(REAP_TICK).await;
        guardian::reap_adopted();
        let guardian = i32::try_from(shared.pid.load(Ordering::Relaxed)).unwrap_or(0);
        let mut rounds = if tick < SHIMS_END_TICKS { 0 } else { KILL_ROUNDS };
        // Each round meets what the one before has orphaned.
        while rounds > 0 && guardian::kill_adopted(guardian) {
            rounds -= 1;
        }
    }
}
