//! P1 to P3: starts and turnarounds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::clock::{Samples, now, pause, real, timed};
use crate::daemon::{Daemon, Tier};
use crate::report::{Line, Report, Target};
use crate::spawn::{self, Floor};
use crate::trouble::{Tried, Trouble};
use crate::wire::{Wire, text};

/// The program that is started.
const PROGRAM: &str = "/bin/true";
/// Pairs of one measure; the first are not counted.
const PAIRS: usize = 600;
const WARM_PAIRS: usize = 50;
/// Bytes that a start adds to the commit log, about.
const RECORD_BYTES: usize = 1024;
/// Clients at once.
const CLIENTS: usize = 16;
/// One round of throughput.
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 4;

/// P1. The floor: a program executed while another thread appends a record and syncs it; both
/// have to be done.
pub(super) fn start(report: &mut Report) -> Result<(), Trouble> {
    let daemon = Daemon::plain()?;
    let mut owner = daemon.owner()?;
    let floor = Floor::new(PROGRAM)?;
    let mut appender = Appender::new(&daemon)?;
    let (mut floors, mut ours) = (Samples::default(), Samples::default());
    for pair in 0..PAIRS {
        let (micros, pid) = timed(|| {
            appender.begin()?;
            let pid = floor.start()?;
            appender.finish()?;
            Ok::<_, Trouble>(pid)
        })?;
        spawn::wait(pid)?;
        let (our_micros, id) = timed(|| owner.background(&[PROGRAM], &json!({})))?;
        owner.wait(&id)?;
        if pair >= WARM_PAIRS {
            floors.push(micros);
            ours.push(our_micros);
        }
    }
    let line = Line::beside("P1", "us", floors.median(), ours.median(), Target::AtMost(1.5));
    report.add(line.p99(ours.p99()));
    Ok(())
}

/// A thread that appends a record and syncs it on request.
struct Appender {
    orders: SyncSender<()>,
    done: Receiver<Result<(), Trouble>>,
}

impl Appender {
    fn new(daemon: &Daemon) -> Result<Self, Trouble> {
        let file = File::create(daemon.folder().join("floor.log")).tried("make the floor's log")?;
        let (orders, wanted) = mpsc::sync_channel(1);
        let (tell, done) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let record = [b'x'; RECORD_BYTES];
            let mut at = 0;
            while wanted.recv().is_ok() {
                let result = file.write_all_at(&record, at).and_then(|()| file.sync_data());
                at += real_len(&record);
                if tell.send(result.tried("append to the floor's log")).is_err() {
                    return;
                }
            }
        });
        Ok(Self { orders, done })
    }

    fn begin(&self) -> Result<(), Trouble> {
        self.orders.send(()).map_err(|error| Trouble::odd(error.to_string()))
    }

    fn finish(&mut self) -> Result<(), Trouble> {
        self.done.recv().map_err(|error| Trouble::odd(error.to_string()))?
    }
}

fn real_len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// P2, in both tiers.
pub(super) fn turnaround(report: &mut Report) -> Result<(), Trouble> {
    let best = Tier::best()?;
    if best == Tier::Cgroup {
        turnaround_in(report, Tier::Cgroup, "P2 tier 1", 2.0)?;
    } else {
        report.remark("tier 1 is not to be had here");
    }
    turnaround_in(report, Tier::Shim, "P2 tier 2", 2.3)
}

fn turnaround_in(report: &mut Report, tier: Tier, id: &str, bound: f64) -> Result<(), Trouble> {
    let daemon = Daemon::start(tier, "")?;
    let mut owner = daemon.owner()?;
    let floor = Floor::new(PROGRAM)?;
    let (mut floors, mut ours) = (Samples::default(), Samples::default());
    for pair in 0..PAIRS {
        let (micros, ()) = timed(|| floor.turn())?;
        let (our_micros, ()) = timed(|| turn(&mut owner))?;
        if pair >= WARM_PAIRS {
            floors.push(micros);
            ours.push(our_micros);
        }
    }
    let line = Line::beside(id, "us", floors.median(), ours.median(), Target::AtMost(bound));
    report.add(line.p99(ours.p99()));
    Ok(())
}

/// One foreground start: the reply is terminal and durable.
fn turn(owner: &mut Wire) -> Result<(), Trouble> {
    let reply = owner.call("process/start", &json!({ "argv": [PROGRAM] }))?;
    match text(&reply, "state")?.as_str() {
        "exited" if reply.get("durable").is_none() => Ok(()),
        _ => Err(Trouble::odd(format!("not a durable end: {reply}"))),
    }
}

/// P3. Floor and both cases in turn, several rounds; the medians of the rounds.
pub(super) fn throughput(report: &mut Report) -> Result<(), Trouble> {
    let limits = "running_loop_max = 64\nrunning_session_max = 64\nmemory_process_bytes = 65536\n\
        spool_process_bytes = 1048576";
    let daemon = Daemon::with_limits(report, limits)?;
    let mut one = daemon.owners(CLIENTS)?;
    let many = (0..CLIENTS).map(|_| daemon.owner());
    let mut many = many.collect::<Result<Vec<_>, _>>()?;
    let floor = Floor::new(PROGRAM)?;
    // As many as there are cores: more would only be in each other's way.
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut floors = vec![&floor; cores];
    let mut figures = [Samples::default(), Samples::default(), Samples::default()];
    for _ in 0..ROUNDS {
        let rates = [
            rate(&mut floors, |floor| floor.turn())?,
            rate(&mut one, turn)?,
            rate(&mut many, turn)?,
        ];
        figures.iter_mut().zip(rates).for_each(|(figure, rate)| figure.push(rate));
    }
    let [floors, one, many] = figures.map(|figure| figure.median());
    report.add(Line::beside("P3 1 session", "1/s", floors, one, Target::AtLeast(0.5)));
    report.add(Line::beside("P3 16 sessions", "1/s", floors, many, Target::AtLeast(0.5)));
    Ok(())
}

/// How often a second all clients together get `work` done.
fn rate<C: Send>(
    clients: &mut [C],
    work: impl Fn(&mut C) -> Result<(), Trouble> + Sync,
) -> Result<f64, Trouble> {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = now();
    thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        work(client)?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        pause(ROUND);
        is_over.store(true, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_panic| Err(Trouble::odd("a client broke")))
        };
        threads.into_iter().map(join).collect::<Result<(), _>>()
    })?;
    Ok(real(count.load(Ordering::Relaxed)) / start.elapsed().as_secs_f64())
}
