//! `ProcessInput`: text, keys, the end of input, the size of a terminal.

use procd_protocol::ErrorCode;
use procd_protocol::v1::InputParams;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Call, Failure, process_id, wait_ms};
use crate::outcome::{Outcome, shown_end};
use crate::waiting::waiting;

pub(super) const DESCRIPTION: &str = "Writes to the input of a process that was started with background, yield_time_ms, \
    tty or stdin: pipe. Lines need their own newline in data; in a terminal, keys: [\"enter\"]. \
    With yield_time_ms it waits for output beyond the cursor and returns it.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The process.
    process_id: String,
    /// Text, as it is: a line needs its newline.
    data: Option<String>,
    /// Keys of a terminal, typed behind the data: enter, tab, esc, up, down, ctrl-c, ctrl-d, f5.
    #[schemars(length(min = 1, max = 256))]
    keys: Option<Vec<String>>,
    /// End its input, behind the data.
    eof: Option<bool>,
    /// New size of its terminal, with cols.
    #[schemars(range(min = 1, max = 65535))]
    rows: Option<u64>,
    /// New size of its terminal, with rows.
    #[schemars(range(min = 1, max = 65535))]
    cols: Option<u64>,
    /// Where the returned output begins; default: where the output ended before this call.
    cursor: Option<u64>,
    /// How long to wait for output beyond the cursor, milliseconds; default 0, at most 600000.
    #[schemars(range(max = 600_000))]
    yield_time_ms: Option<u64>,
    /// Show overwritten lines as a terminal would; default false, since a prompt is an open line.
    fold: Option<bool>,
}

/// What it gives.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Bytes that were taken: all of them.
    accepted_bytes: u64,
    /// Bytes that the process has not read yet.
    pending_bytes: u64,
    /// The process and its output.
    #[serde(flatten)]
    outcome: Outcome,
}

pub(super) async fn run(call: Call<'_>, arguments: Arguments) -> Result<Answer, Failure> {
    let process = process_id(&arguments.process_id)?;
    let yield_time_ms = wait_ms("yield_time_ms", arguments.yield_time_ms)?;
    let session = call.bridge.session().await?;
    let process = session.process(process);
    let params = InputParams {
        data: arguments.data,
        keys: arguments.keys,
        eof: arguments.eof,
        rows: arguments.rows,
        cols: arguments.cols,
        cursor: arguments.cursor,
        yield_time_ms,
        fold: arguments.fold,
        ..process.no_input()
    };
    let written = waiting(call.context, "waiting for output", process.input(&params)).await?;
    let result = match written {
        Ok(result) => result,
        Err(error) if error.is(ErrorCode::StdinClosed) => {
            return Err(Failure::told(format!(
                "stdin_closed: {error}; to write to a command start it with `stdin: \"pipe\"` or \
                 `tty: true`"
            )));
        }
        Err(error) if error.is_disconnected() => {
            return Err(Failure::told(format!(
                "{error}; the input may have arrived or not: look at the output before sending it \
                 again"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let shown = shown_end(&result.page);
    let mut outcome = Outcome::of(result.page);
    outcome.woke_by = Some(result.woke_by.as_str().to_owned());
    let text = outcome.text();
    let (accepted_bytes, pending_bytes) = (result.accepted_bytes, result.pending_bytes);
    Ok(Answer::of(&Output { accepted_bytes, pending_bytes, outcome }, text, shown))
}
