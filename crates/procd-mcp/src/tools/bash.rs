//! `Bash`: starts a command, and hands it over to the background when its time is over.

use std::time::Duration;

use procd_protocol::ErrorCode;
use procd_protocol::v1::{StartParams, Stdin};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Answer, Call, Failure, WAIT_MS_DEFAULT, wait_ms};
use crate::outcome::{Outcome, shown_end};
use crate::waiting::waiting;

pub(super) const DESCRIPTION: &str = "Runs a shell command in a supervised process and returns its output. \
    If it still runs after yield_time_ms (default 30000), it is not killed: it goes on in the background, and the result \
    has its process_id and the output so far; go on with ProcessOutput, ProcessInput, ProcessStop. \
    Servers, watchers and long builds: background true. Programs that ask (REPLs, installers): tty true, then ProcessInput. \
    The whole process tree is ended with the command, unless it still runs.";

/// What it gives.
pub(super) type Output = Outcome;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The text for `sh -c`.
    command: String,
    /// The folder it runs in; absolute, or relative to that of the bridge, which is the default.
    workdir: Option<String>,
    /// Its deadline in seconds, from its start: then it is stopped. Absent: none. To wait less
    /// long without stopping it use yield_time_ms.
    #[schemars(extend("exclusiveMinimum" = 0))]
    timeout: Option<f64>,
    /// Return as soon as it runs.
    background: Option<bool>,
    /// How long to wait for its end, milliseconds; default 30000, at most 600000. It runs on
    /// afterwards.
    #[schemars(range(max = 600_000))]
    yield_time_ms: Option<u64>,
    /// A terminal in place of pipes, for programs that want one.
    tty: Option<bool>,
    /// Text returned; of a longer output head and tail, default 32768.
    #[schemars(range(min = 1, max = 1_048_576))]
    max_output_bytes: Option<u64>,
    /// `pipe`: ProcessInput can write to it; `null`: it reads nothing. Default: `pipe` with
    /// background, yield_time_ms or tty, else `null`.
    stdin: Option<StdinKind>,
    /// What to call it, at most 128 characters: ProcessList finds it by that.
    #[schemars(length(max = 128))]
    label: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StdinKind {
    Pipe,
    Null,
}

impl Arguments {
    fn params(self, call: Call<'_>) -> Result<StartParams, Failure> {
        let is_background = self.background == Some(true);
        let is_tty = self.tty == Some(true);
        let yield_ms = wait_ms("yield_time_ms", self.yield_time_ms)?;
        let is_piped = is_background || is_tty || yield_ms.is_some();
        let stdin = match self.stdin {
            Some(StdinKind::Null) if is_tty => {
                let why = "invalid_arguments: `stdin: null` does not go with `tty`";
                return Err(Failure::told(why));
            }
            Some(StdinKind::Pipe) => Stdin::Pipe,
            Some(StdinKind::Null) => Stdin::Null,
            None if is_piped => Stdin::Pipe,
            None => Stdin::Null,
        };
        let waits = yield_ms.unwrap_or(WAIT_MS_DEFAULT);
        Ok(StartParams {
            cwd: Some(folder(self.workdir)?),
            env: Some(call.bridge.environment()),
            // A terminal has the one stdin there is.
            stdin: (!is_tty).then_some(stdin),
            tty: is_tty.then_some(true),
            background: is_background.then_some(true),
            yield_time_ms: (!is_background).then_some(waits),
            timeout_ms: self.timeout.map(deadline_ms).transpose()?,
            limit_bytes: self.max_output_bytes,
            // A prompt is an open line, which a folded page would hold back.
            fold: (!is_tty).then_some(true),
            label: self.label,
            ..StartParams::of_command(self.command)
        })
    }
}

/// The folder of the command: the daemon has one of its own, and does not know that of the bridge.
fn folder(asked: Option<String>) -> Result<String, Failure> {
    let own = || {
        let own = std::env::current_dir();
        own.map_err(|error| Failure::told(format!("the bridge has no folder any more: {error}")))
    };
    let path = match asked {
        Some(asked) if asked.starts_with('/') => return Ok(asked),
        Some(asked) if asked.is_empty() => {
            return Err(Failure::told("invalid_arguments: `workdir` is empty"));
        }
        Some(asked) => own()?.join(asked),
        None => own()?,
    };
    path.into_os_string().into_string().map_err(|_not_utf8| {
        Failure::told("the bridge's own folder is not UTF-8: give an absolute `workdir`")
    })
}

fn deadline_ms(seconds: f64) -> Result<u64, Failure> {
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    let ms = duration.and_then(|time| u64::try_from(time.as_millis()).ok());
    ms.map(|ms| ms.max(1)).ok_or_else(|| {
        Failure::told("invalid_arguments: `timeout` is a positive number of seconds")
    })
}

pub(super) async fn run(call: Call<'_>, arguments: Arguments) -> Result<Answer, Failure> {
    let params = arguments.params(call)?;
    let session = call.bridge.session().await?;
    // A start that is not waited for any more goes on: it is in ProcessList then.
    let start = session.start_of(params).leave_on_drop().start();
    let started = waiting(call.context, "it runs", start).await?;
    let started = match started {
        Ok(started) => started,
        Err(error) => {
            if error.is(ErrorCode::SupervisorShuttingDown) || error.is(ErrorCode::NotFound) {
                call.bridge.forget().await;
            }
            return Err(error.into());
        }
    };
    let Some(reply) = started.reply() else {
        return Err(Failure::told("the daemon's answer makes no sense"));
    };
    let shown = shown_end(&reply.page);
    let outcome = Outcome::of_start(reply.clone());
    Ok(Answer::of(&outcome, outcome.text(), shown))
}
