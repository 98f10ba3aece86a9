//! Where the daemon's socket and state are, checked on this machine. The rules themselves are
//! [`procd_protocol::places`], which the daemon shares.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procd_protocol::places::{self, Holds, SocketPathTooLong};

/// There is no place for something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The kernel takes no such path for a socket.
    #[error(transparent)]
    TooLong(#[from] SocketPathTooLong),
    /// The folder of the last resort is not ours alone.
    #[error(
        "the folder `{}` is not a folder of ours with mode 0700: remove it, or set {}",
        path.display(), places::SOCKET_VARIABLE
    )]
    NotPrivate {
        /// The folder.
        path: PathBuf,
    },
    /// A path that was named is not absolute.
    #[error("`{variable}` is not an absolute path")]
    Relative {
        /// The variable that names it.
        variable: &'static str,
    },
    /// Nothing in the environment says where.
    #[error("there is no place for {what}: set {variable} or HOME")]
    Nowhere {
        /// What.
        what: &'static str,
        /// The variable that names it.
        variable: &'static str,
    },
}

/// The socket of this user, by the environment of this process. Whether a daemon listens there is
/// another question.
/// # Errors
/// [`PlaceError`].
pub fn socket() -> Result<PathBuf, PlaceError> {
    socket_of(variable, uid())
}

/// The state folder of this user, by the environment of this process.
/// # Errors
/// [`PlaceError`].
pub fn state_folder() -> Result<PathBuf, PlaceError> {
    const VARIABLE: &str = places::STATE_VARIABLE;
    let path = places::state_folder(variable)
        .ok_or(PlaceError::Nowhere { what: "the state folder", variable: VARIABLE })?;
    if path.is_absolute() { Ok(path) } else { Err(PlaceError::Relative { variable: VARIABLE }) }
}

/// The user we act as.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A variable of the environment.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn socket_of(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Result<PathBuf, PlaceError> {
    for candidate in places::socket_candidates(variable, uid) {
        let holds = match &candidate.holds {
            Holds::Always => true,
            Holds::WhenPrivate(folder) => is_private(folder, uid),
            Holds::MustBePrivate => {
                let folder = candidate.path.parent().unwrap_or(Path::new("/"));
                // A missing one is made by the daemon, private from its first instant.
                if folder.symlink_metadata().is_ok() && !is_private(folder, uid) {
                    return Err(PlaceError::NotPrivate { path: folder.to_owned() });
                }
                true
            }
        };
        if holds {
            return checked(candidate.path);
        }
    }
    Err(PlaceError::Nowhere { what: "the socket", variable: places::SOCKET_VARIABLE })
}

/// A socket's path as it was named: absolute, and short enough.
/// # Errors
/// [`PlaceError::Relative`], [`PlaceError::TooLong`].
pub fn checked(path: PathBuf) -> Result<PathBuf, PlaceError> {
    if !path.is_absolute() {
        return Err(PlaceError::Relative { variable: places::SOCKET_VARIABLE });
    }
    places::check_socket_path(&path)?;
    Ok(path)
}

/// Whether `folder` is a folder and no symlink, of `uid`, and closed to everybody else.
fn is_private(folder: &Path, uid: u32) -> bool {
    folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Folder;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn socket_with_runtime(folder: &Path) -> PathBuf {
        let runtime = folder.as_os_str().to_owned();
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| runtime.clone());
        // A user nobody is, so that nothing else on this machine is found.
        socket_of(variable, if folder.exists() { uid() } else { 4_000_000_000 }).unwrap()
    }

    #[test]
    fn a_runtime_folder_counts_only_when_it_is_private_and_no_symlink() {
        let folder = Folder::new();
        assert_eq!(socket_with_runtime(&folder.0), folder.0.join("procd/procd.sock"));
        let link = folder.0.join("link");
        symlink(&folder.0, &link).unwrap();
        assert!(!socket_with_runtime(&link).starts_with(&folder.0));
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!socket_with_runtime(&folder.0).starts_with(&folder.0));
        let missing = socket_with_runtime(Path::new("/nowhere/at/all"));
        assert_eq!(missing, Path::new("/tmp/procd-4000000000/procd.sock"));
    }

    #[test]
    fn a_named_socket_has_to_be_absolute_and_short() {
        let named = |value: String| socket_of(move |_| Some(value.clone().into()), 7);
        assert_eq!(named("/x/s".into()), Ok(PathBuf::from("/x/s")));
        assert!(matches!(named("x/s".into()), Err(PlaceError::Relative { .. })));
        let long = named(format!("/{}", "a".repeat(200))).unwrap_err().to_string();
        assert!(long.contains("201") && long.contains("107"), "{long}");
    }
}
