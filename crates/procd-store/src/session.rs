//! The identity record of a session: its key's hash and every rule it was opened with, so that a
//! restart drops none.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use procd_core::{SessionId, words};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::failpoint;
use crate::file;
use crate::folder::StateFolder;
use crate::{closed, text};

/// The version of the session record that this build writes.
pub const SESSION_VERSION: u32 = 1;
/// Bytes of a session's file at most.
const SESSION_BYTES_MAX: u64 = 1024 * 1024;
/// Hex digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

words! {
    /// How far a session has come; only goes on.
    SessionState, "session state" {
        /// Starts are taken.
        Open = "open",
        /// Its processes are being stopped.
        Closing = "closing",
        /// Readable, nothing starts any more.
        Closed = "closed",
    }
}

/// What a session lowered for itself; absent = the daemon's own limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionQuotas {
    /// Running processes of one loop, a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_loop_max: Option<u64>,
    /// Running processes of the session, a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_session_max: Option<u64>,
    /// Memory windows, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_session_bytes: Option<u64>,
    /// Spools, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool_session_bytes: Option<u64>,
    /// Completed processes kept, a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_session_max: Option<u64>,
    /// Blocking calls, a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiters_session_max: Option<u64>,
}

/// The record of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRecord {
    /// [`SESSION_VERSION`] of the writer.
    pub version: u32,
    /// The id.
    #[serde(with = "text")]
    pub session_id: SessionId,
    /// The user it belongs to.
    pub uid: u32,
    /// Hex SHA-256 of its key; the key itself is kept nowhere.
    pub key_sha256: String,
    /// When it was opened.
    pub created_at: Timestamp,
    /// What its client calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Absolute folders it declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<PathBuf>,
    /// What it lowered.
    #[serde(default)]
    pub quotas: SessionQuotas,
    /// Whether arguments are guarded.
    #[serde(default)]
    pub guard: bool,
    /// Closes by itself after that long without a connection; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_close_ms: Option<u64>,
    /// How far it has come.
    #[serde(with = "text")]
    pub state: SessionState,
    /// When it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// Whether a client ever subscribed to its notifications: else they live only as long as
    /// the records they speak of.
    #[serde(default)]
    pub had_subscriber: bool,
    /// The highest number among events that were dropped with their records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_dropped_through: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape serde asks for")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The file: `{"session":{...},"crc":"xxxxxxxx"}`.
#[derive(Serialize)]
struct FileOut<'a> {
    session: &'a SessionRecord,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIn {
    session: SessionRecord,
    #[serde(rename = "crc")]
    _crc: IgnoredAny,
}

impl SessionRecord {
    /// What a record must obey by itself; the field and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let key = &self.key_sha256;
        if key.len() != SHA256_DIGITS || !key.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("`key_sha256` is no sha-256".to_owned());
        }
        if self.workspaces.iter().any(|root| !root.is_absolute()) {
            return Err("`workspaces` has a path that is not absolute".to_owned());
        }
        Ok(())
    }
}

fn session_file(folder: &StateFolder, session: SessionId) -> PathBuf {
    folder.session_path(session).join("session.json")
}

/// Makes a session's folders and writes its record, durable on return.
/// # Errors
/// [`StoreError::Unsafe`] when the folder lies inside a workspace that the session declares, is
/// a link, is not ours or is open to others; [`StoreError::Newer`] for a record of a newer build,
/// which stays; [`StoreError::Io`].
pub fn write(folder: &StateFolder, record: &SessionRecord) -> Result<(), StoreError> {
    let path = folder.session_path(record.session_id);
    check_outside(folder.path(), &record.workspaces)?;
    failpoint::hit("session-before-folder");
    let is_new = file::make_folder(&path)?;
    failpoint::hit("session-before-file");
    check_folder(&path)?;
    for place in ["manifests", "spools"] {
        file::make_folder(&path.join(place))?;
    }
    // What a newer build wrote is not overwritten.
    if !is_new && let Err(error @ StoreError::Newer { .. }) = read(folder, record.session_id) {
        return Err(error);
    }
    let body = closed::encode("session record", &FileOut { session: record })?;
    file::replace(&session_file(folder, record.session_id), &body)?;
    if is_new {
        file::sync_folder(&folder.sessions_path())?;
    }
    failpoint::hit("session-file-durable");
    Ok(())
}

/// Reads a session's record, strictly.
/// # Errors
/// [`StoreError::Corrupt`] for a missing, damaged or mismatched record; [`StoreError::Newer`];
/// [`StoreError::Unsafe`] for a folder that is a link, not ours, open to others or inside a
/// workspace it declares.
pub fn read(folder: &StateFolder, session: SessionId) -> Result<SessionRecord, StoreError> {
    check_folder(&folder.session_path(session))?;
    let path = session_file(folder, session);
    if file::look(&path)? == file::Found::Nothing {
        return Err(StoreError::corrupt(&path, "it is missing"));
    }
    let bytes = file::read(&path, SESSION_BYTES_MAX)?;
    let line = closed::only_line(&bytes).map_err(|what| StoreError::corrupt(&path, what))?;
    let record = decode(&path, line)?;
    if record.session_id != session {
        return Err(StoreError::corrupt(&path, "it is the record of another session"));
    }
    if record.uid != rustix::process::geteuid().as_raw() {
        return Err(StoreError::corrupt(&path, "it is the record of another user"));
    }
    check_outside(folder.path(), &record.workspaces)?;
    Ok(record)
}

fn decode(path: &Path, line: &[u8]) -> Result<SessionRecord, StoreError> {
    /// Only the version: what else a newer build writes is not known.
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    if let Ok(form) = serde_json::from_slice::<Loose<Version>>(line)
        && form.session.version > u64::from(SESSION_VERSION)
    {
        let found = form.session.version;
        let known = u64::from(SESSION_VERSION);
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    let form: FileIn = serde_json::from_slice(line)
        .map_err(|error| StoreError::corrupt(path, format!("it is not readable: {error}")))?;
    form.session.check().map_err(|what| StoreError::corrupt(path, what))?;
    Ok(form.session)
}

/// A file whose other members may be unknown.
#[derive(Deserialize)]
struct Loose<T> {
    session: T,
}

/// Ours, a folder, shut to others.
pub(crate) fn check_folder(path: &Path) -> Result<(), StoreError> {
    if file::look(path)? != file::Found::Folder {
        let what = "it is a link or a file, it must be a folder".to_owned();
        return Err(StoreError::Unsafe { path: path.to_owned(), what });
    }
    file::check_private(file::open_folder(path)?, path, 0o700)
}

/// A workspace that holds the state folder would let its processes write the records.
fn check_outside(folder: &Path, workspaces: &[PathBuf]) -> Result<(), StoreError> {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    for root in workspaces {
        let root_real = root.canonicalize().unwrap_or_else(|_| root.clone());
        if real.starts_with(&root_real) {
            let what = format!("it lies inside the workspace `{}`", root.display());
            return Err(StoreError::Unsafe { path: folder.to_owned(), what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
