//! From clone to exec. Between them nothing allocates, no lock is taken and nothing of libc is
//! called: all memory is ready before, and may be the parent's, beside whom the child runs.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use procd_core::LeaderEnd;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::image::{ChildLimits, Image};
use crate::message::Stage;
use crate::raw::{self, Executable, Life};
use crate::wait::{self, Look};

/// Where the child keeps its end of the exec pipe: the first number behind the streams.
const REPORT_FD: RawFd = 3;
/// Where it keeps its fence, behind that.
const FENCE_FD: RawFd = 4;
/// Above everything that is placed by number.
const ASIDE_FD: RawFd = 8;
/// The exit code of a child that could not exec. Nobody sees it: the pipe tells more.
const UNEXECUTED: u8 = 127;
/// Bytes of a report: the stage, then the errno.
const REPORT_BYTES: usize = 5;

/// The descriptors of a start, all numbered 3 or higher in their holder.
#[derive(Debug)]
pub(crate) struct ChildDescriptors {
    pub(crate) folder: OwnedFd,
    pub(crate) streams: [OwnedFd; 3],
    /// What it is to be held to.
    pub(crate) fence: Option<OwnedFd>,
}

impl ChildDescriptors {
    fn numbers(&self) -> Numbers {
        Numbers {
            folder: self.folder.as_raw_fd(),
            streams: self.streams.each_ref().map(AsRawFd::as_raw_fd),
            fence: self.fence.as_ref().map(AsRawFd::as_raw_fd),
        }
    }
}

/// The same by their numbers, as the child has them too.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    folder: RawFd,
    streams: [RawFd; 3],
    fence: Option<RawFd>,
}

/// A child ready to be: what it needs, in memory that was allocated before the clone.
#[derive(Debug)]
pub(crate) struct Prepared {
    executable: Executable,
    oom_score_adj: Option<Vec<u8>>,
    descriptors: Numbers,
    /// Where it tells why it could not exec.
    report: RawFd,
    /// The parent whose end ends the child; `None` = none does.
    bound_to: Option<Pid>,
    /// Of an isolated one.
    gate: Option<Gate>,
}

/// A pipe on which an init says that it is ready for its command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) read: RawFd,
    pub(crate) write: RawFd,
}

/// Why a child did not exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unexecuted {
    pub(crate) stage: Stage,
    pub(crate) errno: i32,
}

/// What the exec pipe says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecNews {
    /// Nothing yet.
    Pending,
    /// The write end closed: the exec succeeded, or the child died before it.
    Closed,
    /// It failed.
    Failed(Unexecuted),
}

impl Prepared {
    /// - `oom_score_adj`: the value if the image names none.
    /// - `descriptors`, `report`: open until the clone; the child has its own then.
    pub(crate) fn new(
        image: Image,
        descriptors: &ChildDescriptors,
        report: &OwnedFd,
        oom_score_adj: Option<i32>,
        bound_to: Option<Pid>,
    ) -> Self {
        let score = image.options.oom_score_adj.or(oom_score_adj);
        Self {
            executable: Executable::new(image),
            oom_score_adj: score.map(|score| score.to_string().into_bytes()),
            descriptors: descriptors.numbers(),
            report: report.as_raw_fd(),
            bound_to,
            gate: None,
        }
    }

    /// The child of an init waits for it, and takes mounts of its own.
    pub(crate) fn behind(self, gate: Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Whether the child can share its parent's memory: the kernel gives one OOM score to all who
    /// share it, and kills them all where one of them is out of memory. One behind a gate takes too
    /// long.
    pub(crate) fn may_share_memory(&self) -> bool {
        self.gate.is_none()
            && self.oom_score_adj.is_none()
            && !self.executable.image().options.limits.group_memory
    }

    fn set_up(&self) -> Result<(), Unexecuted> {
        let at = |stage: Stage| {
            move |error: io::Error| Unexecuted { stage, errno: error.raw_os_error().unwrap_or(0) }
        };
        let setup = at(Stage::Setup);
        if let Some(Gate { read, write }) = self.gate {
            raw::close_range(write.unsigned_abs(), write.unsigned_abs()).map_err(setup)?;
            if !raw::read_byte(read) {
                raw::exit_now(UNEXECUTED.into());
            }
        }
        // Descriptors first, so that a failure can be told from its fixed place.
        self.place_descriptors().map_err(setup)?;
        if self.gate.is_some() {
            crate::isolation::take_own_view().map_err(at(Stage::Isolation))?;
        }
        raw::reset_signals().map_err(setup)?;
        rustix::process::setsid().map_err(io::Error::from).map_err(setup)?;
        if self.executable.image().options.terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())
                .map_err(io::Error::from)
                .map_err(setup)?;
        }
        self.set_limits().map_err(setup)?;
        if let Some(parent) = self.bound_to {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(io::Error::from)
                .map_err(setup)?;
            // It may have died before the mark was set; then nobody is left to be told.
            if rustix::process::getppid() != Some(parent) {
                raw::exit_now(UNEXECUTED.into());
            }
        }
        // Last: it would forbid some of the above.
        if self.descriptors.fence.is_some() {
            raw::landlock_restrict(FENCE_FD).map_err(at(Stage::Fence))?;
        }
        Ok(())
    }

    /// The streams to 0-2, the folder entered, the report to 3, a fence to 4, everything else
    /// closed.
    fn place_descriptors(&self) -> io::Result<()> {
        for (stream, place) in self.descriptors.streams.into_iter().zip(0..) {
            raw::duplicate(stream, place, false)?;
        }
        let entered = raw::enter_folder(self.descriptors.folder);
        // Aside first: the report's place may be where it is now.
        let aside = self.descriptors.fence.map(|fence| raw::duplicate_above(fence, ASIDE_FD));
        raw::duplicate(self.report, REPORT_FD, true)?;
        let mut last = REPORT_FD;
        if let Some(aside) = aside {
            raw::duplicate(aside?, FENCE_FD, true)?;
            last = FENCE_FD;
        }
        raw::close_range(last.unsigned_abs() + 1, u32::MAX)?;
        if let Err(error) = entered {
            let [a, b, c, d] = error.raw_os_error().unwrap_or(0).to_le_bytes();
            let _told = raw::write(REPORT_FD, &[Stage::Folder as u8, a, b, c, d]);
            raw::exit_now(UNEXECUTED.into());
        }
        Ok(())
    }

    fn set_limits(&self) -> io::Result<()> {
        let options = &self.executable.image().options;
        let _previous = rustix::process::umask(rustix::fs::Mode::from_raw_mode(options.umask));
        if let Some(soft) = options.open_files_soft {
            let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
            let soft = hard.map_or(soft, |hard| soft.min(hard));
            let limit = Rlimit { current: Some(soft), maximum: hard };
            rustix::process::setrlimit(Resource::Nofile, limit)?;
        }
        if let Some(nice) = options.nice {
            rustix::process::setpriority_process(None, nice)?;
        }
        if let Some(text) = &self.oom_score_adj {
            // Refused when lowered without the right to; the child then keeps what it has.
            if let Ok(file) = raw::open_to_write(c"/proc/self/oom_score_adj") {
                let _set = raw::write(file, text);
                raw::close_range(file.unsigned_abs(), file.unsigned_abs())?;
            }
        }
        set_resource_limits(options.limits)?;
        if options.no_new_privileges {
            rustix::thread::set_no_new_privs(true)?;
        }
        Ok(())
    }

    /// As execvp: what is not there is passed over, what is forbidden is remembered, anything else
    /// is final. A file that is no program is not given to a shell.
    fn exec(&self) -> c_int {
        let mut answer = libc::ENOENT;
        for path in &self.executable.image().candidates {
            match self.executable.exec(path) {
                libc::EACCES => answer = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                errno => return errno,
            }
        }
        answer
    }
}

impl Life for Prepared {
    /// The child's whole life after the clone.
    fn live(&self) -> ! {
        let failure = match self.set_up() {
            Ok(()) => Unexecuted { stage: Stage::Exec, errno: self.exec() },
            Err(failure) => failure,
        };
        let [a, b, c, d] = failure.errno.to_le_bytes();
        // If even that cannot be said, the parent sees a child that died before its exec.
        let _told = raw::write(REPORT_FD, &[failure.stage as u8, a, b, c, d]);
        raw::exit_now(UNEXECUTED.into())
    }
}

/// Soft and hard, so that what is set cannot be raised again; never above what there was.
/// Async-signal-safe.
fn set_resource_limits(limits: ChildLimits) -> io::Result<()> {
    let ChildLimits { open_files, core_bytes, cpu_seconds, address_space_bytes, group_memory: _ } =
        limits;
    // A second between the two, so that SIGXCPU can be seen.
    let cpu = cpu_seconds.map(|seconds| (seconds, seconds.saturating_add(1)));
    let same = |limit: Option<u64>| limit.map(|limit| (limit, limit));
    let all = [
        (Resource::Nofile, same(open_files)),
        (Resource::Core, same(core_bytes)),
        (Resource::Cpu, cpu),
        (Resource::As, same(address_space_bytes)),
    ];
    for (resource, wanted) in all {
        let Some((soft, hard)) = wanted else { continue };
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
        rustix::process::setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Reads the exec pipe, which does not block.
pub(crate) fn exec_news(pipe: &OwnedFd) -> ExecNews {
    let mut bytes = [0; REPORT_BYTES];
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut bytes)) {
        Ok(0) => ExecNews::Closed,
        Ok(_) => {
            let [stage, a, b, c, d] = bytes;
            let stage = Stage::from_number(stage).unwrap_or(Stage::Setup);
            ExecNews::Failed(Unexecuted { stage, errno: i32::from_le_bytes([a, b, c, d]) })
        }
        Err(rustix::io::Errno::AGAIN) => ExecNews::Pending,
        Err(_) => ExecNews::Closed,
    }
}

/// A pipe that closes by itself at an exec; the reading end does not block.
pub(crate) fn exec_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// What became of a child whose exec pipe has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The exec succeeded, whatever came after.
    Executed,
    /// It died before its exec.
    DiedEarly,
}

/// Judges a closed pipe: the kernel keeps in an unreaped child whether it ever did an exec. One that
/// has ended by itself did, since without an exec it says why, or ends with [`UNEXECUTED`].
pub(crate) fn judge_closed(child: Pid) -> Closed {
    if matches!(wait::look(child), Look::Ended(LeaderEnd::Code(code)) if code != UNEXECUTED) {
        return Closed::Executed;
    }
    match crate::procfs::stat(child) {
        Some(stat) if stat.never_executed => Closed::DiedEarly,
        Some(_) | None => Closed::Executed,
    }
}
