//! The file that a session is found again by. It holds a secret: made 0600 under a name of its own,
//! then linked into place, so that of several first bridges one makes the session.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use procd_client::Credentials;
use procd_protocol::{LoopId, SessionId, SessionKey};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// The format this build writes and reads.
const FORMAT: u32 = 1;
/// Bytes of it that are read.
const BYTES_MAX: u64 = 4096;

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionFileError {
    #[error("cannot {verb} the session file `{}`: {source}", path.display())]
    Io { verb: &'static str, path: PathBuf, source: io::Error },
    #[error("the session file `{}` is not a file of ours alone: it needs mode 0600", path.display())]
    NotPrivate { path: PathBuf },
    #[error("the session file `{}` is damaged, or of a later version: remove it", path.display())]
    Damaged { path: PathBuf },
}

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    session_id: SessionId,
    loop_id: LoopId,
    session_key: SessionKey,
}

/// What is kept there; `None` when there is no file.
/// # Errors
/// [`SessionFileError`].
pub(crate) fn read(path: &Path) -> Result<Option<Credentials>, SessionFileError> {
    let failed = |source| SessionFileError::Io { verb: "read", path: path.to_owned(), source };
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?;
    let is_ours = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o077 == 0;
    if !is_ours {
        return Err(SessionFileError::NotPrivate { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    match serde_json::from_str(&text) {
        Ok(Kept { format: FORMAT, session_id, loop_id, session_key }) => {
            Ok(Some(Credentials { session_id, loop_id, session_key }))
        }
        Ok(_) | Err(_) => Err(SessionFileError::Damaged { path: path.to_owned() }),
    }
}

/// Keeps `fresh` where nothing is kept, or only `lost`: what is kept then, which another bridge may
/// have made.
/// # Errors
/// [`SessionFileError`].
pub(crate) fn keep(
    path: &Path,
    fresh: Credentials,
    lost: Option<&Credentials>,
) -> Result<Credentials, SessionFileError> {
    let failed = |source| SessionFileError::Io { verb: "write", path: path.to_owned(), source };
    let own = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    write(&own, &fresh).map_err(failed)?;
    let linked = match read(path)? {
        Some(kept) if Some(&kept) != lost => {
            fs::remove_file(&own).map_err(failed)?;
            return Ok(kept);
        }
        Some(_lost) => fs::rename(&own, path),
        None => fs::hard_link(&own, path).and_then(|()| fs::remove_file(&own)),
    };
    match linked {
        Ok(()) => Ok(fresh),
        Err(error) => {
            fs::remove_file(&own).ok();
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed(error));
            }
            read(path)?.ok_or_else(|| failed(error))
        }
    }
}

fn write(path: &Path, credentials: &Credentials) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let Credentials { session_id, loop_id, session_key } = credentials.clone();
    let kept = Kept { format: FORMAT, session_id, loop_id, session_key };
    let text = serde_json::to_string(&kept)?;
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("procd-mcp-{}", uuid::Uuid::new_v4());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_session_is_kept_until_it_is_lost_and_by_whoever_was_first() {
        let folder = Folder::new();
        let path = folder.0.join("below/session.json");
        assert!(read(&path).unwrap().is_none());
        let [first, second, third] = [(); 3].map(|()| Credentials::random().unwrap());
        assert_eq!(keep(&path, first.clone(), None).unwrap(), first);
        assert_eq!(keep(&path, second.clone(), None).unwrap(), first);
        assert_eq!(keep(&path, second.clone(), Some(&first)).unwrap(), second);
        assert_eq!(keep(&path, third, Some(&first)).unwrap(), second);
        assert_eq!(read(&path).unwrap(), Some(second));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_a_symlink_and_a_damaged_one_are_refused() {
        let folder = Folder::new();
        fs::create_dir(&folder.0).unwrap();
        let path = folder.0.join("session.json");
        keep(&path, Credentials::random().unwrap(), None).unwrap();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(read(&link), Err(SessionFileError::Io { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path), Err(SessionFileError::NotPrivate { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{\"format\":2}").unwrap();
        assert!(matches!(read(&path), Err(SessionFileError::Damaged { .. })));
    }
}
