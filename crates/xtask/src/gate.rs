//! The steps of the gate, in their order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    command::{self, cargo},
    say,
    summary::Summary,
};

/// Where the tests find the binaries.
const BINARIES_VARIABLE: &str = "PROCD_TEST_BINARIES";
/// How often the tests repeat what they repeat.
const ROUNDS_VARIABLE: &str = "PROCD_TEST_ROUNDS";
/// Folder beside the binaries with the daemon that has named crash and pause points.
const FAILPOINTS_FOLDER: &str = "failpoints";

/// Format, lints, tests.
pub(crate) fn ci() -> Result<(), String> {
    command::run(cargo(&["fmt", "--all", "--check"]))?;
    command::run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    test(&[])
}

/// Builds the binaries, then runs the tests of every suite. All suites run, whatever fails.
pub(crate) fn test(filter: &[String]) -> Result<(), String> {
    let binaries = build()?;
    let mut summary = Summary::default();
    let outcome = workspace(&binaries, filter, &mut summary);
    if summary.has_run() {
        say(&format!("\n{summary}"));
    }
    outcome
}

/// The tests of output and input alone, with long samples: floods, kills, full disks, slow clients.
pub(crate) fn output(times: u32) -> Result<(), String> {
    let binaries = build()?;
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", "--"]);
    tests.args(["spool_disk::", "slow::", "stored::", "until::", "output::", "input::", "waits::"]);
    tests.env(BINARIES_VARIABLE, binaries).env("PROCD_TEST_TIMES", times.to_string());
    let mut summary = Summary::default();
    command::run_watched(tests, |line| summary.take(line))
}

/// The black-box tests whose names hold `filter`, one after the other, repeating what they repeat
/// so often, and showing what they print.
pub(crate) fn repeat(filter: &str, rounds: u32) -> Result<(), String> {
    let binaries = build()?;
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", filter]);
    tests.args(["--", "--nocapture", "--test-threads", "1"]);
    tests.env(BINARIES_VARIABLE, binaries).env(ROUNDS_VARIABLE, rounds.to_string());
    command::run(tests)
}

/// The long forms of the fault tests, which are too long for the gate.
pub(crate) fn faults(words: &[String]) -> Result<(), String> {
    let binaries = build()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let forms: &[&[&str]] =
        if words.is_empty() { &[&["matrix"], &["random", "500", "1"]] } else { &[&words] };
    for form in forms {
        let mut run = command::program(&binaries.join("faults"), form);
        run.env(BINARIES_VARIABLE, &binaries);
        command::run(run)?;
    }
    Ok(())
}

/// The long form of the fuzzer, with overflow checks and everything else that a test's build has.
pub(crate) fn fuzz(executions: u64, targets: &[String]) -> Result<(), String> {
    let executions = executions.to_string();
    let mut run = cargo(&["run", "--locked", "--profile", "fuzz", "-p", "procd-fuzz", "--"]);
    run.arg(executions).args(targets);
    command::run(run)
}

/// The checks in the guest.
pub(crate) fn vm() -> Result<(), String> {
    let binaries = build()?;
    let mut run = command::program(&command::root().join("tests/vm/run.sh"), &[]);
    run.arg(binaries);
    command::run(run)
}

/// The tests of the workspace. Those of clients in other languages follow here as suites of their own.
fn workspace(binaries: &Path, filter: &[String], summary: &mut Summary) -> Result<(), String> {
    let mut tests = cargo(&["test", "--locked", "--no-fail-fast"]);
    if !filter.iter().any(|word| word == "-p" || word == "--package") {
        tests.arg("--workspace");
    }
    tests.args(filter).env(BINARIES_VARIABLE, binaries);
    command::run_watched(tests, |line| summary.take(line))
}

/// Builds what the tests run; the folder it is in. The daemon with failpoints shares every other crate with the plain one,
/// so it costs the compilation of its own crate once more.
fn build() -> Result<PathBuf, String> {
    let folder = target_folder().join("debug");
    command::run(cargo(&["build", "--locked", "-p", "procd", "--features", "failpoints"]))?;
    keep(&folder.join("procd"), &folder.join(FAILPOINTS_FOLDER))?;
    command::run(cargo(&[
        "build",
        "--locked",
        "-p",
        "procd",
        "-p",
        "procctl",
        "-p",
        "procd-tests",
        "--bins",
    ]))?;
    Ok(folder)
}

#[expect(clippy::disallowed_methods, reason = "cargo's own variable for its target folder")]
fn target_folder() -> PathBuf {
    let root = command::root();
    std::env::var("CARGO_TARGET_DIR")
        .map_or_else(|_| root.join("target"), |folder| root.join(folder))
}

/// Puts a copy of `binary` into `folder`, replacing an older one that may still run.
fn keep(binary: &Path, folder: &Path) -> Result<(), String> {
    let name = binary.file_name().unwrap_or_default();
    let fresh = folder.join("fresh");
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(binary, &fresh))
        .and_then(|_| fs::rename(&fresh, folder.join(name)))
        .map_err(|error| {
            format!("cannot copy `{}` to `{}`: {error}", binary.display(), folder.display())
        })
}
