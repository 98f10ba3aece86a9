//! What tools give back: structured for programs, and a text for the model that reads it.

use std::collections::HashSet;
use std::fmt::Write as _;

use procd_client::End;
use procd_protocol::v1::{Excerpt, Leader, Page, StartResult};
use procd_protocol::{Open, ProcessId};
use schemars::JsonSchema;
use serde::Serialize;

/// A process and a part of its output. Cursors and sizes are bytes of the raw output.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, a field each in the result")]
pub(crate) struct Outcome {
    /// The handle: pass it to the other tools.
    pub(crate) process_id: String,
    /// `starting` or `running`; ended: `exited`, `failed`, `timed_out`, `interrupted`,
    /// `terminated`, `killed`, `lost_on_restore`.
    pub(crate) state: String,
    /// Set when it exited: its code, or 128 + the signal it died of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    /// The signal it died of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
    /// Why it ended, when that is not plain from the state, such as `runner-shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Its output: safe text, or base64 when that was asked for.
    pub(crate) output: String,
    /// Whether the middle of the output was left out: a marker in it says how much.
    pub(crate) truncated: bool,
    /// Where to read on.
    pub(crate) next_cursor: u64,
    /// Whether there is more output beyond `next_cursor` now.
    pub(crate) more: bool,
    /// Whether it has ended and all of its output was read.
    pub(crate) eof: bool,
    /// Bytes between the cursor asked for and the output that are not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gap_bytes: Option<u64>,
    /// The last line, still open: not part of `output`, nor covered by `next_cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pending_line: Option<String>,
    /// What the pattern found.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<Found>,
    /// Whether the output looks like no text.
    pub(crate) binary: bool,
    /// From start to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    /// Why the call came back: `exit`, `output`, `match`, `quiet`, `bytes`, `timeout`, `poll`,
    /// `gap`, `leader_exited`, `shutdown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) woke_by: Option<String>,
}

/// What a pattern found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Found {
    /// The text, at most 4096 bytes of it.
    pub(crate) text: String,
    /// Its first byte.
    pub(crate) start_cursor: u64,
    /// Behind its last byte.
    pub(crate) end_cursor: u64,
}

impl From<Excerpt> for Found {
    fn from(excerpt: Excerpt) -> Self {
        let Excerpt { text, start_cursor, end_cursor } = excerpt;
        Self { text, start_cursor, end_cursor }
    }
}

impl Outcome {
    /// Of a page.
    pub(crate) fn of(page: Page) -> Self {
        let signal = match page.leader {
            Some(Leader::Signal { signal_name, .. }) => Some(signal_name),
            Some(Leader::Code { .. }) | None => None,
        };
        let reason = page.reason.as_ref().map(Open::as_str);
        // `timed_out` and `timed-out` say the same.
        let reason = reason.filter(|reason| reason.replace('-', "_") != page.state.as_str());
        Self {
            process_id: page.process_id.to_string(),
            state: page.state.as_str().to_owned(),
            exit_code: page.exit_code,
            signal,
            reason: reason.map(str::to_owned),
            output: page.output.unwrap_or_default(),
            truncated: false,
            next_cursor: page.next_cursor,
            more: page.more,
            eof: page.eof,
            gap_bytes: page.gap_bytes,
            pending_line: page.pending_line,
            found: page.found.map(Found::from),
            binary: page.binary,
            duration_ms: page.duration_ms,
            woke_by: None,
        }
    }

    /// Of the answer to a start: head, marker and tail of a long output are one text here.
    pub(crate) fn of_start(start: StartResult) -> Self {
        let mut outcome = Self::of(start.page);
        outcome.woke_by = Some(start.woke_by.as_str().to_owned());
        outcome.truncated = start.truncated;
        if start.truncated {
            let text = |part: Option<Excerpt>| part.map(|part| part.text).unwrap_or_default();
            let omitted = start.omitted_bytes.unwrap_or(0);
            let from = start.head.as_ref().map_or(0, |head| head.end_cursor);
            let mut output = text(start.head);
            let marker =
                format!("[... {omitted} bytes left out; read them from cursor {from} on ...]");
            let line = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
            write!(output, "{line}{marker}\n{}", text(start.tail)).ok();
            outcome.output = output;
        }
        outcome
    }

    /// The text for the model: the output, then what is known of the process in brackets.
    pub(crate) fn text(&self) -> String {
        let mut text = self.output.clone();
        if let Some(line) = &self.pending_line {
            text += line;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let Self { process_id, next_cursor, .. } = self;
        write!(text, "[{}", self.ending()).ok();
        if let Some(bytes) = self.gap_bytes {
            write!(text, "; {bytes} bytes before this output are not kept any more").ok();
        }
        write!(text, "; process_id {process_id}").ok();
        if self.more || !self.has_ended() {
            write!(text, ", next_cursor {next_cursor}").ok();
        }
        if self.more {
            text += ", more output is there now";
        }
        text.push(']');
        text
    }

    fn ending(&self) -> String {
        let state = &self.state;
        let how = match (&self.signal, self.exit_code, &self.reason) {
            (Some(signal), Some(_code), _) => format!("{state} by {signal}"),
            (None, Some(code), _) => format!("{state} with code {code}"),
            (_, None, Some(reason)) => format!("{state} ({reason})"),
            (_, None, None) => state.clone(),
        };
        let woke_by = self.woke_by.as_deref().filter(|_| !self.has_ended());
        match woke_by {
            Some("timeout") => format!("{how} still, the time to wait is over"),
            Some("poll") | None => how,
            Some(woke_by) => format!("{how}; woken by {woke_by}"),
        }
    }

    fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), "running" | "starting")
    }
}

/// The handle of a page whose end it shows.
pub(crate) fn shown_end(page: &Page) -> HashSet<ProcessId> {
    End::of(page).map(|_end| page.process_id).into_iter().collect()
}
