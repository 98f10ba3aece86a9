//! Counts the protocol errors of one connection.

use std::collections::VecDeque;
use std::time::Duration;

use procd_protocol::limits::PROTOCOL_ERRORS_PER_MINUTE_MAX;
use tokio::time::Instant;

use super::as_count;

const MINUTE: Duration = Duration::from_secs(60);

/// The times of the last errors, at most as many as are allowed in a minute.
#[derive(Debug, Default)]
pub(super) struct ErrorRate(VecDeque<Instant>);

impl ErrorRate {
    /// Counts one error; true once more than the limit came within a minute.
    pub(super) fn is_too_many(&mut self, now: Instant) -> bool {
        while self.0.front().is_some_and(|&oldest| now.duration_since(oldest) >= MINUTE) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() >= as_count(PROTOCOL_ERRORS_PER_MINUTE_MAX)
    }

    /// Whether one came within the last minute.
    pub(super) fn has_any(&self, now: Instant) -> bool {
        self.0.back().is_some_and(|&last| now.duration_since(last) < MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_within_a_minute_are_too_many_and_spread_ones_are_not() {
        let mut rate = ErrorRate::default();
        for _ in 0..99 {
            assert!(!rate.is_too_many(Instant::now()));
        }
        assert!(rate.is_too_many(Instant::now()));
        let mut rate = ErrorRate::default();
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(700)).await;
            assert!(!rate.is_too_many(Instant::now()));
        }
        assert!(rate.has_any(Instant::now()));
        tokio::time::advance(MINUTE).await;
        assert!(!rate.has_any(Instant::now()));
    }
}
