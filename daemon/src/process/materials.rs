//! What a spawn takes from the system: pipes, a body, a leaf or a death socket.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use procd_store::record::TtySize;
use procd_sys::cgroup::controllers::GroupLimits;
use procd_sys::cgroup::{Leaf, Payload};
use procd_sys::containment::Containment;
use procd_sys::isolation::Isolation;
use procd_sys::terminal::{Size, Terminal};
use procd_sys::{channel, message};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::descriptors;
use super::failure::system_or;
use super::fence::Scratch;
use super::plan::Plan;
use crate::drain::Streams;
use crate::supervisor::runner::{SpawnCause, SpawnFailure, StdinMode};

/// Bytes of a body that is written on the control thread, at most.
const QUICK_BODY_BYTES: usize = 64 * 1024;

/// Whether the taking needs nothing but pipes, a body and at most the making of a leaf: that waits
/// for the control groups' lock as the removal of each leaf does.
pub(super) fn are_quick(plan: &Plan) -> bool {
    plan.tty.is_none()
        && plan.isolation.is_none()
        && plan.fencing.is_none()
        && plan.group == GroupLimits::default()
        && plan.image.bytes() <= QUICK_BODY_BYTES
}

/// What a tree is held by, on our side.
#[derive(Debug)]
pub(super) enum Hold {
    /// Tier 1.
    Leaf(Arc<Leaf>),
    /// Tier 2: our end of the shim's death socket.
    Shim(OwnedFd),
    /// Tier 3: that of the init, and in tier 1 its leaf.
    Init { isolation: Isolation, socket: OwnedFd, leaf: Option<Arc<Leaf>> },
}

impl Hold {
    /// As the guardian is told.
    pub(super) const fn kind(&self) -> message::Hold {
        match self {
            Self::Leaf(_) => message::Hold::Leaf,
            Self::Shim(_) => message::Hold::Shim,
            Self::Init { isolation, leaf, .. } => {
                message::Hold::Init { isolation: *isolation, leaf: leaf.is_some() }
            }
        }
    }

    pub(super) const fn leaf(&self) -> Option<&Arc<Leaf>> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Shim(_) => None,
            Self::Init { leaf, .. } => leaf.as_ref(),
        }
    }
}

/// Everything of one spawn.
#[derive(Debug)]
pub(super) struct Materials {
    /// For the guardian: body, folder, stdin, stdout, stderr, then shim's end, leaf or both, then a
    /// fence.
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) streams: Streams,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) terminal: Option<Arc<Terminal>>,
    pub(super) hold: Hold,
    /// The command's own temporary folder.
    pub(super) scratch: Option<Scratch>,
}

impl Materials {
    /// Takes it. Can wait, unless [`are_quick`]: not for the control thread.
    /// # Errors
    /// What could not be had; nothing is kept then.
    pub(super) fn take(
        plan: Plan,
        containment: &Containment,
        leaf_name: String,
    ) -> Result<Self, SpawnFailure> {
        let folder = plan.folder?;
        let body = plan.image.encode();
        if body.len() as u64 >= channel::BODY_BYTES_MAX {
            return Err(SpawnFailure {
                cause: SpawnCause::ArgumentListTooLong,
                errno: rustix::io::Errno::TOOBIG.raw_os_error(),
            });
        }
        let body = channel::body(&body).map_err(of_system)?;
        let ends = match plan.tty {
            Some(size) => Ends::of_terminal(size, plan.stdin)?,
            None => Ends::of_pipes(plan.stdin, plan.merge_streams).map_err(of_system)?,
        };
        descriptors::leave_reserve(&ends.child).map_err(of_system)?;
        let terminal = plan.tty.and(ends.child.get(1));
        let fencing = plan.fencing.map(|fencing| fencing.complete(terminal)).transpose();
        let (fence, scratch) = fencing.map_err(of_system)?.unzip();
        let (hold, places) = hold(containment, plan.isolation, leaf_name)?;
        if let Some(leaf) = hold.leaf()
            && let Err(error) = leaf.limit(plan.group)
        {
            let failure = of_leaf(&error);
            if let Err(left) = leaf.remove() {
                tracing::warn!(error = %left, "an unused control group is left");
            }
            return Err(failure);
        }
        let [stdin, stdout, stderr] = ends.child;
        let mut descriptors = vec![body, folder, stdin, stdout, stderr];
        descriptors.extend(places);
        descriptors.extend(fence);
        Ok(Self {
            descriptors,
            scratch,
            streams: ends.streams,
            stdin: ends.stdin,
            terminal: ends.terminal,
            hold,
        })
    }
}

/// Both ends of what a command reads and writes.
struct Ends {
    child: [OwnedFd; 3],
    streams: Streams,
    stdin: Option<OwnedFd>,
    terminal: Option<Arc<Terminal>>,
}

impl Ends {
    fn of_pipes(mode: StdinMode, merged: bool) -> io::Result<Self> {
        let (child_stdin, stdin) = stdin(mode)?;
        let (stdout, child_stdout) = output_pipe()?;
        let (stderr, child_stderr) = if merged {
            (None, child_stdout.try_clone()?)
        } else {
            let (ours, theirs) = output_pipe()?;
            (Some(ours), theirs)
        };
        Ok(Self {
            child: [child_stdin, child_stdout, child_stderr],
            streams: Streams { stdout: Some(stdout), stderr, merged, terminal: false },
            stdin,
            terminal: None,
        })
    }

    fn of_terminal(size: TtySize, mode: StdinMode) -> Result<Self, SpawnFailure> {
        let size = Size { rows: size.rows, cols: size.cols };
        let terminal = Terminal::open(size).map_err(|error| of_terminal(&error))?;
        let given = || terminal.for_command().map_err(of_system);
        let child_stdin = match mode {
            StdinMode::Pipe => given()?,
            StdinMode::Null => stdin(mode).map_err(of_system)?.0,
        };
        let child = [child_stdin, given()?, given()?];
        let master = terminal.master().map_err(of_system)?;
        let streams = Streams { stdout: Some(master), stderr: None, merged: true, terminal: true };
        Ok(Self { child, streams, stdin: None, terminal: Some(Arc::new(terminal)) })
    }
}

/// No terminal: whatever the system lacks, that is what cannot be had.
fn of_terminal(error: &io::Error) -> SpawnFailure {
    tracing::error!(%error, "no terminal is to be had");
    SpawnFailure { cause: SpawnCause::Terminal, errno: error.raw_os_error().unwrap_or(0) }
}

/// The child's end and, of a pipe, ours.
fn stdin(mode: StdinMode) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    match mode {
        StdinMode::Pipe => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            // The two ends are different open files: theirs still blocks.
            rustix::io::ioctl_fionbio(&ours, true)?;
            Ok((theirs, Some(ours)))
        }
        StdinMode::Null => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            Ok((rustix::fs::open("/dev/null", flags, Mode::empty())?, None))
        }
    }
}

fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// What holds the tree, and the other ends of it.
fn hold(
    containment: &Containment,
    isolation: Option<Isolation>,
    leaf_name: String,
) -> Result<(Hold, Vec<OwnedFd>), SpawnFailure> {
    let leaf = match containment {
        Containment::Cgroup(payload) => Some(leaf(payload, leaf_name)?),
        Containment::Shim { .. } => None,
        Containment::Unavailable { .. } => {
            tracing::error!("bug: a start without containment");
            return Err(SpawnFailure { cause: SpawnCause::Guardian, errno: 0 });
        }
    };
    let (isolation, leaf) = match (isolation, leaf) {
        (None, Some((leaf, place))) => return Ok((Hold::Leaf(leaf), vec![place])),
        (isolation, leaf) => (isolation, leaf),
    };
    let (socket, theirs) = match channel::pair() {
        Ok(pair) => pair,
        Err(error) => {
            if let Some((leaf, _)) = leaf {
                give_back(&leaf);
            }
            return Err(of_system(error));
        }
    };
    let (leaf, place) = leaf.unzip();
    let places = std::iter::once(theirs).chain(place).collect();
    let hold = match isolation {
        Some(isolation) => Hold::Init { isolation, socket, leaf },
        None => Hold::Shim(socket),
    };
    Ok((hold, places))
}

/// A fresh leaf, and what a clone joins it by.
fn leaf(payload: &Payload, name: String) -> Result<(Arc<Leaf>, OwnedFd), SpawnFailure> {
    let leaf = payload.leaf(name).map_err(|error| of_leaf(&error))?;
    match leaf.folder() {
        Ok(place) => Ok((Arc::new(leaf), place)),
        Err(error) => {
            give_back(&leaf);
            Err(of_system(error))
        }
    }
}

fn give_back(leaf: &Leaf) {
    if let Err(left) = leaf.remove() {
        tracing::warn!(error = %left, "an unused control group is left");
    }
}

fn of_leaf(error: &io::Error) -> SpawnFailure {
    let errno = error.raw_os_error().unwrap_or(0);
    tracing::error!(%error, "a control group could not be made");
    SpawnFailure { cause: system_or(errno, SpawnCause::ControlGroup), errno }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn of_system(error: io::Error) -> SpawnFailure {
    system_failure(&error)
}

/// A failure for want of something of the system's.
pub(super) fn system_failure(error: &io::Error) -> SpawnFailure {
    let errno = error.raw_os_error().unwrap_or(0);
    SpawnFailure { cause: system_cause(errno), errno }
}

/// What a want of the system's means.
pub(super) fn system_cause(errno: i32) -> SpawnCause {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::MFILE | Errno::NFILE => SpawnCause::OutOfDescriptors,
        Errno::NOMEM => SpawnCause::OutOfMemory,
        Errno::TOOBIG => SpawnCause::ArgumentListTooLong,
        _ => SpawnCause::Other,
    }
}
