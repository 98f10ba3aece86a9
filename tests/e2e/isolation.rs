//! `isolate`: a process in a PID namespace of its own, beside either tier. It behaves like any
//! other, sees nobody, and ends as one.

use std::{collections::BTreeSet, fs};

use procd_tests::{Owner, Setup, Tier, binaries, leaks, owner::handle, owner::merge, wait};
use serde_json::{Value, json};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Whether this system gives namespaces; says so when not.
pub(crate) fn is_here(owner: &mut Owner) -> bool {
    let params = owner.start_params(&["true"], json!({"isolate": true, "dry_run": true}));
    match owner.wire.call("process/start", params) {
        Ok(reply) => {
            assert_eq!(reply["plan"]["tier"], "pidns", "{reply}");
            true
        }
        Err(error) => {
            assert_eq!(error["code"], "lifetime_enforcement_unavailable", "{error}");
            procd_tests::skip("no PID namespace on this machine");
            false
        }
    }
}

fn isolated(more: Value) -> Value {
    let mut params = json!({"isolate": true});
    merge(&mut params, more);
    params
}

fn shell(owner: &mut Owner, line: &str, more: Value) -> Value {
    owner.start(&["sh", "-c", line], isolated(more))
}

both_tiers! {
    fn the_record_says_that_it_was_isolated(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let entry = shell(&mut owner, "exit 3", json!({}));
        assert_eq!((entry["state"].clone(), entry["exit_code"].clone()), (json!("exited"), json!(3)), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["tier"], "pidns");
        let plain = owner.start(&["true"], json!({}));
        assert_eq!(owner.record(&handle(&plain))["tier"], tier.word());
    }

    /// Nobody but itself and the init, and nobody else's number means anything.
    fn it_sees_no_other_process(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let other = owner.background(&["sleep", "600"]);
        let entry = shell(&mut owner, "echo $$; cd /proc; echo [0-9]*; cat 1/comm; kill -9 1; echo $?", json!({}));
        let text = entry["output"].as_str().unwrap();
        assert_eq!(text, "2\n1 2\nprocd-init\n0\n", "{entry}");
        assert_eq!(entry["state"], "exited", "{entry}");
        assert_eq!(owner.record(&other)["state"], "running");
        owner.stop(&other, "kill", 0);
    }

    /// In its folder, with three descriptors, clean signals and the user it had.
    fn it_finds_what_every_command_finds(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let line = "pwd -P; /bin/pwd; ls | wc -l; id -u; umask; grep -E 'SigBlk|SigIgn|NoNewPrivs' /proc/self/status; touch made";
        let plain = owner.start(&["sh", "-c", line], json!({}));
        fs::remove_file(daemon.cwd().join("made")).unwrap();
        let entry = shell(&mut owner, line, json!({}));
        assert_eq!(entry["output"], plain["output"], "{entry}");
        assert!(entry["output"].as_str().unwrap().starts_with(&daemon.cwd().display().to_string()), "{entry}");
        assert!(daemon.cwd().join("made").exists());
        let fds = owner.start(&[&binaries::probe(), "fds"], isolated(json!({"stdin": "pipe"})));
        assert_eq!(fds["output"], "0\n1\n2\n", "{fds}");
    }

    /// Every code and every signal that a process can end itself by.
    fn exit_codes_and_signals_come_back_exactly(tier) {
        let daemon = Setup::new(tier).limit("retained_session_max = 1000").start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        for code in [0, 1, 2, 126, 127, 128, 137, 254, 255] {
            let entry = shell(&mut owner, &format!("exit {code}"), json!({}));
            assert_eq!((entry["state"].clone(), entry["leader"].clone()), (json!("exited"), json!({"code": code})), "{entry}");
        }
        for (signal, tty) in [(1, false), (2, true), (6, false), (9, true), (9, false), (11, false), (15, true), (31, false)] {
            let entry = shell(&mut owner, &format!("kill -{signal} $$; sleep 600"), json!({"tty": tty}));
            assert_eq!((entry["state"].clone(), entry["exit_code"].clone()), (json!("exited"), json!(128 + signal)), "{entry}");
            assert_eq!(entry["leader"]["signal"], signal, "{entry}");
        }
    }

    fn failures_have_their_cause(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let idle = leaks::processes(daemon.path()).len();
        for (argv, more, cause) in [
            (["/no/such/program"], json!({}), "no_such_program"),
            (["/etc/passwd"], json!({"tty": true}), "not_executable"),
            (["true"], json!({"cwd": "/no/such/folder"}), "cwd_missing"),
        ] {
            let params = owner.start_params(&argv, isolated(more));
            let error = owner.wire.refused("spawn_failed", "process/start", params);
            assert_eq!(error["details"]["cause"], cause, "{error}");
        }
        let params = owner.start_params(&["true"], isolated(json!({"cwd": "/proc"})));
        let error = owner.wire.refused("invalid_arguments", "process/start", params);
        assert_eq!(error["details"]["field"], "cwd", "{error}");
        wait::until_true("nothing is left", LIMIT, || leaks::processes(daemon.path()).len() <= idle);
    }

    /// Each way to end one, by name.
    fn every_kind_of_end_has_its_name(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        for tty in [false, true] {
            let polite = |owner: &mut Owner, line: &str, more: Value| {
                let mut params = isolated(json!({"background": true, "tty": tty}));
                merge(&mut params, more);
                let process = handle(&owner.start(&["sh", "-c", line], params));
                owner.output(&process, json!({"wait": "any"}));
                process
            };
            let sleeps = "echo up; exec sleep 600";
            let deaf = "trap '' TERM INT HUP; echo up; while :; do sleep 1; done";
            let process = polite(&mut owner, sleeps, json!({}));
            assert_eq!(owner.stop(&process, "terminate", 60_000)["state"], "terminated");
            let process = polite(&mut owner, sleeps, json!({}));
            assert_eq!(owner.stop(&process, "interrupt", 60_000)["state"], "interrupted");
            let process = polite(&mut owner, deaf, json!({}));
            let result = owner.stop(&process, "terminate", 100);
            assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("killed"), json!(true)), "{result}");
            let process = polite(&mut owner, deaf, json!({}));
            assert_eq!(owner.stop(&process, "kill", 0)["state"], "killed");
            let process = polite(&mut owner, sleeps, json!({"timeout_ms": 2000}));
            assert_eq!(owner.ended(&process)["state"], "timed_out");
        }
    }

    /// Leftovers are counted and ended; the kernel ends those that ignore everything.
    fn leftovers_are_counted_and_ended(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let line = "mkfifo f; setsid sleep 600 & (trap '' TERM HUP; echo up >f; while :; do sleep 1; done) & read up <f; exit 5";
        let entry = shell(&mut owner, line, json!({}));
        assert_eq!((entry["state"].clone(), entry["exit_code"].clone()), (json!("exited"), json!(5)), "{entry}");
        let left = owner.record(&handle(&entry))["leftovers"].as_u64().unwrap();
        assert!((2..=3).contains(&left), "{left}");
        assert_eq!(leaks::processes(&daemon.cwd()), Vec::<String>::new());
    }

    fn a_kept_tree_lives_on_and_is_stopped(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let entry = shell(&mut owner, "sleep 600 & exit 7", json!({"on_leader_exit": "keep_tree"}));
        assert_eq!((entry["state"].clone(), entry["leader"].clone()), (json!("running"), json!({"code": 7})), "{entry}");
        let process = handle(&entry);
        let shown = owner.wire.ok("process/inspect", json!({"process_id": process}));
        assert_eq!(shown["live_descendants"], 1, "{shown}");
        let result = owner.stop(&process, "terminate", 60_000);
        assert_eq!((result["state"].clone(), result["exit_code"].clone()), (json!("exited"), json!(7)), "{result}");
    }

    /// What an operator sees are the numbers that everybody else sees.
    fn its_processes_are_shown_by_their_outer_numbers(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let process = handle(&shell(&mut owner, "sleep 600 & echo up; wait", json!({"background": true})));
        owner.output(&process, json!({"wait": "any"}));
        wait::until_true("leader and child", LIMIT, || {
            owner.wire.ok("process/inspect", json!({"process_id": process}))["live_descendants"] == 1
        });
        let mut operator = daemon.operator();
        let shown = operator.ok("process/inspect", json!({"process_id": process}));
        let text = shown.to_string();
        let own: BTreeSet<String> = leaks::processes(&daemon.cwd()).iter().filter(|line| line.contains("sleep")).map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        assert!(own.iter().any(|pid| text.contains(pid)), "{own:?} in {text}");
        owner.stop(&process, "kill", 0);
    }

    /// A named signal meets the foreground group of its terminal, whose number nobody outside has.
    fn a_signal_to_the_foreground_group_arrives(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let line = "set -m; sh -c 'trap \"echo met; exit 0\" USR1; echo up; while :; do sleep 0.1; done'; echo after";
        let process = handle(&owner.start(&["bash", "-c", line], isolated(json!({"tty": true, "background": true}))));
        owner.output(&process, json!({"wait": "any"}));
        let signalled = owner.wire.ok("process/signal", json!({"process_id": process, "signal": "SIGUSR1", "target": "foreground"}));
        assert!(signalled["delivered"].as_u64() >= Some(1), "{signalled}");
        let ended = owner.ended(&process);
        assert_eq!(ended["exit_code"], 0, "{ended}");
        let text = owner.text(&process);
        assert!(text.contains("met") && text.contains("after"), "{text}");
    }

    /// Paused as one and killed while it is; the pause itself ends nothing.
    fn a_paused_tree_is_resumed_or_killed(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        if !is_here(&mut owner) { return; }
        let process = handle(&shell(&mut owner, "echo up; read line; echo got $line", json!({"background": true})));
        owner.output(&process, json!({"wait": "any"}));
        for signal in ["SIGSTOP", "SIGCONT"] {
            owner.wire.ok("process/signal", json!({"process_id": process, "signal": signal, "target": "tree"}));
        }
        owner.wire.ok("process/input", json!({"process_id": process, "data": "words\n"}));
        assert_eq!(owner.ended(&process)["exit_code"], 0);
        assert_eq!(owner.text(&process), "up\ngot words\n");
        let process = handle(&shell(&mut owner, "sleep 600 & echo up; wait", json!({"background": true})));
        owner.output(&process, json!({"wait": "any"}));
        owner.wire.ok("process/signal", json!({"process_id": process, "signal": "SIGSTOP", "target": "tree"}));
        assert_eq!(owner.stop(&process, "kill", 0)["state"], "killed");
    }
}

/// Where the system gives no namespace a start says so, runs nothing and leaves no record; other
/// starts go on.
#[test]
fn without_namespaces_it_is_refused_and_nothing_else_is() {
    const LINE: &str = "exec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_pid_namespaces && exec \"$0\"' \"$0\"";
    let mut made = binaries::command("unshare");
    made.args(["--user", "--map-root-user", "true"]);
    if procd_tests::run::finish(made, b"", LIMIT).code != Some(0) {
        procd_tests::skip("no user namespace on this machine");
        return;
    }
    let daemon = Setup::new(Tier::Shim).through(LINE).start();
    let mut owner = daemon.owner();
    for dry_run in [true, false] {
        let params = owner.start_params(&["touch", "ran"], isolated(json!({"dry_run": dry_run})));
        owner.wire.refused("lifetime_enforcement_unavailable", "process/start", params);
    }
    assert!(owner.list().is_empty() && !daemon.cwd().join("ran").exists());
    assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0);
}
