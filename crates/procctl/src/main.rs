//! `procctl`: starts, follows and stops commands under the procd supervisor.
//!
//! ```text
//! arguments -> command -> link -> daemon
//!                  \-> render -> print
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod environment;
mod exit;
mod handle;
mod link;
mod own_session;
mod print;
mod render;
mod split;

use std::process::ExitCode;

use clap::Parser;
use procd_protocol::places;

use crate::arguments::{Arguments, Command};
use crate::exit::{Code, CtlError};
use crate::link::Links;
use crate::own_session::IdentityStore;

fn main() -> ExitCode {
    let words = handle::mark_arguments(std::env::args_os());
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(refused) => {
            // Nobody to read the help is no failure.
            drop(refused.print());
            let is_usage = refused.use_stderr();
            return ExitCode::from(if is_usage { Code::Usage } else { Code::Ok }.number());
        }
    };
    match execute(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(CtlError::StdoutClosed) => ExitCode::from(CtlError::StdoutClosed.code().number()),
        Err(error) => {
            print::message(&error.to_string());
            ExitCode::from(error.code().number())
        }
    }
}

fn execute(arguments: &Arguments) -> Result<u8, CtlError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CtlError::Io {
        what: "cannot begin to work with the system's events".to_owned(),
        source,
    })?;
    let result = runtime.block_on(dispatch(arguments));
    // A write or a read that waits for somebody else must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn dispatch(arguments: &Arguments) -> Result<u8, CtlError> {
    let format = arguments.global.format;
    let Some(folder) = places::state_folder(|name| std::env::var_os(name)) else {
        let what = "no state folder: neither PROCD_STATE_DIR, XDG_STATE_HOME nor HOME is set";
        return Err(CtlError::usage(what, "set one of them"));
    };
    let verb = arguments.command.verb();
    let links = Links::new(arguments.global.role(), verb, IdentityStore::new(folder));
    match &arguments.command {
        Command::Run(run) => commands::run::run(&links, run).await,
        Command::Start(start) => commands::start::start(&links, start, format).await,
        Command::Ps(ps) => commands::ps::ps(&links, ps, format).await,
        Command::Logs(logs) => commands::logs::logs(&links, logs, format).await,
        Command::Input(input) => commands::input::input(&links, input, format).await,
        Command::Wait(wait) => commands::wait::wait(&links, wait, format).await,
        Command::Stop(stop) => commands::stop::stop(&links, stop, format).await,
        Command::Inspect(inspect) => commands::inspect::inspect(&links, inspect, format).await,
        Command::Status => commands::status::status(&links, format).await,
        Command::Shutdown(shutdown) => commands::shutdown::shutdown(&links, shutdown).await,
    }
}
