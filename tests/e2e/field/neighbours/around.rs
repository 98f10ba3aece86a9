//! Around the daemon: its places, versions, managers, saved state, events, and the bridge.

use std::{fs, os::unix::fs::PermissionsExt as _};

use procd_tests::{Setup, Tier, Wire, binaries, leaks, namespace, owner::handle, run, wait};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::super::{bridge::Bridge, end_of, ends_from, pid_of};

/// The daemon of these places, started by hand: its code and what it said.
fn by_hand(daemon: &procd_tests::Daemon, more: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = binaries::command(binaries::path("procd"));
    command.envs(daemon.places()).envs(more.iter().copied());
    let finished = run::finish(command, b"", wait::STEP);
    (finished.code, String::from_utf8_lossy(&finished.stderr).into_owned())
}

/// Sockets: a link in its place, its whole folder gone, two thousand short connections.
#[test]
fn a_socket_is_never_a_link_and_survives_its_folder_and_a_storm() {
    let mut daemon = Setup::new(Tier::Shim).prepare();
    std::os::unix::fs::symlink("/no/such", daemon.socket()).unwrap();
    let (code, said) = by_hand(&daemon, &[]);
    assert!(code == Some(1) && said.contains("is there and is no socket"), "{said}");
    fs::remove_file(daemon.socket()).unwrap();
    let place = daemon.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    daemon.restart();
    let mut owner = daemon.owner();
    let fds = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let before = fds();
    for at in 0..2000 {
        let mut wire = Wire::bare(&daemon.socket()).unwrap();
        if at % 100 == 0 {
            wire.hello().unwrap();
        }
    }
    wait::until_true("descriptors as before", wait::STEP, || fds() <= before + 1);
    assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n");
    drop(owner);
    // A folder of its own, taken away whole: made again, or ended with a reason.
    let socket = place.join("deep/sock");
    let mut other =
        Setup::new(Tier::Shim).environment("PROCD_SOCKET", &socket.to_string_lossy()).prepare();
    other.launch();
    let hello = || Wire::bare(&socket).ok().and_then(|mut wire| wire.hello().ok());
    wait::until("it serves", wait::STEP, hello);
    fs::remove_dir_all(place.join("deep")).unwrap();
    wait::until_true("it serves again, or has ended", wait::STEP, || {
        other.is_gone() || hello().is_some()
    });
    if let Some(status) = other.end_however() {
        assert!(other.log().contains("socket"), "{status:?}: {}", other.log());
    }
}

/// Versions: a list with later ones, features and notices that are unknown, a parameter of a later release.
#[test]
fn what_a_later_client_says_is_taken_or_refused_by_name() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut wire = Wire::bare(&daemon.socket()).unwrap();
    let client = json!({"name": "later", "version": "9"});
    let hello = wire.ok("hello", json!({"client": client, "versions": [9, 1, 7], "features": ["notifications", "telepathy"]}));
    assert_eq!(hello["version"], 1, "{hello}");
    assert!(!hello["features"].to_string().contains("telepathy"), "{hello}");
    wire.notice("$/later", json!({"x": 1}));
    wire.ok("session/open", json!({}));
    let error = wire.refused(
        "invalid_arguments",
        "process/start",
        json!({"argv": ["true"], "later": true}),
    );
    assert!(error["message"].as_str().unwrap().contains("later"), "{error}");
    let error = wire.call("process/later", json!({})).unwrap_err();
    assert_eq!(
        (&error["code"], &error["details"]["field"]),
        (&json!("invalid_arguments"), &json!("method")),
        "{error}"
    );
    assert_eq!(
        wire.ok("process/start", json!({"argv": ["true"], "cwd": daemon.cwd()}))["exit_code"],
        0
    );
}

/// Managers: hang-ups and broken pipes, a notify socket that is nobody's, a watchdog that nobody reads.
#[test]
fn a_hang_up_and_a_manager_that_is_gone_end_no_daemon() {
    let setup = Setup::new(Tier::Shim).environment("NOTIFY_SOCKET", "/no/such/notify");
    let daemon = setup.environment("WATCHDOG_USEC", "200000").start();
    let mut owner = daemon.owner();
    let process = owner.background(&["sleep", "600"]);
    for signal in [Signal::HUP, Signal::PIPE, Signal::HUP] {
        kill_process(pid_of(&daemon), signal).unwrap();
        assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0, "{signal:?}");
    }
    assert_eq!(owner.record(&process)["state"], "running");
    owner.stop(&process, "kill", 0);
}

/// Saved state: a copy taken while it works, files that are nobody's, a disk that takes no write at all.
#[test]
fn a_state_folder_is_read_wherever_it_was_put_and_whatever_lies_in_it() {
    if namespace::has_run_inside(
        module_path!(),
        "a_state_folder_is_read_wherever_it_was_put_and_whatever_lies_in_it",
    ) {
        return;
    }
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let ended = handle(&owner.start(&["echo", "kept"], json!({})));
    let running = owner.background(&["sh", "-c", "echo ran; exec sleep 600"]);
    owner.output(&running, json!({"wait": "any"}));
    let mut copied = Setup::new(Tier::Shim).prepare();
    assert!(
        binaries::command("cp")
            .arg("-a")
            .args([daemon.state(), copied.state()])
            .status()
            .unwrap()
            .success()
    );
    let session = owner.opened["session_id"].as_str().unwrap().to_owned();
    for name in ["commit/1.log~", "commit/.DS_Store", "sessions/notes.txt", "lost+found"] {
        fs::write(copied.state().join(name), "nobody's").unwrap();
    }
    let spools = copied.state().join("sessions").join(session).join("spools");
    fs::write(spools.join(".swp"), "nobody's").unwrap();
    copied.restart();
    let mut there = copied.again(&owner.opened);
    assert_eq!(
        (there.text(&ended), there.text(&running)),
        ("kept\n".to_owned(), "ran\n".to_owned())
    );
    assert_eq!(there.record(&running)["state"], "lost_on_restore");
    assert_eq!(owner.record(&running)["state"], "running", "the first one lives beside its copy");
    owner.stop(&running, "kill", 0);
    drop(owner);
    daemon.terminate();
    daemon.ended();
    let state = daemon.state();
    let mount = |words: &[&str]| {
        assert!(binaries::command("mount").args(words).arg(&state).status().unwrap().success())
    };
    mount(&["--bind", &state.to_string_lossy()]);
    mount(&["-o", "remount,ro,bind"]);
    let (code, said) = by_hand(&daemon, &[]);
    assert!(code == Some(1) && said.contains("state"), "{code:?}: {said}");
    drop(binaries::command("umount").arg(&state).status());
    daemon.restart();
}

/// Events: a number that is ahead, two subscribers of one loop, the end of the session while they listen.
#[test]
fn subscribers_are_told_the_same_and_none_can_get_ahead() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let mut readers = [owner.attach(daemon.connect()), owner.attach(daemon.connect())];
    let process = handle(&owner.start(&["true"], json!({})));
    let id = owner.wire.send("events/subscribe", json!({"from_seq": 1}));
    owner.wire.reply(id).unwrap();
    let ahead = owner.wire.call("events/ack", json!({"for": id, "up_to_seq": 1_u64 << 50}));
    let later = owner.wire.call("events/subscribe", json!({"from_seq": 1_u64 << 50}));
    println!("an acknowledgement ahead: {ahead:?}; a subscription ahead: {later:?}");
    let told = readers.each_mut().map(|reader| ends_from(&mut reader.wire, 1, 1));
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, [process]);
    let running = owner.background(&["sleep", "600"]);
    owner.wire.ok("session/close", json!({"scope": "session"}));
    for reader in &mut readers {
        let notice = wait::until("its end", wait::STEP, || {
            let notice = reader.wire.next_notice().unwrap();
            (notice["params"]["event"]["kind"] == "completed").then_some(notice)
        });
        assert_eq!(handle(&notice["params"]["event"]), running);
    }
}

/// The bridge: words that are no message, a call beside one that waits, an argument of megabytes.
#[test]
fn a_bridge_goes_on_after_rubbish_and_serves_beside_a_wait() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut bridge = Bridge::start(&daemon, &[]);
    for rubbish in ["no message at all", "{\"jsonrpc\": \"2.0\"", "[1, 2]", ""] {
        bridge.say_anything(rubbish);
    }
    let line = "while ! [ -e go ]; do sleep 0.05; done; echo slow";
    let slow = bridge.ask_tool("Bash", json!({"command": line}));
    let long = format!("echo {}", "x".repeat(3_000_000));
    let long = bridge.ask_tool("Bash", json!({"command": long}));
    let list = bridge.ask_tool("ProcessList", json!({}));
    assert!(bridge.result(list).unwrap()["processes"].is_array());
    // No kernel takes a word of that length: told, and nothing else suffers.
    let said = bridge.result(long).unwrap_err();
    assert!(said.contains("bytes") || said.contains("long"), "{said}");
    fs::write(daemon.cwd().join("go"), "").unwrap();
    assert_eq!(bridge.result(slow).unwrap()["output"], "slow\n");
}

/// Files: a folder that somebody opens, a lock that somebody removes, an export that somebody reads.
#[test]
fn a_state_folder_that_was_opened_or_unlocked_is_noticed_and_exports_are_private() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let process = run::ctl(&daemon, &["start", "--", "echo", "secret"]).success().trim().to_owned();
    run::ctl(&daemon, &["wait", &process]).success();
    let file = daemon.cwd().join("saved");
    // Whose file it is decides who may read it.
    let mut export = binaries::command("sh");
    export
        .args(["-c", "umask 077; exec \"$0\" export \"$1\" -o \"$2\""])
        .arg(binaries::path("procctl"));
    export.arg(&process).arg(&file).envs(daemon.places()).current_dir(daemon.cwd());
    run::finish(export, b"", wait::STEP).success();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    daemon.terminate();
    daemon.ended();
    fs::set_permissions(daemon.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, said) = by_hand(&daemon, &[]);
    assert!(code == Some(1) && said.contains("0700"), "{said}");
    fs::set_permissions(daemon.state(), fs::Permissions::from_mode(0o700)).unwrap();
    daemon.restart();
    let mut owner = daemon.owner();
    owner.background(&["sleep", "600"]);
    fs::remove_file(daemon.state().join("lock")).unwrap();
    assert_eq!(daemon.ended().code(), Some(1));
    assert!(daemon.log().contains("the state folder was removed or replaced"), "{}", daemon.log());
    assert_eq!(leaks::processes(daemon.path()), Vec::<String>::new());
    daemon.restart();
    assert_eq!(end_of(&daemon.owner().start(&["true"], json!({}))), (json!("exited"), json!(0)));
}
