//! Two things at once: exactly one end, the true one, in one record. A sample here; `cargo xtask
//! races` runs each a thousand times and prints how often each outcome came.

use std::{collections::BTreeMap, time::Duration};

use procd_tests::{Owner, Setup, Tier, journal, namespace, owner::handle, rounds, wait};
use serde_json::{Value, json};

/// Each possible outcome has to come so often in a full run.
const EACH_MIN: usize = 20;
const FULL: usize = 1000;

#[derive(Default)]
struct Counts {
    outcomes: BTreeMap<String, usize>,
    processes: Vec<String>,
}

impl Counts {
    fn add_of(&mut self, process: String, outcome: &Value) {
        self.add(outcome);
        self.processes.push(process);
    }

    fn add(&mut self, outcome: &Value) {
        *self.outcomes.entry(outcome.as_str().unwrap_or("?").to_owned()).or_default() += 1;
    }

    fn check(&self, race: &str, rounds: usize, wanted: &[&str]) {
        println!("{race}: {rounds} times: {:?}", self.outcomes);
        assert!(
            self.outcomes.keys().all(|outcome| wanted.contains(&outcome.as_str())),
            "{race}: {:?}",
            self.outcomes
        );
        if rounds >= FULL {
            let seen = |outcome: &&str| self.outcomes.get(*outcome).copied().unwrap_or_default();
            assert!(
                wanted.iter().all(|outcome| seen(outcome) >= EACH_MIN),
                "{race}: {:?}",
                self.outcomes
            );
        }
    }
}

/// A pause between 0 and `max_ms` that is another one in each round.
fn pause(round: usize, max_ms: u64) {
    let micros = (round as u64).wrapping_mul(7919) % (max_ms * 1000).max(1);
    std::thread::park_timeout(Duration::from_micros(micros));
}

/// One record, one end, and the same one ever after.
fn one_end(owner: &mut Owner, process: &str) -> Value {
    let ended = owner.ended(process);
    let record = owner.record(process);
    for field in ["state", "exit_code", "leader"] {
        assert_eq!(record[field], ended[field], "{record}");
    }
    let (leader, state) = (&record["leader"], &record["state"]);
    match state.as_str().unwrap() {
        "exited" => assert!(record["exit_code"].is_u64(), "{record}"),
        "killed" => assert_eq!(leader["signal"], 9, "{record}"),
        _ => assert!(record["exit_code"].is_null(), "{record}"),
    }
    record
}

fn many(owner: &mut Owner, seconds: &str, more: Value) -> String {
    let mut params = json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536});
    procd_tests::owner::merge(&mut params, more);
    handle(&owner.start(&["sleep", seconds], params))
}

fn race(
    tier: Tier,
    module: &str,
    name: &str,
    run: impl Fn(&mut Owner, usize) -> Counts,
    wanted: &[&str],
) {
    let path = if tier == Tier::Cgroup { "cgroup" } else { "shim" };
    if namespace::has_run_inside(&format!("{module}::{name}"), path) || !crate::is_here(tier) {
        return;
    }
    let daemon = Setup::new(tier).limit("retained_session_max = 5000").start();
    let mut owner = daemon.owner();
    let rounds = rounds::or(60);
    let began = wait::now();
    let counts = run(&mut owner, rounds);
    journal::assert_one_end_each(&mut owner, daemon.connect(), &counts.processes);
    println!("{tier:?} {name}: {:?}", began.elapsed());
    counts.check(name, rounds, wanted);
}

fn stop_against_exit(owner: &mut Owner, rounds: usize) -> Counts {
    let mut counts = Counts::default();
    for round in 0..rounds {
        let process = many(owner, "0.01", json!({}));
        pause(round, 20);
        let result = owner.stop(&process, "terminate", 20_000);
        let record = one_end(owner, &process);
        assert_eq!(record["state"], result["state"], "{result}");
        counts.add_of(process, &record["state"]);
    }
    counts
}

fn deadline_against_exit(owner: &mut Owner, rounds: usize) -> Counts {
    let mut counts = Counts::default();
    for round in 0..rounds {
        let process = many(owner, "0.01", json!({"timeout_ms": 4 + round % 14}));
        let record = one_end(owner, &process);
        counts.add_of(process, &record["state"]);
    }
    counts
}

fn two_stops(owner: &mut Owner, rounds: usize) -> Counts {
    let mut counts = Counts::default();
    for round in 0..rounds {
        let process = many(owner, "600", json!({}));
        let stop = |mode: &str| json!({"process_id": process, "mode": mode, "grace_ms": 20_000});
        // Either may be the first; the stronger one that comes first names the end.
        let order = if round % 4 == 0 { ["kill", "terminate"] } else { ["terminate", "kill"] };
        let first = owner.wire.send("process/stop", stop(order[0]));
        if round % 4 != 0 {
            pause(round, 3);
        }
        let second = owner.wire.send("process/stop", stop(order[1]));
        let replies = [first, second].map(|id| owner.wire.reply(id).unwrap());
        let record = one_end(owner, &process);
        assert!(replies.iter().all(|reply| reply["state"] == record["state"]), "{replies:?}");
        counts.add_of(process, &record["state"]);
    }
    counts
}

/// Opens a session, starts one in it, and closes it while `meanwhile` runs.
fn against_shutdown(tier: Tier, module: &str, name: &str, wanted: &[&str], start_first: bool) {
    let path = if tier == Tier::Cgroup { "cgroup" } else { "shim" };
    if namespace::has_run_inside(&format!("{module}::{name}"), path) || !crate::is_here(tier) {
        return;
    }
    let daemon = Setup::new(tier).limit("sessions_max = 4096").start();
    let rounds = rounds::or(60);
    let mut counts = Counts::default();
    for round in 0..rounds {
        let mut owner = daemon.owner();
        let mut other = owner.attach(daemon.connect());
        if start_first {
            let process = many(&mut owner, "600", json!({}));
            let stop = json!({"process_id": process, "mode": "terminate", "grace_ms": 20_000});
            let close = json!({"scope": "session", "grace_ms": 20_000});
            let (stopping, closing) = if round % 2 == 0 {
                let stopping = owner.wire.send("process/stop", stop);
                pause(round, 2);
                (stopping, other.wire.send("session/close", close))
            } else {
                let closing = other.wire.send("session/close", close);
                pause(round, 2);
                (owner.wire.send("process/stop", stop), closing)
            };
            let result = owner.wire.reply(stopping).unwrap();
            other.wire.reply(closing).unwrap();
            assert_eq!(result["state"], "terminated", "{result}");
            counts.add(&one_end(&mut owner, &process)["reason"]);
            journal::assert_one_end_each(&mut owner, daemon.connect(), &[process]);
        } else {
            let params = owner.start_params(&["sleep", "600"], json!({"background": true}));
            let (starting, closing);
            if round % 2 == 0 {
                starting = owner.wire.send("process/start", params);
                pause(round, 4);
                closing = other.wire.send("session/close", json!({"scope": "session"}));
            } else {
                closing = other.wire.send("session/close", json!({"scope": "session"}));
                starting = owner.wire.send("process/start", params);
            }
            let started = owner.wire.reply(starting);
            other.wire.reply(closing).unwrap();
            match started {
                Err(error) => counts.add(&error["code"]),
                Ok(entry) => {
                    let process = handle(&entry);
                    let record = one_end(&mut owner, &process);
                    assert_eq!(record["reason"], "runner-shutdown", "{record}");
                    counts.add(&record["state"]);
                    journal::assert_one_end_each(&mut owner, daemon.connect(), &[process]);
                }
            }
        }
    }
    counts.check(name, rounds, wanted);
}

macro_rules! races {
    ($($name:ident: $run:expr, $wanted:expr;)+) => {$(
        mod $name {
            use super::*;
            #[test]
            fn cgroup() {
                race(Tier::Cgroup, "e2e::races", stringify!($name), $run, $wanted);
            }
            #[test]
            fn shim() {
                race(Tier::Shim, "e2e::races", stringify!($name), $run, $wanted);
            }
        }
    )+};
}

races! {
    a_stop_against_a_natural_exit: stop_against_exit, &["exited", "terminated"];
    a_deadline_against_an_exit: deadline_against_exit, &["exited", "timed_out"];
    two_stops_of_different_strength: two_stops, &["terminated", "killed"];
}

macro_rules! shutdowns {
    ($($name:ident: $first:expr, $wanted:expr;)+) => {$(
        mod $name {
            use super::*;
            #[test]
            fn cgroup() {
                against_shutdown(Tier::Cgroup, "e2e::races", stringify!($name), $wanted, $first);
            }
            #[test]
            fn shim() {
                against_shutdown(Tier::Shim, "e2e::races", stringify!($name), $wanted, $first);
            }
        }
    )+};
}

shutdowns! {
    a_stop_against_a_shutdown: true, &["terminated", "runner-shutdown"];
    a_start_against_a_shutdown: false, &["supervisor_shutting_down", "terminated"];
}
