//! Guards that do not depend on the machine: numbers of system calls and of instructions, beside those
//! in a file that is checked in. What has grown beyond its tolerance fails, and is named.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::say;

const NUMBERS: &str = "crates/procd-guards/numbers.txt";
/// The work whose instructions are counted.
const WORK: &[&str] = &["core", "protocol", "text-ascii", "text-log"];
/// What a number may grow by, in percent of it.
const CALLS_PERCENT: f64 = 25.0;
const INSTRUCTIONS_PERCENT: f64 = 5.0;
/// And beside that, for small numbers, of calls.
const CALLS_MORE: f64 = 1.5;

const HEADER: &str = "\
# What does not depend on the machine, as `cargo xtask guards --write` found it; `cargo xtask guards`, a
# part of the gate, fails when a number with a tolerance has grown beyond it. Columns: what, number,
# tolerance in percent. Calls are of one operation, `tier operation`, and below them of which they are.
";

/// Every number by what it counts.
type Numbers = BTreeMap<String, f64>;

/// How often the calls are counted before they have grown: a busy machine has the daemon look again.
const TRIES: usize = 3;

/// Counts and compares, or writes what it has counted.
/// - `calls`: makes what prints the calls of each operation.
/// - `work`: the program whose instructions are counted.
/// # Errors
/// What has grown, by name, in each of the tries; a tool that is missing.
pub(crate) fn check(calls: impl Fn() -> Command, work: &Path, writes: bool) -> Result<(), String> {
    let mut instructions_of = Numbers::new();
    for name in WORK {
        instructions_of.insert(format!("instructions {name}"), instructions(work, name)?);
    }
    let count = || -> Result<Numbers, String> {
        let mut found = instructions_of.clone();
        found.append(&mut system_calls(calls())?);
        Ok(found)
    };
    let file = command::root().join(NUMBERS);
    if writes {
        return write(&file, &count()?);
    }
    let text = fs::read_to_string(&file).map_err(|error| failed("read", &file, &error))?;
    let known = read(&text);
    let mut outcome = compare(&known, &count()?);
    for _ in 1..TRIES {
        let Err(grown) = &outcome else { break };
        say(&format!("counted again: {grown}"));
        outcome = compare(&known, &count()?);
    }
    outcome
}

fn failed(deed: &str, file: &Path, error: &std::io::Error) -> String {
    format!("cannot {deed} `{}`: {error}", file.display())
}

fn output(mut command: Command, what: &str) -> Result<(String, String), String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, told) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok((out, told)) } else { Err(format!("{what} failed:\n{told}")) }
}

/// Calls and their sums for each operation; none where nothing may be traced.
fn system_calls(calls: Command) -> Result<Numbers, String> {
    let (lines, _) = output(calls, "the count of system calls")?;
    let mut found = Numbers::new();
    for line in lines.lines() {
        if line.starts_with("skipped") {
            say(&format!("system calls {line}"));
            continue;
        }
        let Some((name, count)) = line.rsplit_once(' ') else { continue };
        let count: f64 = count.parse().map_err(|_not_a_number| format!("no count: {line}"))?;
        found.insert(format!("call {name}"), count);
        let operation: Vec<&str> = name.split(' ').take(2).collect();
        *found.entry(format!("calls {}", operation.join(" "))).or_default() += count;
    }
    Ok(found)
}

/// Instructions of one piece of work, as callgrind counts them.
fn instructions(work: &Path, name: &str) -> Result<f64, String> {
    let mut valgrind = command::program(Path::new("valgrind"), &["--tool=callgrind"]);
    valgrind.arg("--callgrind-out-file=/dev/null").arg(work).arg(name);
    let (_, told) = output(valgrind, "valgrind (a package of that name)")?;
    let line = told.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| {
        format!("callgrind did not say how many instructions `{name}` took:\n{told}")
    })
}

/// The tolerance of what has one, in percent.
fn tolerance(name: &str) -> Option<f64> {
    match name.split(' ').next() {
        Some("calls") => Some(CALLS_PERCENT),
        Some("instructions") => Some(INSTRUCTIONS_PERCENT),
        Some(_) | None => None,
    }
}

fn write(file: &PathBuf, found: &Numbers) -> Result<(), String> {
    let mut text = HEADER.to_owned();
    for (name, number) in found {
        let tolerance = tolerance(name).map_or_else(|| "-".to_owned(), |it| it.to_string());
        text.push_str(&format!("{name}\t{}\t{tolerance}\n", rounded(name, *number)));
    }
    fs::write(file, text).map_err(|error| failed("write", file, &error))
}

fn rounded(name: &str, number: f64) -> String {
    if name.starts_with("call") { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn read(text: &str) -> BTreeMap<String, (f64, Option<f64>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut columns = line.split('\t');
            let name = columns.next()?.to_owned();
            let number = columns.next()?.parse().ok()?;
            Some((name, (number, columns.next().and_then(|it| it.parse().ok()))))
        })
        .collect()
}

/// What was found, beside what is known of it.
fn compare(known: &BTreeMap<String, (f64, Option<f64>)>, found: &Numbers) -> Result<(), String> {
    let mut grown = Vec::new();
    for (name, &number) in found {
        if tolerance(name).is_none() {
            continue;
        }
        let Some(&(before, percent)) = known.get(name) else {
            grown.push(format!("{name}: {}, and no number is known", rounded(name, number)));
            continue;
        };
        let more = if name.starts_with("call") { CALLS_MORE } else { 0.0 };
        let room = before * percent.unwrap_or_default() / 100.0 + more;
        let shown = format!("{name}: {} now, {} known", rounded(name, number), before);
        if number > before + room {
            grown.push(format!("{shown}{}", details(name, known, found)));
        } else if number < before - room {
            say(&format!("{shown}: fewer; `cargo xtask guards --write` keeps it so"));
        } else {
            say(&shown);
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    let grown = grown.join("\n  ");
    Err(format!(
        "more work than there was:\n  {grown}\nIf it has to be, `cargo xtask guards --write` writes the numbers anew."
    ))
}

/// Which calls of an operation have grown.
fn details(name: &str, known: &BTreeMap<String, (f64, Option<f64>)>, found: &Numbers) -> String {
    let Some(operation) = name.strip_prefix("calls ") else { return String::new() };
    let prefix = format!("call {operation} ");
    let of = found.iter().filter(|(call, _)| call.starts_with(&prefix));
    let grown = of.filter_map(|(call, &number)| {
        let before = known.get(call).map_or(0.0, |&(before, _)| before);
        let call = call.strip_prefix(&prefix).unwrap_or(call);
        (number > before + 0.2).then(|| format!("{call} {before:.1} -> {number:.1}"))
    });
    let grown: Vec<_> = grown.collect();
    format!(" ({})", grown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(lines: &[(&str, f64)]) -> Numbers {
        lines.iter().map(|&(name, number)| (name.to_owned(), number)).collect()
    }

    #[test]
    fn what_grew_beyond_its_tolerance_is_named_with_the_calls_that_grew() {
        let text = "# a word\ncalls shim start\t40.0\t10\ncall shim start daemon openat\t3.0\t-\n\
                    instructions core\t1000\t5\n";
        let known = read(text);
        let same = numbers(&[("calls shim start", 45.5), ("instructions core", 1050.0)]);
        assert_eq!(compare(&known, &same), Ok(()));
        let more = numbers(&[
            ("calls shim start", 46.0),
            ("call shim start daemon openat", 9.0),
            ("instructions core", 1051.0),
        ]);
        let told = compare(&known, &more).unwrap_err();
        assert!(told.contains("daemon openat 3.0 -> 9.0"), "{told}");
        assert!(told.contains("instructions core: 1051 now, 1000 known"), "{told}");
        let strange = numbers(&[("calls cgroup start", 1.0)]);
        assert!(compare(&known, &strange).is_err());
    }
}
