//! Files of the state folder: made 0600 in one step whatever the umask, never through a link,
//! replaced as a whole or not at all.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::failpoint;

/// Rights of each file.
pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Rights of each folder.
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o700);
/// Begins the name of a file that is not complete yet; a restart sweeps what is left of them.
const TEMPORARY_PREFIX: &str = ".new-";
/// The rights that nobody but the owner may have.
const OTHERS: u32 = 0o077;

/// What stands at a path, links not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link, a socket, a device, ...
    Other,
}

/// Looks at a path without following a link.
pub(crate) fn look(path: &Path) -> Result<Found, StoreError> {
    match fs::lstat(path) {
        Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Found::File,
            FileType::Directory => Found::Folder,
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Found::Other,
        }),
        Err(Errno::NOENT) => Ok(Found::Nothing),
        Err(errno) => Err(StoreError::io("look at", path, errno)),
    }
}

/// Makes a new file, 0600; an existing one is an error.
pub(crate) fn create_new(path: &Path) -> Result<File, StoreError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd =
        fs::open(path, flags, FILE_MODE).map_err(|errno| StoreError::io("create", path, errno))?;
    settle_mode(&fd, path, FILE_MODE)?;
    Ok(File::from(fd))
}

/// Makes a folder, 0700, if there is none; whether it was made.
pub(crate) fn make_folder(path: &Path) -> Result<bool, StoreError> {
    match fs::mkdir(path, FOLDER_MODE) {
        Ok(()) => {
            settle_mode(open_folder(path)?, path, FOLDER_MODE)?;
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(StoreError::io("make folder", path, errno)),
    }
}

/// A umask can only take rights away; what it took of the owner's is given back.
pub(crate) fn settle_mode(fd: impl AsFd, path: &Path, mode: Mode) -> Result<(), StoreError> {
    let stat = fs::fstat(&fd).map_err(|errno| StoreError::io("look at", path, errno))?;
    if Mode::from_raw_mode(stat.st_mode) == mode {
        return Ok(());
    }
    fs::fchmod(&fd, mode).map_err(|errno| StoreError::io("set the rights of", path, errno))
}

/// Opens a folder; a link in its place is refused.
pub(crate) fn open_folder(path: &Path) -> Result<File, StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| StoreError::io("open folder", path, errno))
}

/// Makes what happened to the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    open_folder(path)?.sync_all().map_err(|source| StoreError::io("sync folder", path, source))
}

/// Whether the thing behind `fd` is ours and shut to everybody else; else what is wrong.
pub(crate) fn check_private(fd: impl AsFd, path: &Path, mode: u32) -> Result<(), StoreError> {
    let stat = fs::fstat(fd).map_err(|errno| StoreError::io("look at", path, errno))?;
    let refuse = |what: String| Err(StoreError::Unsafe { path: path.to_owned(), what });
    let uid = rustix::process::geteuid().as_raw();
    if stat.st_uid != uid {
        return refuse(format!("it belongs to uid {}, not to uid {uid}", stat.st_uid));
    }
    if stat.st_mode & OTHERS != 0 {
        let found = stat.st_mode & 0o7777;
        return refuse(format!("its mode is {found:04o}, it must be {mode:04o} (chmod {mode:o})"));
    }
    Ok(())
}

/// Opens a regular file for reading; a link, folder, device or pipe in its place is `Corrupt`.
pub(crate) fn open_regular(path: &Path) -> Result<File, StoreError> {
    // NONBLOCK: a pipe in the file's place must not hold the restore.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP) => return Err(StoreError::corrupt(path, "a link is in its place")),
        Err(Errno::NXIO) => return Err(StoreError::corrupt(path, "a socket is in its place")),
        Err(errno) => return Err(StoreError::io("open", path, errno)),
    };
    let stat = fs::fstat(&fd).map_err(|errno| StoreError::io("look at", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(StoreError::corrupt(path, "it is no regular file"));
    }
    Ok(File::from(fd))
}

/// The bytes of a regular file of at most `max` bytes; a longer one is `Corrupt`.
pub(crate) fn read(path: &Path, max: u64) -> Result<Vec<u8>, StoreError> {
    let file = open_regular(path)?;
    let len = file.metadata().map_or(0, |stat| stat.len()).min(max);
    // One byte more, so that the end is seen without another read.
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0).saturating_add(1));
    file.take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| StoreError::io("read", path, source))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= max) {
        Ok(bytes)
    } else {
        Err(StoreError::corrupt(path, format!("it is longer than {max} bytes")))
    }
}

/// Replaces a file by `bytes`, durable on return: written anew, synced, renamed, folder synced.
/// # Errors
/// Before the rename the old file stands and no temporary one is left.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    replace_with(path, |file| file.write_all(bytes))
}

/// [`replace`] with a writer of its own, for the fault tests.
pub(crate) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StoreError> {
    Replacement::begin(path, write)?.put_in_place()?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))?;
    failpoint::hit("file-after-folder-sync");
    Ok(())
}

/// A file that is written and not in its place yet. Several at once share a commit of the file
/// system's journal. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Replacement {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_in_place: bool,
}

impl Replacement {
    /// Writes it beside its place.
    pub(crate) fn begin(
        path: &Path,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<Self, StoreError> {
        let temporary = temporary_path(path);
        let file = create_temporary(&temporary)?;
        let path = path.to_owned();
        let mut begun = Self { file, temporary, path, is_in_place: false };
        failpoint::fail("file-before-write")
            .and_then(|()| write(&mut begun.file))
            .map_err(|source| StoreError::io("write", &begun.temporary, source))?;
        Ok(begun)
    }

    /// Has the disk begin with it, without waiting.
    pub(crate) fn write_back(&self) {
        // A hint: the sync that follows does not rely on it.
        fs::fadvise(&self.file, 0, None, fs::Advice::DontNeed).ok();
    }

    /// Syncs it and puts it in its place; durable once the folder is synced too.
    /// # Errors
    /// The old file stands then and no temporary one is left.
    pub(crate) fn put_in_place(mut self) -> Result<(), StoreError> {
        failpoint::fail("file-before-sync")
            .and_then(|()| self.file.sync_all())
            .map_err(|source| StoreError::io("sync", &self.temporary, source))?;
        failpoint::fail("file-before-rename")
            .and_then(|()| Ok(fs::rename(&self.temporary, &self.path)?))
            .map_err(|source| StoreError::io("rename", &self.path, source))?;
        self.is_in_place = true;
        failpoint::hit("file-after-rename");
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_in_place {
            // The first failure is the one to tell; what cannot be removed now is swept at a
            // restore.
            fs::unlink(&self.temporary).ok();
        }
    }
}

fn create_temporary(path: &Path) -> Result<File, StoreError> {
    match create_new(path) {
        // Left by a crash: there is one writer per name, so nobody is at it.
        Err(StoreError::Io { ref source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            remove(path)?;
            create_new(path)
        }
        other => other,
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(TEMPORARY_PREFIX);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Whether a name is that of a file that was never completed.
pub(crate) fn is_temporary(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes())
}

/// Removes a file, a link, or a folder with all in it; nothing there is fine.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    let gone = match look(path)? {
        Found::Nothing => return Ok(()),
        Found::Folder => std::fs::remove_dir_all(path),
        Found::File | Found::Other => std::fs::remove_file(path),
    };
    gone.map_err(|source| StoreError::io("remove", path, source))
}

/// The inode of what is open, and of what stands at the path: different = it was replaced.
pub(crate) fn is_same(fd: impl AsFd, path: &Path) -> Result<bool, StoreError> {
    let held = fs::fstat(fd).map_err(|errno| StoreError::io("look at", path, errno))?;
    match fs::statat(fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(StoreError::io("look at", path, errno)),
    }
}
