//! A run of the workspace's tests: all of them, then once more, each alone, the few that failed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    command::{self, cargo},
    say,
    sections::{Alone, Failed, Reader},
    summary::{FLAKY_MAX, Summary},
};

/// Where the tests find the binaries.
const BINARIES_VARIABLE: &str = "PROCD_TEST_BINARIES";
/// Where they write down what they could not look at here.
const SKIPPED_VARIABLE: &str = "PROCD_TEST_SKIPPED";

/// Runs the tests that `words` ask for, passed on to `cargo test`.
/// - `binaries`: the folder of what they run.
/// # Errors
/// A sentence, empty when everything was said.
pub(crate) fn run(binaries: &Path, words: &[String]) -> Result<(), String> {
    let skipped = binaries.join("skipped");
    drop(fs::remove_file(&skipped));
    let mut tests = cargo(&["test", "--locked", "--no-fail-fast"]);
    if package_of(words).is_none() {
        tests.arg("--workspace");
    }
    tests.args(words).env(BINARIES_VARIABLE, binaries).env(SKIPPED_VARIABLE, &skipped);
    // A log has to hold many failures: their places are enough.
    tests.env("RUST_BACKTRACE", "0");
    let mut summary = Summary::default();
    let mut reader = Reader::default();
    let outcome = command::run_watched(tests, |line| {
        if let Some(section) = reader.take(line) {
            summary.add(section);
        }
    });
    reader.finish().into_iter().for_each(|section| summary.add(section));
    // It failed, and no test did: it was not built, or not started.
    if !summary.has_run() || (outcome.is_err() && summary.failures().is_empty()) {
        return outcome;
    }
    let reasons = fs::read_to_string(&skipped).unwrap_or_default();
    summary.add_skipped(reasons.lines().map(str::to_owned));
    second_look(binaries, words, &mut summary);
    say(&format!("{}\n{summary}", summary.outputs()));
    if summary.is_good() { Ok(()) } else { Err(String::new()) }
}

/// Runs each test that failed once more, alone: on a machine that stood still for a moment it
/// passes then. Many at once are no such moment.
fn second_look(binaries: &Path, words: &[String], summary: &mut Summary) {
    let count = summary.failures().len();
    if count == 0 || count > FLAKY_MAX {
        return;
    }
    say(&format!("\n==> a second look at what failed ({count}), each alone"));
    let asked = package_of(words);
    summary.look_again(|failed| passes_alone(binaries, asked, failed));
}

fn passes_alone(binaries: &Path, asked: Option<&str>, failed: &Failed) -> bool {
    let Some(Alone { binary, package, arguments }) = &failed.alone else { return false };
    let Some(folder) = package.as_deref().or(asked).and_then(folder_of) else { return false };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut alone = command::program(&command::root().join(binary), &arguments);
    alone.current_dir(folder).env(BINARIES_VARIABLE, binaries);
    command::run(alone).is_ok()
}

/// The package that `cargo test` was asked for, if one was.
fn package_of(words: &[String]) -> Option<&str> {
    let own = words.iter().take_while(|word| *word != "--");
    let mut own = own.skip_while(|word| *word != "-p" && *word != "--package");
    own.next().and_then(|_| own.next()).map(String::as_str)
}

/// The folder of a package of the workspace, where its tests are run.
fn folder_of(package: &str) -> Option<PathBuf> {
    let root = command::root();
    let folders = [root.clone(), root.join("crates")];
    let members = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let name = format!("name = \"{package}\"");
    members.map(|member| member.path()).find(|member| {
        let manifest = fs::read_to_string(member.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_by_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(package_of(&words("-p procd-tests --test e2e -- -p x")), Some("procd-tests"));
        assert_eq!(package_of(&words("stop:: -- -p x")), None);
        for (package, folder) in
            [("procd", "daemon"), ("procd-sys", "crates/procd-sys"), ("procd-tests", "tests")]
        {
            assert_eq!(folder_of(package), Some(command::root().join(folder)));
        }
        assert_eq!(folder_of("no-such"), None);
    }
}
