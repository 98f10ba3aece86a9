//! Where the daemon's files are: computed alike by daemon, clients and procctl.
//! Source: spec, operators, *Places*.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a socket's path: what the kernel's address holds, without the final NUL.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

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

    /// The value of a variable as a path.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// The same, but only if it is absolute: relative XDG values are ignored.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }
}

/// A place that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Longer than the kernel's address of a socket.
    #[error(
        "the socket path `{}` has {length} bytes, a socket path has at most {SOCKET_PATH_BYTES_MAX}",
        path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its bytes.
        length: usize,
    },
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

/// The path of the socket for `uid`.
/// # Errors
/// [`PlaceError`].
pub fn socket_path(environment: &Environment, uid: u32) -> Result<PathBuf, PlaceError> {
    let path = if let Some(path) = environment.path("PROCD_SOCKET") {
        path
    } else {
        let run = PathBuf::from(format!("/run/user/{uid}"));
        let folder = [environment.absolute("XDG_RUNTIME_DIR"), Some(run)]
            .into_iter()
            .flatten()
            .find(|folder| is_private(folder, uid))
            .map_or_else(|| PathBuf::from(format!("/tmp/procd-{uid}")), |run| run.join("procd"));
        folder.join("procd.sock")
    };
    checked_socket_path(path)
}

/// Checks a path that was given for the socket.
/// # Errors
/// [`PlaceError::TooLong`], [`PlaceError::Relative`].
pub fn checked_socket_path(path: PathBuf) -> Result<PathBuf, PlaceError> {
    let length = path.as_os_str().as_bytes().len();
    if !path.is_absolute() {
        return Err(PlaceError::Relative { what: "socket path", path });
    }
    if length > SOCKET_PATH_BYTES_MAX {
        return Err(PlaceError::TooLong { path, length });
    }
    Ok(path)
}

/// The state folder.
/// # Errors
/// [`PlaceError::Nowhere`] without PROCD_STATE_DIR, XDG_STATE_HOME and HOME;
/// [`PlaceError::Relative`].
pub fn state_folder(environment: &Environment) -> Result<PathBuf, PlaceError> {
    if let Some(path) = environment.path("PROCD_STATE_DIR") {
        return checked_state_folder(path);
    }
    let base = environment
        .absolute("XDG_STATE_HOME")
        .or_else(|| environment.absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or(PlaceError::Nowhere { what: "state folder", variable: "PROCD_STATE_DIR" })?;
    Ok(base.join("procd"))
}

/// Checks a path that was given for the state folder.
/// # Errors
/// [`PlaceError::Relative`].
pub fn checked_state_folder(path: PathBuf) -> Result<PathBuf, PlaceError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(PlaceError::Relative { what: "state folder", path })
    }
}

/// The configuration file, and whether it was named (then it must exist).
#[must_use]
pub fn config_file(environment: &Environment) -> Option<(PathBuf, bool)> {
    if let Some(path) = environment.path("PROCD_CONFIG") {
        return Some((path, true));
    }
    let base = environment
        .absolute("XDG_CONFIG_HOME")
        .or_else(|| environment.absolute("HOME").map(|home| home.join(".config")))?;
    Some((base.join("procd/config.toml"), false))
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
        assert!(text.contains("108 bytes") && text.contains("at most 107"), "{text}");
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
