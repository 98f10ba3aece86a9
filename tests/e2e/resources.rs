//! Limits on the resources of a process: each held by what can, or told as not held. What needs controllers of control groups runs
//! in the guest of `tests/vm` where this machine has none. Source: spec, containment, *Access and limits*.

use procd_tests::{Owner, Setup, Tier, binaries, owner::handle};
use serde_json::{Value, json};

fn applied(record: &Value, name: &str) -> String {
    record["limits"][name]["applied"].as_str().unwrap_or_default().to_owned()
}

both_tiers! {
    fn limits_of_each_process_are_held_by_the_kernel(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let limits = json!({"open_files_max": 64, "core_bytes_max": 0, "cpu_seconds_max": 100, "address_space_bytes_max": 1_u64 << 32});
        let line = "ulimit -Hn; ulimit -Sn; ulimit -Hc; ulimit -St; ulimit -Hv";
        let entry = owner.start(&["bash", "-c", line], json!({"limits": limits}));
        assert_eq!(entry["output"], "64\n64\n0\n100\n4194304\n", "{entry}");
        let record = owner.record(&handle(&entry));
        for name in ["open_files_max", "core_bytes_max", "cpu_seconds_max", "address_space_bytes_max"] {
            assert_eq!(applied(&record, name), "rlimit", "{record}");
            assert_eq!(record["limits"][name]["value"], limits[name].to_string(), "{record}");
        }
    }

    fn the_cpu_seconds_of_a_process_end_it_and_are_named(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&[&binaries::probe(), "burn"], json!({"limits": {"cpu_seconds_max": 1}}));
        assert_eq!((&entry["state"], &entry["exit_code"]), (&json!("exited"), &json!(128 + 24)), "{entry}");
        let record = owner.record(&handle(&entry));
        assert_eq!(record["limit_exceeded"], "cpu", "{record}");
        // One that will not hear of it is killed a second later.
        let line = "trap '' XCPU; while :; do :; done";
        let entry = owner.start(&["sh", "-c", line], json!({"limits": {"cpu_seconds_max": 1}}));
        assert_eq!(entry["exit_code"], 137, "{entry}");
        // A shim has reaped it before anybody can see what it used.
        if tier == Tier::Cgroup {
            assert_eq!(owner.record(&handle(&entry))["limit_exceeded"], "cpu");
        }
    }

    fn what_nothing_can_hold_is_told_or_refused_or_sampled(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let limits = json!({"memory_bytes_max": 1 << 30, "cpu_max": 1.5, "pids_max": 500});
        let entry = owner.start(&["true"], json!({"limits": limits}));
        let record = owner.record(&handle(&entry));
        assert_eq!(record["limits"]["cpu_max"]["value"], "1.5");
        for name in ["memory_bytes_max", "cpu_max", "pids_max"] {
            let how = applied(&record, name);
            if how == "cgroup" {
                println!("this machine holds {name} by control groups");
                continue;
            }
            assert_eq!(how, "unsupported", "{record}");
            let more = json!({"limits": {name: limits[name]}, "limits_required": true});
            let params = owner.start_params(&["true"], more);
            let error = owner.wire.refused("lifetime_enforcement_unavailable", "process/start", params.clone());
            assert_eq!(error["details"]["field"], format!("limits.{name}"), "{error}");
            assert_eq!(error["details"]["missing"], name, "{error}");
            // Sampling holds memory and processes, never cores.
            let mut params = params;
            params["limits_fallback"] = json!("watchdog");
            let sampled = owner.wire.call("process/start", params);
            assert_eq!(sampled.is_ok(), name != "cpu_max", "{name}: {sampled:?}");
        }
    }

    /// The sampled limits, each named, the tree ended by its signal.
    fn a_tree_above_a_sampled_limit_is_killed_and_the_limit_named(tier) {
        let daemon = Setup::new(tier).start();
        for (limit, record) in above_sampled_limits(&mut daemon.owner(), json!({})) {
            assert_eq!(record["limit_exceeded"], limit, "{record}");
            assert_eq!((&record["state"], &record["exit_code"]), (&json!("exited"), &json!(137)), "{record}");
        }
    }
}

/// The records of trees that went above a limit that is sampled here; of one that control groups hold, none.
pub(crate) fn above_sampled_limits(owner: &mut Owner, more: Value) -> Vec<(&'static str, Value)> {
    let probe = binaries::probe();
    let fill = format!("{}", 96 << 20);
    let cases: [(&str, Value, Vec<&str>); 3] = [
        ("memory", json!({"memory_bytes_max": 48 << 20}), vec![&probe, "fill", &fill]),
        ("pids", json!({"pids_max": 8}), vec![&probe, "children", "20"]),
        // Of the whole tree: each of its processes alone is below.
        (
            "cpu",
            json!({"cpu_seconds_max": 2}),
            vec!["sh", "-c", "\"$0\" burn & \"$0\" burn & \"$0\" burn & wait", &probe],
        ),
    ];
    let mut records = Vec::new();
    for (limit, limits, argv) in cases {
        let mut params = json!({"limits": limits, "limits_fallback": "watchdog"});
        procd_tests::owner::merge(&mut params, more.clone());
        let record = owner.start(&argv, params);
        let record = owner.record(&handle(&record));
        if record["limits"].as_object().unwrap().values().next().unwrap()["applied"] == "cgroup" {
            println!("{limit} is held by control groups here");
            continue;
        }
        records.push((limit, record));
    }
    records
}

#[test]
fn a_plan_tells_the_outcome_of_each_limit() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let limits = json!({"pids_max": 10, "core_bytes_max": 0});
    let params = owner.start_params(&["true"], json!({"limits": limits, "dry_run": true}));
    let plan = owner.wire.ok("process/start", params)["plan"].take();
    assert_eq!(applied(&plan, "pids_max"), "unsupported", "{plan}");
    assert_eq!(applied(&plan, "core_bytes_max"), "rlimit", "{plan}");
}
