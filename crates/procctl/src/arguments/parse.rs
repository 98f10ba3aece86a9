//! How the words of the command line are read.

use std::time::Duration;

use jiff::Timestamp;

use super::{Filter, Since};
use crate::handle::unmark;

/// A handle, the beginning of one, or a label.
pub(super) fn id(text: &str) -> Result<String, String> {
    const LABEL_CHARS_MAX: usize = 128;
    let text = unmark(text);
    if text.is_empty() || text.chars().count() > LABEL_CHARS_MAX {
        return Err(
            "a process is named by its handle, the beginning of it, or its label".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// Seconds as a number, or a span such as `250ms`, `10m`, `1h 30m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "a time is seconds or a span such as 250ms, 10m or 1h30m";
    let span = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_not_a_number) => {
            text.parse::<jiff::SignedDuration>().ok().and_then(|span| span.try_into().ok())
        }
    };
    span.ok_or_else(|| WANTED.to_owned())
}

pub(super) fn filter(text: &str) -> Result<Filter, String> {
    let wanted = || "a filter is state=WORD, label=TEXT or session=UUID".to_owned();
    let (key, value) = text.split_once('=').ok_or_else(wanted)?;
    match key {
        "state" => Ok(Filter::State(value.to_owned())),
        "label" => Ok(Filter::Label(value.to_owned())),
        "session" => value.parse().map(Filter::Session).map_err(|_not_a_uuid| wanted()),
        _ => Err(wanted()),
    }
}

/// A moment: RFC 3339, or a span before now such as `10m`.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let ago = time(text).ok().and_then(|ago| jiff::SignedDuration::try_from(ago).ok());
    let moment = ago.and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    moment.ok_or_else(|| {
        "a moment is like 2026-11-30T21:00:00Z, or a span before now such as 10m".to_owned()
    })
}

/// Where `events` begins: a number of the journal, or a moment.
pub(super) fn since(text: &str) -> Result<Since, String> {
    match text.parse() {
        Ok(number) => Ok(Since::Number(number)),
        Err(_no_number) => moment(text).map(Since::Moment),
    }
}
