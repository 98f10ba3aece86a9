//! Real commands under procctl come out exactly as they do bare.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use procd_tests::{
    Daemon, Finished, Setup, Tier, binaries,
    run::{self, LONG, ctl, procctl},
    wait,
};
use rustix::process::Signal;

/// Runs the words bare, in the daemon's folder of commands.
fn bare(daemon: &Daemon, words: &[&str]) -> Finished {
    let mut command = binaries::command(words[0]);
    command.args(&words[1..]).current_dir(daemon.cwd());
    run::finish(command, b"", LONG)
}

/// Runs the words under `procctl run`, as a user would.
fn supervised(daemon: &Daemon, words: &[&str]) -> Finished {
    ctl(daemon, &[&["run", "--"], words].concat())
}

both_tiers! {
    /// Both streams, forks, 50 MB, and a code.
    fn a_fixed_script_gives_the_same_bytes_and_code(tier) {
        let daemon = Setup::new(tier).start();
        let script = format!(
            "printf 'no line end'; {0} write 40000000; {0} write-err 10000000 ; sh -c 'echo child; echo warned >&2' & wait; \
             (printf '\\000\\377\\033[1m'); {0} write 1000000 & wait; exit 7",
            binaries::probe(),
        );
        let words = ["sh", "-c", &script];
        let (alone, under) = (bare(&daemon, &words), supervised(&daemon, &words));
        assert_eq!((alone.code, under.code), (Some(7), Some(7)), "{}", String::from_utf8_lossy(&under.stderr[..under.stderr.len().min(1000)]));
        assert!(alone.stdout == under.stdout, "stdout: {} bytes bare, {} supervised", alone.stdout.len(), under.stdout.len());
        assert!(alone.stderr == under.stderr, "stderr: {} bytes bare, {} supervised", alone.stderr.len(), under.stderr.len());
    }

    fn run_exits_as_the_command_did(tier) {
        let daemon = Setup::new(tier).start();
        for (line, code) in [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)] {
            assert_eq!(supervised(&daemon, &["sh", "-c", line]).code, Some(code), "{line}");
        }
    }

    /// Ctrl-C: the command is interrupted, and ends as one that was.
    fn an_interrupt_is_passed_on(tier) {
        let daemon = Setup::new(tier).start();
        let line = "trap 'echo interrupted; exit 42' INT; echo ready; while :; do sleep 0.05; done";
        let mut running = run::start(procctl(&daemon, &["run", "--", "sh", "-c", line]));
        until_listed(&daemon, "running");
        let mut operator = daemon.operator();
        wait::until_true("the trap is set", wait::STEP, || {
            let list = operator.ok("process/list", serde_json::json!({}));
            list["records"][0]["total_bytes"].as_u64() >= Some(6)
        });
        running.signal(Signal::INT);
        let finished = finish(&mut running, run::LONG);
        assert_eq!(finished.0, "ready\ninterrupted\n", "{}", finished.1);
        let plain = run::start(procctl(&daemon, &["run", "--", "sleep", "600"]));
        until_listed(&daemon, "running");
        plain.signal(Signal::INT);
        assert_eq!(plain.finish(wait::STEP).code, Some(130));
    }

    /// A second Ctrl-C within two seconds ends what does not care for the first.
    fn a_second_interrupt_terminates(tier) {
        let daemon = Setup::new(tier).limit("grace_ms = 300").start();
        let line = "trap 'echo once' INT; echo ready; while :; do sleep 0.05; done";
        let mut running = run::start(procctl(&daemon, &["run", "--", "sh", "-c", line]));
        until_listed(&daemon, "running");
        let mut operator = daemon.operator();
        let mut total = |least: u64| {
            wait::until_true("the command has written", wait::STEP, || {
                let list = operator.ok("process/list", serde_json::json!({}));
                list["records"][0]["total_bytes"].as_u64() >= Some(least)
            });
        };
        total(6);
        running.signal(Signal::INT);
        total(11);
        // One of them comes within two seconds of the one before, however slow the machine is.
        wait::until_true("it ends", wait::STEP, || {
            running.signal(Signal::INT);
            std::thread::park_timeout(Duration::from_millis(100));
            running.child.try_wait().unwrap().is_some()
        });
        let finished = running.finish(wait::STEP);
        assert_ne!(finished.code, Some(0), "{}", finished.text());
        assert!(finished.text().starts_with("ready\nonce\n"), "{}", finished.text());
    }

    /// Started here, found there, followed, stopped: and its port is free.
    fn a_server_is_found_followed_and_stopped_with_its_port_freed(tier) {
        let daemon = Setup::new(tier).start();
        let started = ctl(&daemon, &["start", "--", &binaries::probe(), "listen"]).success();
        let process = started.trim().to_owned();
        assert!(ctl(&daemon, &["ps", "-q"]).success().contains(&process[..6]), "not found by another client");
        let mut follow = run::procctl(&daemon, &["logs", "-f", &process]);
        let mut follow = follow.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(follow.stdout.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        for count in 0..3 {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(format!("GET /{count} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello\n"), "{answer}");
            let mut line = String::new();
            log.read_line(&mut line).unwrap();
            assert_eq!(line, format!("request GET /{count} HTTP/1.0\n"));
        }
        ctl(&daemon, &["stop", &process]).success();
        TcpListener::bind(("127.0.0.1", port)).expect("the port is free when stop returns");
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        follow.wait().unwrap();
    }
}

/// What a running command wrote and said; its end in time.
fn finish(running: &mut run::Running, limit: Duration) -> (String, String) {
    drop(running.child.stdin.take());
    wait::until("the command ends", limit, || running.child.try_wait().unwrap());
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = running.collected();
    (text(stdout), text(stderr))
}

fn until_listed(daemon: &Daemon, state: &str) {
    let mut operator = daemon.operator();
    let ask = serde_json::json!({"state": state});
    wait::until_true("the process is listed", wait::STEP, || {
        operator.ok("process/list", ask.clone())["records"] != serde_json::json!([])
    });
}

/// Copies what a build of one small package of the workspace needs, with the rest of the workspace cut off.
fn workspace_copy(to: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let copy = to.join("workspace");
    for folder in ["crates/procd-core", "crates/procd-text"] {
        copy_folder(&root.join(folder), &copy.join(folder));
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.lines().map(|line| match line {
        line if line.starts_with("members") => "members = [\"crates/*\"]",
        line if line.starts_with("default-members") => "",
        line => line,
    });
    fs::write(copy.join("Cargo.toml"), members.collect::<Vec<_>>().join("\n")).unwrap();
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock")).unwrap();
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Lines of a build: times removed, sorted.
fn lines(output: &Finished) -> Vec<String> {
    let text = format!("{}{}", output.text(), String::from_utf8_lossy(&output.stderr));
    let timeless = |line: &str| line.split(" in ").next().unwrap_or_default().to_owned();
    let mut lines: Vec<String> =
        text.lines().filter(|line| !line.contains("Blocking waiting")).map(timeless).collect();
    lines.sort();
    lines
}

#[test]
fn a_build_says_the_same_and_a_failing_one_gives_its_code() {
    let daemon = Setup::new(Tier::Shim).start();
    let copy = workspace_copy(daemon.path());
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let build = |target: &str| {
        let line = format!(
            "cd '{}' && CARGO_TARGET_DIR='{target}' exec '{cargo}' build -p procd-core --offline",
            copy.display()
        );
        ["sh".to_owned(), "-c".to_owned(), line]
    };
    // The failing build finds everything but the broken crate built: what cargo says of other
    // jobs under way depends on their timing.
    let run_both = || {
        let target = |name: &str| daemon.path().join(name).to_string_lossy().into_owned();
        let (one, two) = (build(&target("bare")), build(&target("supervised")));
        let words = |words: &[String; 3]| words.clone();
        let alone = bare(&daemon, &words(&one).each_ref().map(String::as_str));
        let under = supervised(&daemon, &words(&two).each_ref().map(String::as_str));
        (alone, under)
    };
    let (alone, under) = run_both();
    assert_eq!((alone.code, under.code), (Some(0), Some(0)), "{:?}", lines(&under));
    assert_eq!(lines(&alone), lines(&under));
    fs::write(copy.join("crates/procd-core/src/lib.rs"), "fn broken( {").unwrap();
    let (alone, under) = run_both();
    assert_eq!((alone.code, under.code), (Some(101), Some(101)), "{:?}", lines(&under));
    assert_eq!(lines(&alone), lines(&under));
}

/// A command whose arguments no shell ever sees.
#[test]
fn arguments_reach_the_command_untouched() {
    let daemon = Setup::new(Tier::Shim).start();
    let words = ["printf", "%s|", "a b", "$HOME", "*", "'\"\\", "", "-n", "--", "\u{20ac}"];
    assert_eq!(supervised(&daemon, &words).success(), bare(&daemon, &words).success());
}

/// What is typed into `procctl run` is not lost on a command that reads it from elsewhere.
#[test]
fn a_command_that_does_not_exist_is_told_from_one_that_fails() {
    let daemon = Setup::new(Tier::Shim).start();
    let missing = supervised(&daemon, &["no-such-program-on-any-path"]);
    assert!(missing.code != Some(0) && !missing.stderr.is_empty(), "{missing:?}");
    assert!(missing.stdout.is_empty(), "{missing:?}");
}
