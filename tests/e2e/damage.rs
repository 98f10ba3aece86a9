//! C141. Each kind of file of the state folder, harmed in each way: the daemon starts, what is good is all there, the damage is
//! told once, and the damaged thing is rebuilt, left in its place or in quarantine with its reason.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use procd_tests::{Daemon, Owner, Setup, Tier, figures::crc32c, leaks, owner::handle, wait};
use serde_json::{Value, json};

/// Between two places where a file is cut, bytes.
const CUT_EVERY: usize = 64;
/// Cuts of one file in the gate, a count; `PROCD_TEST_ALL_CUTS` does all.
const CUTS_MAX: usize = 3;

/// An ordinary user whom nobody else is.
const UID: u32 = 61_205;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Emptied,
    Cut(usize),
    Flipped(usize),
    Folder,
    Link,
    Unreadable,
    Gone,
}

/// What a start may do with one harmed thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Format,
    Lock,
    Log,
    Manifest,
    Session,
    Index,
    Segment,
    Tags,
    Ballast,
    /// The folder of one output.
    Spool,
}

fn harms(len: usize) -> Vec<Harm> {
    let all = std::env::var_os("PROCD_TEST_ALL_CUTS").is_some();
    let cuts: Vec<usize> = (CUT_EVERY..len).step_by(CUT_EVERY).collect();
    let step = if all { 1 } else { cuts.len().div_ceil(CUTS_MAX).max(1) };
    let mut harms: Vec<_> = cuts.into_iter().step_by(step).map(Harm::Cut).collect();
    harms.extend([Harm::Emptied, Harm::Flipped(len / 2), Harm::Flipped(len.saturating_sub(3))]);
    harms.extend([Harm::Folder, Harm::Link, Harm::Unreadable, Harm::Gone]);
    harms
}

/// The harms of a folder: a file or a link in its place, or nothing.
const FOLDER_HARMS: [Harm; 4] = [Harm::Emptied, Harm::Link, Harm::Unreadable, Harm::Gone];

fn harm_folder(path: &Path, harm: Harm) {
    match harm {
        Harm::Emptied => {
            fs::remove_dir_all(path).unwrap();
            fs::write(path, "").unwrap();
        }
        Harm::Link => {
            // To itself under another name: what is behind a link is nobody's output.
            let moved = path.with_extension("moved");
            fs::rename(path, &moved).unwrap();
            let elsewhere = path.ancestors().nth(5).unwrap().join("elsewhere");
            fs::remove_dir_all(&elsewhere).ok();
            fs::rename(&moved, &elsewhere).unwrap();
            symlink(elsewhere, path).unwrap();
        }
        Harm::Unreadable => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
        Harm::Gone => fs::remove_dir_all(path).unwrap(),
        Harm::Cut(_) | Harm::Flipped(_) | Harm::Folder => unreachable!("no harm of a folder"),
    }
}

/// Harms a file or a folder; what stands there then is the daemon's user's.
fn harm(path: &Path, how: Harm) {
    if path.is_dir() {
        harm_folder(path, how)
    } else {
        harm_file(path, how)
    }
    if let Some(uid) = user()
        && path.symlink_metadata().is_ok()
    {
        std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    }
}

fn harm_file(path: &Path, harm: Harm) {
    let mut bytes = fs::read(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    match harm {
        Harm::Emptied => fs::write(path, "").unwrap(),
        Harm::Cut(len) => fs::write(path, &bytes[..len]).unwrap(),
        Harm::Flipped(at) => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0x10;
            }
            fs::write(path, bytes).unwrap();
        }
        Harm::Folder => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Harm::Link => {
            fs::remove_file(path).unwrap();
            symlink("/etc/hostname", path).unwrap();
        }
        Harm::Unreadable => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
        Harm::Gone => fs::remove_file(path).unwrap(),
    }
}

/// Two sealed processes with output, of one session.
struct Ground {
    daemon: Daemon,
    opened: Value,
    records: Vec<Value>,
    kept: PathBuf,
}

/// Whom the daemon runs as: root could read what is unreadable.
fn user() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(UID)
}

fn ground() -> Ground {
    let setup = Setup::new(Tier::Shim);
    let daemon = user().into_iter().fold(setup, Setup::as_user).start();
    let mut owner = daemon.owner();
    for word in ["one", "two"] {
        owner.start(&["sh", "-c", &format!("echo {word}; echo err >&2")], json!({}));
    }
    let records = wait::until("all are sealed and stored", wait::STEP, || {
        let list = owner.list();
        list.iter()
            .all(|record| {
                let file = format!("{}.json", handle(record));
                record["spool_state"] == "sealed"
                    && session(&daemon, &owner.opened).join("manifests").join(file).is_file()
            })
            .then_some(list)
    });
    let opened = owner.opened.clone();
    drop(owner);
    let mut daemon = daemon;
    daemon.terminate();
    assert!(daemon.ended().success());
    let kept = daemon.path().join("kept");
    copy(&daemon.state(), &kept);
    Ground { daemon, opened, records, kept }
}

fn session(daemon: &Daemon, opened: &Value) -> PathBuf {
    daemon.state().join("sessions").join(opened["session_id"].as_str().unwrap())
}

/// A whole folder with its rights.
fn copy(from: &Path, to: &Path) {
    let status = procd_tests::binaries::command("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}

impl Ground {
    fn file(&self, kind: Kind) -> PathBuf {
        let state = self.daemon.state();
        let session = session(&self.daemon, &self.opened);
        let first = handle(&self.records[0]);
        let spool = session.join("spools").join(&first);
        match kind {
            Kind::Format => state.join("format"),
            Kind::Lock => state.join("lock"),
            Kind::Log => {
                let parts = fs::read_dir(state.join("commit")).unwrap().flatten();
                parts.map(|entry| entry.path()).min().unwrap()
            }
            Kind::Manifest => session.join("manifests").join(format!("{first}.json")),
            Kind::Session => session.join("session.json"),
            Kind::Index => spool.join("index"),
            Kind::Segment => spool.join("0.seg"),
            Kind::Tags => spool.join("tags"),
            Kind::Ballast => state.join("ballast"),
            Kind::Spool => spool,
        }
    }

    fn renew(&self) {
        fs::remove_dir_all(self.daemon.state()).unwrap();
        copy(&self.kept, &self.daemon.state());
    }

    /// Starts on the harmed folder and looks at all there is; stops again.
    fn check(&mut self, kind: Kind, how: Harm, what: &str) {
        self.daemon.restart();
        let mut operator = self.daemon.operator();
        let status = operator.ok("daemon/status", json!({}));
        let damage = status["restore"]["damage"].as_array().cloned().unwrap_or_default();
        assert!(!must_be_told(kind, how) || !damage.is_empty(), "{what}: nothing is told");
        let mut wire = self.daemon.connect();
        let params = json!({"session_id": self.opened["session_id"], "loop_id": self.opened["loop_id"], "session_key": self.opened["session_key"]});
        let attached = wire.call("session/attach", params);
        if attached.is_ok() {
            let mut owner = Owner::attached(wire, self.opened.clone(), self.daemon.cwd());
            for (at, record) in self.records.iter().enumerate() {
                self.check_record(kind, at, record, &mut owner, &damage, what);
            }
            assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n", "{what}");
        } else {
            // Only what names the session itself may cost it, and then it is told.
            assert!(kind == Kind::Session && !damage.is_empty(), "{what}: {attached:?}");
        }
        let lines = self.daemon.log();
        let warned = lines.lines().filter(|line| line.contains("damage found")).count();
        assert!(warned >= damage.len(), "{what}: {damage:?}\n{lines}");
        assert!(damage.len() <= 2, "{what}: {damage:#?}");
        for file in fs::read_dir(self.daemon.state().join("quarantine")).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if !name.ends_with(".reason") {
                let reason = file.path().with_file_name(format!("{name}.reason"));
                assert!(reason.is_file(), "{what}: {name} has no reason");
            }
        }
        self.daemon.terminate();
        assert!(self.daemon.ended().success(), "{what}");
        wait::until_true("nothing lives", wait::STEP, || {
            leaks::processes(self.daemon.path()).is_empty()
        });
    }

    fn check_record(
        &self,
        kind: Kind,
        at: usize,
        record: &Value,
        owner: &mut Owner,
        damage: &[Value],
        what: &str,
    ) {
        let process = handle(record);
        let is_harmed = at == 0;
        let params = json!({"process_id": process});
        let found = owner.wire.call("process/inspect", params.clone());
        if let Err(error) = &found {
            // Only its own file may cost a record, and then it is told.
            let may_go = is_harmed && kind == Kind::Manifest;
            assert!(may_go && !damage.is_empty(), "{what}: {error}, {damage:?}");
            assert_eq!(error["code"], "not_found", "{what}");
            let is_set_aside = damage[0]["reason"].as_str().unwrap().contains("its record is lost");
            let code = if is_set_aside { "manifest_corrupt" } else { "not_found" };
            self.daemon.operator().refused(code, "process/inspect", params);
            return;
        }
        let found = &found.unwrap()["record"];
        for field in ["state", "exit_code", "finished_at", "total_bytes", "created_at"] {
            assert_eq!(found[field], record[field], "{what}: {field}");
        }
        let entry = owner.wire.ok("process/output", params)["results"][0].take();
        if entry["error"].is_null() {
            let text = entry["output"].as_str().unwrap_or_default().to_owned();
            let words = if is_harmed { "two" } else { "one" };
            assert!(text.contains(words), "{what}: wrong or missing bytes in {entry}");
        } else {
            let spools = [Kind::Index, Kind::Segment, Kind::Tags, Kind::Spool];
            let may_fail = is_harmed && spools.contains(&kind);
            assert!(may_fail && entry["error"]["code"] == "spool_corrupt", "{what}: {entry}");
        }
    }
}

/// Whether a start must find the harm. A segment is held against its sum by the first read of it; a lock, a ballast and
/// tags cost nothing; a log that is empty, gone or ends at a whole line looks like one that was never longer.
const fn must_be_told(kind: Kind, how: Harm) -> bool {
    match (kind, how) {
        (Kind::Manifest | Kind::Session, Harm::Cut(0) | Harm::Gone) => false,
        (Kind::Manifest | Kind::Session, _) => true,
        (Kind::Log, how) => {
            matches!(how, Harm::Flipped(_) | Harm::Folder | Harm::Link | Harm::Unreadable)
        }
        (Kind::Index | Kind::Spool, Harm::Folder | Harm::Link | Harm::Unreadable) => true,
        (
            Kind::Format
            | Kind::Lock
            | Kind::Index
            | Kind::Segment
            | Kind::Tags
            | Kind::Ballast
            | Kind::Spool,
            _,
        ) => false,
    }
}

fn matrix(kinds: &[Kind]) {
    let mut ground = ground();
    for &kind in kinds {
        let file = ground.file(kind);
        let Ok(found) = fs::metadata(&file) else { continue };
        let all = if found.is_dir() {
            FOLDER_HARMS.to_vec()
        } else {
            harms(usize::try_from(found.len()).unwrap().min(64 * 1024))
        };
        for how in all {
            let is_lock = kind == Kind::Lock && [Harm::Folder, Harm::Link].contains(&how);
            if is_lock {
                continue;
            }
            ground.renew();
            let file = ground.file(kind);
            harm(&file, how);
            ground.check(kind, how, &format!("{kind:?} {how:?}"));
            // And again: nothing changes any more.
            if how == Harm::Emptied {
                ground.check(kind, Harm::Cut(0), &format!("{kind:?} {how:?} again"));
            }
        }
    }
    ground.renew();
    ground.daemon.restart();
}

#[test]
fn a_damaged_log_format_lock_or_ballast_costs_nothing_that_was_sealed() {
    matrix(&[Kind::Format, Kind::Lock, Kind::Log, Kind::Ballast]);
}

#[test]
fn a_damaged_record_costs_itself_at_most() {
    matrix(&[Kind::Manifest, Kind::Session]);
}

#[test]
fn a_damaged_spool_costs_its_own_output_at_most_and_never_gives_wrong_bytes() {
    matrix(&[Kind::Index, Kind::Segment, Kind::Tags, Kind::Spool]);
}

/// What a newer build wrote stays in its place, byte for byte.
#[test]
fn files_of_a_newer_version_are_left_where_they_are() {
    let mut ground = ground();
    for (kind, old, new) in [
        (Kind::Manifest, "{\"record\":{\"version\":1,", "{\"record\":{\"version\":9,"),
        (Kind::Session, "{\"session\":{\"version\":1,", "{\"session\":{\"version\":9,"),
    ] {
        ground.renew();
        let file = ground.file(kind);
        let text = fs::read_to_string(&file).unwrap().replacen(old, new, 1);
        let body = text.rsplit_once(",\"crc\":").unwrap().0;
        let closed = format!("{body},\"crc\":\"{:08x}\"}}\n", crc32c(body.as_bytes()));
        fs::write(&file, &closed).unwrap();
        ground.daemon.restart();
        let status = ground.daemon.operator().ok("daemon/status", json!({}));
        let damage = status["restore"]["damage"].to_string();
        assert!(damage.contains("left where it is"), "{kind:?}: {damage}");
        ground.daemon.terminate();
        assert!(ground.daemon.ended().success());
        assert_eq!(fs::read_to_string(&file).unwrap(), closed, "{kind:?}");
    }
    ground.renew();
    ground.daemon.restart();
}

/// A spool that a newer build wrote: its bytes are left alone, its record can be read.
#[test]
fn a_spool_of_a_newer_version_is_left_where_it_is() {
    let mut ground = ground();
    let file = ground.file(Kind::Index);
    let before = fs::read(&file).unwrap();
    let mut bytes = before.clone();
    // The version stands behind the eight bytes of the mark; the header closes with its sum.
    bytes[8] = 9;
    let sum = crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&sum);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, &bytes).unwrap();
    ground.daemon.restart();
    let status = ground.daemon.operator().ok("daemon/status", json!({}));
    let damage = status["restore"]["damage"].to_string();
    assert!(damage.contains("has format 9"), "{damage}");
    let mut wire = ground.daemon.operator();
    let process = handle(&ground.records[0]);
    let record = wire.ok("process/inspect", json!({"process_id": process}))["record"].take();
    assert_eq!(record["state"], "exited", "{record}");
    ground.daemon.terminate();
    assert!(ground.daemon.ended().success());
    assert_eq!(fs::read(&file).unwrap(), bytes);
    // What can be read again is: nothing was marked for good.
    fs::write(&file, before).unwrap();
    ground.daemon.restart();
    let mut owner = attach(&ground);
    // Two pipes have no order between them.
    let text = owner.text(&process);
    assert!(["two\nerr\n", "err\ntwo\n"].contains(&&*text), "{text}");
}

fn attach(ground: &Ground) -> Owner {
    let opened = ground.opened.clone();
    let mut wire = ground.daemon.connect();
    let params = json!({"session_id": opened["session_id"], "loop_id": opened["loop_id"], "session_key": opened["session_key"]});
    wire.ok("session/attach", params);
    Owner::attached(wire, opened, ground.daemon.cwd())
}
