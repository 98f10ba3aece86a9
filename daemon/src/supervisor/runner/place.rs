//! Where a path really leads: symbolic links followed, one component after the other, also for a
//! path whose end does not exist yet. Reads the file system and may wait: not for the
//! supervisor's task. Source: spec, events, *Leases*.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Component, Path, PathBuf};

use procd_core::lease::{Claim, ClaimKind};

use super::{AskedClaim, Refusal};

/// Links followed on the way, a count, as the kernel does.
const LINKS_MAX: u32 = 40;

/// Resolves an absolute path: no links, no `.`, no `..`. What does not exist stays as it is named.
/// # Errors
/// A loop of links, or a folder on the way that may not be looked into.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut ahead: VecDeque<OsString> = parts(path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        match std::fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from_raw_os_error(
                        rustix::io::Errno::LOOP.raw_os_error(),
                    ));
                }
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            // No link: a folder, a file, or nothing.
            Err(error) if is_no_link(&error) => done = next,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn is_no_link(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    [InvalidInput, NotADirectory, NotFound].contains(&error.kind())
}

/// The components that lead on.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// Where an open folder is now, as the kernel says; whatever its name was when it was opened.
/// # Errors
/// procfs cannot be read, or the folder is gone.
pub fn of_descriptor(folder: impl AsFd) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    std::fs::read_link(link)
}

/// A claim as asked, with its paths resolved.
/// # Errors
/// `Invalid` naming the field: a root that is no folder, a path outside of it.
pub fn claim(asked: &AskedClaim) -> Result<Claim, Refusal> {
    let invalid = |field: &str, what: &str| Refusal::Parameter {
        field: format!("{}{field}", asked.prefix),
        message: format!("`{}{field}` {what}", asked.prefix),
    };
    if asked.root.is_relative() {
        return Err(invalid("root", "is not an absolute path"));
    }
    let root = resolve(&asked.root).map_err(|_error| invalid("root", "cannot be resolved"))?;
    if !root.is_dir() {
        return Err(invalid("root", "is not a folder"));
    }
    let mut paths = Vec::with_capacity(asked.paths.len());
    for (index, path) in asked.paths.iter().enumerate() {
        let field = format!("paths[{index}]");
        let resolved = resolve(&root.join(path));
        let resolved = resolved.map_err(|_error| invalid(&field, "cannot be resolved"))?;
        if !resolved.starts_with(&root) {
            return Err(invalid(&field, "leads out of the root"));
        }
        paths.push(resolved);
    }
    Ok(Claim { kind: asked.kind, root, paths })
}

/// The claim of a start that asked for none in a session with workspaces.
#[must_use]
pub const fn unclaimed(workspace: PathBuf) -> Claim {
    Claim { kind: ClaimKind::Unclaimed, root: workspace, paths: Vec::new() }
}

/// The declared workspace that a resolved folder lies in, resolved too.
#[must_use]
pub fn workspace_of(folder: &Path, workspaces: &[PathBuf]) -> Option<PathBuf> {
    let resolved = workspaces.iter().filter_map(|root| resolve(root).ok());
    resolved.into_iter().find(|root| folder.starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("procd-place-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("real/src")).unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn links_and_dots_lead_where_the_kernel_goes_and_missing_ends_stay() {
        let path = folder("links");
        std::os::unix::fs::symlink("real", path.join("short")).unwrap();
        std::os::unix::fs::symlink("real/new", path.join("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", path.join("loop")).unwrap();
        let at = |tail: &str| resolve(&path.join(tail));
        assert_eq!(at("short/src").unwrap(), path.join("real/src"));
        assert_eq!(at("short/../real/./src").unwrap(), path.join("real/src"));
        assert_eq!(at("short/no/such").unwrap(), path.join("real/no/such"));
        assert_eq!(at("dangling/x").unwrap(), path.join("real/new/x"));
        assert!(at("loop/x").is_err());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_claim_cannot_reach_out_of_its_root() {
        let path = folder("claim");
        std::os::unix::fs::symlink("/", path.join("real/out")).unwrap();
        let asked = |paths: &[&str]| AskedClaim {
            kind: ClaimKind::ScopedWrite,
            root: path.join("real"),
            paths: paths.iter().map(PathBuf::from).collect(),
            prefix: "workspace.",
        };
        let made = claim(&asked(&["src", "src/../new"])).unwrap();
        assert_eq!(made.paths, [path.join("real/src"), path.join("real/new")]);
        for out in ["..", "out/etc", "/etc"] {
            let refusal = claim(&asked(&["src", out])).unwrap_err();
            let Refusal::Parameter { field, .. } = refusal else { panic!("{refusal:?}") };
            assert_eq!(field, "workspace.paths[1]");
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
