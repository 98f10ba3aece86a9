//! What the daemon that comes after must say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    heard,
    load::{Fact, KEPT, Told},
};
use crate::{Daemon, Owner, owner::handle};

/// Fields of a result that must be those of the record ever after.
const FIELDS: &[&str] = &[
    "state",
    "reason",
    "exit_code",
    "leader",
    "escalated",
    "origin",
    "created_at",
    "started_at",
    "finished_at",
    "duration_ms",
    "total_bytes",
];
/// How a process may have ended that was told to run.
const ENDS: &[&str] = &["lost_on_restore", "terminated", "killed"];

/// Everything that was told is true, nothing is invented, nothing runs, nothing is held.
/// # Panics
/// With what is not so.
pub fn everything(daemon: &Daemon, told: &mut Told) {
    let all = all_records(daemon);
    totals(daemon, &all, told);
    let records = own(all, told);
    for (process, fact) in &told.records {
        match records.get(process) {
            Some(record) => same(fact, record, told),
            None if told.damaged.as_ref() == Some(process) => {}
            None if told.removed.contains_key(process) => {}
            None if fact.session == 1 && !told.pinned.contains(process) => {}
            None => told.wrong(&format!("{process} is missing: {}", fact.entry)),
        }
    }
    not_invented(&records, told);
    marks(&records, told);
    kept_enough(&records, told);
    for opened in &told.sessions {
        session(daemon, opened, &records, told);
    }
    if !told.refusals.is_empty() {
        told.wrong(&format!("refused: {:#?}", told.refusals));
    }
    heard::leases(daemon, told);
    heard::loops(daemon, told, &records);
    heard::keyed(daemon, told);
    not_invented(&own(all_records(daemon), told), told);
}

/// Those of the load's sessions.
fn own(mut records: BTreeMap<String, Value>, told: &Told) -> BTreeMap<String, Value> {
    let is_own =
        |record: &Value| told.sessions.iter().any(|one| one["session_id"] == record["session_id"]);
    records.retain(|_, record| is_own(record));
    records
}

/// What is pinned is, and what was removed is gone.
fn marks(records: &BTreeMap<String, Value>, told: &Told) {
    for process in &told.pinned {
        let record = records.get(process).unwrap_or(&Value::Null);
        if record["pinned"] != true && told.damaged.as_ref() != Some(process) {
            told.wrong(&format!("{process} was pinned: {record}"));
        }
    }
    for (process, is_confirmed) in &told.removed {
        if *is_confirmed && records.contains_key(process) {
            told.wrong(&format!("{process} was removed: {}", records[process]));
        }
    }
}

/// Every record, as an operator sees it.
pub(crate) fn all_records(daemon: &Daemon) -> BTreeMap<String, Value> {
    let mut wire = daemon.operator();
    let mut records = BTreeMap::new();
    let mut params = json!({"limit": 500});
    loop {
        let page = wire.ok("process/list", params.clone());
        for record in page["records"].as_array().into_iter().flatten() {
            let known = records.insert(handle(record), record.clone());
            assert!(known.is_none(), "a record twice: {record}");
        }
        match page["next"].as_str() {
            Some(next) => params["after"] = json!(next),
            None => return records,
        }
    }
}

fn same(fact: &Fact, record: &Value, told: &Told) {
    let state = record["state"].as_str().unwrap_or_default();
    let was = fact.entry["state"].as_str().unwrap_or_default();
    if ["running", "starting"].contains(&was) {
        if !ENDS.contains(&state) {
            told.wrong(&format!("told to run, then {record}"));
        }
    } else if fact.entry["durable"] != false {
        for field in FIELDS {
            let (was, is) = (&fact.entry[*field], &record[*field]);
            if !was.is_null() && was != is {
                told.wrong(&format!("`{field}` was {was}, is {is}: {record}"));
            }
        }
    }
    if record["label"] != json!(fact.label) {
        told.wrong(&format!("label of {record}, not {}", fact.label));
    }
}

/// Each record is of a start that was sent, and each start has one at most.
fn not_invented(records: &BTreeMap<String, Value>, told: &Told) {
    let mut seen = BTreeSet::new();
    for record in records.values() {
        let label = record["label"].as_str().unwrap_or_default();
        if !told.labels.contains(label) || !seen.insert(label) {
            told.wrong(&format!("nobody asked for {record}"));
        }
        if ["running", "starting"].contains(&record["state"].as_str().unwrap_or_default()) {
            told.wrong(&format!("it cannot run: {record}"));
        }
    }
}

/// The session that evicts has as many as it is to keep.
fn kept_enough(records: &BTreeMap<String, Value>, told: &Told) {
    let Some(session) = told.sessions.get(1) else { return };
    let kept = records.values().filter(|record| record["session_id"] == session["session_id"]);
    let known = told.records.iter().filter(|(_, fact)| fact.session == 1);
    // What a client removed may have been among the last.
    let is_removed = |(process, _): &(&String, &Fact)| told.removed.contains_key(*process);
    let removed = known.clone().filter(is_removed).count();
    let known = known.count();
    let kept = kept.count();
    if kept + removed < known.min(KEPT) {
        told.wrong(&format!("{kept} records kept of {known}"));
    }
}

fn totals(daemon: &Daemon, records: &BTreeMap<String, Value>, told: &Told) {
    let status = daemon.operator().ok("daemon/status", json!({}));
    let sum: u64 =
        status["totals"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    // A record may be evicted between the two calls, never be added.
    let of_evicting = told.sessions.get(1).map(|opened| opened["session_id"].clone());
    let may_go = records
        .values()
        .filter(|record| Some(&record["session_id"]) == of_evicting.as_ref())
        .count();
    let (most, least) = (records.len() as u64, (records.len() - may_go) as u64);
    if !(least..=most).contains(&sum) {
        told.wrong(&format!("totals {} of {most} records", status["totals"]));
    }
}

/// Everything is free again, what was read can be read, and a start works.
fn session(daemon: &Daemon, opened: &Value, records: &BTreeMap<String, Value>, told: &Told) {
    let mut wire = daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]});
    let attached = wire.ok("session/attach", params);
    let (mut first, free) = (opened["free"].clone(), &attached["free"]);
    // Others may have been at work when it was opened.
    if free["daemon"].as_u64() > first["daemon"].as_u64() {
        first["daemon"] = free["daemon"].clone();
    }
    if *free != first {
        told.wrong(&format!("free {free}, at first {first}"));
    }
    for (process, fact) in told.records.iter().filter(|(_, fact)| !fact.text.is_empty()) {
        let Some(record) = records.get(process) else { continue };
        if record["session_id"] != opened["session_id"] || fact.session == 1 {
            continue;
        }
        if told.spools_refused && record["state"] == "lost_on_restore" {
            continue;
        }
        let mut wire = daemon.connect();
        let params = json!({"session_id": opened["session_id"], "loop_id": record["loop_id"], "session_key": opened["session_key"]});
        wire.ok("session/attach", params);
        let mut owner = Owner::attached(wire, opened.clone(), daemon.cwd());
        let text = owner.text(process);
        // What only memory had when the daemon died is gone, and is stated.
        let mut is_stated = || owner.output(process, json!({"limit_bytes": 1}))["gap"] == true;
        if !(text.starts_with(&fact.text) || told.spools_refused && is_stated()) {
            told.wrong(&format!("{process} said {:?}, now {text:?}", fact.text));
        }
    }
}
