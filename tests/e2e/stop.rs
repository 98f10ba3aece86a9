//! Stopping: what each mode does, what it says, and that nothing is left.

use procd_tests::{Owner, Setup, Tier, binaries, leaks, owner::handle, wait};
use serde_json::{Value, json};

fn stubborn(owner: &mut Owner) -> String {
    let process = owner.background(&[&binaries::probe(), "ignore-term", "600"]);
    let entry = owner.output(&process, json!({"wait": "any"}));
    assert_eq!(entry["output"], "ready\n", "{entry}");
    process
}

fn told(result: &Value) -> (String, String, bool, Value) {
    let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason"), result["escalated"] == true, result["leader"]["signal"].clone())
}

both_tiers! {
    fn terminate_asks_first(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!(told(&result), ("terminated".into(), "terminated".into(), false, json!(15)), "{result}");
        assert!(result["exit_code"].is_null(), "{result}");
    }

    fn terminate_kills_when_its_grace_is_over_and_not_before(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = stubborn(&mut owner);
        let before = wait::now();
        let result = owner.stop(&process, "terminate", 400);
        assert!(before.elapsed().as_millis() >= 400, "after {:?}", before.elapsed());
        assert_eq!(told(&result), ("killed".into(), "killed".into(), true, json!(9)), "{result}");
    }

    fn a_grace_of_zero_escalates_at_once(tier) {
        let daemon = Setup::new(tier).limit("grace_ms = 60000").start();
        let mut owner = daemon.owner();
        let process = stubborn(&mut owner);
        let result = owner.stop(&process, "terminate", 0);
        assert_eq!(told(&result), ("killed".into(), "killed".into(), true, json!(9)), "{result}");
    }

    /// A leader that goes politely does not save a child that ignores SIGTERM.
    fn escalation_watches_the_tree_not_the_leader(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = format!("{} ignore-term 600 & exec sleep 600", binaries::probe());
        let process = owner.background_shell(&line);
        owner.output(&process, json!({"wait": "any"}));
        let result = owner.stop(&process, "terminate", 3000);
        assert_eq!(told(&result), ("terminated".into(), "terminated".into(), true, json!(15)), "{result}");
        let left: Vec<_> = leaks::processes(&daemon.cwd()).into_iter().filter(|line| line.contains("ignore-term")).collect();
        assert_eq!(left, Vec::<String>::new());
    }

    /// C14: the polite signal reaches everyone, so clean-up code runs.
    fn exit_traps_run(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("trap 'echo cleaned; exit 0' TERM; (echo ready; exec sleep 600) & wait");
        owner.output(&process, json!({"wait": "any"}));
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("terminated"), Value::Null), "{result}");
        assert_eq!(result["leader"], json!({"code": 0}), "{result}");
        assert_eq!(owner.text(&process), "ready\ncleaned\n");
    }

    fn interrupt_never_escalates(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let polite = owner.background(&["sleep", "600"]);
        let result = owner.stop(&polite, "interrupt", 20_000);
        assert_eq!(told(&result), ("interrupted".into(), "interrupted".into(), false, json!(2)), "{result}");
        let process = stubborn(&mut owner);
        let result = owner.stop(&process, "interrupt", 200);
        assert_eq!(result["state"], "running", "{result}");
        let result = owner.stop(&process, "kill", 0);
        assert_eq!(told(&result), ("killed".into(), "killed".into(), false, json!(9)), "{result}");
    }

    fn a_terminal_process_keeps_its_result_in_every_mode(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = handle(&owner.start(&[&binaries::probe(), "exit", "3"], json!({})));
        for mode in ["interrupt", "terminate", "kill"] {
            let result = owner.stop(&process, mode, 0);
            assert_eq!((result["state"].clone(), result["exit_code"].clone()), (json!("exited"), json!(3)), "{result}");
        }
    }

    fn a_stronger_stop_takes_over_at_once(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = stubborn(&mut owner);
        let slow = owner.wire.send("process/stop", json!({"process_id": process, "mode": "terminate", "grace_ms": 600_000}));
        let fast = owner.stop(&process, "kill", 0);
        assert_eq!((fast["state"].clone(), fast["reason"].clone()), (json!("killed"), json!("killed")), "{fast}");
        let slow = owner.wire.reply(slow).unwrap();
        assert_eq!(slow["state"], "killed", "{slow}");
    }

    fn parallel_stops_share_one_end(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = stubborn(&mut owner);
        let params = json!({"process_id": process, "mode": "terminate", "grace_ms": 200});
        let ids: Vec<u64> = (0..20).map(|_| owner.wire.send("process/stop", params.clone())).collect();
        let results: Vec<Value> = ids.into_iter().map(|id| owner.wire.reply(id).unwrap()).collect();
        assert!(results.iter().all(|result| result == &results[0] && result["state"] == "killed"), "{results:?}");
    }

    /// C32: a stopped process hears of it too.
    fn a_stopped_process_is_continued_to_hear_the_signal(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("trap 'exit 0' TERM; echo ready; kill -STOP $$; sleep 600");
        owner.output(&process, json!({"wait": "any"}));
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("terminated"), Value::Null), "{result}");
    }

    fn a_tree_of_forty_ends_whole(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&[&binaries::probe(), "tree", "3", "3", "600"]);
        wait::until_true("the tree has grown", wait::STEP, || owner.text(&process).lines().count() == 40);
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!(result["state"], "terminated", "{result}");
        let left: Vec<_> = leaks::processes(&daemon.cwd()).into_iter().filter(|line| line.contains(" tree ")).collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

both_tiers_inside! {
    /// C16: processes born between signal and end do not survive it.
    fn a_fork_storm_that_ignores_the_signal_ends_whole(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let idle = leaks::everybody().len();
        let process = owner.background(&[&binaries::probe(), "forks"]);
        owner.output(&process, json!({"wait": "any"}));
        let result = owner.stop(&process, "terminate", 300);
        assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("killed"), json!(true)), "{result}");
        let left = leaks::everybody_but_shims();
        assert_eq!(left.len(), idle, "{left:?}");
    }

    /// C19: two hundred leaders that leave a sleeper in a session of its own.
    fn nothing_detached_is_left_after_many_starts(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let idle = leaks::everybody().len();
        for _ in 0..200 {
            let entry = owner.start(&["sh", "-c", "setsid sleep 600 & exit 0"], json!({}));
            assert_eq!((entry["state"].clone(), entry["exit_code"].clone()), (json!("exited"), json!(0)), "{entry}");
        }
        let left = leaks::everybody_but_shims();
        assert_eq!(left.len(), idle, "{left:?}");
    }

    /// C29, C31: a child that signals its parent ends nobody else's work.
    fn a_child_that_signals_its_parent_hurts_nobody_else(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let other = owner.background(&["sleep", "600"]);
        owner.start(&["sh", "-c", "kill $PPID; echo still"], json!({}));
        owner.start(&["sh", "-c", "kill -INT $PPID; kill -HUP $PPID; echo still"], json!({}));
        assert_eq!(owner.output(&other, json!({}))["state"], "running");
        let entry = owner.start(&["echo", "alive"], json!({}));
        assert_eq!(entry["output"], "alive\n", "{entry}");
        owner.stop(&other, "kill", 0);
    }
}

/// Symptom: a command that killed its shim and the guardian at once left its orphans to the daemon, which reaped them
/// and killed none: they lived on beside a record that said `failed`, and after the daemon's end.
#[test]
fn orphans_of_a_guardian_and_a_shim_that_died_together_are_ended() {
    if procd_tests::namespace::has_run_inside(
        module_path!(),
        "orphans_of_a_guardian_and_a_shim_that_died_together_are_ended",
    ) {
        return;
    }
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let idle = leaks::everybody().len();
    let line = "read -r _ _ _ guardian _ </proc/$PPID/stat; kill -STOP $guardian; \
                setsid sleep 600 & kill -9 $PPID; kill -9 $guardian; sleep 600";
    let process = owner.background(&["sh", "-c", line]);
    let page = owner.output(&process, json!({"wait": "exit"}));
    assert_eq!(page["state"], "failed", "{page}");
    wait::until_true("nothing is left", wait::STEP, || leaks::everybody().len() <= idle);
    let entry = owner.start(&["true"], json!({}));
    assert_eq!(entry["exit_code"], 0, "{entry}");
}
