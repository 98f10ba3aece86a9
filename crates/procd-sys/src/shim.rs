//! The shim of tier 2: a fork of the guardian without exec, one per command. Subreaper and parent
//! of the command; holds its tree together and ends it. Its one tie is the death socket: when the
//! daemon's end closes, the tree dies. In tier 3 it is the init of a PID namespace, and ends with
//! the guardian too.
//!
//! Must not use what the guardian had allocated once its command is executed (see `scratch`), nor call
//! what allocates inside libc. Must not hold an end of a stream, and must not signal what is no own unreaped child, but for
//! the polite signal, which goes through pidfds whose ancestry was checked after the opening.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use procd_core::LeaderEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};

use crate::bare::Stack;
use crate::child::{self, ChildDescriptors, Closed, ExecNews, Gate, Prepared, Unexecuted};
use crate::image::Image;
use crate::isolation::Isolated;
use crate::members::{Sent, Signalled};
use crate::message::{Report, Request, Stage, Tag, Target};
use crate::raw::{self, Lent};
use crate::wait::{self, Look};
use crate::{channel, members, procfs};

/// Between two rounds of a kill that is not done; a SIGCHLD comes earlier.
const KILL_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// How long the news of the clone wait for those of the exec, which nearly always come at once: each
/// wakes the daemon.
const EXEC_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The shim ended on its own account: clean.
const DONE: i32 = 0;
/// It could not begin its work.
pub(crate) const BROKEN: LeaderEnd = LeaderEnd::Code(BROKEN_CODE);
const BROKEN_CODE: u8 = 3;

/// What a shim is made of.
pub(crate) struct Ward {
    pub(crate) image: Image,
    pub(crate) descriptors: ChildDescriptors,
    pub(crate) socket: OwnedFd,
    pub(crate) oom_score_adj: Option<i32>,
    /// It is the init of a PID namespace (tier 3).
    pub(crate) isolated: Option<Isolated>,
}

/// A shim's whole life, in the forked process.
pub(crate) fn run(ward: Ward) -> ! {
    match Shim::start(ward) {
        Ok(mut shim) => shim.serve(),
        Err(_told_by_the_code) => raw::exit_now(BROKEN_CODE.into()),
    }
}

/// The leader, as far as it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leader {
    Alive(Pid),
    /// Ended, told, not reaped.
    Ended(Pid),
    Reaped,
}

impl Leader {
    const fn unreaped(self) -> Option<Pid> {
        match self {
            Self::Alive(pid) | Self::Ended(pid) => Some(pid),
            Self::Reaped => None,
        }
    }
}

enum Exec {
    /// What the leader uses of our memory goes along.
    Pending(OwnedFd, Option<Loan>),
    Failed(Unexecuted),
    Done,
}

type Loan = Lent<Prepared>;

struct Shim {
    socket: OwnedFd,
    signals: OwnedFd,
    leader: Leader,
    exec: Exec,
    /// The leader, while it is not told that it exists.
    untold: Cell<Option<Pid>>,
    /// Pid 1 of a namespace, all of which the kernel ends with it.
    is_init: bool,
    killing: bool,
    /// The daemon is gone: nobody to tell.
    alone: bool,
}

impl Shim {
    fn start(ward: Ward) -> std::io::Result<Self> {
        let Ward { image, descriptors, socket, oom_score_adj, isolated } = ward;
        keep_only(&descriptors, &socket)?;
        let is_init = isolated.is_some();
        rustix::thread::set_name(if is_init { c"procd-init" } else { c"procd-shim" })?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        rustix::process::setsid()?;
        let signals = raw::child_signals()?;
        let (pipe, report) = child::exec_pipe()?;
        let prepared = Prepared::new(image, &descriptors, &report, oom_score_adj, None);
        let (leader, exec) = match isolated {
            None => start_leader(prepared, pipe),
            Some(isolated) => fork_isolated(prepared, pipe, &isolated)?,
        };
        let untold = Cell::new(leader.unreaped());
        Ok(Self { socket, signals, leader, exec, untold, is_init, killing: false, alone: false })
    }

    fn serve(&mut self) -> ! {
        loop {
            raw::drain_signals(&self.signals);
            self.read_exec_pipe();
            self.round();
            if self.wait() {
                self.take_requests();
            }
        }
    }

    /// Waits for something to do; `true` = the socket has something.
    fn wait(&self) -> bool {
        let socket = if self.alone { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if !self.alone {
            fds.push(PollFd::new(&self.socket, socket));
        }
        if let Exec::Pending(pipe, _) = &self.exec {
            fds.push(PollFd::new(pipe, PollFlags::IN));
        }
        let is_untold = self.untold.get().is_some();
        let tick = is_untold.then_some(&EXEC_TICK).or_else(|| self.killing.then_some(&KILL_TICK));
        if poll(&mut fds, tick) == Ok(0) {
            self.tell_started();
        }
        !self.alone && fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
    }

    fn read_exec_pipe(&mut self) {
        let Exec::Pending(pipe, lent) = &mut self.exec else { return };
        match (child::exec_news(pipe), self.leader.unreaped()) {
            (ExecNews::Pending, _) => {}
            // It still has to end, on its stack, which goes with us.
            (ExecNews::Failed(why), _) => {
                std::mem::forget(lent.take());
                self.exec = Exec::Failed(why);
            }
            (ExecNews::Closed, leader) => {
                // Its memory is another, or none at all, before the pipe closes.
                self.exec = Exec::Done;
                let judged = leader.map_or(Closed::DiedEarly, child::judge_closed);
                self.tell(match judged {
                    Closed::Executed => Report::Executed { key: 0 },
                    Closed::DiedEarly => Report::DiedEarly { key: 0 },
                });
                crate::scratch::leave_heap();
            }
        }
    }

    /// One look at all children: reaps what ended, kills what must die, and ends the shim when
    /// nothing is left.
    fn round(&mut self) {
        loop {
            // A list read while the leader lived says nothing about what it left behind: its
            // children become ours at its end. So the list counts only if read after that.
            let has_ended = !matches!(self.leader, Leader::Alive(_));
            let others = self.visit_others();
            if has_ended {
                if others == 0 || self.ends_all() {
                    self.prove_empty();
                }
                return;
            }
            self.look_at_leader();
            if matches!(self.leader, Leader::Alive(_)) {
                return;
            }
        }
    }

    /// Reaps what ended and kills what must die, the leader aside; says how many live.
    fn visit_others(&self) -> u32 {
        let leader = self.leader.unreaped();
        let mut others = 0_u32;
        for pid in procfs::own_children().unwrap_or_default() {
            if Some(pid) == leader || wait::reap(pid) != Look::Alive {
                continue;
            }
            others += 1;
            if self.killing {
                // An own unreaped child: its number cannot be a stranger's.
                let _refused = raw::kill(pid, false, libc::SIGKILL);
            }
        }
        others
    }

    fn look_at_leader(&mut self) {
        let Leader::Alive(pid) = self.leader else { return };
        if self.killing {
            let _refused = raw::kill(pid, false, libc::SIGKILL);
        }
        // The pipe speaks first, whose news come before the end can be seen.
        if matches!(self.exec, Exec::Pending(..)) {
            return;
        }
        let end = match wait::look(pid) {
            Look::Alive => return,
            Look::Ended(end) => end,
            // Cannot be: nobody else reaps. Said as unknown by saying nothing: the daemon then
            // sees an end that was not observed.
            Look::NoChild => {
                self.leader = Leader::Reaped;
                return;
            }
        };
        self.leader = Leader::Ended(pid);
        if matches!(self.exec, Exec::Done) {
            self.tell_end(pid, end);
        }
    }

    fn tell_end(&self, leader: Pid, end: LeaderEnd) {
        // What it left behind is ours by now: nobody beside it means nobody at all, the usual end.
        let is_alone = procfs::own_children().is_ok_and(|all| all.iter().all(|&pid| pid == leader));
        let count = || members::count_descendants(rustix::process::getpid(), leader);
        let leftovers = if is_alone { 0 } else { count() };
        self.tell(Report::Ended { key: 0, end, leftovers });
    }

    /// Whether the kernel ends what is left: it does so before this process can be reaped, and that
    /// is the proof then.
    const fn ends_all(&self) -> bool {
        self.is_init && self.killing
    }

    /// The leader is reaped as the last part of the proof; ECHILD is the proof itself.
    fn prove_empty(&mut self) {
        if let Leader::Ended(pid) = self.leader {
            if wait::reap(pid) == Look::Alive {
                return;
            }
            self.leader = Leader::Reaped;
        }
        if !self.ends_all() && wait::has_children() {
            return;
        }
        match &self.exec {
            Exec::Failed(Unexecuted { stage, errno }) => {
                self.tell(Report::Failed { key: 0, stage: *stage, errno: *errno });
            }
            Exec::Pending(..) | Exec::Done => self.tell(Report::Empty),
        }
        raw::exit_now(DONE)
    }

    fn take_requests(&mut self) {
        loop {
            match channel::receive(&self.socket) {
                Ok(Some(received)) => match Request::decode(&received.bytes) {
                    Ok(Request::Signal { signal, tag, target, .. }) => {
                        self.signal(signal, tag, target);
                    }
                    Ok(Request::Kill { tag }) => self.kill(tag),
                    Ok(Request::Setup { .. } | Request::Start { .. } | Request::Reap { .. })
                    | Err(_) => {}
                },
                Ok(None) => break,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_gone) => break,
            }
        }
        if self.is_init {
            raw::exit_now(DONE);
        }
        self.killing = true;
        self.alone = true;
    }

    fn leader_is_alive(&self) -> bool {
        match self.leader {
            Leader::Alive(pid) => wait::look(pid) == Look::Alive,
            Leader::Ended(_) | Leader::Reaped => false,
        }
    }

    fn kill(&mut self, tag: Tag) {
        let alive = self.leader_is_alive();
        self.killing = true;
        self.round_after_request(tag, alive);
    }

    fn round_after_request(&mut self, tag: Tag, alive: bool) {
        self.tell_reached(tag, alive, Signalled::default());
        self.round();
    }

    /// Looks, then signals each process of the target once.
    fn signal(&self, signal: i32, tag: Tag, target: Target) {
        let alive = self.leader_is_alive();
        let own = rustix::process::getpid();
        let leader = self.leader.unreaped();
        let signalled = match (target, leader) {
            (Target::Leader, Some(leader)) if alive => {
                let sent = raw::kill(leader, false, signal);
                let errno = sent.err().and_then(|error| error.raw_os_error()).unwrap_or(0);
                let is_sent = errno == 0;
                Signalled { delivered: is_sent.into(), refused: (!is_sent).into(), errno }
            }
            (Target::Leader, _) => Signalled::default(),
            (Target::Tree, _) => members::signal_descendants(own, leader, Sent::polite(signal)),
            (Target::TreeExactly, _) => {
                members::signal_descendants(own, leader, Sent::exactly(signal))
            }
            (Target::Group(_), _) if self.is_init => {
                let group = leader.and_then(procfs::stat).map_or(-1, |stat| stat.terminal_group);
                members::signal_group(own, group, Sent::exactly(signal))
            }
            (Target::Group(group), _) => members::signal_group(own, group, Sent::exactly(signal)),
        };
        self.tell_reached(tag, alive, signalled);
    }

    fn tell_started(&self) {
        let (bytes, pidfd) = self.untold_start();
        self.send(&bytes, pidfd.as_ref());
    }

    /// That the leader exists, if it is not told yet. The number that an init sees is no other's:
    /// its pidfd tells who it is.
    fn untold_start(&self) -> (Vec<u8>, Option<OwnedFd>) {
        let Some(leader) = self.untold.take() else { return (Vec::new(), None) };
        let report = Report::Started { key: 0, pid: leader.as_raw_nonzero().get() };
        let open = || rustix::process::pidfd_open(leader, PidfdFlags::empty()).ok();
        (report.encode(), self.is_init.then(open).flatten())
    }

    fn tell_reached(&self, tag: Tag, alive: bool, signalled: Signalled) {
        let Signalled { delivered, refused, errno } = signalled;
        self.tell(Report::Reached { key: 0, tag, alive, errno, refused, delivered });
    }

    fn tell(&self, report: Report) {
        if !self.alone {
            let (mut bytes, pidfd) = self.untold_start();
            bytes.extend(report.encode());
            self.send(&bytes, pidfd.as_ref());
        }
    }

    /// A full or closed socket loses the reports: the daemon's own reading keeps it from being
    /// full, and a closed one is seen at the next look.
    fn send(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) {
        if !bytes.is_empty() {
            let descriptors: Vec<_> = descriptor.into_iter().map(OwnedFd::as_fd).collect();
            let _gone = channel::send(self.socket.as_fd(), bytes, &descriptors);
        }
    }
}

/// A leader that can share our memory needs nothing of it copied.
/// - `pipe`: the reading end of its report.
fn start_leader(prepared: Prepared, pipe: OwnedFd) -> (Leader, Exec) {
    let stack =
        if Stack::IS_OF_USE && prepared.may_share_memory() { Stack::new().ok() } else { None };
    match raw::live_beside(Box::new(prepared), stack) {
        Ok((pid, lent)) => (Leader::Alive(pid), Exec::Pending(pipe, lent)),
        Err(error) => (Leader::Reaped, unexecuted(Stage::Clone, &error)),
    }
}

/// The command of an init waits until that has its own view; without one nothing is executed.
fn fork_isolated(
    prepared: Prepared,
    pipe: OwnedFd,
    isolated: &Isolated,
) -> std::io::Result<(Leader, Exec)> {
    if let Err(error) = isolated.begin() {
        return Ok((Leader::Reaped, unexecuted(Stage::Isolation, &error)));
    }
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let gate = Gate { read: read.as_raw_fd(), write: write.as_raw_fd() };
    let (leader, exec) = start_leader(prepared.behind(gate), pipe);
    if let Err(error) = crate::isolation::take_own_view() {
        return Ok((leader, unexecuted(Stage::Isolation, &error)));
    }
    rustix::io::write(&write, b"1")?;
    Ok((leader, exec))
}

fn unexecuted(stage: Stage, error: &std::io::Error) -> Exec {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Exec::Failed(Unexecuted { stage, errno })
}

/// Closes all but what the start needs and the socket; 0-2 become /dev/null, so that the numbers
/// stay taken and no stream of the guardian is held.
fn keep_only(descriptors: &ChildDescriptors, socket: &OwnedFd) -> std::io::Result<()> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    for place in 0..3 {
        raw::duplicate(null.as_raw_fd(), place, false)?;
    }
    let mut kept: Vec<u32> = descriptors
        .streams
        .iter()
        .chain([&descriptors.folder, socket, &null])
        .chain(&descriptors.fence)
        .map(|fd| fd.as_raw_fd().unsigned_abs())
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for number in kept {
        if number > first {
            raw::close_range(first, number - 1)?;
        }
        first = first.max(number + 1);
    }
    raw::close_range(first, u32::MAX)
}
