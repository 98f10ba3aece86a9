//! P7: from a child's write to the waiting client.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::drain::{actor, own};
use crate::actor::WORD;
use crate::clock::{Samples, monotonic_ns, pause, real};
use crate::daemon::Daemon;
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::{Wire, number};

/// Pairs of one measure; the first are not counted.
const PAIRS: usize = 600;
const WARM_PAIRS: usize = 50;
/// Between two ticks: everybody waits again by then.
const REST: Duration = Duration::from_millis(3);
/// Processes that do nothing beside the one that writes.
const IDLE: usize = 5000;

pub(super) fn wake(report: &mut Report) -> Result<(), Trouble> {
    let limits = "running_loop_max = 6000\nrunning_session_max = 6000\nrunning_daemon_max = 6000\n\
        memory_process_bytes = 4096\nspool_process_bytes = 65536\nsessions_max = 100";
    let daemon = Daemon::with_limits(report, limits)?;
    let mut owner = daemon.owner()?;
    pairs(report, &daemon, &mut owner, "P7")?;
    for _ in 0..IDLE {
        owner.background(&["/bin/sleep", "1000000"], &json!({}))?;
    }
    pairs(report, &daemon, &mut owner, "P7 5,000 idle")
}

/// Ticks by turns through the relay and through the daemon.
pub(super) fn pairs(
    report: &mut Report,
    daemon: &Daemon,
    owner: &mut Wire,
    id: &str,
) -> Result<(), Trouble> {
    let mut relay = Relay::start(daemon.folder())?;
    let mut ours = Ours::start(daemon.folder(), owner)?;
    let (mut floors, mut wakes) = (Samples::default(), Samples::default());
    for pair in 0..PAIRS {
        let floor = relay.tick()?;
        let wake = ours.tick(owner)?;
        if pair >= WARM_PAIRS {
            floors.push(floor);
            wakes.push(wake);
        }
    }
    ours.end(owner)?;
    let (floor, ours) = (floors.median(), wakes.median());
    report.add(Line::beside(&format!("{id} p50"), "us", floor, ours, Target::AtMost(1.5)));
    let (floor, ours) = (floors.p99(), wakes.p99());
    report.add(Line::beside(&format!("{id} p99"), "us", floor, ours, Target::AtMost(3.0)));
    Ok(())
}

/// Microseconds from the time that a line says to when it was read.
fn since(line: &str, now: i64) -> Result<f64, Trouble> {
    let then = line.trim_end().parse::<i64>();
    let then = then.map_err(|error| Trouble::odd(format!("`{line}`: {error}")))?;
    Ok(real(u64::try_from(now - then).unwrap_or_default()) / 1e3)
}

/// A pipe with a name, by which a child is told to write.
pub(super) fn fifo(path: &Path) -> Result<(), Trouble> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).tried("make a FIFO")
}

/// Both ends kept here, so that opening it never waits.
pub(super) fn orders(path: &Path) -> Result<File, Trouble> {
    File::options().read(true).write(true).open(path).tried("open a FIFO")
}

pub(super) fn name(path: &Path) -> Result<&str, Trouble> {
    path.to_str().ok_or_else(|| Trouble::odd("a path that is not UTF-8"))
}

/// The floor: child -> pipe -> epoll relay -> socket.
struct Relay {
    orders: File,
    replies: UnixStream,
    children: [Child; 2],
    path: std::path::PathBuf,
}

impl Relay {
    fn start(folder: &Path) -> Result<Self, Trouble> {
        let path = folder.join("floor.ticks");
        fifo(&path)?;
        let orders = orders(&path)?;
        let (read, write) = std::io::pipe().tried("make a pipe")?;
        let (replies, theirs) = UnixStream::pair().tried("make a socket pair")?;
        let theirs = std::os::fd::OwnedFd::from(theirs);
        let relay = actor(&["relay"], read.into(), theirs.into())?;
        let child = actor(&["ticks", name(&path)?], Stdio::null(), write.into())?;
        Ok(Self { orders, replies, children: [child, relay], path })
    }

    fn tick(&mut self) -> Result<f64, Trouble> {
        pause(REST);
        self.orders.write_all(b".").tried("order a tick")?;
        let mut line = [0; 64];
        let count = self.replies.read(&mut line).tried("read from the relay")?;
        let now = monotonic_ns();
        since(&String::from_utf8_lossy(line.get(..count).unwrap_or_default()), now)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_file(&self.path));
    }
}

/// The same child under the daemon, with a client that waits.
struct Ours {
    orders: File,
    id: String,
    cursor: u64,
    path: std::path::PathBuf,
}

impl Ours {
    fn start(folder: &Path, owner: &mut Wire) -> Result<Self, Trouble> {
        let path = folder.join("ticks");
        fifo(&path)?;
        let orders = orders(&path)?;
        let id = owner.background(&[&own()?, WORD, "ticks", name(&path)?], &json!({}))?;
        Ok(Self { orders, id, cursor: 0, path })
    }

    fn tick(&mut self, owner: &mut Wire) -> Result<f64, Trouble> {
        let params = json!({ "process_id": self.id, "cursor": self.cursor, "wait": "any" });
        owner.send("process/output", &params)?;
        pause(REST);
        self.orders.write_all(b".").tried("order a tick")?;
        let (now, reply) = owner.timed_reply("process/output")?;
        let page = reply.pointer("/results/0").unwrap_or(&Value::Null);
        let line = page.get("output").and_then(Value::as_str).unwrap_or_default();
        let span = since(line, now)?;
        self.cursor = number(page, "next_cursor")?;
        Ok(span)
    }

    fn end(self, owner: &mut Wire) -> Result<(), Trouble> {
        owner.kill(&self.id)?;
        std::fs::remove_file(&self.path).tried("remove a FIFO")
    }
}
