//! process/search and process/export: what is kept of an output, line by line or byte by byte.

use serde::{Deserialize, Serialize};

use super::start::Excerpt;
use super::{Method, Params};
use crate::field::{FieldError, count, params, text, within};
use crate::ids::{Base64Bytes, ProcessId, RequestId};
use crate::limits::{
    EXPORT_CHUNKS_MAX, INTEGER_MAX, MATCH_BYTES_MAX, REASON_CHARS_MAX, SEARCH_LIMIT_MAX,
};

params! {
    /// Parameters of `process/search`.
    SearchParams required {
        /// The process.
        process_id: ProcessId,
        /// A regular expression on raw lines, 1..=4096 bytes.
        pattern: String,
    } optional {
        /// Where to begin; default 0.
        from_cursor: u64,
        /// Matches wanted, 1..=1000; default 100.
        limit: u64,
        /// Why an operator searches, 1..=256 characters; logged.
        reason: String,
    }
}

impl Params for SearchParams {
    const METHOD: Method = Method::ProcessSearch;
    type Result = SearchResult;

    fn validate(&self) -> Result<(), FieldError> {
        within("pattern", Some(count(self.pattern.len())), 1, MATCH_BYTES_MAX)?;
        within("from_cursor", self.from_cursor, 0, INTEGER_MAX)?;
        within("limit", self.limit, 1, SEARCH_LIMIT_MAX)?;
        text("reason", self.reason.as_deref(), 1, REASON_CHARS_MAX)
    }
}

/// Result of `process/search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchResult {
    /// The lines that match, oldest first.
    pub matches: Vec<Excerpt>,
    /// Where to go on.
    pub next_cursor: u64,
    /// Whether there is more to be searched now.
    pub more: bool,
    /// Whether bytes from `from_cursor` on are not kept any more.
    pub gap: bool,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_bytes: Option<u64>,
}

params! {
    /// Parameters of `process/export`.
    ExportParams required {
        /// The process.
        process_id: ProcessId,
    } optional {
        /// Where to begin; default 0.
        from_cursor: u64,
        /// Why an operator exports, 1..=256 characters; logged.
        reason: String,
    }
}

impl Params for ExportParams {
    const METHOD: Method = Method::ProcessExport;
    type Result = ExportResult;

    fn validate(&self) -> Result<(), FieldError> {
        within("from_cursor", self.from_cursor, 0, INTEGER_MAX)?;
        text("reason", self.reason.as_deref(), 1, REASON_CHARS_MAX)
    }
}

/// Result of `process/export`, behind its notices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportResult {
    /// As asked.
    pub from_cursor: u64,
    /// The total when the export began.
    pub end_cursor: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Bytes that are not kept any more.
    pub gap_bytes: u64,
    /// Hex SHA-256 of the bytes sent.
    pub sha256: String,
}

/// The notice `export/chunk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportChunk {
    /// The export. (`for` on the wire.)
    #[serde(rename = "for")]
    pub request: RequestId,
    /// The first byte.
    pub cursor: u64,
    /// At most 256 KiB.
    pub data_base64: Base64Bytes,
}

/// The notice `export/gap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportGap {
    /// The export. (`for` on the wire.)
    #[serde(rename = "for")]
    pub request: RequestId,
    /// The first byte that is not kept any more.
    pub from: u64,
    /// Behind the last one.
    pub to: u64,
}

params! {
    /// Parameters of the notice `export/continue`.
    ExportContinueParams required {
        /// The export. (`for` on the wire.)
        #[serde(rename = "for")]
        request: RequestId,
        /// Chunks that were taken, 1..=4.
        chunks: u64,
    } optional {}
}

impl ExportContinueParams {
    /// Checks what its form does not.
    /// # Errors
    /// [`FieldError`] for a number of chunks out of range.
    pub fn validate(&self) -> Result<(), FieldError> {
        within("chunks", Some(self.chunks), 1, EXPORT_CHUNKS_MAX)
    }
}

/// The notice with bytes of an export.
pub const EXPORT_CHUNK: &str = "export/chunk";
/// The notice of a gap in an export.
pub const EXPORT_GAP: &str = "export/gap";
