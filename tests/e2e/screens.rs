//! procctl in a real terminal: what a person sees, and how the terminal is left.

mod attach;
mod run;
mod top;

use std::path::PathBuf;

use procd_tests::{Daemon, tmux::Screen, wait};
use rustix::process::{Pid, Signal, kill_process};

/// A line for the shell that runs procctl, tells its pid first and its exit code at the end.
fn told(daemon: &Daemon, words: &str) -> (String, PathBuf) {
    let file = daemon.path().join("pid");
    drop(std::fs::remove_file(&file));
    let line = format!(
        "sh -c 'echo $$ >{0}.part; mv {0}.part {0}; exec procctl {words}'; echo code $?",
        file.display()
    );
    (line, file)
}

/// Ends the procctl that a line of [`told`] began.
fn terminate(pid: &PathBuf) {
    let text =
        wait::until("procctl tells its pid", wait::STEP, || std::fs::read_to_string(pid).ok());
    let pid = text.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
}

/// Runs a line and waits for its `code N`.
fn until_code(screen: &Screen<'_>, code: u8) -> String {
    let wanted = format!("code {code}");
    screen.until(&wanted, |text| text.lines().any(|line| line == wanted))
}
