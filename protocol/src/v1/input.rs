//! process/input.

use serde::{Deserialize, Serialize};

use super::common::{Encoding, WokeBy, is_false};
use super::output::Page;
use super::{Method, Params, first_given};
use crate::field::{FieldError, count, duration, items, params, require, within};
use crate::ids::{Base64Bytes, ProcessId};
use crate::limits::{INPUT_CALL_BYTES_MAX, INTEGER_MAX, KEYS_MAX, LIMIT_BYTES_MAX, TTY_SIZE_MAX};
use crate::words::Open;

params! {
    /// Parameters of `process/input`: at least one thing to do.
    InputParams required {
        /// The process.
        process_id: ProcessId,
    } optional {
        /// Text for stdin, at most 1 MiB.
        data: String,
        /// Bytes for stdin, at most 1 MiB.
        data_base64: Base64Bytes,
        /// Names of keys; for a terminal.
        keys: Vec<String>,
        /// Whether stdin ends behind the data.
        eof: bool,
        /// Rows of the terminal; with `cols`.
        rows: u64,
        /// Columns of the terminal; with `rows`.
        cols: u64,
        /// How long to wait until nothing is left unread, milliseconds.
        flush_ms: u64,
        /// How long to wait for output behind `cursor` or the end, milliseconds.
        yield_time_ms: u64,
        /// Where the entry begins; absent = the end just before the call.
        cursor: u64,
        /// Size of the entry's page, 1..=1 MiB.
        limit_bytes: u64,
        /// Default `safe_text`.
        encoding: Encoding,
        /// Whether overwritten lines are shown as a terminal would; safe text only.
        fold: bool,
    }
}

impl InputParams {
    /// The bytes for stdin, however they were given.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match (&self.data, &self.data_base64) {
            (Some(text), _) => text.as_bytes(),
            (None, Some(raw)) => &raw.0,
            (None, None) => &[],
        }
    }
}

impl Params for InputParams {
    const METHOD: Method = Method::ProcessInput;
    type Result = InputResult;

    fn validate(&self) -> Result<(), FieldError> {
        let both = self.data.is_some() && self.data_base64.is_some();
        require(!both, "data_base64", "does not go with `data`")?;
        let data = if self.data.is_some() { "data" } else { "data_base64" };
        let fits = count(self.bytes().len()) <= INPUT_CALL_BYTES_MAX;
        require(fits, data, "is more than 1 MiB")?;
        if let Some(keys) = &self.keys {
            items("keys", keys.len(), 1, KEYS_MAX)?;
        }
        within("rows", self.rows, 1, TTY_SIZE_MAX)?;
        within("cols", self.cols, 1, TTY_SIZE_MAX)?;
        require(self.rows.is_none() || self.cols.is_some(), "cols", "is missing beside `rows`")?;
        require(self.cols.is_none() || self.rows.is_some(), "rows", "is missing beside `cols`")?;
        duration("flush_ms", self.flush_ms, 0)?;
        duration("yield_time_ms", self.yield_time_ms, 0)?;
        within("cursor", self.cursor, 0, INTEGER_MAX)?;
        within("limit_bytes", self.limit_bytes, 1, LIMIT_BYTES_MAX)?;
        let is_text = self.fold != Some(true) || self.encoding != Some(Encoding::Base64);
        require(is_text, "fold", "goes with `safe_text` only")?;
        let does = first_given!(self: data, data_base64, keys, rows).is_some();
        let why = "or `data_base64`, `keys`, `eof` or a size has to be there";
        require(does || self.eof == Some(true), "data", why)
    }
}

/// Result of `process/input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputResult {
    /// Bytes of this call that were taken: all of them.
    pub accepted_bytes: u64,
    /// Bytes that wait in the queue, these included.
    pub pending_bytes: u64,
    /// Bytes that a key of this call discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_bytes: Option<u64>,
    /// Whether nothing waits any more, when that was asked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flushed: bool,
    /// Why the call came back.
    pub woke_by: Open<WokeBy>,
    /// The entry, as in `process/output`, from the end just before the call on.
    #[serde(flatten)]
    pub page: Page,
}
