//! The actors of a life, and what the daemon that comes after must say of theirs.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    attach_params, churn, disk, good,
    noise::{self, Noise, checked},
    stage::{Stage, differs, is_terminal},
    terminal, trees,
};
use crate::{
    Daemon, Owner,
    faults::{check::all_records, load::Told, seed::Seed},
    journal,
    owner::{moved_on, number},
    wait,
};

type Actor = fn(&Stage, &'static str, Seed);

/// Each actor, and the session it has.
const ACTORS: [(&str, Actor); 11] = [
    ("noise-a", noise::loud),
    ("noise-b", noise::loud),
    ("deaf", noise::deaf),
    ("trees-a", trees::grow),
    ("trees-b", trees::grow),
    ("input-a", terminal::feed),
    ("input-b", terminal::feed),
    ("good", good::ask),
    ("pry", good::pry),
    ("follower", good::follow),
    ("churn", churn::sessions),
];

/// The state folder once nothing is kept in it, bytes: the ballast, one part of the log and the daemon's own log.
const EMPTY_MAX: u64 = 60 << 20;

/// The actors at work.
pub(super) struct Crowd(Arc<Stage>, Vec<JoinHandle<()>>);

impl Crowd {
    pub(super) fn begin(stage: &Arc<Stage>, seed: &mut Seed) -> Self {
        stage.stop.store(false, Ordering::Release);
        let actors = ACTORS.map(|(name, actor)| {
            let (stage, seed) = (stage.clone(), Seed(seed.next()));
            std::thread::spawn(move || actor(&stage, name, seed))
        });
        Self(stage.clone(), actors.into())
    }

    /// Ends them all.
    pub(super) fn finish(self) {
        let Self(stage, actors) = self;
        stage.stop.store(true, Ordering::Release);
        let failed = actors.into_iter().filter_map(|actor| actor.join().err()).count();
        assert_eq!(failed, 0, "actors that failed, as said above");
        let wrong = std::mem::take(&mut stage.book().wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Everything the crowd was told is true, and nothing is invented.
pub(super) fn check(daemon: &Daemon, stage: &Stage) {
    let records = all_records(daemon);
    let (ended, noise, removed, purged) = {
        let book = stage.book();
        (book.ended.clone(), book.noise.clone(), book.removed.clone(), book.purged.clone())
    };
    for (process, told) in ended.iter().filter(|(process, _)| !removed.contains(*process)) {
        let Some(record) = records.get(process) else {
            panic!("{process} is missing: {told}");
        };
        assert_eq!(differs(told, record), None, "{told} has become {record}");
        assert!(is_terminal(record), "it cannot run: {record}");
        stage.count("ends the same after a restart");
    }
    let kept = records.values().filter_map(|record| record["session_id"].as_str());
    let risen: Vec<&str> = kept.filter(|session| purged.contains(*session)).collect();
    assert_eq!(risen, Vec::<&str>::new(), "sessions that were purged");
    for (process, noise) in noise.iter().filter(|(process, _)| !removed.contains(*process)) {
        let record = records.get(process).unwrap_or_else(|| panic!("{process} is missing"));
        output(daemon, stage, process, noise, record);
    }
    ends(daemon, stage, &records);
    closed(daemon, stage);
}

fn attach(daemon: &Daemon, opened: &Value) -> Owner {
    let mut wire = daemon.connect();
    wire.ok("session/attach", attach_params(opened));
    Owner::attached(wire, opened.clone(), daemon.cwd())
}

/// All that was counted is there, as it was written; a kill of the daemon makes no hole.
fn output(daemon: &Daemon, stage: &Stage, process: &str, noise: &Noise, record: &Value) {
    let opened = stage.book().sessions[noise.session].clone();
    let mut owner = attach(daemon, &opened);
    // Bytes of a full disk that only memory had are gone with the daemon.
    let may_be_short = record["state"] == "lost_on_restore" && stage.book().may_have_holes;
    let total = number(record, "total_bytes");
    assert!(total >= noise.told || may_be_short, "{} had been told: {record}", noise.told);
    if let Some(known) = stage.book().noise.get_mut(process) {
        known.told = total;
    }
    if record["state"] == "exited" {
        assert_eq!(number(record, "total_bytes"), noise.bytes, "{record}");
    }
    let (mut cursor, mut hash) = (number(record, "retained_from"), Sha256::new());
    let from = cursor;
    loop {
        let ask = json!({"cursor": cursor, "encoding": "base64", "limit_bytes": 1 << 20});
        let entry = owner.output(process, ask.clone());
        let next = checked(stage, process, noise, cursor, &ask, &entry);
        assert!(entry["gap"] != true || stage.book().may_have_holes, "a hole: {record}");
        hash.update(crate::owner::decode(&entry));
        if entry["more"] != true {
            break;
        }
        cursor = moved_on(&entry, cursor);
        debug_assert_eq!(cursor, next);
    }
    let record = owner.record(process);
    if record["spool_state"] == "sealed" && number(&record, "retained_from") == from {
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(record["sha256"], hash, "{record}");
        stage.count("checksums of sealed outputs");
    }
    stage.count("outputs read whole after a restart");
}

/// One end of each in the journal that is followed.
fn ends(daemon: &Daemon, stage: &Stage, records: &BTreeMap<String, Value>) {
    let Some(opened) = stage.book().sessions.get(good::FOLLOWED).cloned() else { return };
    let owner = attach(daemon, &opened);
    let told = journal::ends(&owner, daemon.connect());
    let own = records.iter().filter(|(_, one)| one["session_id"] == opened["session_id"]);
    for (process, record) in own {
        assert_eq!(told.get(process), Some(&1), "ends in the journal of {record}");
        stage.count("ends told once");
    }
}

/// A closed session is read, and starts nothing.
fn closed(daemon: &Daemon, stage: &Stage) {
    let closed = stage.book().closed.clone();
    for opened in closed {
        let mut owner = attach(daemon, &opened);
        for record in owner.list() {
            assert!(is_terminal(&record), "of a closed session: {record}");
        }
        let params = owner.start_params(&["true"], json!({}));
        owner.wire.refused("supervisor_shutting_down", "process/start", params);
        stage.count("closed sessions read");
    }
}

/// The epoch's sessions are purged: their records and bytes go.
pub(super) fn purge(daemon: &Daemon, stage: &Stage, told: &Told) {
    let own: Vec<Value> = stage.book().sessions.values().cloned().collect();
    let closed = stage.book().closed.clone();
    for opened in told.sessions.iter().chain(&own).chain(&closed) {
        let mut owner = attach(daemon, opened);
        let params = json!({"scope": "session", "purge": true, "grace_ms": 0});
        owner.wire.ok("session/close", params);
        stage.count("sessions purged");
    }
    let records = all_records(daemon);
    let kept: Vec<&Value> = records.values().filter(|one| one["label"] != "churn").collect();
    // Sessions whose opening was not answered hold nothing; their ids are not known here.
    let ids = |opened: &Value| opened["session_id"].clone();
    let purged: Vec<Value> = told.sessions.iter().chain(&own).chain(&closed).map(ids).collect();
    let left: Vec<_> = kept.iter().filter(|one| purged.contains(&one["session_id"])).collect();
    assert!(left.is_empty(), "purged, and there: {left:?}");
    wait::until_true("the bytes of what was purged go", wait::STEP, || {
        disk::taken(&daemon.state()) < EMPTY_MAX
    });
}
