//! A histogram of times: counts by upper bound, their number and their sum. Written by one or many
//! threads, read at any time; a reader may see a time in the count that is not in the sum yet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, milliseconds; above the last there is one more.
pub const BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 30_000];

/// See the module.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram as it was at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Times within each bound of [`BOUNDS_MS`], and those above the last; each counted once.
    pub buckets: [u64; BOUNDS_MS.len() + 1],
    /// The sum of all, microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; _], sum_us: AtomicU64::new(0) }
    }

    /// Counts one time.
    pub fn add(&self, time: Duration) {
        let within = |bound: &u64| time <= Duration::from_millis(*bound);
        let index = BOUNDS_MS.iter().position(within).unwrap_or(BOUNDS_MS.len());
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn times(&self) -> Times {
        Times {
            buckets: std::array::from_fn(|index| {
                self.buckets.get(index).map_or(0, |bucket| bucket.load(Ordering::Relaxed))
            }),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_once_at_its_bound() {
        let histogram = Histogram::new();
        for ms in [0, 1, 2, 3, 30_000, 30_001] {
            histogram.add(Duration::from_millis(ms));
        }
        let Times { buckets, sum_us } = histogram.times();
        assert_eq!(buckets, [2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(sum_us, 60_007_000);
    }
}
