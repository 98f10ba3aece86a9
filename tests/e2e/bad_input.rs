//! Parameters that are wrong: refused by the name of the field, and nothing changed.

use procd_tests::{Daemon, Owner, Setup, Tier, Wire, binaries, owner::merge};
use serde_json::{Value, json};

const RANDOM: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const UUID: &str = "11111111-2222-4333-8444-555555555555";
const NIL: &str = "00000000-0000-0000-0000-000000000000";
const BEYOND: u64 = 1 << 53;
const YEAR_AND_A_BIT: u64 = 366 * 24 * 3_600_000 + 1;

/// A wrong value for a field of a request that is right without it.
type Case = (&'static str, Value);

fn start() -> Daemon {
    Setup::new(Tier::Shim).start()
}

/// Each case is refused by its field, and so are an unknown field and a `null` beside the right ones.
fn each_is_refused(wire: &mut Wire, method: &str, right: &Value, cases: Vec<Case>) {
    let unknown: Case = ("no_such_field", json!(1));
    for (field, value) in cases.into_iter().chain([unknown]) {
        let mut params = right.clone();
        let top = field.split(['.', '[']).next().unwrap();
        let wrong = if field.contains('.') && !value.is_object() {
            nested(field, &value)
        } else {
            value.clone()
        };
        params[top] = wrong;
        let error = wire.refused("invalid_arguments", method, params);
        let named = error["details"]["field"].as_str().unwrap_or_default();
        assert!(
            named == field
                || named.starts_with(&format!("{field}["))
                || named.starts_with(&format!("{field}.")),
            "{method} {field} {value}: {error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(top)
                && !message.ends_with('.')
                && message.starts_with(|c: char| !c.is_uppercase()),
            "{error}"
        );
        assert_eq!(error["retryable"], false, "{error}");
    }
}

/// `a.b` as an object around the value.
fn nested(field: &str, value: &Value) -> Value {
    let (_, inner) = field.split_once('.').unwrap();
    if inner.contains('.') {
        json!({inner.split('.').next().unwrap(): nested(inner, value)})
    } else {
        json!({inner: value})
    }
}

fn each_is_missed(wire: &mut Wire, method: &str, right: &Value, required: &[&str]) {
    for field in required {
        let mut params = right.clone();
        params.as_object_mut().unwrap().remove(*field);
        let error = wire.refused("invalid_arguments", method, params);
        assert_eq!(error["details"]["field"], *field, "{method} without {field}: {error}");
    }
    for params in [json!([]), json!("text"), json!(1)] {
        wire.refused("invalid_arguments", method, params);
    }
}

/// Wrong for whatever is no text, no number and no list.
fn mistyped(fields: &[&'static str], values: &[Value]) -> Vec<Case> {
    fields.iter().flat_map(|field| values.iter().map(|value| (*field, value.clone()))).collect()
}

fn not_integers(fields: &[&'static str]) -> Vec<Case> {
    mistyped(fields, &[json!("1"), json!(1.5), json!(true), json!([]), json!(null), json!({})])
}

fn not_texts(fields: &[&'static str]) -> Vec<Case> {
    mistyped(fields, &[json!(1), json!(true), json!([]), json!(null), json!({})])
}

fn not_bools(fields: &[&'static str]) -> Vec<Case> {
    mistyped(fields, &[json!(1), json!("true"), json!(null)])
}

fn not_durations(fields: &[&'static str]) -> Vec<Case> {
    mistyped(
        fields,
        &[json!(-1), json!(YEAR_AND_A_BIT), json!(BEYOND), json!("1"), json!(1.5), json!(null)],
    )
}

/// Nothing was started, opened or changed.
fn is_untouched(owner: &mut Owner, records: usize) {
    let list = owner.list();
    assert_eq!(list.len(), records, "{list:?}");
}

/// C132: of a later release, too.
#[test]
fn unknown_methods_are_refused_by_that_name() {
    let daemon = start();
    let mut owner = daemon.owner();
    for method in ["no/such", "", "process/Start", "process/start "] {
        let error = owner.wire.refused("invalid_arguments", method, json!({}));
        assert_eq!(error["details"]["field"], "method", "{error}");
    }
}

#[test]
fn session_list_metrics_and_reload() {
    let daemon = start();
    let mut wire = daemon.operator();
    for (method, params, field) in [
        ("session/list", json!({"limit": 0}), "limit"),
        ("session/list", json!({"limit": 1001}), "limit"),
        ("session/list", json!({"after": "nowhere"}), "after"),
        ("session/list", json!({"scope": "loop"}), "scope"),
        ("daemon/metrics", json!({"format": "text"}), "format"),
        ("daemon/reload", json!({"file": "/etc"}), "file"),
    ] {
        let error = wire.refused("invalid_arguments", method, params);
        assert_eq!(error["details"]["field"], field, "{method}: {error}");
    }
}

#[test]
fn hello() {
    let daemon = start();
    let right = json!({"client": {"name": "n", "version": "1"}, "versions": [1]});
    let mut cases = not_texts(&["client.name", "client.version"]);
    cases.extend([
        ("client", json!("n")),
        ("client.name", json!("")),
        ("client.name", json!("x".repeat(129))),
        ("versions", json!([])),
        ("versions", json!(vec![1; 17])),
        ("versions", json!(["1"])),
        ("versions", json!(1)),
        ("features", json!("x")),
        ("features", json!([1])),
    ]);
    for (field, value) in cases {
        let mut wire = Wire::bare(&daemon.socket()).unwrap();
        let mut params = right.clone();
        if let Some((_, inner)) = field.split_once('.') {
            params["client"][inner] = value.clone();
        } else {
            params[field] = value.clone();
        }
        let error = wire.refused("invalid_arguments", "hello", params);
        let named = error["details"]["field"].as_str().unwrap();
        assert!(named.starts_with(field), "{field} {value}: {error}");
    }
}

#[test]
fn session_open() {
    let daemon = start();
    let mut wire = daemon.connect();
    let mut cases = not_texts(&["label", "session_id", "loop_id", "session_key"]);
    cases.extend([
        ("session_id", json!("")),
        ("session_id", json!("not a uuid")),
        ("session_id", json!(NIL)),
        ("loop_id", json!(NIL)),
        ("session_key", json!("short")),
        ("session_key", json!("A".repeat(44))),
        ("session_key", json!("*".repeat(43))),
        ("label", json!("x".repeat(129))),
        ("label", json!("a\u{0}b")),
        ("idle_close_ms", json!(999)),
        ("idle_close_ms", json!(YEAR_AND_A_BIT)),
        ("workspaces", json!("x")),
        ("workspaces", json!(["relative"])),
        ("workspaces", json!(vec!["/x"; 17])),
        ("guard", json!("yes")),
        ("quotas", json!(1)),
        ("quotas.running_loop_max", json!(-1)),
        ("quotas.running_loop_max", json!("1")),
        ("quotas.spool_session_bytes", json!(BEYOND)),
        ("quotas.no_such_quota", json!(1)),
    ]);
    each_is_refused(&mut wire, "session/open", &json!({}), cases);
    assert_eq!(daemon.operator().ok("daemon/status", json!({}))["sessions"], 0);
}

#[test]
fn session_attach_and_close() {
    let daemon = start();
    let mut wire = daemon.connect();
    let right = json!({"session_id": UUID, "loop_id": UUID, "session_key": "A".repeat(43)});
    let mut cases = not_texts(&["session_id", "loop_id", "session_key"]);
    cases.extend([("session_id", json!(NIL)), ("loop_id", json!("x")), ("session_key", json!(""))]);
    each_is_refused(&mut wire, "session/attach", &right, cases);
    each_is_missed(&mut wire, "session/attach", &right, &["session_id", "loop_id", "session_key"]);
    let mut owner = daemon.owner();
    let right = json!({"scope": "session"});
    let mut cases = not_durations(&["grace_ms"]);
    cases.extend(not_bools(&["purge"]));
    cases.extend([("scope", json!("loop")), ("scope", json!(""))]);
    each_is_refused(&mut owner.wire, "session/close", &right, cases);
    each_is_missed(&mut owner.wire, "session/close", &right, &["scope"]);
    assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0, "still open");
}

#[test]
fn process_start() {
    let daemon = start();
    let mut owner = daemon.owner();
    let right = owner.start_params(&["true"], json!({}));
    let mut cases = not_texts(&["cwd", "label", "origin", "stdin", "on_leader_exit"]);
    cases.extend(not_bools(&["background", "merge_streams", "tty", "login", "dry_run"]));
    cases.extend(not_durations(&["yield_time_ms", "timeout_ms", "queue_timeout_ms"]));
    cases.extend(not_integers(&["memory_bytes", "spool_bytes", "limit_bytes", "umask"]));
    cases.extend([
        ("argv", json!([])),
        ("argv", json!([""])),
        ("argv", json!([" "])),
        ("argv", json!("true")),
        ("argv", json!([1])),
        ("argv", json!(["a\u{0}b"])),
        ("argv", json!(["true", "a\u{0}"])),
        ("cwd", json!("")),
        ("cwd", json!("/a\u{0}")),
        ("env", json!([])),
        ("env", json!({"A": 1})),
        ("env", json!({"": "x"})),
        ("env", json!({"A=B": "x"})),
        ("env", json!({"A": "x\u{0}"})),
        ("env", json!({"A": "x".repeat(128 * 1024 + 1)})),
        ("stdin", json!("tty")),
        ("timeout_ms", json!(0)),
        ("on_leader_exit", json!("leave")),
        ("memory_bytes", json!(0)),
        ("memory_bytes", json!(4095)),
        ("memory_bytes", json!(BEYOND)),
        ("spool_bytes", json!(0)),
        ("spool_bytes", json!(65535)),
        ("limit_bytes", json!(0)),
        ("limit_bytes", json!((1 << 20) + 1)),
        ("origin", json!(NIL)),
        ("origin", json!("x")),
        ("label", json!("x".repeat(129))),
        ("umask", json!(512)),
        ("command", json!("true")),
    ]);
    each_is_refused(&mut owner.wire, "process/start", &right, cases);
    for params in [
        json!({"command": ""}),
        json!({"command": " \n"}),
        json!({"command": "a\u{0}"}),
        json!({"command": 1}),
    ] {
        let error = owner.wire.refused("invalid_arguments", "process/start", params);
        assert_eq!(error["details"]["field"], "command", "{error}");
    }
    owner.wire.refused("invalid_arguments", "process/start", json!({"cwd": "/"}));
    is_untouched(&mut owner, 0);
}

#[test]
fn process_output() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background(&["sleep", "600"]);
    let right = json!({"process_id": process});
    let mut cases = not_texts(&["encoding", "stream", "reason"]);
    cases.extend(not_bools(&["tags", "fold"]));
    cases.extend(not_durations(&["timeout_ms"]));
    cases.extend(not_integers(&["limit_bytes", "tail_lines"]));
    cases.extend(handles("process_id"));
    cases.extend([
        ("cursor", json!("0")),
        ("cursor", json!(0.5)),
        ("cursor", json!(BEYOND)),
        ("cursor", json!([0, 0])),
        ("limit_bytes", json!(0)),
        ("limit_bytes", json!((1 << 20) + 1)),
        ("encoding", json!("utf8")),
        ("stream", json!("both")),
        ("tail_lines", json!(0)),
        ("tail_lines", json!(100_001)),
        ("wait", json!("forever")),
        ("wait", json!(1)),
        ("process_ids", json!([RANDOM])),
        ("reason", json!("x".repeat(257))),
    ]);
    each_is_refused(&mut owner.wire, "process/output", &right, cases);
    let many: Vec<String> = (0..65).map(|count| format!("{count:022}").replace('0', "A")).collect();
    for list in
        [json!([]), json!([RANDOM, RANDOM]), json!(many), json!([RANDOM, "short"]), json!(RANDOM)]
    {
        let error =
            owner.wire.refused("invalid_arguments", "process/output", json!({"process_ids": list}));
        assert!(error["details"]["field"].as_str().unwrap().starts_with("process_ids"), "{error}");
    }
    owner.wire.refused("invalid_arguments", "process/output", json!({}));
    owner.wire.refused(
        "invalid_arguments",
        "process/output",
        json!({"process_id": process, "cursor": 0, "tail_lines": 1}),
    );
    assert_eq!(owner.output(&process, json!({}))["state"], "running");
    owner.stop(&process, "kill", 0);
}

/// What is no handle: not 22 characters of the alphabet with zero spare bits.
fn handles(field: &'static str) -> Vec<Case> {
    let mut cases = not_texts(&[field]);
    let wrong = [
        "",
        "A",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAA+/",
        "AAAAAAAAAAAAAAAAAAAAAB",
        "AAAAAAAAAAAAAAAAAAAA \u{e9}",
    ];
    cases.extend(wrong.map(|wrong| (field, json!(wrong))));
    cases
}

#[test]
fn process_input() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background(&[&binaries::probe(), "echo"]);
    let right = json!({"process_id": process, "data": "never delivered"});
    let mut cases = not_texts(&["data"]);
    cases.extend(not_bools(&["eof"]));
    cases.extend(handles("process_id"));
    cases.extend([
        ("data", json!("x".repeat((1 << 20) + 1))),
        ("data_base64", json!("AA==")),
        ("keys", json!([])),
        ("rows", json!(0)),
        ("cols", json!(65536)),
    ]);
    each_is_refused(&mut owner.wire, "process/input", &right, cases);
    for params in
        [json!({"data_base64": "*"}), json!({"data_base64": "A"}), json!({"data_base64": 1})]
    {
        let mut params = params;
        merge(&mut params, json!({"process_id": process}));
        let error = owner.wire.refused("invalid_arguments", "process/input", params);
        assert_eq!(error["details"]["field"], "data_base64", "{error}");
    }
    for params in [json!({"process_id": process}), json!({"process_id": process, "eof": false})] {
        owner.wire.refused("invalid_arguments", "process/input", params);
    }
    owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
    owner.ended(&process);
    assert_eq!(owner.text(&process), "", "nothing of a refused call was delivered");
}

#[test]
fn process_stop_and_inspect() {
    let daemon = start();
    let mut owner = daemon.owner();
    let process = owner.background(&["sleep", "600"]);
    let right = json!({"process_id": process, "mode": "kill"});
    let mut cases = not_durations(&["grace_ms"]);
    cases.extend(handles("process_id"));
    cases.extend([
        ("mode", json!("")),
        ("mode", json!("Kill")),
        ("mode", json!(9)),
        ("mode", json!(null)),
    ]);
    each_is_refused(&mut owner.wire, "process/stop", &right, cases);
    each_is_missed(&mut owner.wire, "process/stop", &right, &["process_id", "mode"]);
    let right = json!({"process_id": process});
    each_is_refused(&mut owner.wire, "process/inspect", &right, handles("process_id"));
    each_is_missed(&mut owner.wire, "process/inspect", &right, &["process_id"]);
    assert_eq!(
        owner.output(&process, json!({}))["state"],
        "running",
        "no refused stop signalled it"
    );
    owner.stop(&process, "kill", 0);
}

#[test]
fn process_list() {
    let daemon = start();
    let mut owner = daemon.owner();
    let mut cases = not_integers(&["limit"]);
    cases.extend(not_texts(&["label", "after"]));
    cases.extend([
        ("limit", json!(0)),
        ("limit", json!(1001)),
        ("limit", json!(-1)),
        ("state", json!("done")),
        ("state", json!("")),
        ("scope", json!("all")),
        ("after", json!("")),
        ("after", json!("x".repeat(257))),
        ("label", json!("x".repeat(129))),
        ("session_id", json!("x")),
    ]);
    each_is_refused(&mut owner.wire, "process/list", &json!({}), cases);
}

#[test]
fn operator_attach_status_and_shutdown() {
    let daemon = start();
    let mut wire = daemon.connect();
    let mut cases = not_texts(&["reason"]);
    cases.extend([("reason", json!("")), ("reason", json!("x".repeat(257)))]);
    each_is_refused(&mut wire, "operator/attach", &json!({}), cases);
    each_is_refused(&mut wire, "daemon/status", &json!({}), vec![]);
    let mut operator = daemon.operator();
    each_is_refused(&mut operator, "daemon/shutdown", &json!({}), not_durations(&["grace_ms"]));
    assert_eq!(daemon.owner().start(&["true"], json!({}))["exit_code"], 0, "not shutting down");
}
