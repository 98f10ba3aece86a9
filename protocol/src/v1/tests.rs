//! Field-exact refusals of every method, and that results are open.

use super::*;
use FieldFault::{Duplicate, Missing, Mistyped, Refused, Unknown};

fn refusal(method: &str, params: &str) -> (String, FieldFault) {
    let raw = RawValue::from_string(params.to_owned()).unwrap();
    let error = Call::parse(method, Some(&raw)).expect_err(params);
    assert!(error.message.contains(&error.field), "{error:?}");
    assert!(!error.message.contains('\n') && !error.message.ends_with('.'), "{error:?}");
    (error.field, error.fault)
}

fn accepted(method: &str, params: &str) -> Call {
    let raw = RawValue::from_string(params.to_owned()).unwrap();
    Call::parse(method, Some(&raw)).unwrap_or_else(|error| panic!("{params}: {error}"))
}

const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const UUID: &str = "01234567-89ab-4def-8123-456789abcdef";
const NIL: &str = "00000000-0000-0000-0000-000000000000";
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Parameters with the names above filled in.
fn filled(params: &str) -> String {
    params.replace("$ID", ID).replace("$UUID", UUID).replace("$NIL", NIL).replace("$KEY", KEY)
}

const CASES: &[(&str, &str, &str, FieldFault)] = &[
    ("hello", r#"{"versions":[1]}"#, "client", Missing),
    ("hello", r#"{"client":{"name":"a"},"versions":[1]}"#, "client.version", Missing),
    ("hello", r#"{"client":{"name":"","version":"1"},"versions":[1]}"#, "client.name", Refused),
    ("hello", r#"{"client":{"name":"a","version":"1"},"versions":[]}"#, "versions", Refused),
    ("hello", r#"{"client":{"name":"a","version":"1"},"versions":[-1]}"#, "versions[0]", Mistyped),
    ("hello", r#"{"client":{"name":"a","version":"1","x":1},"versions":[1]}"#, "client.x", Unknown),
    ("session/open", r#"[]"#, "params", Mistyped),
    ("session/open", r#"{"session_id":"$NIL"}"#, "session_id", Mistyped),
    ("session/open", r#"{"session_id":null}"#, "session_id", Mistyped),
    ("session/open", r#"{"session_key":"short"}"#, "session_key", Mistyped),
    ("session/open", r#"{"workspaces":["/a","b"]}"#, "workspaces[1]", Refused),
    ("session/open", r#"{"guard":1}"#, "guard", Mistyped),
    ("session/open", r#"{"idle_close_ms":999}"#, "idle_close_ms", Refused),
    ("session/open", r#"{"quotas":{"running_loop_max":-1}}"#, "quotas.running_loop_max", Mistyped),
    (
        "session/open",
        r#"{"quotas":{"running_loop_max":9007199254740992}}"#,
        "quotas.running_loop_max",
        Refused,
    ),
    ("session/open", r#"{"quotas":{"disk_bytes":1}}"#, "quotas.disk_bytes", Unknown),
    ("session/attach", r#"{"session_id":"$UUID","loop_id":"$UUID"}"#, "session_key", Missing),
    (
        "session/attach",
        r#"{"session_id":"$UUID","loop_id":7,"session_key":"$KEY"}"#,
        "loop_id",
        Mistyped,
    ),
    ("session/close", r#"{}"#, "scope", Missing),
    ("session/close", r#"{"scope":"loop"}"#, "scope", Mistyped),
    ("session/close", r#"{"scope":"session","grace_ms":31622400001}"#, "grace_ms", Refused),
    ("session/close", r#"{"scope":"session","purge":1}"#, "purge", Mistyped),
    ("process/start", r#"{}"#, "argv", Refused),
    ("process/start", r#"{"argv":[]}"#, "argv", Refused),
    ("process/start", r#"{"argv":[""]}"#, "argv[0]", Refused),
    ("process/start", r#"{"argv":["a","b\u0000c"]}"#, "argv[1]", Refused),
    ("process/start", r#"{"argv":["a","b","c",4]}"#, "argv[3]", Mistyped),
    ("process/start", r#"{"argv":["a"],"command":"b"}"#, "command", Refused),
    ("process/start", r#"{"argv":["a"],"argv":["b"]}"#, "argv", Duplicate),
    ("process/start", r#"{"command":" \t"}"#, "command", Refused),
    ("process/start", r#"{"argv":["a"],"shell":"/bin/sh"}"#, "shell", Refused),
    ("process/start", r#"{"command":"a","shell":""}"#, "shell", Refused),
    ("process/start", r#"{"argv":["a"],"login":true}"#, "login", Refused),
    ("process/start", r#"{"argv_base64":[]}"#, "argv_base64", Refused),
    ("process/start", r#"{"argv_base64":["YQBi"]}"#, "argv_base64[0]", Refused),
    ("process/start", r#"{"argv_base64":["YQ="]}"#, "argv_base64[0]", Mistyped),
    ("process/start", r#"{"argv":["a"],"argv_base64":["YQ=="]}"#, "argv_base64", Refused),
    ("process/start", r#"{"argv":["a"],"cwd":"/","cwd_base64":"Lw=="}"#, "cwd_base64", Refused),
    (
        "process/start",
        r#"{"argv":["a"],"env":{"A":"1"},"env_base64":{"A":"MQ=="}}"#,
        "env_base64.A",
        Refused,
    ),
    ("process/start", r#"{"argv":["a"],"limits":{"pids_max":0}}"#, "limits.pids_max", Refused),
    ("process/start", r#"{"argv":["a"],"limits":{"cpu_max":0}}"#, "limits.cpu_max", Refused),
    ("process/start", r#"{"argv":["a"],"limits":{"x":1}}"#, "limits.x", Unknown),
    ("process/start", r#"{"argv":["a"],"limits_fallback":"x"}"#, "limits_fallback", Mistyped),
    (
        "process/start",
        r#"{"argv":["a"],"workspace":{"root":"/","access":"read_only","paths_read":[]}}"#,
        "workspace.paths_read",
        Refused,
    ),
    ("process/start", r#"{"argv":["a"],"cwd":""}"#, "cwd", Refused),
    ("process/start", r#"{"argv":["a"],"env":{"A":"1","B":2}}"#, "env.B", Mistyped),
    ("process/start", r#"{"argv":["a"],"env":{"A":"1","A":"2"}}"#, "env.A", Duplicate),
    ("process/start", r#"{"argv":["a"],"env":{"A=B":"1"}}"#, "env.A=B", Refused),
    ("process/start", r#"{"argv":["a"],"env":{"":"1"}}"#, "env", Refused),
    ("process/start", r#"{"argv":["a"],"env_base64":{"A":"!"}}"#, "env_base64.A", Mistyped),
    ("process/start", r#"{"argv":["a"],"umask":512}"#, "umask", Refused),
    ("process/start", r#"{"argv":["a"],"stdin":"tty"}"#, "stdin", Mistyped),
    ("process/start", r#"{"argv":["a"],"tty":true,"rows":1}"#, "cols", Refused),
    ("process/start", r#"{"argv":["a"],"background":1}"#, "background", Mistyped),
    ("process/start", r#"{"argv":["a"],"yield_time_ms":-1}"#, "yield_time_ms", Mistyped),
    ("process/start", r#"{"argv":["a"],"yield_time_ms":1.5}"#, "yield_time_ms", Mistyped),
    ("process/start", r#"{"argv":["a"],"timeout_ms":0}"#, "timeout_ms", Refused),
    ("process/start", r#"{"argv":["a"],"memory_bytes":4095}"#, "memory_bytes", Refused),
    ("process/start", r#"{"argv":["a"],"spool_bytes":0}"#, "spool_bytes", Refused),
    ("process/start", r#"{"argv":["a"],"limit_bytes":1048577}"#, "limit_bytes", Refused),
    (
        "process/start",
        r#"{"argv":["a"],"tty":true,"on_leader_exit":"keep_tree"}"#,
        "on_leader_exit",
        Refused,
    ),
    ("process/start", r#"{"argv":["a"],"limits":{"pids_max":0}}"#, "limits.pids_max", Refused),
    ("process/start", r#"{"argv":["a"],"limits":{"cpu_max":-1.5}}"#, "limits.cpu_max", Refused),
    ("process/start", r#"{"argv":["a"],"workspace":{"root":"/a"}}"#, "workspace.access", Missing),
    ("process/start", r#"{"argv":["a"],"origin":"$NIL"}"#, "origin", Mistyped),
    ("process/start", r#"{"argv":["a"],"request_key":""}"#, "request_key", Refused),
    ("process/start", r#"{"argv":["a"],"Label":"x"}"#, "Label", Unknown),
    ("process/output", r#"{}"#, "process_id", Refused),
    ("process/output", r#"{"process_id":"$IDx"}"#, "process_id", Mistyped),
    ("process/output", r#"{"process_ids":[]}"#, "process_ids", Refused),
    ("process/output", r#"{"process_ids":["$ID","$ID"]}"#, "process_ids[1]", Refused),
    (
        "process/output",
        r#"{"process_ids":["$ID","AAAAAAAAAAAAAAAAAAAAAB"]}"#,
        "process_ids[1]",
        Mistyped,
    ),
    ("process/output", r#"{"process_id":"$ID","process_ids":["$ID"]}"#, "process_ids", Refused),
    ("process/output", r#"{"process_id":"$ID","cursor":"0"}"#, "cursor", Mistyped),
    ("process/output", r#"{"process_id":"$ID","cursor":9007199254740992}"#, "cursor", Refused),
    ("process/output", r#"{"process_id":"$ID","cursor":[0,1]}"#, "cursor", Refused),
    ("process/output", r#"{"process_id":"$ID","cursor":[0.5]}"#, "cursor[0]", Mistyped),
    ("process/output", r#"{"process_id":"$ID","cursor":0,"tail_lines":1}"#, "tail_lines", Refused),
    ("process/output", r#"{"process_id":"$ID","tail_lines":100001}"#, "tail_lines", Refused),
    ("process/output", r#"{"process_id":"$ID","limit_bytes":0}"#, "limit_bytes", Refused),
    ("process/output", r#"{"process_id":"$ID","encoding":"utf8"}"#, "encoding", Mistyped),
    ("process/output", r#"{"process_id":"$ID","wait":"some"}"#, "wait", Mistyped),
    ("process/output", r#"{"process_id":"$ID","wait":7}"#, "wait", Mistyped),
    ("process/output", r#"{"process_id":"$ID","wait":{}}"#, "wait.until", Missing),
    ("process/output", r#"{"process_id":"$ID","wait":{"until":{}}}"#, "wait.until", Refused),
    (
        "process/output",
        r#"{"process_id":"$ID","wait":{"until":{"lines":1}}}"#,
        "wait.until.lines",
        Unknown,
    ),
    (
        "process/output",
        r#"{"process_ids":["$ID","AAAAAAAAAAAAAAAAAAAAAQ"],"require_success":true}"#,
        "require_success",
        Refused,
    ),
    ("process/output", r#"{"process_id":"$ID","fold":true,"encoding":"base64"}"#, "fold", Refused),
    ("process/output", r#"{"process_id":"$ID","fold":true,"tags":true}"#, "fold", Refused),
    ("process/search", r#"{"process_id":"$ID"}"#, "pattern", Missing),
    ("process/search", r#"{"process_id":"$ID","pattern":""}"#, "pattern", Refused),
    (
        "process/search",
        r#"{"process_id":"$ID","pattern":"a","from_cursor":-1}"#,
        "from_cursor",
        Mistyped,
    ),
    ("process/search", r#"{"process_id":"$ID","pattern":"a","limit":1001}"#, "limit", Refused),
    ("process/export", r#"{"from_cursor":0}"#, "process_id", Missing),
    ("process/export", r#"{"process_id":"$ID","reason":""}"#, "reason", Refused),
    ("process/output", r#"{"process_id":"$ID","reason":""}"#, "reason", Refused),
    ("process/input", r#"{"data":"x"}"#, "process_id", Missing),
    ("process/input", r#"{"process_id":"$ID"}"#, "data", Refused),
    ("process/input", r#"{"process_id":"$ID","eof":false}"#, "data", Refused),
    (
        "process/input",
        r#"{"process_id":"$ID","data":"a","data_base64":"YQ=="}"#,
        "data_base64",
        Refused,
    ),
    ("process/input", r#"{"process_id":"$ID","data_base64":"YQ"}"#, "data_base64", Mistyped),
    ("process/input", r#"{"process_id":"$ID","keys":[]}"#, "keys", Refused),
    ("process/stop", r#"{"process_id":"$ID"}"#, "mode", Missing),
    ("process/stop", r#"{"process_id":"$ID","mode":"TERM"}"#, "mode", Mistyped),
    ("process/stop", r#"{"process_id":"$ID","mode":"kill","grace_ms":-5}"#, "grace_ms", Mistyped),
    ("process/inspect", r#"{"process_id":""}"#, "process_id", Mistyped),
    ("process/inspect", r#"{"process_id":"$ID","pids":true}"#, "pids", Unknown),
    ("process/list", r#"{"limit":0}"#, "limit", Refused),
    ("process/list", r#"{"limit":1001}"#, "limit", Refused),
    ("process/list", r#"{"state":"ended"}"#, "state", Mistyped),
    ("operator/attach", r#"{"reason":7}"#, "reason", Mistyped),
    ("daemon/status", r#"{"all":true}"#, "all", Unknown),
    ("daemon/shutdown", r#"{"grace_ms":18446744073709551616}"#, "grace_ms", Mistyped),
    ("lease/acquire", r#"{}"#, "root", Missing),
    ("lease/acquire", r#"{"root":"a","kind":"snapshot"}"#, "root", Refused),
    ("lease/acquire", r#"{"root":"/a","kind":"read_only"}"#, "kind", Mistyped),
    ("lease/release", r#"{"lease_id":"x"}"#, "lease_id", Mistyped),
    ("events/subscribe", r#"{"kinds":["nothing"]}"#, "kinds[0]", Mistyped),
    ("events/ack", r#"{"for":1}"#, "up_to_seq", Missing),
    ("events/unsubscribe", r#"{}"#, "for", Missing),
    ("notifications/ack", r#"{"command_id":"$UUID","disposition":"no"}"#, "disposition", Mistyped),
    ("process/remove", r#"{}"#, "process_id", Missing),
    ("process/pin", r#"{"process_id":"$ID","pinned":1}"#, "pinned", Mistyped),
    ("session/list", r#"{"limit":0}"#, "limit", Refused),
    ("session/list", r#"{"after":""}"#, "after", Refused),
    ("daemon/metrics", r#"{"x":1}"#, "x", Unknown),
    ("daemon/reload", r#"{"x":1}"#, "x", Unknown),
    ("process/begin", r#"{}"#, "method", Unknown),
];

#[test]
fn each_wrong_parameter_is_named() {
    for (method, params, field, fault) in CASES {
        assert_eq!(
            refusal(method, &filled(params)),
            ((*field).to_owned(), *fault),
            "{method} {params}"
        );
    }
}

#[test]
fn data_over_1_mib_is_refused_and_exactly_1_mib_taken() {
    let data = |bytes| format!(r#"{{"process_id":"{ID}","data":"{}"}}"#, "a".repeat(bytes));
    assert_eq!(refusal("process/input", &data((1 << 20) + 1)).0, "data");
    accepted("process/input", &data(1 << 20));
}

#[test]
fn a_refusal_repeats_neither_a_long_name_nor_a_text_in_full() {
    let long = "n".repeat(1 << 20);
    for params in [
        format!(r#"{{"argv":["a"],"{long}":1}}"#),
        format!(r#"{{"argv":["a"],"env":{{"{long}":7}}}}"#),
        format!(r#"{{"argv":["a"],"timeout_ms":"{long}"}}"#),
        format!(r#"{{"argv":["a"],"stdin":"{long}"}}"#),
        format!(r#"{{"argv":["a"],"origin":"{long}"}}"#),
    ] {
        let raw = RawValue::from_string(params).unwrap();
        let error = Call::parse("process/start", Some(&raw)).unwrap_err();
        assert!(error.message.len() + error.field.len() < 2000, "{}", error.message.len());
    }
}

#[test]
fn a_sentence_says_what_is_there_and_what_should_be() {
    let said = |params: &str| {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        Call::parse("process/start", Some(&raw)).unwrap_err().message
    };
    let cases = [
        (r#"{"argv":"ls"}"#, "`argv` is a text, not a list"),
        (r#"{"argv":["a",4]}"#, "`argv[1]` is integer `4`, not a text"),
        (r#"{"timeout_ms":-1}"#, "`timeout_ms` is integer `-1`, not an integer from 0 on"),
        (r#"{"argv":["a"],"timeout_ms":0}"#, "`timeout_ms` is 0, not within 1..=31622400000"),
        (r#"{"label":null}"#, "`label` is null, not a text"),
        (r#"{"stdin":"x"}"#, "`stdin` is a text, not a kind of stdin: pipe, null"),
        (r#"{"limits":7}"#, "`limits` is integer `7`, not an object"),
        ("{}", "`argv` or `argv_base64` or `command` has to be there"),
    ];
    for (params, sentence) in cases {
        assert_eq!(said(params), sentence);
    }
}

#[test]
fn a_label_counts_characters_and_may_have_128() {
    let start = |chars| format!(r#"{{"argv":["a"],"label":"{}"}}"#, "ä".repeat(chars));
    accepted("process/start", &start(128));
    assert_eq!(refusal("process/start", &start(129)).0, "label");
}

#[test]
fn parameters_in_force_are_read_and_written_back_alike() {
    let cases = [
        ("hello", r#"{"client":{"name":"a","version":"1"},"versions":[1,2],"features":["x"]}"#),
        (
            "session/open",
            r#"{"session_id":"$UUID","session_key":"$KEY","quotas":{"running_loop_max":2}}"#,
        ),
        ("session/attach", r#"{"session_id":"$UUID","loop_id":"$UUID","session_key":"$KEY"}"#),
        ("session/close", r#"{"scope":"session","grace_ms":0}"#),
        (
            "process/start",
            r#"{"argv":["a"," "],"env":{"B":"1","A":null},"stdin":"pipe","timeout_ms":1}"#,
        ),
        ("process/output", r#"{"process_ids":["$ID"],"cursor":[-5],"wait":"exit","timeout_ms":0}"#),
        ("process/input", r#"{"process_id":"$ID","data_base64":"AAE=","eof":true}"#),
        ("process/stop", r#"{"process_id":"$ID","mode":"interrupt","grace_ms":0}"#),
        ("process/list", r#"{"scope":"session","state":"running","limit":1000}"#),
        ("process/remove", r#"{"process_id":"$ID"}"#),
        ("process/pin", r#"{"process_id":"$ID","pinned":true}"#),
        ("events/subscribe", r#"{"from_seq":1,"kinds":["completed"],"notifications":true}"#),
        ("events/ack", r#"{"for":7,"up_to_seq":9}"#),
        ("events/unsubscribe", r#"{"for":7}"#),
        ("notifications/ack", r#"{"command_id":"$UUID","disposition":"stopped"}"#),
        ("lease/acquire", r#"{"root":"/a","kind":"snapshot","paths":["b"],"timeout_ms":0}"#),
        ("lease/release", r#"{"lease_id":"$UUID"}"#),
        ("daemon/status", "{}"),
    ];
    for (method, params) in cases {
        let params = filled(params);
        let call = accepted(method, &params);
        assert_eq!(call.method().as_str(), method);
        let written = match call {
            Call::Hello(p) => serde_json::to_string(&p),
            Call::SessionOpen(p) => serde_json::to_string(&p),
            Call::SessionAttach(p) => serde_json::to_string(&p),
            Call::SessionClose(p) => serde_json::to_string(&p),
            Call::ProcessStart(p) => serde_json::to_string(&p),
            Call::ProcessOutput(p) => serde_json::to_string(&p),
            Call::ProcessInput(p) => serde_json::to_string(&p),
            Call::SessionStopAll(p) => serde_json::to_string(&*p),
            Call::ProcessSignal(p) => serde_json::to_string(&*p),
            Call::ProcessStop(p) => serde_json::to_string(&p),
            Call::ProcessInspect(p) => serde_json::to_string(&p),
            Call::ProcessList(p) => serde_json::to_string(&p),
            Call::ProcessRemove(p) => serde_json::to_string(&p),
            Call::ProcessPin(p) => serde_json::to_string(&p),
            Call::EventsSubscribe(p) => serde_json::to_string(&p),
            Call::EventsAck(p) => serde_json::to_string(&p),
            Call::EventsUnsubscribe(p) => serde_json::to_string(&p),
            Call::NotificationsAck(p) => serde_json::to_string(&p),
            Call::LeaseAcquire(p) => serde_json::to_string(&p),
            Call::LeaseRelease(p) => serde_json::to_string(&p),
            Call::OperatorAttach(p) => serde_json::to_string(&p),
            Call::DaemonStatus(p) => serde_json::to_string(&p),
            Call::ProcessSearch(p) => serde_json::to_string(&p),
            Call::ProcessExport(p) => serde_json::to_string(&p),
            Call::SessionList(p) => serde_json::to_string(&p),
            Call::DaemonMetrics(p) => serde_json::to_string(&p),
            Call::DaemonReload(p) => serde_json::to_string(&p),
            Call::DaemonShutdown(p) => serde_json::to_string(&p),
        };
        assert_eq!(written.unwrap(), params);
    }
}

#[test]
fn absent_parameters_are_empty_ones() {
    assert!(matches!(Call::parse("daemon/status", None), Ok(Call::DaemonStatus(_))));
}

#[test]
fn every_method_is_in_force_or_refused_by_name() {
    for &method in Method::ALL {
        let is_in_force = IN_FORCE.contains(&method);
        let refused = Call::parse(method.as_str(), None).err();
        let unsupported = refused.is_some_and(|e| e.fault == FieldFault::Unsupported);
        assert_eq!(is_in_force, !unsupported, "{method}");
    }
    assert_eq!(IN_FORCE.len(), 28);
}

#[test]
fn a_page_of_a_later_version_is_read() {
    let text = filled(
        r#"{"results":[{"process_id":"$ID","error":{"code":"new_code","message":"m"}},
        {"process_id":"$ID","state":"dozing","start_cursor":0,"from_cursor":0,"next_cursor":1,
         "total_bytes":1,"retained_from":0,"gap":false,"more":false,"eof":true,"output":"x",
         "artifact":{"id":"$ID","encoding":"base64","start_cursor":0,"end_cursor":1},"novel":{}}],
        "woke_by":"whim","extra":1}"#,
    );
    let result: OutputResult = serde_json::from_str(&text).unwrap();
    assert_eq!(result.woke_by.as_str(), "whim");
    assert!(
        matches!(&result.results[0], Entry::Failed { error, .. } if error.code.as_str() == "new_code")
    );
    assert!(matches!(&result.results[1], Entry::Page(page) if page.state.as_str() == "dozing"));
}
