//! What a daemon may leave behind: nothing. Looks only, and signals nobody.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Living processes that have to do with `folder`: their working folder is inside it or their environment names it.
/// The test itself has neither. Zombies do not count: whoever is pid 1 of a test's namespace does not reap.
#[must_use]
pub fn processes(folder: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own)
        .filter(|pid| concerns(pid, folder) && is_alive(pid))
        .map(|pid| describe(&pid))
        .collect()
}

/// Living processes of this PID namespace, the test itself aside.
#[must_use]
pub fn everybody() -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own)
        .filter(|pid| is_alive(pid))
        .map(|pid| describe(&pid))
        .collect()
}

/// Control groups of the state folder: those whose name holds its id.
#[must_use]
pub fn groups(state: &Path) -> Vec<PathBuf> {
    let format = fs::read(state.join("format")).unwrap_or_default();
    let format: Value = serde_json::from_slice(&format).unwrap_or_default();
    let Some(id) = format["folder_id"].as_str() else { return Vec::new() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let roots = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let roots = roots.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    roots.flat_map(|root| below(&root, id)).collect()
}

/// Removes empty groups that a test's daemon left, so that a failure leaves nothing on the machine.
pub fn remove_groups(groups: &[PathBuf]) {
    for group in groups {
        drop(fs::remove_dir(group.join("payload")));
        drop(fs::remove_dir(group));
    }
}

fn below(folder: &Path, id: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .flat_map(|entry| {
            let path = entry.path();
            let found = entry.file_name().to_string_lossy().contains(id);
            if found { vec![path] } else { below(&path, id) }
        })
        .collect()
}

fn concerns(pid: &str, folder: &Path) -> bool {
    let name = folder.as_os_str().as_bytes();
    let inside = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    inside || environment.windows(name.len()).any(|window| window == name)
}

/// The state letter of /proc/pid/stat, behind the name in parentheses.
/// A shim that has said that its tree is empty, and is on its way out, counts as gone: it has no
/// memory left, and is none of the tree.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((name, rest)) = stat.rsplit_once(") ") else { return false };
    let is_leaving = name.ends_with("(procd-shim") && command_line(pid).is_empty();
    let is_over = rest.starts_with(['Z', 'X']) && !has_threads(pid);
    !rest.is_empty() && !is_over && !is_leaving
}

/// Whether threads other than the first are left: while they are, files and sockets stay open.
fn has_threads(pid: &str) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

fn command_line(pid: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn describe(pid: &str) -> String {
    let line = command_line(pid);
    format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " "))
}
