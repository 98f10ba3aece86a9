//! `procctl top` on the full screen.

use procd_tests::{Daemon, Setup, Tier, run::ctl, tmux::Screen, tmux::Tmux};

use super::{terminate, told, until_code};
use crate::operate::{json_of, started};

/// The labels in the table, from above.
fn labels(text: &str) -> Vec<&str> {
    let rows = text.lines().skip_while(|line| !line.starts_with("HANDLE ")).skip(1);
    let mut rows: Vec<&str> = rows.take_while(|line| !line.is_empty()).collect();
    // The foot.
    rows.pop();
    rows.into_iter().filter_map(|row| row.split_whitespace().nth(1)).collect()
}

/// The screen once the table is sorted by `column`, with these labels from above.
fn until_sorted(screen: &Screen<'_>, column: &str, wanted: &[&str]) -> String {
    screen.until(&format!("{column}: {wanted:?}"), |text| {
        text.contains(&format!("{column}↓")) && labels(text) == wanted
    })
}

fn busy(daemon: &Daemon) {
    started(daemon, "tree", &["sh", "-c", "sleep 600 & sleep 600 & sleep 600 & wait"]);
    started(daemon, "loud", &["sh", "-c", "while :; do echo line; sleep 0.05; done"]);
    started(daemon, "idle", &["sleep", "600"]);
}

#[test]
fn it_draws_sorts_stops_and_leaves_the_terminal_clean() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    busy(&daemon);
    for (columns, rows) in [(80, 24), (160, 50)] {
        let screen = tmux.screen(columns, rows);
        let before = screen.modes();
        screen.run("true");
        screen.line("procctl top --every 0.2; echo code $?");
        let seen = screen.until("the table", |text| labels(text).len() == 3);
        assert!(screen.is_full_screen());
        let lines: Vec<&str> = seen.lines().collect();
        assert!(lines[0].starts_with("procd ") && lines[0].contains("3 running"), "{seen}");
        for (at, head) in [(1, "CPU "), (2, "MEMORY "), (3, "OUTPUT "), (5, "HANDLE ")] {
            assert!(lines[at].starts_with(head), "line {at} in\n{seen}");
        }
        // Nothing is wrapped: the foot is right below the three rows.
        assert_eq!(lines[9], "q quit  s sort  ↑↓ choose  k stop  K kill", "{seen}");
        assert!(lines[10..].iter().all(|line| line.is_empty()), "{seen}");
        assert_eq!(seen.contains("sleep 0.05; done"), columns == 160, "{seen}");
        assert_eq!(seen.contains('…'), columns == 80, "what is cut has a mark: {seen}");
        screen.keys(&["s"]);
        screen.until("by memory", |text| text.contains("MEMORY↓"));
        screen.keys(&["s"]);
        screen.until("by output", |text| {
            text.contains("OUT/S↓") && labels(text).first() == Some(&"loud")
        });
        screen.keys(&["s"]);
        until_sorted(&screen, "TREE", &["tree", "loud", "idle"]);
        screen.keys(&["s"]);
        until_sorted(&screen, "AGE", &["idle", "loud", "tree"]);
        screen.resize(columns + 20, rows - 4);
        until_sorted(&screen, "AGE", &["idle", "loud", "tree"]);
        screen.keys(&["q"]);
        let seen = until_code(&screen, 0);
        assert!(!seen.contains("HANDLE"), "{seen}");
        assert_eq!(screen.modes(), before, "the terminal is as it was");
    }
    ctl(&daemon, &["stop", "-t", "0", "tree", "loud", "idle"]).success();
}

#[test]
fn a_process_is_stopped_from_there_when_that_is_confirmed() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    busy(&daemon);
    let screen = tmux.screen(100, 30);
    screen.line("procctl top --every 0.2 --sort age");
    until_sorted(&screen, "AGE", &["idle", "loud", "tree"]);
    screen.keys(&["k"]);
    screen.until("what to do first", |text| text.contains("choose a process with the arrow keys"));
    screen.keys(&["Down", "Down", "k"]);
    screen.until("the question", |text| text.contains("stop loud? y: yes, any other key: no"));
    assert!(
        screen.coloured().lines().any(|line| line.contains("\u{1b}[7m") && line.contains("loud"))
    );
    screen.keys(&["n"]);
    screen.until("no is no", |text| text.contains("q quit"));
    screen.keys(&["k", "y"]);
    screen.until("what became of it", |text| text.contains("loud is terminated, after "));
    until_sorted(&screen, "AGE", &["idle", "tree"]);
    assert_eq!(json_of(&daemon, &["inspect", "loud"])["record"]["state"], "terminated");
    screen.keys(&["Down", "K", "y"]);
    screen.until("what became of it", |text| text.contains(" is killed, after "));
    // The key that interrupts leaves it, too.
    screen.keys(&["C-c"]);
    screen.until("it is left", |text| text.starts_with("ready>") && !text.contains("HANDLE"));
    // One of the two is killed by now.
    ctl(&daemon, &["stop", "--session", "procctl"]).success();
}

#[test]
fn the_terminal_is_given_back_after_a_signal_and_after_an_error() {
    let mut daemon = Setup::new(Tier::Shim).start();
    started(&daemon, "idle", &["sleep", "600"]);
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let screen = tmux.screen(80, 24);
    let before = screen.modes();
    let (line, pid) = told(&daemon, "top --every 0.2");
    screen.line(&line);
    screen.until("the table", |text| labels(text) == ["idle"]);
    terminate(&pid);
    until_code(&screen, 143);
    assert_eq!(screen.modes(), before, "the terminal is as it was");
    screen.run("true");
    screen.line(&line);
    screen.until("the table", |text| labels(text) == ["idle"]);
    daemon.kill();
    let seen = until_code(&screen, 5);
    assert!(seen.contains("procctl: ") && seen.contains("daemon"), "{seen}");
    assert_eq!(screen.modes(), before, "the terminal is as it was");
    drop(screen);
    drop(tmux);
    daemon.restart();
}
