//! The one session that procctl has as an owner, per user: its ids and key, kept in the state
//! folder, so that what one call started the next one finds.
//!
//! The file is written whole under a name of its own and then linked into place: of several first
//! calls one wins and the others read what it linked. It is replaced only when the daemon lost or
//! closed the session, under a file lock, by whoever still finds the lost one there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use procd_client::Credentials;
use procd_protocol::{LoopId, SessionId, SessionKey};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::exit::CtlError;

/// Its name in the state folder.
const FILE: &str = "procctl.session.json";
/// Held while a lost session is replaced.
const LOCK_FILE: &str = "procctl.session.lock";

/// Who procctl is as an owner.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    format: u32,
    session_id: SessionId,
    loop_id: LoopId,
    session_key: SessionKey,
}

impl Identity {
    /// What it takes to attach.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials {
            session_id: self.session_id,
            loop_id: self.loop_id,
            session_key: self.session_key.clone(),
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The version of the file's format.
const FORMAT: u32 = 1;

/// Where the identity is kept.
#[derive(Debug, Clone)]
pub(crate) struct IdentityStore {
    folder: PathBuf,
}

impl IdentityStore {
    /// The store in this state folder.
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The identity, if one was ever made.
    /// # Errors
    /// [`CtlError`] for a file that cannot be read, is not ours alone, or makes no sense.
    pub(crate) fn read(&self) -> Result<Option<Identity>, CtlError> {
        let path = self.folder.join(FILE);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        check_private(&file, &path)?;
        let text = io::read_to_string(file).map_err(failed("read", &path))?;
        let identity: Identity =
            serde_json::from_str(&text).map_err(|error| broken(&path, &error))?;
        if identity.format == FORMAT { Ok(Some(identity)) } else { Err(newer(&path)) }
    }

    /// The identity; made now if there was none.
    /// # Errors
    /// As [`Self::read`], and for a folder or file that cannot be made.
    pub(crate) fn read_or_make(&self) -> Result<Identity, CtlError> {
        if let Some(identity) = self.read()? {
            return Ok(identity);
        }
        self.make_folder()?;
        let (identity, written) = self.write_new()?;
        let linked = fs::hard_link(&written, self.folder.join(FILE));
        fs::remove_file(&written).map_err(failed("remove", &written))?;
        match linked {
            Ok(()) => Ok(identity),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.read()?.ok_or_else(|| failed("read", &self.folder.join(FILE))(error))
            }
            Err(error) => Err(failed("make", &self.folder.join(FILE))(error)),
        }
    }

    /// A new identity in place of `lost`; of several callers the first makes it.
    /// # Errors
    /// As [`Self::read_or_make`].
    pub(crate) fn replace(&self, lost: &Identity) -> Result<Identity, CtlError> {
        self.make_folder()?;
        let path = self.folder.join(LOCK_FILE);
        let lock = private_file().create(true).truncate(false).open(&path);
        let lock = lock.map_err(failed("open", &path))?;
        lock.lock().map_err(failed("lock", &path))?;
        if let Some(current) = self.read()?
            && current.session_id != lost.session_id
        {
            return Ok(current);
        }
        let (identity, written) = self.write_new()?;
        fs::rename(&written, self.folder.join(FILE)).map_err(failed("replace", &written))?;
        Ok(identity)
    }

    fn make_folder(&self) -> Result<(), CtlError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(failed("make", &self.folder))
    }

    /// Writes a fresh identity whole, under a name nobody else uses.
    fn write_new(&self) -> Result<(Identity, PathBuf), CtlError> {
        let Credentials { session_id, loop_id, session_key } = Credentials::random()?;
        let identity = Identity { format: FORMAT, session_id, loop_id, session_key };
        let path = self.folder.join(format!("{FILE}.{}", Uuid::new_v4()));
        let text = serde_json::to_string(&identity).map_err(|error| broken(&path, &error))?;
        let write = || -> io::Result<()> {
            let mut file = private_file().create_new(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(failed("write", &path))?;
        Ok((identity, path))
    }
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// The key in it is authority: others must have no right to the file.
fn check_private(file: &File, path: &Path) -> Result<(), CtlError> {
    let mode = file.metadata().map_err(failed("look at", path))?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("others have rights to `{}`, which holds a key", path.display());
    Err(CtlError::usage(what, "take them away with `chmod 600`"))
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CtlError {
    let what = format!("cannot {verb} `{}`", path.display());
    move |source| CtlError::Io { what, source }
}

fn broken(path: &Path, error: &serde_json::Error) -> CtlError {
    let what = format!("`{}` makes no sense ({error})", path.display());
    CtlError::usage(what, "remove it: a new session is made then, and `ps -a` still shows the old")
}

fn newer(path: &Path) -> CtlError {
    let what = format!("`{}` has another format than this procctl knows", path.display());
    CtlError::usage(what, "use the newer procctl")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("procctl-{}", Uuid::new_v4())))
        }
        fn store(&self) -> IdentityStore {
            IdentityStore::new(self.0.join("state"))
        }
        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.join("state")).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn what_was_made_is_read_again_and_is_ours_alone() {
        let folder = Folder::new();
        assert!(folder.store().read().unwrap().is_none());
        let made = folder.store().read_or_make().unwrap();
        assert_eq!(folder.store().read().unwrap().unwrap().session_id, made.session_id);
        assert_eq!(folder.files(), [FILE]);
        let mode = |path: &str| fs::metadata(folder.0.join(path)).unwrap().mode() & 0o777;
        assert_eq!(mode("state"), 0o700);
        assert_eq!(mode(&format!("state/{FILE}")), 0o600);
    }

    #[test]
    fn of_many_first_calls_one_makes_the_key_and_all_use_it() {
        let folder = Folder::new();
        let sessions: Vec<SessionId> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| folder.store().read_or_make().unwrap().session_id))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert!(sessions.iter().all(|session| *session == sessions[0]));
        assert_eq!(folder.files(), [FILE]);
    }

    #[test]
    fn a_lost_session_is_replaced_once() {
        let folder = Folder::new();
        let lost = folder.store().read_or_make().unwrap();
        let sessions: Vec<SessionId> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| folder.store().replace(&lost).unwrap().session_id))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert!(sessions.iter().all(|session| *session == sessions[0]));
        assert_ne!(sessions[0], lost.session_id);
        assert_eq!(folder.files(), [FILE, LOCK_FILE]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = Folder::new();
        folder.store().read_or_make().unwrap();
        let path = folder.0.join("state").join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(folder.store().read().unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn a_symlink_in_its_place_is_not_followed() {
        let folder = Folder::new();
        folder.store().make_folder().unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.0.join("state").join(FILE)).unwrap();
        assert!(folder.store().read().is_err());
    }
}
