//! The end of a private daemon that nobody needs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::request::Daemon;
use crate::supervisor::Supervisor;

/// Looks at least this often, and a tenth of the time that is to pass at most.
const STEP_MAX: Duration = Duration::from_secs(15);

/// Completes when there was no client, no running process and no session whose idle clock runs for
/// `limit`; never for a daemon that is not private.
pub(crate) async fn watch(
    daemon: &Daemon,
    supervisor: &Supervisor,
    is_private: bool,
    limit: Duration,
) {
    if !is_private {
        std::future::pending::<()>().await;
    }
    let step = (limit / 10).clamp(Duration::from_millis(1), STEP_MAX);
    let mut idle_since = daemon.clock.monotonic();
    loop {
        tokio::time::sleep(step).await;
        let status = supervisor.status(None).await;
        let is_used = daemon.connections.load(Ordering::Acquire) > 0
            || status.idle_clocks > 0
            || status.totals.iter().any(is_live);
        if is_used {
            idle_since = daemon.clock.monotonic();
        } else if daemon.clock.since(idle_since) >= limit {
            tracing::info!("nobody needs this private daemon any more");
            return;
        }
    }
}

fn is_live((state, count): (&procd_core::ProcessState, &u64)) -> bool {
    !state.is_terminal() && *count > 0
}
