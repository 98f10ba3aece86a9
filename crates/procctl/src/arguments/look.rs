//! The commands that look.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use uuid::Uuid;

use super::parse::{filter, id, moment, since, time};

/// `procctl ps`.
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Every session's processes, not only your own
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Whole handles only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Only these: state=WORD, label=TEXT or session=UUID; repeatable
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = filter)]
    pub(crate) filter: Vec<Filter>,
    /// Whole handles, sessions and commands
    #[arg(long)]
    pub(crate) no_trunc: bool,
}

/// One condition of `ps --filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    /// In this state.
    State(String),
    /// With this label.
    Label(String),
    /// Of this session.
    Session(Uuid),
}

/// `procctl logs`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub(crate) struct Logs {
    /// Go on until the process has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long = "tail", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) tail: Option<u64>,
    /// Only what arrived then or later: a moment, or a span before now
    #[arg(long, value_name = "T", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Only what arrived before: a moment, or a span before now
    #[arg(long, value_name = "T", value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
    /// Tell when each line arrived
    #[arg(short = 't', long)]
    pub(crate) timestamps: bool,
    /// One stream only
    #[arg(long, value_enum, default_value_t = StreamChoice::Combined, value_name = "STREAM")]
    pub(crate) stream: StreamChoice,
    /// Exact bytes, also on a terminal; elsewhere that is the default
    #[arg(long, conflicts_with = "safe")]
    pub(crate) raw: bool,
    /// Text without control sequences, also into a pipe; on a terminal that is the default
    #[arg(long)]
    pub(crate) safe: bool,
    /// Why, for the daemon's log, when the process is another session's
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Handle, the beginning of it, or label
    #[arg(value_parser = id)]
    pub(crate) id: String,
}

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamChoice {
    /// Both, in the order of arrival.
    Combined,
    /// stdout, and what has no tag.
    Stdout,
    /// stderr, and what has no tag.
    Stderr,
}

/// `procctl inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Handle, the beginning of it, or label
    #[arg(value_parser = id)]
    pub(crate) id: String,
}

/// `procctl events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Begin at this number of the journal, or with what happened then or later
    #[arg(long, value_name = "SINCE", value_parser = since)]
    pub(crate) since: Option<Since>,
    /// Every session's events, not only your own
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// Where `events` begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// At a number of the journal.
    Number(u64),
    /// At a moment.
    Moment(Timestamp),
}

/// `procctl stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// Your own processes only
    #[arg(short, long)]
    pub(crate) own: bool,
    /// How long to look before rates are told
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "500ms")]
    pub(crate) during: Duration,
}

/// `procctl top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Your own processes only
    #[arg(short, long)]
    pub(crate) own: bool,
    /// Between two looks
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) every: Duration,
    /// What is at the top
    #[arg(short, long, value_enum, default_value_t = SortBy::Cpu, value_name = "COLUMN")]
    pub(crate) sort: SortBy,
    /// Show so many pictures one after the other, without the full screen, and end
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) pictures: Option<u32>,
}

/// What a live view is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// CPU time in the last moment.
    Cpu,
    /// Resident memory.
    Memory,
    /// Output in the last moment.
    Output,
    /// Members of the tree.
    Tree,
    /// Newest first.
    Age,
}

/// `procctl export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Where to; absent or `-`: stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Why, for the daemon's log, when the process is another session's
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Handle, the beginning of it, or label
    #[arg(value_parser = id)]
    pub(crate) id: String,
}

/// `procctl raw`.
#[derive(Debug, Args)]
pub(crate) struct Raw {
    /// A method, such as `daemon/status`
    #[arg(value_name = "METHOD")]
    pub(crate) method: String,
    /// Its parameters, a JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) params: String,
}

/// `procctl completion`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// A shell that completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bash.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}

/// `procctl man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write all pages into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub(crate) folder: Option<PathBuf>,
    /// The page of this command; absent: of procctl
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}
