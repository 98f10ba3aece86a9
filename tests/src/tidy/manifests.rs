//! Who may use whom, and whose work we build on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{assert_clean, read, root};
use crate::binaries;

/// The whole map of the house: a package and what it may use of ours. `xtask` may use any.
const MAY_USE: &[(&str, &[&str])] = &[
    ("procd-protocol", &[]),
    ("procd-core", &[]),
    ("procd-text", &[]),
    ("procd-sys", &["procd-core"]),
    ("procd-store", &["procd-core"]),
    ("procd-client", &["procd-protocol"]),
    ("procctl", &["procd-client", "procd-protocol"]),
    ("procd-mcp", &["procd-client", "procd-protocol"]),
    ("procd-bench", &["procd-client", "procd-protocol", "procd-text"]),
    ("procd-fuzz", &["procd-protocol", "procd-text", "procd-store"]),
    ("procd-guards", &["procd-protocol", "procd-core", "procd-text"]),
    ("procd", &["procd-protocol", "procd-core", "procd-text", "procd-sys", "procd-store"]),
    ("procd-tests", &["procd-client", "procd-protocol"]),
];

/// What a pure or sans-I/O package must not use, of anybody's.
const MUST_NOT_USE: &[(&str, &[&str])] = &[
    ("procd-core", &["serde", "serde_json", "tokio", "jiff", "rustix", "nix", "libc"]),
    ("procd-text", &["serde", "tokio", "rustix", "nix", "libc"]),
    ("procd-protocol", &["tokio", "tokio-util", "rustix", "nix", "libc"]),
    ("procd-store", &["tokio", "tokio-util", "nix", "libc"]),
    ("procd-sys", &["tokio", "tokio-util"]),
];

const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "0BSD",
    "BSL-1.0",
    "CC0-1.0",
    "MIT-0",
];

/// Names of optional or foreign-platform use only; the list of what is really built is Cargo.lock.
fn metadata() -> Value {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let mut command = binaries::command(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root());
    let output = command.output().expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON of cargo metadata")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Package to the names of its dependencies outside tests.
fn edges(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata["packages"].as_array().unwrap();
    let ours = packages.iter().filter(|package| package["source"].is_null());
    ours.map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let used = dependencies.filter(|dependency| dependency["kind"] != "dev");
        (
            text(package, "name").to_owned(),
            used.map(|dependency| text(dependency, "name").to_owned()).collect(),
        )
    })
    .collect()
}

#[test]
fn packages_use_only_what_the_map_of_the_house_allows() {
    let edges = edges(&metadata());
    let ours: BTreeSet<_> = edges.keys().cloned().collect();
    let mut findings = Vec::new();
    for (package, used) in edges.iter().filter(|(package, _)| *package != "xtask") {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| name == package) else {
            findings.push(format!("{package} is not in the map"));
            continue;
        };
        let foreign =
            used.iter().filter(|name| ours.contains(*name) && !allowed.contains(&name.as_str()));
        findings.extend(foreign.map(|name| format!("{package} -> {name}")));
    }
    assert_clean("edges that the map of the house does not have", &findings);
}

#[test]
fn pure_packages_use_nothing_that_does_io() {
    let edges = edges(&metadata());
    let mut findings = Vec::new();
    for (package, forbidden) in MUST_NOT_USE {
        let used = edges.get(*package).unwrap_or_else(|| panic!("no package {package}"));
        findings.extend(
            forbidden
                .iter()
                .filter(|name| used.contains(**name))
                .map(|name| format!("{package} -> {name}")),
        );
    }
    assert_clean("forbidden dependencies", &findings);
}

#[test]
fn every_dependency_has_a_known_source_and_a_permissive_licence() {
    let metadata = metadata();
    let mut findings = Vec::new();
    for package in metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| !package["source"].is_null())
    {
        let (name, source, licence) =
            (text(package, "name"), text(package, "source"), text(package, "license"));
        if !source.starts_with("registry+https://github.com/rust-lang/crates.io-index") {
            findings.push(format!("{name} comes from {source}"));
        }
        if !may_be_used(licence) {
            findings.push(format!("{name} is under `{licence}`"));
        }
    }
    assert_clean("sources and licences", &findings);
}

/// At least one alternative of which every part is permissive.
fn may_be_used(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain
        .split(" OR ")
        .any(|choice| choice.split(" AND ").all(|part| LICENCES.contains(&part.trim())))
}

#[test]
fn every_dependency_has_its_reason_beside_it_and_its_version_in_one_place() {
    let manifest = read("Cargo.toml".as_ref());
    let table =
        manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let lines: Vec<_> = table.lines().filter(|line| !line.is_empty()).collect();
    let mut findings = Vec::new();
    for pair in lines.windows(2) {
        let is_ours = pair[1].contains("path = ");
        // A family of packages shares the reason of its first: serde and serde_json.
        let family = pair[0].split(' ').next().unwrap_or_default();
        let has_reason = pair[0].starts_with('#') || pair[1].starts_with(family);
        if !pair[1].starts_with('#') && !is_ours && !has_reason {
            findings.push(pair[1].to_owned());
        }
    }
    for manifest in super::files(&["protocol", "crates", "daemon", "tests"], "Cargo.toml") {
        let text = read(&manifest);
        let tables =
            text.split("dependencies]\n").skip(1).flat_map(|table| table.split("\n[").next());
        let lines =
            tables.flat_map(str::lines).filter(|line| line.contains('=') && !line.starts_with('#'));
        let own =
            lines.filter(|line| !line.contains("workspace = true") && line.contains("version"));
        findings.extend(own.map(|line| format!("{}: {line}", manifest.display())));
    }
    assert_clean("dependencies without a reason, or with a version of their own", &findings);
}

#[test]
fn every_package_inherits_the_lints_and_the_licence() {
    let mut findings = Vec::new();
    for manifest in super::files(&["protocol", "crates", "daemon", "tests"], "Cargo.toml") {
        let text = read(&manifest);
        for wanted in
            ["[lints]\nworkspace = true", "license.workspace = true", "version.workspace = true"]
        {
            if !text.contains(wanted) {
                findings.push(format!(
                    "{}: no `{}`",
                    manifest.display(),
                    wanted.replace('\n', " ")
                ));
            }
        }
    }
    assert_clean("manifests that do not inherit", &findings);
}
