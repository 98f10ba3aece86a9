//! A start as the supervisor takes it and a runner prepares it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use procd_core::lease::ClaimKind;
use procd_core::{OnLeaderExit, OriginId};
use procd_store::record::TtySize;

/// A start as asked: checked in form, free of the wire.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the request by itself, as on the wire"
)]
pub struct StartRequest {
    /// What runs.
    pub program: Program,
    /// The working folder as asked; absent = the session's first workspace, else HOME.
    pub cwd: Option<PathBuf>,
    /// Variables to set (a value) or to remove (none), in the order given.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// The child's umask; absent = the configured one.
    pub umask: Option<u32>,
    /// Where stdin comes from.
    pub stdin: StdinMode,
    /// A terminal of this size in place of pipes.
    pub tty: Option<TtySize>,
    /// One pipe for both streams.
    pub merge_streams: bool,
    /// The time from the spawn to the deadline.
    pub timeout: Option<Duration>,
    /// What it reserves; `None` = the ceilings of the configuration.
    pub memory_bytes: Option<u64>,
    /// The same for the spool.
    pub spool_bytes: Option<u64>,
    /// What its client calls it.
    pub label: Option<String>,
    /// The tool execution it comes from; absent = minted.
    pub origin: Option<OriginId>,
    /// Whether `backgrounded` is published in place of `started`.
    pub background: bool,
    /// What becomes of descendants that outlive the leader.
    pub on_leader_exit: OnLeaderExit,
    /// How long it may wait for room; zero = not at all.
    pub queue_timeout: Duration,
    /// Makes it idempotent.
    pub key: Option<AskedKey>,
    /// The claim on a workspace.
    pub claim: Option<AskedClaim>,
    /// The session's declared workspaces, which the working folder has to lie in.
    pub workspaces: Vec<PathBuf>,
    /// Whether it gets a PID namespace of its own.
    pub isolate: bool,
    /// Whether its processes may connect to this daemon, as owners at most.
    pub allow_client: bool,
    /// What runs a text; for [`Program::Line`] only.
    pub shell: AskedShell,
    /// Limits on its resources.
    pub limits: AskedLimits,
    /// Whether the kernel is to hold it to its claim; never without one.
    pub fence: Option<AskedFence>,
    /// Whether the guard of the session looks at its words.
    pub guard: Guard,
}

/// The guard of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Guard {
    /// Every word passes.
    #[default]
    Off,
    /// Words are looked at.
    On,
}

/// The shell of a text as asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedShell {
    /// A path, or a name to be found in the PATH; absent = the configured one.
    pub program: Option<OsString>,
    /// Whether it is a login shell.
    pub login: bool,
}

/// Limits as asked; absent = none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AskedLimits {
    /// Bytes of memory of the tree.
    pub memory_bytes_max: Option<u64>,
    /// Cores of the tree.
    pub cpu_max: Option<f64>,
    /// Processes of the tree.
    pub pids_max: Option<u64>,
    /// Open files of each process.
    pub open_files_max: Option<u64>,
    /// Bytes of a core; 0 = none.
    pub core_bytes_max: Option<u64>,
    /// Seconds of CPU of each process.
    pub cpu_seconds_max: Option<u64>,
    /// Bytes of address space of each process.
    pub address_space_bytes_max: Option<u64>,
    /// Whether one that cannot be held refuses the start.
    pub are_required: bool,
    /// Whether what nothing else holds is sampled.
    pub fallback_watchdog: bool,
}

/// How the kernel is to hold a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedFence {
    /// What alone may be read; absent = everything.
    pub paths_read: Option<Vec<PathBuf>>,
}

/// The key that makes a start idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedKey {
    /// As given.
    pub key: String,
    /// SHA-256 of the request's body.
    pub body: [u8; 32],
}

/// A claim on a workspace as asked, its paths not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedClaim {
    /// What for.
    pub kind: ClaimKind,
    /// The workspace, absolute.
    pub root: PathBuf,
    /// Paths, absolute or below the root; none = all of it.
    pub paths: Vec<PathBuf>,
    /// Where its fields are in the request, such as `workspace.`.
    pub prefix: &'static str,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// Program and arguments, without a shell. Never empty.
    Argv(Vec<OsString>),
    /// A text for a shell's `-c`, byte for byte.
    Line(OsString),
}

/// Where stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinMode {
    /// A pipe that clients write to.
    Pipe,
    /// /dev/null.
    Null,
}
