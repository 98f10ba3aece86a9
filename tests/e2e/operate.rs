//! What an operator works with: every command of procctl as text, as JSON and by its exit code;
//! sentences; the daemon's metrics, configuration and service manager; the package and the page for
//! operators.

mod activation;
mod commands;
mod golden;
mod help;
mod metrics;
mod output;
mod package;
mod page;
mod sentences;
mod service;
mod settings;
mod snapshots;

use std::process::Command;

use procd_tests::{
    Daemon, Finished,
    run::{self, LONG, ctl, procctl},
};
use serde_json::Value;

/// procctl with `COLUMNS` in its environment.
fn wide(daemon: &Daemon, columns: u16, words: &[&str]) -> Finished {
    let mut command: Command = procctl(daemon, words);
    command.env("COLUMNS", columns.to_string());
    run::finish(command, b"", LONG)
}

/// Starts something with a label and gives its handle.
pub(crate) fn started(daemon: &Daemon, label: &str, words: &[&str]) -> String {
    let words = [&["start", "--label", label, "--"], words].concat();
    ctl(daemon, &words).success().trim().to_owned()
}

/// The JSON that procctl prints.
pub(crate) fn json_of(daemon: &Daemon, words: &[&str]) -> Value {
    // In front: behind `--` it would be a name.
    let words = [&["--format", "json"], words].concat();
    let text = ctl(daemon, &words).success();
    serde_json::from_str(&text).expect("JSON")
}

/// The names in a JSON object, in their order.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// No line is wider, and what is cut has a mark.
fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "wider than {columns}: {line}");
    }
}
