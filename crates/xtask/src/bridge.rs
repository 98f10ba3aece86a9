//! The bridge's tests with clients that are not ours: the Python SDK and the Inspector's command
//! line, each of a fixed version, installed below the target folder once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::command;

/// The Python SDK. MIT.
const SDK: &str = "mcp==2.3.0";
/// What `npx @modelcontextprotocol/inspector --cli` runs, without the web interface, in the last version for Node 20. MIT.
const INSPECTOR: &str = "@modelcontextprotocol/inspector-cli@0.15.0";

/// Runs them against the binaries, unless only some of the workspace's tests are asked for.
/// # Errors
/// A sentence when they cannot be installed, or when a test fails.
pub(crate) fn test(target: &Path, binaries: &Path, filter: &[String]) -> Result<(), String> {
    if !filter.is_empty() {
        return Ok(());
    }
    let folder = target.join("mcp");
    let python = folder.join("python/bin/python");
    let inspector =
        folder.join("node/node_modules/@modelcontextprotocol/inspector-cli/build/cli.js");
    install(&folder, &python)?;
    let tests: &[&str] = &["-m", "unittest", "discover", "-s", "tests/mcp", "-t", "tests/mcp"];
    let mut tests = command::program(&python, tests);
    tests.env("PROCD_TEST_BINARIES", binaries).env("PROCD_TEST_INSPECTOR", inspector);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(tests)
}

fn install(folder: &Path, python: &Path) -> Result<(), String> {
    let stamp = folder.join("installed");
    let wanted = format!("{SDK}\n{INSPECTOR}\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let run = |program: &str, arguments: &[&str]| {
        command::run(command::program(&PathBuf::from(program), arguments))
    };
    let [venv, node] = [folder.join("python"), folder.join("node")].map(shown);
    run("python3", &["-m", "venv", "--clear", &venv])?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", SDK];
    command::run(command::program(python, &pip))?;
    let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", &node, INSPECTOR];
    run("npm", &npm)?;
    fs::write(&stamp, wanted)
        .map_err(|error| format!("cannot write `{}`: {error}", stamp.display()))
}

fn shown(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}
