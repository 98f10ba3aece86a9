//! What the tests of this crate share: a state folder of their own, and records to put in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use procd_core::state::{Access, ProcessState, Reason, SpoolState, Tier};
use procd_core::{Handle, LoopId, OriginId, SessionId};
use uuid::Uuid;

use crate::folder::StateFolder;
use crate::log::{CommitError, Done};
use crate::record::{
    AccessRecord, CommandRecord, LeaderRecord, OsMetadata, PublicationMarks, RECORD_VERSION,
    Record, StableIds,
};
use crate::session::{SESSION_VERSION, SessionQuotas, SessionRecord, SessionState};

/// How long a value is waited for.
const DEADLINE: Duration = Duration::from_secs(30);

/// A folder below the system's temporary one, removed at the end.
#[derive(Debug)]
pub(crate) struct Temp(PathBuf);

impl Temp {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("procd-store-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The state folder in it, made and locked.
    pub(crate) fn state(&self) -> StateFolder {
        StateFolder::open(&self.0.join("state"), Duration::ZERO).unwrap()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A time, `seconds` after a fixed one.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

pub(crate) fn session_id(number: u8) -> SessionId {
    SessionId::new(Uuid::from_u128((0x5e55 << 64) + u128::from(number) + 1)).unwrap()
}

pub(crate) fn loop_id(number: u8) -> LoopId {
    LoopId::new(Uuid::from_u128((0x100b << 64) + u128::from(number) + 1)).unwrap()
}

pub(crate) fn handle(number: u32) -> Handle {
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Handle::from_bytes(bytes)
}

pub(crate) fn session(number: u8) -> SessionRecord {
    SessionRecord {
        version: SESSION_VERSION,
        session_id: session_id(number),
        uid: rustix::process::geteuid().as_raw(),
        key_sha256: "ab".repeat(32),
        created_at: at(0),
        label: Some("work".to_owned()),
        workspaces: vec![PathBuf::from("/srv/work")],
        quotas: SessionQuotas { running_loop_max: Some(2), ..SessionQuotas::default() },
        guard: true,
        idle_close_ms: Some(60_000),
        state: SessionState::Open,
        closed_at: None,
        had_subscriber: false,
        events_dropped_through: 0,
    }
}

fn id(process: u32, which: u32) -> Uuid {
    Uuid::from_u128((0x1d << 96) | (u128::from(process) << 32) | u128::from(which))
}

/// A record in state `starting`.
pub(crate) fn starting(session: u8, number: u32) -> Record {
    Record {
        version: RECORD_VERSION,
        process_id: handle(number),
        session_id: session_id(session),
        loop_id: loop_id(0),
        origin: OriginId::new(Uuid::from_u128(0xa)).unwrap(),
        label: None,
        command: CommandRecord {
            argv: Some(vec!["sleep".to_owned(), "1".to_owned()]),
            ..CommandRecord::default()
        },
        access: AccessRecord {
            asked: Access::Unclaimed,
            effective: Access::Unclaimed,
            enforced: None,
        },
        tty: None,
        tier: Tier::Cgroup,
        limits: Default::default(),
        state: ProcessState::Starting,
        reason: None,
        exit_code: None,
        leader: None,
        escalated: false,
        ended_by: None,
        leftovers: 0,
        signal_errors: Vec::new(),
        input_dropped_bytes: 0,
        oom_killed: false,
        limit_exceeded: None,
        created_at: at(1),
        started_at: None,
        finished_at: None,
        deadline_at: None,
        duration_ms: None,
        total_bytes: 0,
        retained_from: 0,
        spool_state: SpoolState::Open,
        spool_lost_bytes: 0,
        sha256: None,
        pinned: false,
        diagnostic: None,
        ids: StableIds {
            started: id(number, 1),
            backgrounded: id(number, 2),
            completed: id(number, 3),
            lost: id(number, 4),
            notification: id(number, 5),
        },
        ordinals: Default::default(),
        published: PublicationMarks::default(),
        request_key: None,
        boot_id: Uuid::from_u128(0xb007),
        os: OsMetadata::default(),
    }
}

/// The same, running.
pub(crate) fn running(session: u8, number: u32) -> Record {
    let mut record = starting(session, number);
    record.state = ProcessState::Running;
    record.started_at = Some(at(2));
    record
}

/// The same, exited with code 3.
pub(crate) fn exited(session: u8, number: u32) -> Record {
    let mut record = running(session, number);
    record.state = ProcessState::Exited;
    record.reason = Some(Reason::Exited);
    record.exit_code = Some(3);
    record.leader = Some(LeaderRecord::Code { code: 3 });
    record.finished_at = Some(at(3));
    record.duration_ms = Some(1000);
    record.total_bytes = 10;
    record
}

/// The same, sealed.
pub(crate) fn sealed(session: u8, number: u32) -> Record {
    let mut record = exited(session, number);
    record.spool_state = SpoolState::Sealed;
    record.sha256 = Some("cd".repeat(32));
    record.published.completed = true;
    record
}

/// An answer that can be waited for.
pub(crate) fn answer() -> (Done, impl FnOnce() -> Result<(), CommitError>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done: Done = Box::new(move |result| sender.send(result).unwrap_or_default());
    (done, move || receiver.recv_timeout(DEADLINE).expect("the log answers"))
}

/// All files below a folder, by path relative to it.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(path) = todo.pop() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}
