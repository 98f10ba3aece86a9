//! The runner with real processes, both tiers, in a PID namespace of its own. This binary has its
//! own main, since it is also the guardian it starts.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test without the harness: a panic is its failure, stdout its report"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use procd::drain::{Budgets, DrainOptions, Drains, Output};
use procd::process::environment::EnvironmentOptions;
use procd::process::{RealRunner, RunnerOptions};
use procd::supervisor::runner::{
    AskedLimits, AskedShell, Given, Guard, LossCause, Order, Program, Report, ReportSender, Runner,
    Running, SpawnCause, StartContext, StartRequest, StdinMode,
};
use procd_core::life::{Request, TreeSignal};
use procd_core::settings::{GivenLimits, Limits};
use procd_core::{Handle, LeaderEnd, LoopId, Owner, SessionId};
use procd_sys::containment::{Containment, ContainmentOptions, Mode, establish};
use procd_sys::guardian::{self, Launched};
use procd_sys::image::ChildOptions;
use tokio::sync::mpsc;
use uuid::Uuid;

const INSIDE: &str = "--inside";
/// What any step may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

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
    match arguments.get(1).and_then(|mode| mode.to_str()) {
        Some(INSIDE) => {
            run_all();
            ExitCode::SUCCESS
        }
        _ => enter_namespace(),
    }
}

/// Runs this binary again where a mistake can hurt nobody.
#[expect(clippy::disallowed_methods, reason = "a test starts its own throwaway namespace")]
fn enter_namespace() -> ExitCode {
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
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

fn run_all() {
    for mode in [Mode::Cgroup, Mode::Shim] {
        let options = ContainmentOptions {
            mode,
            require_atomic: false,
            cgroup_root: None,
            folder_id: format!("runner-test-{}", Uuid::new_v4()),
            instance: "1".to_owned(),
        };
        let containment = establish(&options).containment;
        if let Containment::Unavailable { reason } = &containment {
            println!("SKIPPED: {mode:?}: {reason}");
            continue;
        }
        // Before any thread.
        let launched = guardian::launch(&containment, &[]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = std::env::temp_dir().join(format!("procd-runner-{}", Uuid::new_v4()));
        let inside = containment.clone();
        let path = folder.clone();
        runtime.block_on(async move {
            let harness = Harness::new(inside, launched, path);
            println!("{mode:?}");
            all(&harness).await;
        });
        drop(runtime);
        assert!(containment.finish(DEADLINE));
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        assert_eq!(others(), [] as [String; 0]);
    }
}

async fn all(harness: &Harness) {
    output_and_code_come_back(harness).await;
    both_streams_and_merged_ones(harness).await;
    failures_have_their_cause(harness).await;
    input_reaches_the_command(harness).await;
    terminate_reaches_the_whole_tree(harness).await;
    a_stubborn_tree_is_killed(harness).await;
    leftovers_are_counted_and_ended(harness).await;
    an_abort_ends_in_nothing_or_in_the_truth(harness).await;
    many_at_once(harness).await;
    a_dead_guardian_loses_its_processes_and_is_replaced(harness).await;
}

/// What a test of one process has in hand.
struct Process {
    running: Running,
    output: Output,
    reports: mpsc::Receiver<(Handle, Report)>,
}

struct Harness {
    runner: RealRunner,
    folder: PathBuf,
}

impl Harness {
    fn new(containment: Containment, launched: Launched, folder: PathBuf) -> Self {
        let (limits, _) = Limits::effective(&GivenLimits::default()).unwrap();
        let options = RunnerOptions {
            state_folder: folder.join("state"),
            isolation: None,
            limits: Arc::new(limits),
            environment: EnvironmentOptions {
                inherited: vec![("HOME".into(), "/".into()), ("LEAK".into(), "leak".into())],
                ..EnvironmentOptions::default()
            },
            shell: Some("/bin/sh".into()),
            child: ChildOptions::default(),
        };
        let drains = Arc::new(Drains::new(1).unwrap());
        let runner = RealRunner::new(options, containment, launched, Vec::new(), drains).unwrap();
        Self { runner, folder }
    }

    async fn start(&self, request: StartRequest) -> Process {
        let (plan, _facts) = self.runner.prepare(&request).await.unwrap();
        let handle = Handle::from_bytes(*Uuid::new_v4().as_bytes());
        let (to, reports) = mpsc::channel(64);
        let (output, writer) = Output::create(
            self.folder.join(handle.to_string()),
            DrainOptions {
                memory_bytes: 1 << 20,
                spool_bytes: 1 << 20,
                boot_id: Uuid::new_v4(),
                budgets: Budgets::unlimited(),
                news: None,
            },
        );
        let owner = Owner {
            session: SessionId::new(Uuid::new_v4()).unwrap(),
            loop_id: LoopId::new(Uuid::new_v4()).unwrap(),
        };
        let reports_to = ReportSender::new(handle, to);
        let context = StartContext { handle, owner, writer, reports: reports_to };
        Process { running: self.runner.start(plan, context), output, reports }
    }

    async fn run(&self, line: &str) -> Process {
        let mut process = self.start(request(line)).await;
        match process.report().await {
            Report::Spawned { pid } => assert!(pid > 1),
            other => panic!("{line}: {other:?}"),
        }
        process
    }
}

impl Process {
    async fn report(&mut self) -> Report {
        match tokio::time::timeout(DEADLINE, self.reports.recv()).await {
            Ok(report) => report.unwrap().1,
            Err(_) => panic!("no report in time; alive: {:?}", others()),
        }
    }

    async fn ended(&mut self) -> (LeaderEnd, u32) {
        match self.report().await {
            Report::LeaderEnded { leader, leftovers } => (leader, leftovers),
            other => panic!("{other:?}"),
        }
    }

    async fn empty(&mut self) {
        match self.report().await {
            Report::TreeEmpty(end) => assert!(end.signal_errors.is_empty(), "{end:?}"),
            other => panic!("{other:?}"),
        }
        assert!(self.output.bounds().complete);
        assert!(self.running.inspector.look().is_none());
    }

    async fn reached(&mut self, request: Request) -> bool {
        match self.report().await {
            Report::Reached { request: of, alive, errors } => {
                assert_eq!(of, request);
                assert_eq!(errors, []);
                alive
            }
            other => panic!("{other:?}"),
        }
    }

    async fn text(&self) -> String {
        let bounds = self.output.bounds();
        let page = self.output.read(bounds.retained_from, 1 << 20).await.unwrap();
        String::from_utf8_lossy(&page.bytes).into_owned()
    }

    /// Waits until that many descendants live.
    async fn grows_to(&self, live: u32) {
        let grown = async {
            while self.running.inspector.look().unwrap().live_descendants < live {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, grown).await.is_ok(), "never grew to {live}");
    }

    /// Waits until the output holds `text`.
    async fn says(&self, text: &str) {
        let said = async {
            loop {
                let grown = self.output.listen();
                if self.text().await.contains(text) {
                    return;
                }
                grown.await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, said).await.is_ok(), "never said {text}");
    }
}

const fn given(bytes: &[u8], eof: bool) -> Given<'_> {
    Given { bytes, keys: &[], eof, size: None }
}

fn request(line: &str) -> StartRequest {
    StartRequest {
        program: Program::Line(line.into()),
        cwd: Some("/".into()),
        env: Vec::new(),
        umask: None,
        stdin: StdinMode::Null,
        tty: None,
        merge_streams: false,
        timeout: None,
        memory_bytes: None,
        spool_bytes: None,
        label: None,
        origin: None,
        background: false,
        on_leader_exit: procd_core::OnLeaderExit::KillTree,
        queue_timeout: Duration::ZERO,
        key: None,
        claim: None,
        workspaces: Vec::new(),
        isolate: false,
        allow_client: false,
        shell: AskedShell::default(),
        limits: AskedLimits::default(),
        fence: None,
        guard: Guard::Off,
    }
}

/// Every live process of the namespace but this one, the guardian aside.
fn others() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
        if pid != 1 && !zombie && !stat.contains("(procd-guardian)") {
            found.push(stat.chars().take(40).collect());
        }
    }
    found
}

async fn output_and_code_come_back(harness: &Harness) {
    let line = "echo out; echo \"$LEAK|$HOME|$PATH\" >&2; exit 7";
    let mut process = harness.run(line).await;
    assert_eq!(process.ended().await, (LeaderEnd::Code(7), 0));
    process.empty().await;
    let text = process.text().await;
    assert!(text.contains("out\n") && text.contains("|/|/usr/local/bin:/usr/bin:/bin\n"), "{text}");
    for _ in 0..50 {
        let mut process = harness.start(request("printf x")).await;
        while !matches!(process.report().await, Report::TreeEmpty(_)) {}
        assert_eq!(process.text().await, "x");
    }
}

async fn both_streams_and_merged_ones(harness: &Harness) {
    let mut merged = request("for i in 1 2 3; do echo $i; echo $i >&2; done");
    merged.merge_streams = true;
    let mut process = harness.start(merged).await;
    while !matches!(process.report().await, Report::TreeEmpty(_)) {}
    assert_eq!(process.text().await, "1\n1\n2\n2\n3\n3\n");
}

async fn failures_have_their_cause(harness: &Harness) {
    let mut check = Vec::new();
    let argv = |words: &[&str]| Program::Argv(words.iter().map(OsString::from).collect());
    let with = |program: Program, cwd: &str| {
        let mut request = request("");
        request.program = program;
        request.cwd = Some(cwd.into());
        request
    };
    check.push((with(argv(&["no-such-program"]), "/"), SpawnCause::NoSuchProgram));
    check.push((with(argv(&["/etc"]), "/"), SpawnCause::NotExecutable));
    check.push((with(argv(&["true"]), "/no/such"), SpawnCause::CwdMissing));
    check.push((with(argv(&["true"]), "/dev/null"), SpawnCause::CwdNotDirectory));
    let long = "x".repeat(200_000);
    check.push((with(argv(&["true", &long]), "/"), SpawnCause::ArgumentListTooLong));
    for (request, cause) in check {
        let mut process = harness.start(request).await;
        match process.report().await {
            Report::SpawnFailed(failure) => assert_eq!(failure.cause, cause),
            other => panic!("{other:?}"),
        }
        assert!(process.output.bounds().complete);
    }
    assert_eq!(others(), [] as [String; 0]);
}

async fn input_reaches_the_command(harness: &Harness) {
    let mut request = request("cat; echo end");
    request.stdin = StdinMode::Pipe;
    let mut process = harness.start(request).await;
    let input = process.running.input.clone().unwrap();
    input.push(given(b"one ", false)).unwrap();
    input.push(given(b"two ", true)).unwrap();
    input.flushed().await;
    assert!(matches!(process.report().await, Report::Spawned { .. }));
    assert_eq!(process.ended().await.0, LeaderEnd::Code(0));
    process.empty().await;
    assert_eq!(process.text().await, "one two end\n");
    assert!(input.push(given(b"x", false)).is_err());
}

const TREE: &str = "setsid sleep 1000 & sh -c 'sleep 1000 & sleep 1000' & ";

async fn terminate_reaches_the_whole_tree(harness: &Harness) {
    let mut process = harness.run(&format!("{TREE} echo up; wait")).await;
    process.says("up").await;
    let orders = Arc::clone(&process.running.orders);
    orders.push(Order::Signal(TreeSignal::Terminate, Request::Terminate));
    assert!(process.reached(Request::Terminate).await);
    assert_eq!(process.ended().await.0.signal(), Some(15));
    process.empty().await;
    assert_eq!(others(), [] as [String; 0]);
}

async fn a_stubborn_tree_is_killed(harness: &Harness) {
    let line = format!("trap '' TERM INT; {TREE} echo up; while :; do sleep 1000; done");
    let mut process = harness.run(&line).await;
    process.says("up").await;
    process.grows_to(4).await;
    let orders = Arc::clone(&process.running.orders);
    orders.push(Order::Signal(TreeSignal::Interrupt, Request::Interrupt));
    assert!(process.reached(Request::Interrupt).await);
    orders.push(Order::Kill(Some(Request::Kill)));
    let mut is_answered = false;
    loop {
        match process.report().await {
            Report::Reached { request: Request::Kill, .. } => is_answered = true,
            Report::LeaderEnded { leader, .. } => assert_eq!(leader.signal(), Some(9)),
            Report::TreeEmpty(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(is_answered);
    assert_eq!(others(), [] as [String; 0]);
}

async fn leftovers_are_counted_and_ended(harness: &Harness) {
    let mut process = harness.run("sleep 600 & setsid sleep 600 & echo done").await;
    assert_eq!(process.ended().await, (LeaderEnd::Code(0), 2));
    // What the leader wrote is there when its end is told.
    assert_eq!(process.text().await, "done\n");
    process.running.orders.push(Order::TerminateLeftovers);
    process.empty().await;
    let mut process = harness.run("(trap '' TERM; sleep 600) & echo done").await;
    assert_eq!(process.ended().await, (LeaderEnd::Code(0), 1));
    process.running.orders.push(Order::TerminateLeftovers);
    process.running.orders.push(Order::Kill(None));
    process.empty().await;
    assert_eq!(others(), [] as [String; 0]);
}

async fn an_abort_ends_in_nothing_or_in_the_truth(harness: &Harness) {
    let (mut aborted, mut spawned) = (0, 0);
    for round in 0..200_u64 {
        let mut process = harness.start(request("exit 3")).await;
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(round * 20)).await;
        }
        process.running.orders.push(Order::AbortSpawn);
        match process.report().await {
            Report::Aborted => aborted += 1,
            Report::Spawned { .. } => {
                spawned += 1;
                assert_eq!(process.ended().await.0, LeaderEnd::Code(3));
                process.empty().await;
            }
            other => panic!("{other:?}"),
        }
        assert!(process.output.bounds().complete);
    }
    println!("  aborted {aborted}, spawned {spawned}");
    assert_eq!(others(), [] as [String; 0]);
}

async fn many_at_once(harness: &Harness) {
    let before = count_descriptors();
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(
            harness.start(request("sleep 1000 & echo a; ls /proc/self/fd | wc -l; wait")).await,
        );
    }
    for process in &mut all {
        assert!(matches!(process.report().await, Report::Spawned { .. }));
        process.says("4\n").await;
        process.running.orders.push(Order::Kill(Some(Request::Kill)));
    }
    for process in &mut all {
        while !matches!(process.report().await, Report::TreeEmpty(_)) {}
    }
    drop(all);
    assert_eq!(others(), [] as [String; 0]);
    assert!(count_descriptors() <= before + 2, "{before} -> {}", count_descriptors());
}

fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn a_dead_guardian_loses_its_processes_and_is_replaced(harness: &Harness) {
    let mut first = harness.run(&format!("{TREE} echo up; sleep 1000")).await;
    let mut second = harness.run("trap '' TERM; sleep 1000").await;
    first.says("up").await;
    let old = harness.runner.guardian_pid().unwrap();
    let pid = rustix::process::Pid::from_raw(old).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    for process in [&mut first, &mut second] {
        match process.report().await {
            Report::Lost(cause) => assert_eq!(cause, LossCause::GuardianLost),
            other => panic!("{other:?}"),
        }
        assert!(process.output.bounds().complete);
    }
    // The new guardian has another name before it has its own.
    let alive: Vec<String> = others().into_iter().filter(|stat| !stat.contains("(exe)")).collect();
    assert_eq!(alive, [] as [String; 0]);
    let mut third = harness.run("exit 4").await;
    assert_eq!(third.ended().await.0, LeaderEnd::Code(4));
    third.empty().await;
    assert_ne!(harness.runner.guardian_pid(), Some(old));
}
