//! A real terminal for a test: a tmux server of its own, with a shell in it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    Daemon, binaries,
    run::{Finished, finish},
    wait::{STEP, until},
};

/// How long one command of tmux may take.
const COMMAND: Duration = Duration::from_secs(60);

/// See the module. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// A terminal of this size with a shell in it, procctl on its path and the daemon's places in
    /// its environment.
    /// # Panics
    /// Without tmux: `.ci/run` installs it.
    #[must_use]
    pub fn start(daemon: &Daemon, columns: u16, rows: u16) -> Self {
        let tmux = Self { socket: daemon.path().join("tmux") };
        let size = [columns.to_string(), rows.to_string()];
        let mut command = tmux.command(&["new-session", "-d", "-x", &size[0], "-y", &size[1]]);
        command.args(["env", "PS1=$ ", "sh"]);
        command.envs(daemon.places()).current_dir(daemon.cwd());
        command.env("PROCD_DAEMON", binaries::path("procd"));
        command.env("PATH", format!("{}:/usr/bin:/bin", binaries::folder().display()));
        command.env("LANG", "C.UTF-8").env_remove("LC_ALL").env_remove("TMUX");
        let made = finish(command, b"", COMMAND);
        assert_eq!(made.code, Some(0), "a terminal by tmux (`.ci/run` installs it): {made:?}");
        tmux.done(&["set-option", "-g", "window-size", "manual"]);
        tmux.resize(columns, rows);
        tmux.until_shows("$");
        tmux
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binaries::command("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket).args(words);
        command
    }

    fn done(&self, words: &[&str]) -> Finished {
        let finished = finish(self.command(words), b"", COMMAND);
        assert_eq!(finished.code, Some(0), "tmux {words:?}: {finished:?}");
        finished
    }

    /// A second terminal on the same server.
    pub fn split(&self) {
        self.done(&["new-window", "env", "PS1=$ ", "sh"]);
    }

    /// Another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = [columns.to_string(), rows.to_string()];
        self.done(&["resize-window", "-x", &size[0], "-y", &size[1]]);
    }

    /// Types a line and presses enter.
    pub fn line(&self, text: &str) {
        self.done(&["send-keys", "-l", text]);
        self.press("Enter");
    }

    /// Presses a key as tmux names it, such as `C-c`, `q`, `Up`.
    pub fn press(&self, key: &str) {
        self.done(&["send-keys", key]);
    }

    /// Goes to a window, from 0.
    pub fn window(&self, number: u8) {
        self.done(&["select-window", "-t", &format!(":{number}")]);
    }

    /// What is on the screen now.
    #[must_use]
    pub fn screen(&self) -> String {
        self.done(&["capture-pane", "-p"]).text()
    }

    /// Waits until the screen shows `text`; the screen then.
    pub fn until_shows(&self, text: &str) -> String {
        self.until(&format!("`{text}`"), |screen| screen.contains(text))
    }

    /// Waits until the screen is as wanted; the screen then.
    /// # Panics
    /// When it never is; the message has the last screen.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn until(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, STEP, || {
                last = self.screen();
                is_wanted(&last).then(|| last.clone())
            })
        }));
        waited.unwrap_or_else(|_late| panic!("the terminal never showed {what}:\n{last}"))
    }

    /// The place of the server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        drop(finish(self.command(&["kill-server"]), b"", COMMAND));
    }
}
