//! Tests that kill or starve things run alone in a PID namespace of their own: what they hit can only be theirs, and
//! everything in it dies with them.

use std::{process::Command, sync::OnceLock};

use crate::{binaries, rounds, run, skip, wait};

const INSIDE_VARIABLE: &str = "PROCD_TEST_INSIDE";

/// Runs the calling test again inside a namespace, where this is false; true outside, when that run has passed.
/// - `module`, `name`: as `module_path!()` says, and the function's name.
/// # Panics
/// When the run inside failed, with all it said.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "told by the run outside")]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn has_run_inside(module: &str, name: &str) -> bool {
    if std::env::var(INSIDE_VARIABLE).is_ok() {
        return false;
    }
    let test = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    if !is_here() {
        skip("no PID namespace on this machine");
        return true;
    }
    let mut command = enter();
    command.arg(std::env::current_exe().expect("the test binary's own path"));
    command.args(["--exact", &test, "--nocapture"]).env(INSIDE_VARIABLE, "1");
    // What repeats itself may take as many times as long.
    let is_long = rounds::or(0) > 0 || run::rounds(1) > 1;
    let limit = if is_long { run::LONG * 10 } else { run::LONG };
    let finished = run::finish(command, b"", limit);
    let said = format!("{}{}", finished.text(), String::from_utf8_lossy(&finished.stderr));
    assert!(finished.code == Some(0) && said.contains("1 passed"), "inside the namespace:\n{said}");
    show(&finished.text());
    true
}

/// Whether this machine lets a test have a namespace of its own.
fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    *IS_HERE.get_or_init(|| {
        let mut command = enter();
        command.arg("true");
        run::finish(command, b"", wait::STEP).code == Some(0)
    })
}

/// The beginning of a command that runs the rest of it in a namespace of its own.
fn enter() -> Command {
    let mut command = binaries::command("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command
}

/// What the run inside has measured.
#[expect(clippy::print_stdout, reason = "shown with --nocapture only")]
fn show(text: &str) {
    let is_frame =
        |line: &str| line.is_empty() || line.starts_with("running ") || line.starts_with("test ");
    for line in text.lines().filter(|line| !is_frame(line)) {
        println!("{line}");
    }
}
