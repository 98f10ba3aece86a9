//! The clients in other languages: format, types and tests, against the built daemon. What they
//! need comes from their registries, into the target folder and the client's own.

use std::path::Path;

use crate::command;

/// Types, for 3.9 too, which later versions of it do not know. MIT.
const MYPY: &str = "mypy==1.18.2";
/// Format and lints. MIT.
const RUFF: &str = "ruff==0.17.6";
/// Finds what an older Python does not have. MIT.
const VERMIN: &str = "vermin==1.9.0";

/// Runs both, unless only some of the workspace's tests are asked for. Both run, whatever fails.
/// # Errors
/// A sentence when something cannot be installed, or when a check or a test fails.
pub(crate) fn test(target: &Path, binaries: &Path, filter: &[String]) -> Result<(), String> {
    if !filter.is_empty() {
        return Ok(());
    }
    let typescript = typescript(binaries);
    python(&target.join("clients/python"), binaries).and(typescript)
}

fn python(venv: &Path, binaries: &Path) -> Result<(), String> {
    let start = |program: &str, arguments: &[&str]| {
        let mut command = command::program(&venv.join("bin").join(program), arguments);
        command.current_dir(command::root().join("clients/python"));
        command.env("PROCD_TEST_BINARIES", binaries).env("PYTHONDONTWRITEBYTECODE", "1");
        command::run(command)
    };
    let run = |arguments: &[&str]| start("python", arguments);
    if !venv.join("bin/python").is_file() {
        let words = ["-m", "venv", &venv.to_string_lossy()];
        command::run(command::program(Path::new("python3"), &words))?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(&[&pip[..], &[MYPY, RUFF, VERMIN]].concat())?;
    run(&[&pip[..], &["--force-reinstall", "."]].concat())?;
    run(&["-m", "ruff", "format", "--check", "."])?;
    run(&["-m", "ruff", "check", "."])?;
    for version in ["3.9", "3.11"] {
        run(&["-m", "mypy", "--strict", "--python-version", version])?;
    }
    start("vermin", &["--quiet", "--no-tips", "-t=3.9-", "src"])?;
    run(&["-m", "unittest", "discover", "-s", "tests", "-t", "."])
}

fn typescript(binaries: &Path) -> Result<(), String> {
    let npm = |arguments: &[&str]| {
        let mut command = command::program(Path::new("npm"), arguments);
        command.current_dir(command::root().join("clients/typescript"));
        command.env("PROCD_TEST_BINARIES", binaries);
        command::run(command)
    };
    npm(&["ci", "--no-audit", "--no-fund"])?;
    npm(&["test"])
}
