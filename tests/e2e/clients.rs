//! The Rust client against the real daemon: its story, cut at every frame; restarts; slow readers.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use procd_client::protocol::ErrorCode;
use procd_client::protocol::v1::{ListParams, OutputParams, ProcessState, Wait, WaitWord};
use procd_client::{Connect, End, Session};
use procd_tests::cutter::{Cut, Cutter, Seen};
use procd_tests::wait::STEP;
use procd_tests::{Daemon, Setup, Tier, binaries, run};

/// The example itself: what it shows has to hold with the connection cut anywhere.
#[path = "../../crates/procd-client/examples/story.rs"]
#[expect(dead_code, reason = "the main of the example")]
mod story;

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(4 * STEP, future).await.expect("in time") })
}

async fn session(daemon: &Daemon) -> Session {
    let connect = Connect::new().socket(daemon.socket()).reconnect_time(STEP);
    Session::open(connect.connect().await.unwrap()).await.unwrap()
}

const OUTPUT: &str = "listening on port 8080\nhello\nbye\n";

#[test]
fn the_story_runs_as_its_example_says() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut example = daemon.command("examples/story");
    example.current_dir(daemon.cwd());
    let told = run::start(example).finish(run::LONG).success();
    let (answer, rest) = told.split_once('\n').unwrap();
    let (completion, rest) = rest.split_once('\n').unwrap();
    assert_eq!(answer, "hello");
    assert!(completion.ends_with(" terminated"), "{told}");
    assert_eq!(rest, format!("{OUTPUT}---\n{OUTPUT}"));
}

#[test]
fn the_examples_of_the_documents_are_those_that_run() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let page = read("docs/clients-rust.md");
    let shown: Vec<_> = page.split("```rust\n").skip(1).collect();
    let names = ["budget", "server", "come_back"];
    assert_eq!(shown.len(), names.len());
    let daemon = Setup::new(Tier::Shim).start();
    for (name, shown) in names.into_iter().zip(shown) {
        let source = read(&format!("crates/procd-client/examples/{name}.rs"));
        let lines = source.lines().filter(|line| !line.starts_with("//! "));
        let code: Vec<_> = lines.filter(|line| !line.starts_with("#![")).collect();
        assert_eq!(shown.split("```").next().unwrap().trim(), code.join("\n").trim(), "{name}");
        let prints = code.iter().filter_map(|line| line.strip_prefix("// prints: "));
        let mut example = daemon.command(&format!("examples/{name}"));
        example.current_dir(daemon.cwd());
        let told = run::start(example).finish(run::LONG).success();
        assert_eq!(told.lines().collect::<Vec<_>>(), prints.collect::<Vec<_>>(), "{name}");
    }
}

/// The story with the connection cut there: nothing lost, nothing doubled.
async fn story_with(daemon: &Daemon, path: PathBuf, cut: Cut) -> Seen {
    let cutter = Cutter::start(&path, &daemon.socket(), cut);
    let connect = Connect::new().socket(&path).reconnect_time(STEP);
    let outcome = story::story(connect).await;
    let (session, told, exported) = outcome.map_err(|error| (error, cutter.seen())).unwrap();
    let seen = cutter.seen();
    let case = format!("{cut:?} {:?}", seen.cut);
    let mut lines = told.splitn(3, '\n');
    assert_eq!(lines.next(), Some("hello"), "{case}");
    assert!(lines.next().unwrap().ends_with(" terminated"), "{case}: {told}");
    assert_eq!(lines.next(), Some(OUTPUT), "{case}");
    assert_eq!(exported, OUTPUT, "{case}");
    // One process was started, whatever became of the answer.
    let records = session.list_all(ListParams::default()).await.unwrap();
    assert_eq!(records.len(), 1, "{case}");
    // Its completion was told and taken: the next one told is that of the next process.
    let next = session.command("true").start().await.unwrap();
    let mut completions = session.notifications().await.unwrap();
    assert_eq!(completions.next().await.unwrap().process_id, next.id(), "{case}");
    session.close(None).await.unwrap();
    seen
}

#[test]
fn a_connection_cut_at_any_frame_of_the_story_loses_and_doubles_nothing() {
    let daemon = Setup::new(Tier::Shim).start();
    let path = |name: &str| daemon.path().join(name);
    let whole = block(story_with(&daemon, path("whole"), Cut::Never));
    assert!(whole.requests > 12 && whole.answers > 12, "{whole:?}");
    let requests = (1..=whole.requests).map(Cut::Request);
    let mut cuts = 0;
    for cut in requests.chain((1..=whole.answers).map(Cut::Answer)) {
        let (Cut::Request(at) | Cut::Answer(at)) = cut else { continue };
        let kind = if matches!(cut, Cut::Request(_)) { 'r' } else { 'a' };
        let seen = block(story_with(&daemon, path(&format!("{kind}{at}")), cut));
        cuts += usize::from(seen.cut.is_some());
    }
    // A run may need a frame less than the first one did.
    assert!(cuts * 10 > (whole.requests + whole.answers) * 8, "{cuts} cuts");
    println!("{cuts} cuts over {} requests and {} answers", whole.requests, whole.answers);
}

#[test]
fn a_start_in_the_foreground_whose_answer_is_lost_runs_once_and_gives_its_end() {
    let daemon = Setup::new(Tier::Shim).start();
    block(async {
        let path = daemon.path().join("cut");
        // The answers to hello, open, and the start.
        let cutter = Cutter::start(&path, &daemon.socket(), Cut::Answer(3));
        let connect = Connect::new().socket(&path).reconnect_time(STEP);
        let session = Session::open(connect.connect().await.unwrap()).await.unwrap();
        let count = daemon.cwd().join("count");
        let line = format!("echo once >>{}; exit 3", count.display());
        let process = session.shell(line).start().await.unwrap();
        assert!(cutter.seen().cut.is_some());
        assert_eq!(End::of(&process.reply().unwrap().page), Some(End::Exited { code: 3 }));
        assert_eq!(std::fs::read_to_string(count).unwrap(), "once\n");
        session.close(None).await.unwrap();
    });
}

#[test]
fn input_that_may_have_arrived_is_told_and_never_sent_again() {
    let daemon = Setup::new(Tier::Shim).start();
    let told = |name: &str, is_lost: bool| {
        block(async {
            let direct = session(&daemon).await;
            let line = r#"while read -r line; do echo "got $line"; done"#;
            let echo = direct.shell(line).background().start().await.unwrap();
            // hello, attach, input: cut there, or at its answer.
            let cut = if is_lost { Cut::Request(3) } else { Cut::Answer(3) };
            let path = daemon.path().join(name);
            let _cutter = Cutter::start(&path, &daemon.socket(), cut);
            let connect = Connect::new().socket(&path).reconnect_time(STEP);
            let credentials = direct.credentials().clone();
            let client = connect.connect().await.unwrap();
            let other = Session::attach(client, credentials).await.unwrap();
            let error = other.process(echo.id()).write("x\n").await.unwrap_err();
            assert!(error.is_disconnected(), "{error}");
            // Whatever arrived came before this.
            echo.write_last("end\n").await.unwrap();
            assert_eq!(echo.end().await.unwrap(), End::Exited { code: 0 });
            let page = echo.output(OutputParams::default()).await.unwrap();
            direct.close(None).await.unwrap();
            page.output.unwrap()
        })
    };
    assert_eq!(told("lost", true), "got end\n");
    assert_eq!(told("done", false), "got x\ngot end\n");
}

#[test]
fn a_restart_of_the_daemon_is_a_typed_end_to_every_call_that_waits() {
    let mut daemon = Setup::new(Tier::Shim).start();
    block(async {
        let session = session(&daemon).await;
        let mut completions = session.notifications().await.unwrap();
        let mut events = session.events().from(1).subscribe().await.unwrap();
        let start = |text| session.shell(text).background().start();
        let process = start("echo here; sleep 600").await.unwrap();
        process.wait_for("here").await.unwrap();
        let waiting = process.clone();
        let waiting = tokio::spawn(async move { waiting.end().await });
        let (following, mut text) = (process.clone(), String::new());
        let following = tokio::spawn(async move {
            let mut follow = following.follow();
            let mut last = None;
            while let Some(page) = follow.next().await? {
                text += page.output.as_deref().unwrap_or_default();
                last = End::of(&page);
            }
            Ok::<_, procd_client::ClientError>((text, last))
        });
        let succeeding = session.shell("sleep 600").require_success().request_key("once");
        let succeeding = tokio::spawn(async move { succeeding.start().await });
        let running = Some(ProcessState::Running);
        let running = ListParams { state: running, ..ListParams::default() };
        while session.list(&running).await.unwrap().records.len() < 2 {
            tokio::task::yield_now().await;
        }
        daemon.kill();
        daemon.restart();
        assert_eq!(waiting.await.unwrap().unwrap(), End::LostOnRestore);
        let (text, last) = following.await.unwrap().unwrap();
        assert_eq!((text.as_str(), last), ("here\n", Some(End::LostOnRestore)));
        let error = succeeding.await.unwrap().unwrap_err();
        assert!(error.is(ErrorCode::LostOnRestore), "{error:?}");
        // Each lost end is told once, and the journal goes on by its numbers.
        for _ in 0..2 {
            let end = completions.next().await.unwrap();
            assert_eq!(end.state.as_str(), "lost_on_restore");
            completions.accept(&end).await.unwrap();
        }
        let (mut numbers, mut lost) = (Vec::new(), 0);
        while lost < 2 {
            let numbered = events.next().await.unwrap();
            assert!(!numbered.gap);
            numbers.push(numbered.seq);
            lost += usize::from(numbered.event.kind.as_str() == "lost");
        }
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        session.close(None).await.unwrap();
    });
}

#[test]
fn a_slow_taker_of_a_follow_holds_one_page() {
    const BYTES: u64 = 20_000_000;
    const PAGE: u64 = 64 * 1024;
    let daemon = Setup::new(Tier::Shim).start();
    block(async {
        let path = daemon.path().join("cut");
        let cutter = Cutter::start(&path, &daemon.socket(), Cut::Never);
        let slow = Session::open(Connect::new().socket(&path).connect().await.unwrap());
        let slow = slow.await.unwrap();
        let writer = slow.command(binaries::probe()).args(["write", &BYTES.to_string()]);
        let writer = writer.background().start().await.unwrap();
        let mut follow = writer.follow().limit_bytes(PAGE);
        let mut taken = follow.next().await.unwrap().unwrap().next_cursor;
        // The other one waits for the end meanwhile: the writer waits for nobody.
        let direct = Connect::new().socket(daemon.socket()).connect().await.unwrap();
        let direct = Session::attach(direct, slow.credentials().clone()).await.unwrap();
        let end = direct.process(writer.id()).end().await.unwrap();
        assert_eq!(end, End::Exited { code: 0 });
        let passed = cutter.seen().answer_bytes as u64;
        assert!(passed < 3 * PAGE, "{passed} bytes are on the way to a client that took {taken}");
        while let Some(page) = follow.next().await.unwrap() {
            assert!(!page.gap && page.start_cursor == taken);
            taken = page.next_cursor;
        }
        assert_eq!(taken, BYTES);
        slow.close(None).await.unwrap();
    });
}

#[test]
fn a_cancelled_wait_leaves_the_process_and_a_cancelled_start_stops_it() {
    let daemon = Setup::new(Tier::Shim).start();
    block(async {
        let session = session(&daemon).await;
        let process = session.command("sleep").arg("600").background().start().await.unwrap();
        let never = tokio::time::timeout(Duration::from_millis(50), process.wait()).await;
        assert!(never.is_err());
        let start = session.command("sleep").arg("600").label("dropped").start();
        let listed = ListParams { label: Some("dropped".to_owned()), ..ListParams::default() };
        let runs = async {
            while session.list(&listed).await.unwrap().records.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            started = start => panic!("answered: {started:?}"),
            () = runs => {}
        }
        let dropped = session.list(&listed).await.unwrap().records[0].process_id;
        assert_eq!(session.process(dropped).end().await.unwrap(), End::Terminated);
        let wait = Some(Wait::Simple(WaitWord::Poll));
        let page = process.output(OutputParams { wait, ..OutputParams::default() }).await.unwrap();
        assert_eq!(End::of(&page), None);
        session.close(None).await.unwrap();
    });
}
