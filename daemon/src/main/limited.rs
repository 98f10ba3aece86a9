//! A log that nobody can flood: of each kind of line (each place in the code that logs) a few come
//! through in a while, and of the others the number. Debug and trace are whole: who asks for them
//! wants all; so are the lines that say why an operator looked at something.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use procd::clock::Clock;
use procd::config::LogFormat;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines of one kind in a period.
const LINES_MAX: u64 = 20;
/// A period.
const PERIOD: Duration = Duration::from_secs(10);

/// The count of one kind.
#[derive(Debug, Clone, Copy)]
struct Count<T> {
    since: T,
    lines: u64,
}

/// What becomes of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Written, after so many of its kind were not.
    Written {
        left_out: u64,
    },
    LeftOut,
}

impl<T: Copy> Count<T> {
    /// Counts one more line.
    /// - `age`: of the period.
    fn judge(&mut self, now: T, age: Duration) -> Verdict {
        let mut left_out = 0;
        if age >= PERIOD {
            left_out = self.lines.saturating_sub(LINES_MAX);
            *self = Self { since: now, lines: 0 };
        }
        self.lines += 1;
        if self.lines > LINES_MAX { Verdict::LeftOut } else { Verdict::Written { left_out } }
    }
}

type Counts = HashMap<Identifier, Count<tokio::time::Instant>>;

/// Writes to another writer, and of each kind not too much.
#[derive(Debug, Clone)]
pub(crate) struct Limited<W> {
    inner: W,
    format: LogFormat,
    counts: Arc<Mutex<Counts>>,
}

impl<W> Limited<W> {
    pub(crate) fn new(inner: W, format: LogFormat) -> Self {
        Self { inner, format, counts: Arc::default() }
    }

    fn judge(&self, meta: &Metadata<'_>) -> Verdict {
        if *meta.level() > Level::INFO || meta.target() == procd::AUDIT {
            return Verdict::Written { left_out: 0 };
        }
        let now = Clock.monotonic();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded by the number of places that log.
        let count = counts.entry(meta.callsite()).or_insert(Count { since: now, lines: 0 });
        count.judge(now, now.saturating_duration_since(count.since))
    }
}

/// Where one line goes.
#[derive(Debug)]
pub(crate) enum Line<W> {
    Written(W),
    LeftOut,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Written(inner) => inner.write(bytes),
            Self::LeftOut => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Written(inner) => inner.flush(),
            Self::LeftOut => Ok(()),
        }
    }
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Limited<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Line::Written(self.inner.make_writer())
    }

    fn make_writer_for(&'w self, meta: &Metadata<'_>) -> Self::Writer {
        match self.judge(meta) {
            Verdict::LeftOut => Line::LeftOut,
            Verdict::Written { left_out: 0 } => Line::Written(self.inner.make_writer_for(meta)),
            Verdict::Written { left_out } => {
                let mut writer = self.inner.make_writer_for(meta);
                let line = match self.format {
                    LogFormat::Text => {
                        format!("{left_out} lines like the next one were left out\n")
                    }
                    LogFormat::Json => format!(
                        "{{\"level\":\"{}\",\"target\":\"{}\",\"left_out\":{left_out}}}\n",
                        meta.level(),
                        meta.target()
                    ),
                };
                // Who cannot be told this cannot be told the next one either.
                drop(writer.write_all(line.as_bytes()));
                Line::Written(writer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_a_few_lines_come_through_and_the_number_of_the_others() {
        let mut count = Count { since: 0_u64, lines: 0 };
        let mut written = 0;
        for _ in 0..1000 {
            written += u64::from(count.judge(0, Duration::from_secs(1)) != Verdict::LeftOut);
        }
        assert_eq!(written, LINES_MAX);
        let next = count.judge(10, PERIOD);
        assert_eq!(next, Verdict::Written { left_out: 1000 - LINES_MAX });
        assert_eq!(count.judge(10, Duration::ZERO), Verdict::Written { left_out: 0 });
    }
}
