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
        Timestamp::now()
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
