//! What a whole run of the tests came to: the counts of its binaries, and each failure with what it
//! said, at the end, so that a log that was cut still shows it.

use std::fmt;

use crate::sections::{Failed, Section};

/// Lines shown of one failure: from its panic on, and the last ones, counts.
const PANIC_LINES: usize = 6;
const LAST_LINES: usize = 34;
/// Of one line, characters.
const LINE_MAX: usize = 2_000;
/// Failures shown with their output, a count.
const SHOWN_MAX: usize = 25;
/// More tests than this that passed only when run alone fail the gate, a count.
pub(crate) const FLAKY_MAX: usize = 3;

/// Totals over all test binaries.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    binaries: u64,
    passed: u64,
    ignored: u64,
    failures: Vec<Failed>,
    flaky: Vec<Failed>,
    skipped: Vec<String>,
}

impl Summary {
    /// Whether any test binary came to its end.
    pub(crate) const fn has_run(&self) -> bool {
        self.binaries > 0
    }

    /// Whether the gate may pass.
    pub(crate) fn is_good(&self) -> bool {
        self.failures.is_empty() && self.flaky.len() <= FLAKY_MAX
    }

    /// Adds what one binary said.
    pub(crate) fn add(&mut self, section: Section) {
        self.binaries += 1;
        self.passed += section.passed;
        self.ignored += section.ignored;
        // A binary without a harness is one test.
        self.passed += u64::from(!section.counts && section.failures.is_empty());
        self.failures.extend(section.failures);
        self.skipped.extend(section.skipped);
    }

    /// Adds tests that have passed without having looked at anything here, each with its reason.
    pub(crate) fn add_skipped(&mut self, reasons: impl IntoIterator<Item = String>) {
        self.skipped.extend(reasons);
    }

    /// What failed.
    pub(crate) fn failures(&self) -> &[Failed] {
        &self.failures
    }

    /// Keeps apart what passed when it was looked at again.
    pub(crate) fn look_again(&mut self, mut passes: impl FnMut(&Failed) -> bool) {
        (self.flaky, self.failures) =
            std::mem::take(&mut self.failures).into_iter().partition(|failed| passes(failed));
    }

    /// Every failure with the end of what it said.
    pub(crate) fn outputs(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            for (word, failed) in self.all().take(SHOWN_MAX) {
                writeln!(f, "\n---- {word} {}:", failed.name)?;
                write!(f, "{}", excerpt(&failed.output))?;
            }
            Ok(())
        })
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &Failed)> {
        let failed = self.failures.iter().map(|failed| ("FAILED", failed));
        failed.chain(self.flaky.iter().map(|failed| ("FLAKY", failed)))
    }
}

/// Why it panicked, and what was said last.
fn excerpt(output: &[String]) -> impl fmt::Display + '_ {
    let panic = output.iter().position(|line| line.contains("panicked at")).unwrap_or(0);
    let rest = output.get(panic..).unwrap_or_default();
    let (why, rest) = rest.split_at(rest.len().min(PANIC_LINES));
    let (left_out, last) = rest.split_at(rest.len().saturating_sub(LAST_LINES));
    fmt::from_fn(move |f| {
        why.iter().try_for_each(|line| writeln!(f, "{line:.LINE_MAX$}"))?;
        if !left_out.is_empty() {
            writeln!(f, "({} lines left out)", left_out.len())?;
        }
        last.iter().try_for_each(|line| writeln!(f, "{line:.LINE_MAX$}"))
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons = self.skipped.clone();
        reasons.sort();
        for same in reasons.chunk_by(|one, other| one == other) {
            writeln!(f, "SKIPPED {} times: {}", same.len(), same.first().map_or("", |why| why))?;
        }
        for (word, failed) in self.all() {
            writeln!(f, "{word} {}", failed.name)?;
        }
        let verdict = if self.is_good() { "ok" } else { "FAILED" };
        let Self { binaries, passed, ignored, failures, flaky, skipped } = self;
        write!(
            f,
            "test result: {verdict}. {passed} passed; {} failed; {} flaky; {ignored} ignored; {} skipped; {binaries} test binaries",
            failures.len(),
            flaky.len(),
            skipped.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str, lines: usize) -> Failed {
        let mut output = vec!["before".to_owned(), "thread 't' panicked at x.rs:1".to_owned()];
        output.extend((1..=lines).map(|line| format!("line {line}")));
        Failed { name: name.to_owned(), output, alone: None }
    }

    fn section(passed: u64, failures: Vec<Failed>) -> Section {
        let failed = failures.len() as u64;
        Section { passed, failed, ignored: 1, counts: true, failures, skipped: Vec::new() }
    }

    #[test]
    fn totals_add_up_and_failures_are_named_and_shown() {
        let mut summary = Summary::default();
        summary.add(section(12, Vec::new()));
        summary.add(section(1, vec![failed("a::real", 2), failed("b::noise", 50)]));
        summary.add(Section { skipped: vec!["why".to_owned()], ..Section::default() });
        summary.add_skipped(["why".to_owned()]);
        summary.look_again(|failed| failed.name == "b::noise");
        assert!(!summary.is_good());
        assert_eq!(
            summary.to_string(),
            "SKIPPED 2 times: why\nFAILED a::real\nFLAKY b::noise\ntest result: FAILED. 14 passed; 1 failed; 1 flaky; 2 ignored; 2 skipped; 3 test binaries"
        );
        let outputs = summary.outputs().to_string();
        let real = "---- FAILED a::real:\nthread 't' panicked at x.rs:1\nline 1\nline 2\n";
        assert!(outputs.contains(real), "{outputs}");
        let noise =
            "x.rs:1\nline 1\nline 2\nline 3\nline 4\nline 5\n(11 lines left out)\nline 17\n";
        assert!(outputs.contains(noise) && outputs.ends_with("line 50\n"), "{outputs}");
    }

    #[test]
    fn a_few_that_pass_alone_are_good_and_more_are_not() {
        for (count, is_good) in [(FLAKY_MAX, true), (FLAKY_MAX + 1, false)] {
            let mut summary = Summary::default();
            summary.add(section(1, vec![failed("noise", 1); count]));
            assert!(!summary.is_good(), "before the second look");
            summary.look_again(|_| true);
            assert_eq!(summary.is_good(), is_good);
        }
    }
}
