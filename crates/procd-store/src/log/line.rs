//! A line of the log: `{"v":1,"records":[{"session","seq","kind","id","payload"}...],"crc":"..."}`.
//! It counts wholly or not at all. A line without records closes a snapshot.

use std::borrow::Cow;

use procd_core::{Handle, SessionId};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::CommitError;
use super::record::{Kind, LogRecord, Payload};
use super::replay::Numbered;
use crate::closed;
use crate::event::{Event, Notification};
use crate::manifest::rules;
use crate::record::RECORD_VERSION;
use crate::session::SESSION_VERSION;
use crate::text;

/// The version of the line's form that this build writes.
const LINE_VERSION: u64 = 1;
/// How each line begins; inside a JSON string the quotes would be escaped, and no payload has a
/// member `v`, so it marks the begin of a line also where a line feed is damaged.
pub(super) const LINE_START: &[u8] = b"{\"v\":";

/// A record whose payload is bytes already; only the number is missing.
pub(super) struct Encoded {
    pub(super) record: LogRecord,
    pub(super) kind: Kind,
    /// The process whose life bounds that of the id.
    pub(super) process: Option<Handle>,
    payload: Vec<u8>,
}

impl Encoded {
    /// Names session, kind and id in a fixed size.
    pub(super) fn key(&self) -> u128 {
        let mut hash = Sha256::new();
        hash.update(self.record.session.uuid().as_bytes());
        hash.update(self.kind.as_str());
        hash.update([0]);
        hash.update(&self.record.id);
        half(hash)
    }

    /// Names the payload.
    pub(super) fn digest(&self) -> u128 {
        let mut hash = Sha256::new();
        hash.update(&self.payload);
        half(hash)
    }
}

fn half(hash: Sha256) -> u128 {
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(digest.split_at(16).0);
    u128::from_le_bytes(bytes)
}

/// Checks envelope and payload and encodes the payload.
pub(super) fn encode_record(record: LogRecord) -> Result<Encoded, CommitError> {
    let kind = record.payload.kind();
    let malformed = |what: String| CommitError::Malformed { kind, what };
    record.check().map_err(malformed)?;
    let payload = match &record.payload {
        Payload::Session(session) => {
            session.check().map_err(malformed)?;
            serde_json::to_vec(session)
        }
        Payload::Process(process) => {
            rules::check_alone(process)
                .map_err(|source| CommitError::Conflict { process: process.process_id, source })?;
            serde_json::to_vec(process)
        }
        Payload::Event(event) => serde_json::to_vec(event),
        Payload::Notification(notification) => serde_json::to_vec(notification),
        Payload::Acknowledgement(acknowledgement) => serde_json::to_vec(acknowledgement),
        Payload::Removal(removal) => serde_json::to_vec(removal),
    }
    .map_err(|error| malformed(error.to_string()))?;
    let process = record.payload.process();
    Ok(Encoded { record, kind, process, payload })
}

/// The line of a batch.
pub(super) fn encode<'a>(
    records: impl Iterator<Item = (u64, &'a Encoded)>,
) -> Result<Vec<u8>, CommitError> {
    #[derive(Serialize)]
    struct Head<'a> {
        #[serde(with = "text")]
        session: SessionId,
        seq: u64,
        #[serde(with = "text")]
        kind: Kind,
        id: &'a str,
    }
    let mut line = format!("{{\"v\":{LINE_VERSION},\"records\":[").into_bytes();
    for (at, (seq, encoded)) in records.enumerate() {
        let (kind, session) = (encoded.kind, encoded.record.session);
        let head = Head { session, seq, kind, id: &encoded.record.id };
        if at > 0 {
            line.push(b',');
        }
        serde_json::to_writer(&mut line, &head)
            .map_err(|error| CommitError::Malformed { kind, what: error.to_string() })?;
        line.pop();
        line.extend_from_slice(b",\"payload\":");
        line.extend_from_slice(&encoded.payload);
        line.push(b'}');
    }
    line.push(b']');
    closed::close(&mut line);
    Ok(line)
}

/// What a line of the log is.
#[derive(Debug)]
pub(super) enum Line {
    /// A batch, of no records at the end of a snapshot.
    Batch(Vec<Numbered>),
    /// Whole, and written by a newer build.
    Newer,
    /// Not what was written.
    Bad(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineIn<'a> {
    v: u64,
    #[serde(borrow)]
    records: Vec<RecordIn<'a>>,
    #[serde(rename = "crc")]
    _crc: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordIn<'a> {
    #[serde(with = "text")]
    session: SessionId,
    seq: u64,
    #[serde(with = "text")]
    kind: Kind,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// Only the version: what else a newer build writes is not known.
#[derive(Deserialize)]
struct VersionIn {
    #[serde(alias = "v")]
    version: u64,
}

/// Reads a line (without its line feed), strictly.
pub(super) fn decode(line: &[u8]) -> Line {
    if let Err(what) = closed::check(line) {
        return Line::Bad(what.to_owned());
    }
    let form: LineIn<'_> = match serde_json::from_slice(line) {
        Ok(form) => form,
        Err(_) if is_newer(line, LINE_VERSION) => return Line::Newer,
        Err(error) => return Line::Bad(format!("it is not readable: {error}")),
    };
    match form.v {
        LINE_VERSION => {}
        newer if newer > LINE_VERSION => return Line::Newer,
        other => return Line::Bad(format!("version {other} is unknown")),
    }
    let mut records = Vec::with_capacity(form.records.len());
    for raw in &form.records {
        match decode_record(raw) {
            Ok(record) => records.push(record),
            Err(_) if is_newer_payload(raw) => return Line::Newer,
            Err(what) => return Line::Bad(format!("{} `{}`: {what}", raw.kind, raw.id)),
        }
    }
    Line::Batch(records)
}

fn is_newer(object: &[u8], known: u64) -> bool {
    serde_json::from_slice::<VersionIn>(object).is_ok_and(|form| form.version > known)
}

fn is_newer_payload(raw: &RecordIn<'_>) -> bool {
    let known = match raw.kind {
        Kind::Session => SESSION_VERSION,
        Kind::Process => RECORD_VERSION,
        Kind::Event | Kind::Notification | Kind::Acknowledgement | Kind::Removal => return false,
    };
    is_newer(raw.payload.get().as_bytes(), u64::from(known))
}

fn decode_record(raw: &RecordIn<'_>) -> Result<Numbered, String> {
    if raw.seq == 0 {
        return Err("its number is 0".to_owned());
    }
    let text = raw.payload.get();
    let record = LogRecord {
        session: raw.session,
        id: raw.id.clone().into_owned(),
        payload: decode_payload(raw.kind, text)?,
    };
    record.check()?;
    Ok(Numbered { seq: raw.seq, record })
}

fn decode_payload(kind: Kind, text: &str) -> Result<Payload, String> {
    fn plain<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
    Ok(match kind {
        Kind::Session => {
            let session: Box<crate::session::SessionRecord> = plain(text)?;
            session.check()?;
            Payload::Session(session)
        }
        Kind::Process => {
            let record: Box<crate::record::Record> = plain(text)?;
            rules::check_alone(&record).map_err(|violation| violation.to_string())?;
            Payload::Process(record)
        }
        Kind::Event => Payload::Event(Event::decode(text).map_err(|error| error.to_string())?),
        Kind::Notification => {
            Payload::Notification(Notification::decode(text).map_err(|error| error.to_string())?)
        }
        Kind::Acknowledgement => Payload::Acknowledgement(plain(text)?),
        Kind::Removal => Payload::Removal(plain(text)?),
    })
}
