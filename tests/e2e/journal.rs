//! The journal, notifications, keys, leases and workspaces, against the built daemon.

use std::collections::BTreeSet;
use std::{fs, os::unix::fs::symlink};

use procd_tests::{Owner, Setup, Tier, Wire, owner::handle, owner::number, wait};
use serde_json::{Value, json};

/// Reads records until one has this number of ends; acknowledges each. The numbers seen.
fn ends(wire: &mut Wire, subscription: u64, wanted: usize) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        let notice = wire.next_notice().expect("a record");
        let params = &notice["params"];
        let seq = number(params, "seq");
        if params["event"]["kind"] == "completed" {
            seen.push((seq, handle(&params["event"])));
        }
        wire.ok("events/ack", json!({"for": subscription, "up_to_seq": seq}));
    }
    seen
}

fn subscribe(wire: &mut Wire, params: Value) -> (u64, Value) {
    let id = wire.send("events/subscribe", params);
    let result = wire.reply(id).expect("a subscription");
    (id, result)
}

both_tiers_inside! {
    /// C152, C151: a burst of ends with a subscriber that sleeps, then one that goes on from the
    /// last number after a restart.
    fn a_burst_of_ends_is_told_once_each_also_to_a_slow_reader(tier) {
        let limits = ["running_loop_max = 32", "running_session_max = 32", "retained_session_max = 1000"];
        let setup = limits.into_iter().fold(Setup::new(tier), Setup::limit);
        let mut daemon = setup.start();
        let mut owner = daemon.owner();
        let mut reader = owner.attach(daemon.connect());
        let (id, _) = subscribe(&mut reader.wire, json!({"from_seq": 1}));
        let started: BTreeSet<String> = (0..100)
            .map(|_| {
                let more = json!({"background": true, "queue_timeout_ms": 60_000});
                handle(&owner.start(&["true"], more))
            })
            .collect();
        let seen = ends(&mut reader.wire, id, 50);
        let last = seen.iter().map(|(seq, _)| *seq).max().unwrap();
        drop(reader);
        for process in &started {
            owner.ended(process);
        }
        daemon.kill();
        daemon.restart();
        let mut again = owner.attach(daemon.connect());
        let (id, result) = subscribe(&mut again.wire, json!({"from_seq": last + 1}));
        assert_eq!(result["gap"], false);
        let rest = ends(&mut again.wire, id, 50);
        let told: BTreeSet<String> = seen.iter().chain(&rest).map(|(_, one)| one.clone()).collect();
        assert_eq!(told, started, "each once, none twice");
    }

    /// Law 6 for notifications: offered until acknowledged, over SIGKILL, never after.
    fn a_notification_is_offered_until_acknowledged_over_a_killed_daemon(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let (first, second) = (owner.background(&["true"]), owner.background(&["false"]));
        owner.ended(&first);
        owner.ended(&second);
        let (_, _) = subscribe(&mut owner.wire, json!({"notifications": true}));
        let offer = |wire: &mut Wire| {
            let notice = wire.next_notice().expect("an offer");
            assert_eq!(notice["method"], "notifications/offer");
            notice["params"]["notification"].clone()
        };
        let mut offered = [offer(&mut owner.wire), offer(&mut owner.wire)];
        offered.sort_by_key(|one| one["process_id"] != json!(first));
        let accept = json!({"command_id": offered[0]["command_id"], "disposition": "accepted"});
        owner.wire.ok("notifications/ack", accept);
        daemon.kill();
        daemon.restart();
        let mut again = owner.attach(daemon.connect());
        subscribe(&mut again.wire, json!({"notifications": true}));
        let after = offer(&mut again.wire);
        assert_eq!(after, offered[1], "the same id, and only the one that was not acknowledged");
        let duplicate = json!({"command_id": after["command_id"], "disposition": "duplicate"});
        again.wire.ok("notifications/ack", duplicate);
    }

    /// A start whose reply was lost is sent again: it ran once.
    fn a_start_sent_again_under_its_key_runs_once_over_a_killed_daemon(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "echo ran >> ran; exec sleep 600";
        let params = owner.start_params(
            &["sh", "-c", line],
            json!({"background": true, "request_key": "once"}),
        );
        let first = handle(&owner.wire.ok("process/start", params.clone()));
        let ran = daemon.cwd().join("ran");
        wait::until_true("it runs", wait::STEP, || ran.exists());
        assert_eq!(handle(&owner.wire.ok("process/start", params.clone())), first);
        daemon.kill();
        daemon.restart();
        let mut again = owner.attach(daemon.connect());
        let entry = again.wire.ok("process/start", params);
        assert_eq!((handle(&entry), &entry["state"]), (first, &json!("lost_on_restore")));
        assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n");
    }

    /// The connection is gone before the reply, then the daemon: the same request is the same process, another body is
    /// refused, and it ran once.
    fn a_start_whose_connection_was_dropped_before_its_reply_runs_once(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "echo ran >> ran; exec sleep 600";
        let key = json!({"background": true, "request_key": "dropped"});
        let params = owner.start_params(&["sh", "-c", line], key);
        let mut gone = owner.attach(daemon.connect());
        gone.wire.send("process/start", params.clone());
        drop(gone);
        let ran = daemon.cwd().join("ran");
        let first = handle(&owner.wire.ok("process/start", params.clone()));
        wait::until_true("it runs", wait::STEP, || ran.exists());
        let mut other = params.clone();
        other["label"] = json!("another");
        let error = owner.wire.refused("idempotency_collision", "process/start", other.clone());
        assert_eq!(error["details"]["field"], "request_key", "{error}");
        daemon.kill();
        daemon.restart();
        let mut again = owner.attach(daemon.connect());
        let entry = again.wire.ok("process/start", params.clone());
        assert_eq!((handle(&entry), &entry["state"]), (first.clone(), &json!("lost_on_restore")));
        again.wire.refused("idempotency_collision", "process/start", other);
        assert_eq!(again.list().len(), 1);
        assert_eq!(fs::read_to_string(&ran).unwrap(), "ran\n");
        // Once its record is removed the key still tells what it was.
        again.wire.ok("process/remove", json!({"process_id": first}));
        let error = again.wire.refused("not_found", "process/start", params);
        assert_eq!(error["details"]["process_id"], json!(first));
    }

    /// A folder reached by a link counts where it really is.
    fn a_session_with_workspaces_runs_commands_only_inside_them(tier) {
        let daemon = Setup::new(tier).start();
        let workspace = daemon.cwd().join("workspace");
        fs::create_dir_all(workspace.join("src")).unwrap();
        symlink("/", workspace.join("out")).unwrap();
        let mut owner = daemon.owner_with(json!({"workspaces": [workspace]}));
        let pwd = |owner: &mut Owner, cwd: Value| {
            let params = owner.start_params(&["pwd"], json!({"cwd": cwd}));
            owner.wire.call("process/start", params)
        };
        let entry = pwd(&mut owner, json!("src")).unwrap();
        assert!(entry["output"].as_str().unwrap().ends_with("workspace/src\n"), "{entry}");
        for outside in [json!("/"), json!("out"), json!("src/../out/tmp"), json!("..")] {
            let error = pwd(&mut owner, outside).unwrap_err();
            assert_eq!(error["details"]["field"], "cwd", "{error}");
        }
        assert_eq!(owner.list()[0]["access"]["effective"], "unclaimed");
        // A client's snapshot waits for nobody that ran there before, and bars the next one.
        let root = json!({"root": workspace, "kind": "snapshot"});
        let mut holder = owner.attach(daemon.connect());
        holder.wire.ok("lease/acquire", root);
        let busy = pwd(&mut owner, json!("src")).unwrap_err();
        assert_eq!((&busy["code"], &busy["details"]), (&json!("workspace_busy"), &json!({})));
        drop(holder);
        wait::until_true("the lease ends with its connection", wait::STEP, || {
            pwd(&mut owner, json!("src")).is_ok()
        });
    }

    /// A queued start is dropped with its connection, a running one is not.
    fn a_queued_start_goes_with_its_connection(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 1").limit("queued_session_max = 1").start();
        let mut owner = daemon.owner();
        let running = owner.background(&["sleep", "600"]);
        let mut waiting = owner.attach(daemon.connect());
        let params = waiting.start_params(&["true"], json!({"queue_timeout_ms": 600_000}));
        waiting.wire.send("process/start", params);
        drop(waiting);
        // The daemon has come to the end of that connection, and the queue has room again.
        let mut operator = daemon.operator();
        wait::until_true("it is gone", wait::STEP, || {
            operator.ok("daemon/status", json!({}))["connections"] == 2
        });
        wait::until_true("it is not queued", wait::STEP, || {
            let params = owner.start_params(&["true"], json!({"queue_timeout_ms": 1}));
            let error = owner.wire.call("process/start", params).unwrap_err();
            error["details"]["limit"] == "running_loop_max"
        });
        owner.stop(&running, "kill", 0);
        wait::until_true("the slot is free", wait::STEP, || {
            let params = owner.start_params(&["true"], json!({}));
            owner.wire.call("process/start", params).is_ok()
        });
        let ran = owner.list().len();
        assert_eq!(ran, 2, "the queued one never ran");
    }
}
