//! The daemon's one door to the clocks. Everything else is given its times.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall and monotonic time. The wall clock is clamped by whoever keeps a previous stamp.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock;

impl Clock {
    /// The wall clock, UTC.
    #[must_use]
    pub fn wall(self) -> Timestamp {
        stepped(Timestamp::now())
    }

    /// The wall clock, but never before `previous`: a clock that steps back makes no record
    /// invalid.
    #[must_use]
    pub fn wall_after(self, previous: Timestamp) -> Timestamp {
        self.wall().max(previous)
    }

    /// The monotonic clock of tokio, which tests can pause. Time asleep does not count.
    #[must_use]
    pub fn monotonic(self) -> Instant {
        Instant::now()
    }

    /// The monotonic time since `start`.
    #[must_use]
    pub fn since(self, start: Instant) -> Duration {
        self.monotonic().saturating_duration_since(start)
    }
}

/// The system's time.
#[cfg(not(feature = "failpoints"))]
const fn stepped(now: Timestamp) -> Timestamp {
    now
}

/// The system's time, stepped by the seconds in the file that `PROCD_CLOCK_STEP` names: a test may
/// set the clock back while the daemon runs, and must not set that of the machine.
#[cfg(feature = "failpoints")]
fn stepped(now: Timestamp) -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "a build for tests that is steered from outside")]
    let step = std::env::var("PROCD_CLOCK_STEP").ok();
    let step = step.and_then(|file| std::fs::read_to_string(file).ok());
    let seconds = step.and_then(|text| text.trim().parse().ok()).unwrap_or(0_i64);
    now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now)
}
