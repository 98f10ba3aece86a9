//! `procctl events`: the journal of the own session, or of all, and what happens from now on.

use std::collections::HashMap;

use jiff::Timestamp;
use procd_protocol::SessionId;
use procd_protocol::v1::{Event, EventRecord, Scope, SubscribeParams};

use super::sessions;
use crate::arguments::{Events, Role, Since};
use crate::exit::CtlError;
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{cut, printable};
use crate::stream::{Item, Stream};

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
    let Some(mut stream) = links.stream_as_owner(StartDaemon::IfUsed).await? else {
        return Ok(());
    };
    let from_seq = Some(first_number(events.since));
    let scope = Some(Scope::Session);
    let params = SubscribeParams { from_seq, scope, ..SubscribeParams::default() };
    read(&mut stream, &params, events.follow, shower).await
}

/// All sessions: the journal of each, in the order of what happened, then live from all.
async fn all(links: &Links, events: &Events, shower: &mut Shower) -> Result<(), CtlError> {
    // Subscribed before the journals are read, so that nothing falls in between.
    let mut live = links.stream_as_operator(StartDaemon::IfUsed).await?;
    let mut seen = HashMap::new();
    if events.follow {
        live.call(&SubscribeParams::default()).await?;
    }
    let mut past = Vec::new();
    for session in sessions::all(links).await? {
        let mut earliest = None;
        for record in journal(links, session.session_id, first_number(events.since)).await? {
            earliest = earliest.max(happened(&record));
            past.push((earliest, record));
        }
    }
    past.sort_by_key(|(at, _)| *at);
    for (_, record) in past {
        seen.insert(record.event.event_id, ());
        shower.show(&record)?;
    }
    if !events.follow {
        return Ok(());
    }
    loop {
        if let Item::Event(record) = live.next().await?
            && seen.remove(&record.event.event_id).is_none()
        {
            shower.show(&record)?;
        }
    }
}

async fn journal(
    links: &Links,
    session: SessionId,
    from: u64,
) -> Result<Vec<EventRecord>, CtlError> {
    let mut stream = links.stream_as_operator(StartDaemon::Never).await?;
    let params = SubscribeParams {
        from_seq: Some(from),
        session_id: Some(session),
        ..SubscribeParams::default()
    };
    let mut kept = Shower { format: Format::Json, since: None, list: Vec::new() };
    read(&mut stream, &params, false, &mut kept).await?;
    Ok(kept.list)
}

/// Reads a subscription up to the last event there was, or for ever.
async fn read(
    stream: &mut Stream,
    params: &SubscribeParams,
    follows: bool,
    shower: &mut Shower,
) -> Result<(), CtlError> {
    let begun = stream.call(params).await?;
    if begun.gap {
        print::message("events before these are not kept any more: their records were removed");
    }
    let mut reached = begun.last_seq == 0 || begun.first_kept_seq > begun.last_seq;
    while follows || !reached {
        let Item::Event(record) = stream.next().await? else { continue };
        if record.gap {
            print::message("some events were dropped before they could be sent");
        }
        reached |= record.seq >= begun.last_seq;
        shower.show(&record)?;
    }
    Ok(())
}

const fn first_number(since: Option<Since>) -> u64 {
    match since {
        Some(Since::Number(number)) => number,
        Some(Since::Moment(_)) | None => 1,
    }
}

/// When it happened, as far as an event tells: its last stamp, which may be earlier.
fn happened(record: &EventRecord) -> Option<Timestamp> {
    let event = &record.event;
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
    list: Vec<EventRecord>,
}

impl Shower {
    fn show(&mut self, record: &EventRecord) -> Result<(), CtlError> {
        if let Some(Since::Moment(since)) = self.since
            && happened(record).is_some_and(|at| at < since)
        {
            return Ok(());
        }
        match self.format {
            Format::Table => print::data(format!("{}\n", line(record)).as_bytes()),
            Format::Jsonl => print::document(self.format, record),
            Format::Json => {
                self.list.push(record.clone());
                Ok(())
            }
        }
    }
}

/// One line: when, which number of which session, what, of which process.
fn line(record: &EventRecord) -> String {
    let event = &record.event;
    let mark = if has_own_time(event) { ' ' } else { '>' };
    let at = happened(record).map_or_else(String::new, |at| format!("{mark}{at:.3}"));
    let mut line = format!(
        "{at:<25}  {:<8}  {:>6}  {:<17}  {:<8}  {}",
        cut(&event.session_id.to_string().replace('-', ""), NAME_CHARS + 1).trim_end_matches('…'),
        record.seq,
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
        let record: EventRecord = serde_json::from_str(
            r#"{"for":1,"seq":7,"event":{"event_id":"1b9e7a52-0000-4000-8000-000000000009",
            "kind":"completed","session_id":"1b9e7a52-0000-4000-8000-000000000001",
            "loop_id":"1b9e7a52-0000-4000-8000-000000000002","process_id":"AAAAAAAAAAAAAAAAAAAAAA",
            "origin":"1b9e7a52-0000-4000-8000-000000000003","state":"exited","exit_code":3,
            "created_at":"2026-11-30T21:00:00Z","finished_at":"2026-11-30T21:00:01.5Z"}}"#,
        )
        .unwrap();
        assert_eq!(
            line(&record),
            " 2026-11-30T21:00:01.500Z  1b9e7a52       7  completed          AAAAAAAA  exited, code 3"
        );
    }
}
