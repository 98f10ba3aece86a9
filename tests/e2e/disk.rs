//! A full disk, a disk that fails, and a clock that goes back.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    time::Duration,
};

use procd_tests::{
    Daemon, Owner, Setup, Tier, binaries,
    faults::{
        check,
        load::{Load, Told},
        seed::Seed,
    },
    owner::handle,
    run::ctl,
    wait,
};
use serde_json::{Value, json};

/// The whole disk of the state folder.
const DISK: &str = "size=12m,mode=0700";
/// Saves that are tried on the full disk, a count.
const SAVES: usize = 1000;
/// What any call may take while nothing can be written.
const SOON: Duration = Duration::from_secs(20);

/// A daemon whose state folder is a small disk of its own: only inside a namespace.
fn on_a_small_disk() -> Daemon {
    let mut daemon = Setup::new(Tier::Shim)
        .limit("retained_session_max = 100000")
        .limit("grace_ms = 200")
        .prepare();
    fs::create_dir(daemon.state()).unwrap();
    let mut mount = binaries::command("mount");
    mount.args(["-t", "tmpfs", "-o", DISK, "procd-test"]).arg(daemon.state());
    assert!(mount.status().unwrap().success(), "mount a small disk");
    daemon.restart();
    daemon
}

fn leave(daemon: Daemon) {
    let state = daemon.state();
    drop(daemon);
    drop(binaries::command("umount").arg("-l").arg(state).status());
}

fn fill(daemon: &Daemon) {
    let mut file = File::create(daemon.state().join("filler")).unwrap();
    for bytes in [64 * 1024, 512, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

fn attach(daemon: &Daemon, opened: &Value) -> Owner {
    let mut wire = daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]});
    wire.ok("session/attach", params);
    Owner::attached(wire, opened.clone(), daemon.cwd())
}

/// Starts until the count is reached or a start is refused, which must be for want of storage.
fn save(owner: &mut Owner, told: &mut Vec<Value>) -> bool {
    for _ in 0..SAVES {
        let params = owner.start_params(&["sh", "-c", "exit 3"], json!({}));
        match owner.wire.call("process/start", params) {
            Ok(entry) => told.push(entry),
            Err(error) => {
                let cause = (error["code"].clone(), error["details"]["cause"].clone());
                assert_eq!(cause, (json!("process_setup_failed"), json!("storage")), "{error}");
                return true;
            }
        }
    }
    false
}

/// Whether a start is refused before there is anything of it: once a save has failed, until one succeeds.
fn is_refused_at_the_gate(owner: &mut Owner) -> bool {
    let params = owner.start_params(&["true"], json!({}));
    let refusal = owner.wire.call("process/start", params).err();
    refusal.is_some_and(|error| {
        error["details"]["cause"] == "storage" && error["details"]["process_id"].is_null()
    })
}

fn same(owner: &mut Owner, told: &[Value]) {
    for entry in told.iter().filter(|entry| entry["durable"] != false) {
        let record = owner.record(&handle(entry));
        for field in ["state", "exit_code", "finished_at"] {
            assert_eq!(record[field], entry[field], "{record}");
        }
    }
}

/// C142, C87: saves on a full disk, then SIGKILL.
#[test]
fn a_full_disk_refuses_starts_saves_ends_and_loses_nothing_that_was_told() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "a_full_disk_refuses_starts_saves_ends_and_loses_nothing_that_was_told",
    ) {
        return;
    }
    let mut daemon = on_a_small_disk();
    let mut owner = daemon.owner();
    let running: Vec<String> = (0..3).map(|_| owner.background(&["sleep", "600"])).collect();
    ctl(&daemon, &["run", "--", "true"]).success();
    fill(&daemon);
    // The ballast goes first; then starts are refused.
    let mut told = Vec::new();
    let is_refused = save(&mut owner, &mut told);
    assert!(!daemon.state().join("ballast").exists(), "the ballast was kept");
    fill(&daemon);
    assert!(is_refused || save(&mut owner, &mut told), "{SAVES} starts on a full disk");
    assert!((0..100).any(|_| is_refused_at_the_gate(&mut owner)), "nothing new may begin");
    // An operator is told what to do.
    let refused = ctl(&daemon, &["start", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("; make room on the disk of the state folder"), "{said}");
    // Ends are told at once, saved or not; reads go on.
    let began = wait::now();
    let stopped = owner.stop(&running[0], "kill", 0);
    assert_eq!(stopped["state"], "killed", "{stopped}");
    assert!(owner.list().len() >= 3);
    let status = daemon.operator().ok("daemon/status", json!({}));
    assert!(began.elapsed() < SOON, "stalled for {:?}", began.elapsed());
    println!("{} saves told, then {}; the end is {stopped}", told.len(), status["degraded"]);
    // Room again: what was not saved is, and starts are taken.
    fs::remove_file(daemon.state().join("filler")).unwrap();
    wait::until_true("starts are taken again", wait::STEP, || {
        let params = owner.start_params(&["true"], json!({}));
        owner.wire.call("process/start", params).is_ok_and(|entry| entry["state"] == "exited")
    });
    let stopped = owner.record(&running[0]);
    // And full once more, to die on.
    fill(&daemon);
    save(&mut owner, &mut told);
    daemon.kill();
    daemon.restart();
    let opened = owner.opened.clone();
    let mut again = attach(&daemon, &opened);
    same(&mut again, &told);
    let found = again.record(&running[0]);
    assert_eq!(
        (&found["state"], &found["finished_at"]),
        (&stopped["state"], &stopped["finished_at"])
    );
    for process in &running[1..] {
        assert_eq!(again.record(process)["state"], "lost_on_restore");
    }
    fs::remove_file(daemon.state().join("filler")).unwrap();
    wait::until_true("starts are taken after the restart", wait::STEP, || {
        let params = again.start_params(&["true"], json!({}));
        again.wire.call("process/start", params).is_ok()
    });
    leave(daemon);
}

/// Whether each failure that was asked for has been injected.
fn all_fired(trace: &Path, points: &str) -> bool {
    let fired = fs::read_to_string(trace).unwrap_or_default();
    let names = points.split(',').filter_map(|point| point.split('=').next());
    names.clone().all(|name| fired.lines().any(|line| line == name))
}

/// While the log cannot be written an end is told with `durable: false`, and nothing is offered; it is saved as soon as
/// that is possible, and offered then, under one id.
#[test]
fn an_end_that_is_not_saved_says_so_and_is_saved_once_that_is_possible() {
    let mut daemon = Setup::new(Tier::Shim).prepare();
    let points = "log-before-write=enospc@8-20";
    daemon.with_failpoints(points);
    daemon.restart();
    let fired = daemon.path().join("trace.failed");
    let mut owner = daemon.owner();
    owner.wire.ok("events/subscribe", json!({"notifications": true}));
    let mut running = vec![owner.background(&["sleep", "600"])];
    // Until the log fails: whoever starts then is refused, and none of it runs.
    wait::until_true("the log fails", wait::STEP, || {
        let params = owner.start_params(&["sleep", "600"], json!({"background": true}));
        match owner.wire.call("process/start", params) {
            Ok(entry) => running.push(handle(&entry)),
            Err(error) => assert_eq!(error["details"]["cause"], "storage", "{error}"),
        }
        all_fired(&fired, points)
    });
    let stopped = owner.stop(&running[0], "kill", 0);
    assert_eq!(stopped["state"], "killed", "{stopped}");
    let failures = fs::read_to_string(&fired).unwrap().lines().count();
    let is_told = stopped["durable"] == false;
    // While the log still failed after the reply, the end cannot have been saved before it.
    assert!(is_told || failures == 13, "after {failures} failures: {stopped}");
    let offered = owner.wire.take_notices();
    let is_offered =
        offered.iter().any(|one| one["params"]["notification"]["process_id"] == running[0]);
    assert!(!(is_told && is_offered), "offered before it was durable: {offered:?}");
    wait::until_true("it is saved", wait::STEP * 2, || {
        owner.record(&running[0])["durable"] != false
            && daemon.operator().ok("daemon/status", json!({}))["degraded"].is_null()
    });
    let saved = owner.record(&running[0]);
    daemon.kill();
    daemon.without_failpoints();
    daemon.restart();
    let mut again = attach(&daemon, &owner.opened);
    assert_eq!(again.record(&running[0])["finished_at"], saved["finished_at"]);
    again.wire.ok("events/subscribe", json!({"notifications": true}));
    let notice = again.wire.next_notice().unwrap();
    assert!(notice["params"]["notification"]["command_id"].is_string(), "{notice}");
}

/// Every byte that the state folder takes of its disk.
fn taken(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = path.symlink_metadata() else { return 0 };
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    found.blocks() * 512 + below.map(|entry| taken(&entry.path())).sum::<u64>()
}

/// The least recently used go first, what runs and what is pinned stays; without room a start is refused by name.
#[test]
fn the_state_folder_stays_within_its_bytes() {
    const DISK_BYTES: u64 = 24 << 20;
    let daemon = Setup::new(Tier::Shim)
        .limit(&format!("disk_bytes = {DISK_BYTES}"))
        .limit("spool_process_bytes = 4194304")
        .limit("pinned_session_bytes = 20000000")
        .start();
    let probe = binaries::probe();
    let mut owner = daemon.owner();
    let writes = |owner: &mut Owner, bytes: &str| {
        let more = json!({"limit_bytes": 1});
        handle(&owner.start(&[&probe, "write", bytes], more))
    };
    let running = owner.background_shell("echo here; exec sleep 600");
    let pinned = writes(&mut owner, "2000000");
    owner.wire.ok("process/pin", json!({"process_id": pinned, "pinned": true}));
    let first = writes(&mut owner, "2000000");
    let mut last = String::new();
    for _ in 0..16 {
        last = writes(&mut owner, "2000000");
    }
    wait::until_true("the oldest is evicted, with its files", wait::STEP, || {
        let found = owner.wire.call("process/inspect", json!({"process_id": first}));
        found.is_err_and(|error| error["code"] == "not_found")
            && taken(&daemon.state()) <= DISK_BYTES
    });
    for kept in [&running, &pinned, &last] {
        assert_eq!(owner.record(kept)["process_id"], **kept);
    }
    // Between starts and ends too: one that runs and writes lets the ended ones make room.
    let line = format!("sleep 0.1; {probe} write 4000000; exec sleep 600");
    let growing: Vec<String> = (0..3).map(|_| owner.background_shell(&line)).collect();
    wait::until_true("all is written, within the bytes", wait::STEP, || {
        growing.iter().all(|one| owner.record(one)["total_bytes"].as_u64() >= Some(0))
            && growing.iter().all(|one| {
                owner.output(one, json!({"cursor": 0, "limit_bytes": 1}))["total_bytes"].as_u64()
                    >= Some(4_000_000)
            })
            && taken(&daemon.state()) <= DISK_BYTES
    });
    // All that is left is pinned or runs: no room for one segment is a refusal.
    let error = loop {
        let more = json!({"background": true});
        let params = owner.start_params(&["sh", "-c", &line], more);
        match owner.wire.call("process/start", params) {
            Ok(entry) => {
                let process = handle(&entry);
                wait::until_true("it is written", wait::STEP, || {
                    let read = owner.output(&process, json!({"cursor": 0, "limit_bytes": 1}));
                    read["total_bytes"].as_u64() >= Some(4_000_000)
                });
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error["code"], "output_quota_exceeded", "{error}");
    let details = &error["details"];
    assert_eq!((&details["limit"], &details["scope"]), (&json!("disk_bytes"), &json!("daemon")));
    assert_eq!(details["max"], DISK_BYTES);
    assert_eq!(owner.record(&pinned)["pinned"], true);
    assert_eq!(owner.record(&running)["state"], "running");
}

/// Pins of a session, and of all, have ceilings that name themselves.
#[test]
fn pins_have_their_ceilings() {
    let daemon = Setup::new(Tier::Shim)
        .limit("pinned_session_bytes = 1500")
        .limit("pinned_daemon_bytes = 2500")
        .start();
    let probe = binaries::probe();
    let pin = |owner: &mut Owner, process: &str, pinned: bool| {
        owner.wire.call("process/pin", json!({"process_id": process, "pinned": pinned}))
    };
    let (mut one, mut two, mut three) = (daemon.owner(), daemon.owner(), daemon.owner());
    let first = handle(&one.start(&[&probe, "write", "1000"], json!({})));
    let second = handle(&one.start(&[&probe, "write", "1000"], json!({})));
    assert_eq!(pin(&mut one, &first, true).unwrap()["pinned_bytes"], 1000);
    let refused = |error: Value, scope: &str, max: u64, in_use: u64| {
        assert_eq!(error["code"], "output_quota_exceeded", "{error}");
        let limit = format!("pinned_{scope}_bytes");
        let wanted = json!({"limit": limit, "scope": scope, "max": max, "in_use": in_use});
        assert_eq!(error["details"], wanted, "{error}");
    };
    refused(pin(&mut one, &second, true).unwrap_err(), "session", 1500, 1000);
    let other = handle(&two.start(&[&probe, "write", "1000"], json!({})));
    pin(&mut two, &other, true).unwrap();
    let last = handle(&three.start(&[&probe, "write", "1000"], json!({})));
    refused(pin(&mut three, &last, true).unwrap_err(), "daemon", 2500, 2000);
    // Given back, there is room again; a second time changes nothing.
    assert_eq!(pin(&mut one, &first, false).unwrap()["pinned_bytes"], 0);
    assert_eq!(pin(&mut one, &first, false).unwrap()["pinned_bytes"], 0);
    pin(&mut three, &last, true).unwrap();
    one.wire.ok("process/remove", json!({"process_id": first}));
    three.wire.ok("process/remove", json!({"process_id": last}));
    pin(&mut one, &second, true).unwrap();
}

#[test]
fn a_failing_sync_or_write_loses_nothing_that_was_told() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "a_failing_sync_or_write_loses_nothing_that_was_told",
    ) {
        return;
    }
    for points in [
        "log-before-sync=eio@4",
        "log-before-sync=eio@9,log-before-write=enospc@15",
        "log-before-write=eio@6,part-before-create=enospc@3",
        "file-before-sync=eio@5,seal-before-segment-sync=eio@2,spool-before-write=enospc@3",
    ] {
        let spools_refused = points.contains("spool-before-write");
        let mut told = Told { spools_refused, ..Told::default() };
        let mut daemon = Setup::new(Tier::Shim)
            .limit("retained_session_max = 100000")
            .limit("running_loop_max = 16")
            .prepare();
        daemon.with_failpoints(points);
        let fired = daemon.path().join("trace.failed");
        daemon.restart();
        let load = Load::begin(&daemon, &told, Seed(3).next());
        wait::until_true("the load has worked", wait::STEP, || {
            load.has_worked(Duration::from_millis(400), 25) && all_fired(&fired, points)
        });
        daemon.kill();
        load.finish(&mut told);
        // The one start that meets the failure may be refused.
        assert!(told.refusals.iter().all(|text| text.contains("storage")), "{:?}", told.refusals);
        told.refusals.clear();
        daemon.without_failpoints();
        daemon.restart();
        check::everything(&daemon, &mut told);
    }
}

#[test]
fn a_clock_set_back_an_hour_spoils_no_end_and_no_duration() {
    let mut daemon = Setup::new(Tier::Shim).failpoints("none=pause:0").prepare();
    let step = daemon.path().join("step");
    daemon.set_environment("PROCD_CLOCK_STEP", &step.to_string_lossy());
    daemon.restart();
    let mut owner = daemon.owner();
    let processes: Vec<String> = (0..2).map(|_| owner.background(&["sleep", "600"])).collect();
    let before = owner.record(&processes[0]);
    fs::write(&step, "-3600").unwrap();
    let ended = owner.start(&["true"], json!({}));
    assert!(ended["duration_ms"].as_u64().unwrap() < 60_000, "{ended}");
    owner.stop(&processes[0], "kill", 0);
    let record = wait::until("the end is saved", wait::STEP, || {
        Some(owner.record(&processes[0])).filter(|record| record["spool_state"] == "sealed")
    });
    assert_eq!(record["state"], "killed");
    assert!(record["finished_at"].as_str() >= before["started_at"].as_str(), "{record}");
    assert!(record["duration_ms"].as_u64().unwrap() < 60_000, "{record}");
    daemon.kill();
    daemon.restart();
    let mut again = attach(&daemon, &owner.opened);
    assert_eq!(again.record(&processes[0])["finished_at"], record["finished_at"]);
    let lost = again.record(&processes[1]);
    assert_eq!(lost["state"], "lost_on_restore");
    assert!(lost["finished_at"].as_str() >= lost["started_at"].as_str(), "{lost}");
}
