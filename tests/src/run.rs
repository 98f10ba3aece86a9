//! Runs commands beside the daemon: procctl, and the same commands bare.

use std::{
    io::{Read, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use crate::{Daemon, binaries, wait::until};

/// For what runs a whole test or a build.
pub const LONG: Duration = Duration::from_secs(240);

/// How many rounds of a sample to run: `short` of them, or as many times that as `PROCD_TEST_TIMES` says.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "told by `cargo xtask`")]
pub fn rounds(short: u64) -> u64 {
    let times = std::env::var("PROCD_TEST_TIMES").ok().and_then(|times| times.parse::<u64>().ok());
    short * times.unwrap_or(1).max(1)
}

/// How a command ended and what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// All of stderr.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// stdout as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// stdout as text, of a command that must have succeeded.
    /// # Panics
    /// When it has not.
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.text(), String::from_utf8_lossy(&self.stderr));
        self.text()
    }
}

/// A command that runs, its output being collected.
#[derive(Debug)]
pub struct Running {
    /// The child, for its id and its stdin.
    pub child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

/// Starts a command with all three streams as pipes.
/// # Panics
/// When it cannot be started.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn start(mut command: Command) -> Running {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start a command");
    let stdout = collect(child.stdout.take().expect("a pipe"));
    let stderr = collect(child.stderr.take().expect("a pipe"));
    Running { child, stdout, stderr }
}

impl Running {
    /// Waits for the end.
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn finish(mut self, limit: Duration) -> Finished {
        drop(self.child.stdin.take());
        let status =
            until("a command ends", limit, || self.child.try_wait().expect("look at a command"));
        let stdout = self.stdout.join().expect("collected stdout");
        let stderr = self.stderr.join().expect("collected stderr");
        Finished { code: status.code(), signal: status.signal(), stdout, stderr }
    }

    /// What was written, of a command that has ended.
    /// # Panics
    /// When it was asked for before.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn collected(&mut self) -> (Vec<u8>, Vec<u8>) {
        let nothing = || std::thread::spawn(Vec::new);
        let stdout = std::mem::replace(&mut self.stdout, nothing());
        let stderr = std::mem::replace(&mut self.stderr, nothing());
        (stdout.join().expect("collected stdout"), stderr.join().expect("collected stderr"))
    }

    /// Sends a signal to this very child.
    /// # Panics
    /// When it cannot be sent.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a pid"), signal).expect("signal a command");
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        bytes
    })
}

/// Runs a command to its end with `input` as its stdin.
/// # Panics
/// When it does not end in time.
#[must_use]
pub fn finish(command: Command, input: &[u8], limit: Duration) -> Finished {
    let mut running = start(command);
    if let Some(stdin) = running.child.stdin.as_mut() {
        // A command that does not read its input is no failure.
        drop(stdin.write_all(input));
    }
    running.finish(limit)
}

/// procctl with this daemon's places.
/// # Panics
/// When there is no binary.
#[must_use]
pub fn procctl(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = binaries::command(binaries::path("procctl"));
    command.args(arguments).envs(daemon.places()).current_dir(daemon.cwd());
    command.env("PROCD_DAEMON", binaries::path("procd"));
    command
}

/// Runs procctl to its end.
/// # Panics
/// When it does not end in time.
#[must_use]
pub fn ctl(daemon: &Daemon, arguments: &[&str]) -> Finished {
    finish(procctl(daemon, arguments), b"", LONG)
}
