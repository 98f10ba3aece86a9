//! P4 to P6: how fast output is taken in.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::actor::WORD;
use crate::clock::{Samples, now, real, timed};
use crate::daemon::Daemon;
use crate::report::{Line, Report, Target};
use crate::spawn;
use crate::trouble::{Tried, Trouble};
use crate::wire::{Wire, number};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BLOCK: &str = "65536";
/// The ceiling of a spool, and of one of many.
const CEILING: u64 = 64 * MIB;
const CEILING_OF_MANY: u64 = 8 * MIB;
const STREAMS: u64 = 64;
const ROUNDS: usize = 3;

/// P4: one stream and many, each past its ceiling by 4 GiB in all.
pub(super) fn bulk(report: &mut Report) -> Result<(), Trouble> {
    bulk_of(report, "P4 1 stream", 1, CEILING)?;
    bulk_of(report, "P4 64 streams", STREAMS, CEILING_OF_MANY)
}

fn bulk_of(report: &mut Report, id: &str, streams: u64, ceiling: u64) -> Result<(), Trouble> {
    let limits = format!(
        "running_loop_max = 128\nrunning_session_max = 128\nmemory_process_bytes = 524288\n\
         memory_session_bytes = 67108864\nspool_process_bytes = {ceiling}"
    );
    let daemon = Daemon::with_limits(report, &limits)?;
    let mut owner = daemon.owner()?;
    let bytes = (4 * GIB / streams + ceiling).to_string();
    let words = ["blocks", BLOCK, &bytes];
    let mut rates = [Samples::default(), Samples::default(), Samples::default()];
    for _ in 0..ROUNDS {
        let total = 4 * GIB + ceiling * streams;
        let (micros, ()) = timed(|| to_files(&daemon, &words, streams))?;
        rates[0].push(real(total) / micros);
        let (micros, _cpu) = timed(|| through_cat(&daemon, &words, streams))?;
        rates[1].push(real(total) / micros);
        let (micros, ()) = timed(|| through_procd(&mut owner, &words, streams))?;
        rates[2].push(real(total) / micros);
    }
    let [file, cat, ours] = rates.map(|rate| rate.median());
    report.add(Line::beside(&format!("{id} > file"), "MB/s", file, ours, Target::AtLeast(0.75)));
    report.add(Line::beside(&format!("{id} | cat"), "MB/s", cat, ours, Target::AtLeast(1.8)));
    Ok(())
}

/// P5: lines of 80 bytes, and what taking them costs.
pub(super) fn lines(report: &mut Report) -> Result<(), Trouble> {
    let daemon = Daemon::plain()?;
    let mut owner = daemon.owner()?;
    let total = 256 * MIB;
    let bytes = total.to_string();
    let words = ["lines", &bytes];
    let mut figures = [(); 4].map(|()| Samples::default());
    for _ in 0..ROUNDS {
        let (micros, cat_cpu) = timed(|| through_cat(&daemon, &words, 1))?;
        figures[0].push(real(total) / micros);
        figures[1].push(cat_cpu);
        let before = cpu_seconds(daemon.pid())?;
        let (micros, ()) = timed(|| through_procd(&mut owner, &words, 1))?;
        figures[2].push(real(total) / micros);
        figures[3].push(cpu_seconds(daemon.pid())? - before);
    }
    let [cat, cat_cpu, ours, our_cpu] = figures.map(|figure| figure.median());
    report.add(Line::beside("P5 lines | cat", "MB/s", cat, ours, Target::AtLeast(1.0)));
    report.add(Line::beside("P5 CPU of drainer", "s", cat_cpu, our_cpu, Target::AtMost(1.0)));
    Ok(())
}

/// P6, first half: the rate does not fall with what went before.
pub(super) fn growth(report: &mut Report) -> Result<(), Trouble> {
    let daemon = Daemon::plain()?;
    let mut owner = daemon.owner()?;
    let mut rate = |total: u64| {
        let bytes = total.to_string();
        let (micros, ()) = timed(|| through_procd(&mut owner, &["blocks", BLOCK, &bytes], 1))?;
        Ok::<_, Trouble>(real(total) / micros)
    };
    let mut short = Samples::default();
    short.push(rate(GIB)?);
    short.push(rate(GIB)?);
    let long = rate(16 * GIB)?;
    short.push(rate(GIB)?);
    report.add(Line::beside("P6a 16 GiB", "MB/s", short.median(), long, Target::AtLeast(0.9)));
    Ok(())
}

/// P6, second half: one-byte writes, with a deadline in the middle and a stop.
pub(super) fn bytes(report: &mut Report) -> Result<(), Trouble> {
    const DEADLINE_MS: u64 = 20_000;
    let daemon = Daemon::plain()?;
    let mut owner = daemon.owner()?;
    let own = own()?;
    let argv = [own.as_str(), WORD, "bytes", "200000000"];
    let mut late = Samples::default();
    let start = now();
    let id = owner.background(&argv, &json!({ "timeout_ms": DEADLINE_MS }))?;
    owner.wait(&id)?;
    late.push(start.elapsed().as_secs_f64() * 1e3 - real(DEADLINE_MS));
    let id = owner.background(&argv, &json!({}))?;
    crate::clock::pause(Duration::from_secs(5));
    let (micros, ()) = timed(|| owner.kill(&id))?;
    report.add(Line::alone("P6b deadline late", "ms", late.median(), Target::AtMost(200.0)));
    report.add(Line::alone("P6b stop", "ms", micros / 1e3, Target::AtMost(200.0)));
    let id = owner.background(&argv, &json!({}))?;
    let (micros, end) = timed(|| owner.wait(&id))?;
    let rate = real(number(&end, "total_bytes")?) / micros;
    report.add(Line::alone("P6b 200 M bytes", "MB/s", rate, Target::Told));
    Ok(())
}

/// Producers straight into files that grow.
fn to_files(daemon: &Daemon, words: &[&str], streams: u64) -> Result<(), Trouble> {
    let mut running = Vec::new();
    for stream in 0..streams {
        running.push(actor(words, Stdio::null(), file(daemon, stream)?.into())?);
    }
    running.iter_mut().try_for_each(finish)?;
    remove(daemon, streams)
}

/// Producers through `cat` into files; the CPU seconds of the cats.
fn through_cat(daemon: &Daemon, words: &[&str], streams: u64) -> Result<f64, Trouble> {
    let (mut running, mut cats) = (Vec::new(), Vec::new());
    for stream in 0..streams {
        let (read, write) = std::io::pipe().tried("make a pipe")?;
        let file = file(daemon, stream)?;
        cats.push(spawn::child("/bin/cat".as_ref(), &[], read.into(), file.into())?);
        running.push(actor(words, Stdio::null(), write.into())?);
    }
    running.iter_mut().try_for_each(finish)?;
    let mut cpu = 0.0;
    for cat in &mut cats {
        cpu += cpu_until_end(cat)?;
    }
    remove(daemon, streams)?;
    Ok(cpu)
}

/// Producers under the daemon, up to their ends.
fn through_procd(owner: &mut Wire, words: &[&str], streams: u64) -> Result<(), Trouble> {
    let own = own()?;
    let argv = [&[own.as_str(), WORD], words].concat();
    let start = |_| owner.background(&argv, &json!({}));
    let ids = (0..streams).map(start).collect::<Result<Vec<_>, _>>()?;
    for id in ids {
        let end = owner.wait(&id)?;
        if end.get("exit_code").and_then(Value::as_u64) != Some(0) {
            return Err(Trouble::odd(format!("a producer failed: {end}")));
        }
    }
    Ok(())
}

fn file(daemon: &Daemon, stream: u64) -> Result<File, Trouble> {
    File::create(path(daemon, stream)).tried("make the floor's file")
}

fn path(daemon: &Daemon, stream: u64) -> PathBuf {
    daemon.folder().join(format!("floor.{stream}"))
}

fn remove(daemon: &Daemon, streams: u64) -> Result<(), Trouble> {
    (0..streams).try_for_each(|stream| {
        fs::remove_file(path(daemon, stream)).tried("remove the floor's file")
    })
}

/// This program, to be run as an actor.
pub(super) fn own() -> Result<String, Trouble> {
    let own = std::env::current_exe().tried("find this program")?;
    own.into_os_string().into_string().map_err(|_path| Trouble::odd("a path that is not UTF-8"))
}

/// This program as an actor, started directly.
pub(super) fn actor(words: &[&str], stdin: Stdio, stdout: Stdio) -> Result<Child, Trouble> {
    spawn::child(own()?.as_ref(), &[&[WORD], words].concat(), stdin, stdout)
}

fn finish(child: &mut Child) -> Result<(), Trouble> {
    let status = child.wait().tried("wait for a producer")?;
    if status.success() { Ok(()) } else { Err(Trouble::odd(format!("a producer: {status}"))) }
}

/// CPU seconds of a child that ends by itself, read once it has ended and before it is reaped.
fn cpu_until_end(child: &mut Child) -> Result<f64, Trouble> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).tried("wait")?;
    let cpu = cpu_seconds(child.id())?;
    child.wait().tried("reap a child")?;
    Ok(cpu)
}

/// CPU seconds that a process has used.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, Trouble> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).tried("read its usage")?;
    // The name in parentheses may hold anything.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(real(ticks) / real(rustix::param::clock_ticks_per_second()))
}
