//! The rooms of the daemon: data goes down, only values come back up.

use std::path::{Path, PathBuf};

use super::{assert_clean, files, is_test, read};

/// From top to bottom: a module imports only from those behind it.
const ROOMS: &[&str] = &[
    "main",
    "lib",
    "socket",
    "connection",
    "request",
    "session",
    "supervisor",
    "recovery",
    "process",
    "drain",
];
/// What every room may import.
const COMMON: &[&str] = &["config", "clock", "failpoint", "lane", "metrics", "watched"];

/// The one seam that points up: `process` fills the runner trait that `supervisor` knows it by, and answers in its values.
const SEAM: &[&str] = &["crate::supervisor::runner", "crate::supervisor::refusal"];

/// The room a file of the daemon is in.
fn room(path: &Path) -> String {
    let first = path.strip_prefix("daemon/src").unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

fn daemon() -> Vec<PathBuf> {
    files(&["daemon/src"], ".rs")
}

/// Lines of code with their comments and the tests at the foot cut off.
fn lines(path: &Path) -> Vec<String> {
    let text = read(path);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned()).collect()
}

/// Modules named behind `crate::`, in imports and in paths.
fn named(line: &str) -> Vec<String> {
    let name = |rest: &str| {
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    line.split("crate::")
        .skip(1)
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(list) => list.split(',').map(|item| name(item.trim_start())).collect(),
            None => vec![name(rest)],
        })
        .collect()
}

#[test]
fn daemon_modules_import_only_modules_below_them() {
    let mut findings = Vec::new();
    for path in daemon() {
        let own = room(&path);
        if COMMON.contains(&own.as_str()) {
            let upward = lines(&path)
                .iter()
                .flat_map(|line| named(line))
                .filter(|name| ROOMS.contains(&name.as_str()))
                .collect::<Vec<_>>();
            findings.extend(upward.iter().map(|name| format!("{}: `{name}`", path.display())));
            continue;
        }
        let Some(place) = ROOMS.iter().position(|room| *room == own) else {
            findings.push(format!("{}: a room that the house does not have", path.display()));
            continue;
        };
        let seam = if own == "process" { SEAM } else { &[] };
        let below_seam =
            |line: &String| seam.iter().fold(line.clone(), |line, path| line.replace(path, ""));
        for name in lines(&path).iter().map(below_seam).flat_map(|line| named(&line)) {
            if ROOMS[..place].contains(&name.as_str()) {
                findings.push(format!("{}: `{name}`", path.display()));
            }
        }
    }
    assert_clean("imports that go up", &findings);
}

/// Files of the daemon outside `rooms` whose code has one of `words`.
fn outside(rooms: &[&str], words: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for path in
        daemon().into_iter().filter(|path| !rooms.contains(&room(path).as_str()) && !is_test(path))
    {
        for (number, line) in lines(&path).iter().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                findings.push(format!("{}:{}: `{word}`", path.display(), number + 1));
            }
        }
    }
    findings
}

#[test]
fn only_connection_and_request_name_wire_types() {
    let mut findings = outside(&["connection", "request"], &["procd_protocol"]);
    // Two rules that daemon and clients share, and no wire types: where the files are, and which
    // variables hijack a program.
    let shared = ["daemon/src/config/places.rs", "daemon/src/process/environment.rs"];
    findings.retain(|finding| !shared.iter().any(|path| finding.starts_with(path)));
    assert_clean("wire types elsewhere", &findings);
}

#[test]
fn only_process_signals() {
    let words = ["kill_process", "pidfd_send_signal", "cgroup.kill", "libc::kill"];
    assert_clean("signals elsewhere", &outside(&["process"], &words));
}

#[test]
fn the_daemon_never_starts_a_process_itself() {
    assert_clean(
        "processes started by the daemon",
        &outside(&[], &["process::Command", "tokio::process", "fork(", "clone3"]),
    );
}

/// Sources of a package that have one of `words` in their code.
fn with_words(folder: &str, words: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for path in files(&[folder], ".rs").into_iter().filter(|path| !is_test(path)) {
        let code = lines(&path).join("\n");
        findings.extend(
            words
                .iter()
                .filter(|word| code.contains(**word))
                .map(|word| format!("{}: `{word}`", path.display())),
        );
    }
    findings
}

#[test]
fn core_and_text_know_no_clock_no_file_and_no_thread() {
    let words = [
        "std::time::Instant",
        "SystemTime",
        "std::fs",
        "std::net",
        "std::thread",
        "std::io",
        "std::env",
        "serde",
    ];
    for folder in ["crates/procd-core/src", "crates/procd-text/src"] {
        assert_clean("in pure code", &with_words(folder, &words));
    }
}

#[test]
fn the_protocol_does_no_io() {
    let words = [
        "tokio::",
        "std::fs",
        "std::net",
        "std::os::fd",
        "std::os::unix::net",
        "std::thread",
        "Instant",
        "SystemTime",
    ];
    assert_clean("in the protocol", &with_words("protocol/src", &words));
}

#[test]
fn the_store_reads_no_clock() {
    assert_clean(
        "in the store",
        &with_words(
            "crates/procd-store/src",
            &["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now"],
        ),
    );
}

#[test]
fn queues_are_bounded() {
    let mut findings = Vec::new();
    for folder in ["daemon/src", "crates", "protocol/src"] {
        findings.extend(with_words(
            folder,
            &[
                "unbounded_channel",
                "mpsc::channel()",
                "flume::unbounded",
                "async_channel::unbounded",
            ],
        ));
    }
    findings.retain(|finding| !finding.contains("/tests"));
    assert_clean("unbounded queues", &findings);
}
