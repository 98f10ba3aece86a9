//! `procctl attach`, `procctl run -T`: one terminal inside another.

use procd_tests::{Setup, Tier, run::ctl, tmux::Screen, tmux::Tmux};
use serde_json::json;

use super::{terminate, told, until_code};
use crate::operate::json_of;

/// Waits until a pager shows a file of numbered lines from `first` on, over the whole screen.
fn until_page(screen: &Screen<'_>, first: usize, rows: usize) {
    screen.until(&format!("a page from {first} on, {rows} rows"), |text| {
        let page: Vec<&str> = text.lines().take(rows - 1).collect();
        page.len() == rows - 1
            && page.iter().enumerate().all(|(at, line)| *line == format!("line {}", first + at))
    });
}

#[test]
fn a_pager_is_opened_resized_left_and_opened_again_by_two_viewers() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let lines: String = (1..=500).map(|number| format!("line {number}\n")).collect();
    std::fs::write(daemon.cwd().join("lines"), lines).unwrap();
    let first = tmux.screen(80, 24);
    let before = first.modes();
    first.run("procctl start --tty --label pager -- less lines");
    first.line("procctl attach pager");
    until_page(&first, 1, 24);
    assert!(first.is_full_screen(), "the pager's own screen");
    first.keys(&["Space"]);
    until_page(&first, 24, 24);
    first.keys(&["g"]);
    until_page(&first, 1, 24);
    // It is told the new size and draws itself anew.
    first.resize(100, 40);
    until_page(&first, 1, 40);
    first.keys(&["C-p", "C-q"]);
    first.until("it is left", |text| text.contains("detached; `procctl attach pager` comes back"));
    assert_eq!(first.modes(), before, "the terminal is as it was");
    assert_eq!(json_of(&daemon, &["inspect", "pager"])["record"]["state"], "running");

    let second = tmux.screen(60, 20);
    first.line("clear; procctl attach pager");
    until_page(&first, 1, 40);
    second.line("procctl attach pager; echo code $?");
    // The size is that of whoever came last.
    until_page(&second, 1, 20);
    second.keys(&["Space"]);
    until_page(&second, 20, 20);
    first.until("the other viewer sees it too", |text| text.contains("line 38\n"));
    first.keys(&["g"]);
    until_page(&second, 1, 20);
    first.keys(&["C-p", "C-q"]);
    first.until("it is left", |text| text.contains("detached;"));
    assert_eq!(first.modes(), before, "the terminal is as it was");
    second.keys(&["Space"]);
    until_page(&second, 20, 20);
    second.keys(&["q"]);
    let end = until_code(&second, 0);
    assert!(end.contains("procctl: the process has ended: exited, code 0\n"), "{end}");
    assert_eq!(second.modes(), before, "the terminal is as it was");
}

#[test]
fn of_another_sessions_process_there_is_only_a_view() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let mut owner = daemon.owner();
    let more = json!({"tty": true, "background": true});
    let process = owner.start(&["cat"], more)["process_id"].as_str().unwrap().to_owned();
    owner.wire.ok("process/input", json!({"process_id": process, "data": "from its owner\n"}));
    let screen = tmux.screen(80, 24);
    let before = screen.modes();
    screen.line(&format!("procctl attach {process}; echo code $?"));
    let seen =
        screen.until("what it shows", |text| text.contains("from its owner\nfrom its owner\n"));
    assert!(seen.contains("another session's process: this is a view of it"), "{seen}");
    screen.keys(&["t", "y", "p", "e", "d", "Enter"]);
    owner.wire.ok("process/input", json!({"process_id": process, "data": "after the keys\n"}));
    let seen = screen.until("what comes", |text| text.contains("after the keys\nafter the keys\n"));
    assert!(!seen.contains("typed"), "keys are neither passed on nor shown: {seen}");
    screen.keys(&["C-c"]);
    until_code(&screen, 0);
    assert_eq!(screen.modes(), before, "the terminal is as it was");
    let output = owner.output(&process, json!({}))["output"].as_str().unwrap().to_owned();
    assert!(!output.contains("typed"), "{output}");
    owner.wire.ok("process/stop", json!({"process_id": process, "mode": "kill"}));
}

#[test]
fn a_viewer_that_is_ended_gives_the_terminal_back() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    std::fs::write(daemon.cwd().join("lines"), "line 1\n".repeat(100)).unwrap();
    let screen = tmux.screen(80, 24);
    let before = screen.modes();
    screen.run("procctl start --tty --label pager -- less lines");
    for words in ["attach pager", "attach --no-stdin pager"] {
        let (line, pid) = told(&daemon, words);
        screen.run("true");
        screen.line(&line);
        screen.until("the pager", |text| text.starts_with("line 1\nline 1\n"));
        terminate(&pid);
        until_code(&screen, 143);
        assert_eq!(screen.modes(), before, "{words}: the terminal is as it was");
    }
    assert_eq!(json_of(&daemon, &["inspect", "pager"])["record"]["state"], "running");
    ctl(&daemon, &["stop", "-t", "0", "pager"]).success();
}

#[test]
fn a_command_with_a_terminal_of_its_own_is_ended_with_the_one_who_runs_it() {
    let daemon = Setup::new(Tier::Shim).start();
    let Some(tmux) = Tmux::of(&daemon) else { return };
    let screen = tmux.screen(80, 24);
    let before = screen.modes();
    let seen =
        screen.run("procctl run -T -- sh -c \"test -t 0 && stty size; exit 7\"; echo code $?");
    assert!(seen.contains("24 80\n") && seen.contains("code 7\n"), "{seen}");
    let (line, pid) = told(&daemon, "run -T --label it -- sh -c \"echo up; exec sleep 600\"");
    screen.line(&line);
    screen.until("it is up", |text| text.lines().any(|line| line == "up"));
    terminate(&pid);
    until_code(&screen, 143);
    assert_eq!(screen.modes(), before, "the terminal is as it was");
    assert_eq!(json_of(&daemon, &["inspect", "it"])["record"]["state"], "terminated");
}
