//! How an end is named: the table of the spec row by row, with pipes and with a terminal, in both
//! tiers. Each process has one record and one end in the journal, whatever was asked of it.

use procd_tests::{
    Daemon, Owner, Setup, Tier, journal,
    owner::{handle, merge, number},
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// A grace that nobody waits for.
const LONG_MS: u64 = 120_000;

/// Ends by any polite signal.
const POLITE: &str = "echo up; exec sleep 600";
/// Ends by none.
const DEAF: &str = "trap '' TERM INT HUP; echo up; while :; do sleep 0.05; done";
/// Goes by itself, with a code, when asked.
const OBEDIENT: &str =
    "trap 'exit 5' TERM; trap 'exit 4' INT; echo up; while :; do sleep 0.05; done";
/// Goes politely, beside a child that does not.
const DEAF_CHILD: &str = "(trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done) & wait";

/// What is done once it is up.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Nothing,
    /// A deadline was given with the start.
    Deadline,
    /// Mode and grace.
    Stop(&'static str, u64),
    /// Two at once: the weaker first.
    Both(&'static str, &'static str),
    /// By `process/signal`.
    Signal(&'static str),
    /// Typed into its terminal.
    Key(&'static str),
    /// Asked to end, which it ignores beyond its grace; then a line of input.
    InterruptThenInput,
}

/// What the record says: state and reason, code, what the leader ended by, and whether it was
/// escalated.
struct Told(&'static str, &'static str, Option<u64>, Leader, bool);

#[derive(Clone, Copy, Debug)]
enum Leader {
    Code(u64),
    Signal(u64),
}

struct Row(&'static str, &'static str, Deed, Told);

const fn row(name: &'static str, line: &'static str, deed: Deed, told: Told) -> Row {
    Row(name, line, deed, told)
}

fn rows() -> Vec<Row> {
    own_ends().into_iter().chain(asked_ends()).collect()
}

/// By itself, by somebody's signal, by its deadline.
fn own_ends() -> Vec<Row> {
    use Deed::{Deadline, Key, Nothing, Signal};
    use Leader::{Code, Signal as By};
    let exited = |code, leader| Told("exited", "exited", Some(code), leader, false);
    vec![
        row("by itself", "exit 0", Nothing, exited(0, Code(0))),
        row("by itself, with a code", "exit 3", Nothing, exited(3, Code(3))),
        row("a crash", "kill -SEGV $$", Nothing, exited(139, By(11))),
        row("somebody's kill", "sh -c 'kill -9 $PPID'; sleep 600", Nothing, exited(137, By(9))),
        row("a named signal", POLITE, Signal("SIGTERM"), exited(143, By(15))),
        row("a named kill", DEAF, Signal("SIGKILL"), exited(137, By(9))),
        row("a key", POLITE, Key("ctrl-c"), exited(130, By(2))),
        row("a deadline", POLITE, Deadline, Told("timed_out", "timed-out", None, By(15), false)),
        row(
            "a deadline that is obeyed",
            OBEDIENT,
            Deadline,
            Told("timed_out", "timed-out", None, Code(5), false),
        ),
        row(
            "a deadline that is not",
            DEAF,
            Deadline,
            Told("timed_out", "timed-out", None, By(9), true),
        ),
    ]
}

/// By what was asked of it.
fn asked_ends() -> Vec<Row> {
    use Deed::{Both, InterruptThenInput, Stop};
    use Leader::{Code, Signal as By};
    vec![
        row(
            "an interrupt",
            POLITE,
            Stop("interrupt", LONG_MS),
            Told("interrupted", "interrupted", None, By(2), false),
        ),
        row(
            "an interrupt that is obeyed",
            OBEDIENT,
            Stop("interrupt", LONG_MS),
            Told("interrupted", "interrupted", None, Code(4), false),
        ),
        row(
            "an end long after an interrupt",
            "trap '' INT; echo up; read line; exit 6",
            InterruptThenInput,
            Told("exited", "exited", Some(6), Code(6), false),
        ),
        row(
            "a terminate",
            POLITE,
            Stop("terminate", LONG_MS),
            Told("terminated", "terminated", None, By(15), false),
        ),
        row(
            "a terminate that is obeyed",
            OBEDIENT,
            Stop("terminate", LONG_MS),
            Told("terminated", "terminated", None, Code(5), false),
        ),
        row(
            "a terminate that others need a kill for",
            DEAF_CHILD,
            Stop("terminate", 2000),
            Told("terminated", "terminated", None, By(15), true),
        ),
        row(
            "a terminate that needs a kill",
            DEAF,
            Stop("terminate", 300),
            Told("killed", "killed", None, By(9), true),
        ),
        row("a kill", DEAF, Stop("kill", 0), Told("killed", "killed", None, By(9), false)),
        row(
            "a kill over a terminate",
            DEAF,
            Both("terminate", "kill"),
            Told("killed", "killed", None, By(9), false),
        ),
        row(
            "a terminate over an interrupt",
            "trap '' INT; echo up; exec sleep 600",
            Both("interrupt", "terminate"),
            Told("terminated", "terminated", None, By(15), false),
        ),
    ]
}

fn start(owner: &mut Owner, line: &str, more: Value) -> String {
    let mut params = json!({"background": true});
    merge(&mut params, more);
    handle(&owner.start(&["sh", "-c", line], params))
}

fn until_up(owner: &mut Owner, process: &str) {
    wait::until_true("it is up", LIMIT, || owner.text(process).contains("up"));
}

fn check(owner: &mut Owner, process: &str, name: &str, told: &Told) {
    let ended = owner.ended(process);
    let record = owner.record(process);
    let Told(state, reason, code, leader, escalated) = told;
    assert_eq!(
        (&record["state"], &record["reason"]),
        (&json!(state), &json!(reason)),
        "{name}: {record}"
    );
    assert_eq!(record["exit_code"].as_u64(), *code, "{name}: {record}");
    match leader {
        Leader::Code(code) => {
            assert_eq!(record["leader"], json!({"code": code}), "{name}: {record}")
        }
        Leader::Signal(signal) => {
            assert_eq!(number(&record["leader"], "signal"), *signal, "{name}: {record}");
        }
    }
    assert_eq!(record["escalated"] == true, *escalated, "{name}: {record}");
    for field in ["state", "reason", "exit_code", "leader"] {
        assert_eq!(ended[field], record[field], "{name}: {ended}");
    }
}

fn done(owner: &mut Owner, process: &str, deed: Deed) {
    match deed {
        Deed::Nothing | Deed::Deadline => {}
        Deed::Stop(mode, grace_ms) => {
            until_up(owner, process);
            owner.stop(process, mode, grace_ms);
        }
        Deed::Both(weaker, stronger) => {
            until_up(owner, process);
            let stop =
                |mode: &str| json!({"process_id": process, "mode": mode, "grace_ms": LONG_MS});
            let ids = [weaker, stronger].map(|mode| owner.wire.send("process/stop", stop(mode)));
            let ends = ids.map(|id| owner.wire.reply(id).unwrap());
            assert_eq!(ends[0]["state"], ends[1]["state"], "{ends:?}");
        }
        Deed::Signal(signal) => {
            until_up(owner, process);
            let params = json!({"process_id": process, "signal": signal, "target": "leader"});
            owner.wire.ok("process/signal", params);
        }
        Deed::Key(key) => {
            until_up(owner, process);
            owner.wire.ok("process/input", json!({"process_id": process, "keys": [key]}));
        }
        Deed::InterruptThenInput => {
            until_up(owner, process);
            assert_eq!(owner.stop(process, "interrupt", 50)["state"], "running");
            owner.wire.ok("process/input", json!({"process_id": process, "data": "go\n"}));
        }
    }
}

/// Every row that one process can show.
fn by_itself_or_by_request(tier: Tier, tty: bool) {
    let daemon = Setup::new(tier).limit("grace_ms = 3000").start();
    let mut owner = daemon.owner();
    let rows = rows();
    let of_deadline = |row: &&Row| matches!(row.2, Deed::Deadline);
    // All at once and first: so the time is long enough for a trap to be set on a slow machine.
    let late: Vec<String> = rows
        .iter()
        .filter(of_deadline)
        .map(|Row(_, line, ..)| start(&mut owner, line, json!({"tty": tty, "timeout_ms": 8_000})))
        .collect();
    let mut all = late.clone();
    for Row(name, line, deed, told) in rows.iter().filter(|row| !of_deadline(row)) {
        if matches!(deed, Deed::Key(_)) && !tty {
            continue;
        }
        let process = start(&mut owner, line, json!({"tty": tty}));
        done(&mut owner, &process, *deed);
        check(&mut owner, &process, name, told);
        all.push(process);
    }
    for (process, Row(name, _, _, told)) in late.iter().zip(rows.iter().filter(of_deadline)) {
        check(&mut owner, process, name, told);
    }
    journal::assert_one_end_each(&mut owner, daemon.connect(), &all);
}

/// A kill that comes when the leader has gone by itself explains nothing.
fn a_kill_after_the_leader(tier: Tier, tty: bool) {
    let daemon = Setup::new(tier).start();
    let mut owner = daemon.owner();
    let line = "mkfifo f; (trap '' TERM HUP; echo up >f; while :; do sleep 0.05; done) & read up <f; exit 7";
    let more = if tty { json!({"tty": true}) } else { json!({"on_leader_exit": "keep_tree"}) };
    let process = start(&mut owner, line, more);
    wait::until_true("the leader's end", LIMIT, || !owner.record(&process)["leader"].is_null());
    owner.stop(&process, "kill", 0);
    check(
        &mut owner,
        &process,
        "a kill after the leader",
        &Told("exited", "exited", Some(7), Leader::Code(7), false),
    );
    journal::assert_one_end_each(&mut owner, daemon.connect(), &[process]);
}

/// The session's end and the daemon's.
fn by_shutdown(tier: Tier, tty: bool) {
    let mut daemon = Setup::new(tier).limit("grace_ms = 2000").start();
    let polite = Told("terminated", "runner-shutdown", None, Leader::Signal(15), false);
    let deaf = Told("killed", "runner-shutdown", None, Leader::Signal(9), true);
    let both = |owner: &mut Owner| {
        [POLITE, DEAF].map(|line| {
            let process = start(owner, line, json!({"tty": tty}));
            until_up(owner, &process);
            process
        })
    };
    let mut owner = daemon.owner();
    let ended = both(&mut owner);
    owner.wire.ok("session/close", json!({"scope": "session"}));
    check(&mut owner, &ended[0], "the session's end", &polite);
    check(&mut owner, &ended[1], "the session's end", &deaf);
    journal::assert_one_end_each(&mut owner, daemon.connect(), &ended);
    let mut owner = daemon.owner();
    let ended = both(&mut owner);
    daemon.terminate();
    assert_eq!(daemon.ended().code(), Some(0));
    daemon.restart();
    let mut owner = owner.attach(daemon.connect());
    check(&mut owner, &ended[0], "the daemon's end", &polite);
    check(&mut owner, &ended[1], "the daemon's end", &deaf);
    journal::assert_one_end_each(&mut owner, daemon.connect(), &ended);
}

/// Asked to end before there is anything: nothing ran, and the end has the request's name.
fn before_the_exec(tier: Tier, tty: bool) {
    for (mode, state, reason) in [
        ("terminate", "terminated", "terminated"),
        ("kill", "killed", "killed"),
        ("", "terminated", "runner-shutdown"),
    ] {
        // The start is held before anything of it exists.
        let daemon = Setup::new(tier).failpoints("spawn-materials=pause:4000@1").start();
        let mut owner = daemon.owner();
        let params = owner.start_params(
            &["sh", "-c", "touch ran; sleep 600"],
            json!({"tty": tty, "background": true}),
        );
        owner.wire.send("process/start", params);
        let mut other = owner.attach(daemon.connect());
        let process = wait::until("its record", LIMIT, || other.list().first().map(handle));
        if mode.is_empty() {
            other.wire.ok("session/close", json!({"scope": "session"}));
        } else {
            other.stop(&process, mode, LONG_MS);
        }
        let ended = other.ended(&process);
        let record = other.record(&process);
        assert_eq!(
            (&record["state"], &record["reason"]),
            (&json!(state), &json!(reason)),
            "{record}"
        );
        assert!(
            record["exit_code"].is_null()
                && record["leader"].is_null()
                && record["started_at"].is_null(),
            "{record}"
        );
        assert_eq!(ended["state"], record["state"]);
        assert!(!daemon.cwd().join("ran").exists(), "it ran");
        journal::assert_one_end_each(&mut other, daemon.connect(), &[process]);
    }
}

/// What nobody could see the end of.
fn without_an_end(tier: Tier, tty: bool) {
    let mut daemon = Setup::new(tier).start();
    let mut owner = daemon.owner();
    let params = owner.start_params(&["/no/such/program"], json!({"tty": tty}));
    let failed = owner.wire.refused("spawn_failed", "process/start", params);
    let failed = failed["details"]["process_id"].as_str().unwrap().to_owned();
    let lost_guardian = start(&mut owner, DEAF, json!({"tty": tty}));
    until_up(&mut owner, &lost_guardian);
    end_child(&daemon, "procd-guardian");
    assert_eq!(owner.ended(&lost_guardian)["state"], "failed");
    let lost = wait::until("a new guardian serves", LIMIT, || {
        let params =
            owner.start_params(&["sh", "-c", DEAF], json!({"tty": tty, "background": true}));
        owner.wire.call("process/start", params).ok().map(|entry| handle(&entry))
    });
    until_up(&mut owner, &lost);
    let mut want = vec![
        (failed, "failed", "failed"),
        (lost_guardian, "failed", "failed"),
        (lost, "lost_on_restore", "lost-on-restore"),
    ];
    daemon.kill();
    daemon.restart();
    let mut owner = owner.attach(daemon.connect());
    for (process, state, reason) in &want {
        let record = owner.record(process);
        assert_eq!(
            (&record["state"], &record["reason"]),
            (&json!(state), &json!(reason)),
            "{record}"
        );
        assert!(record["exit_code"].is_null(), "{record}");
        assert_eq!(record["diagnostic"].is_null(), *state != "failed", "{record}");
    }
    // Starts that met no guardian are ends too.
    let others = owner.list().into_iter().filter(|record| {
        record["diagnostic"].as_str().is_some_and(|text| text.contains("guardian"))
    });
    let others: Vec<String> = others.map(|record| handle(&record)).collect();
    let mut all: Vec<String> = want.drain(..).map(|(process, ..)| process).chain(others).collect();
    all.sort();
    all.dedup();
    journal::assert_one_end_each(&mut owner, daemon.connect(), &all);
}

/// Ends the daemon's own child of that name: in a namespace where it can be nobody else's.
fn end_child(daemon: &Daemon, name: &str) {
    let pid = daemon.pid();
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = list.split_whitespace().find(|child| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let child = child.and_then(|child| Pid::from_raw(child.parse().ok()?)).unwrap();
    kill_process(child, Signal::KILL).unwrap();
}

both_tiers! {
    fn an_end_by_itself_or_by_request_with_pipes(tier) {
        by_itself_or_by_request(tier, false);
    }

    fn an_end_by_itself_or_by_request_with_a_terminal(tier) {
        by_itself_or_by_request(tier, true);
    }

    fn a_kill_that_comes_after_the_leader_has_ended(tier) {
        for tty in [false, true] {
            a_kill_after_the_leader(tier, tty);
        }
    }

    fn a_shutdown_of_session_and_daemon(tier) {
        for tty in [false, true] {
            by_shutdown(tier, tty);
        }
    }

    fn a_stop_before_the_exec(tier) {
        for tty in [false, true] {
            before_the_exec(tier, tty);
        }
    }
}

both_tiers_inside! {
    fn an_end_that_nobody_saw(tier) {
        for tty in [false, true] {
            without_an_end(tier, tty);
        }
    }
}
