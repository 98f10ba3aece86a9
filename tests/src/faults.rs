//! Crashes under load, and what must be true after each: nothing that was told is missing, nothing is invented, nothing
//! is changed, every end stands once under its stored ids, nothing lives, and every quota is at its true value.
//!
//! A round is meant for a throwaway PID namespace ([`crate::namespace`], or the binary `faults`).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "this is how a round fails, and how it reports"
)]

pub mod audit;
pub mod check;
mod client;
mod heard;
pub mod load;
pub mod points;
pub mod seed;

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use crate::{Daemon, Setup, Tier, leaks, wait};

use load::{Load, Told};
use seed::Seed;

/// So small that new parts with snapshots come all the time, bytes.
const PART_BYTES: &str = "part-bytes=value:12000";
/// How long the load works at most until a point is reached for the first time, and for a later time.
const LOAD_TIMES: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(3)];
/// How long it works before the first crash of a round.
const FIRST_TIME: Duration = Duration::from_millis(250);
/// The last moment of a random crash, counted from the launch, milliseconds.
const MOMENTS_MS: u64 = 900;

/// A daemon with records of all kinds, killed while it worked: the start of each round.
fn prepared(tier: Tier, told: &mut Told, seed: &mut Seed) -> Daemon {
    let mut daemon = Setup::new(tier)
        .limit("retained_session_max = 100000")
        .limit("running_loop_max = 16")
        .limit("grace_ms = 200")
        .prepare();
    daemon.with_failpoints(PART_BYTES);
    daemon.restart();
    let load = Load::begin(&daemon, told, seed.next());
    wait::until_true("the first load has worked", wait::STEP, || {
        load.has_worked(FIRST_TIME, 12) && audit::has_manifest(&daemon.state())
    });
    daemon.kill();
    load.finish(told);
    nothing_lives();
    told.damaged = audit::damage_one_manifest(&daemon.state(), told);
    // So that the next start has to make one.
    std::fs::remove_file(daemon.state().join("ballast")).unwrap();
    daemon
}

fn nothing_lives() {
    wait::until_true("nothing lives any more", wait::STEP, || leaks::everybody().is_empty());
}

/// Crashes at the `nth` passage of `point` under load: whether the load reached it.
/// # Panics
/// When anything that was told is not true afterwards.
#[must_use]
pub fn crash_at(tier: Tier, point: &str, nth: u64, seed: &mut Seed) -> bool {
    let mut told = Told::default();
    let mut daemon = prepared(tier, &mut told, seed);
    daemon.with_failpoints(&format!("{point}=crash@{nth},{PART_BYTES}"));
    daemon.launch();
    if daemon.until_up_or_gone().is_some() {
        let load = Load::begin(&daemon, &told, seed.next());
        load.until_gone(&mut daemon, LOAD_TIMES[usize::from(nth > 1)]);
        load.finish(&mut told);
    }
    let status = daemon.end_however();
    let crashed = status.is_some_and(|status| status.signal().is_some());
    nothing_lives();
    after(&mut daemon, &mut told);
    crashed
}

/// Kills at `count` random moments, one point at a time made slow, as a slow disk would: prints the phase of each kill.
/// # Panics
/// When anything that was told is not true afterwards.
pub fn kill_at_random(tier: Tier, count: u64, seed: &mut Seed) {
    let mut told = Told::default();
    let mut daemon = prepared(tier, &mut told, seed);
    let points: Vec<String> = points::all().into_iter().collect();
    for _ in 0..count {
        let (phase, _) = seed.choose(points::PHASES);
        let of_phase: Vec<_> = points.iter().filter(|p| points::phase(p) == *phase).collect();
        let slow = if of_phase.is_empty() { &points[0] } else { *seed.choose(&of_phase) };
        daemon.with_failpoints(&format!("{slow}=pause:{},{PART_BYTES}", 5 + seed.below(150)));
        drop(std::fs::remove_file(daemon.path().join("trace")));
        let moment = Duration::from_millis(seed.below(MOMENTS_MS));
        let deadline = wait::Deadline::after(moment);
        daemon.launch();
        let load = Load::begin(&daemon, &told, seed.next());
        while let Some(left) = deadline.left() {
            std::thread::park_timeout(left);
        }
        daemon.kill();
        println!("phase {}", points::phase(&daemon.trace()));
        load.finish(&mut told);
        nothing_lives();
        after(&mut daemon, &mut told);
    }
}

/// Restarts, checks all that was told, ends politely, and reads the folder.
fn after(daemon: &mut Daemon, told: &mut Told) {
    let before = audit::read(&daemon.state());
    daemon.without_failpoints();
    daemon.restart();
    check::everything(daemon, told);
    daemon.terminate();
    let status = daemon.ended();
    assert!(status.success(), "{status}");
    let after = audit::read(&daemon.state());
    after.check(&before, told.damaged.as_deref());
    nothing_lives();
}

/// Shows the daemon's log when a round fails; the folder goes with the daemon.
impl Told {
    /// Fails with what was told.
    pub(crate) fn wrong(&self, what: &str) -> ! {
        panic!("{what}\nafter {} records told", self.records.len())
    }
}
