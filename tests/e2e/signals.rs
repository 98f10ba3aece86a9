//! Named signals, stops of many, and the umask.

use procd_tests::{Owner, Setup, Tier, wait};
use serde_json::{Value, json};

const LIMIT: std::time::Duration = procd_tests::wait::STEP;

fn signal(owner: &mut Owner, process: &str, signal: Value, target: &str) -> Value {
    owner
        .wire
        .ok("process/signal", json!({"process_id": process, "signal": signal, "target": target}))
}

/// Whether the text of the process is the same some time later.
fn is_still(owner: &mut Owner, process: &str) -> bool {
    let before = owner.output(process, json!({"cursor": -1}))["total_bytes"].clone();
    let wait = json!({"cursor": before, "wait": "any", "timeout_ms": 300});
    owner.output(process, wait)["woke_by"] == "timeout"
}

both_tiers! {
    /// A signal by name is no request: the end is the leader's own.
    fn a_named_signal_is_delivered_and_explains_nothing(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        assert_eq!(signal(&mut owner, &process, json!("SIGUSR1"), "leader")["delivered"], 1);
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(138)), "{ended}");
        assert_eq!(ended["leader"]["signal_name"], "SIGUSR1", "{ended}");
        assert_eq!(signal(&mut owner, &process, json!(9), "tree")["delivered"], 0);
        let params = json!({"process_id": process, "signal": "USR1"});
        assert_eq!(owner.wire.call("process/signal", params).unwrap_err()["details"]["field"], "signal");
        let params = json!({"process_id": process, "signal": 65});
        assert_eq!(owner.wire.call("process/signal", params).unwrap_err()["details"]["field"], "signal");
    }

    fn a_signal_to_the_tree_meets_everybody_in_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "trap 'echo got' USR1; (trap 'echo got' USR1; echo ready; while :; do sleep 0.01; done) & \
            setsid sh -c \"trap 'echo got' USR1; echo ready; while :; do sleep 0.01; done\" & echo ready; while :; do sleep 0.01; done";
        let process = owner.background(&["sh", "-c", line]);
        wait::until_true("three to be ready", LIMIT, || owner.text(&process).matches("ready").count() == 3);
        // The sleeps between are members too, and have no trap.
        let delivered = signal(&mut owner, &process, json!("SIGUSR1"), "tree")["delivered"].as_u64();
        assert!(delivered >= Some(3), "{delivered:?}");
        wait::until_true("three to have got it", LIMIT, || owner.text(&process).matches("got").count() == 3);
        owner.stop(&process, "kill", 0);
    }

    fn a_stopped_tree_stands_still_and_goes_on(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "(while :; do echo child; sleep 0.01; done) & while :; do echo leader; sleep 0.01; done";
        let process = owner.background_shell(line);
        owner.output(&process, json!({"wait": "any"}));
        assert!(signal(&mut owner, &process, json!("SIGSTOP"), "tree")["delivered"].as_u64() >= Some(2));
        wait::until_true("the tree to stand still", LIMIT, || is_still(&mut owner, &process));
        signal(&mut owner, &process, json!("SIGCONT"), "tree");
        wait::until_true("the tree to go on", LIMIT, || !is_still(&mut owner, &process));
        signal(&mut owner, &process, json!("SIGSTOP"), "tree");
        // Terminate thaws first; a kill works as it is.
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("terminated"), Value::Null), "{result}");
        let process = owner.background_shell(line);
        owner.output(&process, json!({"wait": "any"}));
        signal(&mut owner, &process, json!("SIGSTOP"), "tree");
        assert_eq!(owner.stop(&process, "kill", 0)["state"], "killed");
    }

    fn foreground_is_for_terminals(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let params = json!({"process_id": process, "signal": 2, "target": "foreground"});
        assert_eq!(owner.wire.call("process/signal", params).unwrap_err()["code"], "pty_unavailable");
        owner.stop(&process, "kill", 0);
    }

    /// All of a loop or a session, in one grace period, and nobody else's.
    fn many_are_stopped_in_one_grace_period(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 30").start();
        let mut owner = daemon.owner();
        let mut other = owner.attach_as(daemon.connect(), json!("11111111-2222-4333-8444-555555555555"));
        let probe = procd_tests::binaries::probe();
        for _ in 0..20 {
            let process = owner.background(&[&probe, "ignore-term", "600"]);
            owner.output(&process, json!({"wait": "any"}));
        }
        let foreign = other.background(&["sleep", "600"]);
        let before = wait::now();
        let reply = owner.wire.ok("session/stop_all", json!({"grace_ms": 1000}));
        let took = before.elapsed().as_millis();
        println!("20 stubborn processes in one grace of 1000 ms: {took} ms");
        // One after the other they take twenty.
        assert!((1000..15_000).contains(&took), "{took}");
        let results = reply["results"].as_array().unwrap();
        assert_eq!(results.len(), 20, "{reply}");
        assert!(results.iter().all(|result| result["state"] == "killed"), "{reply}");
        assert_eq!(other.record(&foreign)["state"], "running");
        let reply = owner.wire.ok("session/stop_all", json!({"scope": "session", "mode": "kill"}));
        assert_eq!(reply["results"][0]["process_id"], foreign.as_str(), "{reply}");
        assert_eq!(other.record(&foreign)["state"], "killed");
        let mut operator = daemon.operator();
        assert_eq!(operator.call("session/stop_all", json!({})).unwrap_err()["details"]["field"], "session_id");
        let third = owner.background(&["sleep", "600"]);
        let reply = operator.ok("session/stop_all", json!({"session_id": owner.opened["session_id"]}));
        assert_eq!((reply["results"][0]["process_id"].clone(), reply["results"][0]["state"].clone()), (json!(third), json!("terminated")), "{reply}");
    }

    /// The same, each asked for by itself.
    fn twenty_stops_at_once_take_one_grace_period(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 30").start();
        let mut owner = daemon.owner();
        let probe = procd_tests::binaries::probe();
        let processes: Vec<String> = (0..20).map(|_| {
            let process = owner.background(&[&probe, "ignore-term", "600"]);
            owner.output(&process, json!({"wait": "any"}));
            process
        }).collect();
        let before = wait::now();
        let ids: Vec<u64> = processes.iter().map(|process| {
            let params = json!({"process_id": process, "mode": "terminate", "grace_ms": 2000});
            owner.wire.send("process/stop", params)
        }).collect();
        for id in ids {
            let result = owner.wire.reply(id).unwrap();
            assert_eq!((&result["state"], &result["escalated"]), (&json!("killed"), &json!(true)), "{result}");
        }
        let took = before.elapsed().as_millis();
        println!("20 stops of stubborn processes, each with a grace of 2000 ms: {took} ms");
        // One after the other they take forty seconds.
        assert!((2000..20_000).contains(&took), "{took}");
    }

    fn a_child_has_the_umask_that_was_asked_for(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let ask = |owner: &mut Owner, more: Value| owner.start(&["sh", "-c", "umask"], more)["output"].clone();
        assert_eq!(ask(&mut owner, json!({})), "0022\n");
        assert_eq!(ask(&mut owner, json!({"umask": 0o77})), "0077\n");
        assert_eq!(ask(&mut owner, json!({"umask": 0})), "0000\n");
    }
}
