//! Each thing that can go wrong for an operator is one plain sentence with the next step.

use std::os::unix::{fs::PermissionsExt as _, net::UnixListener};

use procd_tests::{
    Daemon, Finished, Setup, Tier, binaries,
    run::{self, ctl, procctl},
};

/// The one line of stderr, which holds every word; and the exit code.
fn says(finished: &Finished, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.code, Some(code), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "one line: {said}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
}

fn procd(daemon: &Daemon, more: &[(&str, &str)]) -> Finished {
    let mut command = binaries::command(binaries::path("procd"));
    command.envs(daemon.places()).envs(more.iter().copied());
    run::finish(command, b"", run::LONG)
}

#[test]
fn no_daemon() {
    let daemon = Setup::new(Tier::Shim).prepare();
    for verb in ["status", "metrics", "reload", "config", "shutdown"] {
        says(&ctl(&daemon, &[verb]), 5, &["; `procctl start` or `procctl run` starts one"]);
    }
    let doctor = ctl(&daemon, &["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    assert!(doctor.text().contains("none is needed before the first start"), "{doctor:?}");
}

#[test]
fn a_daemon_that_cannot_be_started() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let mut command = procctl(&daemon, &["start", "--", "true"]);
    command.env("PROCD_DAEMON", "/no/such/procd");
    let failed = run::finish(command, b"", run::LONG);
    says(&failed, 5, &["/no/such/procd", "; start `procd` by hand"]);
}

#[test]
fn a_foreign_socket() {
    let daemon = Setup::new(Tier::Shim).prepare();
    std::fs::write(daemon.socket(), "no socket").unwrap();
    says(&procd(&daemon, &[]), 1, &["is there and is no socket"]);
    std::fs::remove_file(daemon.socket()).unwrap();
    let folder = daemon.path().join("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.join("sock");
    let socket = socket.to_str().unwrap();
    says(&procd(&daemon, &[("PROCD_SOCKET", socket)]), 1, &["is open to others: it must be 0700"]);
    // Somebody answers there who is no procd: it hangs up.
    let foreign = UnixListener::bind(daemon.socket()).unwrap();
    std::thread::spawn(move || foreign.incoming().for_each(drop));
    let refused = ctl(&daemon, &["status"]);
    says(&refused, 5, &["; `procctl ps` starts it anew"]);
}

#[test]
fn a_path_too_long() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let long = daemon.path().join("x".repeat(120));
    let long = long.to_str().unwrap();
    let length = long.len().to_string();
    says(&procd(&daemon, &[("PROCD_SOCKET", long)]), 1, &["107", &length]);
    let mut command = procctl(&daemon, &["status"]);
    command.env("PROCD_SOCKET", long);
    says(&run::finish(command, b"", run::LONG), 1, &["107", &length]);
}

#[test]
fn a_daemon_of_another_version() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let listener = UnixListener::bind(daemon.socket()).unwrap();
    let answers = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut hello = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut hello).unwrap();
        let reply = br#"{"id":1,"error":{"code":"unsupported_version","message":"no version in common; this daemon speaks [2]","retryable":false,"details":{"versions":[2]}}}"#;
        let length = u32::try_from(reply.len()).unwrap().to_be_bytes();
        stream.write_all(&length).unwrap();
        stream.write_all(reply).unwrap();
        listener
    });
    let refused = ctl(&daemon, &["status"]);
    says(&refused, 1, &["this daemon speaks [2]", "; use procctl and procd of one version"]);
    drop(answers.join());
}

#[test]
fn a_full_disk() {
    let daemon = Setup::new(Tier::Shim).limit("disk_bytes = 65536").start();
    let refused = ctl(&daemon, &["start", "--", "true"]);
    says(&refused, 6, &["; wait for a process to end, or ask for less"]);
}

#[test]
fn a_bad_configuration_key() {
    let daemon = Setup::new(Tier::Shim).prepare();
    std::fs::write(daemon.path().join("config.toml"), "[limits]\ngrace = 1\n").unwrap();
    let wanted = ["config.toml:2: unknown key `limits.grace`; did you mean `limits.grace_ms`?"];
    says(&procd(&daemon, &[]), 1, &wanted);
    // A private daemon hands its sentence to the client that started it.
    says(&ctl(&daemon, &["start", "--", "true"]), 5, &wanted);
}

#[test]
fn a_control_group_that_cannot_be_used() {
    let setup = Setup::new(Tier::Cgroup).setting("cgroup_root = \"/no/such/group\"");
    let daemon = setup.start();
    let refused = ctl(&daemon, &["start", "--", "true"]);
    says(&refused, 1, &["`/no/such/group`", "; see `containment` in the configuration"]);
    let doctor = ctl(&daemon, &["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.text().contains("-> see `containment`, `cgroup_root`"), "{doctor:?}");
}

#[test]
fn a_quota() {
    let daemon = Setup::new(Tier::Shim).limit("running_session_max = 1").start();
    let process = super::started(&daemon, "first", &["sleep", "600"]);
    let refused = ctl(&daemon, &["start", "--", "true"]);
    says(&refused, 6, &["1 of 1", "; wait for a process to end, or stop one"]);
    ctl(&daemon, &["stop", "-t", "0", &process]).success();
}

#[test]
fn a_command_that_is_not_there_and_a_folder_that_is_not() {
    let daemon = Setup::new(Tier::Shim).start();
    let refused = ctl(&daemon, &["start", "--", "/no/such/program"]);
    says(&refused, 1, &["; check the command's name, its rights and the working folder"]);
    let refused = ctl(&daemon, &["start", "-C", "/no/such/folder", "--", "true"]);
    says(&refused, 1, &["; check the command's name, its rights and the working folder"]);
}

#[test]
fn names_that_mean_nothing() {
    let daemon = Setup::new(Tier::Shim).start();
    let unknown = "AAAAAAAAAAAAAAAAAAAAAA";
    for name in [unknown, "AAAA", "a label"] {
        says(&ctl(&daemon, &["inspect", name]), 4, &[name, "; `procctl ps` lists yours"]);
    }
    says(&ctl(&daemon, &["stop", "--session", "nope"]), 4, &["; `procctl sessions` lists them"]);
    says(&ctl(&daemon, &["--owner", "sessions"]), 2, &["; leave out --owner"]);
    says(&ctl(&daemon, &["raw", "no/such"]), 2, &["is unknown; correct that argument"]);
}
