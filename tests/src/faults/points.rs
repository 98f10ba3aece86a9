//! The named points, as the sources have them, and the phase each belongs to.

use std::{collections::BTreeSet, fs, path::Path};

/// The names of all points in the daemon's and the store's sources.
/// # Panics
/// When the sources are not there.
#[must_use]
pub fn all() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut waiting = vec![root.join("daemon/src"), root.join("crates/procd-store/src")];
    let mut names = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(path).unwrap();
            for call in ["failpoint::hit(\"", "failpoint::fail(\""] {
                let calls = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                names.extend(calls.map(str::to_owned));
            }
        }
    }
    names
}

/// The phases of a daemon's work, each by how the names of its points begin.
pub const PHASES: &[(&str, &[&str])] = &[
    ("restore", &["restore-", "quarantine-", "lost-"]),
    ("session", &["session-"]),
    ("admission", &["start-", "plan-"]),
    ("spawn", &["spawn-"]),
    ("event", &["event-"]),
    ("append", &["log-before-write"]),
    ("sync", &["log-before-sync", "log-after-sync"]),
    ("end", &["end-"]),
    ("output", &["spool-"]),
    ("seal", &["seal"]),
    ("manifest", &["manifest-", "file-"]),
    ("removal", &["removal-", "eviction-"]),
    ("snapshot", &["snapshot-"]),
    ("parts", &["part-", "ballast-"]),
    ("notification", &["offer-", "ack-"]),
];

/// The phase of a point; `none` before the first one was passed.
#[must_use]
pub fn phase(point: &str) -> &'static str {
    let of = |(_, starts): &&(&str, &[&str])| starts.iter().any(|start| point.starts_with(start));
    PHASES.iter().find(of).map_or("none", |(name, _)| name)
}
