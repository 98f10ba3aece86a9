//! Waiting for output and ends: what wakes, what does not, and what it costs.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use procd_tests::{Daemon, Setup, Tier, binaries, owner::number, run::rounds, wait};
use serde_json::json;

const RANDOM: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// How often each thread of daemon and guardian went to sleep of its own will.
fn sleeps(daemon: &Daemon) -> BTreeMap<PathBuf, u64> {
    let own = daemon.pid();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let guardian = children.split_whitespace().next().unwrap().parse().unwrap();
    let threads = [own, guardian].into_iter().flat_map(|pid: u32| {
        fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
    });
    let count = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((thread.path(), line.trim().parse().ok()?))
    };
    threads.filter_map(count).collect()
}

both_tiers! {
    /// No timer and no polling: once the last work of the start is over nobody wakes, for 20 s in
    /// the long form.
    fn a_blocked_wait_wakes_nobody(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        for wait in [json!("any"), json!("exit"), json!({"until": {"match": "never", "bytes": 5}})] {
            owner.wire.send("process/output", json!({"process_id": process, "wait": wait}));
        }
        let quiet = Duration::from_secs(rounds(2).min(20));
        let begun = wait::now();
        // Threads that had something to do end for want of it, 10 s later.
        wait::until_true("a stretch in which nobody woke", Duration::from_secs(60) + quiet * 2, || {
            let before = sleeps(&daemon);
            std::thread::park_timeout(quiet);
            sleeps(&daemon) == before
        });
        println!("{tier:?}: no thread woke for {quiet:?}, {:?} after the start", begun.elapsed());
        owner.stop(&process, "kill", 0);
    }

    fn any_wakes_on_the_next_byte_and_returns_only_new_ones(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&[&binaries::probe(), "echo-lines"]);
        owner.wire.ok("process/input", json!({"process_id": process, "data": "one\n"}));
        let first = owner.output(&process, json!({"wait": "any"}));
        assert_eq!((first["output"].clone(), first["woke_by"].clone()), (json!("got one\n"), json!("output")), "{first}");
        let waiting = owner.wire.send("process/output", json!({"process_id": process, "cursor": -1_000_000, "wait": "any"}));
        assert_eq!(owner.wire.reply(waiting).unwrap()["results"][0]["output"], "got one\n", "a negative cursor is clamped");
        let cursor = number(&first, "next_cursor");
        let waiting = owner.wire.send("process/output", json!({"process_id": process, "cursor": cursor, "wait": "any"}));
        owner.wire.ok("process/input", json!({"process_id": process, "data": "two\n"}));
        let second = owner.wire.reply(waiting).unwrap();
        assert_eq!((second["results"][0]["output"].clone(), second["woke_by"].clone()), (json!("got two\n"), json!("output")), "{second}");
        owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
        assert_eq!(owner.ended(&process)["exit_code"], 0);
    }

    fn a_wait_that_is_satisfied_does_not_block(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let ended = owner.background(&["echo", "x"]);
        owner.ended(&ended);
        for wait in ["any", "all", "exit"] {
            let entry = owner.output(&ended, json!({"cursor": 2, "wait": wait}));
            assert_eq!((entry["woke_by"].clone(), entry["eof"].clone()), (json!("exit"), json!(true)), "{wait}: {entry}");
        }
        let poll = owner.output(&ended, json!({}));
        assert_eq!(poll["woke_by"], "poll", "{poll}");
    }

    fn all_wants_every_process(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let loud = owner.background_shell("echo loud; exec sleep 600");
        let quiet = owner.background(&[&binaries::probe(), "echo-lines"]);
        owner.output(&loud, json!({"wait": "any"}));
        let both = json!([loud, quiet]);
        let early = owner.wire.ok("process/output", json!({"process_ids": both, "wait": "all", "timeout_ms": 100}));
        assert_eq!(early["woke_by"], "timeout", "{early}");
        let one = owner.wire.ok("process/output", json!({"process_ids": both, "wait": "any"}));
        assert_eq!(one["woke_by"], "output", "{one}");
        let waiting = owner.wire.send("process/output", json!({"process_ids": both, "wait": "all"}));
        owner.wire.ok("process/input", json!({"process_id": quiet, "data": "now\n"}));
        let reply = owner.wire.reply(waiting).unwrap();
        assert_eq!((reply["results"][1]["output"].clone(), reply["woke_by"].clone()), (json!("got now\n"), json!("output")), "{reply}");
        owner.stop(&loud, "kill", 0);
        owner.stop(&quiet, "kill", 0);
    }

    fn exit_waits_for_all_and_is_told_as_it_happens(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let processes: Vec<String> = (0..3).map(|_| owner.background(&[&binaries::probe(), "echo"])).collect();
        let waiting = owner.wire.send("process/output", json!({"process_ids": processes, "wait": "exit"}));
        for process in &processes {
            owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
        }
        let reply = owner.wire.reply(waiting).unwrap();
        assert_eq!(reply["woke_by"], "exit", "{reply}");
        assert!(reply["results"].as_array().unwrap().iter().all(|entry| entry["state"] == "exited"), "{reply}");
    }

    fn a_bad_process_is_settled_and_the_others_are_served(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("echo good; exec sleep 600");
        let reply = owner.wire.ok("process/output", json!({"process_ids": [RANDOM, process], "wait": "any"}));
        assert_eq!(reply["results"][0]["error"]["code"], "not_found", "{reply}");
        assert_eq!((reply["results"][1]["output"].clone(), reply["woke_by"].clone()), (json!("good\n"), json!("output")), "{reply}");
        let alone = owner.output(RANDOM, json!({"wait": "any"}));
        assert_eq!(alone["error"]["code"], "not_found", "{alone}");
        owner.stop(&process, "kill", 0);
    }

    fn a_cancelled_wait_ends_and_the_process_lives(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let waiting = owner.wire.send("process/output", json!({"process_id": process, "wait": "exit"}));
        owner.wire.notice("$/cancel", json!({"for": waiting}));
        assert_eq!(owner.wire.reply(waiting).unwrap_err()["code"], "cancelled");
        assert_eq!(owner.output(&process, json!({}))["state"], "running");
        owner.stop(&process, "kill", 0);
    }

    fn slots_for_waits_are_bounded_and_come_back_at_once(tier) {
        let daemon = Setup::new(tier).limit("waiters_session_max = 2").start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let ask = json!({"process_id": process, "wait": "exit"});
        let waiting: Vec<u64> = (0..2).map(|_| owner.wire.send("process/output", ask.clone())).collect();
        let error = owner.wire.refused("output_quota_exceeded", "process/output", ask.clone());
        assert_eq!(error["retryable"], true, "{error}");
        owner.output(&process, json!({}));
        owner.wire.notice("$/cancel", json!({"for": waiting[0]}));
        owner.wire.reply(waiting[0]).unwrap_err();
        let again = owner.wire.ok("process/output", json!({"process_id": process, "wait": "exit", "timeout_ms": 10}));
        assert_eq!(again["woke_by"], "timeout", "{again}");
        let mut other = daemon.owner();
        let theirs = other.background(&["sleep", "600"]);
        let entry = other.output(&theirs, json!({"wait": "exit", "timeout_ms": 10}));
        assert_eq!(entry["woke_by"], "timeout", "another session has its own: {entry}");
        other.stop(&theirs, "kill", 0);
        owner.stop(&process, "kill", 0);
        assert_eq!(owner.wire.reply(waiting[1]).unwrap()["woke_by"], "exit");
    }

    /// C06: leftovers and waits of some slow nobody else down.
    fn a_hundred_waits_do_not_slow_a_start(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let ask = json!({"process_id": process, "wait": "exit"});
        let waiting: Vec<u64> = (0..60).map(|_| owner.wire.send("process/output", ask.clone())).collect();
        for _ in 0..100 {
            let before = wait::now();
            owner.start(&["true"], json!({}));
            assert!(before.elapsed() < wait::STEP / 10, "a start took {:?}", before.elapsed());
        }
        owner.stop(&process, "kill", 0);
        for id in waiting {
            assert_eq!(owner.wire.reply(id).unwrap()["woke_by"], "exit");
        }
    }
}
