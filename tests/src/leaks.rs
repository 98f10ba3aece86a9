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
        .filter(|pid| concerns(pid, folder) && living_name(pid).is_some())
        .map(|pid| describe(&pid))
        .collect()
}

/// Living processes of this PID namespace, the test itself aside.
#[must_use]
pub fn everybody() -> Vec<String> {
    living().into_iter().map(|(_, line)| line).collect()
}

/// The same without shims: one that has said that its tree is empty is on its way out, and is none
/// of the tree.
#[must_use]
pub fn everybody_but_shims() -> Vec<String> {
    living().into_iter().filter(|(name, _)| name != "procd-shim").map(|(_, line)| line).collect()
}

/// Their names as the kernel has them, and what describes them.
fn living() -> Vec<(String, String)> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own);
    pids.filter_map(|pid| Some((living_name(&pid)?, describe(&pid)))).collect()
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
/// The name of a process that has not ended.
fn living_name(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.rsplit_once(") ")?;
    let is_over = rest.starts_with(['Z', 'X']) && !has_threads(pid);
    let (_, name) = name.split_once('(')?;
    (!is_over).then(|| name.to_owned())
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
