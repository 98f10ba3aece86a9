//! The runner's output in sections, one for each test binary: which tests failed and what they said.

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Its name; of a binary that says no names (or crashed), what cargo calls it.
    pub(crate) name: String,
    /// What it printed.
    pub(crate) output: Vec<String>,
    /// How to run it alone, where that is possible.
    pub(crate) alone: Option<Alone>,
}

/// A failed test's own run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    /// The test binary, as the runner named it.
    pub(crate) binary: String,
    /// The package it belongs to; `None` where only one was asked for.
    pub(crate) package: Option<String>,
    /// What limits the run to this one test.
    pub(crate) arguments: Vec<String>,
}

/// What one test binary said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Whether it counts its tests, as the usual harness does.
    pub(crate) counts: bool,
    pub(crate) failures: Vec<Failed>,
    /// Why something was skipped, of a binary without the usual harness.
    pub(crate) skipped: Vec<String>,
}

/// Cuts the runner's output into sections.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// As the runner named it; none before the first one, and of documentation tests.
    binary: Option<String>,
    lines: Vec<String>,
}

impl Reader {
    /// Takes a line; the section that it ends.
    pub(crate) fn take(&mut self, line: &str) -> Option<Section> {
        if let Some(hint) = rerun_hint(line) {
            return self.end(Some(hint));
        }
        let next = binary_of(line);
        if next.is_none() && !line.trim_start().starts_with("Doc-tests ") {
            self.lines.push(line.to_owned());
            return None;
        }
        let section = self.end(None);
        self.binary = next;
        section
    }

    /// The section at the end of everything.
    pub(crate) fn finish(mut self) -> Option<Section> {
        self.end(None)
    }

    fn end(&mut self, failed: Option<&str>) -> Option<Section> {
        let lines = std::mem::take(&mut self.lines);
        let binary = self.binary.take();
        let counts = counts(&lines);
        if counts.is_none() && failed.is_none() && binary.is_none() {
            return None;
        }
        let mut section = Section { counts: counts.is_some(), ..Section::default() };
        if let Some(counts) = counts {
            section.passed = count(counts, "passed");
            section.failed = count(counts, "failed");
            section.ignored = count(counts, "ignored");
        }
        section.failures = failures(&lines, binary.as_deref(), failed);
        if !has_harness(&lines) {
            section.skipped = lines.iter().filter_map(|line| skipped(line)).collect();
        }
        Some(section)
    }
}

/// The part of `Running unittests src/lib.rs (target/debug/deps/procd-0a1b)` in parentheses.
fn binary_of(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("Running ")?;
    let (_, path) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    Some(path.to_owned())
}

/// What cargo says after a binary that failed: how to run it again.
fn rerun_hint(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("error: ")?;
    let (_, hint) = rest.split_once("to rerun pass `")?;
    hint.strip_suffix('`')
}

/// The last one: before it a test may show what a run inside it said.
fn counts(lines: &[String]) -> Option<&str> {
    lines.iter().rev().find_map(|line| line.strip_prefix("test result: "))
}

fn has_harness(lines: &[String]) -> bool {
    lines.iter().any(|line| {
        line.strip_prefix("running ")
            .is_some_and(|rest| rest.ends_with(" tests") || rest == "1 test")
    })
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

fn skipped(line: &str) -> Option<String> {
    line.strip_prefix("SKIPPED: ").map(str::to_owned)
}

fn failures(lines: &[String], binary: Option<&str>, failed: Option<&str>) -> Vec<Failed> {
    let names = names(lines);
    let alone = |arguments: Vec<String>| {
        let package = failed.and_then(package_of);
        binary.map(|binary| Alone { binary: binary.to_owned(), package, arguments })
    };
    if let Some(hint) = failed.filter(|_| names.is_empty()) {
        // No test of it is known to have failed: either it has no harness, or it crashed.
        let again = if has_harness(lines) { None } else { alone(Vec::new()) };
        let (name, output) = (hint.to_owned(), lines.to_vec());
        return vec![Failed { name, output, alone: again }];
    }
    let details = details(lines);
    let output = |name: &str| {
        let header = header(name);
        let own = details.iter().skip_while(|line| **line != header).skip(1);
        let others = |line: &str| names.iter().any(|other| line == self::header(other));
        own.take_while(|line| !others(line)).cloned().collect()
    };
    let exact = |name: &str| alone(vec!["--exact".into(), name.into(), "--nocapture".into()]);
    names
        .iter()
        .map(|name| Failed { name: name.clone(), output: output(name), alone: exact(name) })
        .collect()
}

/// Of `-p procd-tests --test e2e`.
fn package_of(hint: &str) -> Option<String> {
    let mut words = hint.split(' ');
    words.find(|word| *word == "-p").and_then(|_| words.next()).map(str::to_owned)
}

/// Those said to have failed, before the details begin.
fn names(lines: &[String]) -> Vec<String> {
    let told = lines.iter().take_while(|line| *line != "failures:");
    let name = |line: &String| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(name.strip_suffix(" - should panic").unwrap_or(name).to_owned())
    };
    told.filter_map(name).collect()
}

fn header(name: &str) -> String {
    format!("---- {name} stdout ----")
}

/// From the first `failures:` to the last, which is the list of names.
fn details(lines: &[String]) -> &[String] {
    let mut at = lines.iter().enumerate().filter(|(_, line)| *line == "failures:");
    let first = at.next().map_or(lines.len(), |(at, _)| at + 1);
    let last = at.next_back().map_or(lines.len(), |(at, _)| at);
    lines.get(first..last).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Section> {
        let mut reader = Reader::default();
        let mut sections: Vec<Section> =
            text.lines().filter_map(|line| reader.take(line)).collect();
        sections.extend(reader.finish());
        sections
    }

    fn alone(binary: &str, package: &str, arguments: &[&str]) -> Option<Alone> {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Some(Alone { binary: binary.to_owned(), package: Some(package.to_owned()), arguments })
    }

    #[test]
    fn each_failed_test_has_its_own_output_and_how_to_run_it_alone() {
        let text = "\
   Compiling procd
     Running unittests src/lib.rs (target/debug/deps/procd-1)

running 2 tests
test a ... ok
test b ... ok

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s

     Running e2e/main.rs (target/debug/deps/e2e-2)

running 3 tests
test stop::ends ... FAILED
test stop::is_idempotent - should panic ... FAILED
test stop::third ... ok

failures:

---- stop::ends stdout ----
said at stop.rs:1
test stop::ends ... FAILED
failures:
    stop::ends
test result: FAILED. 0 passed; 1 failed; 0 ignored
---- stop::is_idempotent stdout ----
said at stop.rs:2


failures:
    stop::ends
    stop::is_idempotent

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.0s

error: test failed, to rerun pass `-p procd-tests --test e2e`
   Doc-tests procd
error: 1 target failed:
    `-p procd-tests --test e2e`";
        let sections = read(text);
        let [good, bad] = sections.as_slice() else { panic!("{sections:?}") };
        assert_eq!((good.passed, good.failed, good.ignored, good.failures.len()), (2, 0, 1, 0));
        assert_eq!((bad.passed, bad.failed), (1, 2));
        let [first, second] = bad.failures.as_slice() else { panic!("{bad:?}") };
        assert_eq!((first.name.as_str(), first.output.len()), ("stop::ends", 5), "{first:?}");
        assert_eq!(second.output, ["said at stop.rs:2", "", ""]);
        let exact = ["--exact", "stop::is_idempotent", "--nocapture"];
        assert_eq!(second.alone, alone("target/debug/deps/e2e-2", "procd-tests", &exact));
    }

    #[test]
    fn a_binary_without_a_harness_fails_as_a_whole_and_a_crash_has_no_second_look() {
        let text = "\
     Running tests/process.rs (target/debug/deps/process-3)
SKIPPED: Cgroup: not here
it went wrong
error: test failed, to rerun pass `-p procd --test process`
     Running unittests src/lib.rs (target/debug/deps/core-4)
running 2 tests
test a ... ok
error: test failed, to rerun pass `-p procd-core --lib`
     Running tests/containment.rs (target/debug/deps/containment-5)
SKIPPED: no `unshare`: why";
        let sections = read(text);
        let [process, crashed, good] = sections.as_slice() else { panic!("{sections:?}") };
        assert_eq!(process.failures[0].name, "-p procd --test process");
        assert_eq!(process.failures[0].output[1], "it went wrong");
        assert_eq!(process.failures[0].alone, alone("target/debug/deps/process-3", "procd", &[]));
        assert_eq!(process.skipped, ["Cgroup: not here"]);
        assert_eq!((crashed.failures.len(), &crashed.failures[0].alone), (1, &None));
        assert_eq!((good.failures.len(), good.skipped.len(), good.counts), (0, 1, false));
    }
}
