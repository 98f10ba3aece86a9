//! P10 to P12: what many idle processes, clients and records cost.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::memory::{children, proportional_bytes, voluntary_switches};
use super::start::turn;
use crate::clock::{Samples, pause, real, timed};
use crate::daemon::{Daemon, Tier};
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

const KIB: f64 = 1024.0;
const IDLE: usize = 1000;
const CLIENTS: usize = 1000;
const WAITING: usize = 100;
const QUIET: Duration = Duration::from_secs(20);
const ENDED: usize = 10_000;
const LIMITS: &str = "running_loop_max = 12000\nrunning_session_max = 12000\n\
    running_daemon_max = 12000\nmemory_process_bytes = 4096\nspool_process_bytes = 65536\n\
    connections_max = 2000\nretained_session_max = 20000\nwaiters_session_max = 200";

/// P10: the daemon, its guardian and the shims.
pub(super) fn memory(report: &mut Report) -> Result<(), Trouble> {
    raise_open_files()?;
    report.remark(&LIMITS.replace('\n', ", "));
    let mut tiers = vec![(Tier::Shim, "tier 2", 40.0)];
    if Tier::best()? == Tier::Cgroup {
        tiers.insert(0, (Tier::Cgroup, "tier 1", 8.0));
    }
    for (tier, name, bound) in tiers {
        let daemon = Daemon::start(tier, LIMITS)?;
        let mut owner = daemon.owner()?;
        let empty = all_bytes(&daemon, tier)?;
        let mib = empty / KIB / KIB;
        report.add(Line::alone(&format!("P10 {name} empty"), "MiB", mib, Target::AtMost(12.0)));
        idle(&mut owner)?;
        pause(Duration::from_secs(1));
        let full = all_bytes(&daemon, tier)?;
        let each = (full - empty) / count(IDLE) / KIB;
        report.add(Line::alone(&format!("P10 {name} process"), "KiB", each, Target::AtMost(bound)));
        if tier == Tier::Cgroup {
            let clients = (0..CLIENTS).map(|_| Wire::connect(&daemon.socket()));
            let clients = clients.collect::<Result<Vec<_>, _>>()?;
            let each = (all_bytes(&daemon, tier)? - full) / count(clients.len()) / KIB;
            report.add(Line::alone("P10 client", "KiB", each, Target::AtMost(16.0)));
        }
    }
    Ok(())
}

/// Memory of the daemon's own processes: what they share counts once.
fn all_bytes(daemon: &Daemon, tier: Tier) -> Result<f64, Trouble> {
    let mut bytes = proportional_bytes(daemon.pid())?;
    for guardian in children(daemon.pid())? {
        bytes += proportional_bytes(guardian)?;
        if tier == Tier::Shim {
            for shim in children(guardian)? {
                bytes += proportional_bytes(shim)?;
            }
        }
    }
    Ok(bytes)
}

/// P11: nobody wakes while nothing happens.
pub(super) fn quiet(report: &mut Report) -> Result<(), Trouble> {
    let daemon = Daemon::with_limits(report, LIMITS)?;
    let mut clients = daemon.owners(WAITING + 1)?;
    let Some((owner, waiting)) = clients.split_first_mut() else { return Ok(()) };
    let id = idle(owner)?;
    for client in waiting {
        client.send("process/output", &json!({ "process_id": id, "wait": "exit" }))?;
    }
    // The last work of the starts, and threads that end for want of it.
    pause(Duration::from_secs(12));
    let before = voluntary_switches(daemon.pid())?;
    pause(QUIET);
    let after = voluntary_switches(daemon.pid())?;
    report.add(Line::alone("P11", "switch", real(after - before), Target::AtMost(0.0)));
    Ok(())
}

/// Starts idle processes; the last one's handle.
fn idle(owner: &mut Wire) -> Result<String, Trouble> {
    let mut last = String::new();
    for _ in 0..IDLE {
        last = owner.background(&["/bin/sleep", "1000000"], &json!({}))?;
    }
    Ok(last)
}

/// P12. The floor: every file of the state folder read, and each of its lines parsed.
pub(super) fn restore(report: &mut Report) -> Result<(), Trouble> {
    let mut daemon = Daemon::with_limits(report, LIMITS)?;
    let mut clients = daemon.owners(8)?;
    std::thread::scope(|scope| {
        let share = ENDED / clients.len();
        let work = move |client: &mut Wire| (0..share).try_for_each(|_| turn(client));
        let threads: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(move || work(client))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_panic| Err(Trouble::odd("a client broke")))
        })
    })?;
    drop(clients);
    let (mut floors, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..3 {
        ours.push(daemon.restart()?.as_secs_f64() * 1e3);
        floors.push(timed(|| parse_all(&daemon.state()))?.0 / 1e3);
    }
    let (floor, ours) = (floors.median(), ours.median());
    report.add(Line::beside("P12", "ms", floor, ours, Target::AtMost(2.0)));
    Ok(())
}

/// What the running daemon removes meanwhile is passed over.
fn parse_all(folder: &Path) -> Result<(), Trouble> {
    let Some(entries) = still_there(fs::read_dir(folder)).tried("list a folder")? else {
        return Ok(());
    };
    for entry in entries {
        let path = entry.tried("list a folder")?.path();
        if path.is_dir() {
            parse_all(&path)?;
            continue;
        }
        let Some(bytes) = still_there(fs::read(&path)).tried("read a file")? else { continue };
        for line in bytes.split(|&byte| byte == b'\n') {
            // Not all of them are text.
            std::hint::black_box(serde_json::from_slice::<Value>(line).ok());
        }
    }
    Ok(())
}

fn still_there<T>(read: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn count(number: usize) -> f64 {
    real(u64::try_from(number).unwrap_or(u64::MAX))
}

fn raise_open_files() -> Result<(), Trouble> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).tried("raise a limit")
}
