//! The environment that a command gets from the shell it was asked for in. Pure: the caller hands
//! the variables in.
//!
//! `run` and `start` pass on what a command started by the shell itself would see, so that a
//! build behaves the same. What the daemon would add by itself and the caller does not have is
//! removed, `PATH` aside. Left out are:
//! - names that hijack a program: the daemon refuses them in a request (spec, containment,
//!   *Environment*). One given by `--env` is sent, and so refused with the daemon's reason;
//! - what belongs to this program's own service: descriptors and sockets the command does not get;
//! - values that are not UTF-8: not supported yet.

use std::collections::BTreeMap;
use std::ffi::OsString;

use procd_protocol::hijack;

use crate::exit::CtlError;

/// What the daemon gives to every command by itself (spec, containment, *Environment*), `PATH`
/// aside: without it hardly anything runs.
const BASELINE: [&str; 22] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// The variables to send, and the names of those left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// A value to set, or none to remove.
    pub(crate) variables: BTreeMap<String, Option<String>>,
    /// Names left out, in the order met.
    pub(crate) left_out: Vec<String>,
}

/// The caller's variables without those that are left out.
pub(crate) fn inherited(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Passed {
    let mut passed = Passed::default();
    passed.variables.extend(BASELINE.map(|name| (name.to_owned(), None)));
    for (name, value) in variables {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) if is_passed(&name) => {
                passed.variables.insert(name, Some(value));
            }
            (Ok(name), _) => passed.left_out.push(name),
            (Err(name), _) => passed.left_out.push(name.to_string_lossy().into_owned()),
        }
    }
    passed
}

fn is_passed(name: &str) -> bool {
    let refused = hijack::is_hijacking(name.as_bytes()) || hijack::OF_A_SERVICE.contains(&name);
    // The shell's exported functions (`BASH_FUNC_name%%`) are names like any other.
    !refused && !name.is_empty() && !name.contains('=')
}

/// Applies `--env NAME=VALUE` (set), `--env NAME` (take the caller's) and `--unset NAME`.
/// # Errors
/// [`CtlError::Usage`] for an empty name, or one that the caller does not have.
pub(crate) fn apply(
    passed: &mut Passed,
    set: &[String],
    unset: &[String],
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<(), CtlError> {
    for entry in set {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (entry.as_str(), own_value(entry, &lookup)?),
        };
        if name.is_empty() {
            return Err(CtlError::usage("--env wants NAME=VALUE or NAME", "give the name"));
        }
        passed.variables.insert(name.to_owned(), Some(value));
        passed.left_out.retain(|left_out| left_out != name);
    }
    for name in unset {
        passed.variables.insert(name.clone(), None);
    }
    Ok(())
}

fn own_value(name: &str, lookup: impl Fn(&str) -> Option<OsString>) -> Result<String, CtlError> {
    let Some(value) = lookup(name) else {
        let what = format!("the variable `{name}` is not set here");
        return Err(CtlError::usage(what, format!("give its value as --env {name}=VALUE")));
    };
    value.into_string().map_err(|_not_utf8| {
        let what = format!("the value of `{name}` is not UTF-8, which is not supported yet");
        CtlError::usage(what, "leave it out or give another value")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (name.into(), value.into())
    }

    /// The variables that are set.
    fn values(passed: &Passed) -> Vec<String> {
        let set =
            |(name, value): (&String, &Option<String>)| Some(format!("{name}={}", value.as_ref()?));
        passed.variables.iter().filter_map(set).collect()
    }

    #[test]
    fn what_the_daemon_would_add_is_removed_unless_the_caller_has_it() {
        let passed = inherited([pair("TMPDIR", "/t")]);
        assert_eq!(passed.variables.get("TMPDIR"), Some(&Some("/t".to_owned())));
        assert_eq!(passed.variables.get("CARGO_HOME"), Some(&None));
        assert_eq!(passed.variables.get("PATH"), None);
    }

    #[test]
    fn a_command_sees_the_callers_variables() {
        let passed = inherited([pair("PATH", "/bin"), pair("API_TOKEN", "x"), pair("LDFLAGS", "")]);
        assert_eq!(values(&passed), ["API_TOKEN=x", "LDFLAGS=", "PATH=/bin"]);
        assert!(passed.left_out.is_empty());
    }

    #[test]
    fn hijacking_names_and_what_is_ours_alone_are_left_out_by_name() {
        let names = ["LD_PRELOAD", "GIT_DIR", "GIT_SSH_COMMAND", "BASH_ENV", "NOTIFY_SOCKET"];
        let passed = inherited(names.map(|name| pair(name, "x")));
        assert!(values(&passed).is_empty());
        assert_eq!(passed.left_out, names);
    }

    #[test]
    fn a_value_that_is_not_utf8_is_left_out() {
        let passed = inherited([("ODD".into(), OsString::from_vec(vec![0xff]))]);
        assert_eq!(passed.left_out, ["ODD"]);
    }

    #[test]
    fn an_explicit_variable_wins_and_an_unset_one_is_removed() {
        let mut passed = inherited([pair("LD_PRELOAD", "x"), pair("A", "1"), pair("B", "2")]);
        let set = ["LD_PRELOAD=y".to_owned(), "C".to_owned(), "A=3=4".to_owned()];
        apply(&mut passed, &set, &["B".to_owned()], |_| Some("own".into())).unwrap();
        assert_eq!(values(&passed), ["A=3=4", "C=own", "LD_PRELOAD=y"]);
        assert_eq!(passed.variables.get("B"), Some(&None));
        assert!(passed.left_out.is_empty());
    }

    #[test]
    fn a_variable_nobody_has_is_a_usage_error() {
        let mut passed = Passed::default();
        for entry in ["NOBODY", "=x"] {
            assert!(apply(&mut passed, &[entry.to_owned()], &[], |_| None).is_err());
        }
    }
}
