//! P8 and P9: the end of trees.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use super::drain::{actor, own};
use super::wake::{fifo, name, orders};
use crate::actor::WORD;
use crate::clock::{Samples, now, pause, timed};
use crate::daemon::{Daemon, Tier};
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

const ROUNDS: usize = 15;
const COMMANDS: usize = 500;
/// Between two reads of the floor's group.
const REREAD: Duration = Duration::from_micros(50);
/// Bytes of a terminal record, about.
const RECORD_BYTES: usize = 2048;

/// P8. The floor: one kill of a control group until it reads as empty, and one synced append.
pub(super) fn trees(report: &mut Report) -> Result<(), Trouble> {
    if Tier::best()? != Tier::Cgroup {
        return Err(Trouble::odd("tier 1 is not to be had here"));
    }
    let daemon = Daemon::start(Tier::Cgroup, "")?;
    let mut owner = daemon.owner()?;
    let log = File::create(daemon.folder().join("floor.log")).tried("make the floor's log")?;
    for count in [1_usize, 10, 200] {
        let (mut floors, mut ours) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            floors.push(floor(count, &log)?);
            ours.push(stop(&mut owner, count)?);
        }
        let (floor, median) = (floors.median(), ours.median());
        let line = Line::beside(&format!("P8 {count}"), "us", floor, median, Target::AtMost(1.3));
        report.add(line.p99(ours.p99()));
    }
    Ok(())
}

fn floor(count: usize, log: &File) -> Result<f64, Trouble> {
    let group = Group::new()?;
    let words = ["tree", &count.to_string()];
    let mut root = actor(&words, Stdio::piped(), Stdio::piped())?;
    fs::write(group.0.join("cgroup.procs"), root.id().to_string()).tried("fill the group")?;
    drop(root.stdin.take());
    let mut ready = [0; 6];
    let mut out = root.stdout.take().ok_or_else(|| Trouble::odd("no stdout"))?;
    out.read_exact(&mut ready).tried("wait for the floor's tree")?;
    let (micros, ()) = timed(|| {
        fs::write(group.0.join("cgroup.kill"), "1").tried("kill the group")?;
        while group.is_populated()? {
            // Not spun on: that would take the processor from those that are to die.
            pause(REREAD);
        }
        log.write_all_at(&[b'x'; RECORD_BYTES], 0).and_then(|()| log.sync_data()).tried("append")
    })?;
    root.wait().tried("reap the floor's tree")?;
    Ok(micros)
}

fn stop(owner: &mut Wire, count: usize) -> Result<f64, Trouble> {
    let argv = [&own()?, WORD, "tree", &count.to_string()];
    let id = owner.background(&argv, &json!({}))?;
    let params = json!({ "process_id": id, "cursor": 0, "wait": "any" });
    owner.call("process/output", &params)?;
    Ok(timed(|| owner.kill(&id))?.0)
}

/// A control group of the bench's own, beside the one that it is in.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Self, Trouble> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").tried("read the mounts")?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let mount = mount.and_then(|line| line.split(' ').nth(4));
        let groups = fs::read_to_string("/proc/self/cgroup").tried("read the own group")?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let (Some(mount), Some(own)) = (mount, own) else {
            return Err(Trouble::odd("no control groups of version 2 here"));
        };
        let name = format!("procd-bench-{}", std::process::id());
        let path = Path::new(mount).join(own).join(name);
        fs::create_dir(&path).tried("make a control group")?;
        Ok(Self(path))
    }

    fn is_populated(&self) -> Result<bool, Trouble> {
        let events = fs::read_to_string(self.0.join("cgroup.events")).tried("read the group")?;
        Ok(events.contains("populated 1"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

/// P9: each command holds a FIFO open; its end comes when the last of them is gone.
pub(super) fn orphans(report: &mut Report) -> Result<(), Trouble> {
    let limits = "running_loop_max = 1000\nrunning_session_max = 1000\n\
        memory_process_bytes = 4096\nspool_process_bytes = 65536";
    let mut daemon = Daemon::with_limits(report, limits)?;
    let path = daemon.folder().join("alive");
    fifo(&path)?;
    let held = orders(&path)?;
    let mut alive = File::open(&path).tried("open a FIFO")?;
    let mut owner = daemon.owner()?;
    let script = format!("exec 9>{}; echo >&9; exec /bin/sleep 1000000", name(&path)?);
    for _ in 0..COMMANDS {
        owner.background(&["/bin/sh", "-c", &script], &json!({}))?;
    }
    let mut signs = vec![0; COMMANDS];
    alive.read_exact(&mut signs).tried("count the commands")?;
    drop(held);
    let start = now();
    daemon.kill()?;
    alive.read_to_end(&mut signs).tried("wait for the last command")?;
    let seconds = start.elapsed().as_secs_f64();
    // The next one sweeps what is left of this one.
    daemon.restart()?;
    report.add(Line::alone("P9", "s", seconds, Target::AtMost(0.5)));
    Ok(())
}
