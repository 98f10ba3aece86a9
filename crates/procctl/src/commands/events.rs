//! `procctl events`: the journal of the own session, or of all, and what happens from now on.

use std::collections::HashSet;

use jiff::Timestamp;
use procd_client::{EventsRequest, Numbered, Operator};
use procd_protocol::SessionId;
use procd_protocol::v1::Event;
use serde::Serialize;

use super::sessions;
use crate::arguments::{Events, Role, Since};
use crate::exit::CtlError;
use crate::link::{Link, Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{cut, printable};

/// Characters of a handle and of a session that a line shows.
const NAME_CHARS: usize = 8;

/// Shows what was, and with `--follow` what comes.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn events(links: &Links, events: &Events, format: Format) -> Result<u8, CtlError> {
    let wants_all = events.all || links.role() == Role::Operator;
    let mut shower = Shower { format, since: events.since, list: Vec::new() };
    if wants_all {
        all(links, events, &mut shower).await?;
    } else {
        own(links, events, &mut shower).await?;
    }
    if format == Format::Json {
        print::document(format, &shower.list)?;
    }
    Ok(0)
}

/// The own session: one subscription, from the number asked for on.
async fn own(links: &Links, events: &Events, shower: &mut Shower) -> Result<(), CtlError> {
    let Some(Link::Owner(session)) = links.owner(StartDaemon::IfUsed).await? else {
        return Ok(());
    };
    let request = session.events().whole_session().from(first_number(events.since));
    read(request, events.follow, shower).await
}

/// All sessions: the journal of each, in the order of what happened, then live from all.
async fn all(links: &Links, events: &Events, shower: &mut Shower) -> Result<(), CtlError> {
    let operator = operator(links).await?;
    // Subscribed before the journals are read, so that nothing falls in between.
    let live = if events.follow { Some(operator.events().subscribe().await?) } else { None };
    let mut past = Vec::new();
    for session in sessions::all(links).await? {
        let mut earliest = None;
        for entry in journal(&operator, session.session_id, first_number(events.since)).await? {
            earliest = earliest.max(happened(&entry));
            past.push((earliest, entry));
        }
    }
    past.sort_by_key(|(at, _)| *at);
    let mut seen = HashSet::new();
    for (_, entry) in past {
        seen.insert(entry.event.event_id);
        shower.show(entry)?;
    }
    let Some(mut live) = live else { return Ok(()) };
    loop {
        let entry = Entry::from(live.next().await?);
        if !seen.remove(&entry.event.event_id) {
            shower.show(entry)?;
        }
    }
}

async fn operator(links: &Links) -> Result<Operator, CtlError> {
    match links.operator(StartDaemon::IfUsed).await? {
        Link::Operator(operator) => Ok(operator),
        Link::Owner(_) => Err(CtlError::Answer("this connection is no operator's".to_owned())),
    }
}

async fn journal(
    operator: &Operator,
    session: SessionId,
    from: u64,
) -> Result<Vec<Entry>, CtlError> {
    let mut kept = Shower { format: Format::Json, since: None, list: Vec::new() };
    read(operator.events().session(session).from(from), false, &mut kept).await?;
    Ok(kept.list)
}

/// Reads a subscription up to the last event there was, or for ever.
async fn read(request: EventsRequest, follows: bool, shower: &mut Shower) -> Result<(), CtlError> {
    let mut events = request.subscribe().await?;
    let begun = events.begun().clone();
    // The first event tells of it once more.
    let mut gap_is_told = begun.gap;
    if begun.gap {
        print::message("events before these are not kept any more: their records were removed");
    }
    let mut reached = begun.last_seq == 0 || begun.first_kept_seq > begun.last_seq;
    while follows || !reached {
        let entry = Entry::from(events.next().await?);
        if entry.gap && !std::mem::take(&mut gap_is_told) {
            print::message(
                "events are missing here: their records were removed before they were read",
            );
        }
        reached |= entry.seq >= begun.last_seq;
        shower.show(entry)?;
    }
    Ok(())
}

/// An event as it is shown.
#[derive(Debug, Clone, Serialize)]
struct Entry {
    seq: u64,
    event: Event,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gap: bool,
}

impl From<Numbered> for Entry {
    fn from(Numbered { seq, event, gap }: Numbered) -> Self {
        Self { seq, event, gap }
    }
}

const fn first_number(since: Option<Since>) -> u64 {
    match since {
        Some(Since::Number(number)) => number,
        Some(Since::Moment(_)) | None => 1,
    }
}

/// When it happened, as far as an event tells: its last stamp, which may be earlier.
fn happened(entry: &Entry) -> Option<Timestamp> {
    let event = &entry.event;
    let stamps = [event.finished_at.as_ref(), event.started_at.as_ref(), Some(&event.created_at)];
    stamps.into_iter().flatten().next()?.parse().ok()
}

/// Whether the last stamp of an event is the moment of the event itself: others happened later.
fn has_own_time(event: &Event) -> bool {
    event.finished_at.is_some() || event.kind.as_str() == "started"
}

struct Shower {
    format: Format,
    since: Option<Since>,
    list: Vec<Entry>,
}

impl Shower {
    fn show(&mut self, entry: Entry) -> Result<(), CtlError> {
        if let Some(Since::Moment(since)) = self.since
            && happened(&entry).is_some_and(|at| at < since)
        {
            return Ok(());
        }
        match self.format {
            Format::Table => print::data(format!("{}\n", line(&entry)).as_bytes()),
            Format::Jsonl => print::document(self.format, &entry),
            Format::Json => {
                self.list.push(entry);
                Ok(())
            }
        }
    }
}

/// One line: when, which number of which session, what, of which process.
fn line(entry: &Entry) -> String {
    let event = &entry.event;
    let mark = if has_own_time(event) { ' ' } else { '>' };
    let at = happened(entry).map_or_else(String::new, |at| format!("{mark}{at:.3}"));
    let mut line = format!(
        "{at:<25}  {:<8}  {:>6}  {:<17}  {:<8}  {}",
        cut(&event.session_id.to_string().replace('-', ""), NAME_CHARS + 1).trim_end_matches('…'),
        entry.seq,
        event.kind.as_str(),
        event.process_id.to_string().get(..NAME_CHARS).unwrap_or_default(),
        event.state.as_str(),
    );
    let details = [
        event.exit_code.map(|code| format!("code {code}")),
        event.signal.map(|signal| format!("signal {signal}")),
        event.diagnostic.clone(),
        event.phase.as_ref().map(|phase| format!("workspace {phase}")),
    ];
    for detail in details.into_iter().flatten() {
        line.push_str(&format!(", {}", printable(&detail)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event: Event = serde_json::from_str(
            r#"{"event_id":"1b9e7a52-0000-4000-8000-000000000009",
            "kind":"completed","session_id":"1b9e7a52-0000-4000-8000-000000000001",
            "loop_id":"1b9e7a52-0000-4000-8000-000000000002","process_id":"AAAAAAAAAAAAAAAAAAAAAA",
            "origin":"1b9e7a52-0000-4000-8000-000000000003","state":"exited","exit_code":3,
            "created_at":"2026-11-30T21:00:00Z","finished_at":"2026-11-30T21:00:01.5Z"}"#,
        )
        .unwrap();
        assert_eq!(
            line(&Entry { seq: 7, event, gap: false }),
            " 2026-11-30T21:00:01.500Z  1b9e7a52       7  completed          AAAAAAAA  exited, code 3"
        );
    }
}
