//! Control groups v2 as tier 1 uses them: membership, kill, proof of emptiness. No controllers.
//!
//! Kernel facts that this rests on: a leaf that was killed once kills whatever is cloned into it
//! later, so each is used once; a clone from outside that races a kill can survive one write, so
//! writes are repeated until the leaf is seen empty; notifications of `cgroup.events` come at
//! most each 10 ms, so it is re-read.

pub mod controllers;
pub mod discover;
mod leaf;
mod payload;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

pub use leaf::Leaf;
pub(crate) use leaf::rest;
pub use payload::{Payload, Swept, sweep};

/// Says whether anybody is in a group.
const EVENTS: &str = "cgroup.events";
/// Kills who is in a group.
const KILL: &str = "cgroup.kill";
/// Room made for each read of a file of a group, bytes.
const READ_BYTES: usize = 512;
/// How deep groups made by a command inside its own leaf are removed.
const DEPTH_MAX: u32 = 32;

/// Kills every process in a group and below it. `Ok` also when the group is gone.
/// # Errors
/// What the write says.
pub fn kill(group: impl AsFd) -> io::Result<()> {
    killed(write_file(group, KILL, b"1"))
}

fn killed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if is_gone(&error) => Ok(()),
        written => written,
    }
}

/// The name of the leaf of the process with this key, in the payload group.
#[must_use]
pub fn leaf_name(key: u64) -> String {
    format!("p{key}")
}

/// Whether the leaf of the process with this key is seen to be empty.
pub(crate) fn is_leaf_empty(payload: &OwnedFd, key: u64) -> bool {
    let path = format!("{}/{EVENTS}", leaf_name(key));
    read_file(payload, &path).is_ok_and(|text| text.lines().any(|line| line == "populated 0"))
}

/// Whether the group, or one below it, has live processes. A group that is removed has none.
/// # Errors
/// What the read says: it proves nothing.
pub fn is_populated(group: impl AsFd) -> io::Result<bool> {
    populated(read_file(group, EVENTS))
}

fn populated(read: io::Result<String>) -> io::Result<bool> {
    let text = match read {
        Ok(text) => text,
        Err(error) if is_gone(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    match text.lines().find_map(|line| line.strip_prefix("populated ")) {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) | None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// The same for who has to go on killing until it is proven empty.
pub(crate) fn may_be_populated(group: &OwnedFd) -> bool {
    is_populated(group).unwrap_or(true)
}

/// Removes every group below this one, deepest first. What is populated stays.
pub(crate) fn remove_below(group: impl AsFd) {
    remove_level(&group, DEPTH_MAX);
}

/// Removes a payload group, what is below it and the instance's group above it, when all is
/// empty. `proc_path` ends in `<instance>/payload`. For who has no other hold of them.
pub(crate) fn remove_whole(payload: &OwnedFd, proc_path: &str) {
    remove_below(payload);
    let mut names = proc_path.rsplit('/');
    let (Some(own_name), Some(instance_name)) = (names.next(), names.next()) else { return };
    let parent = |path: &str| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(payload, path, flags, Mode::empty())
    };
    let (Ok(instance), Ok(above)) = (parent(".."), parent("../..")) else { return };
    let _populated = rustix::fs::unlinkat(&instance, own_name, AtFlags::REMOVEDIR);
    let _populated = rustix::fs::unlinkat(&above, instance_name, AtFlags::REMOVEDIR);
}

fn remove_level(group: &impl AsFd, depth: u32) {
    if depth == 0 {
        return;
    }
    for name in subgroups(group) {
        if let Ok(below) = open_group(group, name.as_c_str()) {
            remove_level(&below, depth - 1);
        }
        let _populated = rustix::fs::unlinkat(group, name.as_c_str(), AtFlags::REMOVEDIR);
    }
}

fn subgroups(group: &impl AsFd) -> Vec<std::ffi::CString> {
    let Ok(folder) = Dir::read_from(group) else { return Vec::new() };
    folder
        .flatten()
        .filter(|entry| entry.file_type() == FileType::Directory)
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .collect()
}

fn open_group(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn make_group(parent: impl AsFd, name: &str) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?)
}

fn make_open_group(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    make_group(parent, name)?;
    open_group(parent, name)
}

fn write_file(group: impl AsFd, name: &str, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::openat(group, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::io::write(&file, text))?;
    Ok(())
}

fn read_file(group: impl AsFd, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(group, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // Without the size and the place that std asks for first: neither means anything here, and
    // each end of a process reads several of these.
    let mut text = Vec::with_capacity(READ_BYTES);
    loop {
        text.reserve(READ_BYTES);
        if rustix::io::retry_on_intr(|| {
            rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text))
        })? == 0
        {
            break;
        }
    }
    String::from_utf8(text).map_err(|_bytes| io::Error::from(io::ErrorKind::InvalidData))
}

/// The group was removed: nothing can be in it.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}
