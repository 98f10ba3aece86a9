//! Tables, and values as a person reads them. Pure text: nothing here prints.

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

/// A column is not made narrower than this.
const COLUMN_CHARS_MIN: usize = 4;

/// Rows under a header, each column as wide as its widest cell, the last one unpadded.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    /// Columns that are cut, with a mark, where the whole is too wide.
    cuttable: Vec<usize>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(header: &[&str]) -> Self {
        let header = header.iter().map(|text| Cell::new(text)).collect();
        Self { header, rows: Vec::new(), cuttable: Vec::new() }
    }

    /// These columns may be cut to make it fit.
    pub(crate) fn cutting(mut self, columns: &[&str]) -> Self {
        let is_named = |cell: &Cell| columns.contains(&cell.text.as_str());
        let named = self.header.iter().enumerate().filter(|(_, cell)| is_named(cell));
        self.cuttable = named.map(|(index, _)| index).collect();
        self
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The table as lines, the header first, within `limit` columns as far as cutting helps.
    pub(crate) fn to_text(&self, with_colour: bool, limit: Option<usize>) -> String {
        let mut widths = self.widths();
        if let Some(limit) = limit {
            self.fit(&mut widths, limit);
        }
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            push_row(&mut text, row, &widths, with_colour);
        }
        text
    }

    /// Makes the widest of the columns that may be cut narrower, until all fit.
    fn fit(&self, widths: &mut [usize], limit: usize) {
        let gaps = COLUMN_GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > limit {
            let cuttable = self.cuttable.iter().copied();
            let widest = cuttable.max_by_key(|&index| widths.get(index).copied().unwrap_or(0));
            let Some(width) = widest.and_then(|index| widths.get_mut(index)) else { return };
            if *width <= COLUMN_CHARS_MIN {
                return;
            }
            *width -= 1;
        }
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
        let column = widths.get(index).copied().unwrap_or(0);
        let shown = cut(&cell.text, column);
        match cell.tone.escape().filter(|_| with_colour) {
            Some(escape) => text.extend([escape, &shown, "\u{1b}[0m"]),
            None => text.push_str(&shown),
        }
        if index + 1 < row.len() {
            let pad = column.saturating_sub(width(&shown)) + COLUMN_GAP;
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

/// At most `chars` characters of `text`; a cut is shown by a mark.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    const MARK: char = '…';
    if width(text) <= chars {
        return text.to_owned();
    }
    text.chars().take(chars.saturating_sub(1)).chain([MARK]).collect()
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

/// Lines `name: value`, the values in one column; what does not fit into `limit` columns goes on
/// below.
pub(crate) fn pairs(pairs: &[(&str, String)], limit: Option<usize>) -> String {
    let column = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0) + 1;
    let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(column + 1).max(1));
    let mut text = String::new();
    for (name, value) in pairs {
        let mut name = format!("{name}:");
        for line in lines_of(&printable(value), room) {
            text.push_str(&format!("{name:<column$} {line}"));
            text.truncate(text.trim_end().len());
            text.push('\n');
            name.clear();
        }
    }
    text
}

/// `text` in lines of at most `room` characters, broken between words; a longer word is broken.
pub(crate) fn lines_of(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| width(line));
        if used > 0 && used + 1 + rest.len() > room {
            lines.push(String::new());
        } else if used > 0 {
            lines.last_mut().map(|line| line.push(' ')).unwrap_or_default();
        }
        while rest.len() > room {
            let head: String = rest.drain(..room).collect();
            lines.last_mut().map(|line| line.push_str(&head)).unwrap_or_default();
            lines.push(String::new());
        }
        let word: String = rest.into_iter().collect();
        lines.last_mut().map(|line| line.push_str(&word)).unwrap_or_default();
    }
    lines
}

/// Values as bars of eight heights, the newest at the right, at most `columns` of them, the
/// highest as high as `top` or the largest.
pub(crate) fn graph(values: &[f64], top: f64, columns: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.get(values.len().saturating_sub(columns)..).unwrap_or_default();
    let top = shown.iter().copied().fold(top, f64::max);
    let blank = std::iter::repeat_n(' ', columns - shown.len());
    let bar = |value: &f64| {
        let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        let steps = (1..=8_u8).filter(|step| share * 8.0 > f64::from(*step) - 0.5).count();
        // Anything at all is seen.
        let steps = if *value > 0.0 { steps.max(1) } else { 0 };
        BARS.get(steps).copied().unwrap_or(' ')
    };
    blank.chain(shown.iter().map(bar)).collect()
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
        assert_eq!(table().to_text(false, None), expected);
    }

    #[test]
    fn colour_changes_no_column() {
        let coloured = table().to_text(true, None);
        assert!(coloured.contains("\u{1b}[32mrunning\u{1b}[0m"));
        let bare = coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(bare, table().to_text(false, None));
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
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }

    #[test]
    fn a_table_that_is_too_wide_is_cut_where_it_may_be_and_marked() {
        let mut table = Table::new(&["HANDLE", "STATE", "COMMAND"]).cutting(&["COMMAND"]);
        table.push(vec![Cell::new("Q7h2xK"), Cell::new("running"), Cell::new("sleep 600 seconds")]);
        let text = table.to_text(false, Some(26));
        assert_eq!(text, "HANDLE  STATE    COMMAND\nQ7h2xK  running  sleep 60…\n");
        assert!(text.lines().all(|line| line.chars().count() <= 26));
        let narrow = table.to_text(false, Some(5));
        assert!(narrow.contains("sle…") && narrow.contains("running"), "what may not stays whole");
    }

    #[test]
    fn graphs_show_the_newest_at_the_right_and_anything_at_all() {
        assert_eq!(graph(&[], 1.0, 3), "   ");
        assert_eq!(graph(&[0.0, 0.5, 1.0], 1.0, 4), "  ▄█");
        assert_eq!(graph(&[0.001, 8.0], 1.0, 2), "▁█");
        assert_eq!(graph(&[1.0, 2.0, 3.0], 1.0, 2), "▅█");
    }

    #[test]
    fn long_values_go_on_below_in_their_column() {
        let text = pairs(&[("a", "one two three four".to_owned())], Some(12));
        assert_eq!(text, "a: one two\n   three\n   four\n");
        assert_eq!(lines_of("abcdefgh", 3), ["abc", "def", "gh"]);
    }

    #[test]
    fn pairs_have_their_values_in_one_column() {
        let text = pairs(&[("a", "1".to_owned()), ("long", "2".to_owned())], None);
        assert_eq!(text, "a:    1\nlong: 2\n");
    }
}
