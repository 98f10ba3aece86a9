//! Variables that make a program run something else: a request that sets one is refused, unless the
//! daemon's configuration allows that name. Daemon and clients use this one rule, so that what a
//! client passes on of its own environment is never refused. Source: spec, containment,
//! *Environment*.

/// The names.
const NAMES: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "PS4",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "RUBYOPT",
    "RUBYLIB",
    "PERL5OPT",
    "PERL5LIB",
    "JAVA_TOOL_OPTIONS",
    "RUSTC_WRAPPER",
    "GCONV_PATH",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_EXEC_PATH",
    "GIT_CEILING_DIRECTORIES",
];
/// Every name that begins so.
const PREFIXES: &[&str] = &["LD_", "DYLD_", "GIT_CONFIG", "GIT_SSH"];

/// Variables that a service manager gives to one program alone: descriptors and sockets that no
/// command gets. A client does not pass them on.
pub const OF_A_SERVICE: [&str; 6] = [
    "NOTIFY_SOCKET",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];

/// Whether a variable of this name hijacks a program.
#[must_use]
pub fn is_hijacking(name: &[u8]) -> bool {
    NAMES.iter().any(|known| known.as_bytes() == name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_whole_and_prefixes_as_beginnings() {
        for name in ["LD_PRELOAD", "GIT_CONFIG_KEY_0", "GIT_SSH", "ENV", "GCONV_PATH"] {
            assert!(is_hijacking(name.as_bytes()), "{name}");
        }
        for name in ["ENVIRONMENT", "MY_LD_PRELOAD", "GCONV_PATHS", "GIT_AUTHOR_NAME", "", "env"] {
            assert!(!is_hijacking(name.as_bytes()), "{name}");
        }
    }
}
