//! The long form of the crash tests: `cargo xtask faults` runs it. Each round has a PID namespace of its own.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test that reports")]

use std::{
    collections::BTreeMap,
    process::{ExitCode, Stdio},
    time::Duration,
};

use procd_tests::{
    Tier, binaries,
    faults::{self, points, seed::Seed},
    wait,
};

/// Kills in one namespace, on one state folder, a count.
const KILLS_A_ROUND: u64 = 5;
/// The passages of each point at which the matrix crashes.
const PASSAGES: [u64; 3] = [1, 2, 7];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_good = match words.as_slice() {
        ["matrix"] => matrix(),
        ["random", kills, seed] => random(kills.parse().unwrap(), seed.parse().unwrap()),
        ["crash", tier, point, nth, seed] => {
            let mut seed = Seed(seed.parse().unwrap());
            let reached = faults::crash_at(tier_of(tier), point, nth.parse().unwrap(), &mut seed);
            println!("{}", if reached { "reached" } else { "unreached" });
            true
        }
        ["kill", tier, count, seed] => {
            let mut seed = Seed(seed.parse().unwrap());
            faults::kill_at_random(tier_of(tier), count.parse().unwrap(), &mut seed);
            true
        }
        _ => {
            println!("faults matrix | random KILLS SEED");
            false
        }
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tier_of(word: &str) -> Tier {
    if word == "cgroup" { Tier::Cgroup } else { Tier::Shim }
}

fn tiers() -> Vec<Tier> {
    [Tier::Cgroup, Tier::Shim].into_iter().filter(|tier| tier.is_here()).collect()
}

/// Runs this program in a PID namespace: what it said; none when it failed.
fn round(words: &[&str]) -> Option<Vec<String>> {
    let mut command = binaries::command("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(std::env::current_exe().unwrap()).args(words);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        println!("FAILED faults {}\n{said}", words.join(" "));
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(said.lines().map(str::to_owned).collect())
}

/// A crash at each point, at several of its passages, in each tier.
fn matrix() -> bool {
    let began = wait::now();
    let (mut rounds, mut reached, mut failed) = (0_u64, 0_u64, 0_u64);
    for point in points::all() {
        let mut row = String::new();
        for tier in tiers() {
            for nth in PASSAGES {
                rounds += 1;
                let said = round(&["crash", tier.word(), &point, &nth.to_string(), "1"]);
                let is_reached = said.as_ref().is_some_and(|said| said == &["reached"]);
                failed += u64::from(said.is_none() || (nth == 1 && !is_reached));
                reached += u64::from(is_reached);
                row.push(if said.is_none() { 'F' } else { if is_reached { '+' } else { '-' } });
            }
        }
        println!("{row}  {point}");
    }
    println!("{rounds} rounds, {reached} crashes, {failed} failed, {:?}", began.elapsed());
    failed == 0
}

/// Kills at random moments, and how often each phase was hit.
fn random(kills: u64, seed: u64) -> bool {
    println!("seed {seed}");
    let began = wait::now();
    let mut seeds = Seed(seed);
    let mut hits: BTreeMap<String, u64> =
        points::PHASES.iter().map(|(name, _)| ((*name).to_owned(), 0)).collect();
    hits.retain(|name, _| points::all().iter().any(|point| points::phase(point) == name));
    let (mut done, mut failed) = (0, 0_u64);
    let tiers = tiers();
    while done < kills {
        let tier = seeds.choose(&tiers).word();
        let count = KILLS_A_ROUND.min(kills - done);
        done += count;
        match round(&["kill", tier, &count.to_string(), &seeds.next().to_string()]) {
            None => failed += 1,
            Some(said) => {
                for name in said.iter().filter_map(|line| line.strip_prefix("phase ")) {
                    *hits.entry(name.to_owned()).or_insert(0) += 1;
                }
            }
        }
    }
    for (name, count) in &hits {
        println!("{count:>6}  {name}");
    }
    let took = Duration::from_secs(began.elapsed().as_secs());
    let empty: Vec<_> =
        hits.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect();
    println!("{done} kills, {failed} rounds failed, phases never hit: {empty:?}, {took:?}");
    failed == 0 && (kills < 500 || empty.is_empty())
}
