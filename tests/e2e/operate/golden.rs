//! Texts that are kept beside the tests, and what is put in place of that which differs between
//! two runs. `PROCD_BLESS=1` writes them anew.

use std::{fs, path::Path};

use procd_tests::Daemon;
use serde_json::Value;

#[expect(clippy::disallowed_methods, reason = "asked for by whoever changes a text on purpose")]
fn is_blessed() -> bool {
    std::env::var("PROCD_BLESS").is_ok()
}

/// Holds `text` against the file kept under `name`.
pub(super) fn same_as_kept(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/golden").join(name);
    if is_blessed() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{} differs: see PROCD_BLESS", path.display());
}

/// A table with a mask of the same width in place of what `columns` hold.
pub(super) fn masked_columns(text: &str, columns: &[&str]) -> String {
    let mut spans: Option<Vec<(usize, usize)>> = None;
    let mut masked = String::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        let is_foot = line.starts_with("q quit");
        let shown: String = match spans.as_ref().filter(|_| !is_foot) {
            Some(spans) => {
                let is_masked =
                    |at: usize| spans.iter().any(|&(from, to)| (from..to).contains(&at));
                let mask = |(at, one): (usize, &char)| {
                    if is_masked(at) && *one != ' ' { '#' } else { *one }
                };
                chars.iter().enumerate().map(mask).collect()
            }
            None => line.to_owned(),
        };
        if line.starts_with("HANDLE ") {
            spans = Some(columns.iter().filter_map(|name| span_of(line, name)).collect());
        }
        masked.push_str(shown.trim_end());
        masked.push('\n');
    }
    masked
}

/// From where to where a column goes, in characters: up to the next one.
fn span_of(header: &str, name: &str) -> Option<(usize, usize)> {
    let header = header.replace('↓', " ");
    let from = header.find(&format!("{name} "))?;
    let rest = &header[from + name.len()..];
    let blank = rest.len() - rest.trim_start().len();
    Some((from, from + name.len() + blank))
}

/// Lines `name: value`, or `grade name value`, with one mask in place of the values of `names` and
/// of the lines that go on below.
pub(super) fn masked_entries(text: &str, names: &[&str]) -> String {
    let mut masked = String::new();
    let mut is_in_masked = false;
    for line in text.lines() {
        let goes_on = line.starts_with(' ');
        if goes_on && is_in_masked {
            continue;
        }
        let name = names.iter().find(|name| {
            let rest = line.get(6..).filter(|_| !line.contains(": ")).unwrap_or(line);
            rest.strip_prefix(**name).is_some_and(|rest| rest.starts_with([' ', ':']))
        });
        is_in_masked = !goes_on && name.is_some();
        match name.filter(|_| is_in_masked) {
            Some(name) => {
                let at = line.find(name).unwrap() + name.len();
                let value = line[at..].trim_start_matches([' ', ':']);
                masked.push_str(&format!("{}<masked>\n", &line[..line.len() - value.len()]));
            }
            None => masked.push_str(&format!("{line}\n")),
        }
    }
    masked
}

/// What differs between two runs, word by word: handles, sessions, pids, times, the machine's
/// sizes, the test's folder. Several blanks are two then, since widths go with them.
pub(super) fn masked_words(daemon: &Daemon, known: &[(String, &str)], text: &str) -> String {
    let mut text = text.replace(&daemon.path().display().to_string(), "FOLDER");
    for (value, name) in known {
        text = text.replace(value.as_str(), name);
        for short in [8, 6] {
            text = text.replace(&format!("{} ", &value[..short]), &format!("{name} "));
        }
    }
    text.lines().map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut shown = " ".repeat(indent.min(2));
    let words: Vec<&str> = line.split(' ').collect();
    let mut blanks = 0;
    for (at, word) in words.iter().enumerate() {
        // Graphs are the machine's, too.
        if word.is_empty() || word.chars().all(|one| ('▁'..='█').contains(&one)) {
            blanks += 1;
            continue;
        }
        if !shown.trim().is_empty() {
            shown.push_str(if blanks > 0 { "  " } else { " " });
        }
        blanks = 0;
        let is_number = shown.ends_with("SESSION  ") && word.chars().all(|c| c.is_ascii_digit());
        let next = words.get(at + 1).copied();
        shown.push_str(&if is_number { "#".to_owned() } else { masked_word(word, next) });
    }
    format!("{shown}\n")
}

fn masked_word(word: &str, next: Option<&str>) -> String {
    let (bare, end) = match word.strip_suffix([',', ';', ')']) {
        Some(bare) => (bare, &word[bare.len()..]),
        None => (word, ""),
    };
    let is_number = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let is_span = ["ms", "s", "m", "h", "d", "%"]
        .iter()
        .any(|unit| bare.strip_suffix(unit).is_some_and(is_number));
    let is_moment = bare.len() > 18 && bare.ends_with('Z') && bare.contains('T');
    let is_size = is_number(bare)
        && next
            .is_some_and(|next| ["KiB", "MiB", "GiB", "TiB"].iter().any(|u| next.starts_with(u)));
    let is_handle = bare.len() == 22
        && bare.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && bare != "AAAAAAAAAAAAAAAAAAAAAA";
    let is_masked = is_span || is_moment || is_size || is_handle;
    if is_masked { format!("#{end}") } else { word.to_owned() }
}

/// What a JSON value is made of: its keys in their order, and the kinds of what they hold. Of a
/// list the first item stands for all.
pub(super) fn shape(value: &Value) -> String {
    let mut text = String::new();
    push_shape(&mut text, value, 0);
    text.push('\n');
    text
}

fn push_shape(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth + 1);
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(_) => text.push_str("bool"),
        Value::Number(_) => text.push_str("number"),
        Value::String(_) => text.push_str("text"),
        Value::Array(items) => match items.first() {
            None => text.push_str("[]"),
            Some(first) => {
                text.push_str("[ ");
                push_shape(text, first, depth);
                text.push_str(" ]");
            }
        },
        Value::Object(fields) if fields.len() > 12 && fields.values().all(Value::is_number) => {
            text.push_str("{ numbers by name }");
        }
        Value::Object(fields) => {
            text.push_str("{\n");
            for (key, value) in fields {
                text.push_str(&format!("{indent}{key}: "));
                push_shape(text, value, depth + 1);
                text.push('\n');
            }
            text.push_str(&format!("{}}}", "  ".repeat(depth)));
        }
    }
}
