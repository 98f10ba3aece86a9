//! The end of an output: the last lines that fit, and head and tail of what does not fit.

use procd_protocol::limits;
use procd_protocol::v1::{Encoding, Excerpt};
use procd_store::StoreError;
use procd_text::{Raw, SEQUENCE_BYTES_MAX};

use super::as_count;
use super::page::{Content, Form, Room};
use super::stretch::{self, Filter, Stretch, Want, as_u64};
use crate::drain::Output;

/// Raw bytes looked at for each byte of text that is wanted: colours and the like leave none.
const RAW_PER_TEXT: usize = 4;
/// Raw bytes looked at, at least.
const SCAN_BYTES_MIN: usize = 64 * 1024;

/// Where the newest of the last `lines` lines begin that fit the form's limit whole. A line that
/// alone does not fit gives its end.
pub(super) async fn lines_start(
    output: &Output,
    lines: u64,
    form: Form,
) -> Result<u64, StoreError> {
    let bounds = output.bounds();
    let scan = form.limit.saturating_mul(RAW_PER_TEXT).max(SCAN_BYTES_MIN);
    let scan = scan.min(as_count(limits::OUTPUT_REPLY_BYTES_MAX));
    let stretch = last(output, bounds.total, bounds.retained_from, scan, form.filter).await?;
    let used = newest_lines(&stretch.bytes, as_count(lines), form);
    Ok(stretch.cursor_after(used).min(bounds.total))
}

/// The last `scan` raw bytes before `total`, without what lies before a gap among them.
async fn last(
    output: &Output,
    total: u64,
    retained_from: u64,
    scan: usize,
    filter: Filter,
) -> Result<Stretch, StoreError> {
    let mut from = total.saturating_sub(as_u64(scan)).max(retained_from);
    loop {
        let raw_max = usize::try_from(total.saturating_sub(from)).unwrap_or(0);
        let want = Want { from, bytes: raw_max, raw_max, filter, tags: false };
        let stretch = stretch::read(output, want).await?;
        if !stretch.is_before_gap || stretch.end <= from {
            return Ok(stretch);
        }
        from = stretch.end;
    }
}

/// The index at which the newest lines begin that fit.
fn newest_lines(bytes: &[u8], lines: usize, form: Form) -> usize {
    let mut start = bytes.len();
    let mut room = form.limit;
    for _ in 0..lines {
        if start == 0 {
            break;
        }
        // The LF before `start` ends the line that begins behind the LF before it.
        let before = &bytes[..start - 1];
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let line = &bytes[line_start..start];
        let size = text_bytes(line, form.encoding);
        if size > room {
            if start == bytes.len() {
                return line_start + end_of_line(line, form);
            }
            break;
        }
        room -= size;
        start = line_start;
    }
    start
}

/// What a line takes of the limit. A sequence that spans lines may make this a little wrong; the
/// page itself then says that there is more.
fn text_bytes(line: &[u8], encoding: Encoding) -> usize {
    match encoding {
        Encoding::Base64 => line.len(),
        Encoding::SafeText => {
            let raw = Raw { bytes: line, at_end: true, ..Raw::default() };
            procd_text::render(&raw, usize::MAX).text.len()
        }
    }
}

/// Where the end of a line begins that fits.
fn end_of_line(line: &[u8], form: Form) -> usize {
    match form.encoding {
        Encoding::Base64 => line.len().saturating_sub(form.limit),
        Encoding::SafeText => {
            procd_text::tail(&Raw { bytes: line, ..Raw::default() }, form.limit).start
        }
    }
}

/// Head and tail of an ended output whose text does not fit.
#[derive(Debug)]
pub(super) struct HeadAndTail {
    pub(super) head: Excerpt,
    pub(super) tail: Excerpt,
    /// Raw bytes between them.
    pub(super) omitted_bytes: u64,
}

/// The tail that goes with `head`, whose text used its share of the limit.
pub(super) async fn with_head(
    output: &Output,
    head: Content,
    form: Form,
) -> Result<HeadAndTail, StoreError> {
    if form.fold {
        return with_folded_head(output, head, form).await;
    }
    let tail_limit = form.limit;
    let total = output.bounds().total;
    let scan = tail_limit.saturating_mul(RAW_PER_TEXT) + SEQUENCE_BYTES_MAX;
    let stretch = last(output, total, head.next, scan, Filter::Combined).await?;
    let before = stretch::context(output, stretch.from, Filter::Combined).await?;
    let raw = Raw {
        context: &before.bytes,
        gap_before: before.is_after_gap,
        bytes: &stretch.bytes,
        at_end: true,
    };
    let tail = procd_text::tail(&raw, tail_limit);
    let start = stretch.cursor_after(tail.start).min(total);
    Ok(HeadAndTail {
        omitted_bytes: start - head.next.min(start),
        head: Excerpt { text: head.output, start_cursor: head.from, end_cursor: head.next },
        tail: Excerpt { text: tail.text, start_cursor: start, end_cursor: total },
    })
}

/// The same for folded lines: those whose raw text would fit, folded.
async fn with_folded_head(
    output: &Output,
    head: Content,
    form: Form,
) -> Result<HeadAndTail, StoreError> {
    let total = output.bounds().total;
    let plain = Form { fold: false, ..form };
    let start = lines_start(output, limits::TAIL_LINES_MAX, plain).await?.max(head.next).min(total);
    let whole = Form { limit: as_count(limits::LIMIT_BYTES_MAX), ..form };
    let tail = super::page::content(output, start, true, whole, Room::of_reply()).await?;
    Ok(HeadAndTail {
        omitted_bytes: start - head.next.min(start),
        head: Excerpt { text: head.output, start_cursor: head.from, end_cursor: head.next },
        tail: Excerpt { text: tail.output, start_cursor: start, end_cursor: total },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(limit: usize) -> Form {
        Form::text(limit)
    }

    fn newest(text: &str, lines: usize, limit: usize) -> &str {
        &text[newest_lines(text.as_bytes(), lines, form(limit))..]
    }

    #[test]
    fn the_newest_lines_are_returned_whole() {
        assert_eq!(newest("a\nb\nc\n", 2, 100), "b\nc\n");
        assert_eq!(newest("a\nb\nc", 2, 100), "b\nc");
        assert_eq!(newest("a\nb\nc\n", 9, 100), "a\nb\nc\n");
        assert_eq!(newest("", 3, 100), "");
        assert_eq!(newest("\n\n\n", 2, 100), "\n\n");
    }

    #[test]
    fn only_lines_that_fit_are_returned_and_a_long_last_one_gives_its_end() {
        assert_eq!(newest("aaaa\nbb\ncc\n", 3, 7), "bb\ncc\n");
        assert_eq!(newest("aaaa\nbbbbbb", 3, 4), "bbbb");
        let coloured = format!("{}\u{1b}[31mx\u{1b}[0m\n", "a\n");
        assert_eq!(newest(&coloured, 1, 2), "\u{1b}[31mx\u{1b}[0m\n");
    }
}
