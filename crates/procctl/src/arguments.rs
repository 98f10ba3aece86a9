//! The command line. What a later issue brings is not here, so the parser refuses it by name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use uuid::Uuid;

use crate::handle::unmark;
use crate::print::Format;

/// Start, follow and stop commands under the procd supervisor.
///
/// Data goes to stdout, messages to stderr. A process is named by its handle or a short unique
/// prefix of it; a prefix that begins with `-` goes after `--`.
#[derive(Debug, Parser)]
#[command(
    name = "procctl",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok, 1 failure, 2 usage, 3 not running, 4 not found, 5 no daemon, \
                  6 denied or quota, 124 timeout; `run`, and `wait` on one process, exit with the \
                  command's own code, 128+n on a signal."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// How data is shown.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// Act as the owner of your own processes only.
    #[arg(long, global = true, conflicts_with = "operator")]
    pub(crate) owner: bool,
    /// Act as the operator, also for your own processes.
    #[arg(long, global = true)]
    pub(crate) operator: bool,
}

/// Who to act as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Owner first, else operator.
    Either,
    /// Owner only.
    Owner,
    /// Operator only.
    Operator,
}

impl Global {
    /// The role that the options force.
    pub(crate) const fn role(&self) -> Role {
        match (self.owner, self.operator) {
            (true, _) => Role::Owner,
            (false, true) => Role::Operator,
            (false, false) => Role::Either,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in the foreground: follow its output, exit with its code
    Run(Run),
    /// Start a command in the background and print its handle
    Start(Start),
    /// List processes: your own, or all
    Ps(Ps),
    /// Show the output of a process
    Logs(Logs),
    /// Write to the stdin of a process
    Input(Input),
    /// Wait for processes to end
    Wait(Wait),
    /// Stop processes and wait until nothing of them is left
    Stop(Stop),
    /// Show the record of a process as JSON
    Inspect(Inspect),
    /// Show the state of the daemon
    Status,
    /// Stop the daemon and every process it supervises
    Shutdown(Shutdown),
}

impl Command {
    /// The command's name.
    pub(crate) const fn verb(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Start(_) => "start",
            Self::Ps(_) => "ps",
            Self::Logs(_) => "logs",
            Self::Input(_) => "input",
            Self::Wait(_) => "wait",
            Self::Stop(_) => "stop",
            Self::Inspect(_) => "inspect",
            Self::Status => "status",
            Self::Shutdown(_) => "shutdown",
        }
    }
}

/// What runs, and how.
#[derive(Debug, Args)]
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
pub(crate) struct Logs {
    /// Go on until the process has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long = "tail", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) tail: Option<u64>,
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
    /// Handle or unique prefix
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

/// `procctl input`.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// Close its stdin after the text
    #[arg(long)]
    pub(crate) eof: bool,
    /// Handle or unique prefix
    #[arg(value_parser = id)]
    pub(crate) id: String,
    /// The text, as it is; absent and without --eof: all that stdin has
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
    /// Put a line end behind the text
    #[arg(short, long, requires = "text")]
    pub(crate) line: bool,
}

/// `procctl wait`.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Return when the first has ended
    #[arg(long)]
    pub(crate) any: bool,
    /// Give up after this time, with exit code 124
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Handles or unique prefixes
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
    /// Handles or unique prefixes
    #[arg(required = true, value_parser = id, value_name = "ID")]
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

/// `procctl inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Handle or unique prefix
    #[arg(value_parser = id)]
    pub(crate) id: String,
}

/// `procctl shutdown`.
#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Seconds between the polite signal and SIGKILL; absent: the daemon's own
    #[arg(short = 't', long = "time", value_name = "SEC", value_parser = time)]
    pub(crate) grace: Option<Duration>,
}

fn id(text: &str) -> Result<String, String> {
    let text = unmark(text);
    let is_word =
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if text.is_empty() || !is_word || text.len() > crate::handle::HANDLE_CHARS {
        return Err("a handle is 22 letters, digits, - or _, or a prefix of that".to_owned());
    }
    Ok(text.to_owned())
}

/// Seconds as a number, or a span such as `250ms`, `10m`, `1h 30m`.
fn time(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "a time is seconds or a span such as 250ms, 10m or 1h30m";
    let span = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_not_a_number) => {
            text.parse::<jiff::SignedDuration>().ok().and_then(|span| span.try_into().ok())
        }
    };
    span.ok_or_else(|| WANTED.to_owned())
}

fn filter(text: &str) -> Result<Filter, String> {
    let wanted = || "a filter is state=WORD, label=TEXT or session=UUID".to_owned();
    let (key, value) = text.split_once('=').ok_or_else(wanted)?;
    match key {
        "state" => Ok(Filter::State(value.to_owned())),
        "label" => Ok(Filter::Label(value.to_owned())),
        "session" => value.parse().map(Filter::Session).map_err(|_not_a_uuid| wanted()),
        _ => Err(wanted()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::handle::mark_arguments;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(mark_arguments(arguments.iter().map(OsString::from)))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_command_to_run_keeps_its_own_options() {
        for line in [
            &["procctl", "run", "-l", "x", "--", "ls", "-l", "--", "a"][..],
            &["procctl", "run", "-l", "x", "ls", "-l", "--", "a"],
        ] {
            let Command::Run(run) = parse(line).unwrap().command else { panic!("{line:?}") };
            assert_eq!(run.launch.label.as_deref(), Some("x"));
            assert_eq!(run.launch.argv, ["ls", "-l", "--", "a"], "{line:?}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_and_not_run_as_a_program() {
        for line in [
            &["procctl", "start", "--labl", "x", "--", "ls"][..],
            &["procctl", "run", "--nope", "ls"],
            &["procctl", "start", "-i", "--", "cat"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        let Command::Run(run) = parse(&["procctl", "run", "--", "-x"]).unwrap().command else {
            panic!("not a run")
        };
        assert_eq!(run.launch.argv, ["-x"]);
    }

    #[test]
    fn a_handle_that_begins_with_a_dash_is_no_option() {
        let dashed = "-aBcDeFgHiJkLmNoPqRsTA";
        let Command::Stop(stop) = parse(&["procctl", "stop", dashed, "-t", "2"]).unwrap().command
        else {
            panic!("not a stop")
        };
        assert_eq!((stop.ids, stop.grace), (vec![dashed.to_owned()], Some(Duration::from_secs(2))));
        let Command::Logs(logs) = parse(&["procctl", "logs", "-f", "--", "-aBc"]).unwrap().command
        else {
            panic!("not logs")
        };
        assert_eq!((logs.id.as_str(), logs.follow), ("-aBc", true));
    }

    #[test]
    fn global_options_go_before_and_after_the_command() {
        for line in [&["procctl", "--format", "json", "ps"], &["procctl", "ps", "--format", "json"]]
        {
            assert_eq!(parse(line).unwrap().global.format, Format::Json);
        }
        assert!(parse(&["procctl", "--owner", "--operator", "ps"]).is_err());
    }

    #[test]
    fn times_are_seconds_or_spans() {
        let cases = [("90", 90_000), ("0.25", 250), ("250ms", 250), ("1h 30m", 5_400_000)];
        for (text, milliseconds) in cases {
            assert_eq!(time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "-1", "soon", "NaN", "1e300", "-5m"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_id_or_no_filter_is_refused() {
        for line in [
            &["procctl", "inspect", "a b"][..],
            &["procctl", "inspect", ""],
            &["procctl", "ps", "--filter", "colour=red"],
            &["procctl", "ps", "--filter", "session=x"],
            &["procctl", "run"],
            &["procctl", "run", "-c", "ls", "ls"],
            &["procctl", "logs", "-n", "100001", "x"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
