//! A command that has ended has ended for everybody, and one that has not has not.

use std::time::Duration;

use procd_tests::{
    Setup, Tier,
    figures::zombies,
    leaks,
    owner::{handle, number},
    run::rounds,
    wait,
};
use serde_json::{Value, json};

use super::{end_of, ends_from};

/// C06: leaders that are gone and leftovers that sleep, kept ones with pipes and orphans of terminals.
#[test]
fn leftovers_of_twenty_leaders_slow_nobody_down() {
    let setup = Setup::new(Tier::Shim).limit("running_loop_max = 64");
    let daemon = setup.limit("running_session_max = 64").start();
    let mut owner = daemon.owner();
    let keeps = json!({"on_leader_exit": "keep_tree"});
    for _ in 0..20 {
        let entry = owner.start(&["sh", "-c", "sleep 600 & exit 0"], keeps.clone());
        assert_eq!(
            (&entry["state"], &entry["leader"]["code"]),
            (&json!("running"), &json!(0)),
            "{entry}"
        );
    }
    let line = "(trap '' TERM HUP; exec sleep 600) & exit 0";
    let mut took: Vec<Duration> = Vec::new();
    for round in 0..rounds(20).min(200) {
        if round % 10 == 0 {
            owner.start(&["sh", "-c", line], json!({"background": true, "tty": true}));
        }
        let began = wait::now();
        assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0);
        took.push(began.elapsed());
    }
    took.sort();
    println!(
        "{} starts beside leftovers: p50 {:?}, most {:?}",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
    assert!(took[took.len() - 1] < wait::STEP / 10, "{took:?}");
    owner.wire.ok("session/stop_all", json!({"mode": "kill"}));
}

both_tiers! {
    /// C07: data, then the end, then the end of the stream, though a grandchild held the pipe.
    fn a_follower_gets_data_then_the_end_then_the_end_of_the_stream(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let mut events = owner.attach(daemon.connect());
        let process = owner.background_shell("echo done; read line; sleep 600 &");
        let data = owner.output(&process, json!({"wait": "any"}));
        assert_eq!((&data["output"], &data["state"], &data["eof"]), (&json!("done\n"), &json!("running"), &json!(false)), "{data}");
        owner.wire.ok("process/input", json!({"process_id": process, "data": "\n"}));
        let ask = json!({"cursor": number(&data, "next_cursor"), "wait": "exit"});
        let end = owner.output(&process, ask);
        assert_eq!((end_of(&end), &end["output"], &end["eof"]), ((json!("exited"), json!(0)), &json!(""), &json!(true)), "{end}");
        assert_eq!(ends_from(&mut events.wire, 1, 1).0, [process]);
    }

    /// C12: no prompt, no file of a shell and no variable of it is needed to see what a command wrote, nor is any in the way.
    fn a_noisy_shell_takes_nothing_from_the_output_and_adds_nothing(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for name in [".bashrc", ".bash_profile", ".profile"] {
            std::fs::write(daemon.cwd().join(name), "echo noise; PS1='noisy> '; exec 2>/dev/null\n").unwrap();
        }
        let env = json!({"SHELL": "/bin/bash", "HOME": daemon.cwd(), "PS1": "noisy> ", "PROCD_TEST_FOLDER": daemon.cwd()});
        for (tty, wanted) in [(false, "first\nlast\n"), (true, "first\r\nlast\r\n")] {
            let params = json!({"command": "echo first; echo last", "cwd": daemon.cwd(), "env": env, "tty": tty});
            let entry = owner.wire.ok("process/start", params);
            assert_eq!((end_of(&entry), &entry["output"]), ((json!("exited"), json!(0)), &json!(wanted)), "{entry}");
        }
    }

    /// C42: unknown stays unknown until it is reaped; nothing makes up a zero.
    fn a_killed_terminal_process_never_exits_with_zero(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["sh", "-c", "kill -9 $$"], json!({"tty": true}));
        for _ in 0..rounds(10).min(125) {
            let ids: Vec<u64> = (0..4).map(|_| owner.wire.send("process/start", params.clone())).collect();
            for id in ids {
                let entry = owner.wire.reply(id).unwrap();
                assert_eq!((end_of(&entry), &entry["leader"]["signal"]), ((json!("exited"), json!(137)), &json!(9)), "{entry}");
            }
        }
    }

    /// C154: at the moment of its end event nothing of the process is left.
    fn an_end_is_told_only_when_the_process_is_gone(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let mut reader = owner.attach(daemon.connect());
        let mut seq = 1;
        for _ in 0..rounds(10).min(200) {
            let process = owner.background_shell("sleep 600 & echo $! $$; exit 0");
            let (ends, last) = ends_from(&mut reader.wire, seq, 1);
            let alive = |text: String| text.split_whitespace().any(|pid| std::path::Path::new("/proc").join(pid).exists());
            assert!(!alive(owner.text(&process)), "it lives at its end event");
            assert_eq!(ends, [process]);
            seq = last + 1;
            reader = owner.attach(daemon.connect());
        }
    }

    /// C156: a poll that races the end sees it, and none waits for its whole time.
    fn long_polls_that_race_the_end_see_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for round in 0..rounds(40).min(1000) {
            let process = owner.background(&["sleep", "0.01"]);
            std::thread::park_timeout(Duration::from_micros(round * 7919 % 20_000));
            let entry = owner.output(&process, json!({"wait": "any", "timeout_ms": 600_000}));
            assert_eq!((end_of(&entry), &entry["woke_by"]), ((json!("exited"), json!(0)), &json!("exit")), "{entry}");
        }
    }

    /// C164, C102: one call gives the end and what was written, as soon as there is an end; a finished command is shown finished.
    fn a_start_that_waits_returns_with_the_end_in_one_call(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", "sleep 0.3; echo x"], json!({"yield_time_ms": 600_000}));
        assert_eq!((end_of(&entry), &entry["output"], &entry["woke_by"]), ((json!("exited"), json!(0)), &json!("x\n"), &json!("exit")), "{entry}");
        let entry = owner.start(&["true"], json!({"tty": true}));
        assert_eq!((end_of(&entry), &owner.record(&handle(&entry))["state"]), ((json!("exited"), json!(0)), &json!("exited")), "{entry}");
    }
}

both_tiers_inside! {
    /// C34: nobody piles up.
    fn short_processes_at_once_leave_no_zombie(tier) {
        let setup = Setup::new(tier).limit("running_loop_max = 50").limit("running_session_max = 50");
        let daemon = setup.start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["true"], json!({"memory_bytes": 4096, "spool_bytes": 65536}));
        for _ in 0..rounds(5).min(100) {
            let ids: Vec<u64> = (0..50).map(|_| owner.wire.send("process/start", params.clone())).collect();
            for id in ids {
                assert_eq!(owner.wire.reply(id).unwrap()["exit_code"], 0);
            }
        }
        // What was already there when the first of them ended is pid 1's, and that is the test.
        wait::until_true("no zombie", wait::STEP, || zombies() == 0);
    }

    /// C36: whoever started it is gone, nobody calls any more, and it is reaped all the same.
    fn nothing_waits_for_a_later_call_to_be_reaped(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for count in 1..=3 {
            let mut gone = owner.attach(daemon.connect());
            let params = gone.start_params(&["sleep", "600"], json!({"background": true}));
            gone.wire.send("process/start", params);
            wait::until_true("it is on its way", wait::STEP, || owner.list().len() == count);
            drop(gone);
        }
        wait::until_true("all three run", wait::STEP, || {
            owner.list().iter().filter(|record| record["state"] == "running").count() == 3
        });
        let idle = leaks::everybody().len();
        for record in owner.list() {
            owner.stop(&handle(&record), "kill", 0);
        }
        // Not another word to the daemon.
        wait::until_true("nobody is left unreaped", wait::STEP, || zombies() == 0 && leaks::everybody().len() < idle);
    }

    /// C37: as pid 1 of a namespace the daemon adopts what nobody else does, reaps it, and takes no record's status for it.
    fn as_pid_one_it_reaps_what_is_orphaned_and_confuses_no_end(tier) {
        const LINE: &str = "exec unshare --pid --fork --mount-proc --kill-child -- \"$0\"";
        let mut daemon = Setup::new(tier).through(LINE).start();
        // From outside its namespace nobody has a number there: connected while nothing runs.
        let (mut owner, mut operator) = (daemon.owner(), daemon.operator());
        let line = "i=0; while [ $i -lt 20 ]; do (setsid sh -c 'exit 9' &); i=$((i+1)); done; exit 7";
        let ends: Vec<Value> = (0..5).map(|_| owner.start(&["sh", "-c", line], json!({}))).collect();
        assert!(ends.iter().all(|entry| end_of(entry) == (json!("exited"), json!(7))), "{ends:?}");
        wait::until_true("no zombie", wait::STEP, || zombies() == 0);
        operator.ok("daemon/shutdown", json!({}));
        assert_eq!(daemon.ended().code(), Some(0));
    }
}
