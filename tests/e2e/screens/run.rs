//! `procctl run` under the interrupt key, and the bar of `procctl export`.

use std::io::Read as _;

use procd_tests::{
    Setup, Tier, binaries,
    run::{self, LONG, ctl},
    tmux::Tmux,
};

use super::until_code;
use crate::operate::json_of;

#[test]
fn the_interrupt_key_interrupts_and_the_commands_code_comes_back() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let screen = tmux.screen(80, 24);
    let before = screen.modes();
    let trap = "trap \"echo asked; exit 7\" INT";
    let command = format!("{trap}; echo up; while :; do sleep 0.05; done");
    screen.line(&format!("procctl run --label it -- sh -c '{command}'; echo code $?"));
    screen.until("it is up", |text| text.lines().any(|line| line == "up"));
    screen.keys(&["C-c"]);
    let seen = until_code(&screen, 7);
    assert!(seen.lines().any(|line| line.ends_with("asked")), "{seen}");
    assert_eq!(json_of(&daemon, &["inspect", "it"])["record"]["state"], "interrupted");
    assert_eq!(screen.modes(), before);
}

#[test]
fn the_interrupt_key_pressed_twice_terminates() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let screen = tmux.screen(80, 24);
    let traps = "trap '' INT; trap 'echo asked; exit 9' TERM";
    let stubborn = format!("{traps}; echo up; while :; do sleep 0.05; done\n");
    std::fs::write(daemon.cwd().join("stubborn"), stubborn).unwrap();
    // The key reaches this shell too, which goes on to tell the code.
    screen.line("sh -c 'trap : INT; procctl run --label it -- sh stubborn; echo code $?'");
    screen.until("it is up", |text| text.lines().any(|line| line == "up"));
    // On a slow machine two presses may be more than 2 s apart: then the next two are not.
    let seen = screen.until("it is terminated", |text| {
        let is_ended = text.lines().any(|line| line == "code 9");
        if !is_ended {
            screen.keys(&["C-c"]);
        }
        is_ended
    });
    assert!(seen.lines().any(|line| line.ends_with("asked")), "{seen}");
    assert_eq!(json_of(&daemon, &["inspect", "it"])["record"]["state"], "terminated");
}

#[test]
fn an_export_shows_its_bar_where_somebody_looks_and_takes_it_away() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let words = ["start", "--label", "big", "--", "head", "-c", "4194304", "/dev/zero"];
    ctl(&daemon, &words).success();
    ctl(&daemon, &["wait", "big"]).success();
    let pipe = daemon.cwd().join("pipe");
    let mut command = binaries::command("mkfifo");
    command.arg(&pipe);
    run::finish(command, b"", LONG).success();
    let screen = tmux.screen(80, 24);
    screen.line("procctl export big >pipe; echo code $?");
    let mut reader = std::fs::File::open(&pipe).unwrap();
    // Nobody takes more for now: the bar stays where it is.
    let mut some = vec![0; 1_000_000];
    reader.read_exact(&mut some).unwrap();
    let seen = screen.until("the bar", |text| text.contains("% "));
    let bar = seen.lines().find(|line| line.contains("% ")).unwrap();
    assert!(bar.starts_with('█') && bar.contains('░') && bar.contains(" of 4.0 MiB"), "{bar}");
    assert!(bar.chars().count() < 80, "{bar}");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(some.len() + rest.len(), 4_194_304);
    let seen = until_code(&screen, 0);
    assert!(!seen.contains('█'), "the bar is taken away: {seen}");
    assert!(seen.contains("procctl: 4194304 bytes, sha256 "), "{seen}");
    // Where the data itself is shown there is none.
    let words = ["start", "--label", "small", "--", "echo", "all of it"];
    ctl(&daemon, &words).success();
    ctl(&daemon, &["wait", "small"]).success();
    let seen = screen.run("procctl export small");
    assert!(seen.lines().any(|line| line == "all of it") && !seen.contains('█'), "{seen}");
    let seen = screen.run("procctl export -o file big 2>said; wc -c <said");
    assert!(seen.lines().any(|line| line == "0"), "nothing is said to a file: {seen}");
}
