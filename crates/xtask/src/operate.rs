//! What operators get: the package, the install target, and what their tests want on this machine.

use std::path::Path;

use crate::command::{self, cargo, program, root};

/// The parser of others that reads the metrics.
const PARSER: &str = "prometheus-client==0.22.1";
/// The Debian system that the package is tried in.
const SYSTEM: &str = "bookworm";

/// Makes the environment of the parser in `target/prometheus`, once. Where it cannot be had, its
/// test is a visible skip; with `CI=true` that is a failure.
/// # Errors
/// A sentence, with `CI=true` only.
pub(crate) fn prometheus(target: &Path) -> Result<(), String> {
    let folder = target.join("prometheus");
    if folder.join("made").exists() {
        return Ok(());
    }
    match make(&folder) {
        Err(error) if !is_ci() => {
            crate::say(&format!("the parser of prometheus is not tried: {error}"));
            Ok(())
        }
        made => made,
    }
}

#[expect(clippy::disallowed_methods, reason = "what a build server says of itself")]
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn make(folder: &Path) -> Result<(), String> {
    let shown = folder.to_string_lossy().into_owned();
    command::run(program(Path::new("python3"), &["-m", "venv", &shown]))?;
    let pip = folder.join("bin/pip");
    let words = ["install", "--quiet", "--retries", "2", "--timeout", "10", PARSER];
    command::run(program(&pip, &words))?;
    std::fs::write(folder.join("made"), PARSER).map_err(|error| format!("{shown}: {error}"))
}

fn release() -> Result<(), String> {
    command::run(cargo(&["build", "--release", "--locked", "-p", "procd", "-p", "procctl"]))
}

/// Builds, and puts everything in place below `folder`.
pub(crate) fn install(folder: &str, prefix: &str) -> Result<(), String> {
    release()?;
    let mut install = program(&root().join("packaging/install.sh"), &[folder]);
    install.env("PREFIX", prefix);
    command::run(install)
}

/// Builds the Debian package into `target/debian-package`; with `tries` installs, runs and removes
/// it in a small Debian system, which is made by debootstrap once.
pub(crate) fn deb(target: &Path, tries: bool) -> Result<(), String> {
    release()?;
    let folder = target.join("debian-package");
    let folder = folder.to_string_lossy().into_owned();
    command::run(program(&root().join("packaging/deb.sh"), &[&folder]))?;
    if !tries {
        return Ok(());
    }
    let system = target.join("debian");
    if !system.join("usr/bin/dpkg").exists() {
        let system = system.to_string_lossy().into_owned();
        let words = ["--variant=minbase", SYSTEM, &system];
        command::run(program(Path::new("debootstrap"), &words))?;
    }
    let system = system.to_string_lossy().into_owned();
    let packages = std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let package = packages.flatten().map(|entry| entry.path());
    let package = package.max().ok_or("no package was made")?.to_string_lossy().into_owned();
    command::run(program(&root().join("packaging/try.sh"), &[&system, &package]))
}
