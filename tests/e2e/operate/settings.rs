//! The configuration while the daemon runs: read again, shown with where each value came from.

use std::fs;

use procd_tests::{Daemon, Setup, Tier, binaries, run, run::ctl};
use serde_json::{Value, json};

use super::json_of;

fn write(daemon: &Daemon, text: &str) {
    fs::write(daemon.path().join("config.toml"), text).unwrap();
}

fn setting(daemon: &Daemon, key: &str) -> Value {
    let settings = json_of(daemon, &["config"]);
    let found = settings.as_array().unwrap().iter().find(|one| one["key"] == key).cloned();
    found.expect("the key")
}

#[test]
fn a_reload_changes_what_starts_from_then_on() {
    let daemon = Setup::new(Tier::Shim).limit("running_loop_max = 1").start();
    let mut owner = daemon.owner();
    let first = owner.background(&["sleep", "600"]);
    owner.wire.refused("process_quota_exceeded", "process/start", owner_start(&daemon));
    write(
        &daemon,
        "containment = \"shim\"\nlog.level = \"debug\"\nenv.pass = [\"PROCD_CONFIG\"]\n\
         [limits]\nrunning_loop_max = 3\nspool_process_bytes = 131072\n",
    );
    let told = json_of(&daemon, &["reload"]);
    assert_eq!(
        told,
        json!({"changed": ["env.pass", "limits.running_loop_max", "limits.spool_process_bytes"],
               "at_next_start": ["log.level"]})
    );
    let second = owner.wire.ok("process/start", owner_start(&daemon))["process_id"].clone();
    let variable = owner.start(&["printenv", "PROCD_CONFIG"], json!({}));
    assert_eq!(variable["exit_code"], 0, "{variable}");
    assert_eq!(owner.wire.ok("daemon/status", json!({}))["limits"]["spool_process_bytes"], 131_072);
    let again = ctl(&daemon, &["reload"]).success();
    assert_eq!(again, "changed: nothing\nat the next start: log.level\n");
    for process in [json!(first), second] {
        owner.wire.ok("process/stop", json!({"process_id": process, "mode": "kill"}));
    }
}

fn owner_start(daemon: &Daemon) -> Value {
    json!({"argv": ["sleep", "600"], "cwd": daemon.cwd(), "background": true})
}

#[test]
fn a_bad_configuration_is_refused_by_file_line_and_key_and_the_old_one_stays() {
    let daemon = Setup::new(Tier::Shim).limit("running_loop_max = 3").start();
    for (text, wanted, field) in [
        (
            "[limits]\nrunning_lop_max = 3\n",
            "config.toml:2: unknown key `limits.running_lop_max`; did you mean `limits.running_loop_max`?",
            "limits.running_lop_max",
        ),
        (
            "child_nice = 99\n",
            "config.toml:1: wrong value for `child_nice`: 99 is not within -20 and 19",
            "child_nice",
        ),
        ("[limits\n", "config.toml:1", ""),
        (
            "[limits]\nrunning_loop_max = 9\nrunning_session_max = 8\n",
            "`running_loop_max` (9) is above `running_session_max` (8)",
            "limits.running_loop_max",
        ),
    ] {
        write(&daemon, text);
        let refused = ctl(&daemon, &["reload"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.code, Some(1), "{said}");
        assert!(said.contains(wanted) && said.contains("the old settings are kept"), "{said}");
        let error = daemon.operator().call("daemon/reload", json!({})).unwrap_err();
        assert_eq!(error["code"], "invalid_settings");
        assert_eq!(error["details"]["field"].as_str().unwrap_or_default(), field);
    }
    assert_eq!(setting(&daemon, "limits.running_loop_max")["value"], "3");
    // The fixture starts it with this file again.
    write(&daemon, "containment = \"shim\"\n");
}

#[test]
fn config_tells_where_each_value_came_from_and_what_lowered_it() {
    let setup = Setup::new(Tier::Shim).limit("running_daemon_max = 4");
    let daemon = setup.environment("PROCD_LIMITS_GRACE_MS", "777").start();
    let origin = |key: &str| setting(&daemon, key)["origin"].as_str().unwrap().to_owned();
    assert_eq!(setting(&daemon, "limits.grace_ms")["value"], "777");
    assert_eq!(origin("limits.grace_ms"), "environment variable PROCD_LIMITS_GRACE_MS");
    assert!(origin("limits.running_daemon_max").ends_with("config.toml:3"));
    assert_eq!(origin("shell"), "default");
    let lowered = setting(&daemon, "limits.running_loop_max");
    assert_eq!(
        (lowered["value"].clone(), lowered["lowered_by"].clone()),
        (json!("4"), json!("limits.running_session_max"))
    );
    let table = ctl(&daemon, &["config"]).success();
    assert!(table.starts_with("KEY "), "{table}");
    let doctor = ctl(&daemon, &["doctor"]);
    assert!(doctor.text().contains("2 were lowered to fit others"), "{doctor:?}");
}

#[test]
fn a_configuration_is_checked_without_a_daemon() {
    let daemon = Setup::new(Tier::Shim).limit("grace_ms = 1").prepare();
    let check = |daemon: &Daemon, more: &[&str]| {
        let mut command = binaries::command(binaries::path("procd"));
        command.arg("--check").args(more).envs(daemon.places());
        run::finish(command, b"", run::LONG)
    };
    let shown = check(&daemon, &["--set", "shell=/bin/dash"]).success();
    assert!(
        shown.contains("limits.grace_ms = 1  # ") && shown.contains("config.toml:3"),
        "{shown}"
    );
    assert!(shown.contains("shell = \"/bin/dash\"  # flag --set"), "{shown}");
    let bad = check(&daemon, &["--set", "shel=/bin/dash"]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(String::from_utf8_lossy(&bad.stderr).contains("did you mean `shell`?"));
    assert!(!daemon.socket().exists(), "nothing was started");
}
