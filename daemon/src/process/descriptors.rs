//! What a start leaves of the daemon's descriptors: the log, the spools of what runs already, and
//! clients who stop something have theirs when there is none for another command.

use std::io;
use std::os::fd::AsRawFd;

use rustix::process::{Resource, getrlimit};

/// The part of the limit that starts leave, and how much that is at most.
const PART: u64 = 4;
const RESERVE_MAX: u64 = 2048;

/// Refuses as the system would when there is none left.
/// - `newest`: just made. Each took the lowest number that was free, so as many are in use as the
///   highest of them says.
/// # Errors
/// EMFILE: what is left is not for a start.
pub(super) fn leave_reserve(newest: &[impl AsRawFd]) -> io::Result<()> {
    let highest = newest.iter().map(AsRawFd::as_raw_fd).max();
    let in_use = highest.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if in_use >= limit - reserve(limit) => Err(rustix::io::Errno::MFILE.into()),
        Some(_) | None => Ok(()),
    }
}

/// What starts leave of a limit.
fn reserve(limit: u64) -> u64 {
    (limit / PART).min(RESERVE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_a_part_of_a_small_limit_and_bounded_for_a_large_one() {
        assert_eq!([64, 256, 1024, 20_000].map(reserve), [16, 64, 256, 2048]);
    }
}
