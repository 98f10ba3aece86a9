//! The payload group: `procd-<folder id>-<instance>/payload`, above every leaf of one daemon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};

use super::controllers::{self, Controllers};
use super::{Leaf, is_populated, kill, make_open_group, open_group, remove_below, subgroups};

const PREFIX: &str = "procd-";
const PAYLOAD: &str = "payload";
/// Attributes that carry the folder's id; the second for who may not set the first.
const MARKS: [&str; 2] = ["user.procd.folder", "trusted.procd.folder"];
/// How long a sweep waits for what it killed.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// Bytes of an id in an attribute.
const ID_BYTES_MAX: usize = 64;

/// The payload group of this daemon.
#[derive(Debug)]
pub struct Payload {
    own: OwnedFd,
    instance_name: String,
    instance: OwnedFd,
    folder: Arc<OwnedFd>,
    path: PathBuf,
    proc_path: String,
    controllers: Controllers,
}

impl Payload {
    /// Makes it in the group at `own`.
    /// - `folder_id`: of the state folder; also its attribute.
    /// - `instance`: of this daemon; unique.
    /// # Errors
    /// What cannot be made or marked.
    pub fn create(own: &Path, folder_id: &str, instance: &str) -> io::Result<Self> {
        let path = own.join(format!("{PREFIX}{folder_id}-{instance}")).join(PAYLOAD);
        let own = open_folder(own)?;
        let instance_name = format!("{PREFIX}{folder_id}-{instance}");
        let instance = make_open_group(&own, &instance_name)?;
        let made = mark(&instance, folder_id).and_then(|()| make_open_group(&instance, PAYLOAD));
        let folder = match made {
            Ok(folder) => Arc::new(folder),
            Err(error) => {
                let _left = rustix::fs::unlinkat(&own, &*instance_name, AtFlags::REMOVEDIR);
                return Err(error);
            }
        };
        controllers::hand_down(&own);
        controllers::hand_down(&instance);
        controllers::hand_down(&*folder);
        let controllers = controllers::available(&*folder);
        let proc_path = String::new();
        Ok(Self { own, instance_name, instance, folder, path, proc_path, controllers })
    }

    /// A fresh leaf.
    /// # Errors
    /// What cannot be made.
    pub fn leaf(&self, name: String) -> io::Result<Leaf> {
        Leaf::create(Arc::clone(&self.folder), name)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Which limits its leaves can hold.
    #[must_use]
    pub const fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// Where it is, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As /proc shows it to this process.
    #[must_use]
    pub fn proc_path(&self) -> &str {
        &self.proc_path
    }

    pub(crate) fn set_proc_path(&mut self, path: String) {
        self.proc_path = path;
    }

    /// Kills whatever is in it.
    /// # Errors
    /// What the write says.
    pub fn kill(&self) -> io::Result<()> {
        kill(&self.folder)
    }

    /// Removes it with its empty leaves, at an orderly end.
    /// # Errors
    /// Something in it still lives.
    pub fn remove(&self) -> io::Result<()> {
        remove_below(&self.instance);
        match rustix::fs::unlinkat(&self.own, &*self.instance_name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Groups of earlier daemons that were ended and removed.
    pub removed: Vec<String>,
    /// Groups that could not be: something in them still lives.
    pub left: Vec<String>,
}

/// Ends what an earlier daemon of the same state folder left alive under `own`. Only a group whose
/// name and whose attribute both carry the folder's id is touched. Waits for the killed.
#[must_use]
pub fn sweep(own: &Path, folder_id: &str) -> Swept {
    let mut swept = Swept::default();
    let Ok(own) = open_folder(own) else { return swept };
    let prefix = format!("{PREFIX}{folder_id}-");
    for name in subgroups(&own) {
        let Ok(text) = name.to_str().map(str::to_owned) else { continue };
        if !text.starts_with(&prefix) {
            continue;
        }
        let Ok(group) = open_group(&own, name.as_c_str()) else { continue };
        if !is_marked(&group, folder_id) {
            continue;
        }
        if end(&group) && rustix::fs::unlinkat(&own, name.as_c_str(), AtFlags::REMOVEDIR).is_ok() {
            swept.removed.push(text);
        } else {
            swept.left.push(text);
        }
    }
    swept
}

fn end(group: &OwnedFd) -> bool {
    let mut waited = Duration::ZERO;
    while !matches!(is_populated(group), Ok(false)) {
        if waited >= SWEEP_MAX || kill(group).is_err() {
            return false;
        }
        let pause = Duration::from_millis(1);
        super::leaf::rest(pause);
        waited += pause;
    }
    remove_below(group);
    true
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn mark(group: &OwnedFd, folder_id: &str) -> io::Result<()> {
    let mut last = Ok(());
    for name in MARKS {
        match rustix::fs::fsetxattr(group, name, folder_id.as_bytes(), XattrFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(errno) => last = Err(errno.into()),
        }
    }
    last
}

fn is_marked(group: &OwnedFd, folder_id: &str) -> bool {
    MARKS.iter().any(|&name| {
        let mut buffer = [0_u8; ID_BYTES_MAX];
        rustix::fs::fgetxattr(group, name, &mut buffer[..])
            .is_ok_and(|len| buffer.get(..len) == Some(folder_id.as_bytes()))
    })
}
