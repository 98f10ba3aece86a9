//! Sessions that are opened, used and closed: nothing of theirs lives on, and what is purged is gone.

use serde_json::json;

use super::{
    stage::Stage,
    trees::{gone, in_folder, own_folder},
};
use crate::faults::seed::Seed;

/// Closed sessions that are kept to be read later, a count.
const CLOSED_MAX: usize = 12;

/// Opens and closes sessions.
pub(super) fn sessions(stage: &Stage, _: &'static str, mut seed: Seed) {
    while !stage.is_over() {
        if one(stage, &mut seed).is_none() && !stage.is_over() {
            stage.rest(100);
        }
    }
}

fn one(stage: &Stage, seed: &mut Seed) -> Option<()> {
    let mut line = stage.opened(json!({"label": "churn"}))?;
    let folder = own_folder(&stage.own, seed);
    let lines = [
        "echo up; exec sleep 600",
        "setsid sleep 600 & echo up; wait",
        "trap '' TERM INT HUP; echo up; while :; do sleep 1; done",
        "echo up",
    ];
    let mut started = Vec::new();
    for _ in 0..1 + seed.below(3) {
        let argv = ["sh", "-c", *seed.choose(&lines)];
        let process = line.background(&argv, in_folder(&folder, json!({})))?;
        started.extend((!process.is_empty()).then_some(process));
    }
    let lease = json!({"root": folder, "kind": "snapshot"});
    line.ok("lease/acquire", lease)?;
    let is_purge = seed.below(3) > 0 || stage.book().closed.len() >= CLOSED_MAX;
    let opened = line.owner.opened.clone();
    let id = opened["session_id"].as_str().unwrap_or_default().to_owned();
    let params = json!({"scope": "session", "purge": is_purge, "grace_ms": seed.below(300)});
    let closed = line.ok("session/close", params)?;
    if closed.is_null() {
        return None;
    }
    gone(stage, &folder, &closed);
    drop(std::fs::remove_dir(&folder));
    let mut book = stage.book();
    book.count("sessions closed", 1);
    if closed["failures"].as_array().is_none_or(|failures| !failures.is_empty()) {
        book.wrong(format!("a close that failed: {closed}"));
    }
    if is_purge {
        book.purged.insert(id);
    } else {
        book.closed.push(opened);
    }
    Some(())
}
