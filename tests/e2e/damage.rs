//! Each kind of file of the state folder, harmed in each way: the daemon starts, what is good is all there, the damage is
//! told once, and the damaged thing is rebuilt, left in its place or in quarantine with its reason.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use procd_tests::{Daemon, Owner, Setup, Tier, leaks, owner::handle, wait};
use serde_json::{Value, json};

/// Between two places where a file is cut, bytes.
const CUT_EVERY: usize = 64;
/// Cuts of one file in the gate, a count; `PROCD_TEST_ALL_CUTS` does all.
const CUTS_MAX: usize = 3;

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

fn harm(path: &Path, harm: Harm) {
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

fn ground() -> Ground {
    let daemon = Setup::new(Tier::Shim).start();
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
        }
    }

    fn renew(&self) {
        fs::remove_dir_all(self.daemon.state()).unwrap();
        copy(&self.kept, &self.daemon.state());
    }

    /// Starts on the harmed folder and looks at all there is; stops again.
    fn check(&mut self, kind: Kind, what: &str) {
        self.daemon.restart();
        let mut operator = self.daemon.operator();
        let status = operator.ok("daemon/status", json!({}));
        let damage = status["restore"]["damage"].as_array().cloned().unwrap_or_default();
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
        let Ok(found) = found else {
            // Only its own file may cost a record, and then it is told.
            let may_go = is_harmed && kind == Kind::Manifest;
            assert!(may_go && !damage.is_empty(), "{what}: {found:?}, {damage:?}");
            return;
        };
        let found = &found["record"];
        for field in ["state", "exit_code", "finished_at", "total_bytes", "created_at"] {
            assert_eq!(found[field], record[field], "{what}: {field}");
        }
        let entry = owner.wire.ok("process/output", params)["results"][0].take();
        if entry["error"].is_null() {
            let text = entry["output"].as_str().unwrap_or_default().to_owned();
            let words = if is_harmed { "two" } else { "one" };
            assert!(text.contains(words), "{what}: wrong or missing bytes in {entry}");
        } else {
            let may_fail = is_harmed && [Kind::Index, Kind::Segment, Kind::Tags].contains(&kind);
            assert!(may_fail && entry["error"]["code"] == "spool_corrupt", "{what}: {entry}");
        }
    }
}

fn matrix(kinds: &[Kind]) {
    let mut ground = ground();
    for &kind in kinds {
        let file = ground.file(kind);
        let Ok(found) = fs::metadata(&file) else { continue };
        for how in harms(usize::try_from(found.len()).unwrap().min(64 * 1024)) {
            let is_lock = kind == Kind::Lock && [Harm::Folder, Harm::Link].contains(&how);
            // A ballast's bytes are worth nothing; root reads what is unreadable.
            let is_moot = how == Harm::Unreadable && rustix::process::geteuid().is_root();
            if is_lock || is_moot {
                continue;
            }
            ground.renew();
            let file = ground.file(kind);
            harm(&file, how);
            ground.check(kind, &format!("{kind:?} {how:?}"));
            // And again: nothing changes any more.
            if how == Harm::Emptied {
                ground.check(kind, &format!("{kind:?} {how:?} again"));
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
    matrix(&[Kind::Index, Kind::Segment, Kind::Tags]);
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

/// Bit by bit: the few bytes here need no table.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
