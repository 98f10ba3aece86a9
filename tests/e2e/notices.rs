//! Completion notifications at length and on the wire: each at least once, none after its answer, over slow and vanishing
//! subscribers and a daemon that is killed; what each answer does; and a record that goes.

use std::collections::{BTreeMap, BTreeSet};

use procd_tests::{Daemon, Owner, Setup, Tier, Wire, owner::handle, rounds, wait};
use serde_json::{Value, json};

/// Completions in the gate, a count; `cargo xtask completions` does 10,000.
const SAMPLE: usize = 200;
/// What a daemon may grow by between a quarter of them and the end, KiB: a buffer here and there, not a record each.
const GROWTH_KIB: u64 = 12 * 1024;

fn subscribe(wire: &mut Wire) -> u64 {
    let id = wire.send("events/subscribe", json!({"notifications": true}));
    wire.reply(id).expect("a subscription");
    id
}

fn offer(wire: &mut Wire) -> Value {
    loop {
        let mut notice = wire.next_notice().expect("an offer");
        if notice["method"] == "notifications/offer" {
            return notice["params"]["notification"].take();
        }
    }
}

fn answer(wire: &mut Wire, offered: &Value, disposition: &str) {
    let params = json!({"command_id": offered["command_id"], "disposition": disposition});
    wire.ok("notifications/ack", params);
}

fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Takes offers until `count` are answered for good.
fn answer_all(wire: &mut Wire, answered: &mut BTreeSet<String>, count: usize) {
    while answered.len() < count {
        let offered = offer(wire);
        let id = offered["command_id"].as_str().unwrap().to_owned();
        assert!(!answered.contains(&id), "offered after its answer: {offered}");
        answer(wire, &offered, "accepted");
        answered.insert(id);
    }
}

#[test]
fn every_completion_is_told_until_it_is_answered_and_memory_stays_flat() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "every_completion_is_told_until_it_is_answered_and_memory_stays_flat",
    ) {
        return;
    }
    let count = rounds::or(SAMPLE);
    let mut daemon = Setup::new(Tier::Shim)
        .limit("running_loop_max = 16")
        .limit("memory_process_bytes = 65536")
        .start();
    let mut owner = daemon.owner();
    let mut answered = BTreeSet::new();
    let mut started = 0;
    let mut run = |owner: &mut Owner, upto: usize| {
        while started < upto {
            let more = json!({"background": true, "queue_timeout_ms": 600_000, "label": format!("{started}")});
            owner.start(&["true"], more);
            started += 1;
        }
    };
    // A slow one: it answers nothing until all have ended, far beyond its window.
    let mut slow = owner.attach(daemon.connect()).wire;
    subscribe(&mut slow);
    run(&mut owner, count / 4);
    answer_all(&mut slow, &mut answered, count / 4);
    drop(slow);
    let quarter = resident_kib(&daemon);
    // One that vanishes with its window full, again and again.
    for part in [3, 4] {
        let mut vanishing = owner.attach(daemon.connect()).wire;
        subscribe(&mut vanishing);
        run(&mut owner, count * part / 8);
        drop(offer(&mut vanishing));
    }
    let mut next = owner.attach(daemon.connect()).wire;
    subscribe(&mut next);
    answer_all(&mut next, &mut answered, count / 2);
    drop(next);
    run(&mut owner, count * 3 / 4);
    let before = resident_kib(&daemon);
    // The daemon dies with a quarter of them unanswered.
    wait::until_true("nothing runs", wait::STEP * 4, || {
        let params = json!({"state": "running", "limit": 1});
        owner.wire.ok("process/list", params)["records"] == json!([])
    });
    daemon.kill();
    daemon.restart();
    let mut owner = owner.attach(daemon.connect());
    run(&mut owner, count);
    let mut last = owner.attach(daemon.connect()).wire;
    subscribe(&mut last);
    answer_all(&mut last, &mut answered, count);
    last.ok("process/list", json!({"limit": 1}));
    assert_eq!(last.take_notices(), Vec::<Value>::new(), "no answered one again");
    let end = resident_kib(&daemon);
    println!(
        "{count} completions; resident {quarter} KiB at a quarter, {before} at three, {end} at the end"
    );
    let most = quarter + GROWTH_KIB;
    assert!(before <= most && end <= most, "{quarter}, {before}, {end} KiB");
}

#[test]
fn each_answer_does_what_the_table_says() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    subscribe(&mut owner.wire);
    let mut offers = BTreeMap::new();
    for word in ["accepted", "duplicate", "stopped", "collision"] {
        owner.start(&["true"], json!({"label": word}));
        offers.insert(word, offer(&mut owner.wire));
    }
    // Another loop of the same session has none of them, nor has another session.
    let other = json!(uuid::Uuid::new_v4().to_string());
    for mut foreign in [owner.attach_as(daemon.connect(), other), daemon.owner()] {
        for offered in offers.values() {
            let params = json!({"command_id": offered["command_id"], "disposition": "accepted"});
            let known = foreign.wire.refused("not_found", "notifications/ack", params);
            let params = json!({"command_id": uuid::Uuid::new_v4(), "disposition": "accepted"});
            let unknown = foreign.wire.refused("not_found", "notifications/ack", params);
            assert_eq!(known, unknown, "a foreign one is like none");
        }
    }
    for (word, offered) in &offers {
        answer(&mut owner.wire, offered, word);
    }
    let again = |wire: &mut Wire, word: &str, disposition: &str| {
        let id = &offers[word]["command_id"];
        wire.call("notifications/ack", json!({"command_id": id, "disposition": disposition}))
    };
    for restarted in [false, true] {
        if restarted {
            daemon.kill();
            daemon.restart();
            owner = owner.attach(daemon.connect());
        }
        for (word, disposition) in
            [("accepted", "accepted"), ("duplicate", "accepted"), ("collision", "collision")]
        {
            assert!(again(&mut owner.wire, word, disposition).is_ok(), "{word}, repeated");
        }
        let error = again(&mut owner.wire, "collision", "accepted").unwrap_err();
        assert_eq!(error["code"], "invalid_arguments", "{error}");
        assert_eq!(error["details"]["field"], "disposition", "{error}");
        let status = daemon.operator().ok("daemon/status", json!({}));
        assert_eq!(status["collisions"], 1, "{status}");
        assert_eq!(status["dropped_notifications"], 0, "{status}");
        // On the next subscribe only the stopped one comes, under its id.
        let mut next = owner.attach(daemon.connect()).wire;
        subscribe(&mut next);
        assert_eq!(offer(&mut next), offers["stopped"]);
        next.ok("process/list", json!({"limit": 1}));
        assert_eq!(next.take_notices(), Vec::<Value>::new());
        // And every five seconds while connected.
        answer(&mut next, &offers["stopped"], "stopped");
        assert_eq!(offer(&mut next), offers["stopped"]);
    }
    answer(&mut owner.wire, &offers["stopped"], "accepted");
}

/// Symptom: gone with its record. An unanswered notification outlives it, over a killed daemon.
#[test]
fn an_unanswered_notification_outlives_its_record() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    subscribe(&mut owner.wire);
    let process = handle(&owner.start(&["true"], json!({})));
    let offered = offer(&mut owner.wire);
    owner.wire.ok("process/remove", json!({"process_id": process}));
    daemon.kill();
    daemon.restart();
    let mut again = owner.attach(daemon.connect());
    subscribe(&mut again.wire);
    assert_eq!(offer(&mut again.wire), offered);
    answer(&mut again.wire, &offered, "accepted");
    daemon.kill();
    daemon.restart();
    let mut last = again.attach(daemon.connect());
    subscribe(&mut last.wire);
    last.list();
    assert_eq!(last.wire.take_notices(), Vec::<Value>::new());
}
