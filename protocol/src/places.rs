//! Where socket, state and configuration are. Pure: computes candidates from the environment; who
//! calls looks at the folders and takes the first candidate that holds. Daemon and clients use
//! this one function each, so that they meet. Source: spec, operators, *Places*.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a socket's path that the kernel takes: `sun_path` less its NUL.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Names the socket.
pub const SOCKET_VARIABLE: &str = "PROCD_SOCKET";
/// Names the state folder.
pub const STATE_VARIABLE: &str = "PROCD_STATE_DIR";
/// Names the configuration file.
pub const CONFIG_VARIABLE: &str = "PROCD_CONFIG";
/// Names the daemon's executable for clients that start a private one.
pub const DAEMON_VARIABLE: &str = "PROCD_DAEMON";

/// One place where the socket may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketCandidate {
    /// The socket itself. Its folder is the parent, made 0700 by the daemon when it is missing.
    pub path: PathBuf,
    /// When this candidate counts.
    pub holds: Holds,
}

/// When a candidate counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holds {
    /// Always: somebody named it.
    Always,
    /// Only when this folder exists, is a folder and no symlink, ours, and 0700.
    WhenPrivate(PathBuf),
    /// It is the last resort: the socket's own folder has to be ours, 0700 and no symlink, else
    /// there is no place at all and that is an error.
    MustBePrivate,
}

/// A path that the kernel does not take for a socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the socket path `{}` has {length} bytes, and a socket's path may have {max} at most: set {SOCKET_VARIABLE} to a shorter one",
    path.display()
)]
pub struct SocketPathTooLong {
    /// The path.
    pub path: PathBuf,
    /// Its length, bytes.
    pub length: usize,
    /// What the kernel takes.
    pub max: usize,
}

/// The places of the socket, best first; never empty. `variable` looks into the environment.
pub fn socket_candidates(
    variable: impl Fn(&str) -> Option<OsString>,
    uid: u32,
) -> Vec<SocketCandidate> {
    if let Some(given) = given(&variable, SOCKET_VARIABLE) {
        return vec![SocketCandidate { path: given, holds: Holds::Always }];
    }
    let below = |base: PathBuf| SocketCandidate {
        path: base.join("procd").join("procd.sock"),
        holds: Holds::WhenPrivate(base),
    };
    let mut candidates: Vec<_> =
        absolute(&variable, "XDG_RUNTIME_DIR").map(below).into_iter().collect();
    candidates.push(below(PathBuf::from(format!("/run/user/{uid}"))));
    candidates.push(SocketCandidate {
        path: PathBuf::from(format!("/tmp/procd-{uid}/procd.sock")),
        holds: Holds::MustBePrivate,
    });
    candidates
}

/// The state folder; `None` when neither `PROCD_STATE_DIR`, `XDG_STATE_HOME` nor `HOME` helps.
pub fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    given(&variable, STATE_VARIABLE)
        .or_else(|| absolute(&variable, "XDG_STATE_HOME").map(|base| base.join("procd")))
        .or_else(|| absolute(&variable, "HOME").map(|home| home.join(".local/state/procd")))
}

/// The configuration file; `None` when neither `PROCD_CONFIG`, `XDG_CONFIG_HOME` nor `HOME` helps.
pub fn config_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    given(&variable, CONFIG_VARIABLE)
        .or_else(|| {
            absolute(&variable, "XDG_CONFIG_HOME").map(|base| base.join("procd/config.toml"))
        })
        .or_else(|| absolute(&variable, "HOME").map(|home| home.join(".config/procd/config.toml")))
}

/// Whether the kernel takes `path` for a socket.
/// # Errors
/// [`SocketPathTooLong`] with both numbers.
pub fn check_socket_path(path: &Path) -> Result<(), SocketPathTooLong> {
    let length = path.as_os_str().as_bytes().len();
    if length > SOCKET_PATH_BYTES_MAX {
        return Err(SocketPathTooLong {
            path: path.to_owned(),
            length,
            max: SOCKET_PATH_BYTES_MAX,
        });
    }
    Ok(())
}

/// A variable of procd's own; an empty one counts as absent.
fn given(variable: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A variable that has to be absolute; a relative one is ignored.
fn absolute(variable: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    given(variable, name).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn paths(pairs: &[(&str, &str)]) -> Vec<String> {
        let candidates = socket_candidates(environment(pairs), 7);
        candidates.iter().map(|c| c.path.display().to_string()).collect()
    }

    #[test]
    fn a_named_socket_is_the_only_candidate() {
        assert_eq!(paths(&[("PROCD_SOCKET", "/x/s"), ("XDG_RUNTIME_DIR", "/r")]), ["/x/s"]);
    }

    #[test]
    fn relative_and_empty_values_are_ignored() {
        let defaults = ["/run/user/7/procd/procd.sock", "/tmp/procd-7/procd.sock"];
        assert_eq!(paths(&[]), defaults);
        assert_eq!(paths(&[("PROCD_SOCKET", ""), ("XDG_RUNTIME_DIR", "run")]), defaults);
        let with_runtime = paths(&[("XDG_RUNTIME_DIR", "/r")]);
        assert_eq!(with_runtime[0], "/r/procd/procd.sock");
        assert_eq!(with_runtime[1..], defaults);
        assert_eq!(state_folder(environment(&[("XDG_STATE_HOME", "s")])), None);
    }

    #[test]
    fn state_and_configuration_follow_their_order() {
        let home = ("HOME", "/h");
        let state = |pairs: &[(&str, &str)]| state_folder(environment(pairs)).unwrap();
        assert_eq!(state(&[home]), Path::new("/h/.local/state/procd"));
        assert_eq!(state(&[home, ("XDG_STATE_HOME", "/s")]), Path::new("/s/procd"));
        assert_eq!(state(&[home, ("PROCD_STATE_DIR", "/p")]), Path::new("/p"));
        let config = |pairs: &[(&str, &str)]| config_file(environment(pairs)).unwrap();
        assert_eq!(config(&[home]), Path::new("/h/.config/procd/config.toml"));
        assert_eq!(config(&[home, ("XDG_CONFIG_HOME", "/c")]), Path::new("/c/procd/config.toml"));
        assert_eq!(config(&[home, ("PROCD_CONFIG", "/p.toml")]), Path::new("/p.toml"));
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_one_line_with_both_numbers() {
        let longest = format!("/{}", "a".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert_eq!(check_socket_path(Path::new(&longest)), Ok(()));
        let error = check_socket_path(Path::new(&format!("{longest}b"))).unwrap_err().to_string();
        assert!(error.contains("108") && error.contains("107") && !error.contains('\n'), "{error}");
    }
}
