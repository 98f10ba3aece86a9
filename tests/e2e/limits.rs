//! Quotas: refused in one try, told with numbers, given back exactly once.

use procd_tests::{Owner, Setup, Tier, owner::handle, wait};
use serde_json::{Value, json};

fn refused(owner: &mut Owner, code: &str, more: Value) -> Value {
    let mut params = owner.start_params(&["sleep", "600"], json!({"background": true}));
    procd_tests::owner::merge(&mut params, more);
    let error = owner.wire.refused(code, "process/start", params);
    assert_eq!(error["retryable"], true, "{error}");
    error["details"].clone()
}

both_tiers! {
    fn running_slots_are_counted_per_loop_session_and_daemon(tier) {
        let setup = Setup::new(tier).limit("running_loop_max = 2").limit("running_session_max = 3").limit("running_daemon_max = 4");
        let daemon = setup.start();
        let mut first = daemon.owner();
        let mut held: Vec<String> = (0..2).map(|_| first.background(&["sleep", "600"])).collect();
        let details = refused(&mut first, "process_quota_exceeded", json!({}));
        assert_eq!((details["scope"].clone(), details["max"].clone(), details["in_use"].clone()), (json!("loop"), json!(2), json!(2)), "{details}");
        assert_eq!(details["limit"], "running_loop_max", "{details}");
        let mut second = first.attach_as(daemon.connect(), json!("11111111-2222-4333-8444-555555555555"));
        let theirs = second.background(&["sleep", "600"]);
        assert_eq!(refused(&mut second, "process_quota_exceeded", json!({}))["scope"], "session");
        let mut other = daemon.owner();
        let last = other.background(&["sleep", "600"]);
        assert_eq!(refused(&mut other, "process_quota_exceeded", json!({}))["scope"], "daemon");
        first.stop(&held.remove(0), "kill", 0);
        held.push(first.background(&["sleep", "600"]));
        for process in &held {
            first.stop(process, "kill", 0);
        }
        second.stop(&theirs, "kill", 0);
        other.stop(&last, "kill", 0);
    }

    fn ceilings_are_reserved_in_full_and_given_back(tier) {
        let daemon = Setup::new(tier).limit("spool_session_bytes = 1048576").limit("spool_process_bytes = 1048576").start();
        let mut owner = daemon.owner();
        let free = |owner: &mut Owner| owner.wire.ok("process/list", json!({}))["free"].clone();
        let before = free(&mut owner);
        assert_eq!(before["spool_bytes"], 1_048_576, "{before}");
        let process = handle(&owner.start(&["sleep", "600"], json!({"background": true, "spool_bytes": 700_000})));
        let details = refused(&mut owner, "output_quota_exceeded", json!({"spool_bytes": 700_000}));
        assert_eq!((details["scope"].clone(), details["max"].clone(), details["in_use"].clone()), (json!("session"), json!(1_048_576), json!(700_000)), "{details}");
        assert_eq!(free(&mut owner)["spool_bytes"], 348_576);
        owner.stop(&process, "kill", 0);
        assert_eq!(free(&mut owner), before);
    }

    fn every_way_a_start_fails_gives_back_what_it_held(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 1").start();
        let mut owner = daemon.owner();
        for _ in 0..20 {
            let params = owner.start_params(&["no-such-program-on-any-path"], json!({}));
            owner.wire.refused("spawn_failed", "process/start", params);
            owner.start(&["true"], json!({}));
        }
        let free = owner.wire.ok("process/list", json!({}))["free"].clone();
        assert_eq!(free["loop"], 1, "{free}");
    }

    fn a_session_may_lower_its_quotas_only(tier) {
        let daemon = Setup::new(tier).start();
        let mut lower = daemon.owner_with(json!({"quotas": {"running_loop_max": 1}}));
        let process = lower.background(&["sleep", "600"]);
        assert_eq!(refused(&mut lower, "process_quota_exceeded", json!({}))["max"], 1);
        lower.stop(&process, "kill", 0);
        let error = daemon.connect().refused("invalid_arguments", "session/open", json!({"quotas": {"running_session_max": 33}}));
        assert_eq!(error["details"]["field"], "quotas.running_session_max", "{error}");
    }

    fn bytes_of_a_process_may_be_lowered_and_never_raised(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for (field, value) in [("memory_bytes", (1 << 20) + 1), ("spool_bytes", (64 << 20) + 1)] {
            let params = owner.start_params(&["true"], json!({field: value}));
            let error = owner.wire.refused("invalid_arguments", "process/start", params);
            assert_eq!(error["details"]["field"], field, "{error}");
        }
        owner.start(&["true"], json!({"memory_bytes": 1 << 20, "spool_bytes": 64 << 20}));
    }

    /// A daemon under eight sessions at once stays exact.
    fn parallel_starts_never_pass_a_limit(tier) {
        let daemon = Setup::new(tier).limit("running_daemon_max = 5").limit("running_session_max = 5").limit("running_loop_max = 5").start();
        let mut owners: Vec<Owner> = (0..4).map(|_| daemon.owner()).collect();
        let ids: Vec<Vec<u64>> = owners.iter_mut().map(|owner| {
            let params = owner.start_params(&["sleep", "600"], json!({"background": true}));
            (0..4).map(|_| owner.wire.send("process/start", params.clone())).collect()
        }).collect();
        let mut started = Vec::new();
        for (owner, ids) in owners.iter_mut().zip(ids) {
            let replies: Vec<_> = ids.into_iter().map(|id| owner.wire.reply(id)).collect();
            started.push(replies.into_iter().filter_map(Result::ok).map(|entry| handle(&entry)).collect::<Vec<_>>());
        }
        assert_eq!(started.iter().map(Vec::len).sum::<usize>(), 5, "{started:?}");
        for (owner, processes) in owners.iter_mut().zip(started) {
            for process in processes {
                owner.stop(&process, "kill", 0);
            }
        }
        wait::until_true("all slots are back", wait::STEP, || owners[0].wire.ok("process/list", json!({}))["free"]["daemon"] == 5);
    }
}
