//! Isolation, enforced access and limits beside each other: none weakens another. Limits that need controllers of control
//! groups are combined in the guest of `tests/vm`.

use std::path::PathBuf;

use procd_tests::{Daemon, Owner, Setup, Tier, binaries, leaks, owner::handle, wait};
use serde_json::{Value, json};

use crate::{access, isolation, resources};

/// A daemon with its client; `None` where this machine has not all it takes, which is said.
fn furnished(tier: Tier, with_access: bool) -> Option<(Daemon, Owner)> {
    let daemon = Setup::new(tier).start();
    let mut owner = daemon.owner();
    let is_here = isolation::is_here(&mut owner) && (!with_access || access::is_here(&daemon));
    is_here.then_some((daemon, owner))
}

fn enforced(daemon: &Daemon, access: &str) -> Value {
    json!({"root": daemon.cwd(), "access": access, "enforce": true})
}

fn applied(record: &Value, name: &str) -> String {
    record["limits"][name]["applied"].as_str().unwrap_or_default().to_owned()
}

both_tiers! {
    fn limits_of_each_process_hold_in_a_namespace(tier) {
        let Some((_daemon, mut owner)) = furnished(tier, false) else { return };
        let limits = json!({"open_files_max": 64, "core_bytes_max": 0, "cpu_seconds_max": 100, "address_space_bytes_max": 1_u64 << 32});
        let line = "(ulimit -Hn; ulimit -Sn; ulimit -Hc; ulimit -St; ulimit -Hv)";
        let entry = owner.start(&["bash", "-c", line], json!({"limits": limits, "isolate": true}));
        assert_eq!(entry["output"], "64\n64\n0\n100\n4194304\n", "{entry}");
        let record = owner.record(&handle(&entry));
        assert_eq!(record["tier"], "pidns", "{record}");
        for name in ["open_files_max", "core_bytes_max", "cpu_seconds_max", "address_space_bytes_max"] {
            assert_eq!(applied(&record, name), "rlimit", "{record}");
        }
        let burn = json!({"limits": {"cpu_seconds_max": 1}, "isolate": true});
        let entry = owner.start(&[&binaries::probe(), "burn"], burn);
        assert_eq!((&entry["state"], &entry["exit_code"]), (&json!("exited"), &json!(128 + 24)), "{entry}");
        assert_eq!(owner.record(&handle(&entry))["limit_exceeded"], "cpu");
    }

    fn a_tree_in_a_namespace_is_sampled_as_any_other(tier) {
        let Some((daemon, mut owner)) = furnished(tier, false) else { return };
        for (limit, record) in resources::above_sampled_limits(&mut owner, json!({"isolate": true})) {
            assert_eq!(record["limit_exceeded"], limit, "{record}");
            assert_eq!((&record["state"], &record["exit_code"], &record["tier"]), (&json!("exited"), &json!(137), &json!("pidns")), "{record}");
            assert_eq!(leaks::processes(&daemon.cwd()), Vec::<String>::new());
        }
    }

    /// It sees nobody and changes nothing, from a grandchild as well; what is its own stays its own.
    fn a_process_in_a_namespace_has_its_access_enforced(tier) {
        let Some((daemon, mut owner)) = furnished(tier, true) else { return };
        let line = "touch made 2>/dev/null || echo refused; \
                    setsid sh -c '(touch below 2>/dev/null || echo refused)'; \
                    echo kept >\"$TMPDIR/file\" && cat \"$TMPDIR/file\"; echo lost >/dev/null && echo null; \
                    (echo more >>\"$0\") 2>/dev/null || echo refused; echo \"$TMPDIR\"; cd /proc && echo [0-9]*";
        let state = daemon.state().join("format").display().to_string();
        let more = json!({"workspace": enforced(&daemon, "read_only"), "isolate": true});
        let entry = owner.start(&["sh", "-c", line, &state], more);
        let text = entry["output"].as_str().unwrap().to_owned();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{entry}");
        let temporary = PathBuf::from(lines[5]);
        let expected = ["refused", "refused", "kept", "null", "refused", lines[5], "1 2"];
        assert_eq!(lines, expected, "{entry}");
        assert!(temporary.starts_with(daemon.state().join("tmp")), "{entry}");
        assert!(!daemon.cwd().join("made").exists() && !daemon.cwd().join("below").exists());
        wait::until_true("the temporary folder is gone", wait::STEP, || !temporary.exists());
        let record = owner.record(&handle(&entry));
        assert_eq!(record["tier"], "pidns", "{record}");
        assert!(record["access"]["enforced"].as_str().unwrap_or_default().starts_with("landlock ABI "), "{record}");
    }

    fn a_process_in_a_namespace_writes_where_it_may(tier) {
        let Some((daemon, mut owner)) = furnished(tier, true) else { return };
        std::fs::create_dir(daemon.cwd().join("named")).unwrap();
        for tty in [false, true] {
            let mut claim = enforced(&daemon, "scoped_write");
            claim["paths"] = json!(["named"]);
            let line = "touch named/made && echo inside; touch outside 2>/dev/null || echo refused";
            let line = if tty { format!("{line}; echo seen >/dev/tty") } else { line.to_owned() };
            let more = json!({"workspace": claim, "isolate": true, "tty": tty});
            let entry = owner.start(&["sh", "-c", &line], more);
            let text = entry["output"].as_str().unwrap().replace('\r', "");
            let expected = if tty { "inside\nrefused\nseen\n" } else { "inside\nrefused\n" };
            assert_eq!(text, expected, "{entry}");
            std::fs::remove_file(daemon.cwd().join("named/made")).unwrap();
            assert!(!daemon.cwd().join("outside").exists());
        }
        let more = json!({"workspace": enforced(&daemon, "broad_write"), "isolate": true});
        let line = "mkdir -p deep/er && echo x >deep/er/file && mv deep/er moved && cat moved/file";
        assert_eq!(owner.start(&["sh", "-c", line], more)["output"], "x\n");
    }

    /// All three, and the end of the tree takes everything with it.
    fn limits_access_and_namespace_hold_together(tier) {
        let Some((daemon, mut owner)) = furnished(tier, true) else { return };
        let probe = binaries::probe();
        let fill = (96_u64 << 20).to_string();
        let limits = json!({"memory_bytes_max": 48 << 20, "open_files_max": 64, "core_bytes_max": 0});
        let more = json!({
            "workspace": enforced(&daemon, "read_only"), "isolate": true, "limits": limits, "limits_fallback": "watchdog",
        });
        let line = "ulimit -Hn; touch made 2>/dev/null || echo refused; \"$0\" sleep 600 & exec \"$0\" fill \"$1\"";
        let entry = owner.start(&["sh", "-c", line, &probe, &fill], more);
        let text = entry["output"].as_str().unwrap();
        assert!(text.starts_with("64\nrefused\n"), "{entry}");
        let record = owner.record(&handle(&entry));
        assert_eq!((&record["state"], &record["exit_code"]), (&json!("exited"), &json!(137)), "{record}");
        assert_eq!((&record["limit_exceeded"], &record["tier"]), (&json!("memory"), &json!("pidns")), "{record}");
        assert_eq!(applied(&record, "open_files_max"), "rlimit", "{record}");
        assert_eq!(leaks::processes(&daemon.cwd()), Vec::<String>::new());
        let temporary = daemon.state().join("tmp");
        wait::until_true("the temporary folder is gone", wait::STEP, || {
            std::fs::read_dir(&temporary).map_or(true, |mut entries| entries.next().is_none())
        });
    }
}
