//! Whoever is asked to end ends, with everything it started, and nobody else does.

use std::time::Duration;

use procd_tests::{
    Owner, Setup, Tier, leaks,
    owner::{handle, number},
    run::{self, rounds},
    wait,
};
use rustix::process::Signal;
use serde_json::json;

use super::{end_of, ends_from};

both_tiers_inside! {
    /// C21: an interactive shell ignores the polite signals and gives its job a group of its own.
    fn an_interactive_shell_with_a_job_of_its_own_ends_whole(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let idle = leaks::everybody().len();
        for shell in ["bash", "dash"] {
            for (mode, grace) in [("terminate", 500), ("kill", 0)] {
                let argv = [shell, "-i", "-c", "set -m; echo up; sleep 600; true"];
                let process = handle(&owner.start(&argv, json!({"tty": true, "background": true})));
                wait::until_true("it is up", wait::STEP, || owner.text(&process).contains("up"));
                let result = owner.stop(&process, mode, grace);
                assert!(["terminated", "killed"].contains(&result["state"].as_str().unwrap()), "{shell}: {result}");
                let left = leaks::everybody_but_shims();
                assert_eq!(left.len(), idle, "{shell}, {mode}: {left:?}");
            }
        }
    }

    /// C24: a client that is killed takes nothing along and hides nothing.
    fn what_a_killed_client_started_is_listed_and_stopped_by_another(tier) {
        let daemon = Setup::new(tier).start();
        let mut client = run::start(run::procctl(&daemon, &["start", "--", "sleep", "600"]));
        let text = wait::until("the client is done", wait::STEP, || client.child.try_wait().unwrap().map(|_| client.collected().0));
        let process = String::from_utf8(text).unwrap().trim().to_owned();
        let mut following = run::start(run::procctl(&daemon, &["logs", "-f", &process]));
        following.child.kill().unwrap();
        following.child.wait().unwrap();
        let listed = run::ctl(&daemon, &["ps", "-q"]).success();
        assert!(listed.lines().any(|line| process.starts_with(line.trim())), "{listed}");
        run::ctl(&daemon, &["stop", "-t", "0", &process]).success();
    }

    /// C31: asked to end while it restores, it does, and the next one restores all of it.
    fn a_termination_at_any_moment_of_a_restore_is_obeyed(tier) {
        let setup = Setup::new(tier).limit("running_loop_max = 64").limit("running_session_max = 64");
        let mut daemon = setup.limit("retained_session_max = 10000").start();
        let mut owner = daemon.owner();
        let records = usize::try_from(rounds(40).min(500)).unwrap();
        for _ in 0..records {
            owner.start(&["true"], json!({"memory_bytes": 4096, "spool_bytes": 65536}));
        }
        let opened = owner.opened.clone();
        drop(owner);
        daemon.kill();
        for pause_ms in [0, 3, 10, 30, 60, 100] {
            daemon.launch();
            std::thread::park_timeout(Duration::from_millis(pause_ms));
            daemon.terminate();
            // Before it can hear the signal it is ended by it.
            let status = daemon.ended();
            assert!(status.success() || status.code().is_none(), "{status:?}");
            wait::until_true("nothing is left", wait::STEP, || leaks::everybody().is_empty());
        }
        daemon.restart();
        assert_eq!(daemon.again(&opened).list().len(), records);
    }

    /// C32: what stands still and hears nothing holds nobody up for longer than the grace, and is named.
    fn a_shutdown_ends_and_names_what_stands_still(tier) {
        let mut daemon = Setup::new(tier).limit("grace_ms = 500").start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("trap '' TERM; echo up; kill -STOP $$; while :; do sleep 1; done");
        owner.output(&process, json!({"wait": "any"}));
        let began = wait::now();
        daemon.terminate();
        assert_eq!(daemon.ended().code(), Some(0));
        println!("{tier:?}: a grace of 500 ms, ended after {:?}", began.elapsed());
        assert!(daemon.log().contains("did not end within the grace"), "{}", daemon.log());
        daemon.restart();
        let record = daemon.again(&owner.opened).record(&process);
        assert_eq!((&record["state"], &record["reason"], &record["escalated"]), (&json!("killed"), &json!("runner-shutdown"), &json!(true)), "{record}");
    }

    /// C136, C139: the service manager ends all of it in one moment, again and again.
    fn everything_killed_at_once_is_followed_by_a_clean_start(tier) {
        const LINE: &str = "exec unshare --pid --fork --mount-proc --kill-child -- \"$0\"";
        let mut daemon = Setup::new(tier).through(LINE).limit("retained_session_max = 10000").start();
        let opened = daemon.owner().opened;
        let mut told = Vec::new();
        for round in 0..rounds(3).min(50) {
            let mut owner = daemon.again(&opened);
            for line in ["setsid sleep 600 & exec sleep 600", "while :; do echo loud; done"] {
                told.push(owner.background_shell(line));
            }
            std::thread::park_timeout(Duration::from_micros(round * 7919 % 50_000));
            daemon.kill();
            wait::until_true("nothing lives", wait::STEP, || leaks::everybody().is_empty());
            daemon.restart();
            // Nothing runs: whoever has no number in that namespace is let in.
            let restore = daemon.operator().ok("daemon/status", json!({}))["restore"].clone();
            assert_eq!((&restore["done"], &restore["damaged"]), (&json!(true), &json!(0)), "{restore}");
        }
        let mut owner = daemon.again(&opened);
        for process in &told {
            assert_eq!(owner.record(process)["state"], "lost_on_restore");
        }
        assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n");
        daemon.operator().ok("daemon/shutdown", json!({}));
        assert_eq!(daemon.ended().code(), Some(0));
    }
}

both_tiers! {
    /// C26: the same words in two sessions are two processes, and neither hears of the other's.
    fn two_clients_with_the_same_command_hear_nothing_of_each_other(tier) {
        let daemon = Setup::new(tier).start();
        let mut owners = [daemon.owner(), daemon.owner()];
        let of = |owner: &mut Owner| handle(&owner.start(&["echo", "same"], json!({"label": "same"})));
        let processes = [of(&mut owners[0]), of(&mut owners[1])];
        for (at, owner) in owners.iter_mut().enumerate() {
            let other = &processes[1 - at];
            assert_eq!(owner.list().iter().map(handle).collect::<Vec<_>>(), [processes[at].clone()]);
            owner.wire.refused("not_found", "process/inspect", json!({"process_id": other}));
            let read = owner.output(other, json!({}));
            assert_eq!(read["error"]["code"], "not_found", "{read}");
            assert_eq!(ends_from(&mut owner.wire, 1, 1).0, [processes[at].clone()]);
            // Whatever else was on the way would come before this.
            owner.list();
            let heard = owner.wire.take_notices();
            assert!(heard.iter().all(|notice| !notice.to_string().contains(other.as_str())), "{heard:?}");
        }
    }

    /// C27: what a leader leaves behind is counted and ended; where it is kept, it is shown with what it uses.
    fn a_leftover_that_burns_is_counted_or_shown_with_its_use(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = ["sh", "-c", "yes >/dev/null & true"];
        let entry = owner.start(&line, json!({}));
        assert_eq!(end_of(&entry), (json!("exited"), json!(0)), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["leftovers"], 1);
        let entry = owner.start(&line, json!({"on_leader_exit": "keep_tree"}));
        let process = handle(&entry);
        let used = wait::until("it has used some CPU", wait::STEP, || {
            let shown = owner.wire.ok("process/inspect", json!({"process_id": process}));
            assert_eq!((&shown["record"]["state"], &shown["live_descendants"]), (&json!("running"), &json!(1)), "{shown}");
            shown["usage"].as_object().unwrap().iter().find(|(name, value)| name.contains("cpu") && value.as_u64() > Some(20)).map(|(_, value)| value.clone())
        });
        println!("{tier:?}: {used} ms of CPU shown");
        owner.stop(&process, "kill", 0);
    }

    /// C22: a daemon that a shell without job control started in the background has SIGINT ignored; its commands have not.
    fn a_command_of_a_daemon_that_ignores_interrupts_dies_of_one(tier) {
        let daemon = Setup::new(tier).through("trap '' INT QUIT; exec \"$0\"").start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        owner.wire.ok("process/signal", json!({"process_id": process, "signal": "SIGINT"}));
        let ended = owner.ended(&process);
        assert_eq!((number(&ended["leader"], "signal"), &ended["state"]), (2, &json!("exited")), "{ended}");
    }
}

/// C31: a burst of starts, and the signal in the middle of it.
#[test]
fn a_termination_during_a_large_burst_of_starts_is_obeyed() {
    let setup =
        Setup::new(Tier::Shim).limit("running_loop_max = 512").limit("running_session_max = 512");
    let mut daemon = setup.limit("retained_session_max = 1000").start();
    let mut owner = daemon.owner();
    let starts = rounds(50).min(500);
    let more = json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536});
    let params = owner.start_params(&["sleep", "600"], more);
    for at in 0..starts {
        if at == starts / 2 {
            rustix::process::kill_process(super::pid_of(&daemon), Signal::TERM).unwrap();
        }
        owner.wire.send("process/start", params.clone());
        if at % 100 == 99 {
            // So many may be in flight.
            owner.wire.next_object();
        }
    }
    assert_eq!(daemon.ended().code(), Some(0));
    assert_eq!(leaks::processes(daemon.path()), Vec::<String>::new());
}
