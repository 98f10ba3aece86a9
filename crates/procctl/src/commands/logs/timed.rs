//! `procctl logs` with times: only what arrived in a span, each line with when it did.
//!
//! The times are those of the chunks as they were read, kept as long as the tag index has room; of
//! older bytes the time is not known any more, and they count as older than any time asked for.

use jiff::Timestamp;
use procd_protocol::v1::{Chunk, Page};

use super::super::launch::decode;
use super::{filter, tell_gap};
use crate::arguments::Logs;
use crate::exit::CtlError;
use crate::link::Target;
use crate::print;
use crate::render::printable;

/// Bytes asked for at once.
const PAGE_BYTES_MAX: u64 = 1024 * 1024;
/// What stands where the time is not known any more, as wide as a time.
const UNKNOWN: &str = "-                       ";

/// Shows it, and with `--follow` what comes.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(super) async fn show(target: &Target, logs: &Logs) -> Result<u8, CtlError> {
    let mut pages = target.process.follow().base64().tags().limit_bytes(PAGE_BYTES_MAX);
    pages = pages.stream(filter(logs.stream));
    if let Some(lines) = logs.tail.filter(|lines| *lines > 0) {
        pages = pages.tail_lines(lines);
    }
    if let Some(reason) = logs.reason.clone().filter(|_| target.is_operator) {
        pages = pages.reason(reason);
    }
    if !logs.follow {
        pages = pages.without_waiting();
    }
    let is_safe = logs.safe || (!logs.raw && print::is_terminal());
    let mut lines = Lines {
        since: logs.since,
        until: logs.until,
        has_times: logs.timestamps,
        is_safe,
        is_open: false,
    };
    while let Some(page) = pages.next().await? {
        tell_gap(&page);
        print::data(&lines.take(&page)?)?;
        if lines.is_over(&page) {
            break;
        }
    }
    Ok(0)
}

/// Turns chunks into lines with times.
struct Lines {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    has_times: bool,
    is_safe: bool,
    /// Whether the last line has no end yet: what follows goes on in it.
    is_open: bool,
}

impl Lines {
    fn take(&mut self, page: &Page) -> Result<Vec<u8>, CtlError> {
        let bytes = decode(page.output.as_deref())?;
        let mut shown = Vec::new();
        // Bytes of the other stream are passed over: chunks tell which are here.
        let mut rest = bytes.as_slice();
        for chunk in page.chunks.iter().flatten() {
            let length = usize::try_from(chunk.end.saturating_sub(chunk.start)).unwrap_or(0);
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            self.piece(piece, chunk, &mut shown);
        }
        Ok(shown)
    }

    fn piece(&mut self, piece: &[u8], chunk: &Chunk, shown: &mut Vec<u8>) {
        let at = time(chunk);
        let is_late = self.since.is_none_or(|since| at.is_some_and(|at| at >= since));
        let is_early = self.until.is_none_or(|until| at.is_none_or(|at| at < until));
        if !(is_late && is_early) {
            return;
        }
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.has_times && !self.is_open {
                let stamp = at.map_or_else(|| UNKNOWN.to_owned(), |at| format!("{at:.3}"));
                shown.extend(format!("{stamp} ").into_bytes());
            }
            self.is_open = line.last() != Some(&b'\n');
            if self.is_safe {
                shown.extend(safe(line).into_bytes());
            } else {
                shown.extend_from_slice(line);
            }
        }
    }

    /// Whether nothing that follows can be wanted.
    fn is_over(&self, page: &Page) -> bool {
        let last = page.chunks.iter().flatten().last().and_then(time);
        self.until.zip(last).is_some_and(|(until, last)| last >= until)
    }
}

fn time(chunk: &Chunk) -> Option<Timestamp> {
    chunk.at.as_ref()?.parse().ok()
}

/// Text in which nothing acts on a terminal; tabs and line ends stay.
fn safe(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let parts: Vec<String> =
        text.trim_end_matches(['\n', '\r']).split('\t').map(printable).collect();
    let end = if text.ends_with('\n') { "\n" } else { "" };
    format!("{}{end}", parts.join("\t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(start: u64, end: u64, second: u32) -> Chunk {
        let text = format!(
            r#"{{"start":{start},"end":{end},"source":"stdout","at":"2026-11-30T21:00:{second:02}Z"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn lines(since: Option<&str>, has_times: bool) -> Lines {
        let since = since.map(|text| text.parse().unwrap());
        Lines { since, until: None, has_times, is_safe: true, is_open: false }
    }

    #[test]
    fn a_line_gets_the_time_of_its_first_bytes_and_nothing_acts_on_the_terminal() {
        let mut lines = lines(None, true);
        let mut shown = Vec::new();
        lines.piece(b"one\ntw", &chunk(0, 6, 1), &mut shown);
        lines.piece(b"o\n\x1b[2Jx\ty\n", &chunk(6, 17, 2), &mut shown);
        let expected = "2026-11-30T21:00:01.000Z one\n2026-11-30T21:00:01.000Z two\n\
                        2026-11-30T21:00:02.000Z \\u{1b}[2Jx\ty\n";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }

    #[test]
    fn what_came_before_is_left_out() {
        let mut lines = lines(Some("2026-11-30T21:00:02Z"), false);
        let mut shown = Vec::new();
        lines.piece(b"old\n", &chunk(0, 4, 1), &mut shown);
        lines.piece(b"new\n", &chunk(4, 8, 2), &mut shown);
        assert_eq!(shown, b"new\n");
    }
}
