use procd_protocol::ErrorCode;
use procd_protocol::v1::{InspectParams, ShutdownParams, StatusParams};
use serde_json::json;

use crate::scripted::{ID, greeted, greeted_by, within};
use crate::{ClientError, Connect};

fn status(uptime_ms: u64) -> serde_json::Value {
    let versions = json!({ "server": "0", "protocol": [1], "state_format": 1 });
    let restore = json!({ "done": true, "records": 0, "sessions": 0, "lost": 0, "damaged": 0, "duration_ms": 0 });
    json!({ "versions": versions, "uptime_ms": uptime_ms, "restore": restore })
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let (client, mut daemon) = greeted().await;
    let params = StatusParams::default();
    let answers = async {
        let (first, _) = daemon.expect("daemon/status").await;
        let (second, _) = daemon.expect("daemon/status").await;
        daemon.send(&json!({ "method": "novel/notice", "params": { "for": 1 } })).await;
        daemon.answer(second, status(2)).await;
        daemon.answer(json!(999), status(9)).await;
        daemon.answer(first, status(1)).await;
    };
    let (first, second, ()) = tokio::join!(client.call(&params), client.call(&params), answers);
    assert_eq!((first.unwrap().uptime_ms, second.unwrap().uptime_ms), (1, 2));
}

#[tokio::test]
async fn a_dropped_wait_is_cancelled_and_a_dropped_call_is_left_alone() {
    let (client, mut daemon) = greeted().await;
    let params = ShutdownParams::default();
    let left = async {
        tokio::select! {
            _ = client.call(&params) => panic!("nothing was answered"),
            _ = daemon.expect("daemon/shutdown") => {}
        }
        tokio::select! {
            _ = client.call_cancelling(&params) => panic!("nothing was answered"),
            (id, _) = daemon.expect("daemon/shutdown") => id,
        }
    };
    let cancelled = within(left).await;
    let (_, params) = daemon.expect("$/cancel").await;
    assert_eq!(params, json!({ "for": cancelled }));
    // The late answer disturbs nobody.
    daemon.refuse(cancelled, "cancelled").await;
    let params = StatusParams::default();
    let answer = async {
        let (id, _) = daemon.expect("daemon/status").await;
        daemon.answer(id, status(1)).await;
    };
    assert!(tokio::join!(client.call(&params), answer).0.is_ok());
}

#[tokio::test]
async fn every_call_learns_that_the_connection_is_gone() {
    let (client, mut daemon) = greeted().await;
    let params = StatusParams::default();
    let hang_up = async move {
        daemon.expect("daemon/status").await;
        daemon.expect("daemon/status").await;
        drop(daemon);
    };
    let (first, second, ()) = tokio::join!(client.call(&params), client.call(&params), hang_up);
    assert!(first.unwrap_err().is_disconnected() && second.unwrap_err().is_disconnected());
    assert!(client.is_closed());
    assert!(within(client.call(&params)).await.unwrap_err().is_disconnected());
}

#[tokio::test]
async fn the_last_words_of_a_daemon_that_hangs_up_are_kept() {
    let (client, mut daemon) = greeted().await;
    daemon.refuse(json!(null), "too_many_requests").await;
    drop(daemon);
    let error = within(client.call(&StatusParams::default())).await.unwrap_err();
    assert!(error.is(ErrorCode::TooManyRequests), "{error:?}");
}

#[tokio::test]
async fn a_refusal_keeps_its_code_also_when_it_is_new() {
    let (client, mut daemon) = greeted().await;
    let params = InspectParams { process_id: ID.parse().unwrap() };
    for (text, known) in [("not_found", Some(ErrorCode::NotFound)), ("brand_new", None)] {
        let refuse = async {
            let (id, _) = daemon.expect("process/inspect").await;
            daemon.refuse(id, text).await;
        };
        let error = tokio::join!(client.call(&params), refuse).0.unwrap_err();
        assert_eq!((error.code(), error.refusal().unwrap().code.as_str()), (known, text));
    }
}

#[tokio::test]
async fn nonsense_of_the_daemon_ends_the_connection_and_not_the_client() {
    let (client, mut daemon) = greeted().await;
    daemon.send(&json!([1, 2])).await;
    let error = within(client.call(&StatusParams::default())).await.unwrap_err();
    assert!(matches!(error, ClientError::Nonsense { .. }), "{error:?}");
}

#[tokio::test]
async fn the_end_of_a_connection_can_be_waited_for() {
    let (client, daemon) = greeted().await;
    let hang_up = async { drop(daemon) };
    within(async { tokio::join!(client.closed(), hang_up) }).await;
    within(client.closed()).await;
    assert!(client.is_closed());
}

#[tokio::test]
async fn what_a_daemon_said_before_it_hung_up_is_found_by_a_later_write() {
    let folder = crate::scripted::Folder::new();
    let socket = folder.0.join("s");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let refusing = async {
        let mut daemon = crate::scripted::Daemon::over(listener.accept().await.unwrap().0);
        daemon.refuse(json!(null), "permission_denied").await;
    };
    let connect = crate::Connect::new().socket(&socket);
    let (refused, ()) = within(async { tokio::join!(connect.connect(), refusing) }).await;
    let error = refused.unwrap_err();
    assert!(error.is(ErrorCode::PermissionDenied), "{error:?}");
}

/// A daemon that answers nothing else answers whether it is there: a wait goes on as long as it
/// does, and ends for all who wait when it does not. The clock is the test's.
#[tokio::test(start_paused = true)]
async fn a_daemon_that_hangs_is_told_from_a_long_wait() {
    let limit = std::time::Duration::from_secs(10);
    let (client, mut daemon) = greeted_by(Connect::new().silence_max(limit)).await;
    let params = InspectParams { process_id: ID.parse().unwrap() };
    let begun = tokio::time::Instant::now();
    let hanging = async {
        daemon.expect("process/inspect").await;
        daemon.expect("process/inspect").await;
        for uptime in 0..5 {
            let (id, _) = daemon.expect("daemon/status").await;
            daemon.answer(id, status(uptime)).await;
        }
        daemon.expect("daemon/status").await;
    };
    let (first, second, ()) = tokio::join!(client.call(&params), client.call(&params), hanging);
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(matches!(error, ClientError::Silent { .. }), "{error:?}");
        assert_eq!(error.to_string(), "the daemon hangs: it has answered nothing for 10s");
    }
    // Five answers after half the limit each, and then the limit itself.
    assert_eq!(begun.elapsed(), limit / 2 * 5 + limit);
    assert!(client.is_closed());
    assert!(matches!(client.call(&params).await, Err(ClientError::Silent { .. })));
}

/// One that takes nothing any more either, so that requests wait for room.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_room_learn_that_the_daemon_hangs() {
    let limit = std::time::Duration::from_secs(10);
    let (client, daemon) = greeted_by(Connect::new().silence_max(limit)).await;
    let client = std::sync::Arc::new(client);
    let mut calls = tokio::task::JoinSet::new();
    // More than the stream and the queue hold.
    for _ in 0..100 {
        let client = std::sync::Arc::clone(&client);
        let long = json!({ "padding": "x".repeat(64 * 1024) });
        calls.spawn(async move { client.call_raw("novel/call", &long).await });
    }
    while let Some(answer) = within(calls.join_next()).await {
        assert!(matches!(answer.unwrap(), Err(ClientError::Silent { .. })));
    }
    drop(daemon);
}
