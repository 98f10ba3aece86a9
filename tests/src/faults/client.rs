//! One client of the load: a loop of its own, its events and its notifications.

use std::{path::PathBuf, sync::Arc, sync::atomic::Ordering};

use serde_json::{Value, json};

use super::{
    load::{Fact, Keyed, Loop, Shared, connect},
    seed::Seed,
};
use crate::{Owner, binaries};

/// Processes that one client leaves running, a count.
const RUNNING_MAX: usize = 3;
/// How long a start waits for room, milliseconds.
const QUEUE_MS: u64 = 150;
/// What a client may be refused while it competes with the others.
const EXPECTED: &[&str] = &["spawn_failed", "supervisor_shutting_down"];
/// And where it asks for a workspace, room, or a record that may be evicted meanwhile.
const CONTENDED: &[&str] = &["workspace_busy", "process_quota_exceeded", "not_found"];

/// One client of one loop.
pub(super) struct Client {
    pub(super) session: usize,
    pub(super) opened: Value,
    pub(super) socket: PathBuf,
    pub(super) cwd: PathBuf,
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
    pub(super) seed: Seed,
}

/// Its connection.
struct Line {
    owner: Owner,
    loop_id: String,
    subscription: u64,
    running: Vec<String>,
    ended: Vec<String>,
}

impl Client {
    /// Works until it is to stop or the daemon has gone.
    pub(super) fn work(mut self) {
        let Some(mut line) = self.begin() else { return };
        let mut count = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            count += 1;
            let label = format!("{}-{count}", self.name);
            if self.step(&mut line, &label).and_then(|()| self.answer(&mut line)).is_none() {
                break;
            }
            self.shared.done.fetch_add(1, Ordering::AcqRel);
        }
        self.listen(&mut line);
    }

    fn begin(&self) -> Option<Line> {
        let mut wire = connect(&self.socket, &self.shared.stop)?;
        let loop_id = uuid::Uuid::new_v4().to_string();
        let params = json!({"session_id": self.opened["session_id"], "loop_id": loop_id, "session_key": self.opened["session_key"]});
        wire.call("session/attach", params).ok()?;
        let own = Loop { session: self.session, ..Loop::default() };
        self.shared.told.lock().unwrap().loops.insert(loop_id.clone(), own);
        let subscription =
            wire.send("events/subscribe", json!({"from_seq": 1, "notifications": true}));
        wire.reply(subscription).ok()?;
        let owner = Owner::attached(wire, self.opened.clone(), self.cwd.clone());
        Some(Line { owner, loop_id, subscription, running: Vec::new(), ended: Vec::new() })
    }

    /// One deed; none when the daemon has gone.
    fn step(&mut self, line: &mut Line, label: &str) -> Option<()> {
        let probe = binaries::probe();
        let code = self.seed.below(256).to_string();
        let says = format!("echo {label}; exit {code}");
        let short = ["sh", "-c", says.as_str()];
        match self.seed.below(16) {
            0..=3 => self.start(line, label, &short, json!({})).map(drop),
            4 => self.start(line, label, &["/no/such/program"], json!({})).map(drop),
            5 | 6 => self
                .start(line, label, &[&probe, "write", "150000"], json!({"limit_bytes": 64}))
                .map(drop),
            7 | 8 if line.running.len() < RUNNING_MAX => {
                let argv = ["sh", "-c", "echo on; exec sleep 600"];
                let handle = self.start(line, label, &argv, json!({"background": true}))?;
                line.running.extend(handle);
                Some(())
            }
            9 => self.read(line),
            10 => self.start(line, label, &short, json!({"request_key": label})).map(drop),
            11 => {
                let claim = *self.seed.choose(&["read_only", "broad_write", "scoped_write"]);
                let mut workspace = json!({"root": self.cwd, "access": claim});
                if claim == "scoped_write" {
                    workspace["paths"] = json!([format!("part-{}", self.seed.below(2))]);
                }
                self.start(line, label, &short, json!({"workspace": workspace})).map(drop)
            }
            12 => self.edit(line),
            13 => self.pin(line),
            14 => self.remove(line),
            _ => self.stop(line),
        }
    }

    fn read(&self, line: &mut Line) -> Option<()> {
        let Some(process) = line.running.first().cloned() else { return Some(()) };
        let params = json!({"process_id": process, "wait": "any", "timeout_ms": 50});
        let reply = self.call(line, "process/output", params, EXPECTED)?.ok()?;
        let text = reply["results"][0]["output"].as_str().unwrap_or_default().to_owned();
        let mut told = self.shared.told.lock().unwrap();
        if let Some(fact) = told.records.get_mut(&process) {
            fact.text = text;
        }
        Some(())
    }

    fn stop(&mut self, line: &mut Line) -> Option<()> {
        let Some(process) = line.running.pop() else { return Some(()) };
        let mode = self.seed.choose(&["kill", "terminate"]);
        let params = json!({"process_id": process, "mode": mode, "grace_ms": 100});
        // A shutdown ends it too, and then it may be evicted.
        let expected = if self.session == 1 { CONTENDED } else { EXPECTED };
        if let Ok(result) = self.call(line, "process/stop", params, expected)? {
            let mut told = self.shared.told.lock().unwrap();
            if let Some(fact) = told.records.get_mut(&process) {
                fact.entry = result;
            }
        }
        Some(())
    }

    /// Holds a workspace for its own edits, and gives it back at times.
    fn edit(&mut self, line: &mut Line) -> Option<()> {
        let kind = self.seed.choose(&["structured_write", "snapshot"]);
        let params = json!({"root": self.cwd, "kind": kind, "timeout_ms": 20});
        let lease = self.call(line, "lease/acquire", params, CONTENDED)?;
        if let Ok(lease) = lease
            && self.seed.below(4) > 0
        {
            let params = json!({"lease_id": lease["lease_id"]});
            self.call(line, "lease/release", params, EXPECTED)?.ok();
        }
        Some(())
    }

    fn pin(&self, line: &mut Line) -> Option<()> {
        // One of a loop: the others are to be evicted.
        let Some(process) = line.ended.pop() else { return Some(()) };
        if line.owner.opened["pinned"] == true {
            return Some(());
        }
        let params = json!({"process_id": process, "pinned": true});
        if self.call(line, "process/pin", params, CONTENDED)?.is_ok() {
            line.owner.opened["pinned"] = json!(true);
            self.shared.told.lock().unwrap().pinned.insert(process);
        }
        Some(())
    }

    fn remove(&self, line: &mut Line) -> Option<()> {
        let Some(process) = line.ended.pop() else { return Some(()) };
        self.shared.told.lock().unwrap().removed.insert(process.clone(), false);
        let params = json!({"process_id": process});
        if self.call(line, "process/remove", params, CONTENDED)?.is_ok() {
            self.shared.told.lock().unwrap().removed.insert(process, true);
        }
        Some(())
    }

    /// Starts something: the handle, if there is a record.
    fn start(
        &self,
        line: &mut Line,
        label: &str,
        argv: &[&str],
        more: Value,
    ) -> Option<Option<String>> {
        let mut params = line.owner.start_params(argv, more);
        params["label"] = json!(label);
        if self.session == 1 {
            params["queue_timeout_ms"] = json!(QUEUE_MS);
        }
        let is_keyed = params["request_key"].is_string();
        {
            let mut told = self.shared.told.lock().unwrap();
            told.labels.insert(label.to_owned());
            if is_keyed {
                let (session, loop_id) = (self.session, line.loop_id.clone());
                told.keyed.push(Keyed { session, loop_id, params: params.clone(), handle: None });
            }
        }
        let key = params["request_key"].clone();
        let entry = match self.call(line, "process/start", params, CONTENDED)? {
            Ok(entry) => entry,
            Err(error) => match error["details"]["process_id"].as_str() {
                Some(handle) if error["code"] == "spawn_failed" => {
                    json!({"process_id": handle, "state": "failed"})
                }
                Some(_) | None => return Some(None),
            },
        };
        let handle = entry["process_id"].as_str()?.to_owned();
        if entry["state"] != "running" {
            line.ended.push(handle.clone());
        }
        let text = entry["output"].as_str().unwrap_or_default().to_owned();
        let fact = Fact { session: self.session, label: label.to_owned(), entry, text };
        let mut told = self.shared.told.lock().unwrap();
        told.records.insert(handle.clone(), fact);
        if let Some(keyed) = told.keyed.iter_mut().rfind(|one| one.params["request_key"] == key) {
            keyed.handle = Some(handle.clone());
        }
        Some(Some(handle))
    }

    /// A call; none when the daemon has gone. A refusal that the load does not provoke is remembered.
    fn call(
        &self,
        line: &mut Line,
        method: &str,
        params: Value,
        expected: &[&str],
    ) -> Option<Result<Value, Value>> {
        match line.owner.wire.call(method, params) {
            Ok(reply) => Some(Ok(reply)),
            Err(Value::Null) => None,
            Err(error) => {
                let code = error["code"].as_str().unwrap_or_default();
                if !EXPECTED.contains(&code) && !expected.contains(&code) {
                    let mut told = self.shared.told.lock().unwrap();
                    told.refusals.push(format!("{method}: {error}"));
                }
                Some(Err(error))
            }
        }
    }

    /// What came beside the replies: the last number, and the notifications that are not answered for good.
    fn listen(&self, line: &mut Line) -> (Option<u64>, Vec<String>) {
        let mut told = self.shared.told.lock().unwrap();
        let told = &mut *told;
        let Some(own) = told.loops.get_mut(&line.loop_id) else { return (None, Vec::new()) };
        let heard = own.hear(line.owner.wire.take_notices());
        told.refusals.extend(heard.wrong);
        (heard.last, heard.offers)
    }

    /// Acknowledges events, and answers some of the notifications in each way there is.
    fn answer(&mut self, line: &mut Line) -> Option<()> {
        let (last, offers) = self.listen(line);
        if let Some(last) = last {
            let params = json!({"for": line.subscription, "up_to_seq": last});
            self.call(line, "events/ack", params, EXPECTED)?.ok();
        }
        for command in offers {
            let ways = ["accepted", "accepted", "duplicate", "stopped", "collision", "later"];
            let way = *self.seed.choose(&ways);
            if way == "later" {
                continue;
            }
            self.mark(line, &command, way, false);
            let params = json!({"command_id": command, "disposition": way});
            if self.call(line, "notifications/ack", params, EXPECTED)?.is_ok() {
                self.mark(line, &command, way, true);
            }
        }
        Some(())
    }

    fn mark(&self, line: &Line, command: &str, way: &str, is_confirmed: bool) {
        let mut told = self.shared.told.lock().unwrap();
        if let Some(own) = told.loops.get_mut(&line.loop_id)
            && way != "stopped"
        {
            own.answered.insert(command.to_owned(), is_confirmed);
        }
    }
}
