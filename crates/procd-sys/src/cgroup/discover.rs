//! Finding the folder that procd may use.

use std::path::{Path, PathBuf};

/// The magic of a cgroup v2 file system.
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
/// Marks of a delegated group, as systemd sets them.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// A folder that the configuration calls delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The group that this process is in: who started it has delegated that, mark or no mark.
    Own,
    /// This one.
    Folder(PathBuf),
}

/// Why there is no usable folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverError {
    /// No cgroup v2 is mounted, or this process is in none of it.
    #[error("no control group v2 folder of this process is mounted")]
    NotMounted,
    /// Somebody else manages it.
    #[error("the control group `{}` is not delegated", .0.display())]
    NotDelegated(PathBuf),
    /// Configured, but no such folder.
    #[error("`cgroup_root` `{}` is no control group v2 folder", .0.display())]
    NotAGroup(PathBuf),
}

/// The group in which procd may make its own: the configured one, else this process's own if it is
/// delegated. Merely writable is not enough: its manager may clean it.
/// # Errors
/// [`DiscoverError`].
pub fn own_group(configured: Option<&Root>) -> Result<PathBuf, DiscoverError> {
    if let Some(Root::Folder(path)) = configured {
        return if is_cgroup2(path) {
            Ok(path.to_owned())
        } else {
            Err(DiscoverError::NotAGroup(path.to_owned()))
        };
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let path = locate(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
        .filter(|path| is_cgroup2(path))
        .ok_or(DiscoverError::NotMounted)?;
    if configured == Some(&Root::Own) || is_delegated(&path) {
        Ok(path)
    } else {
        Err(DiscoverError::NotDelegated(path))
    }
}

fn is_cgroup2(path: &Path) -> bool {
    rustix::fs::statfs(path)
        .is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| kind == CGROUP2_SUPER_MAGIC))
}

/// Some user managers (systemd 252) set no mark: there the unit has to say it, see [`Root::Own`].
fn is_delegated(path: &Path) -> bool {
    let marked = DELEGATION_MARKS.iter().any(|&name| {
        let mut buffer = [0_u8; 8];
        rustix::fs::getxattr(path, name, &mut buffer[..])
            .is_ok_and(|len| buffer.get(..len) == Some(b"1"))
    });
    marked || (rustix::process::geteuid().is_root() && !Path::new("/run/systemd/system").exists())
}

/// The folder of the group in the `0::` line under the cgroup2 mount that shows it.
fn locate(mountinfo: &str, cgroup: &str) -> Option<PathBuf> {
    let group = crate::procfs::v2_line(cgroup)?;
    mountinfo.lines().find_map(|line| {
        // id parent device root mount-point options [optional fields] - type source options
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let root = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        let below = if root == "/" { group } else { group.strip_prefix(root.as_str())? };
        if below.split('/').any(|part| part == "..") {
            return None;
        }
        Some(Path::new(&point).join(below.trim_start_matches('/')))
    })
}

/// Octal escapes of mountinfo: space, tab, newline, backslash.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          31 25 0:27 / /sys/fs/cgroup/uni\\040fied rw shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_is_found_beside_v1_and_below_a_partial_mount() {
        let found = locate(HYBRID, "9:name=systemd:/x\n0::/user.slice/a\n").unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/uni fied/user.slice/a"));
        let partial = "31 25 0:27 /user.slice /mnt rw - cgroup2 none rw\n";
        assert_eq!(locate(partial, "0::/user.slice/a\n").unwrap(), Path::new("/mnt/a"));
        assert_eq!(locate(partial, "0::/other\n"), None);
    }

    #[test]
    fn a_group_outside_the_namespace_or_none_at_all_is_not_found() {
        assert_eq!(locate(HYBRID, "0::/../x\n"), None);
        assert_eq!(locate(HYBRID, "4:memory:/\n"), None);
        assert_eq!(locate("", "0::/\n"), None);
    }
}
