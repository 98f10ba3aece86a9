//! Under a service manager, played by the test: readiness, the watchdog,
//! reloading and stopping. The units themselves are read by systemd's own checker.

use std::{os::unix::net::UnixDatagram, path::Path};

use procd_tests::{Daemon, Setup, Tier, binaries, run, skip::skip, wait};
use serde_json::json;

/// What the daemon told its service manager so far.
struct Manager {
    socket: UnixDatagram,
    heard: std::cell::RefCell<String>,
}

impl Manager {
    fn new(folder: &Path) -> (Self, String) {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        (Self { socket, heard: std::cell::RefCell::default() }, path.to_str().unwrap().to_owned())
    }

    fn heard(&self) -> String {
        let mut datagram = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut datagram) {
            let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
            self.heard.borrow_mut().push_str(&format!("{text}\n"));
        }
        self.heard.borrow().clone()
    }

    fn until(&self, line: &str) {
        wait::until_true(&format!("`{line}` is told"), wait::STEP, || {
            self.heard().lines().any(|heard| heard.starts_with(line))
        });
    }
}

fn notified(setup: Setup) -> (Daemon, Manager) {
    let mut daemon = setup.prepare();
    let (manager, address) = Manager::new(daemon.path());
    daemon.set_environment("NOTIFY_SOCKET", &address);
    (daemon, manager)
}

#[test]
fn it_says_ready_when_everything_is_answered_and_stopping_before_it_ends() {
    let (mut daemon, manager) = notified(Setup::new(Tier::Shim));
    daemon.set_environment("WATCHDOG_USEC", "300000");
    daemon.restart();
    manager.until("READY=1");
    manager.until("WATCHDOG=1");
    let mut owner = daemon.owner();
    owner.background(&["sleep", "600"]);
    manager.until("STATUS=serving: 1 processes run, 0 have ended");
    daemon.operator().ok("daemon/reload", json!({}));
    let pid = i32::try_from(daemon.pid()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::HUP).unwrap();
    manager.until("RELOADING=1");
    manager.until("MONOTONIC_USEC=");
    drop(owner);
    daemon.terminate();
    assert!(daemon.ended().success());
    let heard = manager.heard();
    let at = |word: &str| heard.find(word).unwrap_or_else(|| panic!("no {word} in {heard}"));
    assert!(at("READY=1") < at("STOPPING=1"), "{heard}");
    assert!(!heard.contains("sleep"), "no command is told: {heard}");
}

/// The supervisor feeds the watchdog itself: held at a point of its own work, it feeds no more.
#[test]
fn a_supervisor_that_hangs_does_not_feed_the_watchdog() {
    let (mut daemon, manager) = notified(Setup::new(Tier::Shim));
    daemon.set_environment("WATCHDOG_USEC", "150000");
    daemon.with_failpoints("start-registered=pause:60000");
    daemon.restart();
    manager.until("WATCHDOG=1");
    let mut wire = daemon.connect();
    wire.ok("session/open", json!({}));
    wire.send("process/start", json!({"argv": ["true"], "cwd": daemon.cwd()}));
    wait::until_true("the supervisor is held", wait::STEP, || daemon.trace() == "start-registered");
    manager.heard();
    manager.heard.borrow_mut().clear();
    // As long as ten beats take: none comes. A slow machine only makes the wait longer.
    let quiet = wait::Deadline::after(std::time::Duration::from_millis(500));
    while quiet.left().is_some() {
        assert_eq!(manager.heard(), "", "a beat of a supervisor that hangs");
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    daemon.kill();
    daemon.without_failpoints();
    daemon.restart();
}

#[test]
fn the_units_are_taken_by_systemd() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        skip("no systemd-analyze: `.ci/run` installs it");
        return;
    }
    let daemon = Setup::new(Tier::Shim).prepare();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = daemon.path().join("units");
    std::fs::create_dir(&folder).unwrap();
    for unit in ["procd.service", "procd.socket"] {
        let text = std::fs::read_to_string(root.join("systemd").join(unit)).unwrap();
        // The program where it is now: the checker wants it to be there.
        let text = text.replace("/usr/bin/procd", &binaries::path("procd").display().to_string());
        std::fs::write(folder.join(unit), text).unwrap();
    }
    let mut command = binaries::command("systemd-analyze");
    command.args(["verify", "--user", "--man=no"]);
    command.args([folder.join("procd.service"), folder.join("procd.socket")]);
    command.env("XDG_RUNTIME_DIR", daemon.path()).env("HOME", daemon.path());
    let verified = run::finish(command, b"", run::LONG);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(!said.contains("procd."), "{said}");
    let service = std::fs::read_to_string(root.join("systemd/procd.service")).unwrap();
    for line in [
        "Type=notify",
        "NotifyAccess=main",
        "Restart=on-failure",
        "Delegate=yes",
        "KillMode=mixed",
        "OOMPolicy=continue",
        "TasksMax=infinity",
        "UMask=0077",
        "RuntimeDirectory=procd",
        "StateDirectory=procd",
    ] {
        assert!(service.lines().any(|one| one == line), "no {line}");
    }
    for key in ["WatchdogSec=", "TimeoutStopSec=", "LimitNOFILE="] {
        assert!(service.lines().any(|one| one.starts_with(key)), "no {key}");
    }
}
