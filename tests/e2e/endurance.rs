//! Many of them: starts, failures, ends and a shutdown, with nothing left and nothing leaked.

use std::{collections::BTreeMap, fs, time::Duration};

use procd_tests::{Daemon, Owner, Setup, Tier, binaries, leaks, owner::handle, rounds, wait};
use serde_json::{Value, json};

const LIMIT: Duration = procd_tests::wait::STEP;
const SMALL: (u64, u64) = (4096, 65536);

fn small(more: Value) -> Value {
    let mut params = json!({"memory_bytes": SMALL.0, "spool_bytes": SMALL.1});
    procd_tests::owner::merge(&mut params, more);
    params
}

fn guardian(daemon: &Daemon) -> u32 {
    let pid = daemon.pid();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().next().unwrap().parse().unwrap()
}

/// Threads of the daemon. In a full run after so long a rest that none is left which only waits for
/// more blocking work: the runtime keeps such a thread for ten seconds.
fn settled_threads(daemon: &Daemon) -> usize {
    let path = format!("/proc/{}/task", daemon.pid());
    if rounds::or(0) > 0 {
        let began = wait::now();
        wait::until_true("a rest", LIMIT, || began.elapsed() > Duration::from_secs(13));
    }
    count(&path)
}

fn count(path: &str) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

/// Everything that could leak, by name.
fn held(daemon: &Daemon) -> BTreeMap<&'static str, usize> {
    let (own, guardian) = (daemon.pid(), guardian(daemon));
    let zombies = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    });
    let groups = leaks::groups(&daemon.state());
    let leaves: usize = groups
        .iter()
        .map(|group| {
            let entries = fs::read_dir(group.join("payload")).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_dir()).count()
        })
        .sum();
    let ptys = fs::read_dir(format!("/proc/{own}/fd")).unwrap().flatten();
    let ptys = ptys.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|to| to.starts_with("/dev/pts") || to.ends_with("ptmx"))
    });
    BTreeMap::from([
        ("zombies", zombies.count()),
        ("descriptors of the guardian", count(&format!("/proc/{guardian}/fd"))),
        ("threads of the guardian", count(&format!("/proc/{guardian}/task"))),
        ("leaves", leaves),
        ("terminals", ptys.count()),
        ("others", leaks::everybody().len()),
    ])
}

both_tiers_inside! {
    /// C112 and more: after many cycles everything is as it was.
    fn cycles_leave_nothing_behind(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let cycles = rounds::or(200);
        let cycle = |owner: &mut Owner, number: usize| {
            let (line, more) = match number % 5 {
                0 => ("echo on", json!({})),
                1 => ("echo on", json!({"tty": true})),
                2 => ("sleep 1000 & echo on", json!({})),
                3 => ("echo on; exit 3", json!({"merge_streams": true, "stdin": "pipe"})),
                _ => ("kill -9 $$", json!({"tty": true})),
            };
            let entry = owner.start(&["sh", "-c", line], small(more));
            assert_eq!(entry["state"], "exited", "{entry}");
        };
        // What is made once is there after a few.
        (0..25).for_each(|number| cycle(&mut owner, number));
        let before = held(&daemon);
        let fds = count(&format!("/proc/{}/fd", daemon.pid()));
        let threads = settled_threads(&daemon);
        let began = wait::now();
        (0..cycles).for_each(|number| cycle(&mut owner, number));
        println!("{tier:?}: {cycles} cycles in {:?}; before {before:?}, {fds} descriptors, {threads} threads", began.elapsed());
        wait::until_true("everything is as before", LIMIT, || held(&daemon) == before);
        // A seal or a blocking thread may be under way.
        wait::until_true("descriptors are as before", LIMIT, || count(&format!("/proc/{}/fd", daemon.pid())) <= fds + 2);
        let spare = if rounds::or(0) > 0 { 0 } else { 4 };
        wait::until_true("threads are as before", LIMIT, || settled_threads(&daemon) <= threads + spare);
        let now = (count(&format!("/proc/{}/fd", daemon.pid())), settled_threads(&daemon));
        println!("{tier:?}: after {:?}, {now:?}", held(&daemon));
    }

    /// As many run at once as there are descriptors for: so each keeps its outputs open, in tier 2
    /// its shim too, and nothing else, whatever it wrote before it fell silent.
    fn a_quiet_process_keeps_its_outputs_open_and_nothing_else(tier) {
        const MANY: usize = 12;
        let daemon = Setup::new(tier).limit("running_loop_max = 40").start();
        let mut owner = daemon.owner();
        let fds = format!("/proc/{}/fd", daemon.pid());
        let spools = || fs::read_dir(&fds).unwrap().flatten().filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.components().any(|part| part.as_os_str() == "spools"))
        });
        let begin = |owner: &mut Owner, more: Value| {
            let entry = owner.start(&["sh", "-c", "echo on; exec sleep 1000"], small(more));
            let process = handle(&entry);
            owner.output(&process, json!({"wait": "any"}));
            process
        };
        begin(&mut owner, json!({"background": true}));
        wait::until_true("it is quiet", LIMIT, || spools().count() == 0);
        let shim = usize::from(tier == Tier::Shim);
        for (outputs, more) in [(1, json!({"background": true, "stdin": "null", "merge_streams": true})), (2, json!({"background": true, "stdin": "null"}))] {
            let before = count(&fds);
            let all: Vec<_> = (0..MANY).map(|_| begin(&mut owner, more.clone())).collect();
            wait::until_true("all are quiet", LIMIT, || spools().count() == 0);
            wait::until_true("no other descriptor stays", LIMIT, || count(&fds) <= before + MANY * (outputs + shim));
            for process in &all {
                assert_eq!(owner.text(process), "on\n");
                assert_eq!(owner.stop(process, "kill", 0)["state"], "killed");
            }
        }
    }

    /// Each failure has its cause, every time, and leaves nothing.
    fn failures_have_their_cause_every_time(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let text = daemon.path().join("text");
        fs::write(&text, "no program\n").unwrap();
        let plain = text.to_str().unwrap().to_owned();
        let executable = format!("{plain}-x");
        fs::write(&executable, "no program\n").unwrap();
        fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let long = "x".repeat(200_000);
        let cases: [(&[&str], Value, &str); 7] = [
            (&["/no/such/program"], json!({}), "no_such_program"),
            (&["no-such-program-anywhere"], json!({"tty": true}), "no_such_program"),
            (&[&plain], json!({}), "not_executable"),
            (&[&executable], json!({}), "bad_format"),
            (&["true", &long], json!({}), "argument_list_too_long"),
            (&["true"], json!({"cwd": "/no/such/folder"}), "cwd_missing"),
            (&["true"], json!({"cwd": plain}), "cwd_not_directory"),
        ];
        let times = rounds::or(10).min(300);
        for _ in 0..3 {
            owner.start(&["true"], small(json!({})));
        }
        let before = held(&daemon);
        for (argv, more, cause) in cases {
            for _ in 0..times {
                let params = owner.start_params(argv, small(more.clone()));
                let error = owner.wire.call("process/start", params).unwrap_err();
                assert_eq!((error["code"].clone(), error["details"]["cause"].clone()), (json!("spawn_failed"), json!(cause)), "{error}");
            }
        }
        println!("{tier:?}: 7 causes {times} times each");
        wait::until_true("nothing is left of them", LIMIT, || held(&daemon) == before);
    }

    /// A folder that an ordinary user may not enter, and one that it may not even find.
    fn a_forbidden_folder_is_named_every_time(tier) {
        if !crate::containment::can_be_user() {
            return;
        }
        let daemon = Setup::new(tier).as_user(crate::containment::UID).start();
        let mut owner = daemon.owner();
        let closed = daemon.path().join("closed");
        fs::create_dir_all(closed.join("below")).unwrap();
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        for _ in 0..3 {
            owner.start(&["true"], small(json!({})));
        }
        let before = held(&daemon);
        let times = rounds::or(10).min(300);
        for folder in [closed.clone(), closed.join("below")] {
            for round in 0..times {
                let params = owner.start_params(&["true"], small(json!({"cwd": folder, "tty": round % 2 == 1})));
                let error = owner.wire.refused("spawn_failed", "process/start", params);
                assert_eq!(error["details"]["cause"], "cwd_denied", "{error}");
            }
        }
        println!("{tier:?}: cwd_denied {times} times, at two depths");
        wait::until_true("nothing is left of them", LIMIT, || held(&daemon) == before);
    }

    /// Descriptors 0-2 and nothing else, also with two hundred starts at once.
    fn two_hundred_starts_at_once_leak_no_descriptor(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 256").limit("running_session_max = 256").start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&[&binaries::probe(), "fds"], small(json!({"stdin": "pipe"})));
        let ids: Vec<u64> = (0..200).map(|_| owner.wire.send("process/start", params.clone())).collect();
        for id in ids {
            let entry = owner.wire.reply(id).unwrap();
            assert_eq!(entry["output"], "0\n1\n2\n", "{entry}");
        }
    }

    /// Two hundred trees, some of which ignore everything: the daemon ends in time, and all of
    /// them have their end.
    fn a_shutdown_with_many_trees_ends_in_time(tier) {
        let mut daemon = Setup::new(tier).limit("running_loop_max = 256").limit("running_session_max = 256").limit("grace_ms = 2000").limit("retained_session_max = 1000").start();
        let mut owner = daemon.owner();
        let lines = [
            "echo up; exec sleep 1000",
            "setsid sleep 1000 & echo up; wait",
            "trap '' TERM INT HUP; echo up; while :; do sleep 1; done",
            "(trap '' TERM; while :; do sleep 1; done) & echo up; wait",
        ];
        let trees = rounds::or(40).min(200);
        let started: Vec<_> = (0..trees).map(|number| {
            handle(&owner.start(&["sh", "-c", lines[number % lines.len()]], small(json!({"background": true, "tty": number % 8 == 0}))))
        }).collect();
        for process in &started {
            wait::until_true("it is up", LIMIT, || owner.text(process).contains("up"));
        }
        let began = wait::now();
        daemon.terminate();
        assert_eq!(daemon.ended().code(), Some(0));
        let took = began.elapsed();
        println!("{tier:?}: {trees} trees, grace 2 s: ended after {took:?}");
        wait::until_true("nobody is left", LIMIT, || leaks::everybody().is_empty());
        daemon.restart();
        let opened = owner.opened.clone();
        let mut wire = daemon.connect();
        wire.ok("session/attach", json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]}));
        let mut owner = Owner::attached(wire, opened, daemon.cwd());
        for process in &started {
            let record = owner.record(process);
            assert!(record["reason"] == "runner-shutdown" && record["state"] != "lost_on_restore", "{record}");
        }
    }
}

both_tiers_inside! {
    /// The grace is literal: a polite end within it is waited for, to the end.
    fn a_long_grace_is_waited_for(tier) {
        let seconds = if rounds::or(0) > 0 { 20 } else { 2 };
        let daemon = Setup::new(tier).limit("grace_ms = 10").start();
        let mut owner = daemon.owner();
        let process = owner.background(&[&binaries::probe(), "ignore-term", "600"]);
        owner.output(&process, json!({"wait": "any"}));
        let began = wait::now();
        let result = owner.stop(&process, "terminate", seconds * 1000);
        let took = began.elapsed();
        println!("{tier:?}: a grace of {seconds} s took {took:?}");
        assert!(took >= Duration::from_secs(seconds) && took < Duration::from_secs(seconds) + LIMIT, "{took:?}");
        assert_eq!((result["state"].clone(), result["escalated"].clone()), (json!("killed"), json!(true)), "{result}");
    }

    /// A tree that forks for ever is ended to the last, and no success is told before.
    fn a_tree_that_forks_for_ever_ends(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let before = leaks::everybody().len();
        for mode in ["terminate", "kill"] {
            let process = owner.background_shell("trap '' TERM; g() { while :; do sleep 0.001 & done; }; g & h() { h & }; h; echo up; wait; sleep 1000");
            owner.output(&process, json!({"wait": "any"}));
            let result = owner.stop(&process, mode, 100);
            let left = leaks::everybody_but_shims();
            assert!(left.len() <= before, "after the reply: {left:?}");
            assert_eq!(result["state"], "killed", "{result}");
        }
    }
}
