//! Real terminals: a tmux server of the test's own, in which a shell runs what is typed, and whose
//! screens are read as a person would see them.

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    Daemon, Finished, binaries,
    run::{self, LONG},
    wait,
};

/// What the shell in a terminal says when it waits.
const PROMPT: &str = "ready> ";

/// A tmux server. Dropping it ends it, and with it whatever runs in its terminals.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
    folder: PathBuf,
    places: Vec<(String, String)>,
    screens: AtomicUsize,
}

impl Tmux {
    /// A server whose terminals have the places of `daemon`; none where there is no tmux, which is
    /// said.
    #[must_use]
    pub fn of(daemon: &Daemon) -> Option<Self> {
        let mut command = binaries::command("sh");
        command.args(["-c", "command -v tmux && command -v less"]);
        if run::finish(command, b"", LONG).code != Some(0) {
            crate::skip("no tmux or no less: `.ci/run` installs them");
            return None;
        }
        Some(Self {
            socket: daemon.path().join("tmux"),
            folder: daemon.cwd(),
            places: daemon.places(),
            screens: AtomicUsize::new(0),
        })
    }

    /// A terminal of that size with a shell that waits for a line.
    /// # Panics
    /// When there is none in time.
    #[must_use]
    pub fn screen(&self, columns: u16, rows: u16) -> Screen<'_> {
        let number = self.screens.fetch_add(1, Ordering::Relaxed);
        let name = format!("s{number}");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let words = ["new-session", "-d", "-s", &name, "-x", &columns, "-y", &rows, "exec sh -i"];
        self.done(&words);
        let screen = Screen { tmux: self, name };
        screen.until("the shell waits", |text| text.starts_with(PROMPT.trim_end()));
        screen
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binaries::command("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(words);
        let path = format!("{}:/usr/bin:/bin", binaries::folder().display());
        command.env_clear().current_dir(&self.folder).envs(self.places.iter().cloned());
        command.env("PATH", path).env("PROCD_DAEMON", binaries::path("procd"));
        command.env("HOME", &self.folder).env("PS1", PROMPT).env("LC_ALL", "C.UTF-8");
        command.env("SHELL", "/bin/sh").env("LESSHISTFILE", "-");
        command
    }

    fn done(&self, words: &[&str]) -> String {
        let finished: Finished = run::finish(self.command(words), b"", LONG);
        finished.success()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let asked = run::finish(self.command(&["display-message", "-p", "#{pid}"]), b"", LONG);
        drop(run::finish(self.command(&["kill-server"]), b"", LONG));
        let pid = asked.text();
        let server = PathBuf::from("/proc").join(pid.trim());
        if asked.code == Some(0) && !std::thread::panicking() {
            wait::until_true("tmux ends", wait::STEP, || !server.exists());
        }
    }
}

/// One terminal.
#[derive(Debug)]
pub struct Screen<'t> {
    tmux: &'t Tmux,
    name: String,
}

/// What a program may change of a terminal, and has to put back.
#[derive(Debug, PartialEq, Eq)]
pub struct Modes {
    /// Other screen, cursor, keypad, cursor keys, mouse, as tmux has them.
    flags: String,
    /// The line discipline, as `stty -g` tells it.
    line: String,
}

impl Screen<'_> {
    /// What is seen, line by line, blanks at their ends aside.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.tmux.done(&["capture-pane", "-p", "-t", &self.name]);
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// What is seen, with its colours.
    #[must_use]
    pub fn coloured(&self) -> String {
        self.tmux.done(&["capture-pane", "-e", "-p", "-t", &self.name])
    }

    /// What is seen once it is as wanted.
    /// # Panics
    /// With the screen, when that does not come.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn until(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let deadline = wait::Deadline::after(wait::STEP);
        loop {
            let text = self.text();
            if is_wanted(&text) {
                return text;
            }
            if deadline.left().is_none() {
                panic!("not seen: {what}; on the screen is\n{text}");
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    }

    /// Types a line into whatever reads.
    pub fn line(&self, text: &str) {
        self.tmux.done(&["send-keys", "-t", &self.name, "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys by tmux's names for them.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux.done(&[&["send-keys", "-t", &self.name], keys].concat());
    }

    /// Makes the window that large.
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux.done(&["resize-window", "-t", &self.name, "-x", &columns, "-y", &rows]);
    }

    /// Runs a line in the shell and gives what the screen shows of it, the shell waiting again.
    pub fn run(&self, line: &str) -> String {
        self.line("clear");
        self.until("a clear screen", |text| text.trim() == PROMPT.trim());
        self.line(line);
        self.until(line, |text| {
            text.lines().filter(|one| one.starts_with(PROMPT.trim_end())).count() >= 2
        })
    }

    /// How the terminal is, while its shell waits.
    #[must_use]
    pub fn modes(&self) -> Modes {
        let file = self.tmux.folder.join(format!("{}.modes", self.name));
        drop(std::fs::remove_file(&file));
        self.line(&format!("stty -g >{0}.part && mv {0}.part {0}", file.display()));
        let line =
            wait::until("the modes are told", wait::STEP, || std::fs::read_to_string(&file).ok());
        let flags = "#{alternate_on} #{cursor_flag} #{keypad_flag} #{keypad_cursor_flag} \
                     #{mouse_any_flag} #{insert_flag} #{wrap_flag} #{origin_flag}";
        let words = ["display-message", "-p", "-t", &self.name, flags];
        Modes { flags: self.tmux.done(&words).trim().to_owned(), line: line.trim().to_owned() }
    }

    /// Whether the other screen is shown, the one of full-screen programs.
    #[must_use]
    pub fn is_full_screen(&self) -> bool {
        let words = ["display-message", "-p", "-t", &self.name, "#{alternate_on}"];
        self.tmux.done(&words).trim() == "1"
    }
}
