//! The arguments of the daemon.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::logging;

/// Supervisor daemon for long-running commands. Without arguments it stays in the foreground and
/// logs to stderr; SIGTERM ends it.
#[derive(Debug, Parser)]
#[command(name = "procd", version)]
pub(crate) struct Arguments {
    /// The configuration file, in place of `$PROCD_CONFIG`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The socket, in place of `$PROCD_SOCKET`
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The state folder, in place of `$PROCD_STATE_DIR`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// A setting, in place of file and environment, such as `limits.grace_ms=1000`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Reads the configuration, shows every setting with where it came from, and ends
    #[arg(long)]
    pub(crate) check: bool,
    /// A daemon of one user's clients: logs to the state folder, ends when nobody needs it
    #[arg(long)]
    pub(crate) private: bool,
    /// Writes `ready`, or `error: ` and a sentence, as one line to this descriptor
    #[arg(long, value_name = "N")]
    pub(crate) ready_fd: Option<u32>,
}

impl Arguments {
    /// Reads the command line.
    /// # Errors
    /// The exit code: 2 for wrong usage, 0 when help or version was asked for. Both were said.
    pub(crate) fn read(given: Vec<OsString>) -> Result<Self, ExitCode> {
        Self::try_parse_from(given).map_err(|error| {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Help that nobody reads is no failure.
            if let Err(error) = error.print() {
                logging::say(&format!("procd: {error}"));
            }
            ExitCode::from(code)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn unknown_arguments_are_wrong_usage() {
        let read = |words: &[&str]| Arguments::read(words.iter().map(Into::into).collect());
        assert_eq!(read(&["procd", "--nope"]).unwrap_err(), ExitCode::from(2));
        assert_eq!(read(&["procd", "--ready-fd", "-1"]).unwrap_err(), ExitCode::from(2));
        let arguments = read(&["procd", "--private", "--ready-fd", "7", "--set", "a=1"]).unwrap();
        assert!(arguments.private && arguments.ready_fd == Some(7) && arguments.set == ["a=1"]);
    }
}
