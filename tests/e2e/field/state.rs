//! What is kept on disk: trusted for nothing that the system knows better, and kept within bounds.

use std::fs;

use procd_tests::{
    Daemon, Setup, Tier, binaries, figures::crc32c, leaks, owner::handle, run::rounds, wait,
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

/// Whether a record of this process is saved with a pid.
fn is_saved(daemon: &Daemon, process: &str) -> bool {
    let parts = fs::read_dir(daemon.state().join("commit")).unwrap().flatten();
    let texts = parts.filter_map(|part| fs::read_to_string(part.path()).ok());
    let has_both = |line: &str| line.contains(process) && line.contains("\"os\":{\"pid\":");
    texts.into_iter().any(|text| text.lines().any(has_both))
}

/// Each line of the commit log with another pid in every record, closed with its sum as the daemon does it.
fn with_pid(daemon: &Daemon, pid: i64) -> usize {
    let mut changed = 0;
    for part in fs::read_dir(daemon.state().join("commit")).unwrap().flatten() {
        let text = fs::read_to_string(part.path()).unwrap();
        let lines: Vec<String> =
            text.lines().map(|line| line_with_pid(line, pid, &mut changed)).collect();
        fs::write(part.path(), lines.join("\n") + "\n").unwrap();
    }
    changed
}

fn line_with_pid(line: &str, pid: i64, changed: &mut usize) -> String {
    let Some((body, _)) = line.rsplit_once(",\"crc\":\"") else { return line.to_owned() };
    let mut rest = body;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("\"os\":{\"pid\":") {
        *changed += 1;
        text.push_str(&format!("{before}\"os\":{{\"pid\":{pid}"));
        rest = after.trim_start_matches(|digit: char| digit == '-' || digit.is_ascii_digit());
    }
    text.push_str(rest);
    let sum = crc32c(text.as_bytes());
    format!("{text},\"crc\":\"{sum:08x}\"}}")
}

both_tiers_inside! {
    /// C46, C47: whatever pid the saved state holds, nobody is signalled for it: pid 1 of a namespace, the daemon, nobody, everybody.
    fn a_saved_pid_is_believed_by_nobody(tier) {
        let mut daemon = Setup::new(tier).start();
        let opened = daemon.owner().opened;
        let mut stranger = binaries::command("sleep").arg("600").spawn().unwrap();
        for pid in [1, 0, -1, i64::from(stranger.id()), i64::from(std::process::id()), 2] {
            let mut owner = daemon.again(&opened);
            let process = owner.background(&["sleep", "600"]);
            wait::until_true("it is saved with its pid", wait::STEP, || is_saved(&daemon, &process));
            daemon.kill();
            wait::until_true("nothing of it lives", wait::STEP, || leaks::everybody().len() == 1);
            assert!(with_pid(&daemon, pid) > 0, "no pid is saved");
            daemon.restart();
            let mut owner = daemon.again(&opened);
            for mode in ["interrupt", "terminate", "kill"] {
                assert_eq!(owner.stop(&process, mode, 0)["state"], "lost_on_restore", "pid {pid}");
            }
            let restore = daemon.operator().ok("daemon/status", json!({}))["restore"].clone();
            assert_eq!(restore["damaged"], 0, "pid {pid}: {restore}");
            assert!(stranger.try_wait().unwrap().is_none(), "pid {pid} was signalled");
        }
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

/// C84: a smaller limit at a start removes the oldest, and nothing that runs is ever removed.
#[test]
fn a_start_removes_the_oldest_records_above_the_limit() {
    let setup = Setup::new(Tier::Shim).limit("retained_session_max = 20000");
    let mut daemon = setup.start();
    let mut owner = daemon.owner();
    let small = json!({"memory_bytes": 4096, "spool_bytes": 65536});
    let ended: Vec<String> = (0..rounds(40).min(10_000))
        .map(|_| handle(&owner.start(&["true"], small.clone())))
        .collect();
    daemon.terminate();
    assert!(daemon.ended().success());
    let config = daemon.path().join("config.toml");
    let text = fs::read_to_string(&config).unwrap().replace("max = 20000", "max = 10");
    fs::write(config, text).unwrap();
    daemon.restart();
    let mut owner = daemon.again(&owner.opened);
    let kept = wait::until("ten are left", wait::STEP * 2, || {
        Some(owner.list()).filter(|list| list.len() == 10)
    });
    let kept: Vec<String> = kept.iter().rev().map(handle).collect();
    assert_eq!(kept, ended[ended.len() - 10..], "the newest ten");
    let running = owner.background(&["sleep", "600"]);
    for _ in 0..15 {
        owner.start(&["true"], small.clone());
    }
    assert_eq!(owner.record(&running)["state"], "running");
    let spools = daemon
        .state()
        .join("sessions")
        .join(owner.opened["session_id"].as_str().unwrap())
        .join("spools");
    wait::until_true("no files of the others", wait::STEP * 2, || {
        fs::read_dir(&spools).unwrap().count() <= 12
    });
    owner.stop(&running, "kill", 0);
}

/// C151: a subscriber that comes back from its last number again and again is told each end once.
#[test]
fn a_subscriber_that_reconnects_all_the_time_hears_of_each_end_once() {
    let daemon = Setup::new(Tier::Shim).limit("retained_session_max = 20000").start();
    let mut owner = daemon.owner();
    let (mut started, mut told, mut seq) = (Vec::new(), Vec::new(), 1);
    let more = json!({"background": true, "queue_timeout_ms": 600_000, "memory_bytes": 4096, "spool_bytes": 65536});
    for turn in 0..rounds(12).min(1000) {
        started.extend((0..10).map(|_| handle(&owner.start(&["true"], more.clone()))));
        let mut reader = owner.attach(daemon.connect());
        // Never all of them: some are told to the next one.
        let wanted = started.len() - told.len() - usize::from(turn % 3 > 0);
        let (ends, last) = super::ends_from(&mut reader.wire, seq, wanted);
        told.extend(ends);
        seq = last + 1;
    }
    let mut reader = owner.attach(daemon.connect());
    told.extend(super::ends_from(&mut reader.wire, seq, started.len() - told.len()).0);
    reader.list();
    let late = reader.wire.take_notices();
    assert!(late.iter().all(|notice| notice["params"]["event"]["kind"] != "completed"), "{late:?}");
    told.sort();
    started.sort();
    assert_eq!(told, started, "each once");
}

/// C157: a start costs the same whatever is kept.
#[test]
fn records_that_are_kept_slow_no_start() {
    let daemon = Setup::new(Tier::Shim).limit("retained_session_max = 30000").start();
    let mut owner = daemon.owner();
    let small = json!({"memory_bytes": 4096, "spool_bytes": 65536});
    let mut middle = |count: u64| {
        let mut took: Vec<_> = (0..count)
            .map(|_| {
                let began = wait::now();
                owner.start(&["true"], small.clone());
                began.elapsed()
            })
            .collect();
        took.sort();
        took[took.len() / 2]
    };
    let first = middle(60);
    middle(rounds(100).min(20_000));
    let last = middle(60);
    println!("the middle one of 60 starts: {first:?} at first, {last:?} at last");
    // What a busy machine adds hits the one or the other.
    assert!(last < first * 4, "{first:?}, then {last:?}");
}

/// C167: the socket is made again where it was; no second daemon comes up beside it.
#[test]
fn a_socket_that_is_removed_is_made_again_and_who_is_connected_goes_on() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let processes: Vec<String> = (0..5).map(|_| owner.background(&["sleep", "600"])).collect();
    for _ in 0..3 {
        fs::remove_file(daemon.socket()).unwrap();
        let second =
            binaries::command(binaries::path("procd")).envs(daemon.places()).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(
            second.status.code() == Some(1) && said.contains(&daemon.pid().to_string()),
            "{said}"
        );
        assert_eq!(owner.list().len(), 5);
        wait::until_true("it is made again", wait::STEP, || {
            procd_tests::Wire::bare(&daemon.socket()).is_ok_and(|mut wire| wire.hello().is_ok())
        });
    }
    for process in &processes {
        assert_eq!(owner.record(process)["state"], "running");
    }
    owner.wire.ok("session/stop_all", json!({"mode": "kill"}));
}

/// C167: a state folder that was replaced is not written to any more: the daemon ends what it holds, and says why.
#[test]
fn a_state_folder_that_is_replaced_ends_the_daemon_with_its_reason() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    for _ in 0..5 {
        owner.background(&["sleep", "600"]);
    }
    let moved = daemon.path().join("moved");
    fs::rename(daemon.state(), &moved).unwrap();
    fs::create_dir(daemon.state()).unwrap();
    fs::set_permissions(daemon.state(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    assert_eq!(daemon.ended().code(), Some(1));
    assert!(daemon.log().contains("the state folder was removed or replaced"), "{}", daemon.log());
    assert_eq!(leaks::processes(daemon.path()), Vec::<String>::new());
    daemon.restart();
    let fresh: Value = daemon.operator().ok("daemon/status", json!({}))["restore"].take();
    assert_eq!(fresh["records"], 0, "{fresh}");
}

/// C149: a grace is counted by a clock that does not stand still with the daemon: what is due is done at once.
#[test]
fn a_grace_that_passed_while_the_daemon_stood_still_is_over() {
    let still = std::time::Duration::from_millis(if rounds(1) > 1 { 60_000 } else { 2500 });
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = owner.background(&[&binaries::probe(), "ignore-term", "600"]);
    owner.output(&process, json!({"wait": "any"}));
    let params = json!({"process_id": process, "mode": "terminate", "grace_ms": 2000});
    let id = owner.wire.send("process/stop", params);
    wait::until_true("it was asked", wait::STEP, || {
        let mut operator = daemon.operator();
        operator.ok("process/inspect", json!({"process_id": process}))["record"]["state"]
            == "running"
    });
    kill_process(super::pid_of(&daemon), Signal::STOP).unwrap();
    std::thread::park_timeout(still);
    kill_process(super::pid_of(&daemon), Signal::CONT).unwrap();
    let began = wait::now();
    let result = owner.wire.reply(id).unwrap();
    println!("killed {:?} after it went on", began.elapsed());
    assert_eq!(
        (&result["state"], &result["escalated"]),
        (&json!("killed"), &json!(true)),
        "{result}"
    );
}
