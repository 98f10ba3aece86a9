//! Who may write where: the table on the wire, paths as they really are, and every way by which a claim ends.

use std::{fs, os::unix::fs::symlink, path::Path};

use procd_tests::{Daemon, Owner, Setup, Tier, owner::handle, wait};
use serde_json::{Value, json};

/// The kinds of claims, in the order of the table.
const KINDS: [&str; 5] =
    ["read_only", "scoped_write", "broad_write", "structured_write", "snapshot"];
/// Whether two go together on one root: yes, no, or if their paths are apart.
const TABLE: [[char; 5]; 5] = [
    ['y', 'y', 'y', 'y', 'y'],
    ['y', 'd', 'n', 'd', 'n'],
    ['y', 'n', 'n', 'n', 'n'],
    ['y', 'd', 'n', 'd', 'n'],
    ['y', 'n', 'n', 'n', 'y'],
];

/// What was taken.
#[derive(Debug)]
enum Held {
    Process(String),
    Lease(Value),
}

/// Takes a claim at once, or the error.
fn take(owner: &mut Owner, kind: &str, root: &Path, paths: &[&str]) -> Result<Held, Value> {
    let is_clients = ["structured_write", "snapshot"].contains(&kind);
    let word = if is_clients { "kind" } else { "access" };
    let mut claim = json!({"root": root, word: kind});
    if kind == "scoped_write" || (kind == "structured_write" && !paths.is_empty()) {
        claim["paths"] = json!(paths);
    }
    if is_clients {
        let lease = owner.wire.call("lease/acquire", claim)?;
        return Ok(Held::Lease(lease["lease_id"].clone()));
    }
    let more = json!({"background": true, "workspace": claim});
    let params = owner.start_params(&["sleep", "600"], more);
    owner.wire.call("process/start", params).map(|entry| Held::Process(handle(&entry)))
}

fn give(owner: &mut Owner, held: Held) {
    match held {
        Held::Process(process) => {
            owner.stop(&process, "kill", 0);
        }
        Held::Lease(id) => {
            owner.wire.ok("lease/release", json!({"lease_id": id}));
        }
    }
}

fn daemon() -> Daemon {
    let daemon = Setup::new(Tier::Shim).limit("retained_session_max = 1000").start();
    for folder in ["work/src/deep", "work/doc", "work2"] {
        fs::create_dir_all(daemon.cwd().join(folder)).unwrap();
    }
    symlink(daemon.cwd().join("work"), daemon.cwd().join("link")).unwrap();
    daemon
}

#[test]
fn two_sessions_meet_as_the_table_says() {
    let daemon = daemon();
    let root = daemon.cwd().join("work");
    let (mut one, mut two) = (daemon.owner(), daemon.owner());
    for (first, row) in KINDS.into_iter().zip(TABLE) {
        for (second, wanted) in KINDS.into_iter().zip(row) {
            for (paths, is_apart) in [(["src", "src/deep"], false), (["src", "doc"], true)] {
                let what = format!("{first} {second} {paths:?}");
                let held = take(&mut one, first, &root, &paths[..1]).expect(&what);
                let met = take(&mut two, second, &root, &paths[1..]);
                let may = wanted == 'y' || (wanted == 'd' && is_apart);
                assert_eq!(met.is_ok(), may, "{what}");
                match met {
                    Ok(met) => give(&mut two, met),
                    Err(error) => {
                        assert_eq!(error["code"], "workspace_busy", "{what}");
                        // Nothing of another owner.
                        assert_eq!(error["details"], json!({}), "{what}");
                        if let Held::Process(process) = &held {
                            assert!(!error.to_string().contains(process.as_str()), "{what}");
                        }
                    }
                }
                give(&mut one, held);
                let met = take(&mut two, second, &root, &paths[1..]).expect(&what);
                give(&mut two, met);
            }
        }
    }
}

#[test]
fn roots_are_compared_where_they_really_are() {
    let daemon = daemon();
    let cwd = daemon.cwd();
    let (mut one, mut two) = (daemon.owner(), daemon.owner());
    let held = take(&mut one, "broad_write", &cwd.join("work"), &[]).unwrap();
    for (path, may) in [
        ("link", false),
        ("link/src", false),
        ("work/src/../../work", false),
        ("work2/../link/doc", false),
        ("", false),
        ("work2", true),
    ] {
        let met = take(&mut two, "snapshot", &cwd.join(path), &[]);
        assert_eq!(met.is_ok(), may, "{path}");
        if let Ok(met) = met {
            give(&mut two, met);
        }
    }
    give(&mut one, held);
    // Paths of a claim follow links too.
    symlink("src", cwd.join("work/also")).unwrap();
    let held = take(&mut one, "scoped_write", &cwd.join("work"), &["also"]).unwrap();
    assert!(take(&mut two, "structured_write", &cwd.join("work"), &["src/deep"]).is_err());
    assert!(take(&mut two, "structured_write", &cwd.join("work"), &[]).is_err());
    let met = take(&mut two, "structured_write", &cwd.join("link"), &["doc/../doc"]);
    give(&mut two, met.unwrap());
    give(&mut one, held);
}

/// Held by nobody, and given back no more than once: one writer may have it, a second not.
fn is_free_once(daemon: &Daemon, what: &str) {
    let root = daemon.cwd().join("work");
    let (mut one, mut two) = (daemon.owner(), daemon.owner());
    let mut held = None;
    wait::until_true(&format!("free after {what}"), wait::STEP, || {
        held = take(&mut one, "broad_write", &root, &[]).ok();
        held.is_some()
    });
    assert!(take(&mut two, "structured_write", &root, &[]).is_err(), "{what}");
    give(&mut one, held.unwrap());
}

fn free(owner: &mut Owner) -> Value {
    owner.wire.ok("process/list", json!({"limit": 1}))["free"].take()
}

#[test]
fn a_claim_ends_once_on_every_way_of_a_start() {
    let daemon = daemon();
    let root = daemon.cwd().join("work");
    let mut owner = daemon.owner_with(json!({"quotas": {"running_loop_max": 1}}));
    let before = free(&mut owner);
    let claim = json!({"root": root, "access": "broad_write"});
    let long = ["sleep", "600"];
    let missing = daemon.cwd().join("missing");
    let ways = [
        ("an exit", vec!["true"], json!({}), None),
        ("a failed spawn", vec!["/no/such/program"], json!({}), Some("spawn_failed")),
        ("a missing folder", vec!["true"], json!({"cwd": missing}), Some("spawn_failed")),
        ("a deadline", long.to_vec(), json!({"timeout_ms": 100, "grace_ms": 100}), None),
        (
            "a refused parameter",
            long.to_vec(),
            json!({"tty": {"cols": 0, "rows": 0}}),
            Some("invalid_arguments"),
        ),
        ("a dry run", long.to_vec(), json!({"dry_run": true}), None),
    ];
    for (what, argv, mut more, refused) in ways {
        more["workspace"] = claim.clone();
        if what == "a deadline" {
            more = json!({"timeout_ms": 100, "workspace": claim});
        }
        let params = owner.start_params(&argv, more);
        let answer = owner.wire.call("process/start", params);
        match refused {
            Some(code) => assert_eq!(answer.unwrap_err()["code"], code, "{what}"),
            None => drop(answer.unwrap()),
        }
        is_free_once(&daemon, what);
        assert_eq!(free(&mut owner), before, "{what}");
    }
    for mode in ["kill", "terminate"] {
        let held = take(&mut owner, "broad_write", &root, &[]).unwrap();
        let Held::Process(process) = held else { panic!("a process") };
        owner.stop(&process, mode, 100);
        is_free_once(&daemon, mode);
        assert_eq!(free(&mut owner), before, "{mode}");
    }
    // A full loop refuses, also after a wait, and one that waits is dropped with its connection.
    let running = owner.background(&long);
    let claiming = |more: Value| {
        let mut claiming = json!({"workspace": claim});
        procd_tests::owner::merge(&mut claiming, more);
        claiming
    };
    for (what, more) in [("a refusal", json!({})), ("a wait", json!({"queue_timeout_ms": 50}))] {
        let params = owner.start_params(&long, claiming(more));
        owner.wire.refused("process_quota_exceeded", "process/start", params);
        is_free_once(&daemon, what);
    }
    let mut waiting = owner.attach(daemon.connect());
    let params = waiting.start_params(&long, claiming(json!({"queue_timeout_ms": 600_000})));
    waiting.wire.send("process/start", params);
    drop(waiting);
    is_free_once(&daemon, "a connection that went");
    owner.stop(&running, "kill", 0);
    assert_eq!(free(&mut owner), before);
    // The end of its session.
    drop(take(&mut owner, "broad_write", &root, &[]).unwrap());
    owner.wire.ok("session/close", json!({"scope": "session"}));
    is_free_once(&daemon, "a closed session");
}

#[test]
fn a_clients_lease_ends_by_its_release_its_connection_and_its_daemon() {
    let mut daemon = daemon();
    let root = daemon.cwd().join("work");
    let mut owner = daemon.owner();
    let mut other = owner.attach(daemon.connect());
    let held = take(&mut owner, "structured_write", &root, &[]).unwrap();
    let Held::Lease(id) = &held else { panic!("a lease") };
    let id = id.clone();
    // Another owner cannot release it, and learns nothing.
    let mut foreign = daemon.owner();
    foreign.wire.refused("not_found", "lease/release", json!({"lease_id": id}));
    give(&mut owner, held);
    owner.wire.refused("not_found", "lease/release", json!({"lease_id": id}));
    is_free_once(&daemon, "a release");
    drop(take(&mut other, "snapshot", &root, &[]).unwrap());
    // A client that waits for a lease of its own would wait for itself: it is told at once.
    let params = json!({"root": root, "kind": "structured_write", "timeout_ms": 600_000});
    owner.wire.refused("workspace_busy", "lease/acquire", params);
    drop(other);
    is_free_once(&daemon, "the end of its connection");
    drop(take(&mut owner, "structured_write", &root, &[]).unwrap());
    daemon.kill();
    daemon.restart();
    is_free_once(&daemon, "a restart");
}

/// A claim of one's own is named, so that one can stop what blocks.
#[test]
fn a_busy_workspace_names_ones_own_process() {
    let daemon = daemon();
    let root = daemon.cwd().join("work");
    let mut owner = daemon.owner();
    let Ok(Held::Process(process)) = take(&mut owner, "broad_write", &root, &[]) else {
        panic!("a process")
    };
    let error = take(&mut owner, "snapshot", &root, &[]).err().unwrap();
    assert_eq!(error["details"]["process_id"], json!(process), "{error}");
}
