//! The one clock of the bench, and what is made of its readings.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Now, for a span within this process.
#[expect(clippy::disallowed_methods, reason = "a bench is about time; it is read here only")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Now, comparable over processes, nanoseconds.
pub(crate) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Lets time pass: between ticks, and while others are to be at rest.
#[expect(clippy::disallowed_methods, reason = "a pause between ticks is part of what is measured")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Microseconds of a span.
pub(crate) fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// How long `work` took, microseconds.
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let start = now();
    let value = work()?;
    Ok((micros(start.elapsed()), value))
}

/// Readings of one kind.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(1, 2)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.quantile(99, 100)
    }

    /// The smallest value that `part` of `whole` of all do not exceed; 0 without any.
    fn quantile(&self, part: usize, whole: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * part / whole).copied().unwrap_or_default()
    }
}

/// A count as a number one can divide; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures to be read, far below 2^53")]
pub(crate) const fn real(count: u64) -> f64 {
    count as f64
}
