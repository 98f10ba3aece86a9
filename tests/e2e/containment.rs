//! Nothing escapes: every kind of tree that tries to outlive its end, in both tiers, with pipes and
//! with a terminal, as root and as an ordinary user, against everything that ends a tree. The table
//! is in docs/CONTAINMENT.md; `cargo xtask containment` runs this alone and more often.

use std::{fs, path::PathBuf, time::Duration};

use procd_tests::{Daemon, Owner, Setup, Tier, leaks, namespace, owner::handle, rounds, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A user that nobody is.
const UID: u32 = 61_234;
const LIMIT: Duration = procd_tests::wait::STEP;

/// What tries to outlive its end. Each says `up` when it is under way, and runs until it is ended.
const ESCAPES: &[(&str, &str)] = &[
    ("background", "sleep 1000 & echo up; wait"),
    ("nohup", "nohup sleep 1000 >/dev/null 2>&1 & echo up; wait"),
    ("disown", "exec bash -c 'sleep 1000 & disown; echo up; sleep 1000; :'"),
    ("setsid", "setsid sleep 1000 & echo up; wait"),
    (
        "double fork",
        "(setsid sh -c 'cd /tmp; exec sleep 1000' <&- >&- 2>&- &) ; echo up; sleep 1000",
    ),
    ("setpgid", "exec bash -c 'set -m; sleep 1000 & echo up; wait'"),
    ("another program", "echo up; exec sleep 1000"),
    ("chain of shells", "sh -c \"sh -c 'sh -c \\\"echo up; sleep 1000; :\\\"; :'; :\"; :"),
    ("bomb", "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo up; wait"),
    ("comet", "f() { f & }; f; echo up; sleep 1000"),
    (
        "killer of its parent",
        "sh -c 'sleep 0.2; kill -9 $PPID; sleep 1000' & echo up; sleep 1000; :",
    ),
    ("killer of its group", "setsid sleep 1000 & echo up; trap '' TERM; kill 0; sleep 1000"),
    ("stopped", "sh -c 'kill -STOP $$' & echo up; sleep 1000"),
    (
        "ignores everything",
        "trap '' HUP INT QUIT TERM; (while :; do sleep 1; done) & echo up; while :; do sleep 1; done",
    ),
    // Each signal makes it start one more.
    (
        "starts more when asked to end",
        "trap 'setsid sleep 1000 &' TERM INT HUP; echo up; while :; do sleep 0.05; done",
    ),
];

/// What leaves something behind when its leader ends by itself.
const LEAVES: &[(&str, &str)] = &[
    ("background", "sleep 1000 & echo up"),
    ("nohup", "nohup sleep 1000 >/dev/null 2>&1 & echo up"),
    ("setsid", "setsid sleep 1000 & echo up"),
    ("double fork", "(setsid sh -c 'cd /tmp; exec sleep 1000' <&- >&- 2>&- &) ; echo up"),
    ("ignores everything", "(trap '' HUP INT QUIT TERM; while :; do sleep 1; done) & echo up"),
    ("comet", "f() { f & }; f; echo up"),
    ("bomb", "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo up"),
];

/// What ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Stop,
    LeaderEnd,
    SessionEnd,
    DaemonTerm,
    DaemonKill,
    GuardianKill,
    ShimKill,
    BothKill,
}

const TRIGGERS: &[Trigger] = &[
    Trigger::Stop,
    Trigger::LeaderEnd,
    Trigger::SessionEnd,
    Trigger::DaemonTerm,
    Trigger::DaemonKill,
    Trigger::GuardianKill,
    Trigger::ShimKill,
    Trigger::BothKill,
];

fn setup(tier: Tier, uid: Option<u32>) -> Setup {
    let setup = Setup::new(tier)
        .limit("running_loop_max = 64")
        .limit("running_session_max = 64")
        .limit("grace_ms = 300");
    match uid {
        Some(uid) => setup.as_user(uid),
        None => setup,
    }
}

/// Children of a process by name: own daemon, own guardian.
fn children(of: u32, name: &str) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    let is_named = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let pids = list.split(' ').filter(is_named).filter_map(|pid| pid.parse().ok());
    pids.filter_map(Pid::from_raw).collect()
}

fn guardian(daemon: &Daemon) -> Pid {
    wait::until("a guardian", LIMIT, || children(daemon.pid(), "procd-guardian").first().copied())
}

/// Starts every kind and waits until each is under way.
fn start_all(owner: &mut Owner, kinds: &[(&str, &str)], tty: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (_, line) in kinds {
        let params =
            json!({"background": true, "tty": tty, "memory_bytes": 4096, "spool_bytes": 65536});
        all.push(handle(&owner.start(&["sh", "-c", line], params)));
    }
    for (process, (name, _)) in all.iter().zip(kinds) {
        wait::until_true(name, LIMIT, || owner.text(process).contains("up"));
    }
    all
}

fn states(owner: &mut Owner) -> Vec<Value> {
    owner.list().into_iter().map(|mut record| record["state"].take()).collect()
}

/// Nobody lives but who lived before, looked at from outside.
fn nobody_is_left(before: usize, what: &str) {
    wait::until_true(what, LIMIT, || leaks::everybody().len() <= before);
}

fn ends(tier: Tier, tty: bool, uid: Option<u32>, trigger: Trigger) {
    let mut daemon = setup(tier, uid).start();
    let mut owner = daemon.owner();
    guardian(&daemon);
    let before = leaks::everybody().len();
    let kinds = if trigger == Trigger::LeaderEnd { LEAVES } else { ESCAPES };
    let all = start_all(&mut owner, kinds, tty);
    match trigger {
        Trigger::LeaderEnd => {
            for process in all {
                assert_eq!(owner.ended(&process)["state"], "exited");
            }
        }
        Trigger::Stop => {
            let reply = owner.wire.ok("session/stop_all", json!({}));
            proven(before);
            let results = reply["results"].as_array().unwrap();
            assert!(results.iter().all(|result| result["error"].is_null()), "{reply}");
        }
        Trigger::SessionEnd => {
            owner.wire.ok("session/close", json!({"scope": "session"}));
            proven(before);
        }
        Trigger::DaemonTerm => {
            daemon.terminate();
            assert_eq!(daemon.ended().code(), Some(0));
            nobody_is_left(0, "nothing outlives the daemon");
        }
        Trigger::DaemonKill => {
            daemon.kill();
            nobody_is_left(0, "nothing outlives a killed daemon");
        }
        Trigger::GuardianKill => guardian_dies(&daemon, &mut owner, before),
        Trigger::ShimKill => shims_die(&daemon, &mut owner, before),
        Trigger::BothKill => both_die(&mut daemon, owner.opened.clone(), tier),
    }
    nobody_is_left(before, "nothing is left");
}

/// A reply is a proof: nobody waits here.
fn proven(before: usize) {
    let left = leaks::everybody();
    assert!(left.len() <= before, "after the reply: {left:?}");
}

/// All that ran is `failed` with the diagnostic, but for a few that ended by themselves.
fn failed_as(owner: &mut Owner, diagnostic: &str) {
    wait::until_true("all have ended", LIMIT, || {
        states(owner).iter().all(|state| state != "running")
    });
    let records = owner.list();
    let failed = records.iter().filter(|record| record["diagnostic"] == diagnostic);
    assert!(failed.clone().count() >= ESCAPES.len() - 2, "{records:?}");
    assert!(failed.clone().all(|record| record["state"] == "failed"), "{records:?}");
}

fn guardian_dies(daemon: &Daemon, owner: &mut Owner, before: usize) {
    kill_process(guardian(daemon), Signal::KILL).unwrap();
    failed_as(owner, "guardian_lost");
    wait::until_true("a new guardian serves", LIMIT, || {
        let params = owner.start_params(&["true"], json!({}));
        owner.wire.call("process/start", params).is_ok()
    });
    nobody_is_left(before, "nothing outlives the guardian");
}

fn shims_die(daemon: &Daemon, owner: &mut Owner, before: usize) {
    let guardian = guardian(daemon).as_raw_nonzero().get().unsigned_abs();
    for shim in children(guardian, "procd-shim") {
        // One that has ended meanwhile is gone as well.
        kill_process(shim, Signal::KILL).unwrap_or_default();
    }
    failed_as(owner, "containment_lost");
    nobody_is_left(before, "nothing outlives its shim");
    assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n");
}

/// Daemon and guardian, so that neither can act on the other's end.
fn both_die(daemon: &mut Daemon, opened: Value, tier: Tier) {
    let guardian_pid = guardian(daemon);
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    kill_process(guardian_pid, Signal::KILL).unwrap();
    daemon.kill();
    if tier == Tier::Shim {
        nobody_is_left(0, "each shim sees its socket close");
    }
    daemon.restart();
    guardian(daemon);
    let mut wire = daemon.connect();
    let field = |name: &str| opened[name].clone();
    let (session, key) = (field("session_id"), field("session_key"));
    let params = json!({"session_id": session, "loop_id": field("loop_id"), "session_key": key});
    wire.ok("session/attach", params);
    let states = states(&mut Owner::attached(wire, opened, daemon.cwd()));
    assert!(states.iter().all(|state| state != "running"), "{states:?}");
}

fn matrix(module: &str, name: &str, tier: Tier, tty: bool, uid: Option<u32>) {
    if namespace::has_run_inside(module, name) || !crate::is_here(tier) {
        return;
    }
    if uid.is_some() && !can_be_user() {
        return;
    }
    for _ in 0..rounds::or(1) {
        for &trigger in
            TRIGGERS.iter().filter(|&&one| tier == Tier::Shim || one != Trigger::ShimKill)
        {
            let began = wait::now();
            ends(tier, tty, uid, trigger);
            println!(
                "{tier:?} tty={tty} uid={uid:?} {trigger:?}: {} kinds, {:?}",
                ESCAPES.len(),
                began.elapsed()
            );
        }
    }
}

/// Whether this test may become another user, who can reach the binaries.
fn can_be_user() -> bool {
    let mut command = procd_tests::binaries::command("setpriv");
    command.args([&format!("--reuid={UID}"), &format!("--regid={UID}"), "--clear-groups", "--"]);
    command.arg(procd_tests::binaries::path("probe")).args(["exit", "0"]);
    let is_possible = procd_tests::run::finish(command, b"", LIMIT).code == Some(0);
    if !is_possible {
        procd_tests::skip("the tests cannot become an ordinary user");
    }
    is_possible
}

macro_rules! cells {
    ($($name:ident: $tier:expr, $tty:expr, $uid:expr;)+) => {$(
        #[test]
        fn $name() {
            matrix(module_path!(), stringify!($name), $tier, $tty, $uid);
        }
    )+};
}

cells! {
    cgroup_pipes_root: Tier::Cgroup, false, None;
    cgroup_pipes_user: Tier::Cgroup, false, Some(UID);
    cgroup_tty_root: Tier::Cgroup, true, None;
    cgroup_tty_user: Tier::Cgroup, true, Some(UID);
    shim_pipes_root: Tier::Shim, false, None;
    shim_pipes_user: Tier::Shim, false, Some(UID);
    shim_tty_root: Tier::Shim, true, None;
    shim_tty_user: Tier::Shim, true, Some(UID);
}

both_tiers_inside! {
    /// A tree that cannot be proven empty: the stop says so, authority and slot stay, and the true
    /// end comes when it is true.
    fn a_tree_not_proven_empty_keeps_its_slot_until_it_is(tier) {
        let daemon = Setup::new(tier).limit("running_loop_max = 1").failpoints("tree-proof-withheld-ms=value:18000").start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let params = json!({"process_id": process, "mode": "kill"});
        let error = owner.wire.call("process/stop", params).unwrap_err();
        assert_eq!(error["code"], "teardown_failed", "{error}");
        assert!(error["details"]["waited_ms"].as_u64() >= Some(10_000), "{error}");
        assert_eq!((error["details"]["state"].clone(), error["retryable"].clone()), (json!("running"), json!(true)), "{error}");
        assert_eq!(owner.record(&process)["state"], "running");
        let params = owner.start_params(&["true"], json!({}));
        assert_eq!(owner.wire.call("process/start", params).unwrap_err()["code"], "process_quota_exceeded");
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["reason"].clone()), (json!("killed"), json!("killed")), "{ended}");
        assert_eq!(owner.start(&["true"], json!({"timeout_ms": 600_000}))["state"], "exited");
    }

    /// A start in a folder that hangs delays nobody else.
    fn a_start_whose_folder_hangs_delays_nobody(tier) {
        let mut daemon = Setup::new(tier).prepare();
        daemon.with_failpoints("start-plan-folder=pause:600000@1");
        daemon.restart();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["true"], json!({}));
        owner.wire.send("process/start", params);
        wait::until_true("it hangs", LIMIT, || daemon.held().is_some());
        let mut other = owner.attach(daemon.connect());
        for _ in 0..10 {
            assert_eq!(other.start(&["true"], json!({}))["exit_code"], 0);
        }
        assert_eq!(daemon.held().as_deref(), Some("start-plan-folder"), "it hangs still");
        daemon.kill();
    }
}

/// Tier 1: who moved itself out of its leaf is killed and counted.
#[test]
fn who_leaves_its_control_group_is_killed_and_counted() {
    let name = "who_leaves_its_control_group_is_killed_and_counted";
    if namespace::has_run_inside(module_path!(), name) || !crate::is_here(Tier::Cgroup) {
        return;
    }
    let daemon = Setup::new(Tier::Cgroup).start();
    let mut owner = daemon.owner();
    let groups = leaks::groups(&daemon.state());
    let outside: PathBuf = groups[0].parent().unwrap().join("cgroup.procs");
    let before = leaks::everybody().len();
    let line = format!(
        "setsid sh -c 'echo $$ >{}; touch out; exec sleep 1000' & while ! [ -e out ]; do sleep 0.02; done; echo done",
        outside.display()
    );
    let entry = owner.start(&["sh", "-c", &line], json!({}));
    assert_eq!(entry["state"], "exited", "{entry}");
    let mut operator = daemon.operator();
    wait::until_true("it is counted", LIMIT, || {
        owner.start(&["true"], json!({}));
        operator.ok("daemon/status", json!({}))["escaped"] == 1
    });
    nobody_is_left(before, "it is killed");
}
