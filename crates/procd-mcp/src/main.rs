//! The MCP bridge of procd, over stdio. Any MCP client gets long-running commands with it; the
//! processes live in the daemon, so they outlast a tool call, and the bridge too.
//!
//! It holds no policy and no state but its session: what a tool call means is the daemon's.
#![forbid(unsafe_code)]

mod arguments;
mod bridge;
mod completions;
mod environment;
mod outcome;
mod resources;
mod server;
mod session_file;
mod tools;
mod waiting;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use rmcp::ServiceExt as _;

use crate::arguments::{Arguments, SESSION_FILE_VARIABLE};
use crate::bridge::Bridge;
use crate::server::Server;

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let named = std::env::var_os(SESSION_FILE_VARIABLE).filter(|path| !path.is_empty());
    arguments.session_file = arguments.session_file.or(named.map(Into::into));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let served = runtime.block_on(serve(arguments));
        // Reading stdin cannot be interrupted: it would be waited for.
        runtime.shutdown_background();
        served
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // stdout belongs to the protocol.
            drop(writeln!(std::io::stderr(), "procd-mcp: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves until the client closes stdin.
async fn serve(arguments: Arguments) -> Result<(), String> {
    let bridge = Bridge::new(arguments);
    bridge.resume();
    match Server::new(bridge).serve(rmcp::transport::stdio()).await {
        Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
        // A client that goes before it has said anything is none that failed.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
