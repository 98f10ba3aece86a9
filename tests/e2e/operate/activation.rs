//! What a service manager does to a daemon beside starting it: hands it a socket, and asks by SIGHUP for the configuration to be
//! read again. The manager is played by the test.

use std::{
    fs,
    io::Write as _,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::Stdio,
};

use procd_tests::{Daemon, Setup, Tier, Wire, binaries, wait};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags},
    process::Signal,
};
use serde_json::json;

/// Starts the daemon with this socket as the first of `count`.
fn activate(daemon: &mut Daemon, socket: &UnixListener, count: &str) {
    let mut command = daemon.command("probe");
    command.args(["activated", count]).arg(binaries::path("procd"));
    command.stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())));
    daemon.launch_by(command);
}

/// Who connected before there was a daemon is answered by the one that comes.
fn answered(daemon: &mut Daemon, socket: &UnixListener) -> Wire {
    let mut early = Wire::bare(&daemon.socket()).unwrap();
    activate(daemon, socket, "1");
    early.hello().unwrap();
    early
}

/// What the descriptors of a process lead to.
fn descriptors(pid: &str) -> Vec<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).collect()
}

#[test]
fn a_socket_that_was_handed_over_is_served_and_outlives_the_daemon() {
    let mut daemon = Setup::new(Tier::Shim).prepare();
    let socket = UnixListener::bind(daemon.socket()).unwrap();
    let inode = fs::metadata(daemon.socket()).unwrap().ino();
    drop(answered(&mut daemon, &socket));
    let mut owner = daemon.owner();
    let seen = owner.start(&[&binaries::probe(), "fds"], json!({"stdin": "pipe"}));
    assert_eq!(seen["output"], "0\n1\n2\n", "{seen}");
    let environment = owner.start(&[&binaries::probe(), "environment"], json!({}));
    let environment = environment["output"].as_str().unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("LISTEN_"), "{environment}");
    // The daemon holds it, and nobody whom the daemon started.
    let own = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket)))
        .unwrap();
    let pid = daemon.pid().to_string();
    assert!(descriptors(&pid).contains(&own), "{own:?}");
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert!(children.split_whitespace().next().is_some(), "a guardian");
    for child in children.split_whitespace() {
        assert!(!descriptors(child).contains(&own), "{child} holds {own:?}");
    }
    drop(owner);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(fs::metadata(daemon.socket()).unwrap().ino(), inode, "the socket stays");
    let mut operator = answered(&mut daemon, &socket);
    operator.ok("operator/attach", json!({"reason": "test"}));
    let list = operator.ok("process/list", json!({}));
    assert_eq!(list["records"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn what_is_handed_over_wrongly_is_refused_in_one_sentence() {
    for (place, count, sentence) in [
        ("sock", "2", "2 sockets were handed over, and one is wanted"),
        ("other", "1", "make ListenStream= of procd.socket and the place of the socket the same"),
    ] {
        let mut daemon = Setup::new(Tier::Shim).prepare();
        let socket = UnixListener::bind(daemon.path().join(place)).unwrap();
        activate(&mut daemon, &socket, count);
        assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.log());
        let said = daemon.log();
        assert!(said.contains(sentence), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("procd: ")).count(), 1, "{said}");
    }
}

fn grace(daemon: &Daemon) -> u64 {
    let mut operator = daemon.operator();
    operator.ok("daemon/status", json!({}))["limits"]["grace_ms"].as_u64().unwrap_or_default()
}

fn config_of(grace_ms: u64) -> String {
    format!("containment = \"shim\"\n[limits]\ngrace_ms = {grace_ms}\n")
}

fn until_grace(daemon: &Daemon, grace_ms: u64) {
    wait::until_true("the new value is in force", wait::STEP, || grace(daemon) == grace_ms);
}

#[test]
fn a_hang_up_has_the_configuration_read_again_and_a_bad_one_changes_nothing() {
    let daemon = Setup::new(Tier::Shim).limit("grace_ms = 1111").start();
    let file = daemon.path().join("config.toml");
    until_grace(&daemon, 1111);
    fs::write(&file, config_of(2222)).unwrap();
    daemon.signal(Signal::HUP);
    until_grace(&daemon, 2222);
    fs::write(&file, "[limits]\ngrace_ms = \"long\"\n").unwrap();
    daemon.signal(Signal::HUP);
    wait::until_true("the bad one is told", wait::STEP, || {
        let log = daemon.log();
        log.contains("the old one is kept") && log.contains("config.toml:2")
    });
    assert_eq!(grace(&daemon), 2222);
    fs::write(&file, config_of(3333)).unwrap();
    daemon.signal(Signal::HUP);
    until_grace(&daemon, 3333);
}

/// Symptom: a SIGHUP during the start was lost, or ended the daemon. Cause: before its handler was there it had the default
/// deed, and during the restore it was taken and forgotten, though the file may have changed after it was read.
/// The daemon is held while it reads its configuration, from a pipe that only this test writes to.
#[test]
fn a_hang_up_during_the_start_is_not_lost_and_ends_nothing() {
    let mut daemon = Setup::new(Tier::Shim).prepare();
    let file = daemon.path().join("config.toml");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    daemon.launch();
    let mut pipe = wait::until("the daemon reads its configuration", wait::STEP, || open(&file));
    daemon.signal(Signal::HUP);
    // What it reads now is old by the time at which it can be asked.
    let fresh = daemon.path().join("fresh");
    fs::write(&fresh, config_of(4444)).unwrap();
    fs::rename(&fresh, &file).unwrap();
    pipe.write_all(config_of(1111).as_bytes()).unwrap();
    drop(pipe);
    assert!(daemon.until_up_or_gone().is_some(), "it ended:\n{}", daemon.log());
    until_grace(&daemon, 4444);
}

/// The pipe's writing end, once somebody reads.
fn open(pipe: &Path) -> Option<fs::File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(pipe, flags, Mode::empty()).ok().map(fs::File::from)
}
