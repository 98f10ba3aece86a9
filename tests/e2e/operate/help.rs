//! The help of each command, kept as text: what it says changes only on purpose. `PROCD_BLESS=1`
//! writes it anew.

use std::fs;

use procd_tests::{Setup, Tier, run::ctl};

use super::golden::same_as_kept;

const COMMANDS: [&str; 28] = [
    "run",
    "start",
    "ps",
    "logs",
    "input",
    "wait",
    "stop",
    "kill",
    "attach",
    "inspect",
    "events",
    "sessions",
    "stats",
    "top",
    "export",
    "prune",
    "rm",
    "pin",
    "unpin",
    "status",
    "doctor",
    "metrics",
    "reload",
    "config",
    "raw",
    "completion",
    "man",
    "shutdown",
];

#[test]
fn every_command_has_its_help_and_the_list_has_every_command() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let whole = ctl(&daemon, &["--help"]).success();
    same_as_kept("help/procctl.txt", &whole);
    let listed: Vec<&str> = whole
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| *word != "help")
        .collect();
    assert_eq!(listed, COMMANDS);
    for command in COMMANDS {
        let help = ctl(&daemon, &[command, "--help"]).success();
        same_as_kept(&format!("help/{command}.txt"), &help);
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2_and_says_so_on_stderr() {
    let daemon = Setup::new(Tier::Shim).prepare();
    for words in [
        &["no-such"][..],
        &["ps", "--no-such"],
        &["stop"],
        &["kill"],
        &["attach"],
        &["export"],
        &["rm"],
        &["raw"],
        &["completion", "tcsh"],
        &["man", "no-such"],
        &["events", "--since", "soon"],
        &["prune", "--older", "soon"],
        &["attach", "--detach-keys", "f5", "x"],
        &["--owner", "sessions"],
        &["--format", "xml", "ps"],
    ] {
        let finished = ctl(&daemon, words);
        assert_eq!(finished.code, Some(2), "{words:?}: {finished:?}");
        assert!(finished.stdout.is_empty() && !finished.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn manual_pages_are_made_for_every_command() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let folder = daemon.path().join("man");
    fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    ctl(&daemon, &["man", "--folder", folder]).success();
    for command in COMMANDS {
        let page = fs::read_to_string(format!("{folder}/procctl-{command}.1")).unwrap();
        assert!(page.contains(".TH procctl-"), "{command}: {page}");
    }
    let whole = ctl(&daemon, &["man"]).success();
    assert_eq!(whole, fs::read_to_string(format!("{folder}/procctl.1")).unwrap());
    assert!(ctl(&daemon, &["man", "logs"]).success().contains("procctl-logs"));
}

#[test]
fn shells_complete_commands_options_live_handles_and_labels() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = super::started(&daemon, "web", &["sleep", "600"]);
    for shell in ["bash", "zsh", "fish"] {
        let script = ctl(&daemon, &["completion", shell]).success();
        assert!(script.contains("procctl") && script.contains("COMPLETE"), "{shell}: {script}");
    }
    let completed = |words: &[&str]| {
        let index = (words.len() - 1).to_string();
        let mut command = procd_tests::run::procctl(&daemon, &["--"]);
        command.args(words).env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index);
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
        command.env("_CLAP_IFS", "\n");
        procd_tests::run::finish(command, b"", procd_tests::run::LONG).success()
    };
    assert!(completed(&["procctl", "unp"]).contains("unpin"));
    assert!(completed(&["procctl", "logs", "--foll"]).contains("--follow"));
    for verb in ["logs", "stop", "inspect"] {
        let names = completed(&["procctl", verb, ""]);
        assert!(names.contains(&process) && names.contains("web"), "{verb}: {names}");
    }
    let names = completed(&["procctl", "logs", "--", &process[..4]]);
    assert!(names.contains(&process) && !names.contains("web"), "{names}");
    ctl(&daemon, &["stop", "-t", "0", "web"]).success();
}
