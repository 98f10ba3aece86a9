//! Access that the kernel holds a command to. A fence is made by the daemon as a descriptor and
//! closed around the child just before its exec, so that every descendant is inside.
//!
//! Raw system calls, since the fence crosses a process border as a descriptor and is closed where
//! nothing may allocate: the crate for this does neither.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::raw;

/// The least that can hold back everything that is promised: truncation came last.
pub const ABI_MIN: u32 = 3;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_ALL: u64 = 0b111_1111 << 6;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

const WRITES: u64 = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_ALL | REFER | TRUNCATE;
const READS: u64 = EXECUTE | READ_FILE | READ_DIR;
/// What can be allowed of a thing that is no folder.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

/// The version of the kernel's Landlock; 0 = none.
#[must_use]
pub fn abi() -> u32 {
    raw::landlock_abi()
}

/// The right that a Landlock of version `abi` cannot hold back; `None` = it can hold back all.
#[must_use]
pub const fn missing_right(abi: u32) -> Option<&'static str> {
    match abi {
        0 => Some("write"),
        1 => Some("refer"),
        2 => Some("truncate"),
        _ => None,
    }
}

/// A fence with what it lets through so far.
#[derive(Debug)]
pub struct Fence {
    ruleset: OwnedFd,
    handled: u64,
}

impl Fence {
    /// Nothing may be changed; with `narrows_reads` nothing read nor executed either.
    /// # Errors
    /// The kernel has no Landlock, or an older one.
    pub fn new(narrows_reads: bool) -> io::Result<Self> {
        let handled = if narrows_reads { WRITES | READS } else { WRITES };
        Ok(Self { ruleset: raw::landlock_ruleset(handled)?, handled })
    }

    /// Lets everything be done to a file, or in and below a folder.
    /// # Errors
    /// What the kernel says.
    pub fn allow_all(&self, what: impl AsFd) -> io::Result<()> {
        self.allow(what, WRITES | READS)
    }

    /// Lets a file, or what is below a folder, be read and executed.
    /// # Errors
    /// What the kernel says.
    pub fn allow_reads(&self, what: impl AsFd) -> io::Result<()> {
        self.allow(what, READS)
    }

    fn allow(&self, what: impl AsFd, rights: u64) -> io::Result<()> {
        let found = rustix::fs::fstat(&what)?;
        let is_folder =
            rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Directory;
        let fitting = if is_folder { rights } else { rights & OF_FILES };
        match fitting & self.handled {
            0 => Ok(()),
            rights => raw::landlock_allow(self.ruleset.as_fd(), what.as_fd(), rights),
        }
    }

    /// The descriptor that a start takes along.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.ruleset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_is_told_by_the_right_it_lacks() {
        assert_eq!(missing_right(0), Some("write"));
        assert_eq!(missing_right(1), Some("refer"));
        assert_eq!(missing_right(2), Some("truncate"));
        assert_eq!(missing_right(ABI_MIN), None);
        assert_eq!(missing_right(7), None);
    }

    #[test]
    fn a_fence_takes_rules_for_folders_and_files() {
        if missing_right(abi()).is_some() {
            assert!(Fence::new(false).is_err() || abi() > 0);
            return;
        }
        let fence = Fence::new(true).unwrap();
        fence.allow_all(std::fs::File::open("/dev/null").unwrap()).unwrap();
        fence.allow_reads(std::fs::File::open("/").unwrap()).unwrap();
        // No right of it applies to a file.
        let writes_only = Fence::new(false).unwrap();
        writes_only.allow_reads(std::fs::File::open("/dev/null").unwrap()).unwrap();
    }
}
