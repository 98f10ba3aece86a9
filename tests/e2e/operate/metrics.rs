//! The metrics: each series is moved by something, and a parser of others reads them all.

use std::collections::BTreeMap;

use procd_tests::{Daemon, Setup, Tier, binaries, run, run::ctl, skip::skip, wait};
use serde_json::json;

use super::started;

/// The value of each series.
fn series(daemon: &Daemon) -> BTreeMap<String, f64> {
    let text = ctl(daemon, &["metrics"]).success();
    let is_sample = |line: &&str| !line.starts_with('#');
    let pair = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    text.lines().filter(is_sample).map(pair).collect()
}

/// Waits until a series is as wanted.
fn until(daemon: &Daemon, name: &str, is_wanted: impl Fn(f64) -> bool) {
    wait::until_true(&format!("{name} is as wanted"), wait::STEP, || {
        is_wanted(*series(daemon).get(name).expect("the series"))
    });
}

#[test]
fn each_series_is_moved_by_what_it_counts() {
    let setup = Setup::new(Tier::Shim).limit("spool_process_bytes = 65536");
    let mut daemon = setup.limit("running_loop_max = 1").start();
    let before = series(&daemon);
    for name in ["procd_starts_total", "procd_output_bytes_total", "procd_waiters"] {
        assert_eq!(before[name], 0.0, "{name}");
    }
    let mut owner = daemon.owner();
    let loud = owner.background_shell("head -c 300000 /dev/zero; exec sleep 600");
    until(&daemon, "procd_processes{state=\"running\"}", |count| count == 1.0);
    until(&daemon, "procd_starts_total", |count| count == 1.0);
    until(&daemon, "procd_start_seconds_count", |count| count == 1.0);
    until(&daemon, "procd_start_seconds_bucket{le=\"+Inf\"}", |count| count == 1.0);
    until(&daemon, "procd_start_seconds_sum", |seconds| seconds > 0.0);
    until(&daemon, "procd_output_bytes_total", |bytes| bytes == 300_000.0);
    until(&daemon, "procd_output_dropped_bytes_total", |bytes| bytes == 300_000.0 - 65_536.0);
    until(&daemon, "procd_spool_bytes", |bytes| bytes == 65_536.0);
    until(&daemon, "procd_state_folder_bytes", |bytes| bytes >= 65_536.0);
    until(&daemon, "procd_sessions", |count| count == 1.0);
    until(&daemon, "procd_clients", |count| count >= 2.0);
    until(&daemon, "procd_sync_seconds_count", |count| count > 0.0);
    until(&daemon, "procd_sync_seconds_sum", |seconds| seconds > 0.0);
    owner.wire.send("process/output", json!({"process_id": loud, "wait": "exit"}));
    until(&daemon, "procd_waiters", |count| count == 1.0);
    owner.wire.send(
        "process/start",
        json!({"argv": ["true"], "cwd": daemon.cwd(), "queue_timeout_ms": 60_000}),
    );
    until(&daemon, "procd_queued{queue=\"starts\"}", |count| count == 1.0);
    owner.wire.ok("process/stop", json!({"process_id": loud, "mode": "kill"}));
    until(&daemon, "procd_ends_total{state=\"killed\"}", |count| count == 1.0);
    until(&daemon, "procd_ends_total{state=\"exited\"}", |count| count == 1.0);
    until(&daemon, "procd_queued{queue=\"starts\"}", |count| count == 0.0);
    until(&daemon, "procd_queued{queue=\"notifications\"}", |count| count == 2.0);
    until(&daemon, "procd_waiters", |count| count == 0.0);
    // Nobody reads it: more than the pipe holds stays in the queue.
    let deaf = owner.background(&["sleep", "600"]);
    let data = "x".repeat(500_000);
    owner.wire.ok("process/input", json!({"process_id": deaf, "data": data}));
    until(&daemon, "procd_pending_input_bytes", |bytes| bytes > 100_000.0);
    owner.wire.ok("process/stop", json!({"process_id": deaf, "mode": "terminate"}));
    until(&daemon, "procd_ends_total{state=\"terminated\"}", |count| count == 1.0);
    until(&daemon, "procd_pending_input_bytes", |bytes| bytes == 0.0);
    let late = owner.wire.ok(
        "process/start",
        json!({"argv": ["sleep", "600"], "cwd": daemon.cwd(), "timeout_ms": 50}),
    );
    assert_eq!(late["state"], "timed_out");
    until(&daemon, "procd_ends_total{state=\"timed_out\"}", |count| count == 1.0);
    let missing =
        owner.wire.call("process/start", json!({"argv": ["/no/such"], "cwd": daemon.cwd()}));
    assert!(missing.is_err());
    until(&daemon, "procd_ends_total{state=\"failed\"}", |count| count == 1.0);
    until(&daemon, "procd_processes{state=\"failed\"}", |count| count == 1.0);
    drop(owner);
    let lost = started(&daemon, "lost", &["sleep", "600"]);
    let manifest = std::fs::read_dir(daemon.state().join("sessions")).unwrap().next().unwrap();
    daemon.kill();
    // A thing that is no session's folder.
    std::fs::write(daemon.state().join("sessions/garbage"), "x").unwrap();
    drop(manifest);
    daemon.restart();
    until(&daemon, "procd_restore_damage", |count| count == 1.0);
    until(&daemon, "procd_ends_total{state=\"lost_on_restore\"}", |count| count == 1.0);
    assert!(ctl(&daemon, &["inspect", &lost]).success().contains("lost_on_restore"));
    let after = series(&daemon);
    // Moved by `containment`: a tree that is not proven empty, one that leaves its control group.
    for name in ["procd_teardown_failures_total", "procd_escaped_total"] {
        assert_eq!(after[name], 0.0, "{name}");
    }
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}

/// `cargo xtask test` makes the environment of that parser.
#[test]
fn the_parser_of_prometheus_reads_them() {
    let python = binaries::folder().join("../prometheus/bin/python");
    if !binaries::folder().join("../prometheus/made").exists() {
        skip("no parser of prometheus: `cargo xtask test` could not install it");
        return;
    }
    let daemon = Setup::new(Tier::Shim).start();
    started(&daemon, "it", &["true"]);
    let text = ctl(&daemon, &["metrics"]).success();
    let program = "import sys\n\
                   from prometheus_client.openmetrics.parser import text_string_to_metric_families\n\
                   for family in text_string_to_metric_families(sys.stdin.read()):\n\
                   \x20   print(family.type, family.name, family.unit, len(family.samples))\n";
    let mut command = binaries::command(python);
    command.args(["-c", program]);
    let read = run::finish(command, text.as_bytes(), run::LONG);
    assert_eq!(read.code, Some(0), "{read:?}");
    let families = read.text();
    for family in [
        "gauge procd_processes  9",
        "counter procd_starts  1",
        "counter procd_ends  7",
        "histogram procd_start_seconds seconds 15",
        "counter procd_output_bytes bytes 1",
        "counter procd_output_dropped_bytes bytes 1",
        "gauge procd_spool_bytes bytes 1",
        "gauge procd_state_folder_bytes bytes 1",
        "gauge procd_sessions  1",
        "gauge procd_waiters  1",
        "gauge procd_clients  1",
        "gauge procd_queued  2",
        "gauge procd_pending_input_bytes bytes 1",
        "histogram procd_sync_seconds seconds 15",
        "gauge procd_restore_damage  1",
        "counter procd_teardown_failures  1",
        "counter procd_escaped  1",
    ] {
        assert!(families.lines().any(|line| line == family), "no `{family}` in\n{families}");
    }
    assert_eq!(families.lines().count(), 17, "{families}");
}
