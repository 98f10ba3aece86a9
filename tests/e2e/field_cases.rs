//! What went wrong in the field with software of this kind, case by case; those that belong to one subject are with it.

use procd_tests::{Setup, Tier, leaks, owner::handle, run::rounds, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn end_of(entry: &Value) -> (Value, Value) {
    (entry["state"].clone(), entry["exit_code"].clone())
}

both_tiers! {
    /// C04: no live process means that the wait ends.
    fn a_pipeline_is_never_waited_for_beyond_its_end(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for _ in 0..rounds(25).min(500) {
            let entry = owner.start(&["sh", "-c", "(seq 1 20000; exit 1) | tail -40"], json!({}));
            assert_eq!(end_of(&entry), (json!("exited"), json!(0)), "{entry}");
            assert_eq!(entry["output"].as_str().unwrap().lines().count(), 40, "{entry}");
        }
    }

    /// C51: no byte comes after the end that was announced.
    fn the_total_at_the_end_is_final(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for _ in 0..20 {
            let process = owner.background(&["seq", "1", "3000"]);
            let ended = owner.ended(&process);
            assert_eq!(ended["total_bytes"], 13_893, "{ended}");
            assert_eq!(owner.output(&process, json!({"cursor": -1}))["total_bytes"], 13_893);
        }
    }

    /// C59: fast repeats lose nothing, and the daemon stays the same.
    fn a_printer_started_again_and_again_loses_nothing(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for _ in 0..rounds(50).min(200) {
            let entry = owner.start(&["seq", "1", "10000"], json!({}));
            assert_eq!((end_of(&entry), entry["total_bytes"].clone()), ((json!("exited"), json!(0)), json!(48_894)), "{entry}");
        }
        daemon.terminate();
        assert_eq!(daemon.ended().code(), Some(0));
    }

    /// C99: unknown, ended, without a pipe and closed are told apart; none of them is the daemon's trouble.
    fn input_that_cannot_be_taken_says_why(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let ended = handle(&owner.start(&["true"], json!({})));
        let without = handle(&owner.start(&["sleep", "600"], json!({"background": true, "stdin": "null"})));
        let closed = owner.background(&["sleep", "600"]);
        owner.wire.ok("process/input", json!({"process_id": closed, "eof": true}));
        let mut refused = |process: &str, code: &str| {
            owner.wire.refused(code, "process/input", json!({"process_id": process, "data": "x"}))["message"].clone()
        };
        refused(&"A".repeat(22), "not_found");
        let mut said = vec![refused(&ended, "stdin_closed"), refused(&without, "stdin_closed"), refused(&closed, "stdin_closed")];
        said.dedup();
        assert_eq!(said.len(), 3, "{said:?}");
    }

    /// C109: broken pipes end a pipeline, whatever the daemon ignores.
    fn a_pipeline_whose_reader_leaves_ends_quietly(tier) {
        let daemon = Setup::new(tier).start();
        let entry = daemon.owner().start(&["sh", "-c", "yes | head -n1"], json!({}));
        assert_eq!((end_of(&entry), entry["output"].clone()), ((json!("exited"), json!(0)), json!("y\n")), "{entry}");
    }

    /// C116: a command has the limit of open files that the daemon was started with.
    fn the_limit_of_open_files_is_the_one_before_the_daemon_raised_its_own(tier) {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let daemon = Setup::new(tier).start();
        let entry = daemon.owner().start(&["sh", "-c", "ulimit -n"], json!({}));
        assert_eq!(entry["output"].as_str().unwrap().trim().parse().ok(), limit, "{entry}");
    }

    /// C119: the environment travels with the request, and with nothing else.
    fn variables_of_two_clients_never_mix(tier) {
        let daemon = Setup::new(tier).environment("PROJECT", "of the daemon").start();
        let (mut one, mut other) = (daemon.owner(), daemon.owner());
        let line = ["sh", "-c", "echo \"[$PROJECT]\""];
        for _ in 0..5 {
            assert_eq!(one.start(&line, json!({"env": {"PROJECT": "one"}}))["output"], "[one]\n");
            assert_eq!(other.start(&line, json!({"env": {"PROJECT": "other"}}))["output"], "[other]\n");
            assert_eq!(other.start(&line, json!({}))["output"], "[]\n");
        }
    }
}

both_tiers_inside! {
    /// C17: the depth of a chain of shells does not matter, nor who kills its first.
    fn a_chain_whose_first_link_is_killed_from_outside_ends_whole(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let idle = leaks::everybody().len();
        let process = owner.background_shell("sh -c \"sh -c 'sleep 600; :'; :\" & echo $$; wait; :");
        let shown = owner.output(&process, json!({"wait": "any"}));
        // Its own pid, as the command itself tells it, and still unreaped.
        let first = shown["output"].as_str().unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
        let entry = owner.ended(&process);
        assert_eq!((end_of(&entry), entry["leader"]["signal"].clone()), ((json!("exited"), json!(137)), json!(9)), "{entry}");
        let left = leaks::everybody_but_shims();
        assert_eq!(left.len(), idle, "{left:?}");
    }

    /// C49: an end that comes while the daemon is stopped is seen when it goes on.
    fn an_end_while_the_daemon_is_stopped_is_not_missed(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let marker = daemon.path().join("over");
        let process = owner.background_shell(&format!("read -r line; : >{}; exit 5", marker.display()));
        let own = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
        owner.wire.ok("process/input", json!({"process_id": process, "data": "go\n", "flush_ms": 10_000}));
        kill_process(own, Signal::STOP).unwrap();
        wait::until_true("the command is over", wait::STEP, || marker.exists());
        kill_process(own, Signal::CONT).unwrap();
        assert_eq!(end_of(&owner.ended(&process)), (json!("exited"), json!(5)));
    }

    /// C114, C144: a killed daemon's place is free at once, and ends stay what they were, restart after restart.
    fn ends_are_the_same_after_every_restart(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let exited = handle(&owner.start(&["sh", "-c", "exit 3"], json!({})));
        let killed = owner.background(&["sleep", "600"]);
        owner.stop(&killed, "kill", 0);
        let params = owner.start_params(&["/no/such/program"], json!({}));
        let failed = owner.wire.refused("spawn_failed", "process/start", params)["details"]["process_id"].clone();
        let lost = owner.background(&["sleep", "600"]);
        let opened = owner.opened.clone();
        for _ in 0..3 {
            daemon.kill();
            daemon.restart();
            let mut owner = daemon.again(&opened);
            let mut state = |process: &str| owner.record(process)["state"].clone();
            let states = [state(&exited), state(&killed), state(failed.as_str().unwrap()), state(&lost)];
            assert_eq!(states, ["exited", "killed", "failed", "lost_on_restore"]);
        }
    }
}
