//! In a real terminal: attach with an editor or pager and several viewers, top, run with Ctrl-C,
//! and what fits a window.

use procd_tests::{Daemon, Setup, Tier, run::ctl, tmux::Tmux, wait};

use super::{fits, json_of};

fn daemon() -> Daemon {
    Setup::new(Tier::Shim).start()
}

/// Three hundred numbered lines for a pager.
fn pager(daemon: &Daemon) -> String {
    let lines: String = (1..=300).map(|number| format!("line {number}\n")).collect();
    std::fs::write(daemon.cwd().join("text"), lines).unwrap();
    let words = ["start", "--tty", "--label", "pager", "--", "less", "text"];
    ctl(daemon, &words).success().trim().to_owned()
}

#[test]
fn a_pager_is_attached_resized_detached_and_attached_by_two() {
    let daemon = daemon();
    pager(&daemon);
    let first = Tmux::start(&daemon, 80, 24);
    first.line("procctl attach pager");
    let screen = first.until("a full first page", |screen| {
        screen.contains("line 1\n") && screen.contains("line 23\n")
    });
    assert!(!screen.contains("line 24\n"), "{screen}");
    first.press("Space");
    first.until_shows("line 46\n");
    first.resize(100, 40);
    first.until("the larger page", |screen| {
        screen.lines().filter(|line| line.starts_with("line ")).count() == 39
    });
    first.press("C-p");
    first.press("C-q");
    first.until_shows("detached; `procctl attach pager` comes back");
    assert_eq!(json_of(&daemon, &["inspect", "pager"])["record"]["state"], "running");
    // Two at once: what one types both see.
    first.line("clear; procctl attach pager");
    first.until("the page again", |screen| screen.contains("line 2"));
    first.split();
    first.line("procctl attach --detach-keys ctrl-x pager");
    first.until("the page in the second window", |screen| screen.contains("line 2"));
    first.press("G");
    first.until_shows("line 300\n");
    first.window(0);
    first.until_shows("line 300\n");
    first.window(1);
    first.press("C-x");
    first.until_shows("detached;");
    first.window(0);
    first.press("q");
    first.until_shows("the process is exited");
    first.line("echo code $?; stty -a | grep -o '.icanon'");
    let screen = first.until_shows(" icanon");
    assert!(screen.contains("code 0"), "the terminal is as it was: {screen}");
}

#[test]
fn run_with_a_terminal_is_the_command_in_ones_own() {
    let daemon = daemon();
    let tmux = Tmux::start(&daemon, 80, 24);
    tmux.line("procctl run -T -- sh -c 'stty size; read x; echo got $x; exit 7'");
    tmux.until_shows("24 80");
    tmux.line("words");
    tmux.until_shows("got words");
    tmux.line("echo code $?");
    tmux.until_shows("code 7");
}

#[test]
fn ctrl_c_interrupts_what_runs_and_twice_terminates() {
    let daemon = daemon();
    let tmux = Tmux::start(&daemon, 80, 24);
    tmux.line("procctl run -- sh -c 'trap \"echo int; exit 9\" INT; echo ready; while :; do sleep 0.1; done'");
    tmux.until_shows("ready\n");
    tmux.press("C-c");
    tmux.until_shows("int\n");
    tmux.line("echo code $?");
    tmux.until_shows("code 9");
    tmux.line("clear; procctl run -- sh -c 'trap \"\" INT; echo deaf; exec sleep 600'");
    tmux.until_shows("deaf\n");
    tmux.press("C-c");
    tmux.press("C-c");
    tmux.until("the prompt", |screen| screen.trim_end().ends_with('$'));
    tmux.line("echo code $?");
    tmux.until_shows("code 143");
}

#[test]
fn top_shows_what_runs_chooses_and_stops_it() {
    let daemon = daemon();
    super::started(&daemon, "busy", &["sh", "-c", "while :; do :; done"]);
    super::started(&daemon, "calm", &["sleep", "600"]);
    let tmux = Tmux::start(&daemon, 80, 24);
    tmux.line("procctl top --every 0.3");
    let screen = tmux.until("both, with a graph", |screen| {
        screen.contains("busy") && screen.contains("calm") && screen.contains('█')
    });
    let row = |label: &str, screen: &str| screen.lines().position(|line| line.contains(label));
    fits(&screen, 80);
    tmux.until("the busy one first", |screen| row("busy", screen) < row("calm", screen));
    tmux.resize(160, 30);
    let wide = tmux.until("the wider picture", |screen| screen.contains("K kill"));
    fits(&wide, 160);
    tmux.press("Down");
    tmux.press("k");
    tmux.until("the question", |screen| screen.contains("? y: yes"));
    tmux.press("n");
    tmux.until("no question any more", |screen| !screen.contains("? y: yes"));
    tmux.press("K");
    tmux.until("the question", |screen| screen.contains("? y: yes"));
    tmux.press("y");
    tmux.until("one is gone", |screen| screen.contains(" is killed, after"));
    tmux.press("q");
    tmux.until("the shell again", |screen| screen.contains("$ procctl top"));
    let running = json_of(&daemon, &["ps", "--filter", "state=running"]);
    assert_eq!(running.as_array().unwrap().len(), 1);
    for label in ["busy", "calm"] {
        drop(ctl(&daemon, &["kill", "-s", "KILL", label]));
    }
    wait::until_true("nothing runs", wait::STEP, || {
        json_of(&daemon, &["ps", "--filter", "state=running"]) == serde_json::json!([])
    });
}

#[test]
fn tables_fit_their_window_and_an_export_has_a_bar() {
    let daemon = daemon();
    let long = "x".repeat(200);
    super::started(&daemon, "long", &["sh", "-c", &format!("sleep 600 # {long}")]);
    let bytes = super::started(&daemon, "bytes", &["head", "-c", "30000000", "/dev/zero"]);
    ctl(&daemon, &["wait", &bytes]).success();
    let tmux = Tmux::start(&daemon, 80, 40);
    for columns in [80, 160] {
        tmux.resize(columns, 40);
        for (words, wanted) in [
            ("ps", "long"),
            ("status", "restore:"),
            ("doctor", "settings"),
            ("stats", "long"),
            ("sessions", "procctl"),
        ] {
            tmux.line(&format!("clear; procctl {words}; echo over"));
            let screen = tmux.until(words, |screen| {
                screen.contains(wanted) && screen.lines().any(|line| line == "over")
            });
            // A line that the terminal had wrapped would go on in the first column.
            fits(&screen, usize::from(columns));
            assert!(!screen.lines().any(|line| line.starts_with("xxxx")), "{screen}");
        }
    }
    // Every picture of the bar is drawn over the one before, so the terminal's own record is read.
    let log = daemon.path().join("typescript");
    tmux.line(&format!(
        "clear; script -qc 'procctl export -o out bytes' {} ; echo over",
        log.display()
    ));
    tmux.until("the end of it", |screen| {
        screen.contains("30000000 bytes, sha256") && screen.lines().any(|line| line == "over")
    });
    let drawn = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    assert!(drawn.contains("░") && drawn.contains("100%"), "no bar in {drawn:?}");
    assert_eq!(std::fs::metadata(daemon.cwd().join("out")).unwrap().len(), 30_000_000);
    ctl(&daemon, &["stop", "-t", "0", "long"]).success();
}
