//! Starts cargo, in the root of the workspace.

use std::{
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
};

use crate::say;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A cargo command that is yet to run.
#[expect(clippy::disallowed_methods, reason = "a development command that runs cargo")]
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(arguments).current_dir(root());
    command
}

/// A command of a program that was built.
#[expect(clippy::disallowed_methods, reason = "a development command that runs what it has built")]
pub(crate) fn program(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments).current_dir(root());
    command
}

/// Runs to the end.
/// # Errors
/// A sentence when it could not be started or failed.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let shown = announce(&command);
    let status = command.status().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Runs to the end and hands each line of stdout and stderr, in the order in which they came, to
/// `seen` after it was shown.
/// # Errors
/// A sentence when it could not be started or failed.
pub(crate) fn run_watched(mut command: Command, mut seen: impl FnMut(&str)) -> Result<(), String> {
    let shown = announce(&command);
    let not_started = |error: io::Error| format!("cannot start `{shown}`: {error}");
    let (out, end) = io::pipe().map_err(not_started)?;
    command.stdout(end.try_clone().map_err(not_started)?).stderr(end);
    let mut child = command.spawn().map_err(not_started)?;
    // With it goes this side's own copy of the end that is written to.
    drop(command);
    for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        say(&line);
        seen(&line);
    }
    let status = child.wait().map_err(|error| format!("cannot wait for `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

fn announce(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(command.get_program());
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let shown = format!("{program} {}", arguments.join(" "));
    say(&format!("==> {shown}"));
    shown
}
