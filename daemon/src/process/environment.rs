//! The environment of a command: empty, then the baseline, then what the configuration passes,
//! then the request's own; what is blocked beats all. Source: spec, containment, *Environment*.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use procd_protocol::hijack::is_hijacking;

use crate::supervisor::refusal::Refusal;

/// The PATH of a command when there is none.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const DEFAULT_TMPDIR: &str = "/tmp";
/// The type of a terminal that a command gets.
const TERM: &str = "xterm-256color";

const BASELINE: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
];
const BASELINE_PREFIX: &str = "LC_";

/// Words, as parts between `_`, that mark a secret.
const SECRET_WORDS: &[&str] =
    &["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "CREDENTIALS", "AUTH"];
/// Prefixes of clouds and forges.
const SECRET_PREFIXES: &[&str] =
    &["AWS_", "AZURE_", "GOOGLE_", "GCP_", "GITHUB_", "GITLAB_", "GH_", "GL_", "DIGITALOCEAN_"];

/// What the configuration says, and the daemon's own environment as it was at its start.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentOptions {
    /// The daemon's own variables.
    pub inherited: Vec<(OsString, OsString)>,
    /// `env.pass`: names, or patterns with `*`.
    pub pass: Vec<String>,
    /// `env.block`: names, or patterns with `*`.
    pub block: Vec<String>,
    /// `env.allow`: hijacking names that a request may set.
    pub allow: Vec<String>,
}

impl EnvironmentOptions {
    /// A variable of the daemon's own environment.
    #[must_use]
    pub fn inherited(&self, name: &str) -> Option<&OsStr> {
        self.inherited.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// The whole environment of a command, sorted by name.
    /// - `tty`: whether it gets a terminal, which has a type.
    /// # Errors
    /// [`Refusal::Invalid`] for a name of the request that cannot be or is refused.
    pub fn build(
        &self,
        request: &[(OsString, Option<OsString>)],
        tty: bool,
    ) -> Result<BTreeMap<OsString, OsString>, Refusal> {
        let mut all: BTreeMap<OsString, OsString> = BTreeMap::new();
        all.insert("PATH".into(), DEFAULT_PATH.into());
        all.insert("TMPDIR".into(), DEFAULT_TMPDIR.into());
        if tty {
            all.insert("TERM".into(), TERM.into());
        }
        for (name, value) in &self.inherited {
            if self.passes(name) {
                all.insert(name.clone(), value.clone());
            }
        }
        for (name, value) in request {
            self.check(name, value.as_deref())?;
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        all.retain(|name, _| !matches_any(&self.block, name.as_bytes()));
        Ok(all)
    }

    fn passes(&self, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        let exactly = self.pass.iter().any(|pass| pass.as_bytes() == bytes);
        let baseline = BASELINE.iter().any(|base| base.as_bytes() == bytes)
            || bytes.starts_with(BASELINE_PREFIX.as_bytes());
        exactly || ((baseline || matches_any(&self.pass, bytes)) && !looks_secret(bytes))
    }

    fn check(&self, name: &OsStr, value: Option<&OsStr>) -> Result<(), Refusal> {
        let bytes = name.as_bytes();
        let malformed = bytes.is_empty() || bytes.contains(&b'=') || bytes.contains(&0);
        if malformed || value.is_some_and(|value| value.as_bytes().contains(&0)) {
            return Err(invalid(name, "has a name or a value that no environment can hold"));
        }
        let allowed = self.allow.iter().any(|allow| allow.as_bytes() == bytes);
        if value.is_some() && is_hijacking(bytes) && !allowed {
            return Err(invalid(name, "makes programs run something else; `env.allow` permits it"));
        }
        Ok(())
    }
}

fn invalid(name: &OsStr, why: &str) -> Refusal {
    Refusal::Invalid { field: "env", message: format!("`{}` {why}", name.to_string_lossy()) }
}

/// Whether a variable of this name points git at another repository or work tree.
#[must_use]
pub(super) fn redirects_git(name: &[u8]) -> bool {
    name.starts_with(b"GIT_") && is_hijacking(name)
}

fn looks_secret(name: &[u8]) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET_PREFIXES.iter().any(|prefix| upper.starts_with(prefix.as_bytes()))
        || upper
            .split(|&byte| byte == b'_')
            .any(|part| SECRET_WORDS.iter().any(|word| word.as_bytes() == part))
}

fn matches_any(patterns: &[String], name: &[u8]) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), name))
}

/// `*` stands for any run of bytes; everything else for itself.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => {
            (0..=name.len()).any(|at| matches(rest, name.get(at..).unwrap_or(b"")))
        }
        Some((byte, rest)) => {
            name.split_first().is_some_and(|(first, tail)| first == byte && matches(rest, tail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> EnvironmentOptions {
        let inherited = [
            ("HOME", "/home/a"),
            ("LC_ALL", "C"),
            ("SECRET_OF_START", "s"),
            ("NOTIFY_SOCKET", "/run/n"),
            ("AWS_PROFILE", "p"),
            ("MY_TOKEN", "t"),
            ("MY_COLOUR", "red"),
        ];
        EnvironmentOptions {
            inherited: inherited.map(|(name, value)| (name.into(), value.into())).to_vec(),
            ..EnvironmentOptions::default()
        }
    }

    fn names(all: &BTreeMap<OsString, OsString>) -> Vec<&str> {
        all.keys().filter_map(|name| name.to_str()).collect()
    }

    #[test]
    fn only_the_baseline_is_inherited() {
        let all = options().build(&[], false).unwrap();
        assert_eq!(names(&all), ["HOME", "LC_ALL", "PATH", "TMPDIR"]);
        assert_eq!(all[OsStr::new("PATH")], DEFAULT_PATH);
        assert_eq!(all[OsStr::new("TMPDIR")], "/tmp");
    }

    #[test]
    fn a_secret_passes_by_its_exact_name_only_and_a_block_beats_all() {
        let mut options = options();
        options.pass = vec!["MY_*".into(), "AWS_PROFILE".into()];
        let all = options.build(&[], false).unwrap();
        assert_eq!(names(&all), ["AWS_PROFILE", "HOME", "LC_ALL", "MY_COLOUR", "PATH", "TMPDIR"]);
        options.block = vec!["*COL*".into(), "X".into()];
        let all = options.build(&[("X".into(), Some("1".into()))], false).unwrap();
        assert_eq!(names(&all), ["AWS_PROFILE", "HOME", "LC_ALL", "PATH", "TMPDIR"]);
    }

    #[test]
    fn a_request_sets_removes_and_is_refused_by_name() {
        let mut options = options();
        let all = options
            .build(&[("HOME".into(), None), ("API_KEY".into(), Some("given".into()))], false)
            .unwrap();
        assert_eq!(names(&all), ["API_KEY", "LC_ALL", "PATH", "TMPDIR"]);
        for name in ["LD_PRELOAD", "GIT_SSH_COMMAND", "BASH_ENV", "", "A=B", "A\0"] {
            let refusal = options.build(&[(name.into(), Some("1".into()))], false).unwrap_err();
            assert!(matches!(refusal, Refusal::Invalid { field: "env", .. }), "{name}");
        }
        options.allow = vec!["LD_PRELOAD".into()];
        assert!(options.build(&[("LD_PRELOAD".into(), Some("1".into()))], false).is_ok());
    }
}
