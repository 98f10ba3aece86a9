//! P16 and P17: a million lives one after the other, and ten thousand at once. By name only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::memory::{children, proportional_bytes};
use super::start::turn;
use super::wake::pairs;
use crate::clock::{Samples, now, pause, real};
use crate::daemon::{Daemon, Tier};
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

/// Lives of P16, unless said otherwise.
const CYCLES: u64 = 1_000_000;
/// Looks at the daemon, with as many lives between two of them.
const LOOKS: u64 = 40;
/// What is compared: the looks of the second quarter, when all that is kept is there, with those
/// of the last.
const QUARTER: usize = 10;
/// Clients of P16, each in a session of its own.
const CLIENTS: usize = 8;
/// Before a look: what the last lives left to be done is done by then, and idle threads are gone.
const REST: Duration = Duration::from_secs(12);

/// P17.
const AT_ONCE: u64 = 10_000;
const CONNECTED: u64 = 1_000;
const STARTERS: usize = 8;
/// What a process with one stream needs of the machine: descriptors of the daemon (the stream, in
/// tier 2 its shim too), and memory of its own, the kernel's part of it too.
const DESCRIPTORS_EACH: u64 = 1;
const DESCRIPTORS_EACH_SHIM: u64 = 2;
/// What a client needs: its socket, and who it is.
const DESCRIPTORS_CLIENT: u64 = 2;
/// What the daemon has open beside processes and clients, and what it leaves when it starts.
const DESCRIPTORS_BESIDE: u64 = 300 + 2_048;
const BYTES_EACH: u64 = 256 * 1024;
const SPARE: u64 = 2_000;

/// The daemon as it is at rest.
#[derive(Debug, Clone, Copy)]
struct Look {
    memory_mib: f64,
    descriptors: f64,
    threads: f64,
    leaves: f64,
    disk_mib: f64,
}

/// P16: starts and ends, over and over.
pub(super) fn soak(report: &mut Report) -> Result<(), Trouble> {
    let cycles = report.count().unwrap_or(CYCLES).max(LOOKS);
    let each = cycles / LOOKS;
    report.remark(&format!("{} lives, every setting at its default", each * LOOKS));
    let daemon = Daemon::plain()?;
    let owners = (0..CLIENTS).map(|_| daemon.owner());
    let mut owners = owners.collect::<Result<Vec<_>, _>>()?;
    let mut looks = Vec::new();
    for round in 1..=LOOKS {
        let start = now();
        run(&mut owners, each)?;
        let rate = real(each) / start.elapsed().as_secs_f64();
        pause(REST);
        let look = look(&daemon)?;
        report.remark(&format!("{} of {} at {rate:.0}/s: {look:?}", round * each, each * LOOKS));
        looks.push(look);
    }
    let (early, late) = (looks.get(QUARTER..2 * QUARTER), looks.get(3 * QUARTER..));
    let (early, late) = (early.unwrap_or_default(), late.unwrap_or_default());
    let mut compare = |id: &str, unit: &str, of: fn(&Look) -> f64, bound: f64| {
        let (floor, median) = (median(early, of), median(late, of));
        report.add(Line::beside(id, unit, floor, median, Target::AtMost(bound)));
    };
    compare("P16 memory", "MiB", |look| look.memory_mib, 1.1);
    compare("P16 descriptors", "count", |look| look.descriptors, 1.0);
    compare("P16 threads", "count", |look| look.threads, 1.0);
    compare("P16 disk", "MiB", |look| look.disk_mib, 1.1);
    let leaves = median(late, |look| look.leaves);
    report.add(Line::alone("P16 leaves", "count", leaves, Target::AtMost(0.0)));
    Ok(())
}

fn median(looks: &[Look], of: fn(&Look) -> f64) -> f64 {
    let mut samples = Samples::default();
    looks.iter().for_each(|look| samples.push(of(look)));
    samples.median()
}

/// So many lives, shared by the clients.
pub(super) fn run(owners: &mut [Wire], lives: u64) -> Result<(), Trouble> {
    let clients = u64::try_from(owners.len()).unwrap_or(1).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .zip(owners)
            .map(|(number, owner)| {
                let share = lives / clients + u64::from(number < lives % clients);
                scope.spawn(move || (0..share).try_for_each(|_| turn(owner)))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_panic| Err(Trouble::odd("a client broke")))
        })
    })
}

fn look(daemon: &Daemon) -> Result<Look, Trouble> {
    let mut look =
        Look { memory_mib: 0.0, descriptors: 0.0, threads: 0.0, leaves: 0.0, disk_mib: 0.0 };
    for pid in children(daemon.pid())?.into_iter().chain([daemon.pid()]) {
        look.memory_mib += proportional_bytes(pid)? / 1024.0 / 1024.0;
        look.descriptors += entries(Path::new(&format!("/proc/{pid}/fd")))?;
        look.threads += entries(Path::new(&format!("/proc/{pid}/task")))?;
    }
    look.leaves = leaves(&daemon.state())?;
    look.disk_mib = real(bytes_below(&daemon.state())?) / 1024.0 / 1024.0;
    Ok(look)
}

fn entries(folder: &Path) -> Result<f64, Trouble> {
    let list = fs::read_dir(folder).tried(&format!("list `{}`", folder.display()))?;
    Ok(real(u64::try_from(list.count()).unwrap_or(u64::MAX)))
}

/// What the files of a folder take. One that goes meanwhile takes nothing.
fn bytes_below(folder: &Path) -> Result<u64, Trouble> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).tried("list the state folder")?.flatten() {
        match entry.metadata() {
            Ok(found) if found.is_dir() => bytes += bytes_below(&entry.path()).unwrap_or(0),
            Ok(found) => bytes += found.len(),
            Err(_gone) => {}
        }
    }
    Ok(bytes)
}

/// Control groups of single processes.
fn leaves(state: &Path) -> Result<f64, Trouble> {
    let text = fs::read(state.join("format")).tried("read the state folder's format")?;
    let format: Value = serde_json::from_slice(&text).unwrap_or_default();
    let id = format.get("folder_id").and_then(Value::as_str).unwrap_or("no folder id");
    let mounts = fs::read_to_string("/proc/self/mountinfo").tried("read the mounts")?;
    let roots = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let roots = roots.filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let count = roots.map(|root| groups_in(&root, id, false)).sum();
    Ok(real(count))
}

/// Groups below the payload of the group whose name holds `id`.
fn groups_in(folder: &Path, id: &str, is_payload: bool) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| {
            let is_ours = entry.file_name().to_string_lossy().contains(id);
            let payload = entry.path().join("payload");
            match (is_payload, is_ours) {
                (true, _) => 1,
                (false, true) => groups_in(&payload, id, true),
                (false, false) => groups_in(&entry.path(), id, false),
            }
        })
        .sum()
}

/// P17: so many at once, and P7 beside them.
pub(super) fn crowd(report: &mut Report) -> Result<(), Trouble> {
    let count = report.count().unwrap_or(AT_ONCE);
    let tier = Tier::best()?;
    has_room(count, tier)?;
    let quota = count + 100;
    let (memory, spool) = (quota * 4096, quota * 65536);
    let limits = format!(
        "running_loop_max = {quota}\nrunning_session_max = {quota}\nrunning_daemon_max = {quota}\n\
         memory_process_bytes = 4096\nmemory_session_bytes = {memory}\n\
         memory_daemon_bytes = {memory}\nspool_process_bytes = 65536\n\
         spool_session_bytes = {spool}\nspool_daemon_bytes = {spool}\nsessions_max = 100\n\
         connections_max = {}",
        CONNECTED + 100
    );
    let daemon = Daemon::with_limits(report, &limits)?;
    let mut owners = daemon.owners(STARTERS)?;
    let start = now();
    start_idle(&mut owners, count)?;
    let rate = real(count) / start.elapsed().as_secs_f64();
    report.remark(&format!("{count} started at {rate:.0}/s"));
    let clients = (0..CONNECTED).map(|_| Wire::connect(&daemon.socket()));
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    for client in &mut clients {
        client.call("daemon/status", &json!({}))?;
    }
    let Some(owner) = owners.first_mut() else { return Ok(()) };
    pairs(report, &daemon, owner, "P17")?;
    let look = look(&daemon)?;
    report.remark(&format!("{look:?}"));
    let running = running(&daemon)?;
    let least = Target::AtLeast(real(count));
    report.add(Line::alone("P17 running", "count", running, least));
    let answered = real(u64::try_from(clients.len()).unwrap_or_default());
    let least = Target::AtLeast(real(CONNECTED));
    report.add(Line::alone("P17 clients", "count", answered, least));
    Ok(())
}

/// Processes that do nothing, shared by the clients.
pub(super) fn start_idle(owners: &mut [Wire], count: u64) -> Result<(), Trouble> {
    let starters = u64::try_from(owners.len()).unwrap_or(1).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..starters)
            .zip(owners)
            .map(|(number, owner)| {
                let share = count / starters + u64::from(number < count % starters);
                let merged = json!({ "merge_streams": true });
                let idle = ["/bin/sleep", "1000000"];
                let mut start = move || owner.background(&idle, &merged).map(drop);
                scope.spawn(move || (0..share).try_for_each(|_| start()))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_panic| Err(Trouble::odd("a client broke")))
        })
    })
}

/// How many processes run, as the daemon counts them.
fn running(daemon: &Daemon) -> Result<f64, Trouble> {
    let mut operator = Wire::connect(&daemon.socket())?;
    operator.call("operator/attach", &json!({ "reason": "measure" }))?;
    let status = operator.call("daemon/status", &json!({}))?;
    let running = status.pointer("/totals/running").and_then(Value::as_u64);
    running.map(real).ok_or_else(|| Trouble::odd(format!("no total of what runs in {status}")))
}

/// Whether the machine has what so many need, said before anything is started.
fn has_room(count: u64, tier: Tier) -> Result<(), Trouble> {
    let beside = CONNECTED * DESCRIPTORS_CLIENT + DESCRIPTORS_BESIDE;
    let each = match tier {
        Tier::Cgroup => DESCRIPTORS_EACH,
        Tier::Shim => DESCRIPTORS_EACH_SHIM,
    };
    let descriptors = count * each + beside;
    let wanted = Rlimit { current: Some(descriptors), maximum: Some(descriptors) };
    let given = getrlimit(Resource::Nofile).maximum;
    if given.is_some_and(|given| given < descriptors)
        && setrlimit(Resource::Nofile, wanted).is_err()
    {
        let given = given.unwrap_or_default();
        let fit = given.saturating_sub(beside) / each;
        return short(&format!(
            "{descriptors} open files and may have {given} (ulimit -Hn), which is enough for --count {fit}"
        ));
    }
    let soft = Rlimit { current: Some(descriptors), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, soft).tried("raise the limit of open files")?;
    let processes = count + SPARE;
    let allowed = getrlimit(Resource::Nproc).current;
    let is_root = rustix::process::geteuid().is_root();
    if let Some(allowed) = allowed.filter(|allowed| !is_root && *allowed < processes) {
        return short(&format!("{processes} processes and may have {allowed} (ulimit -u)"));
    }
    for file in ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"] {
        let text = fs::read_to_string(file).tried(&format!("read `{file}`"))?;
        if text.trim().parse::<u64>().is_ok_and(|most| most < processes) {
            return short(&format!("{processes} processes, and {file} says {}", text.trim()));
        }
    }
    let bytes = count * BYTES_EACH;
    let text = fs::read_to_string("/proc/meminfo").tried("read `/proc/meminfo`")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free_kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match free_kib.map(|kib| kib * 1024) {
        Some(free) if free < bytes => {
            let mib = 1024 * 1024;
            short(&format!("{} MiB of memory, and {} MiB are free", bytes / mib, free / mib))
        }
        Some(_) | None => Ok(()),
    }
}

fn short(what: &str) -> Result<(), Trouble> {
    Err(Trouble::odd(format!("this machine is too small: it needs {what}")))
}
