//! Hostile clients: silent, stalled, loud, lying. Good clients are served beside them, memory and log stay bounded. The long form
//! (`cargo xtask hostile`) has 1,000 of them. Source: spec, protocol; law 10.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use procd_tests::{Daemon, Setup, Tier, rounds, wait};
use serde_json::json;

/// What each does, over and over, until it is told to stop.
type Deed = fn(&Daemon, &AtomicBool);

const DEEDS: &[(&str, Deed)] = &[
    ("nothing", silent),
    ("half frames", half),
    ("lengths of 2 GB", lying),
    ("deep JSON", deep),
    ("floods of errors", errors),
    ("ids reused", ids),
    ("no reading", unread),
];

fn connect(daemon: &Daemon) -> Option<UnixStream> {
    let stream = UnixStream::connect(daemon.socket()).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
    Some(stream)
}

fn frame(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

fn hello() -> Vec<u8> {
    frame(&json!({"id": 1, "method": "hello", "params": {"client": {"name": "h", "version": "1"}, "versions": [1]}}).to_string())
}

fn drink(stream: &mut UnixStream) {
    let mut buffer = [0; 4096];
    let _nothing_or_closed = stream.read(&mut buffer);
}

fn silent(daemon: &Daemon, stop: &AtomicBool) {
    let stream = connect(daemon);
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    drop(stream);
}

/// Says `bytes` on a connection of its own, again and again.
fn say(daemon: &Daemon, stop: &AtomicBool, bytes: &[u8]) {
    while !stop.load(Ordering::Relaxed) {
        if let Some(mut stream) = connect(daemon) {
            let _closed = stream.write_all(bytes);
            drink(&mut stream);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn half(daemon: &Daemon, stop: &AtomicBool) {
    let text = hello();
    let whole = [hello(), frame("{\"id\":2,\"method\":\"daemon/status\"}")].concat();
    say(daemon, stop, text.get(..text.len() / 2).unwrap_or_default());
    say(daemon, stop, whole.get(..whole.len() - 3).unwrap_or_default());
}

fn lying(daemon: &Daemon, stop: &AtomicBool) {
    say(daemon, stop, &[&hello()[..], &0x7fff_ffff_u32.to_be_bytes(), b"{"].concat());
}

fn deep(daemon: &Daemon, stop: &AtomicBool) {
    let nested = format!(
        "{{\"id\":2,\"method\":\"x\",\"params\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    say(daemon, stop, &[hello(), frame(&nested)].concat());
}

fn errors(daemon: &Daemon, stop: &AtomicBool) {
    let flood = [hello(), frame("{not json").repeat(200)].concat();
    say(daemon, stop, &flood);
}

fn ids(daemon: &Daemon, stop: &AtomicBool) {
    let one = frame("{\"id\":7,\"method\":\"daemon/status\",\"params\":{}}");
    say(daemon, stop, &[hello(), one.repeat(300)].concat());
}

/// Asks for much and reads nothing of it.
fn unread(daemon: &Daemon, stop: &AtomicBool) {
    let Some(mut stream) = connect(daemon) else { return };
    let mut asked = hello();
    for id in 2..200 {
        asked.extend(frame(&format!(
            "{{\"id\":{id},\"method\":\"daemon/status\",\"params\":{{}}}}"
        )));
    }
    let _full = stream.write_all(&asked);
    silent(daemon, stop);
}

/// Kibibytes that the daemon has in memory.
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[test]
fn hostile_clients_cost_the_good_ones_nothing_but_time() {
    let count = rounds::or(42);
    let turns = if rounds::or(0) > 0 { 300 } else { 60 };
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    for _ in 0..50 {
        owner.wire.ok("process/list", json!({}));
    }
    let before = resident_kib(&daemon);
    let log_before = daemon.log().len();
    let stop = AtomicBool::new(false);
    let mut took = Vec::new();
    let mut most = 0;
    std::thread::scope(|scope| {
        for (_, deed) in DEEDS.iter().cycle().take(count) {
            scope.spawn(|| deed(&daemon, &stop));
        }
        for turn in 0..turns {
            let start = wait::now();
            owner.wire.ok("process/list", json!({}));
            if turn % 10 == 0 {
                let entry = owner.start(&["true"], json!({}));
                assert_eq!(entry["exit_code"], 0, "{entry}");
            }
            took.push(start.elapsed());
            most = most.max(resident_kib(&daemon));
        }
        stop.store(true, Ordering::Relaxed);
    });
    took.sort();
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
    let log = daemon.log().len() - log_before;
    println!(
        "{count} hostile clients: a good one's list p50 {:?}, p99 {:?}; memory {before} -> {most} KiB; log {log} bytes",
        at(50),
        at(99)
    );
    // The room of requests and that of replies, 256 MiB each, and 32 MiB beside.
    assert!(most < before + 544 * 1024, "memory went from {before} to {most} KiB");
    assert!(log < 256 * 1024, "the log grew by {log} bytes");
    // A new one is let in as soon as they are gone.
    wait::until_true("a new client", wait::STEP, || {
        procd_tests::Wire::bare(&daemon.socket()).is_ok_and(|mut wire| wire.hello().is_ok())
    });
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
