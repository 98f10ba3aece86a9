//! `procd-fuzz EXECUTIONS [TARGET...]`: the long form of the fuzzer.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use procd_fuzz::targets::{TARGETS, clean_up};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let executions = words.next().and_then(|word| word.parse().ok()).unwrap_or(5_000_000);
    let wanted: Vec<String> = words.collect();
    let mut code = ExitCode::SUCCESS;
    for target in
        TARGETS.iter().filter(|it| wanted.is_empty() || wanted.iter().any(|w| w == it.name))
    {
        let outcome = procd_fuzz::run(target, executions, 1);
        say(&format!(
            "{:<14} {:>10} executions, corpus {}",
            target.name, outcome.executions, outcome.corpus
        ));
        if let Some(input) = outcome.crash {
            let path = format!("fuzz-{}.crash", target.name);
            say(&match std::fs::write(&path, &input) {
                Ok(()) => format!("  an input broke it: {path}, {} bytes", input.len()),
                Err(error) => format!("  an input broke it, and cannot be kept: {error}"),
            });
            code = ExitCode::FAILURE;
        }
    }
    clean_up();
    code
}

/// A line for whoever runs it; nobody to read it is no failure.
fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
