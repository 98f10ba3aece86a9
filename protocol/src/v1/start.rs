//! process/start.

use std::collections::HashSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::common::WokeBy;
use super::output::Page;
use super::{Method, Params};
use crate::field::{FieldError, duration, items, no_nul, number, params, require, text, within};
use crate::ids::{Base64Bytes, OriginId};
use crate::limits::{
    ENV_VALUE_BYTES_MAX, INTEGER_MAX, LIMIT_BYTES_MAX, MEMORY_BYTES_MIN, NAME_CHARS_MAX, PATHS_MAX,
    REQUEST_KEY_CHARS_MAX, SPOOL_BYTES_MIN, TTY_SIZE_MAX, UMASK_MAX,
};
use crate::words::{Open, words};

/// What a CPU quota of the kernel can be, in cores.
const CPU_CORES_MIN: f64 = 0.01;
const CPU_CORES_MAX: f64 = 65536.0;

words! {
    /// Where stdin comes from.
    Stdin, "a kind of stdin" {
        /// A pipe that `process/input` writes to.
        Pipe = "pipe",
        /// /dev/null.
        Null = "null",
    }
}

words! {
    /// What becomes of descendants that outlive the leader.
    OnLeaderExit, "what follows the leader's exit" {
        /// They are ended.
        KillTree = "kill_tree",
        /// The process runs on until they are gone.
        KeepTree = "keep_tree",
    }
}

words! {
    /// How a limit is held where the system cannot.
    LimitsFallback, "a fallback" {
        /// By sampling.
        Watchdog = "watchdog",
    }
}

words! {
    /// The access to a workspace that a start asks for.
    Access, "an access" {
        /// Reads only.
        ReadOnly = "read_only",
        /// Writes under the named paths.
        ScopedWrite = "scoped_write",
        /// Writes anywhere under the root.
        BroadWrite = "broad_write",
    }
}

params! {
    /// Parameters of `process/start`. Exactly one of `argv`, `argv_base64`, `command`.
    StartParams optional {
        /// Program and arguments, without a shell.
        argv: Vec<String>,
        /// The same for what is not UTF-8.
        argv_base64: Vec<Base64Bytes>,
        /// A text for a shell's `-c`.
        command: String,
        /// The shell; with `command` only.
        shell: String,
        /// A login shell; with `command` only.
        login: bool,
        /// The working folder.
        cwd: String,
        /// The same for what is not UTF-8.
        cwd_base64: Base64Bytes,
        /// Variables: a value sets, `null` removes.
        env: Env,
        /// Values that are not UTF-8.
        env_base64: EnvBase64,
        /// 0..=511; absent = the configured one.
        umask: u64,
        /// Default: `pipe` with `background`, `yield_time_ms` or `tty`, else `null`.
        stdin: Stdin,
        /// A pseudo-terminal in place of pipes.
        tty: bool,
        /// Its rows, 1..=65535; default 24.
        rows: u64,
        /// Its columns, 1..=65535; default 80.
        cols: u64,
        /// One pipe for stdout and stderr.
        merge_streams: bool,
        /// Reply as soon as it runs.
        background: bool,
        /// Reply after so many milliseconds at the latest.
        yield_time_ms: u64,
        /// The deadline of the process, milliseconds from its spawn; from 1.
        timeout_ms: u64,
        /// How long to wait for room; default 0.
        queue_timeout_ms: u64,
        /// What becomes of leftovers. `keep_tree` does not go with `tty`.
        on_leader_exit: OnLeaderExit,
        /// The memory window, from 4 KiB to the ceiling of a process.
        memory_bytes: u64,
        /// The spool, from 64 KiB to the ceiling of a process.
        spool_bytes: u64,
        /// Limits on resources.
        limits: ResourceLimits,
        /// Refuse a start whose limits cannot be held.
        limits_required: bool,
        /// How a limit is held that the system cannot hold.
        limits_fallback: LimitsFallback,
        /// A claim on a workspace.
        workspace: WorkspaceClaim,
        /// A PID namespace of its own.
        isolate: bool,
        /// The tool execution it comes from; absent = minted.
        origin: OriginId,
        /// What the client calls it, at most 128 characters.
        label: String,
        /// Makes the start idempotent, 1..=128 characters.
        request_key: String,
        /// Whether the process may itself be a client, an owner at most; default false.
        allow_client: bool,
        /// Text of the reply, 1..=1 MiB.
        limit_bytes: u64,
        /// Whether overwritten lines are shown as a terminal would.
        fold: bool,
        /// Whether an end that is no success is an error.
        require_success: bool,
        /// Only makes the plan, and starts nothing.
        dry_run: bool,
    }
}

params! {
    /// Limits on the resources of one process.
    ResourceLimits optional {
        /// Bytes.
        memory_bytes_max: u64,
        /// Cores, such as 1.5.
        cpu_max: f64,
        /// Processes.
        pids_max: u64,
        /// Descriptors.
        open_files_max: u64,
        /// Bytes; 0 = no core.
        core_bytes_max: u64,
        /// Seconds.
        cpu_seconds_max: u64,
        /// Bytes.
        address_space_bytes_max: u64,
    }
}

params! {
    /// A claim on a workspace.
    WorkspaceClaim required {
        /// Its root.
        root: String,
        /// What is done there.
        access: Access,
    } optional {
        /// 1..=256 paths, with `scoped_write` only.
        paths: Vec<String>,
        /// What stays readable.
        paths_read: Vec<String>,
        /// Whether the kernel enforces it.
        enforce: bool,
    }
}

impl StartParams {
    /// Parameters for a program and its arguments; everything else absent.
    #[must_use]
    pub fn of_argv(argv: Vec<String>) -> Self {
        Self { argv: Some(argv), ..Self::default() }
    }

    /// Parameters for a shell's text; everything else absent.
    #[must_use]
    pub fn of_command(command: String) -> Self {
        Self { command: Some(command), ..Self::default() }
    }

    fn check_program(&self) -> Result<(), FieldError> {
        let given = [
            (self.argv.is_some(), "argv"),
            (self.argv_base64.is_some(), "argv_base64"),
            (self.command.is_some(), "command"),
        ];
        let mut given = given.into_iter().filter(|(is_given, _)| *is_given);
        require(given.next().is_some(), "argv", "or `argv_base64` or `command` has to be there")?;
        if let Some((_, second)) = given.next() {
            let why = "does not go with another of `argv`, `argv_base64` and `command`";
            return Err(FieldError::refused(second, why));
        }
        check_argv("argv", self.argv.iter().flatten().map(String::as_bytes), self.argv.is_some())?;
        let raw = self.argv_base64.iter().flatten().map(|word| word.0.as_slice());
        check_argv("argv_base64", raw, self.argv_base64.is_some())?;
        if let Some(command) = &self.command {
            require(!command.trim().is_empty(), "command", "is blank")?;
            no_nul("command", command.as_bytes())?;
        }
        let is_line = self.command.is_some();
        require(is_line || self.shell.is_none(), "shell", "goes with `command` only")?;
        require(is_line || self.login.is_none(), "login", "goes with `command` only")?;
        self.shell.as_ref().map_or(Ok(()), |shell| {
            no_nul("shell", shell.as_bytes())?;
            require(!shell.is_empty(), "shell", "is empty")
        })
    }

    fn check_folder_and_env(&self) -> Result<(), FieldError> {
        let both = self.cwd.is_some() && self.cwd_base64.is_some();
        require(!both, "cwd_base64", "does not go with `cwd`")?;
        if let Some(cwd) = &self.cwd {
            no_nul("cwd", cwd.as_bytes())?;
            require(!cwd.is_empty(), "cwd", "is empty")?;
        }
        if let Some(Base64Bytes(cwd)) = &self.cwd_base64 {
            no_nul("cwd_base64", cwd)?;
            require(!cwd.is_empty(), "cwd_base64", "is empty")?;
        }
        let env = self.env.as_ref().map_or(&[][..], |env| &env.0);
        for (name, value) in env {
            check_variable("env", name, value.as_deref().unwrap_or_default().as_bytes())?;
        }
        for (name, value) in self.env_base64.iter().flat_map(|env| &env.0) {
            check_variable("env_base64", name, &value.0)?;
            let is_twice = env.iter().any(|(other, _)| other == name);
            require(!is_twice, &format!("env_base64.{name}"), "is in `env` too")?;
        }
        within("umask", self.umask, 0, UMASK_MAX)
    }

    fn check_terminal(&self) -> Result<(), FieldError> {
        within("rows", self.rows, 1, TTY_SIZE_MAX)?;
        within("cols", self.cols, 1, TTY_SIZE_MAX)?;
        require(self.rows.is_none() || self.cols.is_some(), "cols", "is missing beside `rows`")?;
        require(self.cols.is_none() || self.rows.is_some(), "rows", "is missing beside `cols`")?;
        let is_tty = self.tty == Some(true);
        require(is_tty || self.rows.is_none(), "rows", "goes with `tty` only")?;
        let keeps = self.on_leader_exit == Some(OnLeaderExit::KeepTree);
        require(!(is_tty && keeps), "on_leader_exit", "cannot be `keep_tree` with `tty`")
    }

    fn check_limits(&self) -> Result<(), FieldError> {
        within("memory_bytes", self.memory_bytes, MEMORY_BYTES_MIN, INTEGER_MAX)?;
        within("spool_bytes", self.spool_bytes, SPOOL_BYTES_MIN, INTEGER_MAX)?;
        within("limit_bytes", self.limit_bytes, 1, LIMIT_BYTES_MAX)?;
        let Some(limits) = &self.limits else { return Ok(()) };
        number("limits.memory_bytes_max", limits.memory_bytes_max, 1)?;
        number("limits.pids_max", limits.pids_max, 1)?;
        number("limits.open_files_max", limits.open_files_max, 1)?;
        number("limits.core_bytes_max", limits.core_bytes_max, 0)?;
        number("limits.cpu_seconds_max", limits.cpu_seconds_max, 1)?;
        number("limits.address_space_bytes_max", limits.address_space_bytes_max, 1)?;
        let within = CPU_CORES_MIN..=CPU_CORES_MAX;
        let fits = limits.cpu_max.is_none_or(|cores| within.contains(&cores));
        require(fits, "limits.cpu_max", "is not a number of cores from 0.01 to 65536")
    }

    fn check_workspace(&self) -> Result<(), FieldError> {
        let Some(claim) = &self.workspace else { return Ok(()) };
        no_nul("workspace.root", claim.root.as_bytes())?;
        require(claim.root.starts_with('/'), "workspace.root", "is not an absolute folder")?;
        let is_enforced = claim.enforce == Some(true);
        if let Some(paths) = &claim.paths_read {
            require(is_enforced, "workspace.paths_read", "goes with `enforce` only")?;
            items("workspace.paths_read", paths.len(), 0, PATHS_MAX)?;
            for (index, path) in paths.iter().enumerate() {
                no_nul(&format!("workspace.paths_read[{index}]"), path.as_bytes())?;
            }
        }
        let is_scoped = claim.access == Access::ScopedWrite;
        for (index, path) in claim.paths.iter().flatten().enumerate() {
            no_nul(&format!("workspace.paths[{index}]"), path.as_bytes())?;
        }
        match &claim.paths {
            Some(paths) => {
                require(is_scoped, "workspace.paths", "goes with `scoped_write` only")?;
                items("workspace.paths", paths.len(), 1, PATHS_MAX)
            }
            None => require(!is_scoped, "workspace.paths", "has to be there for `scoped_write`"),
        }
    }
}

impl Params for StartParams {
    const METHOD: Method = Method::ProcessStart;
    type Result = StartResult;

    fn validate(&self) -> Result<(), FieldError> {
        self.check_program()?;
        self.check_folder_and_env()?;
        self.check_terminal()?;
        duration("yield_time_ms", self.yield_time_ms, 0)?;
        duration("timeout_ms", self.timeout_ms, 1)?;
        duration("queue_timeout_ms", self.queue_timeout_ms, 0)?;
        self.check_limits()?;
        self.check_workspace()?;
        text("label", self.label.as_deref(), 0, NAME_CHARS_MAX)?;
        text("request_key", self.request_key.as_deref(), 1, REQUEST_KEY_CHARS_MAX)
    }
}

/// At least one word, the first not blank, none with a NUL.
fn check_argv<'a>(
    field: &str,
    words: impl Iterator<Item = &'a [u8]>,
    is_given: bool,
) -> Result<(), FieldError> {
    let mut seen = 0;
    for (index, word) in words.enumerate() {
        let field = format!("{field}[{index}]");
        no_nul(&field, word)?;
        require(index > 0 || !word.trim_ascii().is_empty(), &field, "is blank")?;
        seen = index + 1;
    }
    require(!is_given || seen > 0, field, "is empty")
}

fn check_variable(field: &str, name: &str, value: &[u8]) -> Result<(), FieldError> {
    let path = format!("{field}.{name}");
    require(!name.is_empty(), field, "has an empty name")?;
    no_nul(&path, name.as_bytes())?;
    require(!name.contains('='), &path, "has a `=` in its name")?;
    no_nul(&path, value)?;
    let fits = crate::field::count(value.len()) <= ENV_VALUE_BYTES_MAX;
    require(fits, &path, "has a value of more than 128 KiB")
}

/// Variables in the order given; a name that is there twice is refused. `None` removes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env(pub Vec<(String, Option<String>)>);

/// Variables whose values are not UTF-8, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvBase64(pub Vec<(String, Base64Bytes)>);

/// Reads and writes a list of pairs as an object.
macro_rules! as_object {
    ($name:ident, $value:ty) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = to.serialize_map(Some(self.0.len()))?;
                for (name, value) in &self.0 {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_map(PairsVisitor(std::marker::PhantomData)).map(Self)
            }
        }
    };
}

as_object!(Env, Option<String>);
as_object!(EnvBase64, Base64Bytes);

struct PairsVisitor<V>(std::marker::PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
    type Value = Vec<(String, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        let mut names = HashSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            if !names.insert(name.clone()) {
                let text = format_args!("duplicate field `{name}`");
                return Err(serde::de::Error::custom(text));
            }
            pairs.push((name, entries.next_value()?));
        }
        Ok(pairs)
    }
}

/// Result of `process/start`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResult {
    /// The entry, as in `process/output`, from cursor 0 on.
    #[serde(flatten)]
    pub page: Page,
    /// The tool execution, as given or minted.
    pub origin: OriginId,
    /// Why the call came back: `poll` with `background`.
    pub woke_by: Open<WokeBy>,
    /// Whether the text of the ended process did not fit: then `head` and `tail` are there in
    /// place of `output`.
    #[serde(default, skip_serializing_if = "super::common::is_false")]
    pub truncated: bool,
    /// The beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Excerpt>,
    /// The end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Excerpt>,
    /// Raw bytes between head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_bytes: Option<u64>,
}

/// Result of `process/start` with `dry_run`: what a start would be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanResult {
    /// The plan.
    pub plan: Plan,
}

/// A start as it would be. Values of variables are not shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What would run and where, as asked.
    pub command: super::process::CommandRecord,
    /// Names of the variables of its environment, sorted.
    pub variables: Vec<String>,
    /// The access to its workspace.
    pub access: super::process::AccessRecord,
    /// How its tree would be held together.
    pub tier: Open<super::common::Tier>,
    /// Each limit asked for, with its value and outcome.
    pub limits: std::collections::BTreeMap<String, super::process::LimitOutcome>,
    /// The memory window it would reserve, bytes.
    pub memory_bytes: u64,
    /// The spool it would reserve, bytes.
    pub spool_bytes: u64,
}

/// A piece of safe text with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// Its first raw byte.
    pub start_cursor: u64,
    /// Behind its last raw byte.
    pub end_cursor: u64,
}
