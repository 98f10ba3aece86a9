//! Waits for conditions: a pattern, quiet, a number of bytes, the end; and successes that are required.

use procd_tests::{
    Owner, Setup, Tier, binaries,
    owner::{handle, number},
    wait,
};
use serde_json::{Value, json};

/// Waits for conditions from a cursor on.
fn until(owner: &mut Owner, process: &str, cursor: u64, until: Value) -> Value {
    owner.output(process, json!({"cursor": cursor, "wait": {"until": until}}))
}

fn written(owner: &mut Owner, process: &str, bytes: u64) {
    let ask = json!({"cursor": 0, "limit_bytes": 1, "wait": {"until": {"bytes": bytes}}});
    assert_eq!(owner.output(process, ask)["woke_by"], "bytes");
}

fn cursors(entry: &Value) -> (u64, u64, Value) {
    let found = &entry["match"];
    (number(found, "start_cursor"), number(found, "end_cursor"), found["text"].clone())
}

#[test]
fn a_pattern_is_found_once_whether_it_was_written_before_or_comes_later() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = owner.background(&[&binaries::probe(), "echo"]);
    let mut input = |data: &str| {
        owner.wire.ok("process/input", json!({"process_id": process, "data": data}));
    };
    input("starting\nlisten");
    let mut other = owner.attach(daemon.connect());
    written(&mut other, &process, 15);
    let ask = json!({"process_id": process, "wait": {"until": {"match": r"listening on \d+\b"}}});
    let waiting = other.wire.send("process/output", ask.clone());
    // Cut in the middle of the match, and behind what could be its end.
    for piece in ["ing", " on 80", "80", " and 9090\n"] {
        owner.wire.ok("process/input", json!({"process_id": process, "data": piece}));
    }
    let reply = other.wire.reply(waiting).unwrap();
    let entry = &reply["results"][0];
    assert_eq!(reply["woke_by"], "match", "{reply}");
    assert_eq!(cursors(entry), (9, 26, json!("listening on 8080")), "{entry}");
    written(&mut other, &process, 36);
    let again = other.output(&process, json!({"wait": ask["wait"]}));
    assert_eq!(cursors(&again), (9, 26, json!("listening on 8080")), "{again}");
    assert_eq!(
        (number(&again, "start_cursor"), number(&again, "next_cursor")),
        (0, 36),
        "a page as always"
    );
    let behind = other.output(
        &process,
        json!({"cursor": 26, "wait": {"until": {"match": "listening"}}, "timeout_ms": 50}),
    );
    assert_eq!(
        (behind["woke_by"].clone(), behind["match"].clone()),
        (json!("timeout"), Value::Null),
        "found once"
    );
    owner.stop(&process, "kill", 0);
}

/// The match spans many pages, segments and reads.
#[test]
fn a_match_may_straddle_pages_and_segments_and_be_long() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line =
        "printf 'aXb'; head -c 3000000 /dev/zero | tr '\\0' m; printf 'YEND'; exec sleep 600";
    let entry = owner.start(&["sh", "-c", line], json!({"background": true, "memory_bytes": 4096}));
    let process = handle(&entry);
    let entry = until(&mut owner, &process, 0, json!({"match": "Xbm+Y"}));
    let (start, end, text) = cursors(&entry);
    assert_eq!(
        (entry["woke_by"].clone(), start, end),
        (json!("match"), 1, 3_000_004),
        "{}",
        entry["match"]
    );
    assert_eq!(text.as_str().unwrap().len(), 4096, "the beginning is shown");
    owner.stop(&process, "kill", 0);
}

#[test]
fn an_ended_process_is_searched_and_settled() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = handle(&owner.start(&["printf", "one two"], json!({})));
    let entry = until(&mut owner, &process, 0, json!({"match": "two$"}));
    assert_eq!(
        (entry["woke_by"].clone(), cursors(&entry)),
        (json!("match"), (4, 7, json!("two"))),
        "{entry}"
    );
    for until_ in [
        json!({"match": "three"}),
        json!({"quiet_ms": 3_600_000}),
        json!({"bytes": 100}),
        json!({"exit": true}),
    ] {
        assert_eq!(until(&mut owner, &process, 0, until_)["woke_by"], "exit");
    }
}

#[test]
fn bytes_that_a_pattern_never_saw_end_the_wait_with_gap() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line = format!("{} write 1000000; exec sleep 600", binaries::probe());
    let more = json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536});
    let process = handle(&owner.start(&["sh", "-c", &line], more));
    written(&mut owner, &process, 1_000_000);
    let entry = until(&mut owner, &process, 0, json!({"match": "000062499"}));
    assert_eq!(
        (entry["woke_by"].clone(), entry["match"].clone()),
        (json!("gap"), Value::Null),
        "{entry}"
    );
    assert_eq!(
        (entry["gap"].clone(), number(&entry, "gap_bytes")),
        (json!(true), 934_464),
        "{entry}"
    );
    let entry = until(&mut owner, &process, 934_464, json!({"match": "000062499$"}));
    assert_eq!((entry["woke_by"].clone(), cursors(&entry).1), (json!("match"), 999_999), "{entry}");
    let refused = owner.output(&process, json!({"cursor": 0, "on_gap": "error"}));
    assert_eq!(refused["error"]["code"], "cursor_gap", "{refused}");
    let whole =
        owner.output(&process, json!({"cursor": 934_464, "on_gap": "error", "limit_bytes": 16}));
    assert_eq!(
        (whole["gap"].clone(), whole["output"].clone()),
        (json!(false), json!("000000000058404\n")),
        "{whole}"
    );
    owner.stop(&process, "kill", 0);
}

#[test]
fn quiet_counts_from_the_last_byte_and_bytes_from_the_cursor() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = owner.background_shell(
        "printf 12345; for i in 1 2 3 4 5 6 7 8; do sleep 0.05; printf .; done; exec sleep 600",
    );
    let begun = wait::now();
    let entry = until(&mut owner, &process, 0, json!({"quiet_ms": 2000}));
    assert_eq!(
        (entry["woke_by"].clone(), entry["output"].clone()),
        (json!("quiet"), json!("12345........")),
        "{entry}"
    );
    assert!(begun.elapsed().as_millis() >= 2000, "quiet before its time");
    let entry = until(&mut owner, &process, 3, json!({"bytes": 10}));
    assert_eq!(
        (entry["woke_by"].clone(), number(&entry, "next_cursor")),
        (json!("bytes"), 13),
        "{entry}"
    );
    let entry = owner
        .output(&process, json!({"cursor": 3, "wait": {"until": {"bytes": 11}}, "timeout_ms": 50}));
    assert_eq!(entry["woke_by"], "timeout", "{entry}");
    owner.stop(&process, "kill", 0);
}

#[test]
fn conditions_and_processes_go_together_as_asked() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let loud = owner.background_shell("echo ready; exec sleep 600");
    let quiet = owner.background(&[&binaries::probe(), "echo"]);
    written(&mut owner, &loud, 6);
    let both = json!([loud, quiet]);
    let ask = |combine: &str, wait_for: &str, limit: Value| {
        let wait = json!({"until": {"match": "ready", "bytes": 20}, "combine": combine, "wait_for": wait_for});
        json!({"process_ids": both, "wait": wait, "timeout_ms": limit})
    };
    for (combine, wait_for, woke_by) in [
        ("any", "any", "match"),
        ("any", "all", "timeout"),
        ("all", "any", "timeout"),
        ("all", "all", "timeout"),
    ] {
        let reply = owner.wire.ok("process/output", ask(combine, wait_for, json!(50)));
        assert_eq!(reply["woke_by"], woke_by, "{combine} {wait_for}: {reply}");
        assert_eq!(
            reply["results"][0]["match"]["start_cursor"], 0,
            "what was found is told in any case"
        );
    }
    let mut params = ask("any", "all", Value::Null);
    params.as_object_mut().unwrap().remove("timeout_ms");
    let waiting = owner.wire.send("process/output", params);
    owner.wire.ok("process/input", json!({"process_id": quiet, "data": "twenty bytes are here"}));
    let reply = owner.wire.reply(waiting).unwrap();
    assert_eq!(reply["woke_by"], "match", "{reply}");
    owner.stop(&loud, "kill", 0);
    owner.stop(&quiet, "kill", 0);
}

#[test]
fn a_pattern_that_is_none_is_refused_by_name() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = handle(&owner.start(&["true"], json!({})));
    for (pattern, words) in [("a(", "unclosed group"), (r"(\w{100}){100}", "1 MiB")] {
        let ask = json!({"process_id": process, "wait": {"until": {"match": pattern}}});
        let error = owner.wire.refused("invalid_arguments", "process/output", ask);
        assert_eq!(error["details"]["field"], "wait.until.match", "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
}

/// A search that takes long is its caller's alone, and ends with its call.
#[test]
fn a_slow_pattern_stalls_nobody_else() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = owner.background_shell("head -c 4000000 /dev/urandom; exec sleep 600");
    written(&mut owner, &process, 4_000_000);
    let slow: Vec<u64> = (0..8)
        .map(|_| owner.wire.send("process/output", json!({"process_id": process, "limit_bytes": 1, "wait": {"until": {"match": r"(?-u)(?s:.{0,400}[a-m].{300}[n-z].{300}qqq)"}}})))
        .collect();
    let mut other = owner.attach(daemon.connect());
    for _ in 0..20 {
        let begun = wait::now();
        other.list();
        assert!(begun.elapsed() < wait::STEP / 4, "a list took {:?}", begun.elapsed());
    }
    for &id in &slow {
        owner.wire.notice("$/cancel", json!({"for": id}));
    }
    for id in slow {
        assert_eq!(owner.wire.reply(id).unwrap_err()["code"], "cancelled");
    }
    owner.stop(&process, "kill", 0);
}

#[test]
fn a_success_that_is_required_makes_any_other_end_an_error() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let required = json!({"require_success": true, "timeout_ms": 100});
    let params = owner.start_params(&["sleep", "600"], required);
    let error = owner.wire.refused("timed_out", "process/start", params);
    let id = error["details"]["process_id"].as_str().unwrap().to_owned();
    assert_eq!(owner.record(&id)["state"], "timed_out");
    for (mode, code) in
        [("interrupt", "interrupted"), ("terminate", "terminated"), ("kill", "killed")]
    {
        let process = owner.background(&["sleep", "600"]);
        let ask = json!({"process_id": process, "wait": "exit", "require_success": true});
        let waiting = owner.wire.send("process/output", ask);
        owner.stop(&process, mode, 5000);
        let error = owner.wire.reply(waiting).unwrap_err();
        assert_eq!(
            (error["code"].clone(), error["details"]["process_id"].clone()),
            (json!(code), json!(process)),
            "{error}"
        );
    }
    let failed = owner.start(&["false"], json!({"require_success": true}));
    assert_eq!(
        (failed["state"].clone(), failed["exit_code"].clone()),
        (json!("exited"), json!(1)),
        "{failed}"
    );
    let running = owner.background(&["sleep", "600"]);
    let entry = owner.output(&running, json!({"require_success": true}));
    assert_eq!(entry["state"], "running", "{entry}");
    owner.stop(&running, "kill", 0);
}
