//! `procd-bench`: each measure beside a floor of its own, run in turn in the same minute.
//!
//! ```text
//! arguments -> measures -> (daemon of its own, floor) -> line -> report
//! ```
//! The same binary is also the commands that the measures run (`play`): what writes blocks, lines
//! or ticks, and the relay that is a floor.

#![forbid(unsafe_code)]

mod actor;
mod clock;
mod daemon;
mod measure;
mod report;
mod spawn;
mod trouble;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::report::{Earlier, Report};
use crate::trouble::Trouble;

/// Measures procd against floors that it runs itself.
#[derive(Debug, Parser)]
#[command(name = "procd-bench", version)]
struct Arguments {
    /// What to measure: p1 to p17, p6b, growth; without a name everything but p6b, p16, p17 and
    /// growth.
    #[arg(value_name = "MEASURE")]
    measures: Vec<String>,
    /// Lives of p16, processes of p17.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Print how each ratio stands to an earlier `--json`.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, rest)) if first == actor::WORD => actor::play(rest),
        Some(_) | None => measure_all(&Arguments::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            report::say(&format!("procd-bench: {}", trouble.chain()));
            ExitCode::FAILURE
        }
    }
}

fn measure_all(arguments: &Arguments) -> Result<(), Trouble> {
    let earlier = arguments.compare.as_deref().map(Earlier::read).transpose()?;
    let chosen = measure::chosen(&arguments.measures)?;
    let mut report = Report::new(arguments.json, earlier).counting(arguments.count);
    for measure in chosen {
        report.begin(measure.id, measure.what);
        match (measure.run)(&mut report) {
            Ok(()) => {}
            // One measure that cannot run leaves the others alone; it counts as missed.
            Err(trouble) => report.broken(measure.id, &trouble.chain()),
        }
    }
    report.finish()
}
