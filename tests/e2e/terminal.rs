//! Commands with a pseudo-terminal.

use std::fs;

use procd_tests::{Owner, Setup, Tier, owner::handle, run::rounds, wait};
use serde_json::{Value, json};

const LIMIT: std::time::Duration = procd_tests::wait::STEP;

fn tty(more: Value) -> Value {
    let mut params = json!({"tty": true});
    procd_tests::owner::merge(&mut params, more);
    params
}

fn shell(owner: &mut Owner, line: &str) -> String {
    handle(&owner.start(&["sh", "-c", line], tty(json!({"background": true}))))
}

fn type_in(owner: &mut Owner, process: &str, more: Value) -> Value {
    let mut params = json!({"process_id": process});
    procd_tests::owner::merge(&mut params, more);
    owner.wire.ok("process/input", params)
}

fn until_said(owner: &mut Owner, process: &str, text: &str) {
    wait::until_true(text, LIMIT, || owner.text(process).contains(text));
}

both_tiers! {
    fn it_has_its_size_its_type_and_its_own_session(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "stty size; echo $TERM; tty; ps -o sid= -p $$ | tr -d ' '; echo $$; test -t 0 && test -t 1 && test -t 2 && echo all";
        let entry = owner.start(&["sh", "-c", line], tty(json!({"rows": 7, "cols": 65535})));
        assert_eq!(entry["exit_code"], 0, "{entry}");
        let output = entry["output"].as_str().unwrap().replace("\r\n", "\n");
        let lines: Vec<_> = output.lines().collect();
        assert_eq!((lines[0], lines[1], lines[5]), ("7 65535", "xterm-256color", "all"), "{output}");
        assert!(lines[2].starts_with("/dev/pts/"), "{output}");
        assert_eq!(lines[3], lines[4], "it leads its POSIX session: {output}");
        assert_eq!(owner.record(&handle(&entry))["tty"], json!({"rows": 7, "cols": 65535}));
        let entry = owner.start(&["sh", "-c", "stty size; echo $TERM"], tty(json!({"env": {"TERM": "dumb"}})));
        assert_eq!(entry["output"], "24 80\r\ndumb\r\n", "{entry}");
    }

    /// Bytes, codes and signals come back exactly; nothing of a command that lives for a
    /// millisecond is lost.
    fn output_and_ends_come_back_exactly(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for code in [0, 1, 255] {
            let entry = owner.start(&["sh", "-c", &format!("printf 'last {code}'; exit {code}")], tty(json!({})));
            assert_eq!((entry["exit_code"].clone(), entry["output"].clone()), (json!(code), json!(format!("last {code}"))), "{entry}");
        }
        let entry = owner.start(&["sh", "-c", "kill -9 $$"], tty(json!({})));
        assert_eq!((entry["exit_code"].clone(), entry["leader"]["signal"].clone()), (json!(137), json!(9)), "{entry}");
        for _ in 0..50 {
            let entry = owner.start(&["sh", "-c", "seq 2000"], tty(json!({})));
            let wanted: u64 = (1..=2000_u64).map(|n| n.to_string().len() as u64 + 2).sum();
            assert_eq!(entry["total_bytes"], wanted, "{}", procd_tests::owner::without_output(&entry));
        }
    }

    /// C101: twenty thousand lines, whole each time, while two others keep the machine busy.
    fn twenty_thousand_lines_come_whole_under_load_every_time(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let busy: Vec<_> = (0..2).map(|_| owner.background_shell("while :; do :; done")).collect();
        let wanted: String = (1..=20_000).map(|number| format!("{number}\r\n")).collect();
        for round in 0..rounds(15).min(300) {
            let entry = owner.start(&["seq", "1", "20000"], tty(json!({"limit_bytes": 1})));
            assert_eq!((entry["exit_code"].clone(), entry["total_bytes"].clone()), (json!(0), json!(wanted.len())), "run {round}: {entry}");
            if round % 10 == 0 {
                assert!(owner.bytes(&handle(&entry), 0) == wanted.as_bytes(), "other bytes in run {round}");
            }
        }
        for process in busy {
            owner.stop(&process, "kill", 0);
        }
    }

    /// Two thousand terminals in the long form: the daemon holds none of them afterwards.
    fn terminals_leave_no_descriptor(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let fds = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
        let mut cycle = || {
            let entry = owner.start(&["echo", "on"], tty(json!({"spool_bytes": 65_536})));
            assert_eq!(entry["output"], "on\r\n", "{entry}");
        };
        (0..5).for_each(|_| cycle());
        let before = fds();
        (0..rounds(100).min(2_000)).for_each(|_| cycle());
        // A seal may be under way.
        wait::until_true("descriptors are as before", LIMIT, || fds() <= before);
        let terminals = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().flatten();
        let terminals = terminals.filter_map(|entry| fs::read_link(entry.path()).ok());
        assert_eq!(terminals.filter(|to| to.ends_with("ptmx") || to.starts_with("/dev/pts")).count(), 0);
    }

    fn what_is_typed_arrives_and_the_end_is_a_character(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = handle(&owner.start(&["cat"], tty(json!({"background": true}))));
        let entry = type_in(&mut owner, &process, json!({"data": "one", "keys": ["enter"], "yield_time_ms": 20_000}));
        assert_eq!(entry["accepted_bytes"], 4, "{entry}");
        until_said(&mut owner, &process, "one\r\none\r\n");
        type_in(&mut owner, &process, json!({"eof": true}));
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(0)), "{ended}");
        let params = json!({"process_id": process, "data": "x"});
        assert_eq!(owner.wire.call("process/input", params).unwrap_err()["code"], "stdin_closed");
    }

    /// C101, C97: four megabytes through a terminal, line by line.
    fn a_lot_of_input_never_blocks(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = handle(&owner.start(&["sh", "-c", "stty -echo; echo go; exec cat"], tty(json!({"background": true}))));
        until_said(&mut owner, &process, "go");
        let line = format!("{}\n", "x".repeat(1023));
        let pieces = rounds(8).min(64);
        for _ in 0..pieces {
            type_in(&mut owner, &process, json!({"data": line.repeat(64), "flush_ms": 60_000}));
        }
        type_in(&mut owner, &process, json!({"eof": true}));
        let ended = owner.ended(&process);
        assert_eq!((ended["exit_code"].clone(), ended["total_bytes"].clone()), (json!(0), json!(4 + pieces * 64 * 1025)), "{ended}");
    }

    fn keys_that_are_signals_overtake_what_waits(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        // Nobody reads: the terminal fills, and the rest waits.
        let process = shell(&mut owner, "trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.02; done");
        until_said(&mut owner, &process, "ready");
        let line = format!("{}\n", "x".repeat(1000));
        type_in(&mut owner, &process, json!({"data": line.repeat(64)}));
        let entry = type_in(&mut owner, &process, json!({"keys": ["ctrl-c"]}));
        assert!(entry["discarded_bytes"].as_u64() > Some(1000), "{}", procd_tests::owner::without_output(&entry));
        let ended = owner.ended(&process);
        // A typed key is no request.
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(5)), "{}", owner.text(&process));
        let process = handle(&owner.start(&["sleep", "600"], tty(json!({"background": true}))));
        type_in(&mut owner, &process, json!({"keys": ["ctrl-\\"]}));
        assert_eq!(owner.ended(&process)["leader"]["signal_name"], "SIGQUIT");
    }

    fn a_long_line_is_refused_in_line_mode_only(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = handle(&owner.start(&["cat"], tty(json!({"background": true}))));
        let params = json!({"process_id": process, "data": "x".repeat(4096)});
        let error = owner.wire.call("process/input", params).unwrap_err();
        assert_eq!((error["code"].clone(), error["details"]["field"].clone()), (json!("invalid_arguments"), json!("data")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("4095"), "{error}");
        type_in(&mut owner, &process, json!({"data": format!("{}\n", "x".repeat(4095))}));
        wait::until_true("the whole line twice", LIMIT, || owner.bytes(&process, 0).len() == 2 * 4097);
        owner.stop(&process, "kill", 0);
        let process = shell(&mut owner, "stty raw -echo; echo ready; head -c 10000 | wc -c");
        until_said(&mut owner, &process, "ready");
        type_in(&mut owner, &process, json!({"data": "x".repeat(10_000)}));
        assert_eq!(owner.ended(&process)["exit_code"], 0);
        assert!(owner.text(&process).contains("10000"));
    }

    /// C104: only the named one changes, and hears of it once.
    fn a_resize_reaches_the_named_process_once(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done";
        let processes: Vec<_> = (0..3).map(|_| shell(&mut owner, line)).collect();
        for process in &processes {
            until_said(&mut owner, process, "ready");
        }
        type_in(&mut owner, &processes[1], json!({"rows": 40, "cols": 132}));
        until_said(&mut owner, &processes[1], "40 132");
        type_in(&mut owner, &processes[1], json!({"rows": 40, "cols": 132}));
        type_in(&mut owner, &processes[1], json!({"rows": 1, "cols": 65535}));
        until_said(&mut owner, &processes[1], "1 65535");
        assert_eq!(owner.text(&processes[1]), "ready\r\n40 132\r\n1 65535\r\n");
        assert_eq!(owner.text(&processes[0]), "ready\r\n");
        let piped = owner.background(&["cat"]);
        for more in [json!({"rows": 1, "cols": 1}), json!({"keys": ["enter"]})] {
            let mut params = json!({"process_id": piped});
            procd_tests::owner::merge(&mut params, more);
            assert_eq!(owner.wire.call("process/input", params).unwrap_err()["code"], "pty_unavailable");
        }
        owner.wire.ok("session/stop_all", json!({"mode": "kill"}));
    }

    fn an_interrupt_goes_to_the_foreground_group(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = handle(&owner.start(&["sleep", "600"], tty(json!({"background": true}))));
        let result = owner.stop(&process, "interrupt", 20_000);
        assert_eq!((result["state"].clone(), result["leader"]["signal"].clone()), (json!("interrupted"), json!(2)), "{result}");
        // A child in the background of its terminal is not met.
        let line = "set -m; (trap 'echo wrong' INT; echo child; while :; do sleep 0.02; done) & trap 'echo right' INT; echo leader; while :; do read line; done";
        let process = shell(&mut owner, line);
        until_said(&mut owner, &process, "child");
        until_said(&mut owner, &process, "leader");
        let result = owner.stop(&process, "interrupt", 100);
        assert_eq!(result["state"], "running", "{result}");
        let sent = owner.wire.ok("process/signal", json!({"process_id": process, "signal": "SIGINT", "target": "foreground"}));
        assert!(sent["delivered"].as_u64() >= Some(1), "{sent}");
        wait::until_true("the foreground to have heard", LIMIT, || owner.text(&process).contains("right"));
        assert!(!owner.text(&process).contains("wrong"), "{}", owner.text(&process));
        owner.stop(&process, "kill", 0);
    }

    /// C107, C106: the master stays while the tree lives, even when nobody has the terminal open,
    /// and what is written after that arrives.
    fn a_terminal_that_everybody_closed_for_a_while_is_kept(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "t=$(tty); exec </dev/null >/dev/null 2>&1; sleep 0.3; echo again >$t; sleep 0.1; exit 6";
        let process = shell(&mut owner, line);
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(6)), "{ended}");
        assert_eq!(owner.text(&process), "again\r\n");
    }

    /// C111: the end of the leader hangs up the terminal; what ignores that is a leftover like
    /// any other.
    fn the_end_of_the_leader_hangs_up(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = shell(&mut owner, "nohup sh -c 'touch up; exec sleep 600' >/dev/null 2>&1 & while ! [ -e up ]; do sleep 0.02; done; echo done");
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(0)), "{ended}");
        assert_eq!(owner.record(&process)["leftovers"], 1);
        let params = owner.start_params(&["true"], tty(json!({"on_leader_exit": "keep_tree"})));
        assert_eq!(owner.wire.call("process/start", params).unwrap_err()["details"]["field"], "on_leader_exit");
    }
}
