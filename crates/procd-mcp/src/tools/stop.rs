//! `ProcessStop`: ends a tree.

use std::collections::HashSet;
use std::time::Duration;

use procd_protocol::v1::StopMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Call, Failure, process_id};
use crate::waiting::waiting;

pub(super) const DESCRIPTION: &str = "Stops a process with its whole tree, and returns when nothing of it is left. \
    terminate: SIGTERM, after grace_ms SIGKILL. kill: SIGKILL at once. interrupt: SIGINT only, as ctrl-c; it may run on. \
    A process that has ended already is left as it is.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The process.
    process_id: String,
    /// How: `terminate`, `kill` or `interrupt`.
    mode: Mode,
    /// How long it may take to end before it is killed, milliseconds; default 5000.
    grace_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Interrupt,
    Terminate,
    Kill,
}

impl From<Mode> for StopMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Interrupt => Self::Interrupt,
            Mode::Terminate => Self::Terminate,
            Mode::Kill => Self::Kill,
        }
    }
}

/// What it gives.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The process.
    process_id: String,
    /// Its state now.
    state: String,
    /// Why, when it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Its code, when it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// Whether SIGKILL was needed.
    escalated: bool,
}

pub(super) async fn run(call: Call<'_>, arguments: Arguments) -> Result<Answer, Failure> {
    let id = process_id(&arguments.process_id)?;
    let session = call.bridge.session().await?;
    let grace = arguments.grace_ms.map(Duration::from_millis);
    let process = session.process(id);
    let stop = process.stop_with(arguments.mode.into(), grace);
    let result = waiting(call.context, "stopping", stop).await??;
    let output = Output {
        process_id: result.process_id.to_string(),
        state: result.state.as_str().to_owned(),
        reason: result.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        exit_code: result.exit_code,
        escalated: result.escalated,
    };
    let has_ended = output.reason.is_some();
    let code = output.exit_code.map(|code| format!(" with code {code}")).unwrap_or_default();
    let still = if has_ended { "" } else { " still: use mode terminate or kill" };
    let text = format!("[{}{code}{still}; process_id {}]", output.state, output.process_id);
    let shown: HashSet<_> = has_ended.then_some(id).into_iter().collect();
    Ok(Answer::of(&output, text, shown))
}
