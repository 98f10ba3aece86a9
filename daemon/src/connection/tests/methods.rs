//! Sessions, starts, stops, input, lists and status, as a client sees them.

use procd_core::settings::Limits;
use procd_core::{LeaderEnd, TreeSignal};
use serde_json::{Value, json};

use super::Wire;
use super::world::World;
use crate::supervisor::runner::{Order, Program, Report, SpawnCause, SpawnFailure, StdinMode};

const UNKNOWN: &str = "AAAAAAAAAAAAAAAAAAAAAA";

#[tokio::test]
async fn a_session_is_opened_attached_and_closed() {
    let world = World::new().await;
    let mut wire = Wire::greeted(world.daemon()).await;
    let opened = wire.result("session/open", json!({"label": "mine"})).await;
    assert_eq!(opened["free"]["loop"], 8);
    let key = opened["session_key"].clone();
    let error = wire.error("session/open", json!({})).await;
    assert_eq!(error["code"], "permission_denied");

    let mut other = Wire::greeted(world.daemon()).await;
    let attach = |key: &Value| json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": key});
    let wrong = json!("A".repeat(43));
    let refused = other.error("session/attach", attach(&wrong)).await;
    let mut unknown = attach(&key);
    unknown["session_id"] = json!("11111111-1111-4111-8111-111111111111");
    assert_eq!(refused["code"], "not_found");
    assert_eq!(other.error("session/attach", unknown).await, refused);
    let attached = other.result("session/attach", attach(&key)).await;
    assert_eq!((&attached["label"], &attached["state"]), (&json!("mine"), &json!("open")));

    let closed = wire.result("session/close", json!({"scope": "session"})).await;
    assert_eq!(closed, json!({"stopped": 0, "failures": []}));
    let error = wire.error("process/start", json!({"argv": ["x"]})).await;
    assert_eq!(error["code"], "supervisor_shutting_down");
    let own = wire.result("daemon/status", json!({})).await["session"].clone();
    assert_eq!((&own["label"], &own["state"]), (&json!("mine"), &json!("closed")));
}

#[tokio::test]
async fn a_session_may_only_lower_its_quotas() {
    let world = World::new().await;
    let mut wire = Wire::greeted(world.daemon()).await;
    for (key, value) in [("running_session_max", 33), ("running_loop_max", 33)] {
        let error = wire.error("session/open", json!({"quotas": {key: value}})).await;
        assert_eq!(error["details"]["field"], format!("quotas.{key}"));
    }
    let opened = wire.result("session/open", json!({"quotas": {"running_loop_max": 2}})).await;
    assert_eq!(opened["free"]["loop"], 2);
}

#[tokio::test]
async fn unknown_foreign_and_removed_handles_get_the_same_bytes() {
    let mut world = World::new().await;
    let mut owner = world.owner().await;
    let (handle, _played) = world.running(&mut owner).await;
    let mut stranger = world.owner().await;
    for (method, rest) in [
        ("process/output", json!({})),
        ("process/input", json!({"eof": true})),
        ("process/stop", json!({"mode": "kill"})),
        ("process/inspect", json!({})),
    ] {
        let mut replies = Vec::new();
        for id in [handle.as_str(), UNKNOWN] {
            let mut params = rest.clone();
            params["process_id"] = json!(id);
            let mut reply = stranger.call(method, params).await;
            reply["id"] = Value::Null;
            replies.push(reply.to_string().replace(id, "HANDLE"));
        }
        assert_eq!(replies[0], replies[1], "{method}");
        assert!(replies[0].contains("not_found"), "{}", replies[0]);
    }
}

#[tokio::test]
async fn a_foreground_start_answers_with_the_end_and_a_plain_one_has_no_stdin() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let params = json!({"command": "true", "cwd": "/", "env": {"A": "1", "B": null},
        "label": "l", "timeout_ms": 5000, "memory_bytes": 4096, "spool_bytes": 65536});
    wire.ask("process/start", params).await;
    let mut played = world.played().await;
    assert_eq!(played.request.program, Program::Line("true".into()));
    assert_eq!(played.request.stdin, StdinMode::Null);
    let env = [("A".into(), Some("1".into())), ("B".into(), None)];
    assert_eq!(played.request.env, env);
    played.spawned().await;
    played.write(b"hello\n");
    played.end(LeaderEnd::Code(7)).await;
    let result = wire.reply().await["result"].clone();
    assert_eq!(result["state"], "exited");
    assert_eq!((&result["exit_code"], &result["output"]), (&json!(7), &json!("hello\n")));
    assert_eq!((&result["woke_by"], &result["eof"]), (&json!("exit"), &json!(true)));
    assert!(result["origin"].is_string());
}

#[tokio::test]
async fn a_yielding_start_hands_over_what_still_runs_and_a_background_one_does_not_wait() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    wire.ask("process/start", json!({"argv": ["x"], "yield_time_ms": 1})).await;
    let played = world.played().await;
    assert_eq!(played.request.stdin, StdinMode::Pipe);
    assert!(!played.request.background);
    played.spawned().await;
    let result = wire.reply().await["result"].clone();
    assert_eq!((&result["state"], &result["woke_by"]), (&json!("running"), &json!("timeout")));
    let params = json!({"argv": ["x"], "background": true, "yield_time_ms": 60_000});
    wire.ask("process/start", params).await;
    let background = world.played().await;
    assert!(background.request.background);
    background.spawned().await;
    assert_eq!(wire.reply().await["result"]["woke_by"], "poll");
    drop(played);
}

#[tokio::test]
async fn a_failed_spawn_names_cause_errno_and_record() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    wire.ask("process/start", json!({"argv": ["nosuch"]})).await;
    let played = world.played().await;
    let failure = SpawnFailure { cause: SpawnCause::NoSuchProgram, errno: 2 };
    played.report(Report::SpawnFailed(failure)).await;
    let error = wire.reply().await["error"].clone();
    assert_eq!(error["code"], "spawn_failed");
    assert_eq!(error["details"]["cause"], "no_such_program");
    assert_eq!(error["details"]["errno"], "ENOENT");
    let listed = wire.result("process/list", json!({})).await;
    assert_eq!(listed["records"][0]["process_id"], error["details"]["process_id"]);
    assert_eq!(listed["records"][0]["state"], "failed");
}

#[tokio::test]
async fn cancelling_an_unanswered_start_stops_its_process() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let id = wire.ask("process/start", json!({"argv": ["x"]})).await;
    let played = world.played().await;
    played.spawned().await;
    // A status goes through meanwhile: the start is past its spawn when the cancel comes.
    while wire.result("process/list", json!({"state": "running"})).await["records"] == json!([]) {}
    wire.send(&json!({"method": "$/cancel", "params": {"for": id}})).await;
    let reply = wire.reply().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(id), &json!("cancelled")));
    assert!(reply["error"]["details"]["process_id"].is_string());
    assert!(matches!(played.order().await, Order::Signal(TreeSignal::Terminate, _)));
}

#[tokio::test]
async fn a_disconnect_leaves_the_process_alone() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    wire.ask("process/start", json!({"argv": ["x"]})).await;
    let played = world.played().await;
    drop(wire);
    played.spawned().await;
    let mut operator = world.operator().await;
    while operator.result("process/list", json!({"state": "running"})).await["records"] == json!([])
    {
    }
    assert_eq!(played.orders.try_next(), None);
}

#[tokio::test]
async fn input_is_taken_whole_or_refused_with_what_is_free() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    let taken = wire
        .result(
            "process/input",
            json!({"process_id": handle, "data_base64": "AAEC", "flush_ms": 1}),
        )
        .await;
    assert_eq!((&taken["accepted_bytes"], &taken["pending_bytes"]), (&json!(3), &json!(3)));
    assert_eq!((&taken["woke_by"], taken.get("flushed")), (&json!("poll"), None));
    let error =
        wire.error("process/input", json!({"process_id": handle, "data": "12345678"})).await;
    assert_eq!(error["code"], "input_backpressure");
    assert_eq!(error["details"]["free_bytes"], 7);
    assert_eq!(error["retryable"], true);
    played.write(b"seen");
    let params = json!({"process_id": handle, "data": "x", "cursor": 0, "yield_time_ms": 60_000,
        "encoding": "base64", "limit_bytes": 2});
    let answered = wire.result("process/input", params).await;
    assert_eq!((&answered["woke_by"], &answered["output"]), (&json!("output"), &json!("c2U=")));
    let ahead =
        wire.error("process/input", json!({"process_id": handle, "data": "x", "cursor": 99})).await;
    assert_eq!(ahead["code"], "cursor_ahead");
    assert_eq!(played.stdin.taken(), (b"\x00\x01\x02x".to_vec(), false));
    let last = wire
        .result("process/input", json!({"process_id": handle, "eof": true, "flush_ms": 60_000}))
        .await;
    assert_eq!(last["flushed"], true);
    let closed = wire.error("process/input", json!({"process_id": handle, "data": "x"})).await;
    assert_eq!(closed["code"], "stdin_closed");
    played.end(LeaderEnd::Code(0)).await;
    wire.result("process/output", json!({"process_id": handle, "wait": "exit"})).await;
    let ended = wire.error("process/input", json!({"process_id": handle, "eof": true})).await;
    assert_eq!(
        (&ended["code"], &ended["message"]),
        (&json!("stdin_closed"), &json!("the process has ended"))
    );
}

#[tokio::test]
async fn a_stop_answers_with_the_proven_end() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, played) = world.running(&mut wire).await;
    let stop = json!({"process_id": handle, "mode": "kill"});
    let id = wire.ask("process/stop", stop.clone()).await;
    let order = played.order().await;
    let Order::Kill(Some(request)) = order else { panic!("{order:?}") };
    played.report(Report::Reached { request, alive: true, errors: vec![] }).await;
    played.end(LeaderEnd::Signal { signal: 9, core_dumped: false }).await;
    let reply = wire.reply().await;
    assert_eq!(reply["id"], id);
    let result = &reply["result"];
    assert_eq!((&result["state"], &result["reason"]), (&json!("killed"), &json!("killed")));
    assert_eq!(result["leader"]["signal_name"], "SIGKILL");
    assert!(result.get("exit_code").is_none());
    assert_eq!(wire.result("process/stop", stop).await, *result);
}

#[tokio::test]
async fn lists_are_paged_filtered_and_free_of_pids() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let mut handles = Vec::new();
    let mut kept = Vec::new();
    for label in ["a", "b", "b"] {
        let params = json!({"argv": ["x"], "background": true, "label": label});
        let (handle, played) = world.running_with(&mut wire, params).await;
        handles.insert(0, handle);
        kept.push(played);
    }
    let page = wire.result("process/list", json!({"limit": 2})).await;
    assert_eq!(page["records"][0]["process_id"], handles[0].as_str());
    assert_eq!(page["totals"], json!({"running": 3}));
    assert_eq!(page["free"]["loop"], 5);
    let rest = wire.result("process/list", json!({"limit": 2, "after": page["next"]})).await;
    assert_eq!(rest["records"][0]["process_id"], handles[2].as_str());
    assert!(rest.get("next").is_none());
    let labelled = wire.result("process/list", json!({"label": "b"})).await;
    assert_eq!(labelled["records"].as_array().unwrap().len(), 2);
    assert_eq!(numbers(&page, 4711), 0, "{page}");
    let field = |error: Value| error["details"]["field"].clone();
    assert_eq!(field(wire.error("process/list", json!({"after": "x"})).await), "after");
    let session = json!({"session_id": page["records"][0]["session_id"]});
    assert_eq!(field(wire.error("process/list", session.clone()).await), "session_id");
    let mut operator = world.operator().await;
    let all = operator.result("process/list", session).await;
    assert_eq!(all["records"].as_array().unwrap().len(), 3);
    assert!(all.get("free").is_none());
    assert_eq!(field(operator.error("process/list", json!({"scope": "loop"})).await), "scope");
}

#[tokio::test]
async fn an_inspection_shows_pids_to_operators_only() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, _played) = world.running(&mut wire).await;
    let seen = wire.result("process/inspect", json!({"process_id": handle})).await;
    assert_eq!((&seen["live_descendants"], &seen["usage"]["cpu_ms"]), (&json!(1), &json!(5)));
    assert_eq!(numbers(&seen, 4711), 0, "{seen}");
    let mut operator = world.operator().await;
    let seen = operator.result("process/inspect", json!({"process_id": handle})).await;
    assert_eq!(seen["pids"], json!([4711, 4712]));
    assert_eq!(numbers(&seen, 4711), 1, "{seen}");
}

/// How often `wanted` is a number in `value`. A search in its text would at times find the digits
/// in an id or in a time.
fn numbers(value: &Value, wanted: u64) -> usize {
    match value {
        Value::Number(number) => usize::from(number.as_u64() == Some(wanted)),
        Value::Array(values) => values.iter().map(|value| numbers(value, wanted)).sum(),
        Value::Object(fields) => fields.values().map(|value| numbers(value, wanted)).sum(),
        Value::Null | Value::Bool(_) | Value::String(_) => 0,
    }
}

#[tokio::test]
async fn each_role_sees_its_part_of_the_status() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (_, _played) = world.running(&mut wire).await;
    let mut bare = Wire::greeted(world.daemon()).await;
    let status = bare.result("daemon/status", json!({})).await;
    assert_eq!(status["restore"]["done"], true);
    assert!(status.get("totals").is_none() && status.get("pid").is_none());
    let status = wire.result("daemon/status", json!({})).await;
    assert_eq!(status["totals"], json!({"running": 1}));
    assert_eq!(status["session"]["free"]["loop"], 7);
    assert!(status.get("pid").is_none() && status.get("sessions").is_none());
    let mut operator = world.operator().await;
    let status = operator.result("daemon/status", json!({})).await;
    assert_eq!((&status["sessions"], &status["connections"]), (&json!(1), &json!(3)));
    assert!(status["pid"].is_u64());
}

#[tokio::test]
async fn what_a_role_may_not_call_is_denied() {
    let world = World::new().await;
    let mut bare = Wire::greeted(world.daemon()).await;
    let mut owner = world.owner().await;
    let mut operator = world.operator().await;
    for (wire, methods) in [
        (&mut bare, &["process/list", "daemon/shutdown"][..]),
        (&mut owner, &["daemon/shutdown", "operator/attach", "daemon/metrics"]),
        (&mut operator, &["process/start", "process/input", "session/open", "session/close"]),
    ] {
        for method in methods {
            // The role is judged before the parameters are.
            let error = wire.error(method, json!({"nonsense": 1})).await;
            assert_eq!(error["code"], "permission_denied", "{method}");
        }
    }
}

#[tokio::test]
async fn a_shutdown_is_answered_before_it_begins() {
    let world = World::new().await;
    let mut operator = world.operator().await;
    assert_eq!(operator.result("daemon/shutdown", json!({"grace_ms": 5})).await, json!({}));
    assert_eq!(operator.result("daemon/shutdown", json!({})).await, json!({}));
}

#[tokio::test]
async fn one_request_more_than_256_in_flight_is_refused_alone() {
    let limits = Limits { waiters_session_max: 1000, ..Limits::default() };
    let mut world = World::with(limits).await;
    let mut wire = world.owner().await;
    let (handle, _played) = world.running(&mut wire).await;
    let wait = json!({"process_id": handle, "wait": "exit"});
    let first = wire.ask("process/output", wait.clone()).await;
    for _ in 1..256 {
        wire.ask("process/output", wait.clone()).await;
    }
    let error = wire.error("process/output", wait.clone()).await;
    assert_eq!((&error["code"], &error["retryable"]), (&json!("too_many_requests"), &json!(true)));
    wire.send(&json!({"method": "$/cancel", "params": {"for": first}})).await;
    assert_eq!(wire.reply().await["id"], first);
    wire.result("process/list", json!({})).await;
}

#[tokio::test]
async fn a_full_session_tells_limit_scope_maximum_and_use() {
    let limits = Limits { running_loop_max: 1, ..Limits::default() };
    let mut world = World::with(limits).await;
    let mut wire = world.owner().await;
    let (_, _played) = world.running(&mut wire).await;
    let error = wire.error("process/start", json!({"argv": ["x"]})).await;
    assert_eq!(error["code"], "process_quota_exceeded");
    let wanted = json!({"limit": "running_loop_max", "scope": "loop", "max": 1, "in_use": 1});
    assert_eq!(error["details"], wanted);
    assert_eq!(wire.result("process/list", json!({})).await["totals"], json!({"running": 1}));
}
