//! Every process the bench itself starts: its daemon, and the floors of a start.

use std::ffi::CString;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::trouble::{Tried, Trouble};

/// A program that is started over and over by the quickest way there is: `posix_spawn`, which is
/// `clone(VM, VFORK)` and exec, from a process with few descriptors.
#[derive(Debug)]
pub(crate) struct Floor(CString);

impl Floor {
    pub(crate) fn new(program: &str) -> Result<Self, Trouble> {
        CString::new(program).map(Self).map_err(|error| Trouble::odd(error.to_string()))
    }

    /// Starts it; back as soon as it has been executed.
    pub(crate) fn start(&self) -> Result<Pid, Trouble> {
        let actions = PosixSpawnFileActions::init().tried("prepare a start")?;
        let attributes = PosixSpawnAttr::init().tried("prepare a start")?;
        let none: [&CString; 0] = [];
        posix_spawn(self.0.as_c_str(), &actions, &attributes, &[&self.0], &none)
            .tried("start the floor's program")
    }

    /// Starts it and waits for its end.
    pub(crate) fn turn(&self) -> Result<(), Trouble> {
        wait(self.start()?)
    }
}

/// Waits for the end of a child.
pub(crate) fn wait(pid: Pid) -> Result<(), Trouble> {
    waitpid(pid, None).tried("wait for a child").map(drop)
}

/// A child with these streams.
#[expect(clippy::disallowed_methods, reason = "the bench runs its floors and its own daemon")]
pub(crate) fn child(
    program: &Path,
    words: &[&str],
    stdin: Stdio,
    stdout: Stdio,
) -> Result<Child, Trouble> {
    let mut command = Command::new(program);
    command.args(words).stdin(stdin).stdout(stdout);
    command.spawn().tried(&format!("start `{}`", program.display()))
}

/// The daemon in the foreground, with its places in `folder`.
#[expect(clippy::disallowed_methods, reason = "the bench runs its floors and its own daemon")]
pub(crate) fn daemon(program: &Path, folder: &Path) -> Result<Child, Trouble> {
    let log = File::create(folder.join("daemon.log")).tried("make the daemon's log")?;
    let mut command = Command::new(program);
    command
        .env("PROCD_SOCKET", folder.join("sock"))
        .env("PROCD_STATE_DIR", folder.join("state"))
        .env("PROCD_CONFIG", folder.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().tried(&format!("start `{}`", program.display()))
}
