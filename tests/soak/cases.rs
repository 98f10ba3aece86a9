//! Field cases that need minutes: as long as they say with `cargo xtask soak-cases`, for a moment in the gate. Source: docs/FIELD-CASES.md.

use std::{fs, time::Duration};

use procd_tests::{
    Setup, Tier, binaries,
    figures::{cpu_ticks, disk_bytes, resident_kib},
    owner::{handle, number},
    run::{LONG, rounds},
    wait,
};
use serde_json::{Value, json};

/// The time of the case, or a moment of it.
fn time(moment_ms: u64, seconds: u64) -> Duration {
    if rounds(1) > 1 { Duration::from_secs(seconds) } else { Duration::from_millis(moment_ms) }
}

/// Until it is over, with something to do every now and then.
fn spend(time: Duration, every: Duration, mut look: impl FnMut()) {
    let deadline = wait::Deadline::after(time);
    while let Some(left) = deadline.left() {
        look();
        std::thread::park_timeout(left.min(every));
    }
}

/// C44: polled by five clients all along, it has no end before its own.
#[test]
fn a_process_that_is_polled_all_the_time_has_no_end_before_its_own() {
    let length = time(1500, 600);
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line = format!("sleep {}; echo end; exit 0", length.as_secs_f64());
    let process = owner.background_shell(&line);
    let pollers: Vec<_> = (0..5)
        .map(|_| {
            let (mut one, process) = (owner.attach(daemon.connect()), process.clone());
            std::thread::spawn(move || {
                let mut polls = 0;
                loop {
                    let entry = one.output(&process, json!({}));
                    polls += 1;
                    if entry["state"] != "running" {
                        assert_eq!(
                            (&entry["exit_code"], &entry["output"]),
                            (&json!(0), &json!("end\n")),
                            "{entry}"
                        );
                        return polls;
                    }
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            })
        })
        .collect();
    let polls: u64 = pollers.into_iter().map(|poller| poller.join().unwrap()).sum();
    let record = owner.record(&process);
    assert!(u128::from(number(&record, "duration_ms")) >= length.as_millis(), "{record}");
    println!("{polls} polls in {length:?}");
}

/// C54, C66: ended or running, it is read from where one was, and written to, after a time without any client.
#[test]
fn after_a_time_without_a_client_everything_is_where_it_was() {
    let without = time(1000, 600);
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let ended = handle(&owner.start(&["seq", "1", "1000"], json!({"limit_bytes": 1})));
    let running = owner.background(&[&binaries::probe(), "echo-lines"]);
    owner.wire.ok("process/input", json!({"process_id": running, "data": "one\n"}));
    let read = owner.output(&running, json!({"wait": "any"}));
    let opened = owner.opened.clone();
    drop(owner);
    spend(without, without, || {});
    let mut owner = daemon.again(&opened);
    let wanted: String = (1..=1000).map(|at| format!("{at}\n")).collect();
    assert_eq!(owner.text(&ended), wanted);
    assert_eq!(owner.record(&ended)["exit_code"], 0);
    owner.wire.ok("process/input", json!({"process_id": running, "data": "two\n"}));
    let next =
        owner.output(&running, json!({"cursor": number(&read, "next_cursor"), "wait": "any"}));
    assert_eq!(
        (&next["output"], &next["state"]),
        (&json!("got two\n"), &json!("running")),
        "{next}"
    );
    owner.wire.ok("process/input", json!({"process_id": running, "eof": true}));
    assert_eq!(owner.ended(&running)["exit_code"], 0);
}

/// C81: the flood of minutes stays below its ceiling; the writer goes on, and a read says where what is kept begins.
#[test]
fn a_flood_of_minutes_stays_below_its_ceiling() {
    const CEILING: u64 = 64 << 20;
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process =
        handle(&owner.start(&["yes"], json!({"background": true, "spool_bytes": CEILING})));
    let sessions = daemon.state().join("sessions");
    let mut most = 0;
    // One segment, tags and index beyond the ceiling.
    let bound = CEILING + CEILING / 4 + (64 << 10);
    spend(time(1000, 300), Duration::from_millis(20), || {
        most = most.max(disk_bytes(&sessions));
        assert!(most <= bound, "{most} bytes on disk, {bound} allowed");
    });
    wait::until_true("more than its ceiling", LONG, || {
        number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes") > CEILING
    });
    let page = owner.output(&process, json!({"cursor": 0, "limit_bytes": 2}));
    assert_eq!((&page["state"], &page["gap"]), (&json!("running"), &json!(true)), "{page}");
    assert_eq!(number(&page, "gap_bytes"), number(&page, "from_cursor"), "{page}");
    println!("{} bytes written, {most} on disk at most", number(&page, "total_bytes"));
    owner.stop(&process, "kill", 0);
}

/// C94: memory and descriptors after many cycles are those after a few.
#[test]
fn memory_and_descriptors_are_flat_over_many_cycles() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let held = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
        (resident_kib(daemon.pid()), fds)
    };
    let small = json!({"memory_bytes": 4096, "spool_bytes": 65536});
    let mut cycles = |count: u64| {
        for at in 0..count {
            let mut more: Value = small.clone();
            more["tty"] = json!(at % 4 == 0);
            assert_eq!(owner.start(&["echo", "on"], more)["exit_code"], 0);
        }
    };
    // As many as are retained, and some.
    let first = rounds(60);
    cycles(first.max(60));
    let before = held();
    let count = rounds(120) * if rounds(1) > 1 { 5 } else { 1 };
    cycles(count);
    wait::until_true("descriptors as before", wait::STEP, || held().1 <= before.1 + 2);
    let after = held();
    println!(
        "{count} cycles: {} KiB and {} descriptors before, {} and {} after",
        before.0, before.1, after.0, after.1
    );
    assert!(after.0 <= before.0 + 12 * 1024, "{before:?}, then {after:?}");
}

/// C159: eight that write lines, all day: each ends with all of its lines, and what it cost is told.
#[test]
fn eight_loud_processes_run_beside_each_other_to_their_ends() {
    let bytes = rounds(2_000_000).min(400_000_000);
    let setup = Setup::new(Tier::Shim).limit("running_loop_max = 16");
    let daemon = setup.start();
    let mut owner = daemon.owner();
    owner.wire.patience = LONG * 5;
    let began = wait::now();
    let more = json!({"background": true, "spool_bytes": 8 << 20});
    let count = bytes.to_string();
    let processes: Vec<String> = (0..8)
        .map(|_| handle(&owner.start(&[&binaries::probe(), "write", &count], more.clone())))
        .collect();
    for process in &processes {
        let ended = owner.ended(process);
        assert_eq!(
            (&ended["exit_code"], number(&ended, "total_bytes")),
            (&json!(0), bytes),
            "{ended}"
        );
    }
    println!(
        "8 x {bytes} bytes in {:?}, {} ms of CPU in the daemon",
        began.elapsed(),
        cpu_ticks(daemon.pid()) * 10
    );
}
