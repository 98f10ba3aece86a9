//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Names the session file when no flag does.
pub(crate) const SESSION_FILE_VARIABLE: &str = "PROCD_SESSION_FILE";

/// MCP bridge of procd, over stdio: long-running commands for any MCP client.
#[derive(Debug, Clone, Parser)]
#[command(name = "procd-mcp", version)]
pub(crate) struct Arguments {
    /// Keeps the session's key in this file (0600), so that a bridge started later with the same
    /// file finds the processes again; default $PROCD_SESSION_FILE. With neither the session is
    /// this bridge's own
    #[arg(long, value_name = "PATH")]
    pub(crate) session_file: Option<PathBuf>,

    /// The session closes, and its processes end, when no bridge was connected for so long
    #[arg(long, default_value_t = 600, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=31_622_400))]
    pub(crate) idle_close: u64,

    /// What the daemon may take beyond the time that a call waits by itself; then the call is told
    /// that there is no answer
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) answer_time: u64,

    /// What the session is called in `procctl`
    #[arg(long, default_value = "procd-mcp", value_name = "TEXT")]
    pub(crate) label: String,

    /// Never starts a private daemon: one has to run
    #[arg(long)]
    pub(crate) no_private_daemon: bool,
}
