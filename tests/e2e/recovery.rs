//! What survives the daemon: everything it has said.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use procd_tests::{
    Daemon, Owner, Setup, Tier, binaries, leaks,
    owner::{handle, number},
    pattern, run, wait,
};
use serde_json::{Value, json};

/// How long what ran may live after its daemon was killed: half a second, and what a machine that
/// stands still adds.
const GONE: Duration = Duration::from_secs(20);

/// Twenty commands of every kind: their handles.
fn twenty(owner: &mut Owner) -> Vec<String> {
    let probe = binaries::probe();
    let tick = [probe.as_str(), "tick", "5"];
    let stubborn = [probe.as_str(), "ignore-term", "600"];
    let tree = [probe.as_str(), "tree", "2", "2", "600"];
    let detached =
        format!("setsid {probe} ignore-term 600 & {probe} detach 600; echo on; exec sleep 600");
    let lines: [&[&str]; 5] = [
        &tick,
        &stubborn,
        &tree,
        &["sh", "-c", &detached],
        &["sh", "-c", "while :; do echo loop; done"],
    ];
    (0..20).map(|count| owner.background(lines[count % lines.len()])).collect()
}

fn wide() -> (&'static str, &'static str) {
    ("running_loop_max = 32", "running_session_max = 32")
}

/// A process of the test's own that has this very pid: the namespace is told which one to give next.
fn stranger_with(pid: u64) -> std::process::Child {
    wait::until("a stranger has the pid", wait::STEP, || {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = binaries::command("sleep").arg("600").spawn().unwrap();
        if u64::from(child.id()) == pid {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    })
}

fn reattach(daemon: &Daemon, opened: &Value) -> Owner {
    let mut wire = daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]});
    wire.ok("session/attach", params);
    Owner::attached(wire, opened.clone(), daemon.cwd())
}

both_tiers_inside! {
    /// C91. Laws 2 and 6.
    fn a_killed_daemon_takes_its_trees_along_and_loses_nothing_it_has_told(tier) {
        let (per_loop, per_session) = wide();
        let mut daemon = Setup::new(tier).limit(per_loop).limit(per_session).start();
        let mut owner = daemon.owner();
        let done = handle(&owner.start(&[&binaries::probe(), "write", "300000"], json!({"limit_bytes": 1})));
        let told = wait::until("the completed one is sealed", wait::STEP, || {
            Some(owner.record(&done)).filter(|record| record["spool_state"] == "sealed")
        });
        let running = twenty(&mut owner);
        for process in &running {
            owner.output(process, json!({"wait": "any"}));
        }
        // The last thing heard of each: raw bytes, and how many there were in all.
        let heard: Vec<(Vec<u8>, u64)> = running.iter().map(|process| {
            let page = owner.output(process, json!({"encoding": "base64", "limit_bytes": 1 << 20}));
            (procd_tests::owner::decode(&page), number(&page, "total_bytes"))
        }).collect();
        daemon.kill();
        wait::until_true("nothing lives any more", GONE, || leaks::everybody().is_empty());
        daemon.restart();
        let mut again = reattach(&daemon, &owner.opened);
        assert_eq!(again.list().len(), 21);
        for (process, (bytes, total)) in running.iter().zip(heard) {
            let record = again.record(process);
            assert_eq!((record["state"].clone(), record["reason"].clone()), (json!("lost_on_restore"), json!("lost-on-restore")), "{record}");
            assert!(record["exit_code"].is_null() && record["duration_ms"].is_null(), "{record}");
            assert!(number(&record, "total_bytes") >= total, "{record}, but {total} had been told");
            let kept = again.bytes(process, 0);
            // The loud ones may have come to their ceiling since.
            let from = usize::try_from(number(&record, "retained_from")).unwrap().min(bytes.len());
            assert!(kept.starts_with(&bytes[from..]), "{process} lost bytes that a client had received");
            assert_eq!(again.output(process, json!({"wait": "exit"}))["woke_by"], "exit");
            assert_eq!(again.stop(process, "kill", 0)["state"], "lost_on_restore");
        }
        assert_eq!(again.record(&done), told);
        assert_eq!(again.bytes(&done, 0), pattern::bytes(0, 300_000));
        let restore = daemon.operator().ok("daemon/status", json!({}))["restore"].clone();
        assert_eq!((restore["done"].clone(), restore["lost"].clone(), restore["damaged"].clone()), (json!(true), json!(20), json!(0)), "{restore}");
        // Restoring twice changes nothing.
        let before: Vec<Value> = wait::until("all are sealed", wait::STEP, || {
            Some(again.list()).filter(|list| list.iter().all(|record| record["spool_state"] == "sealed"))
        });
        daemon.kill();
        daemon.restart();
        assert_eq!(reattach(&daemon, &owner.opened).list(), before);
    }

    /// C46. Law 7: a pid of before is a stranger's now.
    fn a_stranger_with_the_pid_of_a_lost_process_is_left_alone(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let inspected = daemon.operator().ok("process/inspect", json!({"process_id": process}));
        let pid = inspected["pids"][0].as_u64().unwrap();
        daemon.kill();
        wait::until_true("nothing lives any more", wait::STEP, || leaks::everybody().is_empty());
        let mut stranger = stranger_with(pid);
        daemon.restart();
        let mut again = reattach(&daemon, &owner.opened);
        assert_eq!(again.record(&process)["state"], "lost_on_restore");
        for mode in ["interrupt", "terminate", "kill"] {
            assert_eq!(again.stop(&process, mode, 0)["state"], "lost_on_restore");
        }
        daemon.terminate();
        assert!(daemon.ended().success());
        assert!(stranger.try_wait().unwrap().is_none(), "the stranger was ended");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    /// Killed in the middle of many starts and ends: what was acknowledged is there, and nothing twice.
    fn a_start_that_was_answered_is_found_after_a_kill_at_any_moment(tier) {
        let (per_loop, per_session) = wide();
        let mut daemon = Setup::new(tier).limit(per_loop).limit(per_session).start();
        let opened = daemon.owner();
        for round in 1..=5 {
            let mut owner = reattach(&daemon, &opened.opened);
            let params = owner.start_params(&["sh", "-c", "echo $PPID >/dev/null; exit 6"], json!({}));
            let ids: Vec<u64> = (0..30).map(|_| owner.wire.send("process/start", params.clone())).collect();
            let answered: Vec<Value> = ids.iter().take(round * 5).map(|id| owner.wire.reply(*id).unwrap()).collect();
            daemon.kill();
            daemon.restart();
            let mut again = reattach(&daemon, &opened.opened);
            let mut seen: Vec<String> = again.list().iter().map(handle).collect();
            for entry in answered {
                let record = again.record(&handle(&entry));
                assert_eq!((record["state"].clone(), record["exit_code"].clone()), (json!("exited"), json!(6)), "{record}");
                assert_eq!(record["finished_at"], entry["finished_at"], "{record}");
            }
            let all = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), all, "a record twice");
        }
    }
}

both_tiers! {
    fn an_orderly_shutdown_ends_everything_and_keeps_it_readable(tier) {
        let mut daemon = Setup::new(tier).limit("grace_ms = 3000").start();
        let mut owner = daemon.owner();
        let polite = owner.background_shell("echo polite; exec sleep 600");
        let stubborn = owner.background(&[&binaries::probe(), "ignore-term", "600"]);
        for process in [&polite, &stubborn] {
            owner.output(process, json!({"wait": "any"}));
        }
        let waiting = owner.wire.send("process/output", json!({"process_id": polite, "wait": "exit"}));
        daemon.operator().ok("daemon/shutdown", json!({}));
        let reply = owner.wire.reply(waiting).unwrap();
        assert_eq!(reply["results"][0]["state"], "terminated", "{reply}");
        assert!(daemon.ended().success());
        daemon.restart();
        let mut again = reattach(&daemon, &owner.opened);
        let told = |record: &Value| (record["state"].clone(), record["reason"].clone(), record["exit_code"].clone());
        assert_eq!(told(&again.record(&polite)), (json!("terminated"), json!("runner-shutdown"), Value::Null));
        assert_eq!(told(&again.record(&stubborn)), (json!("killed"), json!("runner-shutdown"), Value::Null));
        assert_eq!((again.text(&polite), again.text(&stubborn)), ("polite\n".to_owned(), "ready\n".to_owned()));
    }

    fn stdin_is_closed_first_so_filters_end_politely(tier) {
        let mut daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("trap '' TERM; cat; echo end of input");
        owner.wire.ok("process/input", json!({"process_id": process, "data": "x\n"}));
        owner.output(&process, json!({"wait": "any"}));
        daemon.terminate();
        assert!(daemon.ended().success());
        daemon.restart();
        assert_eq!(reattach(&daemon, &owner.opened).text(&process), "x\nend of input\n");
    }

    /// C31: a stop during a burst of starts ends in one of two ways only.
    fn a_shutdown_during_a_burst_of_starts_leaves_nothing(tier) {
        let (per_loop, per_session) = wide();
        let mut daemon = Setup::new(tier).limit(per_loop).limit(per_session).start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["sleep", "600"], json!({"background": true}));
        for _ in 0..32 {
            owner.wire.send("process/start", params.clone());
        }
        daemon.terminate();
        assert!(daemon.ended().success());
        assert_eq!(leaks::processes(daemon.path()), Vec::<String>::new());
        daemon.restart();
        for record in reattach(&daemon, &owner.opened).list() {
            assert!(["terminated", "killed"].contains(&record["state"].as_str().unwrap()), "{record}");
        }
    }
}

#[test]
fn a_second_sigterm_skips_the_grace() {
    let mut daemon = Setup::new(Tier::Shim).limit("grace_ms = 600000").start();
    let mut owner = daemon.owner();
    let process = owner.background(&[&binaries::probe(), "ignore-term", "600"]);
    owner.output(&process, json!({"wait": "any"}));
    let params = owner.start_params(&["true"], json!({}));
    daemon.terminate();
    wait::until_true("the shutdown has begun", wait::STEP, || {
        owner
            .wire
            .call("process/start", params.clone())
            .is_err_and(|error| error["code"] == "supervisor_shutting_down")
    });
    daemon.terminate();
    assert!(daemon.ended().success());
}

/// Every file below a folder, itself included.
fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(below(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// C166: the umask of whoever started it does not matter.
#[test]
fn everything_is_private_whatever_the_umask() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let mut command = binaries::command("sh");
    command
        .args(["-c", "umask 000; exec \"$0\""])
        .arg(binaries::path("procd"))
        .envs(daemon.places());
    command.stdin(std::process::Stdio::null());
    let running = run::start(command);
    let mut wire = wait::until("the daemon answers", wait::STEP, || {
        let mut wire = procd_tests::Wire::bare(&daemon.socket()).ok()?;
        wire.hello().ok()?;
        Some(wire)
    });
    wire.ok("session/open", json!({}));
    let ended = wire.ok("process/start", json!({"argv": ["echo", "x"], "cwd": "/"}));
    assert_eq!(ended["exit_code"], 0, "{ended}");
    let wrong: Vec<_> = below(&daemon.state())
        .into_iter()
        .chain([daemon.socket()])
        .filter(|path| fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 != 0))
        .collect();
    assert_eq!(wrong, Vec::<std::path::PathBuf>::new(), "open to others");
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.finish(wait::STEP).code, Some(0));
}

#[test]
fn a_state_folder_of_a_newer_format_is_refused_untouched() {
    let mut daemon = Setup::new(Tier::Shim).start();
    daemon.terminate();
    daemon.ended();
    let format = daemon.state().join("format");
    let newer = fs::read_to_string(&format).unwrap().replace("\"format\":1", "\"format\":2");
    fs::write(&format, &newer).unwrap();
    let before = below(&daemon.state());
    daemon.launch();
    assert_eq!(daemon.ended().code(), Some(1));
    assert!(daemon.log().contains("format"), "{}", daemon.log());
    assert_eq!((fs::read_to_string(&format).unwrap(), below(&daemon.state())), (newer, before));
}

#[test]
fn a_damaged_record_and_a_torn_log_harm_nobody_else() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let processes: Vec<String> = ["one", "two"]
        .iter()
        .map(|word| handle(&owner.start(&["echo", word], json!({}))))
        .collect();
    wait::until_true("both are sealed", wait::STEP, || {
        owner.list().iter().all(|record| record["spool_state"] == "sealed")
    });
    daemon.terminate();
    daemon.ended();
    let newest = below(&daemon.state().join("commit"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
        .max()
        .unwrap();
    let mut log = fs::read(&newest).unwrap();
    log.extend(b"{\"v\":1,\"records\":[{\"torn");
    fs::write(&newest, log).unwrap();
    daemon.restart();
    let mut again = reattach(&daemon, &owner.opened);
    for (process, word) in processes.iter().zip(["one\n", "two\n"]) {
        assert_eq!(again.text(process), word);
    }
}

/// Symptom: a record read while its spool was being sealed said `sealed` without a checksum, and
/// after a kill at that moment it was another record. Cause: the state was taken live from the
/// output, while its checksum came from the record. On the old code a look between the two fails.
#[test]
fn a_record_that_says_sealed_has_its_checksum() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    for _ in 0..60 {
        let params = json!({"limit_bytes": 1});
        let process = handle(&owner.start(&[&binaries::probe(), "write", "300000"], params));
        wait::until("the seal", wait::STEP, || {
            let record = owner.record(&process);
            let is_sealed = record["spool_state"] == "sealed";
            assert_eq!(is_sealed, record["sha256"].is_string(), "{record}");
            is_sealed.then_some(())
        });
    }
}
