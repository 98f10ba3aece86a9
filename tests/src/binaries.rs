//! The binaries under test, built beforehand by `cargo xtask test`.

use std::{ffi::OsStr, path::PathBuf, process::Command};

const FOLDER_VARIABLE: &str = "PROCD_TEST_BINARIES";

/// The folder with `procd`, `procctl`, `probe`, and `failpoints/procd`.
/// # Panics
/// With a sentence when the tests were not started by `cargo xtask test`.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one thing the tests are told by their runner")]
#[expect(clippy::panic, reason = "this is how a test fails")]
pub fn folder() -> PathBuf {
    let Ok(folder) = std::env::var(FOLDER_VARIABLE) else {
        panic!(
            "no {FOLDER_VARIABLE}: run the tests by `cargo xtask test`, which builds the binaries and says where they are"
        )
    };
    PathBuf::from(folder)
}

/// The path of one binary.
/// # Panics
/// With a sentence when it is not there.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let path = folder().join(name);
    assert!(path.is_file(), "no binary `{}`: `cargo xtask test` builds it", path.display());
    path
}

/// The probe's path as text, for command lines.
/// # Panics
/// When there is none.
#[must_use]
pub fn probe() -> String {
    path("probe").to_string_lossy().into_owned()
}

/// A command that a test starts by itself, not through the daemon.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests start the binaries they test")]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}
