//! The wire: handshake, roles, envelopes, and what a peer gets that breaks the rules.

use procd_tests::{Daemon, Owner, Setup, Tier, Wire, owner::handle};
use serde_json::{Value, json};

const RANDOM: &str = "AAAAAAAAAAAAAAAAAAAAAA";

fn start() -> Daemon {
    Setup::new(Tier::Shim).start()
}

fn bare(daemon: &Daemon) -> Wire {
    Wire::bare(&daemon.socket()).unwrap()
}

#[test]
fn hello_tells_version_limits_and_containment() {
    let daemon = start();
    let hello = bare(&daemon).hello().unwrap();
    assert_eq!(hello["version"], 1, "{hello}");
    assert_eq!(hello["limits"]["frame_bytes_max"], 8 << 20, "{hello}");
    assert_eq!(hello["containment"]["tier"], "shim", "{hello}");
    for field in ["server", "features", "instance_id", "boot_id", "warnings"] {
        assert!(!hello[field].is_null(), "no {field} in {hello}");
    }
    let again = bare(&daemon).hello().unwrap();
    assert_eq!(again["instance_id"], hello["instance_id"]);
}

/// C132: neither guesses.
#[test]
fn a_client_of_no_common_version_is_told_what_there_is() {
    let daemon = start();
    let mut wire = bare(&daemon);
    let params = json!({"client": {"name": "later", "version": "9"}, "versions": [2, 3]});
    let error = wire.refused("unsupported_version", "hello", params);
    assert_eq!(error["details"]["versions"], json!([1]), "{error}");
    assert!(wire.is_closed());
}

#[test]
fn anything_before_hello_is_refused_and_the_connection_closed() {
    let daemon = start();
    for method in ["process/list", "session/open", "daemon/status", "no/such"] {
        let mut wire = bare(&daemon);
        wire.refused("invalid_arguments", method, json!({}));
        assert!(wire.is_closed(), "{method}");
    }
}

#[test]
fn a_connection_has_one_role_for_life() {
    let daemon = start();
    let mut fresh = daemon.connect();
    for method in [
        "process/list",
        "process/start",
        "process/output",
        "process/input",
        "process/stop",
        "process/inspect",
        "session/close",
        "daemon/shutdown",
    ] {
        let error = fresh.call(method, valid_params(method)).unwrap_err();
        assert_eq!(error["code"], "permission_denied", "{method}: {error}");
    }
    fresh.ok("daemon/status", json!({}));
    let mut owner = daemon.owner();
    for method in ["session/open", "session/attach", "operator/attach", "daemon/shutdown"] {
        let error = owner.wire.call(method, valid_params(method)).unwrap_err();
        assert_eq!(error["code"], "permission_denied", "{method}: {error}");
    }
    let mut operator = daemon.operator();
    for method in [
        "session/open",
        "session/attach",
        "session/close",
        "process/start",
        "process/input",
        "operator/attach",
    ] {
        let error = operator.call(method, valid_params(method)).unwrap_err();
        assert_eq!(error["code"], "permission_denied", "{method}: {error}");
    }
    assert_eq!(daemon.owner().list().len(), 0);
}

fn valid_params(method: &str) -> Value {
    match method {
        "process/start" => json!({"argv": ["true"], "cwd": "/"}),
        "process/output" | "process/inspect" => json!({"process_id": RANDOM}),
        "process/input" => json!({"process_id": RANDOM, "data": "x"}),
        "process/stop" => json!({"process_id": RANDOM, "mode": "kill"}),
        "session/close" => json!({"scope": "session"}),
        "session/attach" => json!({
            "session_id": "11111111-2222-4333-8444-555555555555",
            "loop_id": "11111111-2222-4333-8444-555555555556",
            "session_key": "A".repeat(43),
        }),
        _ => json!({}),
    }
}

/// The reply to request 7, byte for byte, the handle asked for replaced.
fn exact(owner: &mut Owner, method: &str, process: &str, more: Value) -> String {
    let mut params = json!({"process_id": process});
    procd_tests::owner::merge(&mut params, more);
    owner.wire.object(&json!({"id": 7, "method": method, "params": params}));
    owner.wire.next_object().unwrap();
    owner.wire.last_frame.replace(process, "HANDLE")
}

/// Law 1: a handle gives no authority outside its owner, and does not even exist there.
#[test]
fn a_foreign_handle_is_answered_exactly_like_a_random_one() {
    let daemon = start();
    let mut theirs = daemon.owner();
    let running = theirs.background(&["sleep", "600"]);
    let ended = handle(&theirs.start(&["echo", "secret"], json!({})));
    let mut other_loop =
        theirs.attach_as(daemon.connect(), json!("11111111-2222-4333-8444-555555555555"));
    let mut stranger = daemon.owner();
    for owner in [&mut other_loop, &mut stranger] {
        for (method, more) in [
            ("process/output", json!({})),
            ("process/output", json!({"wait": "exit"})),
            ("process/output", json!({"cursor": 1_u64 << 40, "encoding": "base64"})),
            ("process/input", json!({"data": "x"})),
            ("process/input", json!({"eof": true})),
            ("process/stop", json!({"mode": "kill"})),
            ("process/stop", json!({"mode": "interrupt", "grace_ms": 0})),
            ("process/inspect", json!({})),
        ] {
            let random = exact(owner, method, RANDOM, more.clone());
            assert!(random.contains("\"not_found\""), "{method}: {random}");
            for process in [&running, &ended] {
                assert_eq!(exact(owner, method, process, more.clone()), random, "{method} {more}");
            }
        }
        assert_eq!(owner.list().len(), 0);
    }
    assert_eq!(theirs.output(&running, json!({}))["state"], "running", "untouched");
    let mut operator = daemon.operator();
    let random = operator.call("process/inspect", json!({"process_id": RANDOM})).unwrap_err();
    assert_eq!(random["code"], "not_found");
    assert_eq!(
        operator.ok("process/inspect", json!({"process_id": running}))["record"]["state"],
        "running"
    );
    theirs.stop(&running, "kill", 0);
}

#[test]
fn a_wrong_key_and_an_unknown_session_are_one_answer() {
    let daemon = start();
    let owner = daemon.owner();
    let attach = |session: &Value, key: &Value| {
        let mut wire = daemon.connect();
        let loop_id = "11111111-2222-4333-8444-555555555555";
        let params = json!({"session_id": session, "loop_id": loop_id, "session_key": key});
        wire.object(&json!({"id": 7, "method": "session/attach", "params": params}));
        wire.next_object().unwrap();
        wire.last_frame
    };
    let (session, key) = (&owner.opened["session_id"], &owner.opened["session_key"]);
    let wrong = attach(session, &json!("A".repeat(43)));
    let unknown = attach(&json!("11111111-2222-4333-8444-555555555555"), key);
    assert_eq!(wrong, unknown);
    assert!(wrong.contains("\"not_found\""), "{wrong}");
    assert!(attach(session, key).contains("\"result\""));
}

#[test]
fn an_id_of_a_session_is_used_once() {
    let daemon = start();
    let id = json!("11111111-2222-4333-8444-555555555555");
    let key = json!("A".repeat(43));
    let mine = daemon.owner_with(json!({"session_id": id, "session_key": key}));
    assert_eq!(
        (mine.opened["session_id"].clone(), mine.opened["session_key"].clone()),
        (id.clone(), Value::Null),
        "a key that was brought is not told again"
    );
    let error =
        daemon.connect().refused("invalid_arguments", "session/open", json!({"session_id": id}));
    assert_eq!(error["details"]["field"], "session_id", "{error}");
}

#[test]
fn an_owner_sees_no_pid_and_no_path_but_its_own() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background(&["sleep", "600"]);
    let inspected = owner.wire.ok("process/inspect", json!({"process_id": process}));
    let listed = owner.wire.ok("process/list", json!({}));
    let status = owner.wire.ok("daemon/status", json!({}));
    assert!(inspected.get("pids").is_none() && status.get("pid").is_none(), "{inspected} {status}");
    let state = daemon.state().to_string_lossy().into_owned();
    for reply in [&inspected, &listed, &status] {
        assert!(!reply.to_string().contains(&state), "{reply}");
    }
    let pids =
        daemon.operator().ok("process/inspect", json!({"process_id": process}))["pids"].clone();
    assert_eq!(pids.as_array().map(Vec::len), Some(1), "{pids}");
    owner.stop(&process, "kill", 0);
}

#[test]
fn frames_that_break_the_rules_end_their_connection_only() {
    let daemon = start();
    let mut neighbour = daemon.owner();
    let mut empty = daemon.connect();
    empty.raw(&[0, 0, 0, 0]);
    assert!(empty.is_closed());
    let mut long = daemon.connect();
    long.raw(&((8_u32 << 20) + 1).to_be_bytes());
    let reply = long.next_object().unwrap();
    assert_eq!(
        (reply["id"].clone(), reply["error"]["code"].clone()),
        (Value::Null, json!("frame_too_large")),
        "{reply}"
    );
    assert!(long.is_closed());
    let mut half = daemon.connect();
    half.raw(&[0, 0, 1, 0, b'{']);
    drop(half);
    assert_eq!(neighbour.start(&["echo", "fine"], json!({}))["output"], "fine\n");
}

#[test]
fn envelopes_that_break_the_rules_are_answered_without_an_id_and_the_connection_goes_on() {
    let daemon = start();
    let mut owner = daemon.owner();
    for frame in [
        &b"not json"[..],
        b"[1]",
        b"\"text\"",
        b"{\"id\": 90, \"id\": 91, \"method\": \"process/list\"}",
        b"{\"id\": 90, \"method\": \"process/list\", \"params\": {\"limit\": 1, \"limit\": 2}}",
        b"{\"id\": 1.5, \"method\": \"process/list\"}",
        b"{\"id\": 90, \"method\": \"process/list\"} x",
        b"\xff\xfe",
        b"{}",
    ] {
        owner.wire.frame(frame);
        let reply = owner.wire.next_object().unwrap();
        assert_eq!(
            reply["error"]["code"],
            "invalid_arguments",
            "{}: {reply}",
            String::from_utf8_lossy(frame)
        );
    }
    owner.list();
}

#[test]
fn an_id_in_flight_is_refused_and_the_first_request_lives() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background(&["sleep", "600"]);
    let ask = json!({"id": 500, "method": "process/output", "params": {"process_id": process, "wait": "exit"}});
    owner.wire.object(&ask);
    owner.wire.object(&ask);
    let reply = owner.wire.next_object().unwrap();
    assert_eq!(
        (reply["id"].clone(), reply["error"]["code"].clone()),
        (Value::Null, json!("invalid_arguments")),
        "{reply}"
    );
    owner.stop(&process, "kill", 0);
    assert_eq!(owner.wire.reply(500).unwrap()["woke_by"], "exit");
}

#[test]
fn a_trace_is_echoed() {
    let daemon = start();
    let mut wire = daemon.connect();
    let trace = json!({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"});
    wire.object(&json!({"id": 9, "method": "daemon/status", "params": {}, "trace": trace}));
    assert_eq!(wire.next_object().unwrap()["trace"], trace);
}

#[test]
fn bad_input_costs_its_sender_only() {
    let daemon = start();
    let mut neighbour = daemon.owner();
    let mut noisy = daemon.connect();
    for _ in 0..100 {
        noisy.frame(b"nonsense");
    }
    noisy.frame(b"nonsense");
    assert!(noisy.is_closed());
    assert_eq!(neighbour.start(&["echo", "fine"], json!({}))["output"], "fine\n");
    let lines = daemon.log().lines().count();
    assert!(lines < 100, "{lines} lines of log for a hundred bad frames");
}

#[test]
fn requests_in_flight_are_bounded() {
    let daemon = start();
    let mut owner = daemon.owner_with(json!({}));
    let process = owner.background(&["sleep", "600"]);
    let params = json!({"process_id": process, "mode": "interrupt", "grace_ms": 600_000});
    let ignoring = owner.background(&["sh", "-c", "trap '' INT TERM; echo ready; sleep 600"]);
    owner.output(&ignoring, json!({"wait": "any"}));
    owner.stop(params["process_id"].as_str().unwrap(), "kill", 0);
    let params = json!({"process_id": ignoring, "mode": "interrupt", "grace_ms": 600_000});
    let ids: Vec<u64> = (0..257).map(|_| owner.wire.send("process/stop", params.clone())).collect();
    let error = owner.wire.reply(ids[256]).unwrap_err();
    assert_eq!(
        (error["code"].clone(), error["retryable"].clone()),
        (json!("too_many_requests"), json!(true)),
        "{error}"
    );
    let mut second = owner.attach(daemon.connect());
    second.stop(&ignoring, "kill", 0);
    for id in &ids[..256] {
        assert_eq!(owner.wire.reply(*id).unwrap()["state"], "killed");
    }
}

#[test]
fn a_client_that_does_not_read_loses_its_connection_and_nobody_else_anything() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process =
        handle(&owner.start(&["sh", "-c", "head -c 2000000 /dev/zero"], json!({"limit_bytes": 1})));
    let mut lazy = owner.attach(daemon.connect());
    let ask = json!({"process_id": process, "encoding": "base64", "limit_bytes": 1 << 20});
    for _ in 0..40 {
        lazy.wire.send("process/output", ask.clone());
    }
    for _ in 0..20 {
        assert_eq!(owner.start(&["echo", "fine"], json!({}))["output"], "fine\n");
    }
    drop(lazy);
    assert_eq!(owner.bytes(&process, 0).len(), 2_000_000);
}

/// Symptom: of many first clients with one shared key some made a second session. Cause: an id was in use from the moment
/// its open arrived, and could be attached only once that was durable, so a client in between got both refusals.
#[test]
fn who_is_told_that_an_id_is_in_use_can_attach_to_it() {
    let daemon = start();
    for round in 0..40 {
        let id = format!("11111111-2222-4333-8444-1{round:011}");
        let open = json!({"session_id": id, "session_key": "A".repeat(43)});
        let attach = json!({"session_id": id, "loop_id": id, "session_key": "A".repeat(43)});
        let (mut first, mut second, mut third) =
            (daemon.connect(), daemon.connect(), daemon.connect());
        let opening = first.send("session/open", open.clone());
        let refused = second.call("session/open", open);
        if refused.is_err() {
            third.ok("session/attach", attach);
        }
        assert_eq!(first.reply(opening).is_ok(), refused.is_err(), "{refused:?}");
    }
}
