//! The steps of the gate, in their order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    bridge, clients,
    command::{self, cargo},
    guards, operate, suite,
};

/// Where the tests find the binaries.
pub(crate) const BINARIES_VARIABLE: &str = "PROCD_TEST_BINARIES";
/// How often the tests repeat what they repeat.
const ROUNDS_VARIABLE: &str = "PROCD_TEST_ROUNDS";
/// How many times longer the samples of output and input are.
const TIMES_VARIABLE: &str = "PROCD_TEST_TIMES";
/// How many times longer the samples of the field cases are, which then also take the minutes that
/// they say.
const SOAK_TIMES: &str = "20";
/// Has the schema written in place of being compared.
const SCHEMA_VARIABLE: &str = "PROCD_SCHEMA_WRITE";
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
    test(&[]).and(guards(false))
}

/// What does not depend on the machine, beside its numbers; or the numbers written anew.
pub(crate) fn guards(writes: bool) -> Result<(), String> {
    let binaries = build()?;
    command::run(cargo(&["build", "--release", "--locked", "-p", "procd-guards"]))?;
    let calls = || {
        let mut calls = command::program(&binaries.join("calls"), &[]);
        calls.env(BINARIES_VARIABLE, &binaries);
        calls
    };
    guards::check(calls, &target_folder().join("release/procd-guards"), writes)
}

/// Builds the binaries, then runs the tests against them. All run, whatever fails.
pub(crate) fn test(filter: &[String]) -> Result<(), String> {
    let binaries = build()?;
    let schema = if filter.is_empty() { schema(false) } else { Ok(()) };
    let bridge = bridge::test(&target_folder(), &binaries, filter);
    let clients = clients::test(&target_folder(), &binaries, filter);
    suite::run(&binaries, filter).and(schema).and(bridge).and(clients)
}

/// The JSON Schema of the messages: written anew, or compared with the types. A build of its own, so
/// that no other has what it takes.
pub(crate) fn schema(writes: bool) -> Result<(), String> {
    let mut test = cargo(&["test", "--locked", "-p", "procd-protocol", "--features", "schema"]);
    test.args(["--test", "schema", "--quiet"]);
    if writes {
        test.env(SCHEMA_VARIABLE, "1");
    }
    command::run(test)
}

/// The tests of the clients in other languages alone.
pub(crate) fn clients() -> Result<(), String> {
    clients::test(&target_folder(), &build()?, &[])
}

/// The tests of the bridge alone.
pub(crate) fn bridge() -> Result<(), String> {
    bridge::test(&target_folder(), &build()?, &[])
}

/// The tests of output and input alone, with long samples: random sequences over the spool, floods,
/// kills, full disks, slow clients, terminals, and how much a wait costs.
pub(crate) fn output(times: u32) -> Result<(), String> {
    let binaries = build()?;
    let times = times.to_string();
    let mut spool = cargo(&["test", "--locked", "-p", "procd-store", "--lib", "spool::"]);
    spool.env(TIMES_VARIABLE, &times);
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", "--"]);
    tests.args(["spool_disk::", "slow::", "stored::", "until::", "output::", "input::"]);
    tests.args(["waits::", "terminal::", "--nocapture"]);
    tests.env(BINARIES_VARIABLE, binaries).env(TIMES_VARIABLE, &times);
    command::run(spool)?;
    command::run(tests)
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

/// The hostile clients, a thousand of them, against the binaries as they are released.
pub(crate) fn hostile() -> Result<(), String> {
    let packages = ["-p", "procd", "-p", "procctl", "-p", "procd-tests"];
    let mut build = cargo(&["build", "--release", "--locked", "--bins"]);
    build.args(packages);
    command::run(build)?;
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", "hostile::"]);
    tests.args(["--", "--nocapture", "--test-threads", "1"]);
    tests.env(BINARIES_VARIABLE, target_folder().join("release")).env(ROUNDS_VARIABLE, "1000");
    command::run(tests)
}

/// The cases of the field as often and as long as they say.
pub(crate) fn soak_cases() -> Result<(), String> {
    let binaries = build()?;
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", "--"]);
    tests.args(["field::", "field_cases::", "soak_cases::", "--nocapture"]);
    tests.env(BINARIES_VARIABLE, binaries).env(TIMES_VARIABLE, SOAK_TIMES);
    command::run(tests)
}

/// The damage matrix in full.
pub(crate) fn all_cuts() -> Result<(), String> {
    let binaries = build()?;
    let mut tests = cargo(&["test", "--locked", "-p", "procd-tests", "--test", "e2e", "damage::"]);
    tests.env(BINARIES_VARIABLE, binaries).env("PROCD_TEST_ALL_CUTS", "1");
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

/// Everything at once, for so many seconds.
pub(crate) fn soak(seconds: u32, seed: u64) -> Result<(), String> {
    let binaries = build()?;
    let mut run =
        command::program(&binaries.join("soak"), &[&seconds.to_string(), &seed.to_string()]);
    run.env(BINARIES_VARIABLE, &binaries).env("RUST_BACKTRACE", "0");
    command::run(run)
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

/// What the tests run: binaries, and the client's examples.
const BUILT: [&str; 14] = [
    "build",
    "--locked",
    "-p",
    "procd",
    "-p",
    "procctl",
    "-p",
    "procd-tests",
    "-p",
    "procd-client",
    "-p",
    "procd-mcp",
    "--bins",
    "--examples",
];

/// Builds what the tests run; the folder it is in. Both builds are of the same packages, so that they share every other
/// crate: the daemon with failpoints costs the compilation of two crates once more.
fn build() -> Result<PathBuf, String> {
    let folder = target_folder().join("debug");
    operate::prometheus(&target_folder())?;
    let mut failpoints = cargo(&BUILT);
    failpoints.args(["--features", "procd/failpoints"]);
    command::run(failpoints)?;
    keep(&folder.join("procd"), &folder.join(FAILPOINTS_FOLDER))?;
    command::run(cargo(&BUILT))?;
    Ok(folder)
}

#[expect(clippy::disallowed_methods, reason = "cargo's own variable for its target folder")]
pub(crate) fn target_folder() -> PathBuf {
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
