//! The daemon's own limit of open files: raised to what it may have, and told when that is less
//! than what its quotas allow to run.

use procd_core::settings::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A quiet process has two outputs at most, and an input or a shim. What it writes to disk is open
/// for a second after each write.
const EACH: u64 = 3;
/// Log, locks, listeners, the runtime's own, and the reserve of a small daemon.
const BESIDE: u64 = 128;

/// Raises the limit; returns what it was, which commands get.
pub(crate) fn raise_open_files(limits: &Limits) -> Option<u64> {
    let given = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: given.maximum, maximum: given.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it was");
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current
        && limit < needed(limits)
    {
        let (needed, processes) = (needed(limits), held(limits, limit));
        tracing::warn!(
            limit,
            needed,
            processes,
            running_daemon_max = limits.running_daemon_max,
            "the limit of open files is less than the quotas need: about so many processes can \
             run, and then starts are refused with `out_of_descriptors`"
        );
    }
    given.current
}

/// What a daemon needs that is as full as its quotas allow.
fn needed(limits: &Limits) -> u64 {
    let processes = limits.running_daemon_max.saturating_mul(EACH);
    processes.saturating_add(limits.connections_max).saturating_add(BESIDE)
}

/// How many processes a limit holds beside all clients.
fn held(limits: &Limits, limit: u64) -> u64 {
    limit.saturating_sub(limits.connections_max).saturating_sub(BESIDE) / EACH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_quotas_need_is_what_the_limit_has_to_hold() {
        let limits = Limits { running_daemon_max: 1000, connections_max: 100, ..Limits::default() };
        assert_eq!(needed(&limits), 3228);
        assert_eq!(held(&limits, 3228), 1000);
        assert_eq!(held(&limits, 64), 0);
    }
}
