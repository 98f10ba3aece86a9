//! `procctl stop`: stops processes, all at once, and shows what became of each. A process that had
//! ended already is a success: it does not run.

use procd_protocol::v1::{StopAllParams, StopMode, StopResult};

use super::launch::milliseconds;
use super::{exit_text, sessions};
use crate::arguments::{Mode, Stop};
use crate::exit::{Code, CtlError};
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{Cell, Table};

/// Stops every process named. The exit code is that of the first failure.
/// # Errors
/// [`CtlError`] when a name means nothing: nothing is stopped then.
pub(crate) async fn stop(links: &Links, stop: &Stop, format: Format) -> Result<u8, CtlError> {
    if let Some(session) = &stop.session {
        return stop_session(links, stop, session, format).await;
    }
    let mut calls = tokio::task::JoinSet::new();
    let mut targets = Vec::new();
    for id in &stop.ids {
        targets.push(links.find(id).await?);
    }
    for (index, target) in targets.into_iter().enumerate() {
        let (mode, grace) = (mode(stop.mode), stop.grace);
        calls.spawn(async move { (index, target.process.stop_with(mode, grace).await) });
    }
    let mut outcomes = Vec::new();
    while let Some(joined) = calls.join_next().await {
        let joined = joined.map_err(|error| CtlError::Answer(format!("a stop broke off: {error}")));
        outcomes.push(joined?);
    }
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    report(
        outcomes.into_iter().map(|(_, outcome)| outcome.map_err(CtlError::from)).collect(),
        format,
    )
}

/// Stops all that run of a session, in one grace period.
async fn stop_session(
    links: &Links,
    stop: &Stop,
    name: &str,
    format: Format,
) -> Result<u8, CtlError> {
    let session = sessions::find(links, name).await?.session_id;
    let params = StopAllParams {
        scope: None,
        session_id: Some(session),
        mode: Some(mode(stop.mode)),
        grace_ms: stop.grace.map(milliseconds),
    };
    let results = links.operator(StartDaemon::Never).await?.call(&params).await?.results;
    report(results.into_iter().map(Ok).collect(), format)
}

const fn mode(mode: Mode) -> StopMode {
    match mode {
        Mode::Interrupt => StopMode::Interrupt,
        Mode::Terminate => StopMode::Terminate,
        Mode::Kill => StopMode::Kill,
    }
}

fn report(outcomes: Vec<Result<StopResult, CtlError>>, format: Format) -> Result<u8, CtlError> {
    let mut code = 0;
    let mut results = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(result) => {
                if let Some(error) = &result.error {
                    let handle = &result.process_id;
                    print::message(&format!("{handle}: {}", error.message));
                    code = if code == 0 { Code::Failure.number() } else { code };
                }
                results.push(result);
            }
            Err(error) => {
                print::message(&error.to_string());
                code = if code == 0 { error.code().number() } else { code };
            }
        }
    }
    match format {
        Format::Table if results.is_empty() => {}
        Format::Table => print::table(&table(&results))?,
        Format::Json | Format::Jsonl => print::documents(format, &results)?,
    }
    Ok(code)
}

fn table(results: &[StopResult]) -> Table {
    let mut table = Table::new(&["HANDLE", "STATE", "REASON", "EXIT"]);
    for result in results {
        let reason = result.reason.as_ref().map_or("", |reason| reason.as_str());
        table.push(vec![
            Cell::new(&result.process_id.to_string()),
            Cell::new(result.state.as_str()),
            Cell::new(reason),
            Cell::new(&exit_text(result.exit_code, result.leader.as_ref())),
        ]);
    }
    table
}
