//! The picture of `top` as lines, and what keys do to it. Pure: no terminal, no daemon.

use jiff::Timestamp;
use procd_protocol::ProcessId;
use procd_protocol::v1::{StatusResult, StopMode};

use super::Graphs;
use crate::arguments::SortBy;
use crate::commands::ps::{age, command};
use crate::commands::sessions::counts;
use crate::commands::usage::{Use, as_bytes};
use crate::handle::{shortened, shown_chars};
use crate::render::{Cell, Table, bytes, cut, graph, span};

/// Characters of the graph of one process.
const ROW_GRAPH: usize = 8;
/// The widest graph of all.
const HEAD_GRAPH: usize = 60;
/// Lines above the table: the daemon, three graphs, a blank one, the header.
const HEAD_LINES: usize = 6;
/// Keys and what was said, below.
const FOOT_LINES: usize = 1;

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    /// Nothing outside the picture.
    Nothing,
    /// The end.
    Quit,
    /// The end of a process.
    Stop(Question),
}

/// A stop that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) process_id: ProcessId,
    pub(super) name: String,
    pub(super) mode: StopMode,
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
}

/// The keys in what a terminal sent.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, behind)) = rest.split_first() {
        rest = match rest {
            [0x1b, b'[' | b'O', sequence @ ..] => {
                // Up to its final byte: no letter of it is a key of ours.
                let last = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                match (last, last.and_then(|at| sequence.get(at))) {
                    (Some(0), Some(b'A')) => keys.push(Key::Up),
                    (Some(0), Some(b'B')) => keys.push(Key::Down),
                    _other => {}
                }
                last.and_then(|at| sequence.get(at + 1..)).unwrap_or_default()
            }
            _character => {
                keys.push(Key::Char(char::from(first)));
                behind
            }
        };
    }
    keys
}

/// See the module.
#[derive(Debug)]
pub(super) struct Picture {
    uses: Vec<Use>,
    left_out: usize,
    now: Timestamp,
    sort: SortBy,
    selected: Option<ProcessId>,
    asked: Option<Question>,
    said: String,
}

impl Picture {
    pub(super) const fn new(sort: SortBy) -> Self {
        Self {
            uses: Vec::new(),
            left_out: 0,
            now: Timestamp::UNIX_EPOCH,
            sort,
            selected: None,
            asked: None,
            said: String::new(),
        }
    }

    /// Takes over what was seen.
    pub(super) fn take(&mut self, uses: Vec<Use>, left_out: usize, now: Timestamp) {
        (self.uses, self.left_out, self.now) = (uses, left_out, now);
        self.order();
    }

    /// Shows a sentence at the foot.
    pub(super) fn say(&mut self, text: String) {
        self.said = text;
    }

    fn order(&mut self) {
        let sort = self.sort;
        self.uses.sort_by(|a, b| {
            let by = match sort {
                SortBy::Cpu => b.cpu.total_cmp(&a.cpu),
                SortBy::Memory => b.seen.memory_bytes.cmp(&a.seen.memory_bytes),
                SortBy::Output => b.output.total_cmp(&a.output),
                SortBy::Tree => b.seen.tree.cmp(&a.seen.tree),
                SortBy::Age => std::cmp::Ordering::Equal,
            };
            // Equal ones stay where they are: newest first.
            by.then_with(|| b.seen.record.created_at.cmp(&a.seen.record.created_at))
        });
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: Key) -> Pressed {
        if let Some(question) = self.asked.take() {
            self.said.clear();
            if key == Key::Char('y') {
                return Pressed::Stop(question);
            }
            return Pressed::Nothing;
        }
        // It was read.
        self.said.clear();
        match key {
            Key::Char('q' | '\u{3}') => return Pressed::Quit,
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            Key::Char('s') => {
                self.sort = match self.sort {
                    SortBy::Cpu => SortBy::Memory,
                    SortBy::Memory => SortBy::Output,
                    SortBy::Output => SortBy::Tree,
                    SortBy::Tree => SortBy::Age,
                    SortBy::Age => SortBy::Cpu,
                };
                self.order();
            }
            Key::Char('k') => self.ask(StopMode::Terminate, "stop"),
            Key::Char('K') => self.ask(StopMode::Kill, "kill"),
            Key::Char(_) => {}
        }
        Pressed::Nothing
    }

    fn ask(&mut self, mode: StopMode, word: &str) {
        let selected = self.uses.iter().find(|used| Some(id(used)) == self.selected);
        let Some(used) = selected else {
            self.said = "choose a process with the arrow keys first".to_owned();
            return;
        };
        let handle = id(used).to_string();
        let name = used.seen.record.label.clone();
        let name = name.unwrap_or_else(|| shortened(&handle, ROW_GRAPH).to_owned());
        self.said = format!("{word} {name}? y: yes, any other key: no");
        self.asked = Some(Question { process_id: id(used), name, mode });
    }

    fn select(&mut self, step: isize) {
        let at = self.uses.iter().position(|used| Some(id(used)) == self.selected);
        let last = self.uses.len().saturating_sub(1);
        let next = match at {
            None => 0,
            Some(at) => at.saturating_add_signed(step).min(last),
        };
        self.selected = self.uses.get(next).map(id);
    }

    /// The whole picture: at most `rows` lines of at most `columns` characters.
    pub(super) fn lines(
        &self,
        status: &StatusResult,
        graphs: &Graphs,
        columns: usize,
        rows: usize,
    ) -> Vec<String> {
        let mut lines = vec![cut(&head(status), columns)];
        lines.extend(head_graphs(graphs, columns));
        lines.push(String::new());
        let room = rows.saturating_sub(HEAD_LINES + FOOT_LINES);
        let selected = self.uses.iter().position(|used| Some(id(used)) == self.selected);
        // The chosen one is always in sight.
        let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));
        let shown = self.uses.get(first..).unwrap_or_default();
        let shown = shown.get(..room.min(shown.len())).unwrap_or_default();
        let text = self.table(shown, graphs).to_text(false, Some(columns));
        for (number, line) in text.lines().enumerate() {
            let is_selected = number > 0 && selected == Some(first + number - 1);
            let line = cut(line, columns);
            lines.push(if is_selected { format!("\u{1b}[7m{line}\u{1b}[0m") } else { line });
        }
        lines.truncate(rows.saturating_sub(FOOT_LINES));
        lines.push(cut(&self.foot(shown.len()), columns));
        lines
    }

    fn table(&self, shown: &[Use], graphs: &Graphs) -> Table {
        let handles: Vec<String> = self.uses.iter().map(|used| id(used).to_string()).collect();
        let all: Vec<&str> = handles.iter().map(String::as_str).collect();
        let chars = shown_chars(&all);
        let mark = |column: SortBy, name: &'static str| {
            if self.sort == column { format!("{name}↓") } else { name.to_owned() }
        };
        let header = [
            "HANDLE".to_owned(),
            "LABEL".to_owned(),
            mark(SortBy::Tree, "TREE"),
            mark(SortBy::Cpu, "CPU"),
            String::new(),
            mark(SortBy::Memory, "MEMORY"),
            mark(SortBy::Output, "OUT/S"),
            mark(SortBy::Age, "AGE"),
            "COMMAND".to_owned(),
        ];
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table = Table::new(&header).cutting(&["LABEL", "COMMAND"]);
        for used in shown {
            let record = &used.seen.record;
            let history = graphs.of_process.get(&record.process_id);
            let history = history.map(Vec::as_slice).unwrap_or_default();
            table.push(vec![
                Cell::new(shortened(&record.process_id.to_string(), chars)),
                Cell::new(record.label.as_deref().unwrap_or_default()),
                Cell::new(&used.seen.tree.to_string()),
                Cell::new(&format!("{:.0}%", used.cpu * 100.0)),
                Cell::new(&graph(history, 1.0, ROW_GRAPH)),
                Cell::new(&bytes(used.seen.memory_bytes)),
                Cell::new(&bytes(as_bytes(used.output))),
                Cell::new(&age(&record.created_at, self.now)),
                Cell::new(&command(record)),
            ]);
        }
        table
    }

    fn foot(&self, shown: usize) -> String {
        if !self.said.is_empty() {
            return crate::render::printable(&self.said);
        }
        let hidden = self.uses.len().saturating_sub(shown) + self.left_out;
        let more = if hidden > 0 { format!("{hidden} more; ") } else { String::new() };
        format!("{more}q quit  s sort  ↑↓ choose  k stop  K kill")
    }
}

fn id(used: &Use) -> ProcessId {
    used.seen.record.process_id
}

fn head(status: &StatusResult) -> String {
    let (running, ended) = status.totals.as_ref().map_or((0, 0), counts);
    let sessions = match status.sessions {
        None => String::new(),
        Some(1) => ", 1 session".to_owned(),
        Some(count) => format!(", {count} sessions"),
    };
    let tier = status.containment.as_ref().map_or("", |containment| containment.tier.as_str());
    format!(
        "procd {}  up {}  {running} running, {ended} ended{sessions}  {tier}",
        status.versions.server,
        span(status.uptime_ms)
    )
}

fn head_graphs(graphs: &Graphs, columns: usize) -> [String; 3] {
    let room = columns.saturating_sub(24).min(HEAD_GRAPH);
    let last = |values: &[f64]| values.last().copied().unwrap_or(0.0);
    let line = |name: &str, shown: &str, values: &[f64], top: f64| {
        cut(&format!("{name:<7} {shown:>11}  {}", graph(values, top, room)), columns)
            .trim_end()
            .to_owned()
    };
    let cpu = format!("{:.0}%", last(&graphs.cpu) * 100.0);
    let output = format!("{}/s", bytes(as_bytes(last(&graphs.output))));
    [
        line("CPU", &cpu, &graphs.cpu, 1.0),
        line("MEMORY", &bytes(as_bytes(last(&graphs.memory))), &graphs.memory, 1.0),
        line("OUTPUT", &output, &graphs.output, 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::usage::Seen;

    fn used(byte: u8, label: &str, cpu: f64, memory_bytes: u64) -> Use {
        let handle = ProcessId::from_bytes([byte; 16]);
        let text = format!(
            r#"{{"version":1,"process_id":"{handle}","label":"{label}",
            "session_id":"1b9e7a52-0000-4000-8000-000000000001",
            "loop_id":"1b9e7a52-0000-4000-8000-000000000002",
            "origin":"1b9e7a52-0000-4000-8000-000000000003",
            "command":{{"argv":["python3","-m","http.server","--directory","/srv/quite/a/long/path"]}},
            "access":{{"asked":"unclaimed","effective":"unclaimed"}},"tier":"shim",
            "state":"running","created_at":"2026-11-30T21:00:0{byte}Z","spool_state":"open"}}"#
        );
        let record = serde_json::from_str(&text).unwrap();
        Use { seen: Seen { record, tree: 3, cpu_ms: 65_000, memory_bytes }, cpu, output: 2048.0 }
    }

    fn status() -> StatusResult {
        serde_json::from_str(
            r#"{"versions":{"server":"0.1.0","protocol":[1],"state_format":1},"uptime_ms":65000,
            "containment":{"tier":"cgroup"},"totals":{"running":2,"exited":4},"sessions":1,
            "restore":{"done":true,"records":0,"sessions":0,"lost":0,"damaged":0,"duration_ms":0}}"#,
        )
        .unwrap()
    }

    fn picture() -> (Picture, Graphs) {
        let uses = vec![used(1, "web", 0.25, 1 << 20), used(2, "build", 1.5, 3 << 20)];
        let mut graphs = Graphs::default();
        for _ in 0..2 {
            graphs.take(&uses);
        }
        let mut picture = Picture::new(SortBy::Cpu);
        picture.take(uses, 0, "2026-11-30T21:01:07Z".parse().unwrap());
        (picture, graphs)
    }

    #[test]
    fn the_picture_at_80_columns() {
        let (picture, graphs) = picture();
        let shown = picture.lines(&status(), &graphs, 80, 24).join("\n");
        let expected = "\
procd 0.1.0  up 1m 5s  2 running, 4 ended, 1 session  cgroup
CPU            175%                                                        ██
MEMORY      4.0 MiB                                                        ██
OUTPUT    4.0 KiB/s                                                        ██

HANDLE  LABEL  TREE  CPU↓            MEMORY   OUT/S    AGE    COMMAND
AgICAg  build  3     150%        ██  3.0 MiB  2.0 KiB  1m 5s  python3 -m http.s…
AQEBAQ  web    3     25%         ▂▂  1.0 MiB  2.0 KiB  1m 6s  python3 -m http.s…
q quit  s sort  ↑↓ choose  k stop  K kill";
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_size_is_kept_to_and_what_is_hidden_is_counted() {
        let (mut picture, graphs) = picture();
        picture.press(Key::Down);
        for columns in [20, 40, 80, 160] {
            for rows in [8, 9, 24] {
                let lines = picture.lines(&status(), &graphs, columns, rows);
                assert!(lines.len() <= rows, "{columns}x{rows}");
                for line in &lines {
                    let line = line.replace("\u{1b}[7m", "").replace("\u{1b}[0m", "");
                    // A table is not cut below its fixed columns; the line then is.
                    assert!(line.chars().count() <= columns, "{columns}x{rows}: {line}");
                }
            }
        }
        let lines = picture.lines(&status(), &graphs, 80, 8);
        assert!(lines.last().unwrap().starts_with("1 more;"), "{lines:?}");
    }

    #[test]
    fn keys_sort_choose_and_stop_only_what_was_confirmed() {
        let (mut picture, _) = picture();
        let pressed = [Key::Down, Key::Char('s'), Key::Up, Key::Char('q')];
        assert_eq!(keys(b"\x1b[Bs\x1bOAq"), pressed);
        assert_eq!(keys(b"\x1bOq\x1b[1;5k\x1b[15~x"), [Key::Char('x')]);
        assert_eq!(picture.press(Key::Char('k')), Pressed::Nothing);
        assert!(picture.said.contains("choose"), "nothing is chosen yet");
        picture.press(Key::Down);
        picture.press(Key::Char('k'));
        assert_eq!(picture.said, "stop build? y: yes, any other key: no");
        assert_eq!(picture.press(Key::Char('n')), Pressed::Nothing);
        picture.press(Key::Char('K'));
        let Pressed::Stop(question) = picture.press(Key::Char('y')) else { panic!("no stop") };
        assert_eq!((question.name.as_str(), question.mode), ("build", StopMode::Kill));
        picture.press(Key::Char('s'));
        assert_eq!(picture.sort, SortBy::Memory);
        assert_eq!(picture.press(Key::Char('q')), Pressed::Quit);
    }
}
