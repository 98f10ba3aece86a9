//! `ProcessList`: what there is.

use std::collections::HashSet;
use std::fmt::Write as _;

use procd_protocol::Word as _;
use procd_protocol::v1::{ListParams, ProcessState, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Call, Failure};
use crate::waiting::waiting;

pub(super) const DESCRIPTION: &str = "Lists the processes of this session, newest first: those that run, and the last ones that ended.";

/// Characters of a command that are shown.
const COMMAND_CHARS_MAX: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Only those in this state: running, exited, failed, timed_out, interrupted, terminated,
    /// killed, lost_on_restore.
    state: Option<String>,
    /// Only those with this label.
    label: Option<String>,
}

/// What it gives.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The processes.
    processes: Vec<Listed>,
}

/// A process.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// The handle.
    process_id: String,
    /// Its state.
    state: String,
    /// Its code, when it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// The command, at most 200 characters of it.
    command: String,
    /// When it was started, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// When it had ended, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    /// Bytes of output so far.
    total_bytes: u64,
}

impl Listed {
    fn of(record: Record) -> Self {
        let command = record.command;
        let command = command.line.or_else(|| command.argv.map(|argv| argv.join(" ")));
        Self {
            process_id: record.process_id.to_string(),
            state: record.state.as_str().to_owned(),
            exit_code: record.exit_code,
            label: record.label,
            command: command.unwrap_or_default().chars().take(COMMAND_CHARS_MAX).collect(),
            started_at: record.started_at,
            finished_at: record.finished_at,
            total_bytes: record.total_bytes,
        }
    }

    fn line(&self) -> String {
        let Self { process_id, state, command, .. } = self;
        let mut line = format!("{process_id} {state}");
        if let Some(code) = self.exit_code {
            write!(line, " {code}").ok();
        }
        if let Some(label) = &self.label {
            write!(line, " ({label})").ok();
        }
        let command = command.lines().next().unwrap_or_default();
        write!(line, ": {command}").ok();
        line
    }
}

pub(super) async fn run(call: Call<'_>, arguments: Arguments) -> Result<Answer, Failure> {
    let state = arguments.state.as_deref().map(state).transpose()?;
    let session = call.bridge.session().await?;
    let params = ListParams { state, label: arguments.label, ..ListParams::default() };
    let records = waiting(call.context, "listing", session.list_all(params)).await??;
    let shown: HashSet<_> = records
        .iter()
        .filter(|record| record.reason.is_some())
        .map(|record| record.process_id)
        .collect();
    let processes: Vec<Listed> = records.into_iter().map(Listed::of).collect();
    let lines: Vec<String> = processes.iter().map(Listed::line).collect();
    let text = if lines.is_empty() { "[no processes]".to_owned() } else { lines.join("\n") };
    Ok(Answer::of(&Output { processes }, text, shown))
}

fn state(word: &str) -> Result<ProcessState, Failure> {
    ProcessState::from_word(word).ok_or_else(|| {
        let words: Vec<_> = ProcessState::ALL.iter().map(|state| state.as_str()).collect();
        let words = words.join(", ");
        Failure::told(format!("invalid_arguments: `{word}` is no state; there are {words}"))
    })
}
