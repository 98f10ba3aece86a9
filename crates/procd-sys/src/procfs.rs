//! What /proc says. For counting, for checks before a pidfd is used, never for choosing a pid to
//! signal.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::Pid;

/// Bit of the flags in `stat`: forked, but no exec yet. Kept in a zombie.
const PF_FORKNOEXEC: u64 = 0x40;
/// Entries of a folder are read so many bytes at a time.
const FOLDER_BYTES: usize = 2048;
/// Room made for each read, bytes.
const READ_BYTES: usize = 1024;
/// How deep an ancestry is followed.
const DEPTH_MAX: usize = 4096;

/// The few fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) zombie: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// The foreground group of its terminal; -1 without one.
    pub(crate) terminal_group: i32,
    pub(crate) never_executed: bool,
    pub(crate) cpu_ticks: u64,
    pub(crate) resident_pages: u64,
    /// Clock ticks from the boot to its start.
    pub(crate) started_ticks: u64,
}

/// The children of this single-threaded process, in the order of the kernel: all of them own and
/// unreaped. The file is read whole into a buffer that grows, and a last token without its space
/// is dropped: a cut number is another process.
pub(crate) fn own_children() -> std::io::Result<Vec<Pid>> {
    let own = rustix::process::getpid().as_raw_nonzero();
    read_children(&format!("/proc/self/task/{own}/children"))
}

/// Every live or unreaped descendant of `root`, nearest first. As good as /proc can tell: for
/// counting and for candidates that are checked again.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut next = std::collections::VecDeque::from([root]);
    while let Some(pid) = next.pop_front() {
        for child in children_of(pid) {
            if seen.insert(child) {
                found.push(child);
                next.push_back(child);
            }
        }
    }
    found
}

fn children_of(pid: Pid) -> Vec<Pid> {
    let folder = format!("/proc/{}/task", pid.as_raw_nonzero());
    // Not by `read_dir`: that allocates inside libc, which a shim must not.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open(&folder, flags, Mode::empty()) else { return Vec::new() };
    let mut space = [MaybeUninit::uninit(); FOLDER_BYTES];
    let mut entries = RawDir::new(fd, &mut space);
    let mut children = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str().unwrap_or_default();
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            children
                .extend(read_children(&format!("{folder}/{name}/children")).unwrap_or_default());
        }
    }
    children
}

fn read_children(path: &str) -> std::io::Result<Vec<Pid>> {
    let bytes = read_whole(path)?;
    Ok(parse_children(std::str::from_utf8(&bytes).unwrap_or_default()))
}

/// A file of /proc, which has no size and no place to be asked for: nearly always two reads. Each
/// start and each end of a process reads one.
fn read_whole(path: &str) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        bytes.reserve(READ_BYTES);
        let read = || rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes));
        if rustix::io::retry_on_intr(read)? == 0 {
            return Ok(bytes);
        }
    }
}

fn parse_children(text: &str) -> Vec<Pid> {
    let whole = text.rfind(' ').map_or("", |last| &text[..=last]);
    whole
        .split_ascii_whitespace()
        .filter_map(|token| token.parse().ok())
        .filter(|&pid| pid > 1)
        .filter_map(Pid::from_raw)
        .collect()
}

/// The `stat` of a process; `None` when it is gone.
pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    let text = read_whole(&format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything, a parenthesis included: the last one counts.
    let after = text.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(text.get(after..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // fields[0] is field 3 of proc(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        zombie: matches!(fields.first(), Some(&("Z" | "X"))),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        terminal_group: fields.get(5)?.parse().ok()?,
        never_executed: number(9)? & PF_FORKNOEXEC != 0,
        cpu_ticks: number(14)?.saturating_add(number(15)?),
        resident_pages: number(24)?,
        started_ticks: number(22)?,
    })
}

/// Where the heap of this process begins: its break at the start.
pub(crate) fn heap_start() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    // Field 47 of proc(5); the first of the rest is field 3.
    let start = rest.split_ascii_whitespace().nth(47 - 3)?.parse().ok()?;
    (start > 0).then_some(start)
}

/// The number of the process that a pidfd holds; `None` once it is reaped.
pub(crate) fn pid_of(pidfd: &OwnedFd) -> Option<Pid> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// Whether `pid` descends from `ancestor` now.
pub(crate) fn descends_from(pid: Pid, ancestor: Pid) -> bool {
    let mut current = pid;
    for _ in 0..DEPTH_MAX {
        let Some(stat) = stat(current) else { return false };
        let Some(parent) = Pid::from_raw(stat.parent) else { return false };
        if parent == ancestor {
            return true;
        }
        current = parent;
    }
    false
}

/// The control group (v2) of a process, as its own reader sees it.
pub(crate) fn control_group(pid: Pid) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
    v2_line(&text).map(str::to_owned)
}

/// The path in the `0::` line.
pub(crate) fn v2_line(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_last_number_and_init_are_never_taken_for_children() {
        let pids: Vec<i32> = parse_children("12 345 1 67")
            .into_iter()
            .map(|pid| pid.as_raw_nonzero().get())
            .collect();
        assert_eq!(pids, [12, 345]);
        assert!(parse_children("67").is_empty());
        assert!(parse_children("").is_empty());
    }

    #[test]
    fn a_stat_is_read_past_any_name() {
        let text = b"42 (a) b (c) Z 7 9 9 0 -1 4194368 0 0 0 0 3 4 0 0 20 0 1 0 5 6 8 0";
        let stat = parse_stat(text).unwrap();
        assert!(stat.zombie && stat.never_executed);
        assert_eq!((stat.parent, stat.group, stat.cpu_ticks, stat.resident_pages), (7, 9, 7, 8));
        assert_eq!(stat.started_ticks, 5);
        assert!(parse_stat(b"42 (x").is_none());
    }

    #[test]
    fn this_process_descends_from_its_parent() {
        let own = rustix::process::getpid();
        let parent = rustix::process::getppid().unwrap();
        assert!(descends_from(own, parent));
        assert!(!descends_from(parent, own));
    }
}
