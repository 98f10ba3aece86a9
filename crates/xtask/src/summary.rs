//! Adds up what the test runner said at the end of each of its binaries.

use std::collections::BTreeMap;
use std::fmt;

/// How a line begins by which a test says that it did nothing.
const SKIPPED: &str = "SKIPPED: ";

/// Totals over all test binaries, and the names of what failed.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    binaries: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Tests, or halves of them, that said they did nothing here, by why.
    skipped: BTreeMap<String, u64>,
    failures: Vec<String>,
}

impl Summary {
    /// Whether any test binary came to its end.
    pub(crate) const fn has_run(&self) -> bool {
        self.binaries > 0
    }

    /// Takes a line of the runner's output.
    pub(crate) fn take(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.binaries += 1;
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored += count(counts, "ignored");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        } else if let Some(why) = line.strip_prefix(SKIPPED) {
            *self.skipped.entry(why.to_owned()).or_default() += 1;
        }
    }
}

/// The number before `word` in `ok. 3 passed; 0 failed; ...`.
fn count(counts: &str, word: &str) -> u64 {
    let words: Vec<_> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    let number = words.windows(2).find_map(|pair| match pair {
        [number, found] if *found == word => number.parse().ok(),
        _ => None,
    });
    number.unwrap_or(0)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, count) in &self.skipped {
            writeln!(f, "skipped {count} times: {why}")?;
        }
        for name in &self.failures {
            writeln!(f, "FAILED {name}")?;
        }
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        let Self { binaries, passed, failed, ignored, .. } = self;
        let skipped: u64 = self.skipped.values().sum();
        write!(
            f,
            "test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; {skipped} skipped; {binaries} test binaries"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_and_failures_are_named() {
        let mut summary = Summary::default();
        summary.take("running 3 tests");
        summary.take("test stop::ends_the_tree ... FAILED");
        summary.take("test stop::is_idempotent ... ok");
        summary.take("SKIPPED: no such thing here");
        summary.take("SKIPPED: no such thing here");
        summary.take("test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        summary.take("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.0s");
        let shown = summary.to_string();
        assert_eq!(
            shown,
            "skipped 2 times: no such thing here\nFAILED stop::ends_the_tree\ntest result: FAILED. 13 passed; 1 failed; 1 ignored; 2 skipped; 2 test binaries"
        );
    }
}
