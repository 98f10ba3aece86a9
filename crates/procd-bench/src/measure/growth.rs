//! What calls cost beside nothing, beside 5,000 idle processes, and beside 10,000 retained ended
//! ones. By name only.

use serde_json::json;

use super::endurance::{run, start_idle};
use crate::clock::{Samples, timed};
use crate::daemon::Daemon;
use crate::report::{Line, Report, Target};
use crate::trouble::Trouble;
use crate::wire::Wire;

const IDLE: u64 = 5_000;
const ENDED: u64 = 10_000;
const STARTERS: usize = 8;
/// Rounds of one look; the first are not counted.
const ROUNDS: usize = 300;
const WARM: usize = 30;
const LIMITS: &str = "running_loop_max = 6000\nrunning_session_max = 6000\n\
    running_daemon_max = 6000\nmemory_process_bytes = 4096\nspool_process_bytes = 65536\n\
    retained_session_max = 20000\nsessions_max = 100";

/// Each call of a round, in microseconds.
#[derive(Default)]
struct Calls {
    list: Samples,
    start: Samples,
    read: Samples,
    stop: Samples,
}

pub(super) fn growth(report: &mut Report) -> Result<(), Trouble> {
    let alone = beside(report, "nothing", |_owners| Ok(()))?;
    let idle = beside(report, "idle", |owners| start_idle(owners, IDLE))?;
    let ended = beside(report, "ended", |owners| run(owners, ENDED))?;
    for (name, calls) in [("5,000 idle", idle), ("10,000 ended", ended)] {
        let mut add = |call: &str, floor: &Samples, ours: &Samples| {
            let (floor, median) = (floor.median(), ours.median());
            let id = format!("{call} {name}");
            report.add(Line::beside(&id, "us", floor, median, Target::Told).p99(ours.p99()));
        };
        add("list", &alone.list, &calls.list);
        add("start", &alone.start, &calls.start);
        add("read", &alone.read, &calls.read);
        add("stop", &alone.stop, &calls.stop);
    }
    Ok(())
}

/// A daemon of its own with what `fill` puts there, in the session that is then asked.
fn beside(
    report: &Report,
    name: &str,
    fill: impl FnOnce(&mut [Wire]) -> Result<(), Trouble>,
) -> Result<Calls, Trouble> {
    report.remark(&format!("beside {name}"));
    let daemon = Daemon::with_limits(report, LIMITS)?;
    let mut owners = daemon.owners(STARTERS)?;
    fill(&mut owners)?;
    let Some(owner) = owners.first_mut() else { return Ok(Calls::default()) };
    let mut calls = Calls::default();
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            calls = Calls::default();
        }
        look(owner, &mut calls)?;
    }
    Ok(calls)
}

/// One of each.
fn look(owner: &mut Wire, calls: &mut Calls) -> Result<(), Trouble> {
    let merged = json!({ "merge_streams": true });
    let (micros, _) = timed(|| owner.call("process/list", &json!({ "limit": 50 })))?;
    calls.list.push(micros);
    let idle = ["/bin/sleep", "1000000"];
    let (micros, id) = timed(|| owner.background(&idle, &merged))?;
    calls.start.push(micros);
    let page = json!({ "process_id": id, "cursor": 0, "limit_bytes": 4096 });
    let (micros, _) = timed(|| owner.call("process/output", &page))?;
    calls.read.push(micros);
    let (micros, ()) = timed(|| owner.kill(&id))?;
    calls.stop.push(micros);
    Ok(())
}
