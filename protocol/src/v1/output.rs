//! process/output.

use std::collections::HashSet;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::common::{Encoding, Leader, ProcessState, Reason, WokeBy, is_false};
use super::{Method, Params, first_given};
use crate::error::EntryError;
use crate::field::{FieldError, count, duration, items, number, params, require, text, within};
use crate::ids::ProcessId;
use crate::limits::{
    INTEGER_MAX, LIMIT_BYTES_MAX, MATCH_BYTES_MAX, PROCESS_IDS_MAX, REASON_CHARS_MAX,
    TAIL_LINES_MAX,
};
use crate::words::{Open, Word, words};

words! {
    /// Whose bytes a read returns.
    StreamFilter, "a stream" {
        /// Both.
        Combined = "combined",
        /// stdout and what has no tag.
        Stdout = "stdout",
        /// stderr and what has no tag.
        Stderr = "stderr",
    }
}

words! {
    /// What a read does where bytes are not kept any more.
    OnGap, "what to do at a gap" {
        /// Reads on behind it and says so.
        Mark = "mark",
        /// Fails.
        Error = "error",
    }
}

words! {
    /// How conditions or processes go together.
    Combine, "a combination" {
        /// One is enough.
        Any = "any",
        /// All have to hold.
        All = "all",
    }
}

words! {
    /// The simple waits.
    WaitWord, "a wait" {
        /// None.
        Poll = "poll",
        /// Until one process has output or is terminal.
        Any = "any",
        /// Until each has output or is terminal.
        All = "all",
        /// Until all are terminal.
        Exit = "exit",
    }
}

words! {
    /// Where a chunk came from.
    ChunkSource, "a source" {
        /// stdout.
        Stdout = "stdout",
        /// stderr.
        Stderr = "stderr",
        /// One pipe for both, a terminal, or a tag that is not kept any more.
        Mixed = "mixed",
    }
}

params! {
    /// Parameters of `process/output`. Exactly one of `process_id` and `process_ids`.
    OutputParams optional {
        /// One process.
        process_id: ProcessId,
        /// 1..=64 processes, each once.
        process_ids: Vec<ProcessId>,
        /// Where to read from: one number for all, or one each. Negative = from the end.
        cursor: Cursors,
        /// The newest of so many lines, in place of `cursor`; 1..=100,000.
        tail_lines: u64,
        /// Size of a page, 1..=1 MiB; default 32768.
        limit_bytes: u64,
        /// Default `safe_text`.
        encoding: Encoding,
        /// Default `combined`.
        stream: StreamFilter,
        /// Whether overwritten lines are shown as a terminal would; safe text only.
        fold: bool,
        /// Whether `chunks` is wanted.
        tags: bool,
        /// Default `mark`.
        on_gap: OnGap,
        /// Default `poll`.
        wait: Wait,
        /// How long to wait; absent = without limit, 0 = not at all.
        timeout_ms: u64,
        /// Whether an end that is no success is an error; of one process only.
        require_success: bool,
        /// Why an operator reads, 1..=256 characters; logged.
        reason: String,
    }
}

impl OutputParams {
    /// The processes, however they were given.
    #[must_use]
    pub fn targets(&self) -> &[ProcessId] {
        match (&self.process_id, &self.process_ids) {
            (Some(one), _) => std::slice::from_ref(one),
            (None, Some(many)) => many,
            (None, None) => &[],
        }
    }

    fn check_targets(&self) -> Result<(), FieldError> {
        match (&self.process_id, &self.process_ids) {
            (Some(_), None) => Ok(()),
            (None, Some(many)) => {
                items("process_ids", many.len(), 1, PROCESS_IDS_MAX)?;
                let mut seen = HashSet::new();
                for (index, id) in many.iter().enumerate() {
                    require(seen.insert(id), &format!("process_ids[{index}]"), "is there twice")?;
                }
                Ok(())
            }
            (Some(_), Some(_)) => {
                Err(FieldError::refused("process_ids", "does not go with `process_id`"))
            }
            (None, None) => {
                Err(FieldError::refused("process_id", "or `process_ids` has to be there"))
            }
        }
    }
}

impl Params for OutputParams {
    const METHOD: Method = Method::ProcessOutput;
    type Result = OutputResult;

    fn validate(&self) -> Result<(), FieldError> {
        self.check_targets()?;
        if let Some(cursor) = &self.cursor {
            cursor.check(self.targets().len())?;
            require(self.tail_lines.is_none(), "tail_lines", "does not go with `cursor`")?;
        }
        within("tail_lines", self.tail_lines, 1, TAIL_LINES_MAX)?;
        within("limit_bytes", self.limit_bytes, 1, LIMIT_BYTES_MAX)?;
        duration("timeout_ms", self.timeout_ms, 0)?;
        text("reason", self.reason.as_deref(), 1, REASON_CHARS_MAX)?;
        if self.fold == Some(true) {
            let is_text = self.encoding != Some(Encoding::Base64);
            require(is_text, "fold", "goes with `safe_text` only")?;
            require(self.tags != Some(true), "fold", "does not go with `tags`")?;
        }
        let is_one = self.targets().len() == 1 || self.require_success != Some(true);
        require(is_one, "require_success", "goes with one process only")?;
        match &self.wait {
            Some(Wait::Until(wait)) => wait.validate(),
            Some(Wait::Simple(_)) | None => Ok(()),
        }
    }
}

/// Cursors as asked: one for all processes, or one each, in the order of `process_ids`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursors {
    /// One for all.
    One(i64),
    /// One each.
    Each(Vec<i64>),
}

impl Cursors {
    /// The cursor of the process at `index`.
    #[must_use]
    pub fn at(&self, index: usize) -> i64 {
        match self {
            Self::One(cursor) => *cursor,
            Self::Each(cursors) => cursors.get(index).copied().unwrap_or(0),
        }
    }

    fn check(&self, targets: usize) -> Result<(), FieldError> {
        match self {
            Self::One(cursor) => integer("cursor", *cursor),
            Self::Each(cursors) => {
                require(cursors.len() == targets, "cursor", "has not one item per process")?;
                cursors
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, cursor)| integer(&format!("cursor[{index}]"), *cursor))
            }
        }
    }
}

fn integer(field: &str, value: i64) -> Result<(), FieldError> {
    require(value.unsigned_abs() <= INTEGER_MAX, field, "is beyond 2^53-1")
}

impl Serialize for Cursors {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(cursor) => to.serialize_i64(*cursor),
            Self::Each(cursors) => cursors.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Cursors {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CursorsVisitor)
    }
}

struct CursorsVisitor;

impl<'de> Visitor<'de> for CursorsVisitor {
    type Value = Cursors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a list of integers")
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Cursors, E> {
        Ok(Cursors::One(value))
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Cursors, E> {
        i64::try_from(value).map(Cursors::One).map_err(|_wide| E::custom("is beyond 2^53-1"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Cursors, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Cursors::Each)
    }
}

/// What a read waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A word.
    Simple(WaitWord),
    /// Conditions.
    Until(WaitUntil),
}

params! {
    /// A wait for conditions.
    #[derive(Eq)]
    WaitUntil required {
        /// The conditions of one process.
        until: Until,
    } optional {
        /// How the conditions go together; default `any`.
        combine: Combine,
        /// How the processes go together; default `any`.
        wait_for: Combine,
    }
}

params! {
    /// The conditions of one process.
    #[derive(Eq)]
    Until optional {
        /// A regular expression on raw bytes, at most 4 KiB.
        r#match: String,
        /// No output for so many milliseconds.
        quiet_ms: u64,
        /// So many bytes beyond the cursor.
        bytes: u64,
        /// The end.
        exit: bool,
    }
}

impl WaitUntil {
    fn validate(&self) -> Result<(), FieldError> {
        let until = &self.until;
        let pattern = until.r#match.as_deref();
        within("wait.until.match", pattern.map(|p| count(p.len())), 1, MATCH_BYTES_MAX)?;
        duration("wait.until.quiet_ms", until.quiet_ms, 0)?;
        number("wait.until.bytes", until.bytes, 1)?;
        let is_given = pattern.is_some() || first_given!(until: quiet_ms, bytes).is_some();
        let is_given = is_given || until.exit == Some(true);
        require(is_given, "wait.until", "names no condition")
    }
}

impl Serialize for Wait {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Simple(word) => word.serialize(to),
            Self::Until(until) => until.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WaitVisitor)
    }
}

struct WaitVisitor;

impl<'de> Visitor<'de> for WaitVisitor {
    type Value = Wait;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a wait: poll, any, all, exit, or an object with `until`")
    }
    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Wait, E> {
        WaitWord::from_word(word)
            .map(Wait::Simple)
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(word), &self))
    }
    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Wait, A::Error> {
        WaitUntil::deserialize(MapAccessDeserializer::new(fields)).map(Wait::Until)
    }
}

/// Result of `process/output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputResult {
    /// One entry a process, in the order asked.
    pub results: Vec<Entry>,
    /// Why the call came back.
    pub woke_by: Open<WokeBy>,
}

/// What is said of one process: an error, or a page. One bad process never fails the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Entry {
    /// It could not be read.
    Failed {
        /// The process, as asked.
        process_id: ProcessId,
        /// Why.
        error: EntryError,
    },
    /// A page.
    Page(Box<Page>),
}

/// A page of output and what is known of its process. Cursors and sizes are raw bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, a field each on the wire")]
pub struct Page {
    /// The process.
    pub process_id: ProcessId,
    /// Its state.
    pub state: Open<ProcessState>,
    /// As asked, resolved.
    pub start_cursor: u64,
    /// Where the bytes really begin.
    pub from_cursor: u64,
    /// Where to go on.
    pub next_cursor: u64,
    /// Bytes ever written.
    pub total_bytes: u64,
    /// The first byte still kept.
    pub retained_from: u64,
    /// Whether bytes asked for are not kept any more.
    pub gap: bool,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_bytes: Option<u64>,
    /// Whether bytes remain beyond `next_cursor`.
    pub more: bool,
    /// Terminal, and nothing beyond `next_cursor`.
    pub eof: bool,
    /// Text or base64, as asked. Absent only in a truncated start reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Where these bytes can be had again.
    pub artifact: Artifact,
    /// Bytes of the other stream that the cursor passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtered_bytes: Option<u64>,
    /// Whether bytes without a tag are among those of a stream asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mixed: bool,
    /// Bytes that are there and cannot be rendered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_bytes: Option<u64>,
    /// The open line of a folded page, not covered by the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_line: Option<String>,
    /// Whether the text differs from the raw bytes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub normalized: bool,
    /// Whether the bytes look like no text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub binary: bool,
    /// The chunks of this page, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Vec<Chunk>>,
    /// What the pattern found.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub found: Option<super::start::Excerpt>,
    /// Set exactly when `exited`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The leader's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Why, when terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Open<Reason>>,
    /// When its exec succeeded, RFC 3339 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its tree was proven empty, RFC 3339 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// From spawn to end, monotonic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// `Some(false)`: the end is not on disk yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

/// Where the bytes of a page can be had again: `process/output` with these cursors and encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifact {
    /// The handle.
    pub id: ProcessId,
    /// Always `base64`.
    pub encoding: Open<Encoding>,
    /// The first byte of the page.
    pub start_cursor: u64,
    /// Behind the last byte of the page.
    pub end_cursor: u64,
}

/// One chunk as it was read from its pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chunk {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Where it came from.
    pub source: Open<ChunkSource>,
    /// When it arrived, RFC 3339 UTC. Absent where the tag is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}
