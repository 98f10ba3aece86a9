//! One life of the daemon: work, trouble, its end, and the look at what it leaves.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    Run, bounds,
    crowd::{self, Crowd},
    disk,
    stage::Stage,
};
use crate::{
    Daemon,
    faults::{
        audit, check,
        load::{Load, Told},
        seed::Seed,
    },
    leaks, wait,
};

/// So small that new parts with snapshots come all the time, bytes; in some of the lives.
const PART_BYTES: &str = "part-bytes=value:24000";
/// Between two looks at the bounds.
const LOOK: Duration = Duration::from_millis(250);
/// Descriptors that may be open beside those of before, a count: a part of the log, and what is being sealed.
const SPARE: u64 = 6;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// SIGKILL in the middle of everything.
    Kill,
    /// SIGTERM in the middle of everything.
    Terminate,
    /// `daemon/shutdown` in the middle of everything.
    Shutdown,
    /// All is stopped first, and what the daemon holds then is what it held before.
    Quiet,
}

/// What a life is to be.
#[derive(Debug)]
struct Plan {
    length: Duration,
    end: End,
    /// When the disk is full: from, to.
    full: Option<(Duration, Duration)>,
    has_small_parts: bool,
}

impl Plan {
    fn new(seed: &mut Seed) -> Self {
        let length = match seed.below(10) {
            0..=4 => 500 + seed.below(5000),
            5..=8 => 4000 + seed.below(12_000),
            _ => 30_000 + seed.below(60_000),
        };
        let end = match seed.below(10) {
            0..=5 => End::Kill,
            6 => End::Terminate,
            7 => End::Shutdown,
            _ => End::Quiet,
        };
        let full = (seed.below(3) == 0).then(|| {
            let from = seed.below(length);
            (Duration::from_millis(from), Duration::from_millis(from + 200 + seed.below(3000)))
        });
        let length = Duration::from_millis(length);
        Self { length, end, full, has_small_parts: seed.below(2) == 0 }
    }
}

/// Lives one life and checks everything after it.
pub(super) fn live(
    daemon: &mut Daemon,
    run: &mut Run,
    stage: &Arc<Stage>,
    told: &mut Told,
    seed: &mut Seed,
    deadline: wait::Deadline,
) {
    let mut plan = Plan::new(seed);
    plan.length = plan.length.min(deadline.left().unwrap_or_default());
    println!("life {}: {plan:?}", run.counts.get("lives of the daemon").unwrap_or(&0));
    stage.was_full.store(plan.full.is_some(), Ordering::Release);
    if plan.has_small_parts {
        daemon.with_failpoints(PART_BYTES);
    }
    let began = wait::now();
    daemon.restart();
    run.peaks.restored(began.elapsed());
    let held = bounds::descriptors(daemon);
    let load = Load::begin(daemon, told, seed.next());
    let crowd = Crowd::begin(stage, seed);
    work(daemon, run, stage, told, &plan);
    if plan.end == End::Quiet {
        load.finish(told);
        crowd.finish();
        disk::free(daemon);
        quiet(daemon, held);
        daemon.terminate();
        assert!(daemon.ended().success());
        *run.counts.entry("lives that left nothing held").or_default() += 1;
    } else {
        end(daemon, plan.end);
        load.finish(told);
        crowd.finish();
    }
    let name = match plan.end {
        End::Kill => "lives of the daemon, killed",
        End::Terminate | End::Shutdown | End::Quiet => "lives of the daemon, ended in order",
    };
    *run.counts.entry(name).or_default() += 1;
    *run.counts.entry("lives of the daemon").or_default() += 1;
    // What the daemon left belongs to this one now, as the first of its namespace.
    wait::until_true("nothing lives any more", wait::STEP, || leaks::everybody().is_empty());
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
    after(daemon, run, stage, told, plan.full.is_some());
}

/// Until its time is over, or the folder is laden: looks at the bounds, and fills the disk.
fn work(daemon: &Daemon, run: &mut Run, stage: &Stage, told: &mut Told, plan: &Plan) {
    let began = wait::now();
    let mut is_full = false;
    while began.elapsed() < plan.length && !stage.is_over() {
        std::thread::park_timeout(LOOK.min(plan.length.saturating_sub(began.elapsed())));
        let over = run.peaks.look(daemon);
        assert!(over.is_empty(), "beyond its bounds: {over:?}");
        *run.counts.entry("looks at the bounds").or_default() += 1;
        if run.peaks.is_laden(daemon) {
            *run.counts.entry("lives cut short by what they kept").or_default() += 1;
            return;
        }
        let Some((from, to)) = plan.full else { continue };
        let is_time = (from..to).contains(&began.elapsed());
        if is_time && !is_full {
            told.spools_refused = true;
            stage.book().may_have_holes = true;
            disk::fill(daemon);
            *run.counts.entry("full disks").or_default() += 1;
        } else if is_full && !is_time {
            disk::free(daemon);
        }
        is_full = is_time;
    }
}

fn end(daemon: &mut Daemon, end: End) {
    match end {
        End::Kill => daemon.kill(),
        End::Shutdown => {
            daemon.operator().ok("daemon/shutdown", json!({}));
            assert!(daemon.ended().success());
        }
        End::Terminate | End::Quiet => {
            daemon.terminate();
            assert!(daemon.ended().success());
        }
    }
}

/// All is stopped: no descriptor and no control group is held any more.
fn quiet(daemon: &Daemon, held: u64) {
    let mut wire = daemon.operator();
    let running = |wire: &mut crate::Wire| {
        let page = wire.ok("process/list", json!({"state": "running", "limit": 1000}));
        page["records"].as_array().cloned().unwrap_or_default()
    };
    wait::until_true("all is stopped", wait::STEP * 2, || {
        let mut sessions: Vec<Value> =
            running(&mut wire).iter().map(|record| record["session_id"].clone()).collect();
        sessions.sort_by_key(Value::to_string);
        sessions.dedup();
        for session in &sessions {
            let params = json!({"session_id": session, "mode": "kill", "grace_ms": 0});
            wire.ok("session/stop_all", params);
        }
        sessions.is_empty()
    });
    drop(wire);
    wait::until("nothing is held any more", wait::STEP, || {
        let is_free = bounds::descriptors(daemon) <= held + SPARE && bounds::leaves(daemon) == 0;
        is_free.then_some(())
    });
}

/// The next daemon says all that was told, and the folder agrees.
fn after(daemon: &mut Daemon, run: &mut Run, stage: &Stage, told: &mut Told, was_full: bool) {
    let before = audit::read(&daemon.state());
    daemon.without_failpoints();
    if was_full {
        // Without room on the disk it starts too.
        daemon.restart();
        daemon.operator().ok("daemon/status", json!({}));
        disk::free(daemon);
        daemon.kill();
        wait::until_true("nothing lives", wait::STEP, || leaks::everybody().is_empty());
        told.refusals.retain(|refusal| !refusal.contains("\"storage\""));
    }
    let began = wait::now();
    daemon.restart();
    run.peaks.restored(began.elapsed());
    check::everything(daemon, told);
    crowd::check(daemon, stage);
    daemon.terminate();
    assert!(daemon.ended().success());
    audit::read(&daemon.state()).check(&before, None);
    wait::until_true("nothing lives", wait::STEP, || leaks::everybody().is_empty());
    *run.counts.entry("folders that agree with what was told").or_default() += 1;
}
