//! Nothing escapes: every kind of tree that tries to outlive its end, in both tiers, with pipes and
//! with a terminal, as root and as an ordinary user, against everything that ends a tree. The table
//! is in docs/CONTAINMENT.md; `cargo xtask containment` runs this alone and more often.

use std::{fs, path::PathBuf, time::Duration};

use procd_tests::{
    Daemon, Owner, Setup, Tier, leaks, namespace, owner::handle, rounds, run::ctl, wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A user that nobody is.
pub(crate) const UID: u32 = 61_234;
const LIMIT: Duration = procd_tests::wait::STEP;

/// What tries to outlive its end: its name, a leader that runs on beside it until it is ended, and
/// one that leaves it behind and goes. Each says `up` when it is under way. PROBE stands for the
/// probe's path.
const KINDS: &[(&str, &str, &str)] = &[
    ("background", "sleep 1000 & echo up; wait", "sleep 1000 & echo up"),
    (
        "nohup",
        "nohup sleep 1000 >/dev/null 2>&1 & echo up; wait",
        "nohup sleep 1000 >/dev/null 2>&1 & echo up",
    ),
    (
        "disown",
        "exec bash -c 'sleep 1000 & disown; echo up; sleep 1000; :'",
        "exec bash -c 'sleep 1000 & disown; echo up'",
    ),
    ("setsid", "setsid sleep 1000 & echo up; wait", "setsid sleep 1000 & echo up"),
    (
        "double fork",
        "(setsid sh -c 'cd /tmp; exec sleep 1000' <&- >&- 2>&- &) ; echo up; sleep 1000",
        "(setsid sh -c 'cd /tmp; exec sleep 1000' <&- >&- 2>&- &) ; echo up",
    ),
    (
        "setpgid",
        "exec bash -c 'set -m; sleep 1000 & echo up; wait'",
        "exec bash -c 'set -m; sleep 1000 & echo up'",
    ),
    ("another program", "echo up; exec sleep 1000", "sleep 1000 & exec echo up"),
    (
        "chain of shells",
        "sh -c \"sh -c 'sh -c \\\"echo up; sleep 1000; :\\\"; :'; :\"; :",
        "sh -c \"sh -c 'sh -c \\\"sleep 1000 & echo up; :\\\"; :'; :\"; :",
    ),
    (
        "bomb",
        "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo up; wait",
        "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo up",
    ),
    ("comet", "f() { f & }; f; echo up; sleep 1000", "f() { f & }; f; echo up"),
    (
        "killer of its parent",
        "sh -c 'sleep 0.2; kill -9 $PPID; sleep 1000' & echo up; sleep 1000; :",
        "echo up; sh -c 'kill -9 $PPID; sleep 1000'; :",
    ),
    (
        "killer of its group",
        "setsid sleep 1000 & echo up; trap '' TERM; kill 0; sleep 1000",
        "setsid sleep 1000 & echo up; kill 0; sleep 1000",
    ),
    ("stopped", "sh -c 'kill -STOP $$' & echo up; sleep 1000", "sh -c 'kill -STOP $$' & echo up"),
    (
        "ignores everything",
        "trap '' HUP INT QUIT TERM; (while :; do sleep 1; done) & echo up; while :; do sleep 1; done",
        "mkfifo d; (trap '' HUP INT QUIT TERM; echo >d; while :; do sleep 1; done) & read x <d; echo up",
    ),
    // Each signal makes it start one more.
    (
        "starts more when asked to end",
        "trap 'setsid sleep 1000 &' TERM INT HUP; echo up; while :; do sleep 0.05; done",
        "mkfifo m; (trap 'setsid sleep 1000 &' TERM INT HUP; echo >m; while :; do sleep 0.05; done) & read x <m; echo up",
    ),
    // A traced process is its tracer's to reap first, and this one never does.
    ("tracer of its sibling", "PROBE trace", "mkfifo t; PROBE trace >t & read x <t; echo up"),
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

/// One cell of the table.
#[derive(Clone, Copy, Debug)]
struct Cell {
    tier: Tier,
    tty: bool,
    uid: Option<u32>,
    /// Tier 3 beside it.
    isolate: bool,
}

fn setup(cell: Cell) -> Setup {
    let setup = Setup::new(cell.tier)
        .limit("running_loop_max = 64")
        .limit("running_session_max = 64")
        .limit("grace_ms = 300");
    match cell.uid {
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
fn start_all(owner: &mut Owner, cell: Cell, left_behind: bool) -> Vec<String> {
    let probe = procd_tests::binaries::probe();
    let mut all = Vec::new();
    for (_, runs_on, leaves) in KINDS {
        let line = if left_behind { leaves } else { runs_on }.replace("PROBE", &probe);
        let params = json!({
            "background": true, "tty": cell.tty, "isolate": cell.isolate, "memory_bytes": 4096, "spool_bytes": 65536,
        });
        all.push(handle(&owner.start(&["sh", "-c", &line], params)));
    }
    for (process, (name, ..)) in all.iter().zip(KINDS) {
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

fn ends(cell: Cell, trigger: Trigger) {
    let mut daemon = setup(cell).start();
    let mut owner = daemon.owner();
    if cell.isolate && !crate::isolation::is_here(&mut owner) {
        return;
    }
    guardian(&daemon);
    let before = leaks::everybody().len();
    let all = start_all(&mut owner, cell, trigger == Trigger::LeaderEnd);
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
        Trigger::BothKill => both_die(&mut daemon, owner.opened.clone(), cell),
    }
    nobody_is_left(before, "nothing is left");
}

/// A reply is a proof: nobody waits here.
fn proven(before: usize) {
    let left = leaks::everybody_but_shims();
    assert!(left.len() <= before, "after the reply: {left:?}");
}

/// All that ran is `failed` with the diagnostic, but for a few that ended by themselves.
fn failed_as(owner: &mut Owner, diagnostic: &str) {
    wait::until_true("all have ended", LIMIT, || {
        states(owner).iter().all(|state| state != "running")
    });
    let records = owner.list();
    let failed = records.iter().filter(|record| record["diagnostic"] == diagnostic);
    assert!(failed.clone().count() >= KINDS.len() - 2, "{records:?}");
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
    for name in ["procd-shim", "procd-init"] {
        for shim in children(guardian, name) {
            // One that has ended meanwhile is gone as well.
            kill_process(shim, Signal::KILL).unwrap_or_default();
        }
    }
    failed_as(owner, "containment_lost");
    nobody_is_left(before, "nothing outlives its shim");
    assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n");
}

/// Daemon and guardian, so that neither can act on the other's end.
fn both_die(daemon: &mut Daemon, opened: Value, cell: Cell) {
    let guardian_pid = guardian(daemon);
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    kill_process(guardian_pid, Signal::KILL).unwrap();
    daemon.kill();
    if cell.tier == Tier::Shim || cell.isolate {
        nobody_is_left(0, "each shim sees its socket close, each init goes with its parent");
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

fn matrix(module: &str, name: &str, cell: Cell) {
    if namespace::has_run_inside(module, name) || !crate::is_here(cell.tier) {
        return;
    }
    if cell.uid.is_some() && !can_be_user() {
        return;
    }
    let has_shims = cell.tier == Tier::Shim || cell.isolate;
    for _ in 0..rounds::or(1) {
        for &trigger in TRIGGERS.iter().filter(|&&one| has_shims || one != Trigger::ShimKill) {
            let began = wait::now();
            ends(cell, trigger);
            println!("{cell:?} {trigger:?}: {} kinds, {:?}", KINDS.len(), began.elapsed());
        }
    }
}

/// Whether this test may become another user, who can reach the binaries.
pub(crate) fn can_be_user() -> bool {
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
    ($($name:ident: $tier:ident, $tty:expr, $uid:expr, $isolate:expr;)+) => {$(
        #[test]
        fn $name() {
            let cell = Cell { tier: Tier::$tier, tty: $tty, uid: $uid, isolate: $isolate };
            matrix(module_path!(), stringify!($name), cell);
        }
    )+};
}

cells! {
    cgroup_pipes_root: Cgroup, false, None, false;
    cgroup_pipes_user: Cgroup, false, Some(UID), false;
    cgroup_tty_root: Cgroup, true, None, false;
    cgroup_tty_user: Cgroup, true, Some(UID), false;
    shim_pipes_root: Shim, false, None, false;
    shim_pipes_user: Shim, false, Some(UID), false;
    shim_tty_root: Shim, true, None, false;
    shim_tty_user: Shim, true, Some(UID), false;
    isolated_in_cgroup_pipes_root: Cgroup, false, None, true;
    isolated_in_cgroup_pipes_user: Cgroup, false, Some(UID), true;
    isolated_in_cgroup_tty_root: Cgroup, true, None, true;
    isolated_in_cgroup_tty_user: Cgroup, true, Some(UID), true;
    isolated_pipes_root: Shim, false, None, true;
    isolated_pipes_user: Shim, false, Some(UID), true;
    isolated_tty_root: Shim, true, None, true;
    isolated_tty_user: Shim, true, Some(UID), true;
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
        let metrics = ctl(&daemon, &["metrics"]).success();
        assert!(metrics.contains("\nprocd_teardown_failures_total 1\n"), "{metrics}");
        let params = owner.start_params(&["true"], json!({}));
        assert_eq!(owner.wire.call("process/start", params).unwrap_err()["code"], "process_quota_exceeded");
        let ended = owner.ended(&process);
        assert_eq!((ended["state"].clone(), ended["reason"].clone()), (json!("killed"), json!("killed")), "{ended}");
        assert_eq!(owner.start(&["true"], json!({"timeout_ms": 600_000}))["state"], "exited");
    }

    /// A command that kills its parent, which is its shim or in tier 1 the guardian itself: nothing of
    /// it is left, and the next one runs.
    fn a_command_that_kills_its_own_keeper_outlives_it_by_nothing(tier) {
        for (tty, uid) in [(false, None), (true, None), (false, Some(UID)), (true, Some(UID))] {
            if uid.is_some() && !can_be_user() {
                continue;
            }
            let daemon = setup(Cell { tier, tty, uid, isolate: false }).start();
            let mut owner = daemon.owner();
            guardian(&daemon);
            let before = leaks::everybody().len();
            let line = "setsid sleep 1000 & (trap '' TERM; sleep 1000) & echo up; kill -9 $PPID; sleep 1000";
            let entry = owner.start(&["sh", "-c", line], json!({"tty": tty}));
            let why = if tier == Tier::Shim { "containment_lost" } else { "guardian_lost" };
            assert_eq!((&entry["state"], &owner.record(&handle(&entry))["diagnostic"]), (&json!("failed"), &json!(why)), "{entry}");
            wait::until_true("the next one runs", LIMIT, || {
                let params = owner.start_params(&["true"], json!({}));
                owner.wire.call("process/start", params).is_ok_and(|entry| entry["exit_code"] == 0)
            });
            nobody_is_left(before, "nothing is left");
        }
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

both_tiers_inside! {
    /// Two starts in folders on a file system whose server never answers: one hangs while its folder
    /// is looked up, the other between clone and exec. They delay nobody, and the second, which has a
    /// record, is killed there.
    fn a_start_on_a_hung_file_system_delays_nobody(tier) {
        let daemon = Setup::new(tier).start();
        let Some(mut hung) = Hung::mount(&daemon) else {
            procd_tests::skip("no FUSE on this machine");
            return;
        };
        let mut owner = daemon.owner();
        let (mut above, mut below) = (owner.attach(daemon.connect()), owner.attach(daemon.connect()));
        let params = owner.start_params(&["true"], json!({"cwd": hung.path.join("below")}));
        let lookup = below.wire.send("process/start", params);
        let params = owner.start_params(&["true"], json!({"cwd": hung.path}));
        let enter = above.wire.send("process/start", params);
        let entering = wait::until("its record", LIMIT, || owner.list().first().map(handle));
        for tty in [false, true, false, true] {
            assert_eq!(owner.start(&["true"], json!({"tty": tty}))["exit_code"], 0);
        }
        assert_eq!(owner.record(&entering)["state"], "starting");
        let result = owner.stop(&entering, "kill", 0);
        assert_eq!(result["state"], "killed", "{result}");
        let entry = above.wire.reply(enter).unwrap();
        assert!(entry["state"] == "killed" && entry["started_at"].is_null(), "{entry}");
        hung.end();
        let error = below.wire.reply(lookup).unwrap_err();
        assert_eq!(error["code"], "spawn_failed", "{error}");
    }
}

/// A file system whose server takes no request. Mounted in the test's own namespace only.
struct Hung {
    path: PathBuf,
    server: procd_tests::run::Running,
}

impl Hung {
    /// None where there is no FUSE.
    fn mount(daemon: &Daemon) -> Option<Self> {
        let path = daemon.path().join("hung");
        fs::create_dir(&path).unwrap();
        let options = "fd=7,rootmode=40000,user_id=0,group_id=0";
        let line = format!(
            "exec 7<>/dev/fuse && mount -i -t fuse -o {options} hung \"$0\" && exec sleep 600"
        );
        let mut server = procd_tests::binaries::command("sh");
        server.args(["-c", &line]).arg(&path);
        let mut hung = Self { path, server: procd_tests::run::start(server) };
        let mounted = || fs::read_to_string("/proc/self/mounts").unwrap().contains("/hung fuse ");
        let is_there = wait::until("a mount or none", LIMIT, || {
            let has_ended = hung.server.child.try_wait().unwrap().is_some();
            if has_ended { Some(false) } else { mounted().then_some(true) }
        });
        is_there.then_some(hung)
    }

    /// Whoever waits for it gets an error.
    fn end(&mut self) {
        drop(self.server.child.kill());
        drop(self.server.child.wait());
        let mut unmount = procd_tests::binaries::command("umount");
        unmount.arg("-l").arg(&self.path);
        drop(procd_tests::run::finish(unmount, b"", LIMIT));
    }
}

/// Before the folder of the test is removed, which would wait for it.
impl Drop for Hung {
    fn drop(&mut self) {
        self.end();
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
    let metrics = ctl(&daemon, &["metrics"]).success();
    assert!(metrics.contains("\nprocd_escaped_total 1\n"), "{metrics}");
    nobody_is_left(before, "it is killed");
}
