//! A daemon of its own for each test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::OnceLock,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    binaries,
    folder::Folder,
    leaks,
    owner::Owner,
    wait::{STEP, until, until_true},
    wire::Wire,
};

/// How trees are held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Tier 1.
    Cgroup,
    /// Tier 2.
    Shim,
}

impl Tier {
    /// The word of the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Shim => "shim",
        }
    }

    /// Whether this machine has it. Tier 2 works everywhere; tier 1 wants a delegated folder.
    #[must_use]
    pub fn is_here(self) -> bool {
        static CGROUP: OnceLock<bool> = OnceLock::new();
        match self {
            Self::Shim => true,
            Self::Cgroup => {
                *CGROUP.get_or_init(|| Setup::new(Self::Cgroup).comes_up_with("cgroup"))
            }
        }
    }
}

/// What a daemon is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    tier: Tier,
    settings: String,
    limits: String,
    environment: Vec<(String, String)>,
    binary: &'static str,
    user: Option<u32>,
    through: Option<&'static str>,
}

impl Setup {
    /// A daemon with every default but the tier.
    #[must_use]
    pub const fn new(tier: Tier) -> Self {
        Self {
            tier,
            settings: String::new(),
            limits: String::new(),
            environment: Vec::new(),
            binary: "procd",
            user: None,
            through: None,
        }
    }

    /// Adds a line of the configuration.
    #[must_use]
    pub fn setting(mut self, line: &str) -> Self {
        self.settings.push_str(&format!("{line}\n"));
        self
    }

    /// Adds a line of `[limits]`.
    #[must_use]
    pub fn limit(mut self, line: &str) -> Self {
        self.limits.push_str(&format!("{line}\n"));
        self
    }

    /// Sets a variable of the daemon's own environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the daemon as an ordinary user whom nobody else is; in tier 1 it gets a delegated
    /// control group. For tests that are root.
    #[must_use]
    pub fn as_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// Starts the daemon by this shell line, which ends with an exec of `"$0"`.
    #[must_use]
    pub const fn through(mut self, line: &'static str) -> Self {
        self.through = Some(line);
        self
    }

    /// Runs the build with named crash and pause points, steered by `points`.
    #[must_use]
    pub fn failpoints(mut self, points: &str) -> Self {
        self.binary = "failpoints/procd";
        self.environment("PROCD_FAILPOINTS", points)
    }

    /// Makes the folder and starts the daemon in it, ready to serve.
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(self) -> Daemon {
        let mut daemon = self.prepare();
        daemon.restart();
        daemon
    }

    /// Whether a daemon of this setup comes up and says that it has `tier`.
    fn comes_up_with(self, tier: &str) -> bool {
        let mut daemon = self.prepare();
        daemon.launch();
        let socket = daemon.socket();
        if daemon.until_up_or_gone().is_none() {
            daemon.child = None;
            return false;
        }
        let hello =
            Wire::bare(&socket).ok().and_then(|mut wire| wire.hello().ok()).unwrap_or_default();
        hello["containment"]["tier"] == tier
    }

    /// Makes the folder only.
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn prepare(self) -> Daemon {
        let folder = Folder::new();
        let group =
            self.user.filter(|_| self.tier == Tier::Cgroup).map(|uid| delegate(uid, folder.path()));
        let root = group
            .as_ref()
            .map(|group| format!("cgroup_root = {:?}\n", group.display().to_string()));
        let config = format!(
            "containment = \"{}\"\n{}{}[limits]\n{}",
            self.tier.word(),
            root.unwrap_or_default(),
            self.settings,
            self.limits
        );
        fs::write(folder.path().join("config.toml"), config).expect("write the configuration");
        fs::create_dir(folder.path().join("cwd")).expect("make the commands' folder");
        if let Some(uid) = self.user {
            for path in ["", "config.toml", "cwd"] {
                std::os::unix::fs::chown(folder.path().join(path), Some(uid), Some(uid))
                    .expect("give it away");
            }
        }
        Daemon { folder, setup: self, child: None, group }
    }
}

/// A daemon under test. Dropping it ends it and asserts that nothing of it is left.
#[derive(Debug)]
pub struct Daemon {
    folder: Folder,
    setup: Setup,
    child: Option<Child>,
    /// The delegated control group of an ordinary user.
    group: Option<PathBuf>,
}

impl Daemon {
    /// Starts the daemon (again), ready to serve.
    /// # Panics
    /// When it does not come up.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn restart(&mut self) {
        self.launch();
        let socket = self.socket();
        until("the daemon answers hello", STEP, || {
            if let Some(status) = self.try_wait() {
                panic!("the daemon ended at its start ({status}):\n{}", self.log());
            }
            Wire::bare(&socket).ok()?.hello().ok()
        });
    }

    /// Waits for a connection that has said hello, or for the daemon's own end.
    /// # Panics
    /// When neither comes in time.
    #[must_use]
    pub fn until_up_or_gone(&mut self) -> Option<Wire> {
        let socket = self.socket();
        until("the daemon answers hello or ends", STEP, || match self.try_wait() {
            Some(_) => Some(None),
            None => {
                let mut wire = Wire::bare(&socket).ok()?;
                wire.hello().ok()?;
                Some(Some(wire))
            }
        })
    }

    /// Whether the daemon has ended by itself.
    #[must_use]
    pub fn is_gone(&mut self) -> bool {
        self.try_wait().is_some()
    }

    /// Ends the daemon, which may have crashed already: how it went.
    pub fn end_however(&mut self) -> Option<ExitStatus> {
        let status = self.finish();
        self.child = None;
        status
    }

    /// Goes on with the build that has named points, steered by `points`; the point passed last is in [`Daemon::trace`].
    pub fn with_failpoints(&mut self, points: &str) {
        self.without_failpoints();
        self.setup.binary = "failpoints/procd";
        let trace = self.path().join("trace").to_string_lossy().into_owned();
        for (name, value) in
            [("PROCD_FAILPOINTS", points.to_owned()), ("PROCD_FAILPOINT_TRACE", trace)]
        {
            self.setup.environment.push((name.to_owned(), value));
        }
    }

    /// Sets a variable of the daemon's environment, from its next start on.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.setup.environment.push((name.to_owned(), value.to_owned()));
    }

    /// The point at which the daemon is held, or else the one it passed last.
    #[must_use]
    pub fn trace(&self) -> String {
        let text = fs::read_to_string(self.path().join("trace")).unwrap_or_default();
        text.split_whitespace().last().unwrap_or_default().to_owned()
    }

    /// The point at which the daemon is held.
    #[must_use]
    pub fn held(&self) -> Option<String> {
        let text = fs::read_to_string(self.path().join("trace")).unwrap_or_default();
        text.split_whitespace().nth(1).map(str::to_owned)
    }

    /// Goes on with the plain build.
    pub fn without_failpoints(&mut self) {
        self.setup.binary = "procd";
        self.setup.environment.retain(|(name, _)| !name.starts_with("PROCD_FAILPOINT"));
    }

    /// Starts the daemon and does not wait for it.
    /// # Panics
    /// When it cannot be started.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "there is one already");
        let mut command = match (self.setup.user, self.setup.through) {
            (Some(uid), _) => self.as_user(uid),
            (None, Some(line)) => {
                let mut command = self.command("sh");
                command.args(["-c", line]).arg(binaries::path(self.setup.binary));
                command
            }
            (None, None) => self.command(self.setup.binary),
        };
        self.child = Some(command.spawn().expect("start the daemon"));
    }

    /// Starts the daemon by a command made from [`Daemon::command`], and does not wait for it.
    /// # Panics
    /// When it cannot be started.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn launch_by(&mut self, mut command: Command) {
        assert!(self.child.is_none(), "there is one already");
        self.child = Some(command.spawn().expect("start the daemon"));
    }

    /// The daemon's own command as an ordinary user, in its control group.
    fn as_user(&self, uid: u32) -> Command {
        let mut command = self.command("sh");
        let group = self.group.as_ref().map(|group| group.join("cgroup.procs"));
        let join = group.map_or(String::new(), |file| format!("echo $$ >{}; ", file.display()));
        let line =
            format!("{join}exec setpriv --reuid={uid} --regid={uid} --clear-groups -- \"$0\"");
        command.args(["-c", &line]).arg(binaries::path(self.setup.binary));
        command
    }

    /// A command of this daemon's places, its stderr in the test's log.
    /// # Panics
    /// When the log cannot be opened.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn command(&self, binary: &str) -> Command {
        let log =
            File::options().create(true).append(true).open(self.log_path()).expect("open the log");
        let program = if binary == "sh" { "/bin/sh".into() } else { binaries::path(binary) };
        let mut command = binaries::command(program);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
        for (name, value) in self.places().into_iter().chain(self.setup.environment.clone()) {
            command.env(name, value);
        }
        command
    }

    /// The variables that say where everything is.
    #[must_use]
    pub fn places(&self) -> Vec<(String, String)> {
        let at = |name: &str| self.path().join(name).to_string_lossy().into_owned();
        [
            ("PROCD_SOCKET", at("sock")),
            ("PROCD_STATE_DIR", at("state")),
            ("PROCD_CONFIG", at("config.toml")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// The test's folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of commands.
    #[must_use]
    pub fn cwd(&self) -> PathBuf {
        self.path().join("cwd")
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path().join("sock")
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("daemon.log")
    }

    /// Everything the daemon and its clients logged.
    #[must_use]
    pub fn log(&self) -> String {
        let own = fs::read(self.log_path()).unwrap_or_default();
        let private = fs::read(self.state().join("log/procd.log")).unwrap_or_default();
        String::from_utf8_lossy(&[own, private].concat()).into_owned()
    }

    /// The daemon's pid.
    /// # Panics
    /// When there is no daemon.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a daemon").id()
    }

    /// A connection that has said hello.
    /// # Panics
    /// When the daemon does not answer.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn connect(&self) -> Wire {
        let mut wire = Wire::bare(&self.socket()).expect("connect to the daemon");
        wire.hello().expect("a reply to hello");
        wire
    }

    /// A client with a session of its own.
    /// # Panics
    /// When the daemon does not answer.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner_with(json!({}))
    }

    /// A client with a session of these parameters.
    /// # Panics
    /// When the daemon does not answer.
    #[must_use]
    pub fn owner_with(&self, params: Value) -> Owner {
        Owner::open(self.connect(), params, self.cwd())
    }

    /// A client of a session that was opened before, with what `session/open` said.
    /// # Panics
    /// When the daemon does not know it.
    #[must_use]
    pub fn again(&self, opened: &Value) -> Owner {
        let field = |name: &str| opened[name].clone();
        let (session, key) = (field("session_id"), field("session_key"));
        let params =
            json!({"session_id": session, "loop_id": field("loop_id"), "session_key": key});
        let mut wire = self.connect();
        wire.ok("session/attach", params);
        Owner::attached(wire, opened.clone(), self.cwd())
    }

    /// A connection in the operator's role.
    /// # Panics
    /// When the daemon does not answer.
    #[must_use]
    pub fn operator(&self) -> Wire {
        let mut wire = self.connect();
        wire.ok("operator/attach", json!({"reason": "test"}));
        wire
    }

    /// SIGKILL to the daemon itself, and to nothing else.
    /// # Panics
    /// When there is no daemon.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a daemon");
        child.kill().expect("kill the daemon");
        child.wait().expect("reap the daemon");
    }

    /// SIGTERM to the daemon itself.
    /// # Panics
    /// When there is no daemon.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// A signal to the daemon itself.
    /// # Panics
    /// When there is no daemon.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("signal the daemon");
    }

    /// Waits for the daemon's own end.
    /// # Panics
    /// When it does not end in time.
    pub fn ended(&mut self) -> ExitStatus {
        let status = until("the daemon ends", STEP, || self.try_wait());
        self.child = None;
        status
    }

    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("look at the daemon")
    }

    /// What an operator sees now, for the message of a failure: on a thread of its own, since a
    /// panic for want of an answer would end the whole run here.
    fn snapshot(&self) -> Option<Value> {
        let socket = self.socket();
        let look = move || {
            let mut wire = Wire::bare(&socket).ok()?;
            wire.patience = Duration::from_secs(10);
            wire.hello().ok()?;
            wire.call("operator/attach", json!({"reason": "failed test"})).ok()?;
            wire.call("process/list", json!({"limit": 100})).ok()
        };
        std::thread::spawn(look).join().ok().flatten()
    }

    #[expect(clippy::print_stderr, reason = "a failed test shows what the daemon knew")]
    fn show(&self) {
        if self.child.is_some() {
            eprintln!("--- records: {}", self.snapshot().unwrap_or_default());
        }
        eprintln!("--- log of the daemon:\n{}---", self.log());
    }

    /// Ends the daemon if it still runs: whether it went by itself and with 0.
    fn finish(&mut self) -> Option<ExitStatus> {
        if let Some(status) = self.try_wait() {
            return Some(status);
        }
        self.child.as_ref()?;
        self.terminate();
        let deadline = crate::wait::Deadline::after(STEP);
        while deadline.left().is_some() {
            if let Some(status) = self.try_wait() {
                return Some(status);
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.kill();
        Some(ExitStatus::default())
    }
}

/// A control group below the mount's root that belongs to the user, named after the test's folder.
#[expect(clippy::expect_used, reason = "this is how a test fails")]
fn delegate(uid: u32, folder: &Path) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let root = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("cgroup v2");
    let root = PathBuf::from(root.split(' ').nth(4).expect("its place"));
    let group = root.join(folder.file_name().expect("a name"));
    fs::create_dir(&group).expect("make a control group");
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        std::os::unix::fs::chown(group.join(file), Some(uid), Some(uid)).expect("delegate it");
    }
    group
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            self.show();
        }
        let is_up = self.child.is_some();
        let status = self.finish();
        let groups = leaks::groups(&self.state());
        let own = self.group.take();
        if failed {
            leaks::remove_groups(&groups);
            drop(own.map(fs::remove_dir));
            return;
        }
        assert!(
            status.is_none_or(|status| status.success()),
            "SIGTERM ended the daemon with {status:?}:\n{}",
            self.log()
        );
        assert!(
            !is_up || self.child.is_some(),
            "the daemon did not end by SIGTERM:\n{}",
            self.log()
        );
        let path = self.path().to_owned();
        until_true("every process of the test is gone", STEP, || {
            leaks::processes(&path).is_empty()
        });
        leaks::remove_groups(&groups);
        // A daemon that was killed leaves its group to the sweep of the next one.
        assert!(!is_up || groups.is_empty(), "control groups left: {groups:?}");
        drop(own.map(fs::remove_dir));
    }
}
