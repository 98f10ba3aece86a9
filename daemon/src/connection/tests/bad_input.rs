//! Bad input, method by method: refused by the name of its field, and nothing has changed.

use serde_json::{Value, json};

use super::Wire;
use super::world::World;

const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Each is refused as `invalid_arguments` naming the field.
async fn refused(wire: &mut Wire, method: &str, cases: Vec<(Value, &str)>) {
    for (params, field) in cases {
        let error = wire.error(method, params.clone()).await;
        assert_eq!(error["code"], "invalid_arguments", "{method} {params}: {error}");
        assert_eq!(error["details"]["field"], field, "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn session_open_attach_and_close() {
    let world = World::new().await;
    let mut wire = Wire::greeted(world.daemon()).await;
    let nil = "00000000-0000-0000-0000-000000000000";
    refused(
        &mut wire,
        "session/open",
        vec![
            (json!({"nope": 1}), "nope"),
            (json!({"label": 1}), "label"),
            (json!({"label": "x".repeat(129)}), "label"),
            (json!({"session_id": nil}), "session_id"),
            (json!({"session_key": "short"}), "session_key"),
            (json!({"quotas": {"nope": 1}}), "quotas.nope"),
            (json!({"quotas": {"running_loop_max": -1}}), "quotas.running_loop_max"),
            (json!({"idle_close_ms": 999}), "idle_close_ms"),
            (json!({"label": null}), "label"),
        ],
    )
    .await;
    refused(
        &mut wire,
        "session/attach",
        vec![(json!({}), "session_id"), (json!({"session_id": ID}), "session_id")],
    )
    .await;
    refused(&mut wire, "operator/attach", vec![(json!({"reason": ""}), "reason")]).await;
    // The connection is still free.
    wire.result("session/open", json!({})).await;
    refused(
        &mut wire,
        "session/close",
        vec![
            (json!({}), "scope"),
            (json!({"scope": "loop"}), "scope"),
            (json!({"scope": "session", "grace_ms": -1}), "grace_ms"),
            (json!({"scope": "session", "grace_ms": 400_u64 * 24 * 3600 * 1000}), "grace_ms"),
        ],
    )
    .await;
    assert_eq!(world.supervisor.status(None).await.sessions, 1);
}

#[tokio::test]
async fn process_start() {
    let world = World::new().await;
    let mut wire = world.owner().await;
    let with = |field: &str, value: Value| {
        let mut params = json!({"argv": ["x"]});
        params[field] = value;
        params
    };
    let mut cases = vec![
        (json!({}), "argv"),
        (json!({"argv": []}), "argv"),
        (json!({"argv": [" "]}), "argv[0]"),
        (json!({"argv": ["x", "a\u{0}b"]}), "argv[1]"),
        (json!({"argv": ["x"], "command": "y"}), "command"),
        (json!({"command": " "}), "command"),
        (json!({"argv": "x"}), "argv"),
    ];
    for (field, value) in [
        ("nope", json!(1)),
        ("timeout_ms", json!(0)),
        ("timeout_ms", json!("1")),
        ("timeout_ms", json!(1.5)),
        ("memory_bytes", json!(0)),
        ("memory_bytes", json!(4095)),
        ("memory_bytes", json!(1024 * 1024 + 1)),
        ("spool_bytes", json!(65_535)),
        ("spool_bytes", json!(64 * 1024 * 1024 + 1)),
        ("limit_bytes", json!(0)),
        ("limit_bytes", json!(1024 * 1024 + 1)),
        ("label", json!("x".repeat(129))),
        ("origin", json!("x")),
        ("stdin", json!("tty")),
        ("yield_time_ms", json!(-1)),
        ("cwd", json!("")),
        ("cwd", json!("relative")),
    ] {
        cases.push((with(field, value), field));
    }
    refused(&mut wire, "process/start", cases).await;
    refused(
        &mut wire,
        "process/start",
        vec![
            (with("env", json!({"A=B": "1"})), "env.A=B"),
            (with("env", json!({"A": 1})), "env.A"),
            (with("env", json!({"A": "x".repeat(128 * 1024 + 1)})), "env.A"),
        ],
    )
    .await;
    assert_eq!(wire.result("process/list", json!({})).await["totals"], json!({}));
}

#[tokio::test]
async fn process_output() {
    let world = World::new().await;
    let mut wire = world.owner().await;
    let with = |field: &str, value: Value| {
        let mut params = json!({"process_id": ID});
        params[field] = value;
        params
    };
    refused(
        &mut wire,
        "process/output",
        vec![
            (json!({}), "process_id"),
            (json!({"process_id": "short"}), "process_id"),
            (json!({"process_id": "AAAAAAAAAAAAAAAAAAAAAB"}), "process_id"),
            (json!({"process_ids": []}), "process_ids"),
            (json!({"process_ids": [ID, ID]}), "process_ids[1]"),
            (json!({"process_ids": [ID, "x"]}), "process_ids[1]"),
            (json!({"process_id": ID, "process_ids": [ID]}), "process_ids"),
            (json!({"process_ids": [ID], "cursor": [1, 2]}), "cursor"),
            (with("cursor", json!("0")), "cursor"),
            (with("cursor", json!(1_u64 << 53)), "cursor"),
            (with("tail_lines", json!(0)), "tail_lines"),
            (with("limit_bytes", json!(0)), "limit_bytes"),
            (with("limit_bytes", json!(1024 * 1024 + 1)), "limit_bytes"),
            (with("encoding", json!("utf8")), "encoding"),
            (with("stream", json!("both")), "stream"),
            (with("wait", json!("forever")), "wait"),
            (with("timeout_ms", json!(-1)), "timeout_ms"),
            (with("nope", json!(1)), "nope"),
        ],
    )
    .await;
}

#[tokio::test]
async fn process_input_stop_inspect_and_list() {
    let world = World::new().await;
    let mut wire = world.owner().await;
    refused(
        &mut wire,
        "process/input",
        vec![
            (json!({"process_id": ID}), "data"),
            (json!({"process_id": ID, "data": "x", "data_base64": "eA=="}), "data_base64"),
            (json!({"process_id": ID, "data_base64": "%"}), "data_base64"),
            (json!({"process_id": ID, "data": "x".repeat(1024 * 1024 + 1)}), "data"),
            (json!({"process_id": ID, "eof": "yes"}), "eof"),
            (json!({"eof": true}), "process_id"),
        ],
    )
    .await;
    refused(
        &mut wire,
        "process/stop",
        vec![
            (json!({"process_id": ID}), "mode"),
            (json!({"process_id": ID, "mode": "hard"}), "mode"),
            (json!({"process_id": ID, "mode": "kill", "grace_ms": -5}), "grace_ms"),
        ],
    )
    .await;
    refused(
        &mut wire,
        "process/inspect",
        vec![(json!({}), "process_id"), (json!({"process_id": ID, "nope": 1}), "nope")],
    )
    .await;
    refused(
        &mut wire,
        "process/list",
        vec![
            (json!({"limit": 0}), "limit"),
            (json!({"limit": 1001}), "limit"),
            (json!({"state": "gone"}), "state"),
            (json!({"scope": "all"}), "scope"),
        ],
    )
    .await;
    let mut operator = world.operator().await;
    refused(&mut operator, "daemon/status", vec![(json!({"nope": 1}), "nope")]).await;
    refused(&mut operator, "daemon/shutdown", vec![(json!({"grace_ms": "1"}), "grace_ms")]).await;
}
