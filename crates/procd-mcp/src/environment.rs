//! The environment of a command: that of the bridge, which is what its host was configured with,
//! without what a command must not get: names that hijack a program, what a service manager gave to
//! the bridge alone, and the place of its session.

use std::ffi::OsString;

use procd_protocol::hijack;
use procd_protocol::v1::Env;

use crate::arguments::SESSION_FILE_VARIABLE;

/// The variables that are passed on. Left out are names that hijack a program, which the daemon
/// refuses, and values that are not UTF-8.
pub(crate) fn passed(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Env {
    let texts = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let passed = texts.filter(|(name, _)| {
        let is_odd = name.is_empty() || name.contains('=');
        let is_own = name == SESSION_FILE_VARIABLE || hijack::OF_A_SERVICE.contains(&name.as_str());
        !is_odd && !is_own && !hijack::is_hijacking(name.as_bytes())
    });
    Env(passed.map(|(name, value)| (name, Some(value))).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_command_gets_what_the_bridge_has_without_what_hijacks_it() {
        let names = ["PATH", "TOKEN", "LD_PRELOAD", "PROCD_SESSION_FILE", "LISTEN_FDS", "ODD"];
        let odd = OsString::from_vec(vec![0xff]);
        let value = |name: &str| if name == "ODD" { odd.clone() } else { "x".into() };
        let Env(passed) = passed(names.map(|name| (name.into(), value(name))));
        assert_eq!(
            passed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["PATH", "TOKEN"]
        );
    }
}
