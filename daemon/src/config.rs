//! The configuration: a TOML file, then the environment, then flags, each beating the one before.
//! Every value knows where it came from; every error names file, line and key.
//! Source: spec, operators, *Configuration*.
//!
//! Any key can be given in the environment as `PROCD_` and the key in capitals with `_` for each
//! dot (`PROCD_LIMITS_GRACE_MS=1000`, `PROCD_LOG_LEVEL=debug`), and as the flag
//! `--set limits.grace_ms=1000`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procd_core::settings::{Contradiction, GivenLimits, Limits, Lowered};
pub use procd_sys::cgroup::discover::Root as CgroupRoot;
use toml::de::{DeTable, DeValue};

mod keys;
mod live;
pub mod places;
mod report;

pub use live::{Live, Reloaded};
pub use report::Setting;

use keys::Wrong;
use places::Environment;

/// The effective configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The limits in force.
    pub limits: Limits,
    /// Defaults that were lowered to fit a given limit.
    pub lowered: Vec<Lowered>,
    /// Everything else.
    pub choices: Choices,
    /// Where each given value came from; what is not here is the default.
    pub origins: BTreeMap<String, Origin>,
}

/// The settings outside `[limits]`, and the limits as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    limits: GivenLimits,
    /// How trees are held together.
    pub containment: Containment,
    /// Whether less than tier 1 refuses every start.
    pub require_atomic: bool,
    /// A control group that counts as delegated.
    pub cgroup_root: Option<CgroupRoot>,
    /// Whether set-uid programs lose their rights.
    pub no_new_privileges: bool,
    /// The umask of commands, 0..=0o777.
    pub child_umask: u32,
    /// The nice value of commands, -20..=19.
    pub child_nice: i32,
    /// The OOM score adjustment of commands, -1000..=1000; absent = as the daemon's.
    pub child_oom_score_adj: Option<i32>,
    /// Variables of the daemon's environment that commands get beside the baseline.
    pub env_pass: Vec<String>,
    /// Variables that no command gets.
    pub env_block: Vec<String>,
    /// Hijacking names that a request may set all the same.
    pub env_allow: Vec<String>,
    /// The shell of `command`; absent = /bin/bash, else /bin/sh.
    pub shell: Option<PathBuf>,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The least severe level that is logged.
    pub log_level: LogLevel,
    /// How long a private daemon stays without anything to do.
    pub private_exit: Duration,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            limits: GivenLimits::default(),
            containment: Containment::Auto,
            require_atomic: false,
            cgroup_root: None,
            no_new_privileges: true,
            child_umask: 0o022,
            child_nice: 0,
            child_oom_score_adj: None,
            env_pass: Vec::new(),
            env_block: Vec::new(),
            env_allow: Vec::new(),
            shell: None,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
            private_exit: Duration::from_secs(15 * 60),
        }
    }
}

/// How trees are held together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// Tier 1 where it can be had, else tier 2.
    Auto,
    /// Tier 1 or nothing.
    Cgroup,
    /// Tier 2.
    Shim,
}

impl Containment {
    const WORDS: &[(&str, Self)] =
        &[("auto", Self::Auto), ("cgroup", Self::Cgroup), ("shim", Self::Shim)];
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    const WORDS: &[(&str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// The least severe level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Errors only.
    Error,
    /// And warnings.
    Warn,
    /// And what an operator wants to know.
    Info,
    /// And each request.
    Debug,
    /// And each step.
    Trace,
}

impl LogLevel {
    const WORDS: &[(&str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag => f.write_str("flag --set"),
        }
    }
}

/// A configuration that cannot be used. The wire code is `invalid_settings`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser says.
        message: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`{}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// Where.
        origin: Origin,
        /// The key.
        key: String,
        /// The nearest valid one.
        nearest: Option<String>,
    },
    /// A value that does not fit its key.
    #[error("{origin}: wrong value for `{key}`: {message}")]
    Value {
        /// Where.
        origin: Origin,
        /// The key.
        key: String,
        /// What is wanted.
        message: String,
    },
    /// Two limits that cannot both hold.
    #[error("{narrower_origin} and {broader_origin}: {contradiction}")]
    Contradiction {
        /// Where the narrower one was given.
        narrower_origin: Origin,
        /// Where the broader one was given.
        broader_origin: Origin,
        /// Both.
        contradiction: Contradiction,
    },
    /// A setting that the tier cannot hold.
    #[error("`{first}` and `{second}` contradict each other: {message}")]
    Conflict {
        /// One key.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Why.
        message: &'static str,
    },
    /// A flag without a value.
    #[error("flag --set wants `KEY=VALUE`, not `{given}`")]
    Flag {
        /// What was given.
        given: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default()
}

/// Reads the configuration: `file` (and whether it must exist), the environment, `--set` flags.
/// # Errors
/// [`ConfigError`], naming the first thing that is wrong.
pub fn load(
    file: Option<(&Path, bool)>,
    environment: &Environment,
    flags: &[String],
) -> Result<Config, ConfigError> {
    let mut loading = Loading::default();
    if let Some((path, must_exist)) = file {
        match std::fs::read_to_string(path) {
            Ok(text) => loading.file(path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {}
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }
    loading.environment(environment)?;
    for flag in flags {
        loading.flag(flag)?;
    }
    loading.finish()
}

/// A configuration under way.
#[derive(Debug, Default)]
struct Loading {
    choices: Choices,
    origins: BTreeMap<String, Origin>,
}

impl Loading {
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let at = |offset: usize| Origin::File {
            path: path.to_owned(),
            line: 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count(),
        };
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            origin: at(error.span().map_or(0, |span| span.start)),
            message: error.message().replace('\n', ", "),
        })?;
        for (name, value) in table.get_ref() {
            let name_at = at(name.span().start);
            match value.get_ref() {
                DeValue::Table(inner) if keys::TABLES.contains(&name.get_ref().as_ref()) => {
                    for (key, value) in inner {
                        let full = format!("{}.{}", name.get_ref(), key.get_ref());
                        self.set(full, value.get_ref(), at(key.span().start))?;
                    }
                }
                value @ (DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_)) => self.set(name.get_ref().to_string(), value, name_at)?,
            }
        }
        Ok(())
    }

    fn environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        for key in keys::all() {
            let variable = format!("PROCD_{}", key.replace('.', "_").to_uppercase());
            if let Some(text) = environment.get(&variable) {
                let text = text.to_string_lossy().into_owned();
                self.text(key, &text, Origin::Environment(variable))?;
            }
        }
        Ok(())
    }

    fn flag(&mut self, flag: &str) -> Result<(), ConfigError> {
        let (key, text) =
            flag.split_once('=').ok_or_else(|| ConfigError::Flag { given: flag.to_owned() })?;
        self.text(key.trim().to_owned(), text.trim(), Origin::Flag)
    }

    /// A value outside a file: TOML if it is TOML, else a text.
    fn text(&mut self, key: String, text: &str, origin: Origin) -> Result<(), ConfigError> {
        match DeValue::parse(text) {
            Ok(value) => self.set(key, value.get_ref(), origin),
            Err(_) => self.set(key, &DeValue::String(text.into()), origin),
        }
    }

    fn set(&mut self, key: String, value: &DeValue<'_>, origin: Origin) -> Result<(), ConfigError> {
        match keys::apply(&mut self.choices, &key, value) {
            Ok(()) => {
                self.origins.insert(key, origin);
                Ok(())
            }
            Err(Wrong::UnknownKey) => {
                let nearest = keys::nearest(&key);
                Err(ConfigError::UnknownKey { origin, key, nearest })
            }
            Err(Wrong::Value(message)) => Err(ConfigError::Value { origin, key, message }),
        }
    }

    fn finish(self) -> Result<Config, ConfigError> {
        let Self { choices, origins } = self;
        if !choices.no_new_privileges && choices.containment == Containment::Shim {
            return Err(ConfigError::Conflict {
                first: "no_new_privileges",
                second: "containment",
                message: "only tier 1 can end what a set-uid program starts",
            });
        }
        let (limits, lowered) = Limits::effective(&choices.limits).map_err(|contradiction| {
            let origin =
                |key: &str| origins.get(&format!("limits.{key}")).cloned().unwrap_or(Origin::Flag);
            ConfigError::Contradiction {
                narrower_origin: origin(contradiction.narrower),
                broader_origin: origin(contradiction.broader),
                contradiction,
            }
        })?;
        Ok(Config { limits, lowered, choices, origins })
    }
}

#[cfg(test)]
mod tests;
