//! A daemon of the bench's own: its folder, its socket, its settings; all gone with it.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clock::{now, pause};
use crate::report::Report;
use crate::spawn;
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

/// How long it may take to come up, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How trees are held together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Cgroup,
    Shim,
}

impl Tier {
    /// The quickest that this machine has.
    pub(crate) fn best() -> Result<Self, Trouble> {
        let has_cgroup = Daemon::start(Self::Cgroup, "").is_ok();
        Ok(if has_cgroup { Self::Cgroup } else { Self::Shim })
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Shim => "shim",
        }
    }
}

/// A running daemon. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub(crate) struct Daemon {
    folder: Folder,
    child: Child,
}

impl Daemon {
    /// With every default, on the best tier here.
    pub(crate) fn plain() -> Result<Self, Trouble> {
        Self::start(Tier::best()?, "")
    }

    /// On the best tier here, with these `[limits]`, which the report shows.
    pub(crate) fn with_limits(report: &Report, limits: &str) -> Result<Self, Trouble> {
        let settings: Vec<_> = limits.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        report.remark(&format!("limits: {}", settings.join(", ")));
        Self::start(Tier::best()?, limits)
    }

    pub(crate) fn start(tier: Tier, limits: &str) -> Result<Self, Trouble> {
        let folder = Folder::new()?;
        let settings = format!("containment = \"{}\"\n[limits]\n{limits}\n", tier.word());
        fs::write(folder.0.join("config.toml"), settings).tried("write the configuration")?;
        let child = spawn::daemon(&binary()?, &folder.0)?;
        let mut daemon = Self { folder, child };
        daemon.until_it_serves()?;
        Ok(daemon)
    }

    /// Starts it again in the same folder; how long it took to serve what it holds. `hello` is answered before.
    pub(crate) fn restart(&mut self) -> Result<Duration, Trouble> {
        self.end();
        let start = now();
        self.child = spawn::daemon(&binary()?, &self.folder.0)?;
        self.until_it_serves()?;
        let mut wire = Wire::connect(&self.socket())?;
        wire.call("operator/attach", &json!({ "reason": "measure" }))?;
        wire.call("process/list", &json!({ "limit": 1 }))?;
        Ok(start.elapsed())
    }

    fn until_it_serves(&mut self) -> Result<(), Trouble> {
        let start = now();
        while Wire::connect(&self.socket()).is_err() {
            let ended = self.child.try_wait().tried("look after the daemon")?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.0.join("daemon.log")).unwrap_or_default();
                return Err(Trouble::odd(format!("the daemon does not serve: {}", log.trim())));
            }
            pause(Duration::from_millis(1));
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.0.join("sock")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.0.join("state")
    }

    /// A folder for the floor's files, on the same file system.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client with a session of its own.
    pub(crate) fn owner(&self) -> Result<Wire, Trouble> {
        self.owner_with(&json!({}))
    }

    /// A client with a session of these parameters.
    pub(crate) fn owner_with(&self, params: &Value) -> Result<Wire, Trouble> {
        let mut wire = Wire::connect(&self.socket())?;
        wire.call("session/open", params)?;
        Ok(wire)
    }

    /// Clients of one session.
    pub(crate) fn owners(&self, count: usize) -> Result<Vec<Wire>, Trouble> {
        let mut first = Wire::connect(&self.socket())?;
        let key = "A".repeat(43);
        let opened = first.call("session/open", &json!({ "session_key": key }))?;
        let params = json!({ "session_id": opened["session_id"], "session_key": key,
            "loop_id": opened["loop_id"] });
        let mut wires = vec![first];
        while wires.len() < count {
            let mut wire = Wire::connect(&self.socket())?;
            wire.call("session/attach", &params)?;
            wires.push(wire);
        }
        Ok(wires)
    }

    /// SIGKILL, to the daemon alone.
    pub(crate) fn kill(&mut self) -> Result<(), Trouble> {
        self.child.kill().tried("kill the daemon")
    }

    fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // Our own unreaped child: the number cannot be anybody else's.
            kill_process(pid, Signal::TERM).ok();
        }
        let start = now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            pause(Duration::from_millis(2));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// The daemon built beside this program.
fn binary() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe().tried("find this program")?;
    let beside = own.with_file_name("procd");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Trouble::odd(format!(
        "there is no `{}`: build it first (cargo build --release -p procd)",
        beside.display()
    )))
}

/// A folder that goes with its owner.
#[derive(Debug)]
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, Trouble> {
        let unique = crate::clock::monotonic_ns();
        let name = format!("procd-bench-{}-{unique}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut folder = fs::DirBuilder::new();
        folder.mode(0o700).create(&path).tried(&format!("make `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
