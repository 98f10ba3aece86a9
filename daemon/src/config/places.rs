//! Where the daemon's files are, checked on this machine. The rules themselves are
//! [`procd_protocol::places`], which the clients share.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procd_protocol::places::{self, Holds, SocketCandidate, SocketPathTooLong};

/// The environment as it was at the start, read once.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// An environment made of pairs.
    #[must_use]
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    /// The value of a variable; an empty one counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&std::ffi::OsStr> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_os_str())
    }

    fn value(&self, name: &str) -> Option<OsString> {
        self.get(name).map(ToOwned::to_owned)
    }
}

/// A place that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Longer than the kernel's address of a socket.
    #[error(transparent)]
    TooLong(#[from] SocketPathTooLong),
    /// Nothing says where.
    #[error("there is no place for the {what}: set {variable} or HOME")]
    Nowhere {
        /// What has no place.
        what: &'static str,
        /// The variable that would give it one.
        variable: &'static str,
    },
    /// Relative.
    #[error("the {what} `{}` must be an absolute path", path.display())]
    Relative {
        /// Whose path.
        what: &'static str,
        /// The path.
        path: PathBuf,
    },
}

/// The path of the socket for `uid`. Its folder is judged when it is opened.
/// # Errors
/// [`PlaceError`].
pub fn socket_path(environment: &Environment, uid: u32) -> Result<PathBuf, PlaceError> {
    let holds = |candidate: &SocketCandidate| match &candidate.holds {
        Holds::Always | Holds::MustBePrivate => true,
        Holds::WhenPrivate(folder) => is_private(folder, uid),
    };
    let mut candidates = places::socket_candidates(|name| environment.value(name), uid).into_iter();
    let found = candidates.find(holds);
    let found =
        found.ok_or(PlaceError::Nowhere { what: "socket", variable: places::SOCKET_VARIABLE })?;
    checked_socket_path(found.path)
}

/// Checks a path that was given for the socket.
/// # Errors
/// [`PlaceError::TooLong`], [`PlaceError::Relative`].
pub fn checked_socket_path(path: PathBuf) -> Result<PathBuf, PlaceError> {
    let path = absolute("socket path", path)?;
    places::check_socket_path(&path)?;
    Ok(path)
}

/// The state folder.
/// # Errors
/// [`PlaceError::Nowhere`] without PROCD_STATE_DIR, XDG_STATE_HOME and HOME;
/// [`PlaceError::Relative`].
pub fn state_folder(environment: &Environment) -> Result<PathBuf, PlaceError> {
    let found = places::state_folder(|name| environment.value(name));
    let found = found
        .ok_or(PlaceError::Nowhere { what: "state folder", variable: places::STATE_VARIABLE })?;
    absolute("state folder", found)
}

fn absolute(what: &'static str, path: PathBuf) -> Result<PathBuf, PlaceError> {
    if path.is_absolute() { Ok(path) } else { Err(PlaceError::Relative { what, path }) }
}

/// The configuration file, and whether it was named (then it must exist).
#[must_use]
pub fn config_file(environment: &Environment) -> Option<(PathBuf, bool)> {
    let found = places::config_file(|name| environment.value(name))?;
    Some((found, environment.get(places::CONFIG_VARIABLE).is_some()))
}

/// Whether `folder` is a folder, no symlink, of `uid`, and closed to all others.
fn is_private(folder: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    const NOBODY: u32 = 65_432;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs)
    }

    #[test]
    fn a_named_socket_wins_and_relative_runtime_folders_are_ignored() {
        let named = environment(&[("PROCD_SOCKET", "/a/b.sock"), ("XDG_RUNTIME_DIR", "/tmp")]);
        assert_eq!(socket_path(&named, NOBODY).unwrap(), Path::new("/a/b.sock"));
        let relative = environment(&[("XDG_RUNTIME_DIR", "run")]);
        let path = socket_path(&relative, NOBODY).unwrap();
        assert_eq!(path, Path::new("/tmp/procd-65432/procd.sock"));
    }

    #[test]
    fn a_runtime_folder_counts_only_when_it_is_ours_and_closed() {
        let root = std::env::temp_dir().join(format!("procd-places-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&root).unwrap();
        let uid = std::fs::metadata(&root).unwrap().uid();
        let pairs = environment(&[("XDG_RUNTIME_DIR", root.to_str().unwrap())]);
        assert_eq!(socket_path(&pairs, uid).unwrap(), root.join("procd/procd.sock"));
        assert_ne!(socket_path(&pairs, NOBODY).unwrap(), root.join("procd/procd.sock"));
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(socket_path(&pairs, uid).unwrap(), root.join("procd/procd.sock"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_one_line_with_both_numbers() {
        let long = format!("/{}", "x".repeat(107));
        let error = socket_path(&environment(&[("PROCD_SOCKET", &long)]), 0).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("108 bytes") && text.contains("107"), "{text}");
        assert!(!text.contains('\n'));
        let fits = format!("/{}", "x".repeat(106));
        assert!(socket_path(&environment(&[("PROCD_SOCKET", &fits)]), 0).is_ok());
    }

    #[test]
    fn state_and_configuration_follow_their_variables() {
        let home = environment(&[("HOME", "/h")]);
        assert_eq!(state_folder(&home).unwrap(), Path::new("/h/.local/state/procd"));
        assert_eq!(config_file(&home).unwrap(), ("/h/.config/procd/config.toml".into(), false));
        let xdg =
            environment(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s"), ("XDG_CONFIG_HOME", "c")]);
        assert_eq!(state_folder(&xdg).unwrap(), Path::new("/s/procd"));
        assert_eq!(config_file(&xdg).unwrap(), ("/h/.config/procd/config.toml".into(), false));
        let named = environment(&[("PROCD_STATE_DIR", "/x"), ("PROCD_CONFIG", "/y.toml")]);
        assert_eq!(state_folder(&named).unwrap(), Path::new("/x"));
        assert_eq!(config_file(&named).unwrap(), ("/y.toml".into(), true));
        assert!(state_folder(&environment(&[])).is_err());
        assert!(state_folder(&environment(&[("PROCD_STATE_DIR", "x")])).is_err());
    }
}
