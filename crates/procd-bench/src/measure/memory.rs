//! What a process takes, as the kernel counts it.

use std::fs;

use crate::clock::real;
use crate::trouble::{Tried, Trouble};

/// Anonymous memory that is resident, bytes.
pub(super) fn anonymous_bytes(pid: u32) -> Result<f64, Trouble> {
    field(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// A line of a file of /proc that is in kB.
fn field(path: &str, name: &str) -> Result<f64, Trouble> {
    let text = fs::read_to_string(path).tried(&format!("read `{path}`"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let count = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    count.map(|count| real(count) * 1024.0).ok_or_else(|| Trouble::odd(format!("no {name} there")))
}

/// Its share of the memory that it has, bytes.
pub(super) fn proportional_bytes(pid: u32) -> Result<f64, Trouble> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Its children, to be looked at only.
pub(super) fn children(pid: u32) -> Result<Vec<u32>, Trouble> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).tried(&format!("read `{path}`"))?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// How often its threads, and those of its guardian, went to sleep of their own will.
pub(super) fn voluntary_switches(pid: u32) -> Result<u64, Trouble> {
    let mut sum = 0;
    for pid in children(pid)?.into_iter().chain([pid]) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).tried("list the threads")?;
        for thread in threads {
            let path = thread.tried("list the threads")?.path().join("status");
            let text = fs::read_to_string(path).tried("read a thread's status")?;
            let name = "voluntary_ctxt_switches:";
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or_default();
        }
    }
    Ok(sum)
}
