//! What the documents say to type works as written.

use std::{
    fs,
    path::{Path, PathBuf},
};

use procd_tests::{
    Setup, Tier, binaries,
    folder::Folder,
    namespace,
    run::{self, LONG},
    wait,
};
use serde_json::json;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The runnable example kills a daemon, so it runs where it can only hit its own.
#[test]
fn the_example_of_a_killed_daemon_shows_what_it_says() {
    if namespace::has_run_inside(
        module_path!(),
        "the_example_of_a_killed_daemon_shows_what_it_says",
    ) {
        return;
    }
    let mut command = binaries::command(root().join("docs/examples/lost-on-restore.sh"));
    command.env("BIN", binaries::folder());
    let finished = run::finish(command, b"", LONG);
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    let text = finished.text();
    assert_eq!(finished.code, Some(0), "{text}{said}");
    assert!(
        text.contains("lost_on_restore") && text.trim_end().ends_with("some work done"),
        "{text}{said}"
    );
    assert_eq!(procd_tests::leaks::everybody(), Vec::<String>::new());
}

/// The README's first command, its build aside: the tests have built the same binaries already.
#[test]
fn the_first_command_of_the_readme_runs_a_job_with_nothing_set_up() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let first = "cargo build --release && target/release/procctl run -- sh -c 'echo hello; sleep 1; echo done'";
    assert!(
        readme.contains(first) && readme.contains("cargo xtask test"),
        "the two commands are in the README"
    );
    let home = Folder::new();
    let state = home.path().join(".local/state/procd");
    let procctl = |words: &[&str]| {
        let mut command = binaries::command(binaries::path("procctl"));
        command.args(words).env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
        for name in [
            "PROCD_SOCKET",
            "PROCD_STATE_DIR",
            "PROCD_CONFIG",
            "PROCD_DAEMON",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
        ] {
            command.env_remove(name);
        }
        run::finish(command, b"", LONG)
    };
    let finished = procctl(&["run", "--", "sh", "-c", "echo hello; sleep 1; echo done"]);
    assert_eq!(
        (finished.code, finished.text().as_str()),
        (Some(0), "hello\ndone\n"),
        "{finished:?}"
    );
    assert!(state.is_dir() && home.path().join("procd/procd.sock").exists());
    procctl(&["shutdown"]).success();
    wait::until_true("nothing is left", wait::STEP, || {
        procd_tests::leaks::processes(home.path()).is_empty()
    });
}

/// Every key of the shipped example is one that the daemon knows, with a value that it takes.
#[test]
fn the_example_of_a_configuration_is_taken_with_every_key_in_force() {
    let example = fs::read_to_string(root().join("docs/config.example.toml")).unwrap();
    let taken: Vec<&str> = example
        .lines()
        .filter(|line| !line.starts_with("#cgroup_root"))
        .map(|line| match line.strip_prefix('#') {
            Some(setting)
                if setting.starts_with(|c: char| c.is_ascii_lowercase())
                    && setting.contains(" = ") =>
            {
                setting
            }
            Some(_) | None => line,
        })
        .collect();
    let mut daemon = Setup::new(Tier::Shim).prepare();
    fs::write(daemon.path().join("config.toml"), taken.join("\n")).unwrap();
    daemon.restart();
    assert_eq!(daemon.owner().start(&["echo", "x"], json!({}))["output"], "x\n");
}
