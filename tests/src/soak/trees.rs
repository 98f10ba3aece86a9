//! Trees that fork, detach, ignore signals and leave others behind: none outlives the word that it has ended.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::stage::{Line, Stage, is_terminal};
use crate::{binaries, faults::seed::Seed, leaks};

/// A tree: what runs, and what its start asks for beside.
fn kinds() -> Vec<(Vec<String>, Value)> {
    let probe = binaries::probe();
    let words = |words: &[&str]| -> Vec<String> {
        [probe.as_str()].iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    let shell = |line: &str| vec!["sh".to_owned(), "-c".to_owned(), line.to_owned()];
    vec![
        (words(&["tree", "2", "2", "600"]), json!({})),
        (words(&["ignore-term", "600"]), json!({"stdin": "pipe"})),
        (words(&["ignore-term", "600"]), json!({"timeout_ms": 300})),
        (words(&["detach", "600"]), json!({"on_leader_exit": "keep_tree"})),
        (words(&["detach", "600"]), json!({})),
        (words(&["leave", "600"]), json!({})),
        (shell("setsid sleep 600 & echo up; exec sleep 600"), json!({"tty": true})),
        (shell("trap '' TERM INT HUP; echo up; while :; do sleep 1; done"), json!({})),
        (shell("echo up; sleep 600 & exec sleep 600"), json!({"timeout_ms": 200})),
    ]
}

/// Starts trees, each in a folder of its own, and ends them in every way.
pub(super) fn grow(stage: &Stage, name: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(name) else { return };
    let kinds = kinds();
    while !stage.is_over() {
        let folder = own_folder(&stage.own, &mut seed);
        let (argv, more) = seed.choose(&kinds).clone();
        if one(&mut line, &folder, &argv, more, &mut seed).is_none() {
            return;
        }
    }
}

/// A folder whose name is part of no other's.
pub(super) fn own_folder(root: &Path, seed: &mut Seed) -> PathBuf {
    let folder = root.join(format!("t-{:016x}-", seed.next()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The parameters by which a tree is known as that of its folder, wherever it goes.
pub(super) fn in_folder(folder: &Path, more: Value) -> Value {
    let mut params = json!({"cwd": folder, "env": {"PROCD_SOAK_FOLDER": folder}});
    crate::owner::merge(&mut params, more);
    params
}

fn one(
    line: &mut Line<'_>,
    folder: &Path,
    argv: &[String],
    more: Value,
    seed: &mut Seed,
) -> Option<()> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let has_deadline = more.get("timeout_ms").is_some();
    let process = line.background(&argv, in_folder(folder, more))?;
    if process.is_empty() {
        line.stage.rest(100);
        return Some(());
    }
    if seed.below(4) > 0 {
        line.output(&process, json!({"wait": "any", "timeout_ms": 400}))?;
    }
    if !has_deadline {
        stop(line, &process, seed)?;
    }
    let entry = line.until_ended(&process)?;
    gone(line.stage, folder, &entry);
    drop(std::fs::remove_dir(folder));
    Some(())
}

fn stop(line: &mut Line<'_>, process: &str, seed: &mut Seed) -> Option<()> {
    // An interrupt is no promise: what ignores it is ended afterwards.
    let modes: &[&str] = match seed.below(4) {
        0 => &["interrupt", "kill"],
        1 => &["kill"],
        _ => &["terminate"],
    };
    for mode in modes {
        let params = json!({"process_id": process, "mode": mode, "grace_ms": seed.below(300)});
        let result = line.ok("process/stop", params)?;
        line.stage.count("stops answered");
        if is_terminal(&result) {
            line.told_end(process, &result);
        }
    }
    Some(())
}

/// Laws 2 and 5: once the end was told, nothing of the tree lives.
pub(super) fn gone(stage: &Stage, folder: &Path, told: &Value) {
    let left = leaks::processes(folder);
    let mut book = stage.book();
    book.count("trees proven empty", 1);
    if !left.is_empty() {
        book.wrong(format!("{left:?} outlives the end that was told: {told}"));
    }
}
