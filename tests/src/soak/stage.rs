//! What the actors of the crowd share: the places, the book of what was told, and a connection that knows both.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::{Counts, attach_params, noise::Noise};
use crate::{
    Daemon, Owner,
    faults::load::{Loop, connect},
    wait,
};

/// What any call may take on a busy machine; none of them is asked to wait for longer than a second.
const CALL_MAX: Duration = Duration::from_secs(45);
/// Violations that are written down, a count.
const WRONG_MAX: usize = 20;

/// Shared by all actors of an epoch.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) socket: PathBuf,
    pub(super) cwd: PathBuf,
    /// Where trees have their folders: the load claims the folder of commands.
    pub(super) own: PathBuf,
    /// The life is over.
    pub(super) stop: AtomicBool,
    /// The disk is full in this life, now or before.
    pub(super) was_full: AtomicBool,
    book: Mutex<Book>,
    /// Held while a named session is looked for and opened: two actors may share one.
    opening: Mutex<()>,
}

/// What was told and found.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) counts: Counts,
    /// Laws that did not hold.
    pub(super) wrong: Vec<String>,
    /// The call that took longest.
    pub(super) slowest: (Duration, String),
    /// What `session/open` said, by the actor's name.
    pub(super) sessions: BTreeMap<&'static str, Value>,
    /// Outputs that tell their own offsets, by handle.
    pub(super) noise: BTreeMap<String, Noise>,
    /// Ends that were told, by handle.
    pub(super) ended: BTreeMap<String, Value>,
    /// Handles whose removal was asked for.
    pub(super) removed: BTreeSet<String>,
    /// Sessions that were closed and kept: what `session/open` said.
    pub(super) closed: Vec<Value>,
    /// Ids of sessions that were purged.
    pub(super) purged: BTreeSet<String>,
    /// What the follower of events has heard.
    pub(super) heard: Loop,
    /// The disk was full at some time of the epoch: holes in outputs are possible, and are to be stated.
    pub(super) may_have_holes: bool,
}

impl Book {
    pub(super) fn count(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    pub(super) fn wrong(&mut self, what: String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push(what);
        }
    }
}

impl Stage {
    pub(super) fn new(daemon: &Daemon) -> Self {
        Self {
            socket: daemon.socket(),
            cwd: daemon.cwd(),
            own: daemon.path().join("own"),
            stop: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            book: Mutex::new(Book::default()),
            opening: Mutex::new(()),
        }
    }

    /// An actor that failed has said so: the book is good.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, name: &'static str) {
        self.book().count(name, 1);
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Rests, unless the life ends.
    pub(super) fn rest(&self, millis: u64) {
        let deadline = wait::Deadline::after(Duration::from_millis(millis));
        while !self.is_over()
            && let Some(left) = deadline.left()
        {
            std::thread::park_timeout(left.min(Duration::from_millis(50)));
        }
    }

    /// A connection to the session of that name, which is opened when there is none yet.
    pub(super) fn line(&self, name: &'static str) -> Option<Line<'_>> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.book().sessions.get(name).cloned();
        let mut line = match known {
            Some(opened) => self.attached(&opened)?,
            None => self.opened(json!({"label": name}))?,
        };
        line.name = name;
        self.book().sessions.entry(name).or_insert_with(|| line.owner.opened.clone());
        Some(line)
    }

    /// A connection with a new session.
    pub(super) fn opened(&self, params: Value) -> Option<Line<'_>> {
        let wire = connect(&self.socket, &self.stop)?;
        let mut line = self.over(wire, Value::Null);
        let opened = line.ok("session/open", params)?;
        if opened.is_null() {
            return None;
        }
        line.owner.opened = opened;
        Some(line)
    }

    /// A connection to a session that was opened.
    pub(super) fn attached(&self, opened: &Value) -> Option<Line<'_>> {
        let wire = connect(&self.socket, &self.stop)?;
        let mut line = self.over(wire, opened.clone());
        let attached = line.ok("session/attach", attach_params(opened))?;
        (!attached.is_null()).then_some(line)
    }

    fn over(&self, mut wire: crate::Wire, opened: Value) -> Line<'_> {
        wire.may_be_cut = true;
        Line { owner: Owner::attached(wire, opened, self.cwd.clone()), stage: self, name: "" }
    }
}

/// A connection of an actor.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) owner: Owner,
    pub(super) stage: &'a Stage,
    name: &'static str,
}

impl Line<'_> {
    /// A call; none when the daemon has gone or goes. How long it took is looked at.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Option<Result<Value, Value>> {
        let began = wait::now();
        let answer = self.owner.wire.call(method, params);
        let took = began.elapsed();
        if answer == Err(Value::Null) {
            return None;
        }
        let mut book = self.stage.book();
        book.count("calls answered", 1);
        if took > book.slowest.0 {
            book.slowest = (took, method.to_owned());
        }
        if took > CALL_MAX {
            book.wrong(format!("{method} of {} was answered after {took:?}", self.name));
        }
        match answer {
            Err(error) if error["code"] == "supervisor_shutting_down" => None,
            Ok(_) | Err(_) => Some(answer),
        }
    }

    /// A call that is to be taken: null where a full disk explains the refusal.
    pub(super) fn ok(&mut self, method: &str, params: Value) -> Option<Value> {
        match self.call(method, params)? {
            Ok(result) => Some(result),
            Err(error) => {
                self.refused(method, &error);
                Some(Value::Null)
            }
        }
    }

    /// A refusal that nothing but a full disk may explain.
    pub(super) fn refused(&self, method: &str, error: &Value) {
        let is_storage = error["details"]["cause"] == "storage";
        if is_storage && self.stage.was_full.load(Ordering::Acquire) {
            self.stage.count("refusals for want of storage");
        } else {
            self.stage.book().wrong(format!("{method} of {} was refused: {error}", self.name));
        }
    }

    /// Starts something in the background: its handle; an empty one where it was refused for want of storage.
    pub(super) fn background(&mut self, argv: &[&str], more: Value) -> Option<String> {
        let mut params = self.owner.start_params(argv, json!({"background": true}));
        crate::owner::merge(&mut params, more);
        let entry = self.ok("process/start", params)?;
        if entry.is_null() {
            return Some(String::new());
        }
        self.stage.count("starts acknowledged");
        Some(crate::owner::handle(&entry))
    }

    /// Whether the daemon takes nothing new because it goes.
    pub(super) fn is_shutting_down(&mut self) -> Option<bool> {
        let params = self.owner.start_params(&["true"], json!({"background": true}));
        let refusal = self.call("process/start", params)?.err();
        Some(refusal.is_some_and(|error| error["code"] == "supervisor_shutting_down"))
    }

    /// One entry of `process/output`; null where the record is unknown.
    pub(super) fn output(&mut self, process: &str, more: Value) -> Option<Value> {
        let mut params = json!({"process_id": process});
        crate::owner::merge(&mut params, more);
        let mut reply = self.ok("process/output", params)?;
        Some(reply["results"][0].take())
    }

    /// Waits for the end of something short: its entry.
    pub(super) fn until_ended(&mut self, process: &str) -> Option<Value> {
        let deadline = wait::Deadline::after(wait::STEP);
        loop {
            let ask = json!({"wait": "exit", "timeout_ms": 500, "limit_bytes": 1});
            let entry = self.output(process, ask)?;
            if is_terminal(&entry) {
                self.told_end(process, &entry);
                return Some(entry);
            }
            if deadline.left().is_none() {
                self.stage.book().wrong(format!("{process} does not end: {entry}"));
                return None;
            }
        }
    }

    /// Writes an end down; one that was told before must be the same.
    pub(super) fn told_end(&self, process: &str, entry: &Value) {
        let mut book = self.stage.book();
        if let Some(before) = book.ended.get(process).cloned() {
            if let Some(field) = differs(&before, entry) {
                book.wrong(format!("`{field}` of {process}: {before} has become {entry}"));
            }
        } else if is_terminal(entry) {
            book.count("ends told", 1);
            book.ended.insert(process.to_owned(), crate::owner::without_output(entry));
        }
    }
}

/// Fields of a result that must be those of the record ever after.
const FIELDS: [&str; 5] = ["state", "reason", "exit_code", "leader", "finished_at"];

/// The first field that both have and that is not the same; ends that were not saved may be others after a kill.
pub(super) fn differs(before: &Value, now: &Value) -> Option<&'static str> {
    if before["durable"] == false {
        return None;
    }
    let both = |field: &&&str| !before[**field].is_null() && !now[**field].is_null();
    FIELDS.iter().filter(both).find(|field| before[**field] != now[**field]).copied()
}

/// Ended with the daemon, which goes: no fault of what ran.
pub(super) fn is_cut_short(entry: &Value) -> bool {
    entry["reason"] == "runner-shutdown"
}

pub(super) fn is_terminal(entry: &Value) -> bool {
    entry["state"].as_str().is_some_and(|state| !["running", "starting"].contains(&state))
}
