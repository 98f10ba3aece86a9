//! What loops are told of their ends: each notification until it is answered, no answered one again, each event as it
//! was, and what a start that is sent again says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::load::{Fact, Keyed, Loop, Told};
use crate::{Daemon, Owner, wait};

/// How long what must come may take on a busy machine.
const WAIT: std::time::Duration = wait::STEP;

/// What one look at the notices brought.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The last number.
    pub(crate) last: Option<u64>,
    /// The notifications that were offered, by their ids.
    pub(crate) offers: Vec<String>,
    /// What contradicts what was told before.
    pub(crate) wrong: Vec<String>,
}

impl Loop {
    /// Takes in notices, in their order.
    pub(crate) fn hear(&mut self, notices: Vec<Value>) -> Heard {
        let mut heard = Heard::default();
        for notice in notices {
            let params = &notice["params"];
            if let Some(seq) = params["seq"].as_u64() {
                let event = &params["event"];
                let known = self.events.entry(seq).or_insert_with(|| event.clone());
                if known != event {
                    heard.wrong.push(format!("event {seq} was {known}, is {event}"));
                }
                if heard.last.is_some_and(|last| last >= seq) {
                    heard.wrong.push(format!("event {seq} after {:?}", heard.last));
                }
                heard.last = Some(seq);
            } else if let Some(id) = params["notification"]["command_id"].as_str() {
                let offer = &params["notification"];
                let known = self.offered.entry(id.to_owned()).or_insert_with(|| offer.clone());
                if known != offer {
                    heard.wrong.push(format!("{known} has become {offer}"));
                }
                if self.answered.get(id) == Some(&true) {
                    heard.wrong.push(format!("answered before: {offer}"));
                }
                heard.offers.push(id.to_owned());
            }
        }
        heard
    }
}

/// Every loop is offered what it has not answered, and sent its events.
/// - `records`: all there are, every one of them ended.
/// # Panics
/// With what is not so.
pub(super) fn loops(daemon: &Daemon, told: &mut Told, records: &BTreeMap<String, Value>) {
    let ids: Vec<String> = told.loops.keys().cloned().collect();
    for (count, id) in ids.iter().enumerate() {
        let Some(mut own) = told.loops.remove(id) else { continue };
        one(daemon, told, records, id, &mut own, count);
        told.loops.insert(id.clone(), own);
    }
}

fn attach(daemon: &Daemon, told: &Told, session: usize, loop_id: &str) -> Owner {
    let opened = told.sessions[session].clone();
    let mut wire = daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": loop_id, "session_key": opened["session_key"]});
    wire.ok("session/attach", params);
    Owner::attached(wire, opened, daemon.cwd())
}

/// The processes whose notifications must come, and the events.
struct Wanted {
    processes: BTreeSet<String>,
    events: BTreeSet<u64>,
}

impl Wanted {
    fn of(own: &Loop, told: &Told, records: &BTreeMap<String, Value>, id: &str) -> Self {
        let answered: BTreeSet<&str> = own
            .answered
            .keys()
            .filter_map(|command| own.offered.get(command)?["process_id"].as_str())
            .collect();
        let is_meant =
            |process: &str| !answered.contains(process) && told.damaged.as_deref() != Some(process);
        let of_record = |(process, record): (&String, &Value)| {
            (record["loop_id"] == id && is_meant(process)).then(|| process.clone())
        };
        let mut processes: BTreeSet<String> = records.iter().filter_map(of_record).collect();
        // Those whose record was evicted or removed meanwhile outlive it.
        let offered = own.offered.values().filter_map(|offer| offer["process_id"].as_str());
        processes.extend(offered.filter(|one| is_meant(one)).map(str::to_owned));
        let stands = |event: &Value| {
            event["process_id"].as_str().is_some_and(|one| records.contains_key(one))
        };
        let is_damaged = |event: &Value| {
            told.damaged.as_deref().is_some_and(|damaged| event["process_id"] == damaged)
        };
        // A session that evicts may do so right now, and the events go with their record.
        let evicts = own.session == 1;
        let is_kept = |(_, event): &(&u64, &Value)| !evicts && stands(event) && !is_damaged(event);
        let events = own.events.iter().filter(is_kept);
        Self { processes, events: events.map(|(seq, _)| *seq).collect() }
    }

    fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.events.is_empty()
    }
}

fn one(
    daemon: &Daemon,
    told: &Told,
    records: &BTreeMap<String, Value>,
    id: &str,
    own: &mut Loop,
    count: usize,
) {
    let mut wanted = Wanted::of(own, told, records, id);
    let mut wire = attach(daemon, told, own.session, id).wire;
    let subscription = wire.send("events/subscribe", json!({"from_seq": 1, "notifications": true}));
    wire.reply(subscription).unwrap();
    let (mut last, mut seen) = (0, BTreeMap::new());
    let deadline = wait::Deadline::after(WAIT);
    let mut is_over = false;
    while !is_over {
        // Once all has come, once more, for what should not.
        is_over = wanted.is_empty();
        let notices = wire.take_notices();
        for seq in notices.iter().filter_map(|notice| notice["params"]["seq"].as_u64()) {
            wanted.events.remove(&seq);
        }
        let heard = own.hear(notices);
        if !heard.wrong.is_empty() {
            told.wrong(&format!("loop {id}: {:#?}", heard.wrong));
        }
        last = heard.last.unwrap_or(last);
        for command in heard.offers {
            let process = own.offered[&command]["process_id"].as_str().unwrap().to_owned();
            wanted.processes.remove(&process);
            // One that was stopped comes again after a while.
            let is_again = seen.insert(process, command.clone()).is_some_and(|was| was != command);
            if is_again {
                told.wrong(&format!("loop {id}: a process twice: {}", own.offered[&command]));
            }
            answer(&mut wire, own, command, seen.len() + count);
        }
        wire.ok("events/ack", json!({"for": subscription, "up_to_seq": last}));
        if deadline.left().is_none() {
            let events: Vec<_> = wanted.events.iter().map(|seq| &own.events[seq]).collect();
            let known = |process: &String| {
                let offer = own.offered.values().find(|offer| offer["process_id"] == *process);
                (process.clone(), records.get(process), told.records.get(process), offer)
            };
            let processes: Vec<_> = wanted.processes.iter().map(known).collect();
            told.wrong(&format!("loop {id} is not told of {processes:#?}, events {events:#?}"));
        }
    }
}

/// Half of them for good, the others stay.
fn answer(wire: &mut crate::Wire, own: &mut Loop, command: String, count: usize) {
    let way = ["stopped", "accepted", "stopped", "duplicate", "stopped", "collision"][count % 6];
    wire.ok("notifications/ack", json!({"command_id": command, "disposition": way}));
    if way != "stopped" {
        own.answered.insert(command, true);
    }
}

/// Starts that were sent under a key are sent again: what has a record has the same one.
/// # Panics
/// When it has not.
pub(super) fn keyed(daemon: &Daemon, told: &mut Told) {
    for keyed in std::mem::take(&mut told.keyed) {
        let Keyed { session, loop_id, params, handle } = keyed;
        if handle.is_some() && handle == told.damaged {
            continue;
        }
        let mut owner = attach(daemon, told, session, &loop_id);
        let label = params["label"].as_str().unwrap_or_default().to_owned();
        match owner.wire.call("process/start", params.clone()) {
            Ok(entry) => {
                let now = crate::owner::handle(&entry);
                if handle.as_ref().is_some_and(|was| *was != now) {
                    told.wrong(&format!("{params} was {handle:?}, is {entry}"));
                }
                let text = String::new();
                told.records.entry(now).or_insert(Fact { session, label, entry, text });
            }
            Err(error) => {
                let is_gone = error["code"] == "not_found";
                let is_same = handle.is_none_or(|was| error["details"]["process_id"] == was);
                let is_refused_anew = error["code"] == "workspace_busy";
                if !(is_gone && is_same || is_refused_anew) {
                    told.wrong(&format!("{params}: {error}"));
                }
            }
        }
    }
}

/// Nobody holds a workspace.
/// # Panics
/// When somebody does.
pub(super) fn leases(daemon: &Daemon, told: &Told) {
    let Some(opened) = told.sessions.first() else { return };
    let loop_id = opened["loop_id"].as_str().unwrap_or_default();
    let mut wire = attach(daemon, told, 0, loop_id).wire;
    let lease = wire.ok("lease/acquire", json!({"root": daemon.cwd(), "kind": "structured_write"}));
    wire.ok("lease/release", json!({"lease_id": lease["lease_id"]}));
}
