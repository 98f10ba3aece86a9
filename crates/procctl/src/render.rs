//! Tables, and values as a person reads them. Pure text: nothing here prints.

use std::fmt::Write;

/// Spaces between two columns.
const COLUMN_GAP: usize = 2;

/// How a cell stands out on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As the rest.
    Plain,
    /// Going well.
    Good,
    /// Worth a look.
    Bad,
}

impl Tone {
    const fn escape(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("\u{1b}[32m"),
            Self::Bad => Some("\u{1b}[31m"),
        }
    }
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell without colour; what could act on a terminal is shown, not sent.
    pub(crate) fn new(text: &str) -> Self {
        Self { text: printable(text), tone: Tone::Plain }
    }

    /// The same in a colour.
    pub(crate) fn toned(text: &str, tone: Tone) -> Self {
        Self { tone, ..Self::new(text) }
    }
}

/// Rows under a header, each column as wide as its widest cell, the last one unpadded.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|text| Cell::new(text)).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The table as lines, the header first.
    pub(crate) fn to_text(&self, with_colour: bool) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            push_row(&mut text, row, &widths, with_colour);
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let rows = || std::iter::once(&self.header).chain(&self.rows);
        let width = |column: usize| {
            rows().filter_map(|row| row.get(column)).map(|cell| width(&cell.text)).max()
        };
        (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect()
    }
}

fn push_row(text: &mut String, row: &[Cell], widths: &[usize], with_colour: bool) {
    for (index, cell) in row.iter().enumerate() {
        match cell.tone.escape().filter(|_| with_colour) {
            Some(escape) => text.extend([escape, &cell.text, "\u{1b}[0m"]),
            None => text.push_str(&cell.text),
        }
        if index + 1 < row.len() {
            let column = widths.get(index).copied().unwrap_or(0);
            let pad = column.saturating_sub(width(&cell.text)) + COLUMN_GAP;
            text.extend(std::iter::repeat_n(' ', pad));
        }
    }
    text.push('\n');
}

/// Columns a text takes: one a character; enough for labels and commands.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` with every control character and direction mark shown as an escape.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let acts = character.is_control()
            || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if acts {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// At most `chars` characters of `text`; a cut is shown by `...`.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    const ELLIPSIS: &str = "...";
    if width(text) <= chars {
        return text.to_owned();
    }
    let kept = chars.saturating_sub(ELLIPSIS.len());
    text.chars().take(kept).chain(ELLIPSIS.chars()).collect()
}

/// Arguments as one would type them, quoted where a shell needs it.
pub(crate) fn command_line<'word>(words: impl IntoIterator<Item = &'word str>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted(word));
    }
    line
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c) || !c.is_ascii();
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A span in its largest two units: `42s`, `3m 5s`, `2h 10m`, `5d 3h`; under a second in ms.
pub(crate) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{milliseconds}ms"),
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes, _) => format!("{hours}h {}m", minutes % 60),
        (days, hours, _, _) => format!("{days}d {}h", hours % 24),
    }
}

/// A count of bytes with four digits at most: `999 B`, `1.5 KiB`, `12 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut tenths = u128::from(count) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or("EiB");
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

/// Lines `name: value`, the values in one column.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let column = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0) + 1;
    let mut text = String::new();
    for (name, value) in pairs {
        let name = format!("{name}:");
        // Writing to a `String` cannot fail.
        if writeln!(text, "{name:<column$} {}", printable(value)).is_err() {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["HANDLE", "STATE", "COMMAND"]);
        table.push(vec![
            Cell::new("Q7h2xK"),
            Cell::toned("running", Tone::Good),
            Cell::new("sleep 600"),
        ]);
        table.push(vec![Cell::new("-aBcDeF"), Cell::new("exited"), Cell::new("é\tx")]);
        table
    }

    #[test]
    fn columns_line_up_and_the_last_one_has_no_blanks_behind_it() {
        let expected = "HANDLE   STATE    COMMAND\n\
                        Q7h2xK   running  sleep 600\n\
                        -aBcDeF  exited   é\\tx\n";
        assert_eq!(table().to_text(false), expected);
    }

    #[test]
    fn colour_changes_no_column() {
        let coloured = table().to_text(true);
        assert!(coloured.contains("\u{1b}[32mrunning\u{1b}[0m"));
        let bare = coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(bare, table().to_text(false));
    }

    #[test]
    fn nothing_in_a_cell_acts_on_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}d"), r"a\u{1b}[2Jb\nc\u{9b}d");
        assert_eq!(printable("\u{202e}x"), r"\u{202e}x");
        assert_eq!(printable("naïve ✓"), "naïve ✓");
    }

    #[test]
    fn a_command_reads_as_typed() {
        assert_eq!(command_line(["cargo", "build", "--release"]), "cargo build --release");
        assert_eq!(command_line(["sh", "-c", "echo 'a'; exit"]), r"sh -c 'echo '\''a'\''; exit'");
        assert_eq!(command_line([""]), "''");
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1s"),
            (185_000, "3m 5s"),
            (7_800_000, "2h 10m"),
            (442_800_000, "5d 3h"),
        ];
        for (milliseconds, text) in cases {
            assert_eq!(span(milliseconds), text);
        }
    }

    #[test]
    fn byte_counts_stay_short() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_240, "10 KiB"),
            (1_048_575, "1023 KiB"),
            (67_108_864, "64 MiB"),
            (u64::MAX, "15 EiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_cut_is_shown() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
    }

    #[test]
    fn pairs_have_their_values_in_one_column() {
        let text = pairs(&[("a", "1".to_owned()), ("long", "2".to_owned())]);
        assert_eq!(text, "a:    1\nlong: 2\n");
    }
}
