//! `keep_tree`: a process whose leader has ended and whose tree runs on.

use procd_tests::{Setup, Tier, leaks, owner::handle, wait};
use serde_json::{Value, json};

const LIMIT: std::time::Duration = procd_tests::wait::STEP;

/// A leader that leaves a child and goes, with a code.
const LEAVES: &str = "sleep 600 & echo left; exit 7";

fn kept(more: Value) -> Value {
    let mut params = json!({"on_leader_exit": "keep_tree"});
    procd_tests::owner::merge(&mut params, more);
    params
}

both_tiers! {
    /// A foreground start comes back at the leader's exit, with the handle, the leader's end and what it wrote.
    fn a_foreground_start_returns_when_its_leader_has_ended(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", LEAVES], kept(json!({})));
        assert_eq!((entry["woke_by"].clone(), entry["state"].clone()), (json!("leader_exited"), json!("running")), "{entry}");
        assert_eq!((entry["leader"].clone(), entry["output"].clone()), (json!({"code": 7}), json!("left\n")), "{entry}");
        let process = handle(&entry);
        let shown = owner.wire.ok("process/inspect", json!({"process_id": process}));
        assert_eq!((shown["live_descendants"].clone(), shown["record"]["leader"].clone()), (json!(1), json!({"code": 7})), "{shown}");
        let waited = owner.output(&process, json!({"wait": "exit", "timeout_ms": 100}));
        assert_eq!(waited["woke_by"], "timeout", "{waited}");
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!((result["state"].clone(), result["exit_code"].clone()), (json!("exited"), json!(7)), "{result}");
        let record = owner.record(&process);
        assert_eq!((record["ended_by"].clone(), record["leftovers"].clone()), (json!("stop"), json!(1)), "{record}");
    }

    /// It ends when the tree does, and its output is complete then.
    fn it_ends_when_its_tree_is_empty(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "(read line; echo last $line) <&3 & exit 3";
        let entry = owner.start(&["sh", "-c", &format!("exec 3<&0; {line}")], kept(json!({"stdin": "pipe", "yield_time_ms": 60_000})));
        assert_eq!(entry["woke_by"], "leader_exited", "{entry}");
        let process = handle(&entry);
        owner.wire.ok("process/input", json!({"process_id": process, "data": "words\n"}));
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(3)), "{ended}");
        assert_eq!(owner.text(&process), "last words\n");
        assert_eq!(owner.record(&process)["ended_by"], "tree_empty");
    }

    fn deadline_and_session_end_apply_to_the_tree_and_leave_the_name_alone(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let late = handle(&owner.start(&["sh", "-c", LEAVES], kept(json!({"timeout_ms": 3000}))));
        let ended = owner.ended(&late);
        assert_eq!((ended["state"].clone(), ended["exit_code"].clone()), (json!("exited"), json!(7)), "{ended}");
        assert_eq!(owner.record(&late)["ended_by"], "deadline");
        let closed = handle(&owner.start(&["sh", "-c", LEAVES], kept(json!({"background": true}))));
        wait::until_true("the leader's end", LIMIT, || owner.record(&closed)["leader"]["code"] == 7);
        owner.wire.ok("session/close", json!({"scope": "session"}));
        assert_eq!(owner.record(&closed)["ended_by"], "shutdown");
        assert_eq!(leaks::processes(&daemon.cwd()), Vec::<String>::new());
    }

    /// Without anything left there is nothing to keep.
    fn a_leader_that_leaves_nothing_just_ends(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", "exit 4"], kept(json!({})));
        assert_eq!((entry["woke_by"].clone(), entry["exit_code"].clone()), (json!("exit"), json!(4)), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["ended_by"], Value::Null);
    }
}
