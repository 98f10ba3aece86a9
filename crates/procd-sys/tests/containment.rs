//! Guardian and shim with real processes, in a PID namespace of their own. This binary has its own
//! main, since it is also the guardian it starts: everything runs in turn, without threads.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test without the harness: a panic is its failure, stdout its report"
)]

use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procd_core::{LeaderEnd, Tier};
use procd_sys::cgroup::Leaf;
use procd_sys::channel;
use procd_sys::containment::{Containment, ContainmentOptions, Mode, establish};
use procd_sys::guardian::{self, Launched};
use procd_sys::image::{ChildOptions, Image};
use procd_sys::message::{Hold, Report, Request, Stage, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const INSIDE: &str = "--inside";
const WAIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

#[global_allocator]
static HEAP: procd_sys::scratch::Heap = procd_sys::scratch::Heap;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = guardian::run_if_asked(&arguments) {
        return ExitCode::from(code);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    if arguments.get(1).is_some_and(|mode| mode == INSIDE) {
        run_all();
        return ExitCode::SUCCESS;
    }
    enter_namespace()
}

/// Runs this binary again where a mistake can hurt nobody.
#[expect(clippy::disallowed_methods, reason = "a test starts its own throwaway namespace")]
fn enter_namespace() -> ExitCode {
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    // Everything ignored, as a careless starter of the daemon might have it.
    let all: Vec<String> =
        (1..=31).filter(|n| ![9, 19].contains(n)).map(|n| n.to_string()).collect();
    command.args(["sh", "-c", &format!("trap '' {}; exec \"$@\"", all.join(" ")), "sh"]);
    command.arg(std::env::current_exe().unwrap()).arg(INSIDE);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            println!("inside the namespace: {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("SKIPPED: no `unshare`: {error}");
            ExitCode::SUCCESS
        }
    }
}

type Test = fn(&mut Daemon);

fn run_all() {
    nix::sys::signal::SigSet::all().thread_block().unwrap();
    for mode in [Mode::Cgroup, Mode::Shim] {
        if let Containment::Unavailable { reason } = contain(mode).1 {
            println!("SKIPPED: {mode:?}: {reason}");
            continue;
        }
        let tests: &[(&str, Test)] = &[
            ("exit codes and signals come back exactly", exit_codes_and_signals),
            ("exec failures have their true errno", exec_failures),
            ("starts at once disturb neither each other nor their parent", many_at_once),
            ("a child has descriptors 0-2 and clean signals", a_child_is_clean),
            ("a stop reaches the leader alive and only once it is dead not", reached),
            ("a tree that detaches is killed to the last", a_detached_tree_is_killed),
            ("no kind of escape survives a kill", no_escape_survives),
            ("leftovers are seen after the leader's end", leftovers_are_seen),
        ];
        for (name, test) in tests {
            println!("{mode:?}: {name}");
            let (_, containment) = contain(mode);
            let mut daemon = Daemon::start(&containment);
            test(&mut daemon);
            daemon.end();
            assert_gone(&containment);
        }
        println!("{mode:?}: the end of the daemon ends everything");
        let (options, containment) = contain(mode);
        the_end_of_the_daemon_ends_everything(Daemon::start(&containment));
        assert_gone(&containment);
        if mode == Mode::Cgroup {
            println!("{mode:?}: the next start sweeps what both left behind");
            the_next_start_sweeps(&options);
        }
        assert!(containment.finish(Duration::from_secs(60)));
    }
    println!("Shim: a killed shim is reported and its orphans die");
    a_killed_shim_is_reported();
}

/// Unique on the machine: other runs have groups beside ours.
static FOLDER_ID: OnceLock<String> = OnceLock::new();

fn mint() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_owned()
}

/// A containment of its own; the payload group of an unused one is removed by the sweep of the
/// next, since all have one state folder.
fn contain(mode: Mode) -> (ContainmentOptions, Containment) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let options = ContainmentOptions {
        mode,
        require_atomic: false,
        cgroup_root: None,
        folder_id: FOLDER_ID.get_or_init(mint).clone(),
        instance: format!("{mode:?}-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
    };
    let containment = establish(&options).containment;
    (options, containment)
}

/// The guardian has removed the payload group with itself.
fn assert_gone(containment: &Containment) {
    if let Some(payload) = containment.payload() {
        assert!(!payload.path().parent().unwrap().exists(), "{:?}", payload.path());
    }
}

/// The daemon's side, without tokio.
struct Daemon {
    containment: Containment,
    guardian: Launched,
    next: u64,
    waiting: VecDeque<Report>,
}

struct Running {
    key: u64,
    pid: i32,
    stdout: OwnedFd,
    leaf: Option<Leaf>,
    shim: Option<OwnedFd>,
    /// By the shim, and not looked at yet.
    said: VecDeque<Report>,
}

impl Daemon {
    fn start(containment: &Containment) -> Self {
        let guardian = guardian::launch(containment, &[]).unwrap();
        let mut daemon =
            Self { containment: containment.clone(), guardian, next: 0, waiting: VecDeque::new() };
        assert_eq!(daemon.report(), Report::Ready);
        daemon
    }

    fn end(self) {
        let pid = rustix::process::Pid::from_raw(self.guardian.pid).unwrap();
        drop(self);
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(others(), [] as [String; 0], "left after the guardian's end");
    }

    fn report(&mut self) -> Report {
        if self.waiting.is_empty() {
            self.waiting.extend(read_reports(&self.guardian.control));
        }
        self.waiting.pop_front().expect("the guardian has gone")
    }

    fn send(&self, request: Request) {
        channel::send(&self.guardian.control, &request.encode(), &[]).unwrap();
    }

    /// Sends a start; the answer is the caller's to read.
    fn request(&mut self, image: &Image, folder: &str) -> Running {
        self.next += 1;
        let key = self.next;
        let (stdout, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let null = open("/dev/null");
        let folder = open(folder);
        let body = channel::body(&image.encode()).unwrap();
        let mut running =
            Running { key, pid: 0, stdout, leaf: None, shim: None, said: VecDeque::new() };
        let place = match &self.containment {
            Containment::Cgroup(payload) => {
                let leaf = payload.leaf(format!("{}-{key}", self.guardian.pid)).unwrap();
                let fd = leaf.folder().unwrap();
                running.leaf = Some(leaf);
                fd
            }
            Containment::Shim { .. } => {
                let (ours, theirs) = channel::pair().unwrap();
                running.shim = Some(ours);
                theirs
            }
            Containment::Unavailable { .. } => unreachable!(),
        };
        let fds: Vec<BorrowedFd<'_>> =
            [&body, &folder, &null, &theirs, &theirs, &place].map(AsFd::as_fd).to_vec();
        let hold = if running.shim.is_some() { Hold::Shim } else { Hold::Leaf };
        let request = Request::Start { key, hold };
        channel::send(&self.guardian.control, &request.encode(), &fds).unwrap();
        running
    }

    fn run(&mut self, line: &str) -> Running {
        let mut running = self.request(&shell(line), "/");
        assert_eq!(self.news(&mut running), Report::Executed { key: running.key }, "{line}");
        running
    }

    /// The next report of a command that is no `Started`, wherever it comes from; its key set.
    fn news(&mut self, running: &mut Running) -> Report {
        loop {
            let report = match &running.shim {
                Some(shim) => {
                    if running.said.is_empty() {
                        running.said.extend(read_reports(shim));
                    }
                    running.said.pop_front().expect("the shim has gone without a word")
                }
                None => self.report(),
            };
            match report {
                Report::Started { pid, .. } => running.pid = pid,
                Report::Executed { .. } => return Report::Executed { key: running.key },
                other => return other,
            }
        }
    }

    fn end_of(&mut self, running: &mut Running) -> (LeaderEnd, u32) {
        loop {
            match self.news(running) {
                Report::Ended { end, leftovers, .. } => return (end, leftovers),
                Report::Reached { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn kill(&self, running: &Running) {
        match (&running.leaf, &running.shim) {
            (Some(leaf), _) => assert!(leaf.kill(Duration::from_secs(60)).unwrap()),
            (None, Some(shim)) => {
                channel::send(shim, &Request::Kill { tag: 0 }.encode(), &[]).unwrap();
            }
            (None, None) => unreachable!(),
        }
    }

    /// The proof of emptiness.
    fn prove_empty(&mut self, running: &mut Running) {
        if let Some(leaf) = &running.leaf {
            assert!(leaf.wait_empty(Duration::from_secs(60)));
            self.send(Request::Reap { key: running.key });
            assert_eq!(self.news(running), Report::Reaped { key: running.key });
            running.leaf.as_ref().unwrap().remove().unwrap();
        } else {
            loop {
                match self.news(running) {
                    Report::Empty => break,
                    Report::Reached { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            let ended = |daemon: &mut Self| loop {
                match daemon.report() {
                    Report::Started { .. } => {}
                    other => return other,
                }
            };
            assert_eq!(ended(self), Report::ShimEnded { key: running.key, clean: true });
        }
    }

    fn output(running: Running) -> String {
        let mut text = String::new();
        std::fs::File::from(running.stdout).read_to_string(&mut text).unwrap();
        text
    }
}

/// Those of one datagram; none = the other side has gone.
fn read_reports(socket: &OwnedFd) -> Vec<Report> {
    loop {
        match channel::receive(socket) {
            Ok(received) => {
                let datagram = received.map_or_else(Vec::new, |got| got.bytes);
                let (mut reports, mut rest) = (Vec::new(), datagram.as_slice());
                while !rest.is_empty() {
                    let (report, behind) = Report::decode_first(rest).unwrap();
                    reports.push(report);
                    rest = behind;
                }
                return reports;
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        let woken = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&WAIT)).unwrap();
        assert_ne!(woken, 0, "no report in time; alive: {:?}", others());
    }
}

fn open(path: &str) -> OwnedFd {
    let flags = rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::RDONLY;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}

fn image(argv: &[&str]) -> Image {
    let strings = |list: &[&str]| list.iter().map(|s| CString::new(*s).unwrap()).collect();
    let path = "/usr/local/bin:/usr/bin:/bin";
    Image {
        candidates: procd_sys::image::candidates(argv[0].as_ref(), path.as_ref()).unwrap(),
        argv: strings(argv),
        envp: strings(&["PATH=/usr/local/bin:/usr/bin:/bin"]),
        options: ChildOptions { open_files_soft: Some(512), ..ChildOptions::default() },
    }
}

fn shell(line: &str) -> Image {
    image(&["/bin/sh", "-c", line])
}

/// Every process of the namespace but this one and zombies: name and pid.
fn others() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
        if pid != std::process::id() && pid != 1 && !zombie {
            found.push(stat.chars().take(40).collect());
        }
    }
    found
}

fn exit_codes_and_signals(daemon: &mut Daemon) {
    for code in 0..=255 {
        let mut running = daemon.run(&format!("exit {code}"));
        assert_eq!(daemon.end_of(&mut running).0, LeaderEnd::Code(code));
        daemon.prove_empty(&mut running);
    }
    for signal in [1, 2, 3, 6, 9, 11, 13, 15, 34, 64] {
        let mut running = daemon.run(&format!("ulimit -c 0; kill -{signal} $$"));
        let (end, _) = daemon.end_of(&mut running);
        assert_eq!(end.signal(), Some(signal), "{end:?}");
        daemon.prove_empty(&mut running);
    }
}

fn exec_failures(daemon: &mut Daemon) {
    let folder = std::env::temp_dir().join(format!("procd-sys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = folder.join("text");
    std::fs::write(&text, "no program\n").unwrap();
    let text = text.to_str().unwrap();
    let set_mode = |mode: u32| {
        std::fs::set_permissions(text, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let long = "x".repeat(200_000);
    let mut check = |argv: &[&str], folder: &str, stage: Stage, errno: i32| {
        let mut running = daemon.request(&image(argv), folder);
        match daemon.news(&mut running) {
            Report::Failed { stage: at, errno: why, .. } => {
                assert_eq!((at, why), (stage, errno), "{:?}", argv.first());
            }
            other => panic!("{other:?}"),
        }
        if running.shim.is_some() {
            let clean = loop {
                match daemon.report() {
                    Report::ShimEnded { clean, .. } => break clean,
                    Report::Started { .. } => {}
                    other => panic!("{other:?}"),
                }
            };
            assert!(clean);
        }
        if let Some(leaf) = &running.leaf {
            leaf.remove().unwrap();
        }
        assert_eq!(Daemon::output(running), "");
    };
    check(&["no-such-program-at-all"], "/", Stage::Exec, libc::ENOENT);
    set_mode(0o600);
    check(&[text], "/", Stage::Exec, libc::EACCES);
    set_mode(0o700);
    check(&[text], "/", Stage::Exec, libc::ENOEXEC);
    check(&["/bin/echo", &long], "/", Stage::Exec, libc::E2BIG);
    check(&["/bin/true"], "/dev/null", Stage::Folder, libc::ENOTDIR);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Up to the exec a child may live in the memory of its parent, which goes on beside it: each still
/// becomes what it was asked for, or fails with its own errno, and the parent keeps its OOM score.
fn many_at_once(daemon: &mut Daemon) {
    let score = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
    let before = score(daemon.guardian.pid);
    if daemon.containment.payload().is_none() {
        return;
    }
    let all: Vec<(u32, Running)> = (0..96)
        .map(|number| {
            let mut asked = match number % 3 {
                0 => image(&["no-such-program-at-all"]),
                _ => image(&["/bin/echo", &number.to_string()]),
            };
            asked.options.limits.group_memory = number % 4 == 1;
            asked.options.oom_score_adj = (number % 8 == 2).then_some(1000);
            (number, daemon.request(&asked, "/"))
        })
        .collect();
    let mut verdicts = HashMap::new();
    while verdicts.len() < all.len() {
        let report = daemon.report();
        if let Report::Executed { key } | Report::Failed { key, .. } = report {
            assert_eq!(verdicts.insert(key, report), None);
        }
    }
    assert_eq!(score(daemon.guardian.pid), before);
    for (number, running) in all {
        let (key, errno, stage) = (running.key, libc::ENOENT, Stage::Exec);
        let (verdict, output) = match number % 3 {
            0 => (Report::Failed { key, stage, errno }, String::new()),
            _ => (Report::Executed { key }, format!("{number}\n")),
        };
        assert_eq!(verdicts.get(&key), Some(&verdict));
        let leaf = running.leaf.as_ref().unwrap();
        assert!(leaf.wait_empty(Duration::from_secs(60)));
        daemon.send(Request::Reap { key });
        while daemon.report() != (Report::Reaped { key }) {}
        leaf.remove().unwrap();
        assert_eq!(Daemon::output(running), output);
    }
}

fn a_child_is_clean(daemon: &mut Daemon) {
    let line = "ls -l /proc/self/fd | wc -l; grep -E '^(SigBlk|SigIgn|NoNewPrivs)' \
                /proc/self/status; ulimit -n; umask; echo $(($(ps -o sid= -p $$) == $$)); pwd";
    let mut running = daemon.request(&shell(line), "/usr");
    assert_eq!(daemon.news(&mut running), Report::Executed { key: running.key });
    assert_eq!(daemon.end_of(&mut running).0, LeaderEnd::Code(0));
    daemon.prove_empty(&mut running);
    let text = Daemon::output(running);
    let lines: Vec<&str> = text.split_whitespace().collect();
    let zero = "0000000000000000";
    // ls itself has one more open: the folder it lists; and its first line is the total.
    assert_eq!(
        lines,
        ["5", "SigBlk:", zero, "SigIgn:", zero, "NoNewPrivs:", "1", "512", "0022", "1", "/usr"]
    );
}

fn reached(daemon: &mut Daemon) {
    let mut running = daemon.run("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done");
    let mut byte = [0];
    rustix::io::read(&running.stdout, &mut byte).unwrap();
    let signal = |daemon: &Daemon, running: &Running, tag: u8| {
        let request =
            Request::Signal { key: running.key, signal: libc::SIGTERM, tag, target: Target::Tree };
        match &running.shim {
            Some(shim) => channel::send(shim, &request.encode(), &[]).unwrap(),
            None => daemon.send(request),
        }
    };
    signal(daemon, &running, 1);
    match daemon.news(&mut running) {
        Report::Reached { tag: 1, alive: true, refused: 0, .. } => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(daemon.end_of(&mut running).0, LeaderEnd::Code(9));
    if running.shim.is_none() {
        signal(daemon, &running, 2);
        match daemon.news(&mut running) {
            Report::Reached { tag: 2, alive: false, .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(running.leaf.as_ref().unwrap().wait_empty(Duration::from_secs(60)));
    }
    daemon.prove_empty(&mut running);
}

const DETACHED: &str = "setsid sh -c '(sleep 1000 & sleep 1000) & sleep 1000 & exit' & \
                        nohup setsid sleep 1000 >/dev/null 2>&1 & \
                        (trap '' TERM INT HUP; sleep 1000) & echo up; ";

fn a_detached_tree_is_killed(daemon: &mut Daemon) {
    let before = others().len();
    let mut running = daemon.run(&format!("{DETACHED} sleep 1000"));
    let mut byte = [0];
    rustix::io::read(&running.stdout, &mut byte).unwrap();
    daemon.kill(&running);
    let (end, _) = daemon.end_of(&mut running);
    assert_eq!(end.signal(), Some(libc::SIGKILL));
    daemon.prove_empty(&mut running);
    assert_eq!(others().len(), before, "{:?}", others());
}

/// What tries to outlive its kill. Each says `u` when it is under way.
const ESCAPES: &[(&str, &str)] = &[
    ("background", "sleep 1000 & echo up; wait"),
    ("nohup", "nohup sleep 1000 >/dev/null 2>&1 & echo up; wait"),
    ("setsid", "setsid sleep 1000 & echo up; wait"),
    (
        "double fork, closed streams",
        "(setsid sh -c 'cd /tmp; exec sleep 1000' <&- >&- 2>&- &) ; echo up; sleep 1000",
    ),
    ("exec of another program", "echo up; exec sleep 1000"),
    ("chain of shells", "sh -c \"sh -c 'sh -c \\\"echo up; sleep 1000; :\\\"; :'; :\"; :"),
    ("bomb", "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; echo up; wait"),
    ("comet", "f() { f & }; f; echo up; sleep 1000"),
    ("four comets", "f() { f & }; f; f; f; f; echo up; exec sleep 1000"),
    ("stopped", "sh -c 'kill -STOP $$' & echo up; kill -STOP $$; sleep 1000"),
    (
        "killer of its parent",
        "sh -c 'sleep 0.01; kill -9 $PPID; sleep 1000' & echo up; sleep 1000; :",
    ),
    ("killer of its group", "setsid sleep 1000 & echo up; trap '' TERM; kill 0; sleep 1000"),
    (
        "ignores everything",
        "trap '' HUP INT QUIT TERM; (sleep 1000; sleep 1000) & echo up; while :; do sleep 1; done",
    ),
];

fn no_escape_survives(daemon: &mut Daemon) {
    let before = others().len();
    for (name, line) in ESCAPES {
        for _ in 0..5 {
            let mut running = daemon.run(line);
            let mut byte = [0];
            rustix::io::read(&running.stdout, &mut byte).unwrap();
            daemon.kill(&running);
            daemon.end_of(&mut running);
            daemon.prove_empty(&mut running);
            assert_eq!(others().len(), before, "{name}: {:?}", others());
        }
    }
}

fn leftovers_are_seen(daemon: &mut Daemon) {
    let mut running = daemon.run("sleep 1000 & setsid sleep 1000 & exit 3");
    let (end, leftovers) = daemon.end_of(&mut running);
    assert_eq!(end, LeaderEnd::Code(3));
    let leftovers = running.leaf.as_ref().map_or(leftovers, |leaf| {
        u32::try_from(leaf.members().iter().filter(|&&pid| pid != running.pid).count()).unwrap()
    });
    assert_eq!(leftovers, 2);
    daemon.kill(&running);
    daemon.prove_empty(&mut running);
}

fn the_end_of_the_daemon_ends_everything(mut daemon: Daemon) {
    let mut running = Vec::new();
    let bomb = ESCAPES.iter().find(|(name, _)| *name == "bomb").unwrap().1;
    let comets = ESCAPES.iter().find(|(name, _)| *name == "four comets").unwrap().1;
    let detached = format!("{DETACHED} sleep 1000");
    for line in [bomb, comets, &detached, &detached, &detached] {
        let one = daemon.run(line);
        let mut byte = [0];
        rustix::io::read(&one.stdout, &mut byte).unwrap();
        running.push(one);
    }
    assert!(others().len() > 20, "{:?}", others());
    let outputs: Vec<OwnedFd> = running.into_iter().map(|one| one.stdout).collect();
    daemon.end();
    drop(outputs);
}

/// Daemon and guardian die at once: the leaders go with the guardian, the rest stays for a sweep
/// that must touch nothing of another state folder.
fn the_next_start_sweeps(options: &ContainmentOptions) {
    let containment = establish(options).containment;
    let mut daemon = Daemon::start(&containment);
    let running = daemon.run(&format!("{DETACHED} sleep 1000"));
    let mut byte = [0];
    rustix::io::read(&running.stdout, &mut byte).unwrap();
    let guardian = rustix::process::Pid::from_raw(daemon.guardian.pid).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(guardian), rustix::process::WaitOptions::empty()).unwrap();
    assert!(!others().is_empty());
    let mut next = options.clone();
    next.folder_id = mint();
    let stranger = establish(&next);
    assert_eq!(stranger.swept.removed, [] as [String; 0]);
    assert!(stranger.containment.payload().unwrap().remove().is_ok());
    assert!(!others().is_empty());
    next.folder_id.clone_from(&options.folder_id);
    next.instance = "next".to_owned();
    let own = establish(&next);
    assert_eq!(own.swept.removed.len(), 1, "{:?}", own.swept);
    assert_eq!(others(), [] as [String; 0]);
    guardian::reap_adopted();
    assert!(own.containment.payload().unwrap().remove().is_ok());
}

fn a_killed_shim_is_reported() {
    let mut daemon = Daemon::start(&contain(Mode::Shim).1);
    let running = daemon.request(&shell(&format!("{DETACHED} sleep 1000")), "/");
    let Report::Started { pid, .. } = daemon.report() else { panic!("not started") };
    let mut byte = [0];
    rustix::io::read(&running.stdout, &mut byte).unwrap();
    let shim = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    assert_eq!(daemon.report(), Report::ShimEnded { key: running.key, clean: false });
    assert_eq!(others().len(), 1, "{:?}", others());
    assert_eq!(daemon.containment.tier(), Some(Tier::Shim));
    daemon.end();
}
