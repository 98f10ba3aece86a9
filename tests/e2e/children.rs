//! What a command finds when it starts: descriptors, signals, environment, folder; and nothing of the daemon's own.

use std::collections::BTreeMap;

use procd_tests::{Owner, Setup, Tier, binaries, owner::handle};
use serde_json::{Value, json};

fn text(owner: &mut Owner, argv: &[&str], more: Value) -> String {
    let entry = owner.start(argv, more);
    assert_eq!(entry["exit_code"], 0, "{entry}");
    owner.text(&handle(&entry))
}

fn environment(owner: &mut Owner, more: Value) -> BTreeMap<String, String> {
    let text = text(owner, &[&binaries::probe(), "environment"], more);
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A field of /proc/self/status.
fn status(text: &str, field: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

both_tiers! {
    fn three_descriptors_and_no_more_also_when_many_start_at_once(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 64").limit("running_session_max = 64").start();
        let mut owner = daemon.owner();
        let probe = binaries::probe();
        for mut more in [json!({}), json!({"stdin": "pipe"}), json!({"merge_streams": true})] {
            procd_tests::owner::merge(&mut more, json!({"memory_bytes": 4096, "spool_bytes": 65536}));
            let params = owner.start_params(&[&probe, "fds"], more);
            let ids: Vec<u64> = (0..40).map(|_| owner.wire.send("process/start", params.clone())).collect();
            for id in ids {
                let entry = owner.wire.reply(id).unwrap();
                assert_eq!(entry["output"], "0\n1\n2\n", "{entry}");
            }
        }
    }

    /// C22: whatever the daemon itself inherited.
    fn no_signal_is_ignored_or_blocked(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let text = text(&mut owner, &["cat", "/proc/self/status"], json!({}));
        for field in ["SigBlk", "SigIgn", "SigPnd"] {
            assert_eq!(status(&text, field), "0000000000000000", "{field}");
        }
        assert_eq!(status(&text, "Umask"), "0022");
        assert_eq!(status(&text, "NoNewPrivs"), "1");
    }

    /// C22 once more: a daemon that was started with every signal ignored and blocked, and a soft
    /// limit of open files that it raised for itself.
    fn nothing_that_the_daemon_was_started_with_is_handed_on(tier) {
        let daemon = Setup::new(tier).through("ulimit -S -n 777; umask 0177; exec env --ignore-signal --block-signal -- \"$0\"").start();
        let mut owner = daemon.owner();
        for more in [json!({}), json!({"tty": true}), json!({"isolate": true})] {
            if more["isolate"] == true && !crate::isolation::is_here(&mut owner) {
                continue;
            }
            let text = text(&mut owner, &["sh", "-c", "cat /proc/self/status; ulimit -S -n"], more).replace('\r', "");
            for field in ["SigBlk", "SigIgn", "SigPnd"] {
                assert_eq!(status(&text, field), "0000000000000000", "{field}");
            }
            assert_eq!(status(&text, "Umask"), "0022");
            assert_eq!(text.lines().last(), Some("777"), "the limit of the daemon's parent");
        }
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
        let own = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert!(!own.contains(" 777 "), "the daemon raised its own: {own}");
    }

    fn a_command_leads_its_own_posix_session_without_a_terminal(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let text = text(&mut owner, &["cat", "/proc/self/stat"], json!({}));
        let pid = text.split(' ').next().unwrap().to_owned();
        let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        assert_eq!((fields[2], fields[3], fields[4]), (pid.as_str(), pid.as_str(), "0"), "group, session, terminal of {text}");
    }

    fn the_environment_is_the_baseline_and_what_was_asked_for(tier) {
        let daemon = Setup::new(tier).environment("DAEMON_ONLY", "1").environment("LC_TEST", "kept").environment("AWS_SECRET_ACCESS_KEY", "hidden").start();
        let mut owner = daemon.owner();
        let seen = environment(&mut owner, json!({"env": {"ADDED": "a b", "EMPTY": "", "LANG": null, "MY_TOKEN": "asked"}}));
        for name in ["PATH", "HOME", "TMPDIR", "LC_TEST", "ADDED", "EMPTY", "MY_TOKEN"] {
            assert!(seen.contains_key(name), "no {name} in {seen:?}");
        }
        assert_eq!((seen["ADDED"].as_str(), seen["EMPTY"].as_str(), seen["MY_TOKEN"].as_str()), ("a b", "", "asked"));
        let known = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "CARGO_HOME", "RUSTUP_HOME", "ADDED", "EMPTY", "MY_TOKEN"];
        let others: Vec<_> = seen.keys().filter(|name| !known.contains(&name.as_str()) && !name.starts_with("LC_")).collect();
        assert_eq!(others, Vec::<&String>::new(), "inherited though nobody asked");
    }

    fn variables_that_hijack_a_program_are_refused_by_name(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GIT_DIR", "GIT_CONFIG_COUNT", "RUSTC_WRAPPER"] {
            let params = owner.start_params(&["true"], json!({"env": {name: "x"}}));
            let error = owner.wire.refused("invalid_arguments", "process/start", params);
            let field = error["details"]["field"].as_str().unwrap();
            assert!(field == "env" || field == format!("env.{name}"), "{error}");
            assert!(error["message"].as_str().unwrap().contains(name), "{error}");
        }
        assert_eq!(owner.list().len(), 0, "refused starts leave no record");
    }

    fn the_working_folder_is_the_one_asked_for_else_home(tier) {
        let daemon = Setup::new(tier).environment("HOME", "/usr").start();
        let mut owner = daemon.owner();
        let asked = text(&mut owner, &["pwd"], json!({}));
        assert_eq!(asked.trim_end(), daemon.cwd().to_string_lossy());
        assert_eq!(text(&mut owner, &["pwd"], json!({"cwd": null})), "/usr\n");
        let params = owner.start_params(&["pwd"], json!({"cwd": "relative"}));
        let error = owner.wire.refused("invalid_arguments", "process/start", params);
        assert_eq!(error["details"]["field"], "cwd", "{error}");
    }

    fn programs_are_looked_up_on_the_path_of_the_command(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["true"], json!({"env": {"PATH": "/nonexistent"}}));
        let error = owner.wire.refused("spawn_failed", "process/start", params);
        assert_eq!(error["details"]["cause"], "no_such_program", "{error}");
    }
}
