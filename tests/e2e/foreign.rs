//! Nothing of another owner can be learned: a foreign, a removed and a made-up handle are one and the same, in the reply byte for
//! byte and in the work of the daemon. Law 1.

use std::{collections::BTreeMap, fs, path::Path, process::Stdio, time::Duration};

use procd_tests::{Daemon, Owner, Setup, Tier, binaries, owner::handle, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// Well formed, and of nobody.
const RANDOM: &str = "q83vASNFZ4mrze8BI0VniQ";
const OTHER: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

/// Every call that names a process, with parameters that are right.
fn calls(process: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("process/output", json!({"process_id": process})),
        ("process/output", json!({"process_id": process, "wait": "exit", "timeout_ms": 1})),
        (
            "process/output",
            json!({"process_ids": [process, OTHER], "wait": "any", "timeout_ms": 1}),
        ),
        ("process/output", json!({"process_id": process, "tail_lines": 3})),
        (
            "process/output",
            json!({"process_id": process, "cursor": 1_u64 << 40, "on_gap": "error"}),
        ),
        (
            "process/output",
            json!({"process_id": process, "wait": {"until": {"match": "x"}}, "timeout_ms": 1}),
        ),
        ("process/search", json!({"process_id": process, "pattern": "x"})),
        ("process/export", json!({"process_id": process})),
        ("process/input", json!({"process_id": process, "data": "x"})),
        ("process/input", json!({"process_id": process, "eof": true, "flush_ms": 1})),
        ("process/input", json!({"process_id": process, "rows": 1, "cols": 1})),
        ("process/signal", json!({"process_id": process, "signal": "SIGUSR1"})),
        ("process/signal", json!({"process_id": process, "signal": 10, "target": "tree"})),
        ("process/stop", json!({"process_id": process, "mode": "kill"})),
        ("process/stop", json!({"process_id": process, "mode": "interrupt", "grace_ms": 0})),
        ("process/inspect", json!({"process_id": process})),
        ("process/remove", json!({"process_id": process})),
        ("process/pin", json!({"process_id": process, "pinned": true})),
    ]
}

/// The last frame without its id, which counts up, and the handle that was asked for.
fn bare(frame: &str, process: &str) -> String {
    let frame = frame.replace(process, "HANDLE");
    let Some((before, rest)) = frame.split_once("\"id\":") else { return frame };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}\"id\":{rest}")
}

struct Scene {
    daemon: Daemon,
    caller: Owner,
    /// What the caller asks for: another session's running and ended ones, another loop's, its own removed one, nobody's.
    handles: Vec<(&'static str, String)>,
    /// Held so that what it runs is not touched by an end of its connection.
    _others: [Owner; 2],
}

fn scene(tier: Tier) -> Scene {
    let daemon = Setup::new(tier).start();
    let mut other = daemon.owner();
    let mut caller = daemon.owner();
    let mut sibling = caller.attach_as(daemon.connect(), json!(uuid::Uuid::new_v4()));
    let running = other.background(&[&binaries::probe(), "sleep", "600"]);
    let ended = handle(&other.start(&["true"], json!({})));
    let of_loop = sibling.background(&[&binaries::probe(), "sleep", "600"]);
    let removed = handle(&caller.start(&["true"], json!({})));
    wait::until_true("it is sealed", LIMIT, || caller.record(&removed)["spool_state"] == "sealed");
    caller.wire.ok("process/remove", json!({"process_id": removed}));
    let handles = vec![
        ("random", RANDOM.to_owned()),
        ("running, of another session", running),
        ("ended, of another session", ended),
        ("of another loop", of_loop),
        ("removed", removed),
    ];
    Scene { daemon, caller, handles, _others: [other, sibling] }
}

both_tiers! {
    fn every_method_answers_them_alike_byte_for_byte(tier) {
        let mut scene = scene(tier);
        let mut expected = Vec::new();
        for (what, process) in &scene.handles {
            for (at, (method, params)) in calls(process).into_iter().enumerate() {
                drop(scene.caller.wire.call(method, params.clone()));
                let frame = bare(&scene.caller.wire.last_frame, process);
                assert!(frame.contains("not_found"), "{what}: {method} {params}: {frame}");
                match expected.get(at) {
                    None => expected.push(frame),
                    Some(wanted) => assert_eq!(&frame, wanted, "{what}: {method} {params}"),
                }
            }
        }
        // And nobody was hurt.
        let [other, sibling] = &mut scene._others;
        for owner in [other, sibling] {
            assert!(owner.list().iter().any(|record| record["state"] == "running"));
        }
    }

    /// Sessions and what else has a name of its own: a foreign one is answered as one that never was.
    fn sessions_leases_and_notifications_are_no_better_known(tier) {
        let daemon = Setup::new(tier).start();
        let mut other = daemon.owner();
        let mut caller = daemon.owner();
        other.start(&["true"], json!({}));
        let lease = other.wire.ok("lease/acquire", json!({"root": daemon.cwd(), "kind": "snapshot"}));
        let pairs = [
            ("lease/release", json!({"lease_id": lease["lease_id"]}), json!({"lease_id": uuid::Uuid::new_v4()})),
        ];
        for (method, foreign, random) in pairs {
            let mut frames = [foreign, random].map(|params| {
                drop(caller.wire.call(method, params).expect_err(method));
                bare(&caller.wire.last_frame, "-")
            });
            frames.sort();
            assert_eq!(frames[0], frames[1], "{method}");
        }
        // The key of another session, of the right form, and a session that is not there.
        let key = caller.opened["session_key"].clone();
        let attach = |session: Value, loop_id: Value| {
            let mut wire = daemon.connect();
            let params = json!({"session_id": session, "loop_id": loop_id, "session_key": key});
            wire.call("session/attach", params).expect_err("another's session");
            wire.last_frame
        };
        let opened = &other.opened;
        let foreign = attach(opened["session_id"].clone(), opened["loop_id"].clone());
        let random = attach(json!(uuid::Uuid::new_v4()), json!(uuid::Uuid::new_v4()));
        assert_eq!(foreign, random);
    }
}

/// How often each system call was made while `work` ran; which waits and wakes there were is the scheduler's own.
fn traced(daemon: &Daemon, work: impl FnOnce()) -> Option<BTreeMap<String, u64>> {
    let file = daemon.path().join("trace-of-calls");
    drop(fs::remove_file(&file));
    let mut strace = binaries::command("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&file).args(["-p", &daemon.pid().to_string()]);
    let mut strace = strace.stderr(Stdio::piped()).spawn().ok()?;
    // It is attached when the kernel says so.
    let is_traced = || {
        let status =
            fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    let deadline = wait::Deadline::after(LIMIT);
    while !is_traced() {
        if strace.try_wait().ok()?.is_some() || deadline.left().is_none() {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    work();
    let pid = i32::try_from(strace.id()).ok().and_then(rustix::process::Pid::from_raw)?;
    rustix::process::kill_process(pid, rustix::process::Signal::INT).ok()?;
    strace.wait().ok()?;
    Some(counts(&file))
}

fn counts(file: &Path) -> BTreeMap<String, u64> {
    // A write wakes a thread; replies go by sendto.
    const OF_THE_SCHEDULER: &[&str] = &[
        "write",
        "futex",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "sched_yield",
        "restart_syscall",
    ];
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let Some((name, _)) = call.split_once('(') else { continue };
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_name && !OF_THE_SCHEDULER.contains(&name) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// The system calls of a flood of each kind, arguments aside. A few more or less are a socket that was read in two pieces, or a
/// clock; another look at a file would be as many as there are requests.
#[test]
fn the_daemon_does_the_same_work_for_them() {
    const TIMES: u64 = 40;
    let mut scene = scene(Tier::Shim);
    let mut told: Vec<(&str, BTreeMap<String, u64>)> = Vec::new();
    for (what, process) in scene.handles.clone() {
        let wire = &mut scene.caller.wire;
        let counts = traced(&scene.daemon, || {
            for _ in 0..TIMES {
                for (method, params) in calls(&process) {
                    drop(wire.call(method, params));
                }
            }
        });
        match counts {
            Some(counts) => told.push((what, counts)),
            None => {
                println!("skipped: no strace here, or it may not look");
                return;
            }
        }
    }
    let (_, wanted) = &told[0];
    println!("{} requests of each kind: {wanted:?}", TIMES * calls(RANDOM).len() as u64);
    for (what, counts) in &told[1..] {
        let names: std::collections::BTreeSet<_> = wanted.keys().chain(counts.keys()).collect();
        for name in names {
            let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
            let difference = of(wanted).abs_diff(of(counts));
            assert!(
                difference < TIMES,
                "{what}: {name} {} times, of a random one {}",
                of(counts),
                of(wanted)
            );
        }
    }
}
