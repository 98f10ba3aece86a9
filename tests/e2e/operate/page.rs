//! Every command of OPERATIONS.md is run: as it stands there, or where this file says.

use std::path::{Path, PathBuf};

use procd_tests::{Setup, Tier, binaries, run};

/// Commands in the text, and where they are run: a file, and what shows it there.
const RUN_ELSEWHERE: [(&str, &str, &str); 21] = [
    ("cargo build --release", "crates/xtask/src/operate.rs", "\"build\", \"--release\""),
    (
        "cargo xtask deb --tries",
        "crates/xtask/src/main.rs",
        "operate::deb(&gate::target_folder(), tries)",
    ),
    ("packaging/deb.sh", "tests/e2e/operate/package.rs", "packaging/deb.sh"),
    (
        "PREFIX=/usr/local packaging/install.sh",
        "tests/e2e/operate/package.rs",
        "packaging/install.sh",
    ),
    ("apt-get install ./procd_*.deb", "packaging/try.sh", "apt-get install --yes ./procd_*.deb"),
    ("apt-get purge procd", "packaging/try.sh", "apt-get purge --yes procd"),
    (
        "systemctl --user enable --now procd.socket",
        GUEST,
        "systemctl --user enable --now procd.socket",
    ),
    ("systemctl --user stop procd", GUEST, "systemctl --user stop procd"),
    ("loginctl enable-linger", GUEST, "loginctl enable-linger"),
    ("journalctl --user -u procd", GUEST, "journalctl --user -u procd"),
    ("procctl top", "tests/e2e/screens/top.rs", "procctl top"),
    ("procctl attach", "tests/e2e/screens/attach.rs", "procctl attach"),
    ("procctl logs", "tests/e2e/operators.rs", "\"logs\""),
    ("procctl ps", "tests/e2e/operators.rs", "\"ps\""),
    ("procctl stop --mode kill", "tests/e2e/operate/snapshots.rs", "\"--mode\", \"kill\""),
    ("procctl run", "tests/e2e/operators.rs", "\"run\""),
    ("procctl start", "tests/e2e/operate.rs", "\"start\""),
    ("procctl status", "tests/e2e/operators.rs", "\"status\""),
    ("procctl inspect", "tests/e2e/operate/commands.rs", "\"inspect\""),
    ("procctl metrics", "tests/e2e/operate/metrics.rs", "\"metrics\""),
    ("procctl reload", "tests/e2e/operate/settings.rs", "\"reload\""),
];
/// The checks in the guest, which has a real systemd.
const GUEST: &str = "tests/vm";
/// How a command begins.
const PROGRAMS: [&str; 11] = [
    "procctl ",
    "procd ",
    "systemctl ",
    "systemd-analyze ",
    "loginctl ",
    "journalctl ",
    "apt ",
    "apt-get ",
    "cargo ",
    "packaging/",
    "PREFIX=",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap()
}

/// The shell blocks of the page that are meant for any machine, in their order: the same shell runs
/// them all, so that what one starts the next one finds.
fn blocks(page: &str) -> Vec<String> {
    let of_shell = |block: &str| block.split_once("\n```").map(|(text, _)| text.to_owned());
    page.split("```sh\n").skip(1).filter_map(of_shell).collect()
}

#[test]
fn every_command_of_the_page_works_as_it_is_written() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let blocks = blocks(&page());
    assert!(blocks.len() >= 8, "the page has its commands in blocks");
    let script = format!("set -eu\n{}\n", blocks.join("\n"));
    let mut command = binaries::command("bash");
    command.args(["-c", &script]).envs(daemon.places()).current_dir(daemon.cwd());
    command.env("PATH", format!("{}:/usr/bin:/bin", binaries::folder().display()));
    command.env("HOME", daemon.path());
    let finished = run::finish(command, b"", run::LONG);
    assert_eq!(
        finished.code,
        Some(0),
        "{}\n{}",
        finished.text(),
        String::from_utf8_lossy(&finished.stderr)
    );
    // The page names no command of procctl that there is not.
    let page = page();
    for verb in page.split("`procctl ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
        let help = run::ctl(&daemon, &[verb, "--help"]);
        assert_eq!(help.code, Some(0), "the page names `procctl {verb}`");
    }
}

/// The commands that stand in the text, outside of the blocks.
fn in_text(page: &str) -> Vec<String> {
    let text: String = page.split("```").step_by(2).flat_map(|part| [part, "\n"]).collect();
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_command = |span: &&str| PROGRAMS.iter().any(|program| span.starts_with(program));
    let mut commands: Vec<String> = spans.filter(is_command).map(str::to_owned).collect();
    commands.sort();
    commands.dedup();
    commands
}

fn holds(path: &Path, text: &str) -> bool {
    if path.is_dir() {
        let files = std::fs::read_dir(path).unwrap().flatten();
        return files.into_iter().any(|file| holds(&file.path(), text));
    }
    std::fs::read_to_string(path).is_ok_and(|found| found.contains(text))
}

/// A command that is new in the text fails here until it is run somewhere.
#[test]
fn every_command_in_the_text_is_run_somewhere() {
    let page = page();
    let blocks = blocks(&page).join("\n");
    let commands = in_text(&page);
    assert!(commands.len() > 20, "{commands:?}");
    let is_known = |command: &str| {
        let is_elsewhere = RUN_ELSEWHERE.iter().any(|(known, ..)| {
            command.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        is_elsewhere || blocks.lines().any(|line| line.contains(command))
    };
    let unknown: Vec<&String> = commands.iter().filter(|command| !is_known(command)).collect();
    assert!(unknown.is_empty(), "no test runs {unknown:?}: see RUN_ELSEWHERE");
    for (command, place, shown) in RUN_ELSEWHERE {
        let is_named = commands.iter().any(|one| one.starts_with(command));
        assert!(is_named, "the page does not name `{command}` any more");
        assert!(holds(&root().join(place), shown), "{place} does not run `{command}`");
    }
}
