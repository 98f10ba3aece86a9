//! `procctl wait`: waits for the end of processes.

use std::time::Duration;

use procd_protocol::v1::{Cursors, OutputParams, Page, Until, Wait as Waits, WaitUntil};
use tokio::task::JoinSet;

use super::launch::milliseconds;
use super::{exit_code, exit_text};
use crate::arguments::Wait;
use crate::exit::{Code, CtlError};
use crate::link::{Links, Target};
use crate::print::{self, Format};
use crate::render::{Cell, Table, printable, span};

/// Processes waited for at once: the daemon's waiters of one session less some room for others.
const WAITS_MAX: usize = 48;

/// Waits and shows how each ended. Exits with the code of the process when it was one, or of the
/// first to end with `--any`; else with 0 when every one exited 0, and 1 when not.
/// # Errors
/// [`CtlError::TimedOut`] when the time given is over, else as the daemon says.
pub(crate) async fn wait(links: &Links, wait: &Wait, format: Format) -> Result<u8, CtlError> {
    if let Some(pattern) = &wait.pattern {
        return wait_match(links, wait, pattern, format).await;
    }
    let mut targets = Vec::new();
    for id in &wait.ids {
        targets.push(links.find(id).await?);
    }
    if wait.any && targets.len() > WAITS_MAX {
        let what = format!("--any waits for {WAITS_MAX} processes at most");
        return Err(CtlError::usage(what, "name fewer"));
    }
    let waiting =
        async { if wait.any { wait_any(targets).await } else { wait_all(targets).await } };
    let ended = match wait.timeout {
        None => waiting.await?,
        Some(limit) => within(limit, waiting).await?,
    };
    show(&ended, format)?;
    let code = |page: &Page| exit_code(page.state.as_str(), page.exit_code, page.leader.as_ref());
    Ok(match ended.as_slice() {
        [one] => code(one),
        several if several.iter().all(|page| code(page) == 0) => Code::Ok.number(),
        _ => Code::Failure.number(),
    })
}

/// Waits until the output of one process, from its first byte on, has a pattern.
async fn wait_match(
    links: &Links,
    wait: &Wait,
    pattern: &str,
    format: Format,
) -> Result<u8, CtlError> {
    let [id] = wait.ids.as_slice() else {
        return Err(CtlError::usage("--match waits for one process", "name one"));
    };
    let target = links.find(id).await?;
    let until = Until { r#match: Some(pattern.to_owned()), ..Until::default() };
    let params = OutputParams {
        cursor: Some(Cursors::One(0)),
        limit_bytes: Some(1),
        wait: Some(Waits::Until(WaitUntil { until, combine: None, wait_for: None })),
        timeout_ms: wait.timeout.map(milliseconds),
        ..OutputParams::default()
    };
    let page = target.process.output(params).await?;
    if let Some(found) = &page.found {
        match format {
            Format::Table => print::data(format!("{}\n", printable(&found.text)).as_bytes())?,
            Format::Json | Format::Jsonl => print::document(format, found)?,
        }
        return Ok(Code::Ok.number());
    }
    if page.state.known().is_some_and(|state| state.is_terminal()) {
        print::message("it ended, and its output does not have the pattern");
        return Ok(Code::NotRunning.number());
    }
    match wait.timeout {
        Some(limit) => Err(CtlError::TimedOut(span(milliseconds(limit)))),
        None => Err(CtlError::Answer("the wait came back without a match".to_owned())),
    }
}

async fn within(
    limit: Duration,
    waiting: impl Future<Output = Result<Vec<Page>, CtlError>>,
) -> Result<Vec<Page>, CtlError> {
    tokio::time::timeout(limit, waiting)
        .await
        .unwrap_or_else(|_late| Err(CtlError::TimedOut(span(milliseconds(limit)))))
}

/// One after the other: all have ended when the last of these waits returns.
async fn wait_all(targets: Vec<Target>) -> Result<Vec<Page>, CtlError> {
    let mut ended = Vec::new();
    for target in targets {
        ended.push(target.process.wait().await?);
    }
    Ok(ended)
}

async fn wait_any(targets: Vec<Target>) -> Result<Vec<Page>, CtlError> {
    let mut waits = JoinSet::new();
    for target in targets {
        waits.spawn(async move { target.process.wait().await });
    }
    match waits.join_next().await {
        Some(Ok(ended)) => Ok(vec![ended?]),
        Some(Err(error)) => Err(CtlError::Answer(format!("a wait broke off: {error}"))),
        None => Ok(Vec::new()),
    }
}

fn show(ended: &[Page], format: Format) -> Result<(), CtlError> {
    match format {
        Format::Table => print::table(&table(ended)),
        Format::Json | Format::Jsonl => print::documents(format, ended),
    }
}

fn table(ended: &[Page]) -> Table {
    let mut table = Table::new(&["HANDLE", "STATE", "EXIT"]);
    for page in ended {
        table.push(vec![
            Cell::new(&page.process_id.to_string()),
            Cell::new(page.state.as_str()),
            Cell::new(&exit_text(page.exit_code, page.leader.as_ref())),
        ]);
    }
    table
}
