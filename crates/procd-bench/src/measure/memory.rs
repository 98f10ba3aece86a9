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
