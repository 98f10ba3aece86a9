//! process/search: whole lines that match, found in what is kept. Each byte is looked at once, on
//! a thread that nobody waits for; a line may be as long as it likes.

use procd_protocol::v1::{self, Excerpt, Method};
use procd_protocol::{ErrorBody, limits};
use procd_text::Raw;

use super::error::{of_read, wire};
use super::pattern::{Pattern, Scanner, Stuck};
use super::process::handle;
use super::stretch::as_u64;
use super::until::{SHOWN_BYTES_MAX, blocking};
use super::{Client, Done, Reply, as_count, invalid, log_reason};
use crate::drain::Output;
use crate::supervisor::refusal::Refusal;

/// Raw bytes searched at once.
const BLOCK_BYTES: usize = 64 * 1024;
/// Raw bytes after which a call comes back at the end of a line, with what it has.
const CALL_BYTES: u64 = 16 * 1024 * 1024;

pub(super) async fn search(client: &Client, params: v1::SearchParams) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let process = handle(params.process_id);
    log_reason(&bound, params.reason.as_deref(), Method::ProcessSearch, &[process])?;
    let pattern = Pattern::new(&params.pattern).map_err(|why| invalid("pattern", why))?;
    let supervisor = client.supervisor().await?;
    let view = supervisor.find(bound.caller(), process).await.map_err(|r| wire(&r))?;
    let is_ended = view.now().is_terminal();
    let total_bytes = view.output.bounds().total;
    let cursor = params.from_cursor.unwrap_or(0);
    if cursor > total_bytes {
        return Err(wire(&Refusal::CursorAhead { cursor, total_bytes }));
    }
    let turn = client.turn().await;
    let limit = as_count(params.limit.unwrap_or(limits::SEARCH_LIMIT_DEFAULT));
    let lines = Lines::new(pattern, cursor, limit).map_err(|_stuck| wire(&Refusal::Internal))?;
    let found = run(&view.output, lines, (cursor, total_bytes), is_ended).await;
    let result = found.map_err(|error| wire(&of_read(&error)))?;
    Ok(Done::big(Reply::Search(result), turn))
}

/// Searches from `cursor` to `total`.
async fn run(
    output: &Output,
    mut lines: Lines,
    (cursor, total): (u64, u64),
    is_ended: bool,
) -> Result<v1::SearchResult, procd_store::StoreError> {
    let mut at = cursor;
    let mut from = None;
    while at < total && !lines.is_enough(cursor) {
        let wanted = usize::try_from(total - at).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        let page = output.read(at, wanted).await?;
        let is_first = from.is_none();
        from.get_or_insert(page.from);
        if page.from != at {
            if !is_first {
                // The open line ends where bytes are missing; the next call tells the gap.
                if lines.line.start < at {
                    lines = blocking(move || lines.end_line(at).map(|()| lines)).await?;
                }
                break;
            }
            lines.line.start = page.from;
        }
        at = page.next();
        if page.bytes.is_empty() {
            break;
        }
        lines = blocking(move || lines.feed(page.from, &page.bytes).map(|()| lines)).await?;
    }
    if at >= total && is_ended && !lines.is_full() && lines.line.start < total {
        lines = blocking(move || lines.end_line(total).map(|()| lines)).await?;
    }
    let from = from.unwrap_or(cursor).min(total);
    let gap_bytes = from - cursor.min(from);
    let next_cursor = lines.line.start.min(total);
    Ok(v1::SearchResult {
        // The open line of a running process is looked at when it is whole.
        more: next_cursor < total && (is_ended || lines.is_enough(cursor) || at < total),
        matches: lines.matches,
        next_cursor,
        gap: gap_bytes > 0,
        gap_bytes: (gap_bytes > 0).then_some(gap_bytes),
    })
}

/// The line that is being read.
#[derive(Debug, Default)]
struct Line {
    start: u64,
    /// Its first bytes.
    shown: Vec<u8>,
    /// A CR that belongs to the line end if LF follows.
    has_cr: bool,
}

/// The search, line by line.
#[derive(Debug)]
struct Lines {
    scanner: Scanner,
    line: Line,
    matches: Vec<Excerpt>,
    text_bytes: usize,
    limit: usize,
}

impl Lines {
    fn new(pattern: Pattern, cursor: u64, limit: usize) -> Result<Self, Stuck> {
        Ok(Self {
            scanner: Scanner::new(pattern)?,
            line: Line { start: cursor, ..Line::default() },
            matches: Vec::new(),
            text_bytes: 0,
            limit,
        })
    }

    fn is_full(&self) -> bool {
        self.matches.len() >= self.limit || self.text_bytes >= as_count(limits::LIMIT_BYTES_MAX)
    }

    /// Whether this call has done its part.
    fn is_enough(&self, cursor: u64) -> bool {
        self.is_full() || self.line.start.saturating_sub(cursor) >= CALL_BYTES
    }

    /// Takes bytes that begin at `at`. Behind the last match wanted it looks at none.
    fn feed(&mut self, at: u64, bytes: &[u8]) -> Result<(), Stuck> {
        let mut place = at;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.is_full() {
                return Ok(());
            }
            let (body, is_whole) = match part.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (part, false),
            };
            place += as_u64(part.len());
            if self.line.has_cr && !body.is_empty() {
                self.line.has_cr = false;
                self.take(b"\r")?;
            }
            match body.strip_suffix(b"\r") {
                Some(body) => {
                    self.take(body)?;
                    self.line.has_cr = true;
                }
                None => self.take(body)?,
            }
            if is_whole {
                self.end_line(place - 1)?;
                self.line.start = place;
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Stuck> {
        let room = as_count(SHOWN_BYTES_MAX).saturating_sub(self.line.shown.len());
        self.line.shown.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.scanner.feed(bytes)
    }

    /// The line ends before `end`, where its LF is, or nothing any more.
    fn end_line(&mut self, end: u64) -> Result<(), Stuck> {
        if self.scanner.settle(true).is_some() {
            let raw = Raw { bytes: &self.line.shown, at_end: true, ..Raw::default() };
            let text = procd_text::render(&raw, usize::MAX).text;
            self.text_bytes += text.len();
            let end_cursor = end - u64::from(self.line.has_cr);
            self.matches.push(Excerpt { text, start_cursor: self.line.start, end_cursor });
        }
        self.line = Line { start: end, ..Line::default() };
        self.scanner.restart()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(pattern: &str, text: &[u8], piece: usize, limit: usize) -> (Vec<(u64, u64)>, u64) {
        let mut lines = Lines::new(Pattern::new(pattern).unwrap(), 0, limit).unwrap();
        let mut at = 0;
        for part in text.chunks(piece) {
            lines.feed(at, part).unwrap();
            at += as_u64(part.len());
        }
        if !lines.is_full() && lines.line.start < at {
            lines.end_line(at).unwrap();
        }
        let place = |found: &Excerpt| (found.start_cursor, found.end_cursor);
        (lines.matches.iter().map(place).collect(), lines.line.start)
    }

    #[test]
    fn lines_are_found_whole_however_they_are_cut() {
        for piece in [1, 2, 5, 100] {
            let text = b"one\ntwo\r\n\nthree\ntwo more";
            assert_eq!(found("^two", text, piece, 9).0, [(4, 7), (16, 24)]);
            assert_eq!(found("^$", text, piece, 9).0, [(9, 9)]);
            assert_eq!(found("two$", text, piece, 9).0, [(4, 7)]);
            assert_eq!(found("e", text, piece, 1), (vec![(0, 3)], 4));
        }
    }

    proptest! {
        #[test]
        fn any_cut_finds_what_a_look_at_each_line_finds(
            text in "[ab\n]{0,60}",
            piece in 1_usize..9,
        ) {
            let (places, _) = found("ab+$", text.as_bytes(), piece, 1000);
            let mut wanted = Vec::new();
            let mut at = 0;
            for line in text.split_inclusive('\n') {
                let body = line.trim_end_matches('\n');
                if body.trim_end_matches('b').ends_with('a') && body.ends_with('b') {
                    wanted.push((at, at + as_u64(body.len())));
                }
                at += as_u64(line.len());
            }
            prop_assert_eq!(places, wanted);
        }
    }
}
