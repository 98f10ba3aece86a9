//! The small disk of the state folder, and how it is filled.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{Daemon, binaries};

/// The whole disk.
pub(super) const BYTES: u64 = 384 << 20;

/// Gives the state folder a disk of its own: only inside a namespace.
pub(super) fn mount(daemon: &Daemon) {
    fs::create_dir(daemon.state()).unwrap();
    let mut mount = binaries::command("mount");
    let options = format!("size={BYTES},mode=0700");
    mount.args(["-t", "tmpfs", "-o", &options, "procd-soak"]).arg(daemon.state());
    assert!(mount.status().unwrap().success(), "mount a small disk");
}

/// Ends whatever is left.
pub(super) fn leave(mut daemon: Daemon) {
    let state = daemon.state();
    daemon.end_however();
    drop(daemon);
    drop(binaries::command("umount").arg("-l").arg(state).status());
}

fn filler(daemon: &Daemon) -> PathBuf {
    daemon.state().join("filler")
}

/// To the last byte.
pub(super) fn fill(daemon: &Daemon) {
    let mut file = File::create(filler(daemon)).unwrap();
    for bytes in [1 << 20, 64 * 1024, 512, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

/// Gives the room back.
pub(super) fn free(daemon: &Daemon) {
    drop(fs::remove_file(filler(daemon)));
}

/// Every byte that a folder takes of its disk, the filler aside.
pub(super) fn taken(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = path.symlink_metadata() else { return 0 };
    if path.file_name().is_some_and(|name| name == "filler") {
        return 0;
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    found.blocks() * 512 + below.map(|entry| taken(&entry.path())).sum::<u64>()
}
