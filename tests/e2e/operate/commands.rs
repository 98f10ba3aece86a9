//! The commands that act on processes, and those that look.

use procd_tests::{
    Daemon, Setup, Tier,
    run::{self, ctl, procctl},
    wait,
};
use serde_json::json;

use super::{fits, json_of, keys, started, wide};

const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAAA";

#[test]
fn a_process_is_named_by_handle_prefix_or_label() {
    let daemon = Setup::new(Tier::Shim).start();
    let web = started(&daemon, "the web", &["sleep", "600"]);
    for name in [web.as_str(), &web[..8], "the web"] {
        assert_eq!(json_of(&daemon, &["inspect", "--", name])["record"]["process_id"], json!(web));
    }
    let ended = started(&daemon, "build", &["true"]);
    ctl(&daemon, &["wait", &ended]).success();
    let again = started(&daemon, "build", &["sleep", "600"]);
    let found = json_of(&daemon, &["inspect", "build"]);
    assert_eq!(found["record"]["process_id"], json!(again), "of several the one that runs");
    ctl(&daemon, &["stop", "-t", "0", "build", "the web"]).success();
    let several = ctl(&daemon, &["inspect", "build"]);
    assert_eq!(several.code, Some(2), "{several:?}");
    assert!(String::from_utf8_lossy(&several.stderr).contains("2 processes are labelled `build`"));
}

#[test]
fn lists_fit_80_and_160_columns_and_mark_what_they_cut() {
    let daemon = Setup::new(Tier::Shim).start();
    let long = "x".repeat(300);
    let label = "a label of quite some length, which has to be cut somewhere in a narrow table";
    started(&daemon, label, &["sh", "-c", &format!("sleep 600 # {long}")]);
    for columns in [80, 160] {
        for words in [&["ps"][..], &["stats"], &["top", "-n", "1"], &["sessions"], &["config"]] {
            let text = wide(&daemon, columns, words).success();
            fits(&text, usize::from(columns));
        }
        let ps = wide(&daemon, columns, &["ps"]).success();
        assert!(ps.contains('…'), "{ps}");
        assert!(ps.lines().nth(1).unwrap().contains("running"), "{ps}");
        for words in [&["status"][..], &["doctor"]] {
            let text = run::finish(
                {
                    let mut command = procctl(&daemon, words);
                    command.env("COLUMNS", columns.to_string());
                    command
                },
                b"",
                run::LONG,
            );
            fits(&text.text(), usize::from(columns));
        }
    }
    let whole = ctl(&daemon, &["ps", "--no-trunc"]).success();
    assert!(whole.contains(&long) && whole.contains(label));
    ctl(&daemon, &["stop", "-t", "0", label]).success();
}

#[test]
fn sessions_are_listed_by_pages_and_stopped_by_name() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owners: Vec<_> = (0..3)
        .map(|number| daemon.owner_with(json!({"label": format!("agent {number}")})))
        .collect();
    let process = owners[1].background(&["sleep", "600"]);
    let list = json_of(&daemon, &["sessions"]);
    let rows = list.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(keys(&rows[0]), ["bytes", "label", "last_used_at", "session_id", "state", "totals"]);
    let labels: Vec<_> = rows.iter().map(|row| row["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["agent 2", "agent 1", "agent 0"], "newest first");
    let mut operator = daemon.operator();
    let mut seen = Vec::new();
    let mut params = json!({"limit": 2});
    loop {
        let page = operator.ok("session/list", params.clone());
        seen.extend(page["sessions"].as_array().unwrap().clone());
        match page.get("next") {
            Some(next) => params["after"] = next.clone(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 3);
    let table = ctl(&daemon, &["sessions"]).success();
    assert!(table.starts_with("SESSION "), "{table}");
    let stopped = ctl(&daemon, &["stop", "--session", "agent 1"]).success();
    assert!(stopped.contains(&process) && stopped.contains("terminated"), "{stopped}");
    let none = ctl(&daemon, &["stop", "--session", "nobody"]);
    assert_eq!(none.code, Some(4), "{none:?}");
    let several = ctl(&daemon, &["stop", "--session", ""]);
    assert_eq!(several.code, Some(2), "{several:?}");
}

#[test]
fn a_signal_is_sent_by_name_and_an_ended_process_is_exit_code_3() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = started(
        &daemon,
        "it",
        &["sh", "-c", "trap 'echo hup; exit 4' HUP; echo set; while :; do sleep 0.05; done"],
    );
    ctl(&daemon, &["wait", "--match", "set", &process]).success();
    let sent = json_of(&daemon, &["kill", "-s", "HUP", &process]);
    assert_eq!(
        (&sent[0]["delivered"], keys(&sent[0])),
        (&json!(1), vec!["delivered", "process_id", "signal_errors"])
    );
    assert_eq!(ctl(&daemon, &["wait", &process]).code, Some(4));
    assert_eq!(ctl(&daemon, &["logs", &process]).success(), "set\nhup\n");
    assert_eq!(ctl(&daemon, &["kill", "-s", "9", &process]).code, Some(3));
    assert_eq!(ctl(&daemon, &["kill", "-s", "NOPE", &process]).code, Some(2));
}

#[test]
fn a_wait_for_a_pattern_ends_with_it_with_the_end_or_in_time() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = started(&daemon, "it", &["sh", "-c", "echo port 8080 is open; exec sleep 600"]);
    let found = ctl(&daemon, &["wait", "-m", "port [0-9]+", &process]);
    assert_eq!((found.code, found.text().as_str()), (Some(0), "port 8080\n"), "{found:?}");
    let late = ctl(&daemon, &["wait", "-m", "never", "--timeout", "0.1", &process]);
    assert_eq!(late.code, Some(124), "{late:?}");
    ctl(&daemon, &["stop", "-t", "0", &process]).success();
    let ended = ctl(&daemon, &["wait", "-m", "never", &process]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(ctl(&daemon, &["wait", "-m", "(", &process]).code, Some(2));
    assert_eq!(ctl(&daemon, &["wait", "-m", "x", &process, &process]).code, Some(2));
}

#[test]
fn keys_go_to_a_terminal_and_to_nothing_else() {
    let daemon = Setup::new(Tier::Shim).start();
    let words = ["start", "--tty", "--label", "sh", "--", "cat"];
    let process = ctl(&daemon, &words).success().trim().to_owned();
    ctl(&daemon, &["input", "-l", &process, "typed"]).success();
    ctl(&daemon, &["wait", "-m", "typed\r\ntyped", &process]).success();
    ctl(&daemon, &["input", "--key", "ctrl-c", &process]).success();
    assert_eq!(ctl(&daemon, &["wait", &process]).code, Some(130));
    let pipe = started(&daemon, "pipe", &["cat"]);
    assert_eq!(ctl(&daemon, &["input", "--key", "enter", &pipe]).code, Some(1));
    ctl(&daemon, &["stop", "-t", "0", &pipe]).success();
}

#[test]
fn what_has_ended_is_pinned_removed_and_pruned() {
    let daemon = Setup::new(Tier::Shim).start();
    let ended: Vec<String> = ["one", "two", "three"]
        .iter()
        .map(|name| started(&daemon, name, &["echo", name]))
        .collect();
    for process in &ended {
        ctl(&daemon, &["wait", process]).success();
    }
    let running = started(&daemon, "runs", &["sleep", "600"]);
    let refused = ctl(&daemon, &["rm", &running]);
    assert_eq!(refused.code, Some(2), "it has not ended");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("stop it first"), "{refused:?}");
    // Its output is sealed a moment after its end.
    wait::until_true("it is sealed", wait::STEP, || {
        json_of(&daemon, &["inspect", &ended[0]])["record"]["spool_state"] == "sealed"
    });
    assert_eq!(ctl(&daemon, &["pin", &ended[0]]).success(), format!("{}\n", ended[0]));
    assert_eq!(json_of(&daemon, &["inspect", &ended[0]])["record"]["pinned"], json!(true));
    assert_eq!(ctl(&daemon, &["rm", &ended[1]]).success(), format!("{}\n", ended[1]));
    assert_eq!(ctl(&daemon, &["inspect", &ended[1]]).code, Some(4));
    assert_eq!(json_of(&daemon, &["prune", "--older", "1h"])["removed"], json!([]));
    assert_eq!(json_of(&daemon, &["prune"])["removed"], json!([ended[2]]), "not the pinned one");
    ctl(&daemon, &["unpin", &ended[0]]).success();
    assert_eq!(json_of(&daemon, &["prune"])["removed"], json!([ended[0]]));
    let mut owner = daemon.owner();
    let theirs = owner.background(&["true"]);
    owner.ended(&theirs);
    let refused = ctl(&daemon, &["pin", &theirs]);
    assert_eq!(refused.code, Some(6), "only its owner pins: {refused:?}");
    let all = json_of(&daemon, &["prune", "--all"]);
    assert_eq!(all["removed"], json!([theirs]));
    for verb in ["rm", "pin", "unpin", "kill", "export", "attach"] {
        assert_eq!(ctl(&daemon, &[verb, UNKNOWN]).code, Some(4), "{verb}");
    }
    ctl(&daemon, &["stop", "-t", "0", &running]).success();
}

#[test]
fn events_show_the_journal_and_follow_what_comes() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = started(&daemon, "it", &["true"]);
    ctl(&daemon, &["wait", &process]).success();
    let listed = wait::until("both events are told", wait::STEP, || {
        let list = json_of(&daemon, &["events"]);
        (list.as_array().unwrap().len() == 2).then_some(list)
    });
    let kinds: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["event"]["kind"].clone()).collect();
    assert_eq!(kinds, [json!("backgrounded"), json!("completed")]);
    let text = ctl(&daemon, &["events"]).success();
    assert!(text.contains("completed") && text.contains("exited, code 0"), "{text}");
    fits(&text, 110);
    let last = listed[1]["seq"].as_u64().unwrap();
    let since = (last + 1).to_string();
    assert_eq!(ctl(&daemon, &["events", "--since", &since]).success(), "");
    assert_eq!(ctl(&daemon, &["events", "--since", "1h", "-a"]).success().lines().count(), 2);
    assert_eq!(ctl(&daemon, &["events", "--since", "2100-01-01T00:00:00Z"]).success(), "");
    for words in [&["events", "-f", "--since", &since][..], &["events", "-f", "-a"]] {
        let seen =
            until_followed(&daemon, words, || started(&daemon, "next", &["true"])[..8].to_owned());
        assert!(seen.contains("backgrounded"), "{seen}");
    }
}

/// What a follower has printed when it has printed `text`; it is ended then.
fn until_followed(daemon: &Daemon, words: &[&str], act: impl FnOnce() -> String) -> String {
    let path = daemon.path().join("followed");
    let mut command = procctl(daemon, words);
    command.stdout(std::fs::File::create(&path).unwrap()).stdin(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let text = act();
    let seen = wait::until("the follower prints it", wait::STEP, || {
        let seen = std::fs::read_to_string(&path).unwrap();
        seen.contains(&text).then_some(seen)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    seen
}

#[test]
fn what_runs_is_measured() {
    let daemon = Setup::new(Tier::Shim).start();
    started(&daemon, "busy", &["sh", "-c", "while :; do echo line; done"]);
    let rows = json_of(&daemon, &["stats", "--during", "1s"]);
    let row = &rows[0];
    assert_eq!(
        keys(row),
        [
            "cpu",
            "cpu_ms",
            "label",
            "memory_bytes",
            "output_bytes_per_second",
            "process_id",
            "session_id",
            "total_bytes",
            "tree"
        ]
    );
    assert!(row["memory_bytes"].as_u64().unwrap() > 0, "{row}");
    assert!(row["total_bytes"].as_u64().unwrap() > 0, "{row}");
    let table = ctl(&daemon, &["stats"]).success();
    assert!(table.starts_with("HANDLE  LABEL  TREE  CPU"), "{table}");
    let picture = ctl(&daemon, &["top", "-n", "1", "--every", "0.2"]).success();
    assert!(picture.starts_with("procd ") && picture.contains("busy"), "{picture}");
    ctl(&daemon, &["stop", "-t", "0", "busy"]).success();
    assert_eq!(json_of(&daemon, &["stats"]), json!([]));
}

#[test]
fn any_method_is_called_with_parameters_of_ones_own() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = started(&daemon, "it", &["sleep", "600"]);
    let params = json!({"process_id": process}).to_string();
    assert_eq!(json_of(&daemon, &["raw", "process/inspect", &params])["record"]["label"], "it");
    assert!(json_of(&daemon, &["raw", "session/list"])["sessions"].is_array(), "as operator");
    let refused = ctl(&daemon, &["raw", "process/inspect", "{\"nope\": 1}"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(ctl(&daemon, &["raw", "process/inspect", "no json"]).code, Some(2));
    let denied = ctl(&daemon, &["--owner", "raw", "daemon/shutdown"]);
    assert_eq!(denied.code, Some(6), "{denied:?}");
    ctl(&daemon, &["stop", "-t", "0", &process]).success();
}

#[test]
fn options_of_a_start_reach_the_daemon() {
    let daemon = Setup::new(Tier::Shim).limit("running_loop_max = 1").start();
    let words = ["start", "--request-key", "once", "--", "sleep", "600"];
    let first = ctl(&daemon, &words).success();
    assert_eq!(ctl(&daemon, &words).success(), first, "one key, one process");
    let full = ctl(&daemon, &["--format", "json", "start", "--queue", "0.05", "--", "true"]);
    // procctl's own session gives its one loop all slots of the session.
    assert!(matches!(full.code, Some(0 | 6)), "{full:?}");
    let kept = ctl(&daemon, &["start", "--keep-tree", "--", "sh", "-c", "sleep 600 & echo left"]);
    let kept = kept.success().trim().to_owned();
    ctl(&daemon, &["wait", "-m", "left", &kept]).success();
    assert_eq!(json_of(&daemon, &["inspect", &kept])["record"]["state"], "running");
    ctl(&daemon, &["stop", "-t", "0", &kept, first.trim()]).success();
}
