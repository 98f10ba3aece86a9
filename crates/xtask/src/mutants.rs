//! Deliberate breaks of the product: each patch of `tests/mutants` goes into a copy of the tree, where the test that it
//! names has to fail. The copy and its builds are kept, so each break costs what it changes.
//!
//! A patch begins with three lines: `breaks:` what goes wrong, `promise:` which one, and `test:` package, target and name of
//! the test that has to catch it; a name of `*` is a target that has no names.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Instant,
};

use crate::{
    command::{self, cargo},
    gate, say,
};

/// The patches, from the root.
const PATCHES: &str = "tests/mutants";
/// What a test may take before it counts as failed, seconds.
const TEST_SECONDS: &str = "300";
/// Lines that are shown of a build that fails, a count.
const SHOWN_LINES: usize = 12;

/// One break.
#[derive(Debug, Clone)]
struct Mutant {
    name: String,
    patch: PathBuf,
    test: Test,
}

/// A test by its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    /// `--lib`, `--bin NAME` or `--test NAME`.
    target: Vec<String>,
    /// `*` = the whole target.
    name: String,
}

/// What became of a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Caught,
    Missed,
    NotApplied,
    NotBuilt,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Missed => "MISSED",
            Self::NotApplied => "DOES NOT APPLY",
            Self::NotBuilt => "DOES NOT BUILD",
        }
    }
}

/// Tries the breaks whose names begin with one of `names`; all of them without.
/// - `from`: from the break of this name on.
/// - `proves`: first sees the named tests pass without a break.
pub(crate) fn run(names: &[String], from: Option<&str>, proves: bool) -> Result<(), String> {
    let mutants = chosen(names, from)?;
    let workshop = Workshop::open()?;
    if proves {
        workshop.baseline(&mutants)?;
    }
    let mut verdicts: BTreeMap<Verdict, Vec<String>> = BTreeMap::new();
    for (at, mutant) in mutants.iter().enumerate() {
        let began = now();
        let verdict = workshop.attempt(mutant)?;
        let (word, took) = (verdict.word(), began.elapsed().as_secs());
        let Mutant { name, test, .. } = mutant;
        say(&format!("{:>3}/{} {word} {name} after {took} s ({test})", at + 1, mutants.len()));
        verdicts.entry(verdict).or_default().push(name.clone());
    }
    say("\n==> breaks");
    for (verdict, names) in &verdicts {
        let list = if *verdict == Verdict::Caught { String::new() } else { names.join(" ") };
        say(&format!("{:>4} {} {list}", names.len(), verdict.word()));
    }
    let caught = verdicts.get(&Verdict::Caught).map_or(0, Vec::len);
    if caught == mutants.len() {
        Ok(())
    } else {
        Err(format!("{} of {} breaks were not caught", mutants.len() - caught, mutants.len()))
    }
}

fn chosen(names: &[String], from: Option<&str>) -> Result<Vec<Mutant>, String> {
    let folder = command::root().join(PATCHES);
    let entries = fs::read_dir(&folder).map_err(|error| format!("no patches: {error}"))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
    paths.sort();
    let mut mutants = paths.into_iter().map(Mutant::read).collect::<Result<Vec<_>, _>>()?;
    let is_wanted =
        |name: &str| names.is_empty() || names.iter().any(|wanted| name.starts_with(wanted));
    mutants.retain(|one| is_wanted(&one.name) && from.is_none_or(|from| *one.name >= *from));
    if mutants.is_empty() { Err("no break has such a name".to_owned()) } else { Ok(mutants) }
}

impl Mutant {
    fn read(patch: PathBuf) -> Result<Self, String> {
        let text = fs::read_to_string(&patch)
            .map_err(|error| format!("cannot read `{}`: {error}", patch.display()))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("test: "));
        let test = line.and_then(Test::read).ok_or_else(|| format!("`{name}` names no test"))?;
        Ok(Self { name, patch, test })
    }
}

impl Test {
    /// `PACKAGE lib NAME`, `PACKAGE e2e NAME`, `PACKAGE bin BIN NAME` or `PACKAGE test TEST NAME`.
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let (package, target, name): (_, &[&str], _) = match words.as_slice() {
            [package, "lib", name] => (package, &["--lib"], name),
            [package, "e2e", name] => (package, &["--test", "e2e"], name),
            [package, "bin", bin, name] => (package, &["--bin", bin], name),
            [package, "test", test, name] => (package, &["--test", test], name),
            _ => return None,
        };
        let target = target.iter().map(|word| (*word).to_owned()).collect();
        Some(Self { package: (*package).to_owned(), target, name: (*name).to_owned() })
    }

    /// Whether it runs the built binaries.
    fn wants_binaries(&self) -> bool {
        self.package == "procd-tests"
    }

    fn has_name(&self) -> bool {
        self.name != "*"
    }

    /// Everything but the name.
    fn place(&self) -> (String, Vec<String>) {
        (self.package.clone(), self.target.clone())
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.name)
    }
}

/// The copy of the tree, and where it is built.
struct Workshop {
    tree: PathBuf,
    target: PathBuf,
}

impl Workshop {
    /// Brings the copy up to date: what has not changed keeps its time, so that it is not built again.
    fn open() -> Result<Self, String> {
        let folder = gate::target_folder().join("mutants");
        let workshop = Self { tree: folder.join("tree"), target: folder.join("target") };
        let mut list = command::program(Path::new("git"), &["ls-files", "-z"]);
        list.args(["--cached", "--others", "--exclude-standard"]);
        let listed = list.output().map_err(|error| format!("cannot list the files: {error}"))?;
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        for name in &names {
            workshop.copy(name)?;
        }
        workshop.warm()?;
        Ok(workshop)
    }

    /// The first time: what is built here already need not be built there once more, our own crates aside.
    fn warm(&self) -> Result<(), String> {
        let (ours, theirs) = (gate::target_folder().join("debug"), self.target.join("debug"));
        if theirs.exists() || !ours.exists() {
            return Ok(());
        }
        fs::create_dir_all(&theirs).map_err(|error| format!("cannot make a folder: {error}"))?;
        let mut copy = command::program(Path::new("cp"), &["--archive", "--reflink=auto"]);
        copy.args(["build", "deps", ".fingerprint"].map(|name| ours.join(name))).arg(&theirs);
        command::run(copy)
    }

    /// Copies one file that is another there. A file that is gone here is gone there.
    fn copy(&self, name: &str) -> Result<(), String> {
        let (from, to) = (command::root().join(name), self.tree.join(name));
        let failed = |error: std::io::Error| format!("cannot copy `{name}`: {error}");
        let Ok(wanted) = fs::read(&from) else {
            drop(fs::remove_file(&to));
            return Ok(());
        };
        if fs::read(&to).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::copy(&from, &to).map(drop).map_err(failed)
    }

    /// The named tests pass without a break, and are there.
    fn baseline(&self, mutants: &[Mutant]) -> Result<(), String> {
        let mut places: BTreeMap<(String, Vec<String>), Vec<&Test>> = BTreeMap::new();
        for mutant in mutants {
            let tests = places.entry(mutant.test.place()).or_default();
            if !tests.contains(&&mutant.test) {
                tests.push(&mutant.test);
            }
        }
        for tests in places.values() {
            let Some(first) = tests.first() else { continue };
            self.build(first).map_err(|said| format!("without a break: {said}"))?;
            let passed = self.test(tests)?;
            let said = String::from_utf8_lossy(&passed.stdout).into_owned();
            let is_whole = !first.has_name() || said.contains(&format!(" {} passed", tests.len()));
            if !passed.status.success() || !is_whole {
                return Err(format!("without a break, of {} tests:\n{said}", tests.len()));
            }
            say(&format!("{} tests of {} pass without a break", tests.len(), first.package));
        }
        Ok(())
    }

    /// Breaks it, looks whether the test fails, and mends it.
    fn attempt(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let applied = self.git(&["apply"], &mutant.patch)?;
        if !applied.status.success() {
            return Ok(Verdict::NotApplied);
        }
        let verdict = match self.build(&mutant.test) {
            Err(said) => {
                say(&said);
                Ok(Verdict::NotBuilt)
            }
            Ok(()) => self.test(&[&mutant.test]).map(|output| {
                if output.status.success() { Verdict::Missed } else { Verdict::Caught }
            }),
        };
        let mended = self.git(&["apply", "--reverse"], &mutant.patch)?;
        if mended.status.success() {
            verdict
        } else {
            Err(format!("`{}` could not be taken back", mutant.name))
        }
    }

    /// Git in the copy, which is no repository.
    fn git(&self, words: &[&str], patch: &Path) -> Result<Output, String> {
        let mut git = command::program(Path::new("git"), words);
        let above = self.tree.parent().unwrap_or(&self.tree);
        git.arg(patch).current_dir(&self.tree).env("GIT_CEILING_DIRECTORIES", above);
        git.output().map_err(|error| format!("cannot start git: {error}"))
    }

    fn build(&self, test: &Test) -> Result<(), String> {
        let mut commands = vec![self.cargo_test(test, &["--no-run"])];
        if test.wants_binaries() {
            let mut bins = cargo(&["build", "--locked", "--bins"]);
            bins.args(["-p", "procd", "-p", "procctl", "-p", "procd-tests"]);
            commands.push(self.here(bins));
        }
        for command in commands {
            let output = finished(command)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let errors = said.lines().skip_while(|line| !line.starts_with("error"));
                return Err(errors.take(SHOWN_LINES).collect::<Vec<_>>().join("\n"));
            }
        }
        Ok(())
    }

    /// Runs tests of one place, in bounded time: whoever hangs has failed.
    fn test(&self, tests: &[&Test]) -> Result<Output, String> {
        let Some(first) = tests.first() else { return Err("no test".to_owned()) };
        let mut words = Vec::new();
        if first.has_name() {
            words.extend(["--", "--exact"]);
            words.extend(tests.iter().map(|test| test.name.as_str()));
        }
        let test = self.cargo_test(first, &words);
        // The whole group at once: what ignores a polite signal would hold the output open for ever.
        let mut bounded =
            command::program(Path::new("timeout"), &["--signal", "KILL", TEST_SECONDS]);
        bounded.arg(test.get_program()).args(test.get_args());
        let changes = test.get_envs().filter_map(|(name, value)| Some((name, value?)));
        bounded.envs(changes).current_dir(&self.tree);
        finished(bounded)
    }

    fn cargo_test(&self, test: &Test, words: &[&str]) -> Command {
        let mut command = cargo(&["test", "--locked", "--quiet", "-p", &test.package]);
        command.args(&test.target).args(words);
        self.here(command)
    }

    /// In the copy, with its own builds.
    fn here(&self, mut command: Command) -> Command {
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command.env("RUST_BACKTRACE", "0");
        command.env(gate::BINARIES_VARIABLE, self.target.join("debug"));
        command
    }
}

fn finished(mut command: Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cannot start a command: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "tells how long a development command took")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_read_with_its_place() {
        let read = |line: &str| Test::read(line).map(|test| (test.target.join(" "), test.name));
        let wanted = |target: &str, name: &str| Some((target.to_owned(), name.to_owned()));
        assert_eq!(read("procd-core lib a::b"), wanted("--lib", "a::b"));
        assert_eq!(read("procctl bin procctl a"), wanted("--bin procctl", "a"));
        assert_eq!(read("procd-sys test containment *"), wanted("--test containment", "*"));
        assert_eq!(read("procd-tests e2e a::shim"), wanted("--test e2e", "a::shim"));
        assert_eq!(read("procd-core a"), None);
    }
}
