//! Hostile clients: silent, stalled, loud, lying. Good clients are served beside them, memory and log stay bounded. The long form
//! (`cargo xtask hostile`) has 1,000 of them, against the daemon as it is released. What they do is in `tests/src/bin/hostile.rs`.
//! Source: spec, protocol; law 10.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use procd_tests::{Daemon, Owner, Setup, Tier, binaries, rounds, wait};
use serde_json::json;

/// Of them in the gate, and what a good client does meanwhile.
const SAMPLE: usize = 42;
const SAMPLE_TURNS: usize = 60;
/// The same in the long form, which measures.
const LONG_TURNS: usize = 1000;
/// Every so many turns a process is started, another one stopped.
const PROCESS_EVERY: usize = 4;
/// What the 99th of a hundred calls may take in the long form: P15.
const P99_MAX: Duration = Duration::from_millis(50);

/// Kibibytes that the daemon has in memory.
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Whether a new client is let in.
fn lets_in(daemon: &Daemon) -> bool {
    procd_tests::Wire::bare(&daemon.socket()).is_ok_and(|mut wire| wire.hello().is_ok())
}

/// How long the calls of a good client took, by what they were.
#[derive(Default)]
struct Took(BTreeMap<&'static str, Vec<Duration>>);

impl Took {
    fn time<T>(&mut self, what: &'static str, call: impl FnOnce() -> T) -> T {
        let start = wait::now();
        let value = call();
        self.0.entry(what).or_default().push(start.elapsed());
        value
    }

    /// Each kind of call with its median and its 99th of a hundred.
    fn told(&mut self) -> Vec<(&'static str, Duration, Duration)> {
        let each = self.0.iter_mut().map(|(what, took)| {
            took.sort();
            let at =
                |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
            (*what, at(50), at(99))
        });
        each.collect()
    }
}

/// What a good client does all the time.
fn turn(owner: &mut Owner, number: usize, took: &mut Took) {
    took.time("list", || owner.wire.ok("process/list", json!({"limit": 10})));
    if number.is_multiple_of(PROCESS_EVERY) {
        let entry = took.time("start", || owner.start(&["true"], json!({})));
        assert_eq!(entry["exit_code"], 0, "{entry}");
        let sleeps = owner.background(&["sleep", "600"]);
        let params = json!({"process_id": sleeps, "mode": "kill"});
        let stopped = took.time("stop", || owner.wire.ok("process/stop", params));
        assert_eq!(stopped["state"], "killed", "{stopped}");
    }
}

#[test]
fn hostile_clients_cost_the_good_ones_nothing_but_time() {
    let is_long = rounds::or(0) > 0;
    let (count, turns) = (rounds::or(SAMPLE), if is_long { LONG_TURNS } else { SAMPLE_TURNS });
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let mut calm = Took::default();
    (0..turns).for_each(|number| turn(&mut owner, number, &mut calm));
    let before = resident_kib(&daemon);
    let log_before = daemon.log().len();
    let mut hostile = binaries::command(binaries::path("hostile"));
    hostile.arg(daemon.socket()).arg(count.to_string());
    let mut hostile = hostile.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(hostile.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let (mut took, mut most) = (Took::default(), 0);
    for number in 0..turns {
        turn(&mut owner, number, &mut took);
        most = most.max(resident_kib(&daemon));
    }
    let start = wait::now();
    let came = (lets_in(&daemon), start.elapsed());
    drop(hostile.stdin.take());
    let tally = said.next().unwrap().unwrap();
    assert!(hostile.wait().unwrap().success());
    let log = daemon.log().len() - log_before;
    println!("{count} hostile clients: {tally}; a new one was let in: {came:?}");
    println!("memory {before} -> {most} KiB; log {log} bytes; median and p99 of a good one");
    let (calm, told) = (calm.told(), took.told());
    println!("without them: {calm:?}\nbeside them:  {told:?}");
    // The room of requests and that of replies, 256 MiB each, and 32 MiB beside.
    assert!(most < before + 544 * 1024, "memory went from {before} to {most} KiB");
    assert!(log < 256 * 1024, "the log grew by {log} bytes");
    assert!(!is_long || told.iter().all(|(_, _, p99)| *p99 <= P99_MAX), "above {P99_MAX:?}");
    // A new one is let in as soon as they are gone.
    wait::until_true("a new client", wait::STEP, || lets_in(&daemon));
}

/// C86. The daemon's own log says of a flood that there was one, and how large, not each drop of it.
#[test]
fn a_flood_of_refusals_is_logged_as_a_few_lines_and_a_number() {
    let daemon = Setup::new(Tier::Shim).start();
    for _ in 0..300 {
        let mut wire = procd_tests::Wire::bare(&daemon.socket()).unwrap();
        wire.hello().unwrap();
        for _ in 0..101 {
            wire.frame(b"no json");
        }
        assert!(wire.is_closed());
    }
    let lines = daemon.log().matches("too many protocol errors").count();
    // So many in each ten seconds.
    assert!((1..=200).contains(&lines), "{lines} lines of 300 refusals");
}
