//! `procctl completion` and `man`: made from the command line itself, so that they never differ.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;

use super::ps::command;
use crate::arguments::{Arguments, Completion, Man, Shell};
use crate::exit::CtlError;
use crate::link::{Link, Links, StartDaemon};
use crate::print;

/// The variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "COMPLETE";
/// The name of the program.
const NAME: &str = "procctl";

/// Prints what makes a shell ask this program for completions.
/// # Errors
/// [`CtlError`] when it cannot be written.
pub(crate) fn completion(completion: &Completion) -> Result<u8, CtlError> {
    let shell = match completion.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let mut text = Vec::new();
    let completer = shells.completer(shell);
    let written = completer
        .map_or(Ok(()), |one| one.write_registration(VARIABLE, NAME, NAME, NAME, &mut text));
    written
        .map_err(|source| CtlError::Io { what: "cannot make completions".to_owned(), source })?;
    print::data(&text)?;
    Ok(0)
}

/// Handles of processes and their labels, for a shell. A daemon is never started for that.
pub(crate) fn candidates(links: &Links) -> Vec<CompletionCandidate> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    // A shell that completes shows no error.
    let records = runtime.block_on(async {
        let mut records = match links.owner(StartDaemon::Never).await? {
            Some(link) => link.list().await?,
            None => Vec::new(),
        };
        if let Link::Operator(operator) = links.operator(StartDaemon::Never).await? {
            records.extend(operator.list_all(procd_protocol::v1::ListParams::default()).await?);
        }
        Ok::<_, CtlError>(records)
    });
    let mut found = Vec::new();
    for record in records.unwrap_or_default() {
        let help = format!("{} {}", record.state.as_str(), command(&record));
        let help = crate::render::cut(&crate::render::printable(&help), 60);
        let names = [Some(record.process_id.to_string()), record.label.clone()];
        for name in names.into_iter().flatten() {
            found.push(CompletionCandidate::new(name).help(Some(help.clone().into())));
        }
    }
    found
}

/// Prints a manual page, or writes all of them.
/// # Errors
/// [`CtlError`] for an unknown command, or a folder that cannot be written.
pub(crate) fn man(man: &Man) -> Result<u8, CtlError> {
    let mut whole = Arguments::command();
    whole.build();
    if let Some(folder) = &man.folder {
        write_all(&whole, folder)?;
        return Ok(0);
    }
    let shown = match &man.command {
        None => whole,
        Some(name) => subcommand(&whole, name).ok_or_else(|| {
            CtlError::usage(format!("there is no command `{name}`"), "`procctl --help` lists them")
        })?,
    };
    print::data(&page(shown)?)?;
    Ok(0)
}

/// The command `name` under the name its page has.
fn subcommand(whole: &Command, name: &str) -> Option<Command> {
    let found = whole.find_subcommand(name)?.clone();
    let title = format!("{NAME}-{name}");
    // The names of commands live as long as the program; a page is made once in it.
    let name: &'static str = title.clone().leak();
    Some(found.name(name).display_name(title))
}

fn page(command: Command) -> Result<Vec<u8>, CtlError> {
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command).manual("procd manual").source("procd");
    page.render(&mut text)
        .map_err(|source| CtlError::Io { what: "cannot make a page".to_owned(), source })?;
    Ok(text)
}

fn write_all(whole: &Command, folder: &Path) -> Result<(), CtlError> {
    let write = |name: &str, command: Command| {
        let path = folder.join(format!("{name}.1"));
        let text = page(command)?;
        std::fs::write(&path, text).map_err(|source| CtlError::Io {
            what: format!("cannot write `{}`", path.display()),
            source,
        })
    };
    write(NAME, whole.clone())?;
    for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name().to_owned();
        if let Some(command) = subcommand(whole, &name) {
            write(&format!("{NAME}-{name}"), command)?;
        }
    }
    Ok(())
}
