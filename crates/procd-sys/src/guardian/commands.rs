//! The guardian's table of commands: start, look, signal, reap.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use crate::channel;
use crate::child::{self, ChildDescriptors, Closed, ExecNews, Prepared, Unexecuted};
use crate::image::Image;
use crate::isolation::{self, Isolated, Isolation};
use crate::message::{Hold, Report, Stage, Tag};
use crate::raw::{self, Forked};
use crate::shim::{self, Ward};
use crate::wait::{self, Look};

/// Reports on their way to the daemon, some with a pidfd.
pub(super) struct Reports(pub(super) VecDeque<(Report, Option<OwnedFd>)>);

impl Reports {
    pub(super) fn add(&mut self, report: Report, descriptor: Option<OwnedFd>) {
        self.0.push_back((report, descriptor));
    }
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
    Starting(OwnedFd),
    /// It said why it could not exec; it has not ended yet.
    Failing(Unexecuted),
    /// Past its exec, or a shim.
    Running,
    /// Ended and reported, not reaped: its numbers stay its own.
    Ended,
}

struct Command {
    pid: Pid,
    shim: bool,
    /// The daemon wants to look at it after its end.
    is_kept: bool,
    phase: Phase,
}

pub(super) struct Commands {
    by_key: HashMap<u64, Command>,
    by_pid: HashMap<Pid, u64>,
    /// Shims that died: told once their orphans are dead.
    lost_shims: Vec<u64>,
    oom_score_adj: Option<i32>,
}

impl Commands {
    pub(super) fn new(oom_score_adj: Option<i32>) -> Self {
        Self {
            by_key: HashMap::new(),
            by_pid: HashMap::new(),
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
        self.by_key.values().filter_map(|command| match &command.phase {
            Phase::Starting(pipe) => Some(pipe),
            Phase::Failing(_) | Phase::Running | Phase::Ended => None,
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
        let descriptors = ChildDescriptors { folder, streams: [stdin, stdout, stderr], fence };
        let started = match hold {
            Hold::Leaf => self.clone_command(&image, &descriptors, &place),
            Hold::Shim => self.fork_shim(&image, descriptors, place),
            Hold::Init { isolation, leaf: _ } => {
                self.clone_init(&image, descriptors, place, isolation, places.next())
            }
        };
        let (pid, pidfd, phase) = started.map_err(|error| Refused {
            stage: Stage::Clone,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        self.by_pid.insert(pid, key);
        // What it used can be read as long as it is not reaped.
        let is_kept = image.options.limits.cpu_seconds.is_some();
        self.by_key.insert(key, Command { pid, shim: hold.is_shim(), is_kept, phase });
        let pid = pid.as_raw_nonzero().get();
        reports.add(Report::Started { key, pid }, Some(pidfd));
        Ok(())
    }

    fn clone_command(
        &self,
        image: &Image,
        descriptors: &ChildDescriptors,
        leaf: &OwnedFd,
    ) -> std::io::Result<(Pid, OwnedFd, Phase)> {
        let own = rustix::process::getpid();
        let prepared = Prepared::new(image, descriptors, self.oom_score_adj, Some(own));
        let (read, write) = child::exec_pipe()?;
        match raw::clone_into(leaf.as_fd())? {
            Forked::Child => prepared.run(std::os::fd::AsRawFd::as_raw_fd(&write)),
            Forked::Parent((pid, pidfd)) => Ok((pid, pidfd, Phase::Starting(read))),
        }
    }

    fn fork_shim(
        &self,
        image: &Image,
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
        image: &Image,
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
        for (&key, command) in &mut self.by_key {
            let Phase::Starting(pipe) = &command.phase else { continue };
            match child::exec_news(pipe) {
                ExecNews::Pending => {}
                ExecNews::Failed(why) => command.phase = Phase::Failing(why),
                ExecNews::Closed => {
                    command.phase = Phase::Running;
                    let report = match child::judge_closed(command.pid) {
                        Closed::Executed => Report::Executed { key },
                        Closed::DiedEarly => Report::DiedEarly { key },
                    };
                    reports.add(report, None);
                }
            }
        }
    }

    /// Looks at every command, and tells each end once. Reaped here: failed starts, shims, and
    /// leaders whose leaf is seen to be empty, which is told before their end. Any other leader is
    /// reaped when the daemon asks: until its tree is empty its numbers stay its own.
    pub(super) fn look(&mut self, payload: Option<&OwnedFd>, reports: &mut Reports) {
        let mut gone = Vec::new();
        for (&key, command) in &mut self.by_key {
            match (&command.phase, command.shim) {
                // The pipe speaks first: it closes before the end can be seen, so next time.
                (Phase::Starting(_) | Phase::Ended, _) => {}
                (Phase::Failing(why), _) => {
                    if wait::reap(command.pid) != Look::Alive {
                        let Unexecuted { stage, errno } = *why;
                        reports.add(Report::Failed { key, stage, errno }, None);
                        gone.push(key);
                    }
                }
                (Phase::Running, true) => match wait::reap(command.pid) {
                    Look::Alive => {}
                    Look::Ended(procd_core::LeaderEnd::Code(0)) => {
                        reports.add(Report::ShimEnded { key, clean: true }, None);
                        gone.push(key);
                    }
                    Look::Ended(_) | Look::NoChild => {
                        self.lost_shims.push(key);
                        gone.push(key);
                    }
                },
                (Phase::Running, false) => {
                    if let Look::Ended(end) = wait::look(command.pid) {
                        command.phase = Phase::Ended;
                        let is_last = |payload| crate::cgroup::is_leaf_empty(payload, key);
                        if !command.is_kept
                            && payload.is_some_and(is_last)
                            && wait::reap(command.pid) != Look::Alive
                        {
                            reports.add(Report::Reaped { key }, None);
                            gone.push(key);
                        }
                        reports.add(Report::Ended { key, end, leftovers: 0 }, None);
                    }
                }
            }
        }
        for key in gone {
            self.forget(key);
        }
    }

    /// No orphan is alive: what fell to us from a dead shim is dead too.
    pub(super) fn report_lost_shims(&mut self, reports: &mut Reports) {
        for key in self.lost_shims.drain(..) {
            reports.add(Report::ShimEnded { key, clean: false }, None);
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
