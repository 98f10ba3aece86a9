//! How many system calls the daemon and its guardian make for one start, one read, one wait and one
//! end: `cargo xtask guards` runs it. Prints `tier operation who call count` lines, counts of one operation.
//! What depends on timing and on threads alone is left out.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measure that reports")]

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ExitCode, Stdio},
    time::Duration,
};

use procd_tests::{
    Daemon, Setup, Tier, binaries, owner,
    wait::{self, until_true},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Operations of each kind.
const ROUNDS: u32 = 20;
/// How long nothing may happen for the work to be over.
const QUIET: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(120);
/// Calls whose number says how threads met, or how the allocator went on.
const LEFT_OUT: &[&str] = &[
    "brk",
    "clone",
    "clone3",
    "clock_gettime",
    "clock_nanosleep",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "exit",
    "futex",
    "getrandom",
    "gettid",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "poll",
    "ppoll",
    "prctl",
    "restart_syscall",
    "rseq",
    "rt_sigprocmask",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "sigaltstack",
    "timerfd_settime",
];
/// In the guardian, which has one thread, a clone is a start.
const CLONES: &[&str] = &["clone", "clone3"];

type Counts = BTreeMap<String, u64>;

fn main() -> ExitCode {
    if let Err(reason) = can_trace() {
        println!("skipped: {reason}");
        return ExitCode::SUCCESS;
    }
    for tier in [Tier::Cgroup, Tier::Shim] {
        if tier.is_here() {
            all(tier);
        }
    }
    ExitCode::SUCCESS
}

fn all(tier: Tier) {
    let daemon =
        Setup::new(tier).limit("running_loop_max = 32").limit("retained_session_max = 100").start();
    let mut owner = daemon.owner();
    let fifo = daemon.path().join("ticks");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let mut ticks = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let writer = owner.background(&["cat", fifo.to_str().unwrap()]);
    ticks.write_all(b"a line of output\n").unwrap();
    until_true("the first line", PATIENCE, || owner.bytes(&writer, 0).len() > 10);
    // Whatever happens once only.
    let warm = owner.background(&["sleep", "1000000"]);
    owner.stop(&warm, "kill", 0);

    let mut handles = Vec::new();
    traced(&daemon, tier, "start", || {
        for _ in 0..ROUNDS {
            handles.push(owner.background(&["sleep", "1000000"]));
        }
    });
    traced(&daemon, tier, "read", || {
        for _ in 0..ROUNDS {
            owner.output(&writer, json!({"cursor": 0}));
        }
    });
    let mut cursor = u64::try_from(owner.bytes(&writer, 0).len()).unwrap();
    traced(&daemon, tier, "wait", || {
        for _ in 0..ROUNDS {
            let params = json!({"process_id": writer, "cursor": cursor, "wait": "any"});
            let id = owner.wire.send("process/output", params);
            rest(Duration::from_millis(20));
            ticks.write_all(b"another line\n").unwrap();
            let mut reply = owner.wire.reply(id).unwrap();
            cursor = owner::number(&reply["results"][0].take(), "next_cursor");
        }
    });
    traced(&daemon, tier, "end", || {
        for handle in &handles {
            owner.stop(handle, "kill", 0);
        }
    });
    owner.stop(&writer, "kill", 0);
}

/// Whether strace is there and may attach.
fn can_trace() -> Result<(), String> {
    let mut probe = binaries::command("strace");
    let status = probe.args(["-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("strace may not trace here".to_owned()),
        Err(error) => Err(format!("no strace: {error}")),
    }
}

/// Traces both while `work` runs and until they rest, and prints what it came to.
fn traced(daemon: &Daemon, tier: Tier, operation: &str, work: impl FnOnce()) {
    let path = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let children = fs::read_to_string(path).unwrap();
    let guardian: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
    let traces = [("daemon", daemon.pid(), true), ("guardian", guardian, false)];
    let traces = traces.map(|(who, pid, follows)| {
        let file = daemon.path().join(format!("{operation}.{who}"));
        (who, file.clone(), attach(pid, follows, &file))
    });
    work();
    let lengths = || traces.each_ref().map(|(_, file, _)| fs::metadata(file).unwrap().len());
    let mut last = (lengths(), wait::now());
    until_true("rest", PATIENCE, || {
        let lengths = lengths();
        if lengths != last.0 {
            last = (lengths, wait::now());
        }
        last.1.elapsed() > QUIET
    });
    for (who, file, mut strace) in traces {
        kill_process(Pid::from_child(&strace), Signal::INT).unwrap();
        strace.wait().unwrap();
        let counts = counts(&fs::read_to_string(file).unwrap(), who == "guardian");
        for (call, count) in counts {
            let each = f64::from(u32::try_from(count).unwrap()) / f64::from(ROUNDS);
            println!("{} {operation} {who} {call} {each:.1}", tier.word());
        }
    }
}

fn attach(pid: u32, follows: bool, file: &Path) -> Child {
    let mut strace = binaries::command("strace");
    strace.arg("-o").arg(file).args(["-p", &pid.to_string()]).args(follows.then_some("-f"));
    let mut child = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines();
    let said = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")));
    assert!(said.is_some(), "strace did not attach to {pid}");
    // It tells of each further thread, and must not wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn rest(time: Duration) {
    let begun = wait::now();
    until_true("a rest", PATIENCE, || begun.elapsed() >= time);
}

/// The calls of a trace. Those that found nothing to do come and go with timing.
fn counts(trace: &str, is_single: bool) -> Counts {
    let mut counts = Counts::new();
    for line in trace.lines() {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let is_vain = line.contains("= -1 EAGAIN") || line.contains("= ? ERESTART");
        if let Some(rest) = line.strip_prefix("<... ") {
            // Counted at its beginning.
            let name = rest.split(' ').next().unwrap_or_default();
            if is_vain || is_wake(line) {
                counts.entry(name.to_owned()).and_modify(|count| *count = count.saturating_sub(1));
            }
            continue;
        }
        let Some((name, _)) = line.split_once('(') else { continue };
        let is_clone = is_single && CLONES.contains(&name);
        let is_left_out = LEFT_OUT.contains(&name) && !is_clone;
        let is_name = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if is_name && !is_left_out && !is_vain && !is_wake(line) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts.retain(|name, count| {
        *count > 0 && !LEFT_OUT.contains(&name.as_str())
            || is_single && CLONES.contains(&name.as_str())
    });
    counts
}

/// One thread wakes another by an eventfd.
fn is_wake(line: &str) -> bool {
    line.contains(r#""\1\0\0\0\0\0\0\0", 8)"#)
}
