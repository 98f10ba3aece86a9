//! The guardian's table of commands: start, look, signal, reap.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use crate::bare::Stack;
use crate::channel;
use crate::child::{self, ChildDescriptors, Closed, ExecNews, Prepared, Unexecuted};
use crate::image::Image;
use crate::isolation::{self, Isolated, Isolation};
use crate::message::{Hold, MESSAGE_BYTES_MAX, Report, Stage, Tag};
use crate::raw::{self, Forked, Lent};
use crate::shim::{self, Ward};
use crate::wait::{self, Look};

/// Stacks kept for the next starts, a count.
const STACKS_MAX: usize = 4;

/// Reports on their way to the daemon, some with a pidfd.
pub(super) struct Reports(pub(super) VecDeque<(Report, Option<OwnedFd>)>);

impl Reports {
    pub(super) fn add(&mut self, report: Report, descriptor: Option<OwnedFd>) {
        self.0.push_back((report, descriptor));
    }

    /// The next datagram: as many as fit, each of which would wake the daemon by itself. `None` =
    /// nothing waits.
    pub(super) fn datagram(&self) -> Option<Datagram<'_>> {
        let (first, descriptor) = self.0.front()?;
        let mut datagram =
            Datagram { bytes: first.encode(), descriptor: descriptor.as_ref(), count: 1 };
        for (report, descriptor) in self.0.iter().skip(1) {
            let bytes = report.encode();
            if descriptor.is_some() || datagram.bytes.len() + bytes.len() > MESSAGE_BYTES_MAX {
                break;
            }
            datagram.bytes.extend_from_slice(&bytes);
            datagram.count += 1;
        }
        Some(datagram)
    }
}

/// Reports that go together.
pub(super) struct Datagram<'a> {
    pub(super) bytes: Vec<u8>,
    /// Of the first.
    pub(super) descriptor: Option<&'a OwnedFd>,
    /// How many they are.
    pub(super) count: usize,
}

/// Why a start did not come to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Where.
    pub stage: Stage,
    /// Why.
    pub errno: i32,
}

/// How far a child has come.
enum Phase {
    /// Tier 1: between clone and exec; the pipe tells.
    Starting { pipe: OwnedFd, lent: Option<Loan> },
    /// It said why it could not exec; it has not ended yet.
    Failing { why: Unexecuted, lent: Option<Loan> },
    /// Past its exec, or a shim.
    Running,
    /// Ended and reported, not reaped: its numbers stay its own.
    Ended,
}

/// What a child uses of our memory until its exec.
type Loan = Lent<Prepared>;

struct Command {
    pid: Pid,
    shim: bool,
    /// The daemon wants to look at it after its end.
    is_kept: bool,
    phase: Phase,
}

impl Command {
    /// `true` = it is reaped.
    fn look_at_leader(
        &mut self,
        key: u64,
        payload: Option<&OwnedFd>,
        reports: &mut Reports,
    ) -> bool {
        let Look::Ended(end) = wait::look(self.pid) else { return false };
        self.phase = Phase::Ended;
        let is_last = |payload| crate::cgroup::is_leaf_empty(payload, key);
        let is_gone =
            !self.is_kept && payload.is_some_and(is_last) && wait::reap(self.pid) != Look::Alive;
        if is_gone {
            reports.add(Report::Reaped { key }, None);
        }
        reports.add(Report::Ended { key, end, leftovers: 0 }, None);
        is_gone
    }
}

pub(super) struct Commands {
    by_key: HashMap<u64, Command>,
    by_pid: HashMap<Pid, u64>,
    /// Those between clone and exec.
    starting: Vec<u64>,
    /// Of children that share our memory until their exec, for the next ones.
    stacks: Vec<Stack>,
    /// What to tell of shims that died, once their orphans are dead.
    lost_shims: Vec<Report>,
    oom_score_adj: Option<i32>,
}

impl Commands {
    pub(super) fn new(oom_score_adj: Option<i32>) -> Self {
        Self {
            by_key: HashMap::new(),
            by_pid: HashMap::new(),
            starting: Vec::new(),
            stacks: Vec::new(),
            lost_shims: Vec::new(),
            oom_score_adj,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn knows(&self, pid: Pid) -> bool {
        self.by_pid.contains_key(&pid)
    }

    pub(super) fn exec_pipes(&self) -> impl Iterator<Item = &OwnedFd> {
        let commands = self.starting.iter().filter_map(|key| self.by_key.get(key));
        commands.filter_map(|command| match &command.phase {
            Phase::Starting { pipe, .. } => Some(pipe),
            Phase::Failing { .. } | Phase::Running | Phase::Ended => None,
        })
    }

    /// Descriptors: body, folder, three streams, then socket, leaf or both, then a fence if the image
    /// says so.
    pub(super) fn start(
        &mut self,
        key: u64,
        hold: Hold,
        descriptors: Vec<OwnedFd>,
        reports: &mut Reports,
    ) -> Result<(), Refused> {
        let mut places = descriptors.into_iter();
        let (Some(body), Some(folder), Some(stdin), Some(stdout), Some(stderr), Some(place)) = (
            places.next(),
            places.next(),
            places.next(),
            places.next(),
            places.next(),
            places.next(),
        ) else {
            return Err(Refused { stage: Stage::Body, errno: libc::EBADF });
        };
        let image = channel::read_body(body)
            .ok()
            .and_then(|bytes| Image::decode(&bytes).ok())
            .ok_or(Refused { stage: Stage::Body, errno: libc::EBADMSG })?;
        // Never without the fence that was meant for it.
        let fence = if image.options.fenced { places.next_back() } else { None };
        if image.options.fenced != fence.is_some() {
            return Err(Refused { stage: Stage::Fence, errno: libc::EBADF });
        }
        // What it used can be read as long as it is not reaped.
        let is_kept = image.options.limits.cpu_seconds.is_some();
        let descriptors = ChildDescriptors { folder, streams: [stdin, stdout, stderr], fence };
        let started = match hold {
            Hold::Leaf => self.clone_command(image, &descriptors, &place),
            Hold::Shim => self.fork_shim(image, descriptors, place),
            Hold::Init { isolation, leaf: _ } => {
                self.clone_init(image, descriptors, place, isolation, places.next())
            }
        };
        let (pid, pidfd, phase) = started.map_err(|error| Refused {
            stage: Stage::Clone,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        self.by_pid.insert(pid, key);
        if matches!(phase, Phase::Starting { .. }) {
            self.starting.push(key);
        }
        self.by_key.insert(key, Command { pid, shim: hold.is_shim(), is_kept, phase });
        let pid = pid.as_raw_nonzero().get();
        reports.add(Report::Started { key, pid }, Some(pidfd));
        Ok(())
    }

    /// A child that shares our memory needs nothing of it copied, and leaves nothing to be cleared
    /// away; we go on beside it, since an exec can take as long as it likes.
    fn clone_command(
        &mut self,
        image: Image,
        descriptors: &ChildDescriptors,
        leaf: &OwnedFd,
    ) -> std::io::Result<(Pid, OwnedFd, Phase)> {
        let own = rustix::process::getpid();
        let (pipe, report) = child::exec_pipe()?;
        let prepared = Prepared::new(image, descriptors, &report, self.oom_score_adj, Some(own));
        let stack = if Stack::IS_OF_USE && prepared.may_share_memory() {
            Some(self.stacks.pop().map_or_else(Stack::new, Ok)?)
        } else {
            None
        };
        let (pid, pidfd, lent) = raw::live_in(leaf.as_fd(), Box::new(prepared), stack)?;
        Ok((pid, pidfd, Phase::Starting { pipe, lent }))
    }

    /// Nobody uses it any more.
    fn take_back(stacks: &mut Vec<Stack>, lent: Option<Loan>) {
        if stacks.len() < STACKS_MAX {
            stacks.extend(lent.map(Lent::take_back));
        }
    }

    fn fork_shim(
        &self,
        image: Image,
        descriptors: ChildDescriptors,
        socket: OwnedFd,
    ) -> std::io::Result<(Pid, OwnedFd, Phase)> {
        match raw::fork()? {
            Forked::Child => {
                let oom_score_adj = self.oom_score_adj;
                shim::run(Ward { image, descriptors, socket, oom_score_adj, isolated: None })
            }
            Forked::Parent(pid) => {
                // Ours and not reaped, so the number is its own.
                let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                Ok((pid, pidfd, Phase::Running))
            }
        }
    }

    fn clone_init(
        &self,
        image: Image,
        descriptors: ChildDescriptors,
        socket: OwnedFd,
        isolation: Isolation,
        leaf: Option<OwnedFd>,
    ) -> std::io::Result<(Pid, OwnedFd, Phase)> {
        let isolated = Some(Isolated::new(isolation));
        // This process has one thread and so no lock that could be held: the child may allocate.
        match isolation::clone_init(isolation, leaf.as_ref().map(OwnedFd::as_fd))? {
            Forked::Child => {
                let oom_score_adj = self.oom_score_adj;
                shim::run(Ward { image, descriptors, socket, oom_score_adj, isolated })
            }
            Forked::Parent((pid, pidfd)) => Ok((pid, pidfd, Phase::Running)),
        }
    }

    pub(super) fn read_exec_pipes(&mut self, reports: &mut Reports) {
        let Self { by_key, starting, stacks, .. } = self;
        starting.retain(|&key| {
            let Some(command) = by_key.get_mut(&key) else { return false };
            let Phase::Starting { pipe, lent } = &mut command.phase else { return false };
            match child::exec_news(pipe) {
                ExecNews::Pending => return true,
                // It still has to end, on its stack.
                ExecNews::Failed(why) => {
                    command.phase = Phase::Failing { why, lent: lent.take() };
                }
                // Its memory is another, or none at all, before the pipe closes.
                ExecNews::Closed => {
                    Self::take_back(stacks, lent.take());
                    command.phase = Phase::Running;
                    let report = match child::judge_closed(command.pid) {
                        Closed::Executed => Report::Executed { key },
                        Closed::DiedEarly => Report::DiedEarly { key },
                    };
                    reports.add(report, None);
                }
            }
            false
        });
    }

    /// Looks who has ended, and tells each end once. The usual ends, which are reaped at once, are
    /// found one by one, however many others run; else every command is looked at. `true` = a
    /// child that is no command may have ended too.
    pub(super) fn look(&mut self, payload: Option<&OwnedFd>, reports: &mut Reports) -> bool {
        while let Some(pid) = wait::find_ended() {
            let key = self.by_pid.get(&pid).copied();
            if !key.is_some_and(|key| self.look_at(key, payload, reports)) {
                for key in self.by_key.keys().copied().collect::<Vec<_>>() {
                    self.look_at(key, payload, reports);
                }
                return true;
            }
        }
        false
    }

    /// Reaped here: failed starts, shims, and leaders whose leaf is seen to be empty, which is told
    /// before their end. Any other leader is reaped when the daemon asks: until its tree is empty
    /// its numbers stay its own. `true` = it is reaped.
    fn look_at(&mut self, key: u64, payload: Option<&OwnedFd>, reports: &mut Reports) -> bool {
        let Some(command) = self.by_key.get_mut(&key) else { return false };
        let is_gone = match (&mut command.phase, command.shim) {
            // The pipe speaks first: it closes before the end can be seen, so next time.
            (Phase::Starting { .. } | Phase::Ended, _) => false,
            (Phase::Failing { why, lent }, _) => {
                let is_gone = wait::reap(command.pid) != Look::Alive;
                if is_gone {
                    let Unexecuted { stage, errno } = *why;
                    Self::take_back(&mut self.stacks, lent.take());
                    reports.add(Report::Failed { key, stage, errno }, None);
                }
                is_gone
            }
            (Phase::Running, true) => match wait::reap(command.pid) {
                Look::Alive => false,
                Look::Ended(procd_core::LeaderEnd::Code(0)) => {
                    reports.add(Report::ShimEnded { key, clean: true }, None);
                    true
                }
                // It could not begin: its command has not, either.
                Look::Ended(end) if end == shim::BROKEN => {
                    self.lost_shims.push(Report::Failed { key, stage: Stage::Body, errno: 0 });
                    true
                }
                Look::Ended(_) | Look::NoChild => {
                    self.lost_shims.push(Report::ShimEnded { key, clean: false });
                    true
                }
            },
            (Phase::Running, false) => command.look_at_leader(key, payload, reports),
        };
        if is_gone {
            self.forget(key);
        }
        is_gone
    }

    /// Whether trees have lost their shims and are not known to be dead.
    pub(super) fn has_lost_shims(&self) -> bool {
        !self.lost_shims.is_empty()
    }

    /// No orphan is alive: what fell to us from a dead shim is dead too.
    pub(super) fn report_lost_shims(&mut self, reports: &mut Reports) {
        for report in self.lost_shims.drain(..) {
            reports.add(report, None);
        }
    }

    /// Looks, then signals a leader that is ours and not reaped.
    pub(super) fn signal(&self, key: u64, signal: i32, tag: Tag, reports: &mut Reports) {
        let none = Report::Reached { key, tag, alive: false, errno: 0, refused: 0, delivered: 0 };
        let report = match self.by_key.get(&key) {
            Some(command) if wait::look(command.pid) == Look::Alive => {
                let sent = raw::kill(command.pid, false, signal);
                let errno = sent.err().and_then(|error| error.raw_os_error()).unwrap_or(0);
                let (refused, delivered) = (u32::from(errno != 0), u32::from(errno == 0));
                Report::Reached { key, tag, alive: true, errno, refused, delivered }
            }
            Some(_) | None => none,
        };
        reports.add(report, None);
    }

    /// Reaps a leader that has ended; one that lives is not touched.
    pub(super) fn reap(&mut self, key: u64, reports: &mut Reports) {
        if let Some(command) = self.by_key.get(&key) {
            if wait::reap(command.pid) == Look::Alive {
                return;
            }
            self.forget(key);
        }
        reports.add(Report::Reaped { key }, None);
    }

    /// After everything that ended was reaped without asking who it was.
    pub(super) fn forget_reaped(&mut self) {
        let gone: Vec<u64> = self
            .by_key
            .iter()
            .filter(|(_, command)| wait::look(command.pid) == Look::NoChild)
            .map(|(&key, _)| key)
            .collect();
        for key in gone {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: u64) {
        if let Some(command) = self.by_key.remove(&key) {
            self.by_pid.remove(&command.pid);
        }
    }
}
