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
mod looks;
mod own_session;
mod print;
mod render;
mod screen;
mod split;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use clap_complete::engine::ArgValueCompleter;
use procd_protocol::places;

use crate::arguments::{Arguments, Command};
use crate::exit::{Code, CtlError};
use crate::link::Links;
use crate::own_session::IdentityStore;

fn main() -> ExitCode {
    // A shell that asks for completions is answered before anything else, and that is all.
    CompleteEnv::with_factory(completing).var(commands::pages::VARIABLE).complete();
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

/// The command line with live handles and labels where one is to be named.
fn completing() -> clap::Command {
    let ids = || ArgValueCompleter::new(live_names);
    // In place: an argument that is taken out and put back would come last of the positional ones.
    Arguments::command().mut_subcommands(|command| {
        command.mut_args(|argument| {
            let is_named = ["id", "ids"].contains(&argument.get_id().as_str());
            if is_named { argument.add(ids()) } else { argument }
        })
    })
}

/// Those that begin with what is typed so far.
fn live_names(typed: &std::ffi::OsStr) -> Vec<clap_complete::engine::CompletionCandidate> {
    let folder = places::state_folder(|name| std::env::var_os(name));
    let links = folder.map(|folder| {
        Links::new(arguments::Role::Either, "completion", IdentityStore::new(folder))
    });
    let mut names = links.map(|links| commands::pages::candidates(&links)).unwrap_or_default();
    let typed = typed.to_string_lossy();
    names.retain(|name| name.get_value().to_string_lossy().starts_with(&*typed));
    names
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

/// What needs neither a daemon nor a place.
fn without_daemon(command: &Command) -> Option<Result<u8, CtlError>> {
    match command {
        Command::Completion(completion) => Some(commands::pages::completion(completion)),
        Command::Man(man) => Some(commands::pages::man(man)),
        Command::Run(_)
        | Command::Start(_)
        | Command::Ps(_)
        | Command::Logs(_)
        | Command::Input(_)
        | Command::Wait(_)
        | Command::Stop(_)
        | Command::Kill(_)
        | Command::Attach(_)
        | Command::Inspect(_)
        | Command::Events(_)
        | Command::Sessions
        | Command::Stats(_)
        | Command::Top(_)
        | Command::Export(_)
        | Command::Prune(_)
        | Command::Rm(_)
        | Command::Pin(_)
        | Command::Unpin(_)
        | Command::Status
        | Command::Doctor
        | Command::Metrics
        | Command::Reload
        | Command::Config
        | Command::Raw(_)
        | Command::Shutdown(_) => None,
    }
}

async fn dispatch(arguments: &Arguments) -> Result<u8, CtlError> {
    let format = arguments.global.format;
    if let Some(done) = without_daemon(&arguments.command) {
        return done;
    }
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
        Command::Kill(kill) => commands::kill::kill(&links, kill, format).await,
        Command::Attach(attach) => commands::attach::attach(&links, attach).await,
        Command::Inspect(inspect) => commands::inspect::inspect(&links, inspect, format).await,
        Command::Events(events) => commands::events::events(&links, events, format).await,
        Command::Sessions => commands::sessions::sessions(&links, format).await,
        Command::Stats(stats) => commands::stats::stats(&links, stats, format).await,
        Command::Top(top) => commands::top::top(&links, top).await,
        Command::Export(export) => commands::export::export(&links, export, format).await,
        Command::Prune(prune) => commands::keep::prune(&links, prune, format).await,
        Command::Rm(named) => commands::keep::rm(&links, named, format).await,
        Command::Pin(named) => commands::keep::pin(&links, named, true, format).await,
        Command::Unpin(named) => commands::keep::pin(&links, named, false, format).await,
        Command::Status => commands::status::status(&links, format).await,
        Command::Doctor => commands::doctor::doctor(&links, format).await,
        Command::Metrics => commands::daemon::metrics(&links, format).await,
        Command::Reload => commands::daemon::reload(&links, format).await,
        Command::Config => commands::daemon::config(&links, format).await,
        Command::Raw(raw) => commands::daemon::raw(&links, raw, format).await,
        Command::Completion(completion) => commands::pages::completion(completion),
        Command::Man(man) => commands::pages::man(man),
        Command::Shutdown(shutdown) => commands::shutdown::shutdown(&links, shutdown).await,
    }
}
