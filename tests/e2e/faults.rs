//! The daemon dies at each of its named points: nothing that was said is lost, and nothing happens twice.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt as _, path::Path};

use procd_tests::{Daemon, Owner, Setup, Tier, leaks, owner::handle, wait};
use serde_json::{Value, json};

/// The names of all points in the daemon's and the store's sources.
fn points() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut waiting = vec![
        root.join("daemon/src"),
        root.join("crates/procd-store/src"),
        root.join("crates/procd-sys/src"),
    ];
    let mut names = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let calls =
                text.split("failpoint::hit(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(calls.map(str::to_owned));
        }
    }
    names
}

/// What a client was told before the daemon went.
#[derive(Default)]
struct Told {
    started: Vec<String>,
    ended: Vec<Value>,
    bytes: Vec<(String, String)>,
}

/// A little of everything, until it is done or the daemon is gone.
fn work(owner: &mut Owner) -> Option<Told> {
    let mut told = Told::default();
    for count in 0..3 {
        let params =
            owner.start_params(&["sh", "-c", &format!("echo {count}; exit {count}")], json!({}));
        match owner.wire.call("process/start", params) {
            Ok(entry) => {
                told.bytes.push((handle(&entry), entry["output"].as_str()?.to_owned()));
                told.ended.push(entry);
            }
            Err(_) => return Some(told),
        }
        let params = owner
            .start_params(&["sh", "-c", "echo on; exec sleep 600"], json!({"background": true}));
        match owner.wire.call("process/start", params) {
            Ok(entry) => told.started.push(handle(&entry)),
            Err(_) => return Some(told),
        }
    }
    let process = told.started.first()?.clone();
    if let Ok(reply) =
        owner.wire.call("process/output", json!({"process_id": process, "wait": "any"}))
    {
        told.bytes.push((process.clone(), reply["results"][0]["output"].as_str()?.to_owned()));
    }
    if let Ok(result) =
        owner.wire.call("process/stop", json!({"process_id": process, "mode": "kill"}))
    {
        told.started.remove(0);
        told.ended.push(result);
    }
    Some(told)
}

/// Everything that was told is true of the daemon that comes after.
fn check(daemon: &Daemon, opened: &Value, told: &Told, point: &str) {
    let mut wire = daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]});
    wire.ok("session/attach", params);
    let mut owner = Owner::attached(wire, opened.clone(), daemon.cwd());
    for process in &told.started {
        let state = owner.record(process)["state"].clone();
        assert!(
            ["lost_on_restore", "terminated", "killed"].contains(&state.as_str().unwrap()),
            "{point}: {state}"
        );
    }
    for end in &told.ended {
        let record = owner.record(&handle(end));
        for field in ["state", "exit_code", "reason"] {
            assert_eq!(record[field], end[field], "{point}: {field} of {record}");
        }
    }
    for (process, text) in &told.bytes {
        assert!(owner.text(process).starts_with(text.as_str()), "{point}: bytes of {process}");
    }
    let records: Vec<String> = owner.list().iter().map(handle).collect();
    assert_eq!(
        records.iter().collect::<BTreeSet<_>>().len(),
        records.len(),
        "{point}: a record twice"
    );
    assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n", "{point}");
}

#[test]
fn a_crash_at_any_point_loses_nothing_and_doubles_nothing() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "a_crash_at_any_point_loses_nothing_and_doubles_nothing",
    ) {
        return;
    }
    let points = points();
    assert!(!points.is_empty(), "the daemon has no named points");
    for point in points {
        for tier in [Tier::Cgroup, Tier::Shim].into_iter().filter(|tier| tier.is_here()) {
            let mut daemon = Setup::new(tier).failpoints(&format!("{point}=crash")).prepare();
            daemon.launch();
            let opened =
                daemon.until_up_or_gone().map(|wire| Owner::open(wire, json!({}), daemon.cwd()));
            let told = opened
                .map(|mut owner| (owner.opened.clone(), work(&mut owner).unwrap_or_default()));
            let end = daemon.end_however();
            let crashed = end.is_some_and(|status| status.signal().is_some());
            assert!(crashed, "no work of this test reaches the point {point}: {end:?}");
            wait::until_true("nothing lives any more", wait::STEP, || {
                leaks::everybody().is_empty()
            });
            daemon.without_failpoints();
            daemon.restart();
            if let Some((opened, told)) = told {
                check(&daemon, &opened, &told, &point);
            }
        }
    }
}
