//! The house rules a machine can check, over the sources and `cargo metadata`. Each check names what it found, all at once.
//!
//! What clippy checks (function length, unwraps, processes started elsewhere, clocks) is not repeated here.

mod field;
mod house;
mod manifests;
mod mutants;
mod sources;

use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Every file of these folders with this ending, by its path from the root.
fn files(folders: &[&str], ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(path) = waiting.pop() {
        let full = root().join(&path);
        if full.is_dir() {
            let entries = std::fs::read_dir(full).unwrap().map(|entry| entry.unwrap().file_name());
            waiting.extend(entries.filter(|name| name != "target").map(|name| path.join(name)));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("read `{}`: {error}", path.display()))
}

/// Whether a file is nothing but tests.
fn is_test(path: &Path) -> bool {
    let names = path.iter().skip(1).filter_map(|part| part.to_str());
    names
        .into_iter()
        .any(|name| matches!(name, "tests" | "tests.rs" | "model.rs" | "e2e" | "tidy" | "tidy.rs"))
}

/// Every Rust source of the workspace.
fn sources() -> Vec<PathBuf> {
    files(&["protocol", "crates", "daemon", "tests"], ".rs")
}

/// A check passes when it found nothing.
fn assert_clean(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
