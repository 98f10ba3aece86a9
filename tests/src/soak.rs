//! Everything at once against one daemon, for as long as one likes: the laws are checked all along, and counted.
//!
//! A run is a row of *epochs* on one state folder, a small disk of its own. Each epoch has sessions of its own and several
//! *lives* of the daemon. In a life the crash tests' load and the crowd of [`crowd`] work at once, the disk is full now and
//! then, and [`bounds`] are watched; then the daemon is killed, or ends in order. After each life nothing lives, the next
//! daemon says all that was told, and the folder agrees. An epoch ends by purging its sessions, whose bytes must go.
//!
//! Meant for a throwaway PID namespace: the binary `soak` makes one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "this is how a run fails, and how it reports"
)]

mod bounds;
mod churn;
mod crowd;
mod disk;
mod good;
mod life;
mod noise;
mod stage;
mod terminal;
mod trees;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use serde_json::json;

use crate::{
    Daemon, Setup, Tier,
    faults::{load::Told, seed::Seed},
    wait,
};
use bounds::Peaks;
use stage::Stage;

/// Epochs that may fail before a run gives up, a count.
const FAILURES_MAX: u64 = 8;
/// Lives of one epoch, a count.
const LIVES: u64 = 5;
/// Lines of the daemon's log that are shown of a failure, a count.
const LOG_LINES: usize = 60;

/// What a run counts: deeds and checks by their names.
pub type Counts = BTreeMap<&'static str, u64>;

/// One run.
#[derive(Debug, Default)]
struct Run {
    counts: Counts,
    peaks: Peaks,
    slowest: (Duration, String),
}

/// Runs for about `seconds`: whether every check held. Prints a line a life, and a summary at the end.
/// - `lives`: at most so many lives of the daemon; 0 for no limit.
#[must_use]
pub fn run(seconds: u64, seed: u64, lives: u64) -> bool {
    println!("soak of {seconds} s, seed {seed}");
    let began = wait::now();
    let deadline = wait::Deadline::after(Duration::from_secs(seconds));
    let (mut run, mut seeds, mut failed) = (Run::default(), Seed(seed), 0_u64);
    while deadline.left().is_some() && failed < FAILURES_MAX && !run.is_over(lives) {
        let mut daemon = prepared();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while deadline.left().is_some() && !run.is_over(lives) {
                epoch(&mut daemon, &mut run, &mut seeds, deadline, lives);
                *run.counts.entry("epochs").or_default() += 1;
            }
        }));
        if outcome.is_err() {
            failed += 1;
            show(&daemon);
        }
        if catch_unwind(AssertUnwindSafe(|| disk::leave(daemon))).is_err() {
            failed += 1;
        }
    }
    run.report(began.elapsed(), failed);
    failed == 0
}

impl Run {
    fn is_over(&self, lives: u64) -> bool {
        lives > 0 && self.counts.get("lives of the daemon").is_some_and(|done| *done >= lives)
    }

    fn report(&self, took: Duration, failed: u64) {
        println!("--- counts");
        for (name, count) in &self.counts {
            println!("{count:>12}  {name}");
        }
        println!("--- peaks\n{}", self.peaks);
        println!("slowest answer of a call: {:?}, {}", self.slowest.0, self.slowest.1);
        let verdict = if failed == 0 { "every check held" } else { "FAILED" };
        println!("{verdict}: {failed} epochs failed, {} s", took.as_secs());
    }
}

/// A state folder on a small disk, with no daemon yet.
fn prepared() -> Daemon {
    let daemon = Setup::new(Tier::Shim)
        .limit("retained_session_max = 100000")
        .limit("running_loop_max = 16")
        .limit("memory_daemon_bytes = 33554432")
        .limit("memory_session_bytes = 16777216")
        .limit("grace_ms = 200")
        .prepare();
    disk::mount(&daemon);
    daemon
}

fn tier(seeds: &mut Seed) -> Tier {
    let tiers: Vec<Tier> =
        [Tier::Cgroup, Tier::Shim].into_iter().filter(|tier| tier.is_here()).collect();
    *seeds.choose(&tiers)
}

/// The daemon is told anew how to hold trees together, on the same folder.
fn use_tier(daemon: &Daemon, tier: Tier) {
    let path = daemon.path().join("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let others = text.lines().filter(|line| !line.starts_with("containment"));
    let own = format!("containment = \"{}\"", tier.word());
    let lines: Vec<&str> = [own.as_str()].into_iter().chain(others).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
    println!("tier {}", tier.word());
}

/// Some lives, one set of sessions.
fn epoch(
    daemon: &mut Daemon,
    run: &mut Run,
    seeds: &mut Seed,
    deadline: wait::Deadline,
    lives: u64,
) {
    use_tier(daemon, tier(seeds));
    let mut told = Told::default();
    let stage = Arc::new(Stage::new(daemon));
    let deeds = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..LIVES {
            if deadline.left().is_none() || run.is_over(lives) {
                break;
            }
            life::live(daemon, run, &stage, &mut told, seeds, deadline);
        }
        daemon.restart();
        crowd::purge(daemon, &stage, &told);
        daemon.terminate();
        assert!(daemon.ended().success());
    }));
    let mut book = stage.book();
    for (name, count) in std::mem::take(&mut book.counts) {
        *run.counts.entry(name).or_default() += count;
    }
    if book.slowest.0 > run.slowest.0 {
        run.slowest = book.slowest.clone();
    }
    drop(book);
    run.count_told(&told);
    if let Err(cause) = deeds {
        std::panic::resume_unwind(cause);
    }
}

impl Run {
    /// What the crash tests' load was told in an epoch.
    fn count_told(&mut self, told: &Told) {
        let loops = || told.loops.values();
        let counts: [(&'static str, usize); 6] = [
            ("load: records told and the same ever after", told.records.len()),
            ("load: starts sent", told.labels.len()),
            ("load: notifications offered", loops().map(|own| own.offered.len()).sum()),
            ("load: notifications answered for good", loops().map(|own| own.answered.len()).sum()),
            ("load: events heard", loops().map(|own| own.events.len()).sum()),
            ("load: records pinned", told.pinned.len()),
        ];
        for (name, count) in counts {
            *self.counts.entry(name).or_default() += count as u64;
        }
    }
}

/// What there is to say of a failure.
fn show(daemon: &Daemon) {
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().collect();
    println!("--- the end of the daemon's log");
    for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
        println!("{line}");
    }
}

/// Attaches to a session that was opened.
fn attach_params(opened: &serde_json::Value) -> serde_json::Value {
    json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]})
}
