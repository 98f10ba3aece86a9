//! The manifest's file: the record of one ended process with its events and their numbers,
//! written at the seal, and again for a pin or an acknowledgement.

pub mod rules;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use procd_core::{Handle, SessionId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::closed;
use crate::error::StoreError;
use crate::event::{Event, EventKind, REPEATED_EVENTS_MAX};
use crate::failpoint;
use crate::file::{self, Found, Replacement};
use crate::folder::StateFolder;
use crate::record::{RECORD_VERSION, Record};

/// Bytes of a manifest's file at most: 64 KiB of command, each byte escaped, and what is around.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// An event with its number in the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumberedEvent {
    /// The number, from 1.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

/// What the file of one process holds: `{"record":{...},"events":[{"seq":1,"event":{...}}],
/// "notification_seq":3,"crc":"xxxxxxxx"}` on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManifestFile {
    /// The record.
    pub record: Record,
    /// Its events, in the order of their numbers; of kinds that repeat the newest 16 each.
    pub events: Vec<NumberedEvent>,
    /// The number of its notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification_seq: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIn<'a> {
    record: Record,
    #[serde(borrow)]
    events: Vec<EventIn<'a>>,
    #[serde(default)]
    notification_seq: Option<u64>,
    #[serde(rename = "crc")]
    _crc: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventIn<'a> {
    seq: u64,
    #[serde(borrow)]
    event: &'a RawValue,
}

/// Only the version: what else a newer build writes is not known.
#[derive(Deserialize)]
struct VersionIn {
    record: Version,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// Drops the oldest events of each kind that repeats beyond the newest 16. Keeps the order.
pub fn keep_newest(events: &mut Vec<NumberedEvent>) {
    for &kind in EventKind::ALL.iter().filter(|kind| kind.repeats()) {
        let count = events.iter().filter(|held| held.event.kind() == kind).count();
        let mut surplus = count.saturating_sub(REPEATED_EVENTS_MAX);
        events.retain(|held| {
            let drop = surplus > 0 && held.event.kind() == kind;
            surplus -= usize::from(drop);
            !drop
        });
    }
}

/// Writes the file, durable on return. The stored one, if any, is held against it first.
/// # Errors
/// [`StoreError::Manifest`] for a record against the rules, [`StoreError::Corrupt`] or
/// [`StoreError::Newer`] for a predecessor that cannot be read (it is never overwritten),
/// [`StoreError::Io`]; the old file stands then, and no temporary one is left.
pub fn write(folder: &StateFolder, manifest: &ManifestFile) -> Result<(), StoreError> {
    let mut results = write_all(folder, std::slice::from_ref(manifest));
    results.pop().unwrap_or(Ok(()))
}

/// [`write`] of many: all are written first, then each is synced, and each folder once, so that
/// they share commits of the file system's journal. One result each, in order. Holds a descriptor
/// for each.
pub fn write_all(folder: &StateFolder, manifests: &[ManifestFile]) -> Vec<Result<(), StoreError>> {
    let begun: Vec<_> = manifests.iter().map(|manifest| begin(folder, manifest)).collect();
    for replacement in begun.iter().flatten() {
        replacement.write_back();
    }
    let mut results: Vec<_> =
        begun.into_iter().map(|begun| begun.and_then(Replacement::put_in_place)).collect();
    let sessions: BTreeSet<SessionId> =
        manifests.iter().map(|manifest| manifest.record.session_id).collect();
    for session in sessions {
        let mut of_session = manifests
            .iter()
            .zip(&mut results)
            .filter(|(manifest, result)| manifest.record.session_id == session && result.is_ok())
            .peekable();
        if of_session.peek().is_none() {
            continue;
        }
        let path = folder.session_path(session).join("manifests");
        if file::sync_folder(&path).is_err() {
            // Told for each of them: each is tried again by itself.
            of_session.for_each(|(_, result)| *result = file::sync_folder(&path));
            continue;
        }
        failpoint::hit("file-after-folder-sync");
        of_session.for_each(|_| failpoint::hit("manifest-durable"));
    }
    results
}

/// Writes one beside its place.
fn begin(folder: &StateFolder, manifest: &ManifestFile) -> Result<Replacement, StoreError> {
    let record = &manifest.record;
    let refuse = |source| StoreError::Manifest { source };
    rules::check_alone(record).map_err(refuse)?;
    let path = folder.manifest_path(record.session_id, &record.process_id);
    check_events(manifest).map_err(|what| StoreError::corrupt(&path, what))?;
    if file::look(&path)? != Found::Nothing {
        let stored = read_path(&path)?;
        rules::Stored::of(&stored.record).check(record).map_err(refuse)?;
    }
    failpoint::hit("manifest-before-write");
    let bytes = closed::encode("manifest", manifest)?;
    Replacement::begin(&path, |file| file.write_all(&bytes))
}

/// Reads the file of one process, strictly.
/// # Errors
/// [`StoreError::Corrupt`] for damage, a broken rule or the record of another process;
/// [`StoreError::Newer`]; [`StoreError::Io`].
pub fn read(
    folder: &StateFolder,
    session: SessionId,
    handle: &Handle,
) -> Result<ManifestFile, StoreError> {
    let path = folder.manifest_path(session, handle);
    let manifest = read_path(&path)?;
    if manifest.record.session_id != session || manifest.record.process_id != *handle {
        return Err(StoreError::corrupt(&path, "it is the record of another process"));
    }
    Ok(manifest)
}

/// Removes the file of one process; none there is fine.
/// # Errors
/// [`StoreError::Io`].
pub fn remove(folder: &StateFolder, session: SessionId, handle: &Handle) -> Result<(), StoreError> {
    failpoint::hit("removal-before-manifest");
    file::remove(&folder.manifest_path(session, handle))?;
    failpoint::hit("removal-after-manifest");
    Ok(())
}

fn read_path(path: &Path) -> Result<ManifestFile, StoreError> {
    let bytes = file::read(path, MANIFEST_BYTES_MAX)?;
    let line = closed::only_line(&bytes).map_err(|what| StoreError::corrupt(path, what))?;
    decode(line).map_err(|what| match newer(line) {
        Some(found) => {
            let known = u64::from(RECORD_VERSION);
            StoreError::Newer { path: path.to_owned(), found, known }
        }
        None => StoreError::corrupt(path, what),
    })
}

/// What is wrong with a line, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_line(line: &[u8]) -> Result<(), String> {
    decode(line).map(drop)
}

fn newer(line: &[u8]) -> Option<u64> {
    let form: VersionIn = serde_json::from_slice(line).ok()?;
    Some(form.record.version).filter(|&version| version > u64::from(RECORD_VERSION))
}

fn decode(line: &[u8]) -> Result<ManifestFile, String> {
    let form: FileIn<'_> =
        serde_json::from_slice(line).map_err(|error| format!("it is not readable: {error}"))?;
    rules::check_alone(&form.record).map_err(|violation| violation.to_string())?;
    let mut events = Vec::with_capacity(form.events.len());
    for EventIn { seq, event } in form.events {
        let event = Event::decode(event.get()).map_err(|error| format!("event {seq}: {error}"))?;
        events.push(NumberedEvent { seq, event });
    }
    let manifest =
        ManifestFile { record: form.record, events, notification_seq: form.notification_seq };
    check_events(&manifest)?;
    Ok(manifest)
}

/// Whether the events are those of the record, with numbers that go up.
fn check_events(manifest: &ManifestFile) -> Result<(), String> {
    let record = &manifest.record;
    let process_id = record.process_id.to_string();
    let mut last = 0;
    for NumberedEvent { seq, event } in &manifest.events {
        if *seq <= last {
            return Err(format!("event {seq} does not follow {last}"));
        }
        last = *seq;
        if event.session_id() != record.session_id
            || event.loop_id() != record.loop_id
            || event.process_id() != process_id
        {
            return Err(format!("event {seq} is of another process"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
