//! Development commands of the workspace: `cargo xtask test` and `cargo xtask ci`.
#![forbid(unsafe_code)]

mod bridge;
mod clients;
mod command;
mod gate;
mod guards;
mod mutants;
mod operate;
mod sections;
mod suite;
mod summary;

use std::{io::Write as _, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Development commands of procd")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Builds the binaries, then runs every test of the workspace against them.
    Test {
        /// Passed on to `cargo test`, such as `-p procd-tests stop::`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filter: Vec<String>,
    },
    /// The tests of output and input, their samples so many times longer than in the gate.
    Output {
        /// How many times longer.
        #[arg(default_value_t = 20)]
        times: u32,
    },
    /// Every kind of escape against everything that ends a tree, each cell of the table three times.
    Containment,
    /// The races, a thousand times each, with the count of every outcome.
    Races,
    /// A thousand hostile clients against the released daemon, and what good ones see of them.
    Hostile,
    /// Cycles, failures and a large shutdown, at full length, and what they leave.
    Cycles,
    /// The long form of the fault tests: a crash at each named point, then kills at random moments.
    Faults {
        /// `matrix`, or `random KILLS SEED`; both, with 500 kills, if nothing is said.
        words: Vec<String>,
    },
    /// Breaks the product on purpose, in a copy of the tree: each break has to be caught by the test that it names.
    Mutants {
        /// Beginnings of names of patches in `tests/mutants`; all of them, if none is said.
        names: Vec<String>,
        /// Goes on from the patch of this name.
        #[arg(long)]
        from: Option<String>,
        /// Without seeing first that the named tests pass as it is.
        #[arg(long)]
        no_baseline: bool,
    },
    /// Everything at once against one daemon, every law checked all along. Best as root, who has a small disk to fill.
    Soak {
        #[arg(default_value_t = 3600)]
        seconds: u32,
        /// Of all that is random.
        #[arg(default_value_t = 1)]
        seed: u64,
    },
    /// Feeds every reader of untrusted bytes with changed and made-up ones.
    Fuzz {
        /// Executions of each target.
        #[arg(default_value_t = 5_000_000)]
        executions: u64,
        /// Which targets; all of them, if none is said.
        targets: Vec<String>,
    },
    /// A small guest with a real systemd: the user units, limits by control groups, logins, as an
    /// ordinary user. Skipped where its tools are missing.
    Vm,
    /// The MCP bridge with clients that are not ours, which `test` has too.
    Bridge,
    /// Writes `protocol/schema/v1.json` from the types of the messages.
    Schema,
    /// The Debian package, in `target/debian-package`.
    Deb {
        /// Installs it into a small Debian system, runs it there and removes it. For root.
        #[arg(long)]
        tries: bool,
    },
    /// Builds and puts everything in place: `cargo xtask install --prefix /usr/local`.
    Install {
        /// Where in the root.
        #[arg(long, default_value = "/usr/local")]
        prefix: String,
        /// The root of the system.
        #[arg(default_value = "")]
        root: String,
    },
    /// The tests of the clients in Python and TypeScript alone.
    Clients,
    /// 10,000 completions in one loop, with slow and vanishing subscribers and a daemon that is killed.
    Completions,
    /// The damage matrix with every 64th byte of every file.
    Damage,
    /// The cases of the field as often and as long as they say, half an hour of it.
    SoakCases,
    /// System calls of one start, read, wait and end, and instructions of the pure crates, beside the
    /// numbers in `crates/procd-guards/numbers.txt`.
    Guards {
        /// Writes the numbers as they are now.
        #[arg(long)]
        write: bool,
    },
    /// The gate: format, lints, `test`, `guards`.
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { filter } => gate::test(&filter),
        Task::Output { times } => gate::output(times),
        Task::Containment => gate::repeat("containment::", 3),
        Task::Hostile => gate::hostile(),
        Task::Races => gate::repeat("races::", 1000),
        Task::Cycles => gate::repeat("endurance::", 5000),
        Task::Faults { words } => gate::faults(&words),
        Task::Mutants { names, from, no_baseline } => {
            mutants::run(&names, from.as_deref(), !no_baseline)
        }
        Task::Soak { seconds, seed } => gate::soak(seconds, seed),
        Task::Fuzz { executions, targets } => gate::fuzz(executions, &targets),
        Task::Vm => gate::vm(),
        Task::Bridge => gate::bridge(),
        Task::Schema => gate::schema(true),
        Task::Deb { tries } => operate::deb(&gate::target_folder(), tries),
        Task::Install { prefix, root } => operate::install(&root, &prefix),
        Task::Clients => gate::clients(),
        Task::Completions => gate::repeat("notices::every_completion", 10_000),
        Task::Damage => gate::all_cuts(),
        Task::Guards { write } => gate::guards(write),
        Task::SoakCases => gate::soak_cases(),
        Task::Ci => gate::ci(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // The tests' own summary is the last word.
            if !message.is_empty() {
                say(&format!("xtask: {message}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Writes a line for whoever runs the task; nobody to read it is no failure.
fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
