//! Operators: procctl, places, the configuration, and that there is never more than one daemon.

use std::{fs, path::Path};

use procd_tests::{
    Daemon, Setup, Tier, Wire, binaries, leaks,
    run::{self, ctl, procctl},
    wait,
};
use serde_json::{Value, json};

fn start() -> Daemon {
    Setup::new(Tier::Shim).start()
}

fn started(daemon: &Daemon, words: &[&str]) -> String {
    let text = ctl(daemon, &[&["start", "--"], words].concat()).success();
    let process = text.trim().to_owned();
    assert_eq!(process.len(), 22, "a handle alone on stdout, not {text:?}");
    process
}

#[test]
fn what_one_call_starts_others_find_read_wait_for_and_stop() {
    let daemon = start();
    let process = started(&daemon, &["sh", "-c", "echo first; echo warned >&2; echo last; exit 3"]);
    assert_eq!(ctl(&daemon, &["wait", &process]).code, Some(3));
    let logs = ctl(&daemon, &["logs", &process]);
    assert_eq!(
        (logs.code, logs.text().replace("warned\n", "")),
        (Some(0), "first\nlast\n".to_owned()),
        "{logs:?}"
    );
    let last = ctl(&daemon, &["logs", "-n", "1", &process]).success();
    assert_eq!(last.lines().count(), 1, "{last}");
    let record: Value =
        serde_json::from_str(&ctl(&daemon, &["inspect", &process]).success()).unwrap();
    let record = if record["record"].is_object() { &record["record"] } else { &record };
    assert_eq!(
        (record["state"].clone(), record["exit_code"].clone()),
        (json!("exited"), json!(3)),
        "{record}"
    );
    let running = started(&daemon, &["sleep", "600"]);
    assert!(
        ctl(&daemon, &["ps", "-q"]).success().lines().any(|line| running.starts_with(line.trim()))
    );
    // One in 64 begins with `-`.
    let stopped = ctl(&daemon, &["stop", "--", &running[..10]]);
    assert_eq!(stopped.code, Some(0), "a prefix is enough: {stopped:?}");
    assert_ne!(ctl(&daemon, &["wait", &running]).code, Some(0));
}

#[test]
fn input_reaches_a_process_of_an_earlier_call() {
    let daemon = start();
    let process = started(&daemon, &[&binaries::probe(), "echo-lines"]);
    ctl(&daemon, &["input", &process, "hello\n"]).success();
    ctl(&daemon, &["input", &process, "--eof"]).success();
    assert_eq!(ctl(&daemon, &["wait", &process]).code, Some(0));
    let text = ctl(&daemon, &["logs", &process]).success();
    assert!(text.starts_with("got hello\n") && text.ends_with("end\n"), "{text:?}");
}

#[test]
fn logs_follow_through_the_end() {
    let daemon = start();
    let process = started(&daemon, &[&binaries::probe(), "echo-lines"]);
    let following = run::start(procctl(&daemon, &["logs", "-f", &process]));
    for word in ["one\n", "two\n", "three\n"] {
        ctl(&daemon, &["input", &process, word]).success();
    }
    ctl(&daemon, &["input", &process, "--eof"]).success();
    assert_eq!(following.finish(wait::STEP).success(), "got one\ngot two\ngot three\nend\n");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let daemon = start();
    let unknown = "AAAAAAAAAAAAAAAAAAAAAA";
    for verb in ["logs", "stop", "inspect", "wait"] {
        let finished = ctl(&daemon, &[verb, unknown]);
        assert_eq!(finished.code, Some(4), "{verb}: {finished:?}");
        assert!(finished.stdout.is_empty() && !finished.stderr.is_empty(), "{verb}: {finished:?}");
    }
    assert_eq!(ctl(&daemon, &["no-such-verb"]).code, Some(2));
    let ended = started(&daemon, &["true"]);
    ctl(&daemon, &["wait", &ended]).success();
    assert_eq!(ctl(&daemon, &["input", &ended, "x"]).code, Some(3));
    let running = started(&daemon, &["sleep", "600"]);
    assert_eq!(ctl(&daemon, &["wait", "--timeout", "0.1", &running]).code, Some(124));
    ctl(&daemon, &["stop", &running]).success();
}

#[test]
fn status_and_shutdown_want_a_daemon_and_start_none() {
    let mut daemon = Setup::new(Tier::Shim).prepare();
    for verb in ["status", "shutdown"] {
        let finished = ctl(&daemon, &[verb]);
        assert_eq!(finished.code, Some(5), "{verb}: {finished:?}");
    }
    assert!(!daemon.socket().exists());
    daemon.restart();
    ctl(&daemon, &["status"]).success();
    ctl(&daemon, &["shutdown"]).success();
    assert!(daemon.ended().success());
}

#[test]
fn an_operator_sees_every_session_and_stops_what_it_may() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background_shell("echo theirs; exec sleep 600");
    owner.output(&process, json!({"wait": "any"}));
    assert!(!ctl(&daemon, &["ps", "-q"]).success().contains(&process[..6]));
    assert!(
        ctl(&daemon, &["ps", "-a", "-q"])
            .success()
            .lines()
            .any(|line| process.starts_with(line.trim()))
    );
    assert_eq!(ctl(&daemon, &["logs", &process]).success(), "theirs\n");
    ctl(&daemon, &["stop", &process]).success();
    assert_eq!(owner.output(&process, json!({}))["state"], "terminated");
}

#[test]
fn run_starts_a_private_daemon_when_there_is_none() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let first = ctl(&daemon, &["run", "--", "sh", "-c", "echo hello; echo oops >&2; exit 5"]);
    assert_eq!((first.code, first.text()), (Some(5), "hello\n".to_owned()), "{first:?}");
    assert!(String::from_utf8_lossy(&first.stderr).contains("oops\n"), "{first:?}");
    let ids = |daemon: &Daemon| {
        let mut wire = Wire::bare(&daemon.socket()).unwrap();
        wire.hello().unwrap()["instance_id"].clone()
    };
    let instance = ids(&daemon);
    assert_eq!(ctl(&daemon, &["run", "--", "true"]).code, Some(0));
    assert_eq!(ids(&daemon), instance, "the same daemon serves the next call");
    assert!(daemon.state().join("log/procd.log").is_file());
    ctl(&daemon, &["shutdown"]).success();
}

/// Private daemons of this folder that live.
fn private(folder: &Path) -> Vec<String> {
    leaks::processes(folder).into_iter().filter(|line| line.contains("--private")).collect()
}

/// C124. Fifty clients at once, twenty times over: one daemon, and nobody is turned away.
#[test]
fn many_clients_at_once_get_one_daemon() {
    const ROUNDS: usize = 20;
    const CLIENTS: usize = 50;
    let setup =
        Setup::new(Tier::Shim).limit("running_loop_max = 64").limit("running_session_max = 64");
    let setup =
        setup.limit("memory_session_bytes = 134217728").limit("spool_session_bytes = 8589934592");
    let setup = setup.limit("retained_session_max = 2000");
    let daemon = setup.prepare();
    for round in 1..=ROUNDS {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| run::start(procctl(&daemon, &["start", "--", "true"]))).collect();
        let handles: Vec<String> = clients
            .into_iter()
            .map(|client| client.finish(run::LONG).success().trim().to_owned())
            .collect();
        let mut operator = daemon.operator();
        let status = operator.ok("daemon/status", json!({}));
        assert_eq!(status["sessions"], 1, "procctl shares one session: {status}");
        let list = operator.ok("process/list", json!({"limit": 1000}));
        let listed: Vec<_> = list["records"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|record| record["process_id"].as_str())
            .collect();
        for handle in &handles {
            assert!(
                listed.contains(&handle.as_str()),
                "round {round}: {handle} was started by another daemon"
            );
        }
        let leaders =
            |found: &[String]| found.iter().filter(|line| !line.contains("guardian")).count();
        wait::until_true("one daemon is left", wait::STEP, || {
            leaders(&private(daemon.path())) <= 2
        });
        drop(operator);
        ctl(&daemon, &["shutdown"]).success();
        wait::until_true("it is gone", wait::STEP, || private(daemon.path()).is_empty());
    }
}

#[test]
fn a_second_daemon_names_the_first_and_ends() {
    let daemon = start();
    let second = run::finish(second_daemon(&daemon), b"", wait::STEP);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.code, Some(1), "{said}");
    assert!(said.contains(&daemon.pid().to_string()), "no pid of the holder: {said}");
    assert_eq!(daemon.owner().start(&["echo", "still"], json!({}))["output"], "still\n");
}

fn second_daemon(daemon: &Daemon) -> std::process::Command {
    let mut command = binaries::command(binaries::path("procd"));
    command.envs(daemon.places());
    command
}

/// The same state folder by another socket, and the same socket with another state folder.
#[test]
fn neither_a_socket_nor_a_state_folder_is_shared() {
    let daemon = start();
    for (name, value) in [("PROCD_SOCKET", "other-sock"), ("PROCD_STATE_DIR", "other-state")] {
        let mut command = second_daemon(&daemon);
        command.env(name, daemon.path().join(value));
        let second = run::finish(command, b"", wait::STEP);
        assert_eq!(second.code, Some(1), "{name}: {}", String::from_utf8_lossy(&second.stderr));
    }
    assert_eq!(daemon.owner().start(&["echo", "still"], json!({}))["output"], "still\n");
}

#[test]
fn a_stale_socket_is_replaced() {
    let mut daemon = start();
    daemon.kill();
    assert!(daemon.socket().exists());
    daemon.restart();
    assert_eq!(daemon.owner().start(&["echo", "again"], json!({}))["output"], "again\n");
}

#[test]
fn a_bad_configuration_is_refused_with_file_line_and_key() {
    for (line, words) in [
        (
            "[limits]\nrunning_lop_max = 3",
            &["config.toml:2", "running_lop_max", "running_loop_max"][..],
        ),
        ("containmnt = \"shim\"", &["config.toml:1", "containmnt", "containment"]),
        ("\ncontainment = \"jail\"", &["config.toml:2", "containment"]),
        ("[limits]\nrunning_loop_max = -1", &["config.toml:2", "running_loop_max"]),
        (
            "[limits]\nrunning_loop_max = 9\nrunning_session_max = 8",
            &["running_loop_max", "running_session_max"],
        ),
        ("not toml", &["config.toml:1"]),
    ] {
        let daemon = Setup::new(Tier::Shim).prepare();
        fs::write(daemon.path().join("config.toml"), line).unwrap();
        let finished = run::finish(second_daemon(&daemon), b"", wait::STEP);
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert_eq!(finished.code, Some(1), "{line}: {said}");
        for word in words {
            assert!(said.contains(word), "{line}: no `{word}` in {said}");
        }
        assert!(!daemon.socket().exists());
    }
}

/// C129: a name is never cut.
#[test]
fn a_path_too_long_for_a_socket_is_one_clear_line() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let long = daemon.path().join("x".repeat(120));
    let mut command = second_daemon(&daemon);
    command.env("PROCD_SOCKET", &long);
    let finished = run::finish(command, b"", wait::STEP);
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    let length = long.as_os_str().len().to_string();
    assert!(finished.code == Some(1) && said.contains(&length) && said.contains("107"), "{said}");
}

#[test]
fn the_log_holds_no_command_output_or_environment() {
    let daemon = Setup::new(Tier::Shim).setting("log.level = \"trace\"").start();
    let mut owner = daemon.owner();
    let more = json!({"env": {"NAME": "value-of-the-environment"}});
    owner.start(&["echo", "words-of-the-command"], more);
    let process = owner.background(&["cat"]);
    owner.wire.ok(
        "process/input",
        json!({"process_id": process, "data": "words-of-the-input", "eof": true}),
    );
    owner.ended(&process);
    let log = daemon.log();
    for secret in
        ["value-of-the-environment", "words-of-the-command", "words-of-the-input", &process]
    {
        assert!(!log.contains(secret), "`{secret}` in the log:\n{log}");
    }
}
