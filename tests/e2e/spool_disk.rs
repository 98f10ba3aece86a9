//! The spool on a real disk: full, limited, killed in the middle. Longer with `cargo xtask output`.

use std::{fs, process::Stdio, time::Duration};

use procd_tests::{
    Daemon, Owner, Setup, Tier, binaries,
    figures::{disk_bytes, resident_kib},
    namespace,
    owner::{decode, handle, number, without_output},
    pattern,
    run::{LONG, rounds},
    wait,
};
use serde_json::{Value, json};

/// Puts a file system of this size under the state folder.
fn mount_state(daemon: &Daemon, size: &str) {
    fs::create_dir(daemon.state()).unwrap();
    let mut mount = binaries::command("mount");
    mount
        .args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "procd-test"])
        .arg(daemon.state());
    assert!(mount.stderr(Stdio::inherit()).status().unwrap().success(), "mount");
}

/// The commit log.
fn told(daemon: &Daemon) -> String {
    let logs = fs::read_dir(daemon.state().join("commit")).unwrap().flatten();
    logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default()).collect()
}

/// How often it tells an event of this kind.
fn events(daemon: &Daemon, kind: &str) -> usize {
    told(daemon).matches(&format!("\"kind\":\"{kind}\"")).count()
}

/// Everything that can be read from 0 on: the kept stretches, and the gaps between them.
fn stretches(owner: &mut Owner, process: &str) -> (Vec<(u64, Vec<u8>)>, u64, u64) {
    let (mut kept, mut lost, mut cursor): (Vec<(u64, Vec<u8>)>, u64, u64) = (Vec::new(), 0, 0);
    loop {
        let page = owner.output(
            process,
            json!({"cursor": cursor, "encoding": "base64", "limit_bytes": 1 << 20}),
        );
        let from = number(&page, "from_cursor");
        lost += from - cursor;
        let bytes = decode(&page);
        assert_eq!(
            number(&page, "next_cursor"),
            from + bytes.len() as u64,
            "{}",
            without_output(&page)
        );
        match kept.last_mut() {
            Some((start, all)) if *start + all.len() as u64 == from => all.extend(bytes),
            _ => kept.push((from, bytes)),
        }
        cursor = number(&page, "next_cursor");
        if page["more"] != true {
            return (kept, lost, cursor);
        }
    }
}

/// C87, C89: the disk fills, the process lives on, space returns, writing resumes by itself.
#[test]
fn a_full_disk_degrades_the_spool_and_space_brings_it_back() {
    if namespace::has_run_inside(
        module_path!(),
        "a_full_disk_degrades_the_spool_and_space_brings_it_back",
    ) {
        return;
    }
    let mut daemon = Setup::new(Tier::Shim).prepare();
    mount_state(&daemon, "16m");
    daemon.restart();
    let mut owner = daemon.owner();
    let filler = daemon.state().join("filler");
    fs::write(&filler, vec![0; 6 << 20]).unwrap();
    let probe = binaries::probe();
    let line = format!("{probe} write 20000000; while read go; do {probe} write 1600; done");
    let process = handle(
        &owner.start(&["sh", "-c", &line], json!({"background": true, "memory_bytes": 262_144})),
    );
    let total = |owner: &mut Owner| {
        number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes")
    };
    wait::until_true("the process goes on though the disk is full", wait::STEP, || {
        total(&mut owner) == 20_000_000
    });
    assert!(
        owner.bytes(&process, 19_800_000) == pattern::bytes(19_800_000, 200_000),
        "recent output stays readable"
    );
    let record = owner.record(&process);
    let lost = number(&record, "spool_lost_bytes");
    assert_eq!(record["spool_state"], "degraded", "{record}");
    assert!(lost > 8_000_000 && lost < 20_000_000, "{record}");
    // Also where the log gave up its ballast: that room is for records.
    let said = wait::until("the event is there", wait::STEP, || {
        Some(told(&daemon)).filter(|said| said.contains("\"kind\":\"spool_degraded\""))
    });
    assert!(said.contains("storage ENOSPC"), "the event says why: {said}");
    assert_eq!(events(&daemon, "spool_degraded"), 1, "once");
    assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0, "others start and end");

    fs::remove_file(&filler).unwrap();
    // It is tried again with the output that comes 100 ms after the last try.
    let mut pieces = 0;
    let mut say = |owner: &mut Owner| {
        owner.wire.ok("process/input", json!({"process_id": process, "data": "go\n"}));
        pieces += 1;
        let all = 20_000_000 + pieces * 1600;
        wait::until_true("it goes on", wait::STEP, || total(owner) == all);
        pieces
    };
    wait::until_true("it is written again", wait::STEP, || {
        say(&mut owner);
        owner.record(&process)["spool_state"] == "open"
    });
    wait::until_true("the event is there", wait::STEP, || events(&daemon, "spool_recovered") == 1);
    let pieces = say(&mut owner);
    assert_eq!(events(&daemon, "spool_degraded"), 1, "once");
    let after = number(&owner.record(&process), "spool_lost_bytes");
    owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
    owner.ended(&process);
    // Without its memory window the hole is a gap, exactly as long as the record says.
    let (kept, gaps, end) = stretches(&mut owner, &process);
    let mut whole = pattern::bytes(0, 20_000_000);
    (0..pieces).for_each(|_| whole.extend(pattern::bytes(0, 1600)));
    assert_eq!((end, gaps), (whole.len() as u64, after));
    for (start, bytes) in &kept {
        let at = usize::try_from(*start).unwrap();
        assert!(
            whole[at..at + bytes.len()] == bytes[..],
            "other bytes than were written behind {start}"
        );
    }
    assert!(kept.len() >= 2, "a hole in the middle");
}

/// C82: the ceiling holds at every moment, looked at from outside every 10 ms.
#[test]
fn a_flood_never_exceeds_its_ceiling_on_disk() {
    const CEILING: u64 = 8 << 20;
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = handle(
        &owner.start(&["cat", "/dev/zero"], json!({"background": true, "spool_bytes": CEILING})),
    );
    let sessions = daemon.state().join("sessions");
    let bound = CEILING + CEILING / 8 + CEILING / 8 + (64 << 10);
    let mut most = 0;
    for _ in 0..rounds(150) {
        most = most.max(disk_bytes(&sessions));
        assert!(most <= bound, "{most} bytes on disk, {bound} allowed");
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let page = wait::until("a flood", wait::STEP, || {
        Some(owner.output(&process, json!({"limit_bytes": 1})))
            .filter(|page| number(page, "total_bytes") > 2 * CEILING)
    });
    assert_eq!(number(&page, "retained_from"), number(&page, "total_bytes") - CEILING, "{page}");
    wait::until_true("the gap is told once", wait::STEP, || events(&daemon, "output_gap") == 1);
    owner.stop(&process, "kill", 0);
    assert_eq!(events(&daemon, "output_gap"), 1);
}

/// The daemon's limits are on what is really used: 50 loud processes share them, and none is hurt.
#[test]
fn fifty_loud_processes_share_the_limits_of_the_daemon() {
    const SPOOLS: u64 = 128 << 20;
    let setup = Setup::new(Tier::Shim)
        .limit("memory_daemon_bytes = 8388608")
        .limit("memory_session_bytes = 8388608")
        .limit("memory_process_bytes = 1048576")
        .limit(&format!("spool_daemon_bytes = {SPOOLS}"))
        .limit(&format!("spool_session_bytes = {SPOOLS}"))
        .limit("spool_process_bytes = 8388608");
    let daemon = setup.start();
    let before = resident_kib(daemon.pid()) * 1024;
    let mut owners: Vec<Owner> = (0..10).map(|_| daemon.owner()).collect();
    let mut processes = Vec::new();
    for owner in &mut owners {
        processes
            .push((0..5).map(|_| owner.background(&["yes", "a loud process"])).collect::<Vec<_>>());
    }
    let sessions = daemon.state().join("sessions");
    for _ in 0..rounds(30) {
        let used = disk_bytes(&sessions);
        // Whoever comes late has one segment to keep and one to write, with index and tags.
        assert!(used <= SPOOLS + 50 * ((2 << 20) + (64 << 10)), "{used} bytes on disk");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let resident = resident_kib(daemon.pid()) * 1024;
    assert!(
        resident < before + (8 << 20) + (48 << 20),
        "{resident} bytes of memory, {before} before"
    );
    for (owner, ids) in owners.iter_mut().zip(&processes) {
        for id in ids {
            let ask = json!({"cursor": 0, "limit_bytes": 1, "wait": {"until": {"bytes": 30}}});
            assert_eq!(owner.output(id, ask)["state"], "running");
            let page = owner.output(id, json!({"cursor": -30, "limit_bytes": 100}));
            assert_eq!(page["state"], "running", "{page}");
            assert!(page["output"].as_str().unwrap().contains("loud process"), "{page}");
        }
        let scope = json!({"scope": "session", "grace_ms": 0});
        owner.wire.patience = LONG;
        owner.wire.ok("session/close", scope);
    }
}

/// SIGKILL of the daemon at any moment, over small ceilings: what was counted is there, and every byte is right.
#[test]
fn a_killed_daemon_keeps_every_byte_that_counted() {
    if namespace::has_run_inside(module_path!(), "a_killed_daemon_keeps_every_byte_that_counted") {
        return;
    }
    let mut daemon = Setup::new(Tier::Shim).start();
    let owner = daemon.owner();
    let opened = owner.opened.clone();
    drop(owner);
    for round in 0..rounds(12) {
        let mut owner = Owner::attached(attach(&daemon, &opened), opened.clone(), daemon.cwd());
        let ceiling = 65_536 << (round % 3);
        let more = json!({"background": true, "spool_bytes": ceiling, "memory_bytes": 4096});
        let process = handle(&owner.start(&[&binaries::probe(), "write", "1000000000000"], more));
        // At another point of the ring each time.
        let wanted = ceiling / 2 + round * 37_777;
        wait::until_true("enough is written", wait::STEP, || {
            number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes") > wanted
        });
        let seen = owner.output(&process, json!({"cursor": -1000, "encoding": "base64"}));
        daemon.kill();
        daemon.restart();
        let mut owner = Owner::attached(attach(&daemon, &opened), opened.clone(), daemon.cwd());
        let record = wait::until("the lost one is known", wait::STEP, || {
            Some(owner.record(&process)).filter(|record| record["state"] == "lost_on_restore")
        });
        let (total, from) = (number(&record, "total_bytes"), number(&record, "retained_from"));
        assert!(total >= number(&seen, "next_cursor"), "{record} {}", without_output(&seen));
        assert_eq!(from, total.saturating_sub(ceiling), "exact to the byte: {record}");
        let (kept, lost, end) = stretches(&mut owner, &process);
        assert_eq!((kept.len(), lost, end), (1, from, total));
        assert!(
            kept[0].1 == pattern::bytes(from, total - from),
            "round {round}: other bytes than were written"
        );
    }
}

fn attach(daemon: &Daemon, opened: &Value) -> procd_tests::wire::Wire {
    let mut wire = daemon.connect();
    let field = |name: &str| opened[name].clone();
    wire.ok("session/attach", json!({"session_id": field("session_id"), "loop_id": field("loop_id"), "session_key": field("session_key")}));
    wire
}
