//! From start to end: how ends are told, what is left of a tree, who waits for what.

use std::{fs, os::unix::fs::PermissionsExt as _};

use procd_tests::{
    Setup, Tier, binaries,
    owner::{handle, number},
    run, wait,
};
use serde_json::{Value, json};

/// Signals whose default is not to end a process.
const HARMLESS: &[i32] = &[17, 18, 19, 20, 21, 22, 23, 28];

both_tiers! {
    /// C41: the status of the process and nothing else.
    fn every_exit_code_comes_back_exactly(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let probe = binaries::probe();
        for (code, tty) in (0..=255).flat_map(|code| [(code, false), (code, true)]) {
            let entry = owner.start(&[&probe, "exit", &code.to_string()], json!({"tty": tty}));
            assert_eq!(entry["state"], "exited", "{entry}");
            assert_eq!(entry["reason"], "exited", "{entry}");
            assert_eq!(entry["exit_code"], code, "{entry}");
            assert_eq!(entry["leader"], json!({"code": code}), "{entry}");
        }
    }

    /// C41: and its signal.
    fn every_fatal_signal_comes_back_exactly(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let fatal = (1..=64).filter(|signal| !HARMLESS.contains(signal));
        for (signal, tty) in fatal.flat_map(|signal| [(signal, false), (signal, true)]) {
            let line = format!("kill -{signal} $$; exit 99");
            let entry = owner.start(&["sh", "-c", &line], json!({"tty": tty}));
            assert_eq!(entry["state"], "exited", "{signal}: {entry}");
            assert_eq!(entry["exit_code"], 128 + signal, "{signal}: {entry}");
            assert_eq!(entry["leader"]["signal"], signal, "{signal}: {entry}");
            assert!(entry["leader"]["signal_name"].as_str().unwrap().starts_with("SIG"), "{entry}");
            assert!(entry["leader"]["core_dumped"].is_boolean(), "{entry}");
        }
    }

    /// C01: a background child that holds the streams does not hold the end.
    fn the_end_is_that_of_the_leader_not_of_its_leftovers(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", "sleep 600 & echo done"], json!({}));
        assert_eq!(entry["state"], "exited", "{entry}");
        assert_eq!(entry["exit_code"], 0, "{entry}");
        assert_eq!(entry["output"], "done\n", "{entry}");
        assert!(number(&entry, "duration_ms") < 1000, "{entry}");
        assert_eq!(owner.record(&handle(&entry))["leftovers"], 1);
    }

    /// C02: nor does one that goes on writing.
    fn a_noisy_leftover_is_ended_with_the_tree(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "(while :; do echo tick; sleep .05; done) & echo fg; exit 3";
        let entry = owner.start(&["sh", "-c", line], json!({}));
        assert_eq!(entry["exit_code"], 3, "{entry}");
        assert!(entry["output"].as_str().unwrap().contains("fg\n"), "{entry}");
        let total = number(&owner.ended(&handle(&entry)), "total_bytes");
        let eof = owner.output(&handle(&entry), json!({"cursor": total}));
        assert_eq!((eof["eof"].clone(), eof["output"].clone()), (json!(true), json!("")), "{eof}");
    }

    /// C19: however it detaches.
    fn a_detached_descendant_ends_with_its_tree(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let probe = binaries::probe();
        let entry = owner.start(&[&probe, "detach", "600"], json!({}));
        assert_eq!((entry["exit_code"].clone(), entry["output"].clone()), (json!(0), json!("detached\n")), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["leftovers"], 1);
        let marks = daemon.cwd();
        let left: Vec<_> = procd_tests::leaks::processes(&marks).into_iter().filter(|line| line.contains("sleep")).collect();
        assert_eq!(left, Vec::<String>::new());
    }

    fn background_replies_while_it_runs_and_yield_within_its_time(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let probe = binaries::probe();
        let running = owner.start(&[&probe, "sleep", "600"], json!({"background": true, "yield_time_ms": 600_000}));
        assert_eq!((running["state"].clone(), running["woke_by"].clone()), (json!("running"), json!("poll")), "{running}");
        assert!(running["exit_code"].is_null() && running["finished_at"].is_null(), "{running}");
        let yielded = owner.start(&[&probe, "sleep", "600"], json!({"yield_time_ms": 50}));
        assert_eq!((yielded["state"].clone(), yielded["woke_by"].clone()), (json!("running"), json!("timeout")), "{yielded}");
        let ended = owner.start(&[&probe, "exit", "4"], json!({"yield_time_ms": 60_000}));
        assert_eq!((ended["state"].clone(), ended["woke_by"].clone()), (json!("exited"), json!("exit")), "{ended}");
        assert_eq!(ended["exit_code"], 4, "{ended}");
        owner.stop(&handle(&running), "kill", 0);
        owner.stop(&handle(&yielded), "kill", 0);
    }

    fn a_deadline_ends_the_tree_and_names_the_end(tier) {
        let daemon = Setup::new(tier).limit("grace_ms = 200").start();
        let mut owner = daemon.owner();
        let polite = owner.start(&["sleep", "600"], json!({"timeout_ms": 100}));
        assert_eq!((polite["state"].clone(), polite["reason"].clone()), (json!("timed_out"), json!("timed-out")), "{polite}");
        assert_eq!(polite["leader"]["signal"], 15, "{polite}");
        assert!(polite["exit_code"].is_null(), "{polite}");
        let probe = binaries::probe();
        let stubborn = owner.start(&[&probe, "ignore-term", "600"], json!({"timeout_ms": 4000}));
        assert_eq!(stubborn["state"], "timed_out", "{stubborn}");
        assert_eq!(stubborn["leader"]["signal"], 9, "{stubborn}");
        assert_eq!(owner.record(&handle(&stubborn))["escalated"], true);
        assert!(number(&stubborn, "duration_ms") >= 4200, "not before its grace was over: {stubborn}");
    }

    fn the_time_of_a_wait_never_touches_the_process(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let entry = owner.output(&process, json!({"wait": "exit", "timeout_ms": 50}));
        assert_eq!((entry["state"].clone(), entry["woke_by"].clone()), (json!("running"), json!("timeout")), "{entry}");
        owner.stop(&process, "kill", 0);
    }

    fn a_cancelled_start_ends_the_process_it_had(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let mut other = owner.attach(daemon.connect());
        let params = owner.start_params(&["sleep", "600"], json!({}));
        let id = owner.wire.send("process/start", params);
        let process = wait::until("the start is listed as running", wait::STEP, || {
            let record = other.list().into_iter().find(|record| record["state"] == "running")?;
            Some(handle(&record))
        });
        owner.wire.notice("$/cancel", json!({"for": id}));
        let error = owner.wire.reply(id).unwrap_err();
        assert_eq!(error["code"], "cancelled", "{error}");
        assert_eq!(error["details"]["process_id"], process.as_str(), "{error}");
        assert_eq!(other.ended(&process)["state"], "terminated");
    }

    /// C24: a client that goes leaves its processes listed, readable and stoppable.
    fn a_disconnect_never_ends_a_process(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let background = owner.background(&["sh", "-c", "echo here; sleep 600"]);
        let foreground = owner.start_params(&["sleep", "600"], json!({"label": "foreground"}));
        owner.wire.send("process/start", foreground);
        let mut again = owner.attach(daemon.connect());
        wait::until_true("both run", wait::STEP, || again.list().iter().filter(|record| record["state"] == "running").count() == 2);
        drop(owner);
        let text = again.output(&background, json!({"wait": "any"}));
        assert_eq!(text["output"], "here\n", "{text}");
        let states: Vec<Value> = again.list().iter().map(|record| record["state"].clone()).collect();
        assert_eq!(states, ["running", "running"]);
        for record in again.list() {
            again.stop(&handle(&record), "kill", 0);
        }
    }

    /// C39: a start that failed is an end, and a wait for it is over.
    fn a_failed_start_says_why_and_stays_listed(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let at = |name: &str| daemon.path().join(name).to_string_lossy().into_owned();
        for (name, text, mode) in [("plain", "not a program", 0o644), ("text", "not a program", 0o755)] {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let long = "x".repeat(200_000);
        for (argv, more, cause) in [
            (vec![at("missing")], json!({}), "no_such_program"),
            (vec!["no-such-program-on-any-path".to_owned()], json!({}), "no_such_program"),
            (vec![at("plain")], json!({}), "not_executable"),
            (vec![at("cwd")], json!({}), "not_executable"),
            (vec![at("text")], json!({}), "bad_format"),
            (vec!["true".to_owned()], json!({"cwd": at("missing")}), "cwd_missing"),
            (vec!["true".to_owned()], json!({"cwd": at("plain")}), "cwd_not_directory"),
            (vec!["true".to_owned(), long], json!({}), "argument_list_too_long"),
        ] {
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            let params = owner.start_params(&argv, more);
            let error = owner.wire.call("process/start", params).unwrap_err();
            assert_eq!(error["code"], "spawn_failed", "{cause}: {error}");
            assert_eq!(error["details"]["cause"], cause, "{error}");
            assert!(!error["message"].as_str().unwrap().contains(at("").as_str()), "a path in {error}");
            let process = error["details"]["process_id"].as_str().unwrap().to_owned();
            assert_eq!(owner.ended(&process)["state"], "failed");
            let record = owner.record(&process);
            assert_eq!((record["state"].clone(), record["reason"].clone()), (json!("failed"), json!("failed")), "{record}");
            assert!(record["exit_code"].is_null() && record["started_at"].is_null(), "{record}");
            assert!(record["diagnostic"].as_str().unwrap().contains(cause), "{record}");
        }
    }

    fn an_ended_record_tells_everything_and_its_seal_is_the_hash_of_what_is_kept(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let probe = binaries::probe();
        let origin = "9b2ff2a8-8f6e-4d0c-9d7e-3f6f3a1d2c4b";
        let more = json!({"label": "the label", "origin": origin, "spool_bytes": 65536, "memory_bytes": 4096, "limit_bytes": 100});
        let entry = owner.start(&[&probe, "write", "300000"], more);
        assert_eq!(entry["origin"], origin);
        let process = handle(&entry);
        let record = wait::until("the spool is sealed", wait::STEP, || {
            Some(owner.record(&process)).filter(|record| record["spool_state"] == "sealed")
        });
        assert_eq!((number(&record, "total_bytes"), number(&record, "retained_from")), (300_000, 300_000 - 65_536));
        assert_eq!((record["label"].clone(), record["origin"].clone()), (json!("the label"), json!(origin)));
        assert_eq!(record["command"]["argv"], json!([probe, "write", "300000"]), "{record}");
        assert_eq!(record["tier"], tier.word());
        for time in ["created_at", "started_at", "finished_at"] {
            assert!(record[time].as_str().unwrap().ends_with('Z'), "{record}");
        }
        assert!(record.get("pid").is_none() && record.get("salt").is_none(), "{record}");
        let kept = owner.bytes(&process, 0);
        assert_eq!(kept, procd_tests::pattern::bytes(300_000 - 65_536, 65_536));
        let hash = run::finish(binaries::command("sha256sum"), &kept, wait::STEP).success();
        assert_eq!(Some(record["sha256"].as_str().unwrap()), hash.split(' ').next());
    }

    fn zero_bytes_and_failed_starts_are_sealed_too(tier) {
        const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let silent = handle(&owner.start(&["true"], json!({})));
        let params = owner.start_params(&["no-such-program-on-any-path"], json!({}));
        let error = owner.wire.refused("spawn_failed", "process/start", params);
        let failed = error["details"]["process_id"].as_str().unwrap().to_owned();
        for process in [silent, failed] {
            wait::until_true("sealed with the hash of nothing", wait::STEP, || {
                let record = owner.record(&process);
                record["spool_state"] == "sealed" && record["sha256"] == EMPTY
            });
        }
    }

    fn command_runs_by_a_shell_byte_for_byte(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let text = "printf '%s' \"a  'b' $((1+1))\" \u{20ac} | cat; exit 5";
        let params = json!({"command": text, "cwd": daemon.cwd()});
        let entry = owner.wire.ok("process/start", params);
        assert_eq!((entry["output"].clone(), entry["exit_code"].clone()), (json!("a  'b' 2\u{20ac}"), json!(5)), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["command"]["line"], text);
    }

    fn a_closed_session_stops_what_runs_and_stays_readable(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let running = owner.background(&["sh", "-c", "echo kept; exec sleep 600"]);
        owner.output(&running, json!({"wait": "any"}));
        let done = handle(&owner.start(&["echo", "done"], json!({})));
        let closed = owner.wire.ok("session/close", json!({"scope": "session", "grace_ms": 20_000}));
        assert_eq!((closed["stopped"].clone(), closed["failures"].clone()), (json!(1), json!([])), "{closed}");
        let record = owner.record(&running);
        assert_eq!((record["state"].clone(), record["reason"].clone()), (json!("terminated"), json!("runner-shutdown")), "{record}");
        let params = owner.start_params(&["true"], json!({}));
        owner.wire.refused("supervisor_shutting_down", "process/start", params);
        let mut again = owner.attach(daemon.connect());
        assert_eq!((again.text(&running), again.text(&done)), ("kept\n".to_owned(), "done\n".to_owned()));
    }
}
