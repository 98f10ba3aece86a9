//! The parts on disk, behind a seam so that failing writes and syncs can be tested.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::damage::Damage;
use crate::error::StoreError;
use crate::failpoint;
use crate::file::{self, Found};
use crate::folder::StateFolder;

/// Digits of a part's number in its name.
const NUMBER_DIGITS: usize = 20;
/// How a part's name ends.
const NAME_END: &str = ".log";

/// The ballast: given up on a full disk, so that ends can still be saved; bytes.
pub(crate) const BALLAST_BYTES: u64 = 4 * 1024 * 1024;

/// Where parts are made and removed.
pub(super) trait Disk: Send + fmt::Debug {
    /// A new, empty part whose name is durable.
    fn create(&mut self, number: u64) -> Result<Box<dyn Part>, StoreError>;
    /// Removes a part; none there is fine.
    fn remove(&mut self, number: u64) -> Result<(), StoreError>;
    /// Gives up the ballast.
    fn make_room(&mut self);
    /// Makes the ballast if there is none and room for it.
    fn keep_room(&mut self);
}

/// A part that takes appends.
pub(super) trait Part: Send + fmt::Debug {
    /// Appends.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Makes all appended durable.
    fn sync(&mut self) -> Result<(), StoreError>;
}

/// The name of a part.
pub(super) fn name(number: u64) -> String {
    format!("{number:0NUMBER_DIGITS$}{NAME_END}")
}

/// The number in the name of a part.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(NAME_END)?;
    if digits.len() != NUMBER_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The folder `commit/`, and `ballast` beside it.
#[derive(Debug)]
pub(super) struct FolderDisk {
    path: PathBuf,
    ballast: PathBuf,
}

impl FolderDisk {
    pub(super) fn new(folder: &StateFolder) -> Self {
        Self { path: folder.commit_path(), ballast: folder.ballast_path() }
    }

    /// What is no ballast of this build goes, so that the committer makes one: a file of another
    /// size at once, what is no file to quarantine.
    pub(super) fn check_ballast(&self, folder: &StateFolder) -> Option<Damage> {
        let path = &self.ballast;
        let tell = |reason, trouble| Some(Damage::new(folder.path(), path, reason, trouble));
        match file::look(path) {
            Ok(Found::Nothing) => None,
            Ok(Found::File) => {
                let len = std::fs::symlink_metadata(path).map_or(0, |found| found.len());
                // Killed while it was made: no damage, it is only not whole.
                let is_whole = len == BALLAST_BYTES;
                if is_whole {
                    return None;
                }
                let gone = file::remove(path).err();
                if len == 0 && gone.is_none() {
                    None
                } else {
                    tell("it had another size; made anew", gone)
                }
            }
            Ok(Found::Folder | Found::Other) => {
                let reason = "it is no regular file; made anew";
                tell(reason, folder.quarantine(path, reason).err())
            }
            Err(error) => tell("it cannot be looked at", Some(error)),
        }
    }

    fn make_ballast(&self) -> Result<(), StoreError> {
        if file::look(&self.ballast)? != Found::Nothing {
            return Ok(());
        }
        failpoint::hit("ballast-before-create");
        let file = file::create_new(&self.ballast)?;
        failpoint::hit("ballast-before-fill");
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, BALLAST_BYTES).map_err(|errno| {
            // Half a ballast is none.
            file::remove(&self.ballast).ok();
            StoreError::io("allocate", &self.ballast, errno)
        })
    }
}

impl Disk for FolderDisk {
    fn create(&mut self, number: u64) -> Result<Box<dyn Part>, StoreError> {
        let path = self.path.join(name(number));
        failpoint::fail("part-before-create")
            .map_err(|source| StoreError::io("create", &path, source))?;
        let file = file::create_new(&path)?;
        failpoint::hit("part-before-folder-sync");
        file::sync_folder(&self.path)?;
        failpoint::hit("part-after-folder-sync");
        Ok(Box::new(FilePart { file, path }))
    }

    fn remove(&mut self, number: u64) -> Result<(), StoreError> {
        let path: &Path = &self.path.join(name(number));
        failpoint::hit("part-before-remove");
        file::remove(path)?;
        failpoint::hit("part-after-remove");
        Ok(())
    }

    fn make_room(&mut self) {
        // Without it the write that follows tells that the disk is full.
        file::remove(&self.ballast).ok();
    }

    fn keep_room(&mut self) {
        // No room for a ballast is no failure: the write that needs it tells.
        self.make_ballast().ok();
    }
}

#[derive(Debug)]
struct FilePart {
    file: File,
    path: PathBuf,
}

impl Part for FilePart {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        failpoint::fail("log-before-write")
            .and_then(|()| self.file.write_all(bytes))
            .map_err(|source| StoreError::io("write", &self.path, source))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        failpoint::fail("log-before-sync")
            .and_then(|()| self.file.sync_data())
            .map_err(|source| StoreError::io("sync", &self.path, source))?;
        failpoint::hit("log-after-sync");
        Ok(())
    }
}
