//! P15: calls while others are loud, and the memory meanwhile.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use super::memory::anonymous_bytes;
use crate::clock::{Samples, pause, real, timed};
use crate::daemon::Daemon;
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

const LOUD: u32 = 20;
const FOLLOWERS: usize = 10;
const STALLED: usize = 100;
/// Calls of each kind, idle and loaded.
const CALLS: usize = 150;
const MIB: f64 = 1048576.0;

pub(super) fn control(report: &mut Report) -> Result<(), Trouble> {
    let limits = "running_loop_max = 64\nrunning_session_max = 64\nspool_process_bytes = 8388608";
    let daemon = Daemon::with_limits(report, limits)?;
    let mut control = daemon.owner()?;
    let idle = latencies(&mut control)?;
    let mut loud = daemon.owners(FOLLOWERS + 1)?;
    let mut ids = Vec::new();
    for _ in 0..LOUD {
        ids.push(loud[0].background(&["/usr/bin/yes"], &json!({}))?);
    }
    // They ask for page after page and read none.
    for (follower, id) in loud.iter_mut().skip(1).zip(&ids) {
        for _ in 0..16 {
            let params = json!({ "process_id": id, "cursor": 0, "limit_bytes": 1 << 20,
                "encoding": "base64" });
            follower.send("process/output", &params)?;
        }
    }
    let stalled = (0..STALLED).map(|_| stalled(&daemon)).collect::<Result<Vec<_>, _>>()?;
    pause(Duration::from_millis(500));
    let loaded = latencies(&mut control)?;
    let memory = anonymous_bytes(daemon.pid())? / MIB;
    drop(stalled);
    for ((name, idle), (_, loaded)) in idle.into_iter().zip(loaded) {
        let line =
            Line::alone(&format!("P15 {name} p99"), "ms", loaded.p99(), Target::AtMost(50.0));
        let line = line.p99(loaded.p99()).over(idle.p99());
        report.add(line.note(format!("median {:.2} ms", loaded.median())));
    }
    let queues = real(u64::try_from(FOLLOWERS).unwrap_or_default()) * 8.0;
    let bound = f64::from(LOUD) + queues + 32.0;
    report.add(Line::alone("P15 memory", "MiB", memory, Target::AtMost(bound)));
    for id in &ids {
        loud[0].kill(id)?;
    }
    Ok(())
}

/// A client that begins a frame and never ends it. It has said nothing yet: the daemon hangs up
/// on it in its own time.
fn stalled(daemon: &Daemon) -> Result<UnixStream, Trouble> {
    let mut stream = UnixStream::connect(daemon.socket()).tried("connect")?;
    stream.write_all(&[0, 0, 1]).tried("write half a frame")?;
    Ok(stream)
}

/// Milliseconds of each kind of call.
fn latencies(owner: &mut Wire) -> Result<[(&'static str, Samples); 3], Trouble> {
    let mut all =
        [("list", Samples::default()), ("start", Samples::default()), ("stop", Samples::default())];
    for _ in 0..CALLS {
        let (list, _) = timed(|| owner.call("process/list", &json!({ "limit": 10 })))?;
        let (start, id) = timed(|| owner.background(&["/bin/sleep", "1000"], &json!({})))?;
        let (stop, ()) = timed(|| owner.kill(&id))?;
        all.iter_mut().zip([list, start, stop]).for_each(|((_, kind), us)| kind.push(us / 1e3));
    }
    Ok(all)
}
