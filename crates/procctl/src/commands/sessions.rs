//! `procctl sessions`: every session there is.

use jiff::Timestamp;
use procd_protocol::Open;
use procd_protocol::v1::{SessionEntry, SessionListParams, SessionState, Totals};

use super::ps::age;
use crate::exit::CtlError;
use crate::handle::{shortened, shown_chars};
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{Cell, Table, Tone, bytes};

/// Sessions of one page.
const PAGE_MAX: u64 = 1000;

/// Characters of an id that are shown at least.
const ID_CHARS: usize = 8;

/// Lists them, newest first.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn sessions(links: &Links, format: Format) -> Result<u8, CtlError> {
    let sessions = all(links).await?;
    match format {
        Format::Table => print::table(&table(&sessions, Timestamp::now()))?,
        Format::Json | Format::Jsonl => print::documents(format, &sessions)?,
    }
    Ok(0)
}

/// Every session, newest first.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn all(links: &Links) -> Result<Vec<SessionEntry>, CtlError> {
    let link = links.operator(StartDaemon::IfUsed).await?;
    let mut params = SessionListParams { limit: Some(PAGE_MAX), after: None };
    let mut sessions = Vec::new();
    loop {
        let page = link.call(&params).await?;
        sessions.extend(page.sessions);
        match page.next {
            Some(next) => params.after = Some(next),
            None => return Ok(sessions),
        }
    }
}

/// The one session that `name` is the id of, or its beginning, or its label.
/// # Errors
/// [`CtlError`] for none and for several.
pub(crate) async fn find(links: &Links, name: &str) -> Result<SessionEntry, CtlError> {
    let mut found = all(links).await?;
    found.retain(|session| {
        session.session_id.to_string().starts_with(name) || session.label.as_deref() == Some(name)
    });
    match found.len() {
        0 => Err(CtlError::NoSuchSession(name.to_owned())),
        1 => Ok(found.swap_remove(0)),
        count => {
            let what = format!("`{name}` stands for {count} sessions");
            Err(CtlError::usage(what, "give more of the id; `procctl sessions` lists them"))
        }
    }
}

fn table(sessions: &[SessionEntry], now: Timestamp) -> Table {
    let ids: Vec<String> = sessions.iter().map(|session| session.session_id.to_string()).collect();
    let chars = shown_chars(&ids.iter().map(String::as_str).collect::<Vec<_>>()).max(ID_CHARS);
    let header = ["SESSION", "LABEL", "STATE", "RUNNING", "ENDED", "OUTPUT", "USED"];
    let mut table = Table::new(&header).cutting(&["LABEL"]);
    for (number, session) in sessions.iter().enumerate() {
        let tone = match &session.state {
            Open::Known(SessionState::Open) => Tone::Good,
            Open::Known(SessionState::Closing | SessionState::Closed) | Open::Unknown(_) => {
                Tone::Plain
            }
        };
        let (running, ended) = counts(&session.totals);
        table.push(vec![
            Cell::new(ids.get(number).map_or("", |id| shortened(id, chars))),
            Cell::new(session.label.as_deref().unwrap_or_default()),
            Cell::toned(session.state.as_str(), tone),
            Cell::new(&running.to_string()),
            Cell::new(&ended.to_string()),
            Cell::new(&bytes(session.bytes)),
            Cell::new(&format!("{} ago", age(&session.last_used_at, now))),
        ]);
    }
    table
}

/// How many run, and how many have ended.
pub(crate) fn counts(totals: &Totals) -> (u64, u64) {
    let is_live = |state: &String| matches!(state.as_str(), "starting" | "running");
    let sum = |live: bool| -> u64 {
        totals.iter().filter(|(state, _)| is_live(state) == live).map(|(_, count)| count).sum()
    };
    (sum(true), sum(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_a_row_that_fits() {
        let session: SessionEntry = serde_json::from_str(
            r#"{"session_id":"1b9e7a52-0000-4000-8000-000000000001","state":"open",
            "label":"a session with quite a long label, longer than there is room",
            "totals":{"running":2,"starting":1,"exited":4,"failed":1},"bytes":2048,
            "last_used_at":"2026-11-30T21:00:00Z"}"#,
        )
        .unwrap();
        let now = "2026-11-30T21:01:05Z".parse().unwrap();
        let text = table(&[session], now).to_text(false, Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("1b9e7a52  a session with"), "{text}");
        assert!(text.contains("…  open   3        5      2.0 KiB  1m 5s ago"), "{text}");
    }
}
