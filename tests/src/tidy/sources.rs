//! The shape of files.

use std::path::Path;

use super::{assert_clean, is_test, read, root, sources};

/// Lines a file may have without its tests.
const LINES_MAX: usize = 600;

/// A file's code: without its tests at the foot, and nothing of files that are tests.
fn code(path: &Path) -> String {
    let text = read(path);
    if is_test(path) {
        return String::new();
    }
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[test]
fn files_stay_within_600_lines_without_tests() {
    let long = sources().into_iter().filter_map(|path| {
        let lines = code(&path).lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_clean("files that are too long", &long.collect::<Vec<_>>());
}

#[test]
fn no_file_is_named_mod() {
    let named = sources().into_iter().filter(|path| path.ends_with("mod.rs"));
    assert_clean(
        "use `name.rs` and `name/`",
        &named.map(|path| path.display().to_string()).collect::<Vec<_>>(),
    );
}

/// Root files of every library and binary.
fn roots() -> Vec<std::path::PathBuf> {
    let is_root = |path: &Path| {
        path.ends_with("src/lib.rs")
            || path.ends_with("src/main.rs")
            || path.parent().is_some_and(|folder| folder.ends_with("src/bin"))
    };
    sources().into_iter().filter(|path| is_root(path)).collect()
}

#[test]
fn unsafe_code_is_forbidden_in_every_root_but_that_of_procd_sys() {
    let findings: Vec<_> = roots()
        .into_iter()
        .filter(|path| !path.starts_with("crates/procd-sys"))
        .filter(|path| !read(path).contains("#![forbid(unsafe_code)]"))
        .map(|path| path.display().to_string())
        .collect();
    assert_clean("roots without `#![forbid(unsafe_code)]`", &findings);
    assert!(root().join("crates/procd-sys/src/lib.rs").is_file());
}

#[test]
fn every_module_opens_with_what_it_is_for() {
    let findings: Vec<_> = sources()
        .into_iter()
        .filter(|path| !is_test(path))
        .filter(|path| {
            let text = read(path);
            let mut lines =
                text.lines().filter(|line| !line.starts_with("#![") && !line.is_empty());
            !lines
                .next()
                .is_some_and(|line| line.starts_with("//!") && !line.contains("To be replaced"))
        })
        .map(|path| path.display().to_string())
        .collect();
    assert_clean("modules without a header", &findings);
}

#[test]
fn exceptions_from_lints_have_a_reason_and_sleeps_are_not_among_them_in_tests() {
    let mut findings = Vec::new();
    for path in sources() {
        let text = read(&path);
        let is_this = path.ends_with("tidy/sources.rs");
        if !is_this && (text.contains("#[allow(") || text.contains("#![allow(")) {
            findings.push(format!("{}: `allow`; use `expect` with a reason", path.display()));
        }
        if path.starts_with("tests") && !is_this && text.contains("thread::sleep") {
            findings.push(format!("{}: a test that sleeps", path.display()));
        }
    }
    assert_clean("exceptions", &findings);
}
