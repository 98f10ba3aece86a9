//! The command line: every command of procctl with its options.

mod act;
mod launch;
mod look;
mod parse;

use clap::{Args, Parser, Subcommand};

pub(crate) use act::{Attach, Input, Kill, Mode, Named, Prune, Shutdown, Stop, Target, Wait};
pub(crate) use launch::{Launch, Run, Start, Stdin};
pub(crate) use look::{
    Completion, Events, Export, Filter, Inspect, Logs, Man, Ps, Raw, Shell, Since, SortBy, Stats,
    StreamChoice, Top,
};

use crate::print::Format;

/// Start, follow and stop commands under the procd supervisor.
///
/// Data goes to stdout, messages to stderr. A process is named by its handle, by a short unique
/// beginning of that, or by its label; one that begins with `-` goes after `--`.
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
    /// Send a signal to processes
    Kill(Kill),
    /// Look at the terminal of a process, and type into it
    Attach(Attach),
    /// Show the record of a process as JSON
    Inspect(Inspect),
    /// Show what happened: the journal of your session, or of all
    Events(Events),
    /// List the sessions
    Sessions,
    /// Show what running processes use
    Stats(Stats),
    /// Watch what running processes use, on the full screen
    Top(Top),
    /// Write the kept output of a process to a file, checked by its SHA-256
    Export(Export),
    /// Remove what has ended
    Prune(Prune),
    /// Remove ended processes
    Rm(Named),
    /// Keep ended processes until they are unpinned
    Pin(Named),
    /// Leave ended processes to retention again
    Unpin(Named),
    /// Show the state of the daemon
    Status,
    /// Look for what is wrong or will be, and say what to do
    Doctor,
    /// Show the daemon's figures as OpenMetrics
    Metrics,
    /// Have the daemon read its configuration again
    Reload,
    /// Show the daemon's settings, and where each came from
    Config,
    /// Call a method of the daemon with parameters of your own
    Raw(Raw),
    /// Print what makes a shell complete procctl, live handles and labels included
    Completion(Completion),
    /// Print the manual page
    Man(Man),
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
            Self::Kill(_) => "kill",
            Self::Attach(_) => "attach",
            Self::Inspect(_) => "inspect",
            Self::Events(_) => "events",
            Self::Sessions => "sessions",
            Self::Stats(_) => "stats",
            Self::Top(_) => "top",
            Self::Export(_) => "export",
            Self::Prune(_) => "prune",
            Self::Rm(_) => "rm",
            Self::Pin(_) => "pin",
            Self::Unpin(_) => "unpin",
            Self::Status => "status",
            Self::Doctor => "doctor",
            Self::Metrics => "metrics",
            Self::Reload => "reload",
            Self::Config => "config",
            Self::Raw(_) => "raw",
            Self::Completion(_) => "completion",
            Self::Man(_) => "man",
            Self::Shutdown(_) => "shutdown",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use std::ffi::OsString;
    use std::time::Duration;

    use super::parse::time;
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
            &["procctl", "inspect", ""][..],
            &["procctl", "stop"],
            &["procctl", "stop", "--session", "x", "y"],
            &["procctl", "logs", "--since", "soon", "x"],
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
