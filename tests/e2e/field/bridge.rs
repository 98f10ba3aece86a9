//! The MCP bridge beside clients, daemons and wrappers that go or stand still.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use procd_tests::{
    Daemon, Setup, Tier, binaries, leaks,
    run::{self, rounds},
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::pid_of;

/// A bridge that has said hello to its client, which is the test.
pub(super) struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    early: Vec<Value>,
    asked: u64,
}

fn command(daemon: &Daemon, more: &[&str]) -> Command {
    let mut command = binaries::command(binaries::path("procd-mcp"));
    command.args(["--session-file"]).arg(daemon.path().join("session.json")).args(more);
    command
        .envs(daemon.places())
        .env("PROCD_DAEMON", binaries::path("procd"))
        .current_dir(daemon.cwd());
    command
}

impl Bridge {
    pub(super) fn start(daemon: &Daemon, more: &[&str]) -> Self {
        let mut command = command(daemon, more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::sync_channel(64);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut bridge = Self { child, stdin, lines, early: Vec::new(), asked: 0 };
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}});
        let id = bridge.ask("initialize", about);
        assert_eq!(bridge.answer(id)["result"]["serverInfo"]["name"], "procd-mcp");
        bridge.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        bridge
    }

    fn say(&mut self, value: &Value) {
        self.say_anything(&value.to_string());
    }

    pub(super) fn say_anything(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.early.iter().position(|line| line["id"] == id) {
            return self.early.remove(at);
        }
        loop {
            let line = self.lines.recv_timeout(wait::STEP).expect("an answer of the bridge");
            if line["id"] == id {
                return line;
            }
            self.early.push(line);
        }
    }

    /// Asks for a tool, and goes on.
    pub(super) fn ask_tool(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The result of a tool: what programs read of it, or what is told of a failure.
    pub(super) fn result(&mut self, id: u64) -> Result<Value, String> {
        let mut answer = self.answer(id);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        if answer["result"]["isError"] == true {
            return Err(text);
        }
        Ok(answer["result"]["structuredContent"].take())
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let id = self.ask_tool(tool, arguments);
        self.result(id)
    }

    fn start_sleeper(&mut self) -> String {
        let started =
            self.call("Bash", json!({"command": "sleep 600", "background": true})).unwrap();
        started["process_id"].as_str().unwrap().to_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    fn ends(&mut self) {
        wait::until("the bridge ends", wait::STEP, || self.child.try_wait().unwrap());
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// C161: a bridge whose client is gone ends, by its stdin or by its stdout; what it started lives on.
#[test]
fn a_bridge_without_a_client_ends_and_its_processes_live_on() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut bridge = Bridge::start(&daemon, &[]);
    let process = bridge.start_sleeper();
    bridge.stdin = None;
    bridge.ends();
    // Nobody reads what it says: found out by the next answer.
    let mut command = command(&daemon, &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let mut stdin = child.stdin.take().unwrap();
    let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}});
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    )
    .unwrap();
    wait::until("the bridge ends", wait::STEP, || child.try_wait().unwrap());
    drop(stdin);
    let mut operator = daemon.operator();
    let shown = operator.ok("process/inspect", json!({"process_id": process}));
    assert_eq!(shown["record"]["state"], "running", "{shown}");
    operator.ok("process/stop", json!({"process_id": process, "mode": "kill"}));
}

/// C162: clients that are killed while a wrapper holds the pipe a while leave no bridge once that has ended.
#[test]
fn bridges_of_killed_clients_go_when_their_wrappers_do() {
    let daemon = Setup::new(Tier::Shim).start();
    let bridge = binaries::path("procd-mcp").to_string_lossy().into_owned();
    for _ in 0..rounds(2).min(40) {
        let mut clients: Vec<_> = (0..6)
            .map(|_| {
                let mut client = daemon.command("sh");
                client.args(["-c", "sleep 1 | \"$0\"; :", &bridge]).current_dir(daemon.cwd());
                run::start(client)
            })
            .collect();
        let bridges = || {
            leaks::processes(daemon.path())
                .into_iter()
                .filter(|line| line.contains(&bridge) && !line.contains("sleep"))
                .count()
        };
        wait::until_true("the bridges are up", wait::STEP, || bridges() > 0);
        for client in &mut clients {
            client.child.kill().unwrap();
            client.child.wait().unwrap();
        }
        wait::until_true("no bridge is left", wait::STEP, || bridges() == 0);
    }
}

/// C147: a bridge that stands still is replaced by another, which finds what it had; a daemon that stands still makes each call an
/// error in its time; a daemon that was killed costs what ran and nothing else.
#[test]
fn a_bridge_or_a_daemon_that_stands_still_holds_nobody_up() {
    let mut daemon = Setup::new(Tier::Shim).start();
    let mut first = Bridge::start(&daemon, &["--no-private-daemon"]);
    let process = first.start_sleeper();
    kill_process(first.pid(), Signal::STOP).unwrap();
    let began = wait::now();
    let mut second = Bridge::start(&daemon, &["--answer-time", "1", "--no-private-daemon"]);
    let listed = second.call("ProcessList", json!({})).unwrap();
    println!("another bridge serves after {:?}", began.elapsed());
    assert_eq!(listed["processes"][0]["process_id"], process.as_str(), "{listed}");
    kill_process(pid_of(&daemon), Signal::STOP).unwrap();
    let began = wait::now();
    let ask = json!({"process_id": process, "wait": "any", "timeout_ms": 10});
    let told = second.call("ProcessOutput", ask.clone()).unwrap_err();
    let took = began.elapsed();
    kill_process(pid_of(&daemon), Signal::CONT).unwrap();
    assert!(told.contains("gave no answer"), "{told}");
    assert!(took >= Duration::from_secs(1) && took < wait::STEP, "{took:?}");
    assert_eq!(second.call("ProcessOutput", ask).unwrap()["results"][0]["state"], "running");
    daemon.kill();
    daemon.restart();
    // A bridge that is replaced at the same moment, as well as one that lived through it.
    kill_process(first.pid(), Signal::KILL).unwrap();
    for bridge in [&mut second, &mut Bridge::start(&daemon, &["--no-private-daemon"])] {
        let read = bridge.call("ProcessOutput", json!({"process_id": process})).unwrap();
        assert_eq!(read["results"][0]["state"], "lost_on_restore", "{read}");
    }
}
