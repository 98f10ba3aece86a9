//! Folding: overwritten lines as a terminal would show them. A progress bar of 100,000 frames is one line.
//!
//! A line is a row of characters, one column each, and a place in it. CR goes back to its first column, BS one column; a
//! character takes the place of what was there; an erase of the line (CSI K) takes away what a terminal would take away. LF
//! ends the line. Each line is a pure function of its own raw bytes, so pages that end where lines end join to the folded
//! whole, wherever they were cut.

use crate::{
    render::Raw,
    sequence::ESC,
    start::{self, Start},
    unit::{self, Unit},
};

/// Bytes of text at which an open line is taken as it is.
pub const FOLDED_LINE_BYTES_MAX: usize = 64 * 1024;
/// Raw bytes at which an open line is taken as it is.
pub const FOLDED_RAW_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Characters that the erases of one open line may go over, a count. No line of a real screen comes near; it keeps the work
/// in proportion to the bytes.
const ERASED_MAX: usize = 64 * 1024 * 1024;

const BACKSPACE: u8 = 0x08;

/// Folds an output that comes in pieces, each byte once.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    lines: Lines,
    open: Open,
    /// The next line did not fit: no more is taken.
    is_full: bool,
    is_begun: bool,
}

/// Whole lines.
#[derive(Clone, Debug, Default)]
struct Lines {
    text: String,
    /// Their raw bytes.
    bytes: usize,
    normalized: bool,
}

/// The line that goes on.
#[derive(Clone, Debug, Default)]
struct Open {
    row: Row,
    /// Its raw bytes.
    bytes: usize,
    normalized: bool,
}

/// What a [`Folder`] holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Whole lines.
    pub text: String,
    /// Raw bytes whose text this is: the next page starts there.
    pub consumed: usize,
    /// The text differs from the bytes it covers.
    pub normalized: bool,
    /// The open line as it looks now; `None` when there is nothing of it.
    pub pending: Option<String>,
}

impl Folder {
    /// Takes the next bytes; how many of them it took. The rest is what makes no whole character or sequence yet, and has to
    /// come again before what follows it.
    /// - `raw`: as for [`render`](crate::render()); context and gap count for the first bytes only.
    /// - `limit`: bytes of text; one line may exceed it.
    pub fn feed(&mut self, raw: &Raw<'_>, limit: usize) -> usize {
        let mut at = 0;
        if !self.is_begun {
            match start::find(raw) {
                Start::After(skipped) => at = skipped.min(raw.bytes.len()),
                Start::Inside => return 0,
            }
            self.is_begun = !raw.bytes.is_empty();
            self.open.bytes += at;
            self.open.normalized |= at > 0;
        }
        while at < raw.bytes.len() && !self.is_full {
            let unit = unit::read(raw.bytes, at, raw.at_end);
            let (Unit::Kept(len) | Unit::Replaced(len) | Unit::Removed(len)) = unit else { break };
            let bytes = raw.bytes.get(at..at + len).unwrap_or_default();
            self.take(unit, bytes, limit);
            at += len;
        }
        at
    }

    /// Nothing follows: the open line is taken as it is, if it fits.
    pub fn finish(&mut self, limit: usize) {
        if self.open.bytes > 0 && !self.is_full {
            self.close("", limit);
        }
    }

    /// Whether the page can take no more lines.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Raw bytes whose lines are complete.
    #[must_use]
    pub const fn consumed(&self) -> usize {
        self.lines.bytes
    }

    /// Raw bytes of the open line.
    #[must_use]
    pub const fn open_bytes(&self) -> usize {
        self.open.bytes
    }

    /// Everything folded so far.
    #[must_use]
    pub fn into_folded(self) -> Folded {
        let Lines { text, bytes: consumed, normalized } = self.lines;
        let pending = (self.open.bytes > 0).then(|| self.open.row.text());
        Folded { text, consumed, normalized, pending: pending.filter(|line| !line.is_empty()) }
    }

    fn take(&mut self, unit: Unit, bytes: &[u8], limit: usize) {
        if (unit, bytes) == (Unit::Kept(1), b"\n") {
            self.open.bytes += 1;
            return self.close("\n", limit);
        }
        self.open.take(unit, bytes);
        if self.open.is_long() {
            self.close("", limit);
        }
    }

    /// The open line is complete: takes it over if there is room, or if it is the first.
    fn close(&mut self, ending: &str, limit: usize) {
        let length = self.open.row.bytes + ending.len();
        if self.lines.bytes > 0 && self.lines.text.len() + length > limit {
            self.is_full = true;
            return;
        }
        self.lines.text.extend(self.open.row.cells.iter());
        self.lines.text.push_str(ending);
        self.lines.bytes += self.open.bytes;
        self.lines.normalized |= self.open.normalized;
        self.open.clear();
    }
}

impl Open {
    fn take(&mut self, unit: Unit, bytes: &[u8]) {
        self.bytes += bytes.len();
        match (unit, bytes) {
            (Unit::Kept(_), b"\r") => {
                self.row.column = 0;
                self.normalized = true;
            }
            (Unit::Kept(_), kept) => {
                let text = std::str::from_utf8(kept).unwrap_or_default();
                text.chars().for_each(|character| self.normalized |= self.row.put(character));
            }
            (Unit::Replaced(_), _) => {
                self.row.put(char::REPLACEMENT_CHARACTER);
                self.normalized = true;
            }
            (Unit::Removed(_), removed) => {
                self.normalized = true;
                if removed == [BACKSPACE] {
                    self.row.column = self.row.column.saturating_sub(1);
                } else if let Some(part) = erased(removed) {
                    self.row.erase(part);
                }
            }
            (Unit::Open, _) => {}
        }
    }

    const fn is_long(&self) -> bool {
        self.row.bytes >= FOLDED_LINE_BYTES_MAX
            || self.bytes >= FOLDED_RAW_BYTES_MAX
            || self.row.erased >= ERASED_MAX
    }

    fn clear(&mut self) {
        self.row.clear();
        self.bytes = 0;
        self.normalized = false;
    }
}

/// A line on the screen.
#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<char>,
    column: usize,
    /// Of its text.
    bytes: usize,
    /// Characters that erases went over.
    erased: usize,
}

/// Which part of a line an erase takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    ToEnd,
    ToStart,
    Whole,
}

impl Row {
    /// Writes at the place, and moves on; whether it took the place of another character.
    fn put(&mut self, character: char) -> bool {
        let old = self.cells.get(self.column).copied();
        match self.cells.get_mut(self.column) {
            Some(cell) => *cell = character,
            None => self.cells.push(character),
        }
        self.bytes = self.bytes + character.len_utf8() - old.map_or(0, char::len_utf8);
        self.column += 1;
        old.is_some_and(|old| old != character)
    }

    fn erase(&mut self, part: Part) {
        match part {
            Part::ToEnd => self.cut(),
            Part::ToStart => self.blank(self.column + 1),
            Part::Whole => {
                self.cut();
                self.blank(self.column);
            }
        }
    }

    /// Takes away what is at the place and behind it.
    fn cut(&mut self) {
        let gone = self.cells.get(self.column..).unwrap_or_default();
        self.bytes -= gone.iter().map(|cell| cell.len_utf8()).sum::<usize>();
        self.cells.truncate(self.column);
    }

    /// Blanks the first `count` characters.
    fn blank(&mut self, count: usize) {
        for cell in self.cells.iter_mut().take(count) {
            self.bytes -= cell.len_utf8() - 1;
            *cell = ' ';
        }
        self.erased += count;
    }

    fn text(&self) -> String {
        self.cells.iter().collect()
    }

    fn clear(&mut self) {
        self.cells.clear();
        self.column = 0;
        self.bytes = 0;
        self.erased = 0;
    }
}

/// The part that a removed sequence erases, if it is an erase of the line.
fn erased(sequence: &[u8]) -> Option<Part> {
    let body = sequence
        .strip_prefix(&[ESC, b'['])
        .or_else(|| sequence.strip_prefix("\u{9b}".as_bytes()))?
        .strip_suffix(b"K")?;
    match body {
        b"" | b"0" => Some(Part::ToEnd),
        b"1" => Some(Part::ToStart),
        b"2" => Some(Part::Whole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LOOK_AHEAD_BYTES;
    use proptest::prelude::*;

    /// One page from `from` on, fed in pieces.
    fn page(bytes: &[u8], from: usize, limit: usize, piece: usize) -> Folded {
        let mut folder = Folder::default();
        let mut at = from;
        let mut wanted = piece;
        while at < bytes.len() && !folder.is_full() {
            let end = bytes.len().min(at + wanted);
            let context = if at == from { &bytes[from.saturating_sub(4096)..from] } else { &[] };
            let raw = Raw {
                context,
                bytes: &bytes[at..end],
                at_end: end == bytes.len(),
                gap_before: false,
            };
            let used = folder.feed(&raw, limit);
            wanted = if used == 0 { wanted + LOOK_AHEAD_BYTES } else { piece };
            at += used;
        }
        if at == bytes.len() {
            folder.finish(limit);
        }
        folder.into_folded()
    }

    fn folded(text: &str) -> String {
        page(text.as_bytes(), 0, usize::MAX, usize::MAX >> 1).text
    }

    #[test]
    fn overwritten_text_looks_as_on_a_terminal() {
        for (raw, shown) in [
            ("plain\n", "plain\n"),
            ("crlf\r\n", "crlf\n"),
            ("10%\r20%\r100%\ndone", "100%\ndone"),
            ("long line\rshort\n", "shortline\n"),
            ("long line\r\x1b[Kshort\n", "short\n"),
            ("long line\x1b[2K\rx\n", "x        \n"),
            ("abc\x08\x08X\n", "aXc\n"),
            ("\x08\x08a\n", "a\n"),
            ("a\x1b[31mb\x1b[0m\rc\n", "cb\n"),
            ("\u{9b}Kx\r\u{9b}1Ky\n", "y\n"),
            ("\u{20ac}\u{20ac}\r.\n", ".\u{20ac}\n"),
            ("a\n\nb\r", "a\n\nb"),
        ] {
            assert_eq!(folded(raw), shown, "{raw:?}");
        }
    }

    #[test]
    fn a_hundred_thousand_frames_are_one_line() {
        let frames: String =
            (1..=100_000).map(|n| format!("\r[{:>3} %] step {n} ", n / 1000)).collect();
        let text = folded(&format!("{frames}\ndone\n"));
        assert_eq!(text, "[100 %] step 100000 \ndone\n");
    }

    #[test]
    fn an_open_line_is_held_back_and_shown_until_it_is_too_long() {
        let mut folder = Folder::default();
        let feed =
            |folder: &mut Folder, bytes: &[u8]| folder.feed(&Raw { bytes, ..Raw::default() }, 100);
        assert_eq!(feed(&mut folder, b"one\ntwo\rT"), 9);
        let folded = folder.clone().into_folded();
        assert_eq!(
            (folded.text.as_str(), folded.consumed, folded.pending.as_deref()),
            ("one\n", 4, Some("Two"))
        );
        assert!(!folded.normalized, "what is held back is not covered");
        let long = vec![b'x'; FOLDED_LINE_BYTES_MAX + 10];
        let mut folder = Folder::default();
        feed(&mut folder, &long);
        assert_eq!((folder.consumed(), folder.open_bytes()), (FOLDED_LINE_BYTES_MAX, 10));
        let spinner = b"|\r/\r".repeat(FOLDED_RAW_BYTES_MAX / 4 + 1);
        let mut folder = Folder::default();
        feed(&mut folder, &spinner);
        let folded = folder.into_folded();
        assert_eq!((folded.consumed, folded.text.as_str()), (FOLDED_RAW_BYTES_MAX, "/"));
    }

    #[test]
    fn a_page_takes_lines_whole_and_one_in_any_case() {
        let folded = page(b"aaaa\nbb\ncc\n", 0, 8, 100);
        assert_eq!((folded.text.as_str(), folded.consumed), ("aaaa\nbb\n", 8));
        let folded = page(b"aaaa\nbb\ncc\n", 0, 2, 100);
        assert_eq!((folded.text.as_str(), folded.consumed), ("aaaa\n", 5));
    }

    /// The slow model: each line of safe text on its own, redrawn character by character.
    fn model(text: &str) -> String {
        let mut shown = String::new();
        for line in text.split_inclusive('\n') {
            let mut cells: Vec<char> = Vec::new();
            let mut column = 0;
            for character in line.chars() {
                match character {
                    '\n' => {}
                    '\r' => column = 0,
                    '\u{8}' => column = usize::max(column, 1) - 1,
                    other => {
                        if column == cells.len() {
                            cells.push(other);
                        }
                        cells[column] = other;
                        column += 1;
                    }
                }
            }
            shown.extend(cells);
            shown.push_str(if line.ends_with('\n') { "\n" } else { "" });
        }
        shown
    }

    proptest! {
        #[test]
        fn any_paging_and_any_cut_join_to_the_folded_whole(
            text in "[ab\u{e9}\u{20ac}\r\n\u{8}]{0,200}",
            limit in 1_usize..40,
            piece in 1_usize..20,
        ) {
            let bytes = text.as_bytes();
            let (mut joined, mut at) = (String::new(), 0);
            while at < bytes.len() {
                let folded = page(bytes, at, limit, piece);
                prop_assert!(folded.consumed > 0, "a page that does not move on");
                let first = folded.text.find('\n').map_or(folded.text.len(), |lf| lf + 1);
                prop_assert!(folded.text.len() <= limit.max(first));
                joined += &folded.text;
                at += folded.consumed;
            }
            prop_assert_eq!(joined, model(&text));
        }

        #[test]
        fn any_bytes_fold_to_text_without_what_acts_on_a_terminal(
            bytes in prop::collection::vec(prop::sample::select(b"\x1b[K]0;a\x07\x9b\xc2\xe2\x82\xac\r\n\x08P\\\xff ".to_vec()), 0..300),
            limit in 1_usize..60,
            piece in 1_usize..50,
        ) {
            let whole = page(&bytes, 0, usize::MAX, usize::MAX >> 1);
            let (mut joined, mut at) = (String::new(), 0);
            while at < bytes.len() {
                let folded = page(&bytes, at, limit, piece);
                prop_assert!(folded.consumed > 0);
                joined += &folded.text;
                at += folded.consumed;
            }
            prop_assert_eq!(&joined, &whole.text);
            prop_assert!(joined.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
        }
    }
}
