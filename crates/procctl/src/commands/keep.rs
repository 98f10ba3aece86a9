//! `procctl prune`, `rm`, `pin` and `unpin`: what is kept of ended processes.

use jiff::{SignedDuration, Timestamp};
use procd_protocol::v1::{PinParams, Record, RemoveParams};
use procd_protocol::{ErrorCode, Open, ProcessId};

use crate::arguments::{Named, Prune, Role};
use crate::exit::{Code, CtlError};
use crate::link::{Link, Links, StartDaemon, Target};
use crate::print::{self, Format};
use crate::render::bytes;

/// Removes what has ended, but for what is pinned.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn prune(links: &Links, prune: &Prune, format: Format) -> Result<u8, CtlError> {
    let link = if prune.all || links.role() == Role::Operator {
        Some(links.operator(StartDaemon::IfUsed).await?)
    } else {
        links.owner(StartDaemon::IfUsed).await?
    };
    let before = prune.older.map(before).transpose()?;
    let mut removed = Vec::new();
    let mut freed = 0_u64;
    if let Some(link) = link {
        for record in link.list().await?.into_iter().filter(|record| goes(record, before)) {
            if remove(&link, record.process_id).await? {
                freed += record.total_bytes.saturating_sub(record.retained_from);
                removed.push(record.process_id.to_string());
            }
        }
    }
    match format {
        Format::Table => {
            let text = format!("{} removed, {} of output\n", removed.len(), bytes(freed));
            print::data(text.as_bytes())?;
        }
        Format::Json | Format::Jsonl => {
            let shown = serde_json::json!({ "removed": removed, "output_bytes": freed });
            print::document(format, &shown)?;
        }
    }
    Ok(0)
}

fn before(older: std::time::Duration) -> Result<Timestamp, CtlError> {
    let too_long = |_error| CtlError::usage("--older is too long ago", "give a shorter time");
    let ago = SignedDuration::try_from(older).map_err(too_long)?;
    Timestamp::now().checked_sub(ago).map_err(too_long)
}

fn goes(record: &Record, before: Option<Timestamp>) -> bool {
    let has_ended = record.state.known().is_some_and(|state| state.is_terminal());
    let finished = record.finished_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
    let is_old = before.is_none_or(|before| finished.is_some_and(|at| at < before));
    has_ended && !record.pinned && is_old
}

/// Removes one; false when somebody else did meanwhile.
async fn remove(link: &Link, process_id: ProcessId) -> Result<bool, CtlError> {
    match link.call(&RemoveParams { process_id }).await {
        Ok(_) => Ok(true),
        Err(CtlError::Refused { code: Open::Known(ErrorCode::NotFound), .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the processes named. The exit code is that of the first failure.
/// # Errors
/// [`CtlError`] when a name means nothing: nothing is removed then.
pub(crate) async fn rm(links: &Links, named: &Named, format: Format) -> Result<u8, CtlError> {
    let targets = find_all(links, named).await?;
    let mut code = Code::Ok.number();
    let mut removed = Vec::new();
    for Target { process, link, .. } in targets {
        match link.call(&RemoveParams { process_id: process.id() }).await {
            Ok(_) => removed.push(process.id().to_string()),
            Err(error) => {
                print::message(&error.to_string());
                code = if code == 0 { error.code().number() } else { code };
            }
        }
    }
    tell(format, &removed)?;
    Ok(code)
}

/// Pins the processes named, or gives them back to retention.
/// # Errors
/// [`CtlError`], as the daemon says; of another session's process, too: only its owner pins.
pub(crate) async fn pin(
    links: &Links,
    named: &Named,
    pinned: bool,
    format: Format,
) -> Result<u8, CtlError> {
    let targets = find_all(links, named).await?;
    if let Some(foreign) = targets.iter().find(|target| target.is_operator) {
        let what = format!("{} is another session's process", foreign.process.id());
        return Err(CtlError::denied(what, "only its owner pins it; `procctl ps` lists yours"));
    }
    let mut done = Vec::new();
    for Target { process, link, .. } in targets {
        link.call(&PinParams { process_id: process.id(), pinned }).await?;
        done.push(process.id().to_string());
    }
    tell(format, &done)?;
    Ok(0)
}

async fn find_all(links: &Links, named: &Named) -> Result<Vec<Target>, CtlError> {
    let mut targets = Vec::new();
    for id in &named.ids {
        targets.push(links.find(id).await?);
    }
    Ok(targets)
}

fn tell(format: Format, handles: &[String]) -> Result<(), CtlError> {
    match format {
        Format::Table => {
            let text: String = handles.iter().map(|handle| format!("{handle}\n")).collect();
            print::data(text.as_bytes())
        }
        Format::Json | Format::Jsonl => print::documents(format, handles),
    }
}
