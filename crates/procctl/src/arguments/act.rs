//! The commands that do something to processes.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse::{id, time};

/// `procctl input`.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// Close its stdin after the text
    #[arg(long)]
    pub(crate) eof: bool,
    /// Handle, the beginning of it, or label
    #[arg(value_parser = id)]
    pub(crate) id: String,
    /// The text, as it is; absent, and without --eof and --key: all that stdin has
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Press a key of its terminal, such as enter, ctrl-c, up or f5; repeatable
    #[arg(short, long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Put a line end behind the text
    #[arg(short, long, requires = "text")]
    pub(crate) line: bool,
}

/// `procctl wait`.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Return when its output has this pattern, too; for one process
    #[arg(short = 'm', long = "match", value_name = "RE")]
    pub(crate) pattern: Option<String>,
    /// Return when the first has ended
    #[arg(long)]
    pub(crate) any: bool,
    /// Give up after this time, with exit code 124
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Handles, the beginnings of them, or labels
    #[arg(required = true, value_parser = id, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

/// `procctl stop`.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Seconds between the polite signal and SIGKILL; absent: the daemon's own
    #[arg(short = 't', long = "time", value_name = "SEC", value_parser = time)]
    pub(crate) grace: Option<Duration>,
    /// How hard
    #[arg(long, value_enum, default_value_t = Mode::Terminate, value_name = "MODE")]
    pub(crate) mode: Mode,
    /// All that run of this session: its id, or the beginning of it
    #[arg(long, value_name = "S", conflicts_with = "ids")]
    pub(crate) session: Option<String>,
    /// Handles, the beginnings of them, or labels
    #[arg(required_unless_present = "session", value_parser = id, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

/// How hard to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// SIGINT, nothing after it.
    Interrupt,
    /// SIGTERM, after the grace SIGKILL.
    Terminate,
    /// SIGKILL at once.
    Kill,
}

/// `procctl shutdown`.
#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Seconds between the polite signal and SIGKILL; absent: the daemon's own
    #[arg(short = 't', long = "time", value_name = "SEC", value_parser = time)]
    pub(crate) grace: Option<Duration>,
}

/// `procctl kill`.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The signal, by its name or number
    #[arg(short, long, value_name = "SIG", default_value = "TERM")]
    pub(crate) signal: String,
    /// Who gets it
    #[arg(long, value_enum, default_value_t = Target::Leader, value_name = "WHO")]
    pub(crate) target: Target,
    /// Handles, the beginnings of them, or labels
    #[arg(required = true, value_parser = id, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// The command itself.
    Leader,
    /// Its whole tree.
    Tree,
    /// The foreground of its terminal.
    Foreground,
}

/// `procctl attach`.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The keys that leave it running and come back: `ctrl-x` or one character each, `,` between
    #[arg(long, value_name = "K", default_value = "ctrl-p,ctrl-q")]
    pub(crate) detach_keys: String,
    /// Look only
    #[arg(long)]
    pub(crate) no_stdin: bool,
    /// Why, for the daemon's log, when the process is another session's
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Handle, the beginning of it, or label
    #[arg(value_parser = id)]
    pub(crate) id: String,
}

/// `procctl prune`.
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Only what ended longer ago
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) older: Option<Duration>,
    /// Every session's, not only your own
    #[arg(long)]
    pub(crate) all: bool,
}

/// `procctl rm`, `pin` and `unpin`.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Handles, the beginnings of them, or labels
    #[arg(required = true, value_parser = id, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}
