//! Subscriptions, notifications, leases, keys and plans as a client sees them.

use serde_json::{Value, json};

use super::world::World;
use super::{Wire, hello};

/// A connection that named the feature.
async fn featured(world: &World) -> Wire {
    let mut wire = Wire::connect(world.daemon(), 64 * 1024);
    let mut params = hello();
    params["features"] = json!(["notifications"]);
    let result = wire.result("hello", params).await;
    assert_eq!(result["features"], json!(["notifications"]));
    wire
}

/// The next frames until a notice of that method.
async fn notice(wire: &mut Wire, method: &str) -> Value {
    loop {
        let frame = wire.reply().await;
        if frame["method"] == method {
            return frame["params"].clone();
        }
    }
}

#[tokio::test]
async fn subscriptions_are_bounded_and_the_call_that_ends_one_has_room() {
    let world = World::new().await;
    let mut wire = world.owner().await;
    let mut ids = Vec::new();
    // One less than may be in flight.
    for _ in 0..255 {
        ids.push(wire.ask("events/subscribe", json!({})).await);
        assert!(wire.reply().await.get("result").is_some());
    }
    let refused = wire.error("events/subscribe", json!({})).await;
    assert_eq!(refused["code"], "too_many_requests");
    wire.result("events/unsubscribe", json!({"for": ids[0]})).await;
    // The place is free when the subscription has seen its end.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while wire.call("events/subscribe", json!({})).await.get("error").is_some() {
        assert!(tokio::time::Instant::now() < deadline, "a place stays taken");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_subscription_sends_its_reply_first_and_keeps_its_id_until_it_ends() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    played.write(b"x");
    played.end(procd_core::LeaderEnd::Code(3)).await;
    let mut reader = featured(&world).await;
    let refused = reader.error("events/subscribe", json!({})).await;
    assert_eq!(refused["code"], "permission_denied");
    let wait = json!({"process_id": handle, "wait": "exit"});
    wire.result("process/output", wait).await;
    let id = wire.ask("events/subscribe", json!({"from_seq": 1})).await;
    let reply = wire.reply().await;
    assert_eq!((reply["id"].as_i64(), &reply["result"]["gap"]), (Some(id), &json!(false)));
    let first = notice(&mut wire, "events/record").await;
    assert_eq!((&first["for"], &first["event"]["kind"]), (&json!(id), &json!("backgrounded")));
    let last = notice(&mut wire, "events/record").await;
    assert_eq!(last["event"]["kind"], "completed");
    assert_eq!(
        (&last["event"]["exit_code"], &last["event"]["process_id"]),
        (&json!(3), &json!(handle))
    );
    for never in ["command", "output", "pid", "path"] {
        assert!(last["event"].get(never).is_none());
    }
    wire.send(&json!({"id": id, "method": "daemon/status"})).await;
    assert_eq!(wire.reply().await["error"]["details"]["field"], "id", "the id is taken");
    let ack = json!({"for": id, "up_to_seq": last["seq"]});
    assert_eq!(wire.result("events/ack", ack).await, json!({}));
    let stranger = json!({"for": id + 77, "up_to_seq": 1});
    assert_eq!(wire.error("events/ack", stranger).await["details"]["field"], "for");
    wire.result("events/unsubscribe", json!({"for": id})).await;
    let again = wire.error("events/unsubscribe", json!({"for": id})).await;
    assert_eq!(again["details"]["field"], "for");
}

#[tokio::test]
async fn notifications_need_the_feature_and_are_answered() {
    let mut world = World::new().await;
    let mut plain = world.owner().await;
    let refused = plain.error("events/subscribe", json!({"notifications": true})).await;
    assert_eq!(refused["code"], "process_notifications_unsupported");
    let mut wire = featured(&world).await;
    wire.result("session/open", json!({})).await;
    let id = wire.ask("events/subscribe", json!({"notifications": true, "kinds": []})).await;
    assert_eq!(wire.reply().await["id"], id);
    let (handle, played) = world.running(&mut wire).await;
    played.end(procd_core::LeaderEnd::Code(0)).await;
    let offered = notice(&mut wire, "notifications/offer").await["notification"].clone();
    assert_eq!((&offered["process_id"], &offered["state"]), (&json!(handle), &json!("exited")));
    assert_eq!(offered.as_object().unwrap().len(), 6, "nothing else: {offered}");
    let ack = json!({"command_id": offered["command_id"], "disposition": "accepted"});
    assert_eq!(plain.error("notifications/ack", ack.clone()).await["code"], "not_found");
    assert_eq!(wire.result("notifications/ack", ack).await, json!({}));
}

#[tokio::test]
async fn an_operator_follows_all_sessions_live_with_a_count_of_its_own() {
    let mut world = World::new().await;
    let mut operator = world.operator().await;
    let refused = operator.error("events/subscribe", json!({"from_seq": 1})).await;
    assert_eq!(refused["details"]["field"], "from_seq");
    let refused = operator.error("events/subscribe", json!({"notifications": true})).await;
    assert_eq!(refused["details"]["field"], "notifications");
    operator.ask("events/subscribe", json!({"kinds": ["completed"]})).await;
    operator.reply().await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let mut wire = world.owner().await;
        let (_, played) = world.running(&mut wire).await;
        played.end(procd_core::LeaderEnd::Code(0)).await;
        let record = notice(&mut operator, "events/record").await;
        sessions.push((record["seq"].clone(), record["event"]["session_id"].clone()));
    }
    assert_eq!((&sessions[0].0, &sessions[1].0), (&json!(1), &json!(2)));
    assert_ne!(sessions[0].1, sessions[1].1);
}

#[tokio::test]
async fn a_lease_is_acquired_released_and_busy_for_others() {
    let world = World::new().await;
    let (mut holder, mut other) = (world.owner().await, world.owner().await);
    let root = std::env::temp_dir();
    let root = root.to_str().unwrap();
    let wish = json!({"root": root, "kind": "snapshot"});
    let lease = holder.result("lease/acquire", wish.clone()).await["lease_id"].clone();
    other.result("lease/acquire", wish).await;
    let write = json!({"root": root, "kind": "structured_write"});
    let busy = other.error("lease/acquire", write.clone()).await;
    assert_eq!((&busy["code"], &busy["retryable"]), (&json!("workspace_busy"), &json!(true)));
    assert_eq!(busy["details"], json!({}));
    holder.result("lease/release", json!({"lease_id": lease})).await;
    let gone = holder.error("lease/release", json!({"lease_id": lease})).await;
    assert_eq!(gone["code"], "not_found");
    let mut bad = write;
    bad["root"] = json!("/no/such/folder");
    assert_eq!(holder.error("lease/acquire", bad).await["details"]["field"], "root");
}

#[tokio::test]
async fn a_key_is_compared_by_parameters_and_a_dry_run_starts_nothing() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let start = json!({"argv": ["x"], "background": true, "request_key": "k",
        "env": {"A": "1", "B": "2"}});
    let (handle, played) = world.running_with(&mut wire, start.clone()).await;
    let turned = json!({"request_key": "k", "env": {"B": "2", "A": "1"}, "background": true,
        "argv": ["x"]});
    assert_eq!(wire.result("process/start", turned).await["process_id"], json!(handle));
    let mut other = start;
    other["argv"] = json!(["y"]);
    assert_eq!(wire.error("process/start", other).await["code"], "idempotency_collision");
    let plan = wire.result("process/start", json!({"argv": ["x"], "dry_run": true})).await;
    assert_eq!(plan["plan"]["tier"], "cgroup");
    assert!(plan.get("process_id").is_none());
    let listed = wire.result("process/list", json!({})).await;
    assert_eq!(listed["records"].as_array().unwrap().len(), 1);
    played.end(procd_core::LeaderEnd::Code(0)).await;
}

#[tokio::test]
async fn an_ended_process_is_pinned_listed_by_pages_and_removed() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let mut handles = Vec::new();
    for _ in 0..3 {
        let (handle, played) = world.running(&mut wire).await;
        played.end(procd_core::LeaderEnd::Code(0)).await;
        wire.result("process/output", json!({"process_id": handle, "wait": "exit"})).await;
        handles.insert(0, handle);
    }
    let page = wire.result("process/list", json!({"limit": 1})).await;
    assert_eq!(page["records"][0]["process_id"], json!(handles[0]));
    let removed = wire.result("process/remove", json!({"process_id": handles[0]})).await;
    assert_eq!(removed, json!({"removed": true}));
    let next = json!({"limit": 2, "after": page["next"]});
    let rest = wire.result("process/list", next).await;
    assert_eq!(rest["records"][0]["process_id"], json!(handles[1]), "the page is not lost");
    assert_eq!(rest["records"].as_array().unwrap().len(), 2);
    let pin = json!({"process_id": handles[2], "pinned": true});
    assert_eq!(wire.result("process/pin", pin).await["pinned"], true);
    let gone = wire.error("process/pin", json!({"process_id": handles[0], "pinned": true})).await;
    assert_eq!(gone["code"], "not_found");
}
