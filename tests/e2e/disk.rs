//! A full disk, a disk that fails, and a clock that goes back.

use std::{
    fs::{self, File},
    io::Write as _,
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

fn same(owner: &mut Owner, told: &[Value]) {
    for entry in told.iter().filter(|entry| entry["durable"] != false) {
        let record = owner.record(&handle(entry));
        for field in ["state", "exit_code", "finished_at"] {
            assert_eq!(record[field], entry[field], "{record}");
        }
    }
}

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
    fill(&daemon);
    // The ballast goes first; then starts are refused.
    let mut told = Vec::new();
    let is_refused = save(&mut owner, &mut told);
    assert!(!daemon.state().join("ballast").exists(), "the ballast was kept");
    fill(&daemon);
    assert!(is_refused || save(&mut owner, &mut told), "{SAVES} starts on a full disk");
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
        let mut told = Told::default();
        let mut daemon = Setup::new(Tier::Shim)
            .limit("retained_session_max = 100000")
            .limit("running_loop_max = 16")
            .prepare();
        daemon.with_failpoints(points);
        daemon.restart();
        let load = Load::begin(&daemon, &told, Seed(3).next());
        wait::until_true("the load has worked", wait::STEP, || {
            load.has_worked(Duration::from_millis(400), 25)
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
