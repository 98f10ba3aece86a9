//! One slow client is its own trouble: the process ends in normal time, the others are served.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use procd_tests::{
    Daemon, Owner, Setup, Tier, binaries,
    owner::{handle, number},
    run::{self, LONG, Running, rounds},
    wait,
};
use rustix::process::Signal;
use serde_json::json;

/// Runs the writer to its end; how long it took.
fn timed(owner: &mut Owner, bytes: u64) -> Duration {
    let begun = wait::now();
    let more = json!({"limit_bytes": 1, "spool_bytes": 8 << 20});
    let entry = owner.start(&[&binaries::probe(), "write", &bytes.to_string()], more);
    assert_eq!(number(&entry, "total_bytes"), bytes, "{entry}");
    begun.elapsed()
}

/// A client that asks for all of an output, page by page, and reads nothing of it.
fn deaf(daemon: &Daemon, owner: &Owner, process: &str) -> Owner {
    let mut client = owner.attach(daemon.connect());
    for cursor in 0..40 {
        let ask = json!({"process_id": process, "cursor": cursor, "encoding": "base64", "limit_bytes": 1 << 20});
        client.wire.send("process/output", ask);
    }
    client
}

/// Ten of `procctl logs --follow`, stopped by a signal once they are connected.
fn stopped_followers(daemon: &Daemon, process: &str) -> Vec<Running> {
    let mut operator = daemon.operator();
    let mut connections = || number(&operator.ok("daemon/status", json!({})), "connections");
    let before = connections();
    let follow = || run::start(run::procctl(daemon, &["logs", "--follow", process]));
    let followers: Vec<_> = (0..10).map(|_| follow()).collect();
    wait::until_true("they follow", LONG, || connections() >= before + 10);
    followers.iter().for_each(|follower| follower.signal(Signal::STOP));
    followers
}

/// C74, C76, C77: a reader that never reads, ten stopped followers and one that asked for events
/// only, beside a gibibyte in the long form.
#[test]
fn readers_that_do_not_read_hold_up_neither_the_process_nor_others() {
    let bytes = if rounds(1) > 1 { 1 << 30 } else { 256 << 20 };
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    owner.wire.patience = LONG;
    let alone = timed(&mut owner, bytes);
    let loud = owner.background(&["yes", "something to read"]);
    wait::until_true("there is something to read", wait::STEP, || {
        number(&owner.output(&loud, json!({"limit_bytes": 1})), "total_bytes") > 4 << 20
    });
    let deaf_one = deaf(&daemon, &owner, &loud);
    let mut stopped: Vec<Owner> = (0..10).map(|_| owner.attach(daemon.connect())).collect();
    for client in &mut stopped {
        for _ in 0..4 {
            client
                .wire
                .send("process/output", json!({"process_id": loud, "cursor": -1, "wait": "any"}));
        }
    }
    let mut followers = stopped_followers(&daemon, &loud);
    let _nothing_asked = daemon.operator();
    let mut events_only = owner.attach(daemon.connect());
    events_only.wire.ok("events/subscribe", json!({}));
    let mut other = owner.attach(daemon.connect());
    let writer = std::thread::spawn(move || {
        let took = timed(&mut owner, bytes);
        (owner, took)
    });
    let mut slowest = Duration::ZERO;
    while !writer.is_finished() {
        let begun = wait::now();
        other.list();
        let short = handle(&other.start(&["true"], json!({})));
        other.stop(&short, "kill", 0);
        slowest = slowest.max(begun.elapsed());
    }
    let (mut owner, beside) = writer.join().unwrap();
    assert!(
        beside < alone * 8 + Duration::from_secs(60),
        "{beside:?} beside slow readers, {alone:?} alone"
    );
    println!("{bytes} bytes: {alone:?} alone, {beside:?} beside; other calls {slowest:?} at most");
    assert!(slowest < Duration::from_secs(9), "others waited {slowest:?}");
    // Its queue stays full: its connection is closed, and nothing else.
    wait::until_true("the deaf client is dropped", wait::STEP, || {
        daemon.log().contains("did not read its replies")
    });
    assert_eq!(owner.output(&loud, json!({"limit_bytes": 1}))["state"], "running");
    owner.stop(&loud, "kill", 0);
    drop((deaf_one, events_only));
    for follower in &mut followers {
        follower.child.kill().unwrap();
        follower.child.wait().unwrap();
    }
}

/// Sends all of it, again and again where there is no room.
fn push(owner: &mut Owner, process: &str, bytes: &[u8]) {
    let data = BASE64_STANDARD.encode(bytes);
    let params = json!({"process_id": process, "data_base64": data, "limit_bytes": 1});
    wait::until("room for a piece", LONG, || {
        match owner.wire.call("process/input", params.clone()) {
            Ok(reply) => {
                assert_eq!(number(&reply, "accepted_bytes"), bytes.len() as u64);
                Some(())
            }
            Err(error) => {
                assert_eq!(error["code"], "input_backpressure", "{error}");
                None
            }
        }
    });
}

/// C97: a filter that writes nothing before its input ends.
#[test]
fn fifty_megabytes_pass_through_sort_and_end_with_eof() {
    const LINES: u64 = 5_000_000;
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    owner.wire.patience = LONG;
    let line = "LC_ALL=C sort -S 80M | { read first; echo $first; tail -n 1; }; echo sorted";
    let process = owner.background(&["sh", "-c", line]);
    // Numbers of 9 digits and a line end, each once, in an order of their own.
    let mut piece = Vec::with_capacity(1 << 20);
    for number in 0..LINES {
        let shuffled = number * 3_999_971 % LINES;
        piece.extend_from_slice(format!("{shuffled:09}\n").as_bytes());
        if piece.len() + 10 > 1_000_000 || number + 1 == LINES {
            push(&mut owner, &process, &piece);
            piece.clear();
        }
    }
    owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
    let entry = owner.output(&process, json!({"wait": "exit"}));
    assert_eq!(
        (entry["exit_code"].clone(), entry["output"].clone()),
        (json!(0), json!("000000000\n004999999\nsorted\n")),
        "{entry}"
    );
}

/// C96: five clients push to a process that does not read yet. Each call is answered at once, whole or not at all, and what
/// is sent again arrives once.
#[test]
fn clients_that_retry_against_a_full_queue_duplicate_nothing() {
    const LINE: usize = 50_000;
    const EACH: usize = 60;
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let more = json!({"background": true, "stdin": "pipe"});
    let line = format!("while ! [ -e go ]; do sleep 0.05; done; exec {} echo", binaries::probe());
    let process = handle(&owner.start(&["sh", "-c", &line], more));
    let refused = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..5)
        .map(|client| {
            let (mut one, process, refused) =
                (owner.attach(daemon.connect()), process.clone(), refused.clone());
            std::thread::spawn(move || {
                for count in 0..EACH {
                    let mut text = format!("{client}-{count:03}-");
                    text.push_str(&"x".repeat(LINE - text.len() - 1));
                    text.push('\n');
                    let params = json!({"process_id": process, "data": text, "limit_bytes": 1});
                    wait::until("room for a line", LONG, || {
                        let begun = wait::now();
                        let answer = one.wire.call("process/input", params.clone());
                        assert!(
                            begun.elapsed() < wait::STEP / 2,
                            "an answer took {:?}",
                            begun.elapsed()
                        );
                        let Err(error) = answer else { return Some(()) };
                        assert_eq!(error["code"], "input_backpressure", "{error}");
                        let details = &error["details"];
                        assert_eq!(
                            number(details, "pending_bytes") + number(details, "free_bytes"),
                            1 << 20,
                            "{error}"
                        );
                        refused.fetch_add(1, Ordering::Relaxed);
                        None
                    });
                }
            })
        })
        .collect();
    wait::until_true("the queue is full", wait::STEP, || refused.load(Ordering::Relaxed) >= 10);
    std::fs::write(daemon.cwd().join("go"), "").unwrap();
    for client in clients {
        client.join().unwrap();
    }
    owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
    assert_eq!(owner.ended(&process)["exit_code"], 0);
    let text = String::from_utf8(owner.bytes(&process, 0)).unwrap();
    let mut next = [0; 5];
    for line in text.lines() {
        assert_eq!(line.len(), LINE - 1, "a line in pieces: {}", &line[..20]);
        let (client, count) =
            (line[..1].parse::<usize>().unwrap(), line[2..5].parse::<usize>().unwrap());
        assert_eq!(count, next[client], "once each, in the order of its client");
        next[client] += 1;
    }
    assert_eq!(next, [EACH; 5]);
}
