//! `run` and `start`: what runs, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use uuid::Uuid;

use super::parse::time;

/// What runs, and how.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(crate) struct Launch {
    /// A name to find it again by, at most 128 characters
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// The working folder; absent: the current one
    #[arg(short = 'C', long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable, or pass on one that is always left out; repeatable
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Remove a variable; repeatable
    #[arg(short, long, value_name = "NAME")]
    pub(crate) unset: Vec<String>,
    /// Pass on none of the caller's variables
    #[arg(long)]
    pub(crate) clean_env: bool,
    /// A deadline: the process is stopped when it has run that long (`90`, `10m`, `1h 30m`)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// One pipe for stdout and stderr, so that their order is exact
    #[arg(long)]
    pub(crate) merge_streams: bool,
    /// The memory window for recent output, bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_bytes: Option<u64>,
    /// The output kept on disk, bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) spool_bytes: Option<u64>,
    /// Wait so long for room when a limit is reached, in place of being refused at once
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) queue: Option<Duration>,
    /// Start it once only: a second start with this key gives the first one's process
    #[arg(long, value_name = "TEXT")]
    pub(crate) request_key: Option<String>,
    /// Keep what the command leaves running, until that has ended too
    #[arg(long, conflicts_with = "tty")]
    pub(crate) keep_tree: bool,
    /// Give it a terminal of its own
    #[arg(short = 'T', long)]
    pub(crate) tty: bool,
    /// The tool execution it comes from
    #[arg(long, value_name = "UUID")]
    pub(crate) origin: Option<Uuid>,
    /// A line for the shell, in place of program and arguments
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "argv")]
    pub(crate) line: Option<String>,
    /// Program and arguments
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "line")]
    pub(crate) argv: Vec<OsString>,
}

/// `procctl run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Pass stdin on to the command; absent: it gets none
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Tell the handle, and which variables are left out, on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// `procctl start`.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Where stdin comes from: a pipe for `procctl input`, or nothing
    #[arg(long, value_enum, default_value_t = Stdin::Pipe, value_name = "KIND")]
    pub(crate) stdin: Stdin,
    /// Tell which variables are left out on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// Where stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stdin {
    /// A pipe that takes input.
    Pipe,
    /// At its end from the start.
    Null,
}
