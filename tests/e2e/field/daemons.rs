//! One daemon for everybody who looks, found where all of them look, that refuses what it cannot do and lives on.

use std::{fs, path::PathBuf, process::Command};

use procd_tests::{
    Daemon, Setup, Tier,
    folder::Folder,
    namespace,
    owner::handle,
    run::{self, ctl, procctl, rounds},
    wait,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// C117: without a descriptor a start is refused by that name; whoever is there is served, what
/// runs loses nothing, and room that comes back is used.
#[test]
fn a_start_without_a_descriptor_is_refused_and_nothing_else_is() {
    without_a_descriptor(Tier::Shim);
}

#[test]
fn a_start_without_a_descriptor_is_refused_in_tier_1_too() {
    if Tier::Cgroup.is_here() {
        without_a_descriptor(Tier::Cgroup);
    }
}

fn without_a_descriptor(tier: Tier) {
    const LINE: &str = "ulimit -n 256; exec \"$0\"";
    let setup = Setup::new(tier).through(LINE).limit("connections_max = 64");
    let daemon = setup.limit("running_loop_max = 400").limit("running_session_max = 400").start();
    let mut owner = daemon.owner();
    let small = json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536});
    // Each says a word when it is told to.
    let talkers: Vec<_> = (0..8)
        .map(|number| {
            let told = daemon.path().join(format!("told-{number}"));
            mknodat(CWD, &told, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let line = format!("read word < {}; echo \"$word\"; sleep 600", told.display());
            (told, handle(&owner.start(&["sh", "-c", &line], small.clone())))
        })
        .collect();
    let params = owner.start_params(&["sleep", "600"], small);
    let (mut started, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        match owner.wire.call("process/start", params.clone()) {
            Ok(entry) => started.push(handle(&entry)),
            Err(error) => refused.push(error),
        }
    }
    println!("{} started, then {}", started.len(), refused.first().unwrap_or(&Value::Null));
    assert!(started.len() >= 10 && refused.len() >= 10, "{} and {}", started.len(), refused.len());
    for error in &refused {
        assert_eq!(
            (&error["code"], &error["details"]["cause"]),
            (&json!("spawn_failed"), &json!("out_of_descriptors")),
            "{error}"
        );
    }
    // Many who come now are served, and what runs writes to disk as before.
    let mut others: Vec<_> = (0..20).map(|_| owner.attach(daemon.connect())).collect();
    for other in &mut others {
        assert_eq!(other.record(&started[0])["state"], "running");
    }
    let other = others.first_mut().unwrap();
    for (told, process) in &talkers {
        fs::write(told, "a word\n").unwrap();
        wait::until_true("it says its word", wait::STEP, || other.text(process) == "a word\n");
        assert_ne!(other.record(process)["spool_state"], "degraded");
    }
    for process in started.iter().chain(talkers.iter().map(|(_, process)| process)) {
        other.stop(process, "kill", 0);
    }
    wait::until_true("starts are taken again", wait::STEP, || {
        let entry = other.wire.call("process/start", params.clone());
        entry.is_ok_and(|entry| other.stop(&handle(&entry), "kill", 0)["state"] == "killed")
    });
}

/// The pid of the private daemon, as it says it itself.
fn own_pid(daemon: &Daemon) -> Pid {
    // The one that was told to leave may have answered the last call.
    let status = wait::until("a daemon that stays", wait::STEP, || {
        ctl(daemon, &["ps"]).success();
        let status = ctl(daemon, &["--operator", "status", "--format", "json"]);
        (status.code == Some(0)).then(|| status.success())
    });
    let status: Value = serde_json::from_str(&status).unwrap();
    Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

/// C126: beside a stale socket, and while the one before is just going, clients that start at once get one daemon, all of them.
#[test]
fn cold_starts_beside_a_stale_socket_and_a_leaving_daemon_get_one_daemon() {
    let setup =
        Setup::new(Tier::Shim).limit("running_loop_max = 64").limit("running_session_max = 64");
    let daemon = setup.limit("retained_session_max = 5000").prepare();
    let words = ["start", "--", "true"];
    ctl(&daemon, &words).success();
    for round in 0..rounds(3).min(50) {
        let before = own_pid(&daemon);
        let is_killed = round % 2 == 0;
        let leaving = if is_killed {
            kill_process(before, Signal::KILL).unwrap();
            None
        } else {
            Some(run::start(procctl(&daemon, &["shutdown"])))
        };
        let clients: Vec<_> = (0..12).map(|_| run::start(procctl(&daemon, &words))).collect();
        let handles: Vec<String> = clients
            .into_iter()
            .map(|client| client.finish(run::LONG).success().trim().to_owned())
            .collect();
        if let Some(leaving) = leaving {
            assert_eq!(leaving.finish(run::LONG).code, Some(0));
        }
        // What the one that left had still taken is restored by the next.
        ctl(&daemon, &["ps"]).success();
        let list = daemon.operator().ok("process/list", json!({"limit": 1000}));
        let listed: Vec<_> = list["records"].as_array().unwrap().iter().map(handle).collect();
        assert!(
            handles.iter().all(|one| listed.contains(one)),
            "round {round}: one of another daemon"
        );
    }
    ctl(&daemon, &["shutdown"]).success();
}

/// C129: names that are the same for more bytes than a socket's name can have are two names.
#[test]
fn state_folders_that_differ_far_back_are_two() {
    let folder = Folder::new();
    let long = folder.path().join("x".repeat(120));
    let at = |name: &str| long.join(name).to_string_lossy().into_owned();
    let start =
        |name: &str| Setup::new(Tier::Shim).environment("PROCD_STATE_DIR", &at(name)).start();
    let daemons = [start("a"), start("b")];
    for (daemon, word) in daemons.iter().zip(["one", "other"]) {
        let mut owner = daemon.owner();
        assert_eq!(owner.start(&["echo", word], json!({}))["output"], format!("{word}\n"));
        assert_eq!(owner.list().len(), 1);
        assert_eq!(
            daemon.operator().ok("process/list", json!({}))["records"].as_array().unwrap().len(),
            1
        );
    }
}

/// procctl that is told nothing but a runtime folder, or none.
fn told_only(daemon: &Daemon, runtime: Option<&PathBuf>, words: &[&str]) -> Command {
    let mut command = procctl(daemon, words);
    command.env_remove("PROCD_SOCKET").env_remove("XDG_RUNTIME_DIR");
    runtime.map(|runtime| command.env("XDG_RUNTIME_DIR", runtime));
    command
}

/// C137: a runtime folder that is missing, foreign or no path at all is passed over by client and daemon alike.
#[test]
fn client_and_daemon_fall_back_to_the_same_place() {
    if namespace::has_run_inside(module_path!(), "client_and_daemon_fall_back_to_the_same_place") {
        return;
    }
    // The last place of all is the same for everybody of this user.
    super::mount_over("/tmp".as_ref());
    if fs::metadata("/run/user").is_ok() {
        super::mount_over("/run/user".as_ref());
    }
    let daemon = Setup::new(Tier::Shim).prepare();
    let mut runtimes =
        vec![None, Some("/no/such".into()), Some("run".into()), Some(daemon.path().join("open"))];
    fs::create_dir(daemon.path().join("open")).unwrap();
    if rustix::process::geteuid().is_root() {
        let foreign = daemon.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(61_236), Some(61_236)).unwrap();
        runtimes.push(Some(foreign));
    }
    for runtime in &runtimes {
        let began = told_only(&daemon, runtime.as_ref(), &["start", "--", "true"]);
        let process = run::finish(began, b"", run::LONG).success().trim().to_owned();
        for other in &runtimes {
            let listed =
                run::finish(told_only(&daemon, other.as_ref(), &["ps", "-q"]), b"", run::LONG)
                    .success();
            assert!(
                listed.lines().any(|line| process.starts_with(line.trim())),
                "{runtime:?}, then {other:?}: {listed}"
            );
        }
        run::finish(told_only(&daemon, None, &["shutdown"]), b"", run::LONG).success();
    }
}

/// C146: whoever has forgotten everything finds it by its label, its command or its folder.
#[test]
fn a_client_that_knows_nothing_finds_its_process() {
    let daemon = Setup::new(Tier::Shim).start();
    let started = ctl(&daemon, &["start", "--label", "the server", "--", "sleep", "600"]).success();
    let process = started.trim();
    // A new call each time: nothing is remembered but by the user's own session.
    let listed: Value =
        serde_json::from_str(&ctl(&daemon, &["ps", "--format", "json"]).success()).unwrap();
    let text = listed.to_string();
    assert!(
        text.contains(process) && text.contains("the server") && text.contains("sleep"),
        "{text}"
    );
    let mut operator = daemon.operator();
    let found = operator.ok("process/list", json!({"label": "the server"}));
    let record = &found["records"][0];
    assert_eq!(
        (handle(record), found["records"].as_array().unwrap().len()),
        (process.to_owned(), 1),
        "{found}"
    );
    assert!(record["session_id"].is_string() && record["loop_id"].is_string(), "{record}");
    let shown = operator.ok("process/inspect", json!({"process_id": process}));
    assert_eq!(
        shown["record"]["command"]["cwd"],
        daemon.cwd().to_string_lossy().as_ref(),
        "{shown}"
    );
    ctl(&daemon, &["stop", "-t", "0", "the server"]).success();
}

/// C131: the end of the last process is not the end of the daemon, and without a daemon the client says so.
#[test]
fn the_daemon_outlives_its_last_process_and_its_absence_is_plain() {
    let mut daemon = Setup::new(Tier::Shim).start();
    assert_eq!(ctl(&daemon, &["run", "--", "true"]).code, Some(0));
    assert_eq!(ctl(&daemon, &["ps", "-a", "-q"]).success().lines().count(), 1);
    daemon.terminate();
    daemon.ended();
    let without = ctl(&daemon, &["status"]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(without.code == Some(5) && said.contains("starts one"), "{said}");
}
