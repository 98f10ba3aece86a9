//! The access of a command as the kernel is to hold it: what may be changed, and if that was asked
//! for, what may be read. Source: spec, containment, *Access and limits*.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use procd_core::lease::{Claim, ClaimKind};
use procd_sys::landlock::{self, Fence};
use rustix::fs::{Mode, OFlags};
use uuid::Uuid;

use crate::supervisor::refusal::{PlanRefusal, Refusal};
use crate::supervisor::runner::{AskedFence, place};

/// What stays writable in every access.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom"];

/// A fence that is made and not closed yet.
#[derive(Debug)]
pub(super) struct Fencing {
    fence: Fence,
    /// The command's own temporary folder, to be made.
    temporary: PathBuf,
    /// What the record says.
    pub(super) enforced: String,
}

impl Fencing {
    /// Makes the fence of a claim. Opens what it lets through, which can wait.
    /// - `scratch`: where temporary folders are made.
    /// # Errors
    /// What the kernel lacks; a path that is not there, since only what is there can be let
    /// through.
    pub(super) fn new(claim: &Claim, asked: &AskedFence, scratch: &Path) -> Result<Self, Refusal> {
        // In a test's build an older kernel can be played.
        let played =
            crate::failpoint::value("landlock-abi").and_then(|abi| u32::try_from(abi).ok());
        let abi = played.unwrap_or_else(landlock::abi);
        if let Some(right) = landlock::missing_right(abi) {
            return Err(unenforceable(
                right,
                format!(
                    "the Landlock of this kernel (ABI {abi}) cannot hold back `{right}`: ABI {} can",
                    landlock::ABI_MIN
                ),
            ));
        }
        let fence = Fence::new(asked.paths_read.is_some()).map_err(|error| failed(&error))?;
        for device in DEVICES {
            if let Ok(device) = open(Path::new(device)) {
                fence.allow_all(device).map_err(|error| failed(&error))?;
            }
        }
        match claim.kind {
            ClaimKind::BroadWrite => {
                let root = exactly(&claim.root, "workspace.root")?;
                fence.allow_all(root).map_err(|error| failed(&error))?;
            }
            ClaimKind::ScopedWrite => {
                for (index, path) in claim.paths.iter().enumerate() {
                    let what = exactly(path, &format!("workspace.paths[{index}]"))?;
                    fence.allow_all(what).map_err(|error| failed(&error))?;
                }
            }
            ClaimKind::ReadOnly
            | ClaimKind::Unclaimed
            | ClaimKind::StructuredWrite
            | ClaimKind::Snapshot => {}
        }
        for (index, path) in asked.paths_read.iter().flatten().enumerate() {
            let field = format!("workspace.paths_read[{index}]");
            let resolved = place::resolve(&claim.root.join(path));
            let resolved = resolved.map_err(|_error| absent(&field, "cannot be resolved"))?;
            let what = exactly(&resolved, &field)?;
            fence.allow_reads(what).map_err(|error| failed(&error))?;
        }
        let temporary = scratch.join(Uuid::new_v4().to_string());
        Ok(Self { fence, temporary, enforced: format!("landlock ABI {abi}") })
    }

    /// Where the command's temporary files go.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Makes the temporary folder, and completes the fence.
    /// - `terminal`: of the command, which it may open again.
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn complete(self, terminal: Option<&OwnedFd>) -> io::Result<(OwnedFd, Scratch)> {
        let mut maker = std::fs::DirBuilder::new();
        maker.recursive(true).mode(0o700).create(&self.temporary)?;
        let scratch = Scratch(self.temporary);
        self.fence.allow_all(rustix::fs::open(&scratch.0, PATH, Mode::empty())?)?;
        if let Some(terminal) = terminal {
            self.fence.allow_all(terminal.as_fd())?;
        }
        Ok((self.fence.into_descriptor(), scratch))
    }
}

const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, PATH, Mode::empty())?)
}

/// Opens a resolved path, and sees that nothing was swapped on the way to it.
fn exactly(path: &Path, field: &str) -> Result<OwnedFd, Refusal> {
    let Ok(opened) = open(path) else {
        return Err(absent(field, "is not there, and the kernel lets through only what is"));
    };
    match place::of_descriptor(&opened) {
        Ok(found) if found == path => Ok(opened),
        Ok(_) | Err(_) => Err(absent(field, "was moved while it was looked at")),
    }
}

fn absent(field: &str, what: &str) -> Refusal {
    Refusal::Parameter { field: field.to_owned(), message: format!("`{field}` {what}") }
}

fn unenforceable(missing: &str, message: String) -> Refusal {
    Refusal::Plan(PlanRefusal::Unenforceable {
        field: "workspace.enforce".to_owned(),
        missing: missing.to_owned(),
        message,
    })
}

fn failed(error: &io::Error) -> Refusal {
    tracing::error!(%error, "a fence could not be made");
    unenforceable("landlock", "the kernel refuses to hold this access".to_owned())
}

/// The temporary folder of one command; dropping it removes it, off this thread.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&path))),
            Err(_no_runtime) => remove(&path),
        }
    }
}

/// What an earlier daemon left, as it is now: whatever comes later is not touched.
pub(super) fn leftovers(scratch: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Removes a folder with all that is in it. A command may have taken itself the right to.
pub(super) fn remove(path: &Path) {
    if std::fs::remove_dir_all(path).is_ok() {
        return;
    }
    open_up(path);
    match std::fs::remove_dir_all(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, "a temporary folder stays until the next start"),
    }
}

/// Lets every folder be changed again. Links are not followed.
fn open_up(folder: &Path) {
    let mut ahead = vec![folder.to_owned()];
    while let Some(folder) = ahead.pop() {
        if !std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let _stays = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        ahead.extend(leftovers(&folder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_also_when_its_command_took_the_right_to() {
        let folder = std::env::temp_dir().join(format!("procd-fence-{}", Uuid::new_v4()));
        let deep = folder.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("/", deep.join("link")).unwrap();
        for path in [&deep, &folder.join("a")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o500)).unwrap();
        }
        remove(&folder);
        assert!(!folder.exists());
    }

    #[test]
    fn only_what_is_where_it_was_resolved_to_is_opened() {
        assert!(exactly(Path::new("/dev/null"), "f").is_ok());
        assert!(exactly(Path::new("/no/such/thing"), "f").is_err());
        // A link is not what a resolved path leads to.
        assert!(exactly(Path::new("/proc/self/exe"), "f").is_err());
    }
}
