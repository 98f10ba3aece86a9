//! What is fed: every reader of bytes that come from outside, or from a disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::BytesMut;
use procd_protocol::envelope::{Incoming, parse_incoming, parse_received};
use procd_protocol::{codec, v1};
use procd_store::fuzzing;
use procd_store::spool::SpoolReader;
use procd_text::Raw;
use uuid::Uuid;

use crate::corpus;

/// One reader.
#[derive(Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What it begins with.
    pub(crate) corpus: fn() -> Vec<Vec<u8>>,
    /// Words worth putting in.
    pub(crate) words: &'static [&'static str],
    /// Makes checksums fit again.
    pub(crate) repair: fn(&mut Vec<u8>),
    /// Reads an input, checks what must hold, and says what it came to.
    pub(crate) try_input: fn(&[u8]) -> String,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        corpus: corpus::frames,
        words: JSON,
        repair: leave,
        try_input: frames,
    },
    Target {
        name: "requests",
        corpus: corpus::lines,
        words: JSON,
        repair: leave,
        try_input: requests,
    },
    Target {
        name: "commit-log",
        corpus: corpus::log_lines,
        words: JSON,
        repair: close,
        try_input: log_line,
    },
    Target {
        name: "manifest",
        corpus: corpus::manifests,
        words: JSON,
        repair: close,
        try_input: manifest,
    },
    Target { name: "index", corpus: indexes, words: BINARY, repair: seal, try_input: index },
    Target {
        name: "spool-folder",
        corpus: spools,
        words: BINARY,
        repair: leave,
        try_input: spool_folder,
    },
    Target {
        name: "safe-text",
        corpus: corpus::outputs,
        words: TERMINAL,
        repair: leave,
        try_input: safe_text,
    },
];

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "\"\"",
    "\\u0000",
    "\\ud800",
    "\"id\":",
    "\"method\":",
    "\"params\":",
    "\"for\":",
    "\"trace\":",
    "\"limits\":{\"cpu_max\":0.5}",
    "\"workspace\":{\"root\":\"/\",\"access\":\"read_only\"}",
    "\"env\":{\"A\":null}",
    "\"env_base64\":{\"A\":\"/w==\"}",
    "\"argv_base64\":[\"YQ==\"]",
    "\"seq\":",
    "\"kind\":\"event\"",
    "\"payload\":",
    "\"v\":2",
    "\"version\":2",
    "process/start",
    "process/output",
    "session/open",
    "events/subscribe",
    "lease/acquire",
    "notifications/ack",
    "\"wait\":{\"until\":{\"match\":\"a\"}}",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
];
const BINARY: &[&str] =
    &["procdspl", "\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}", "\u{1}\u{0}\u{0}\u{0}"];
const TERMINAL: &[&str] = &[
    "\u{1b}[",
    "\u{1b}]",
    "\u{7}",
    "\u{1b}\\",
    "\r\n",
    "\r",
    "\u{8}",
    "\u{9b}",
    "\u{1b}P",
    "\u{1b}_",
    "m",
    "\u{202e}",
    "\u{fffd}",
    "\u{0}",
    "\u{1b}[1;1H",
    "\u{10ffff}",
    "\u{e9}",
];

fn leave(_: &mut Vec<u8>) {}

fn close(input: &mut Vec<u8>) {
    fuzzing::close_again(input);
    // A line of the log is read without its line feed, a file with it: half of each is wrong.
    if input.len().is_multiple_of(2) {
        input.pop();
    }
}

#[expect(clippy::ptr_arg, reason = "the shape that targets share")]
fn seal(input: &mut Vec<u8>) {
    fuzzing::seal_index_again(input);
}

/// Frames in one piece and in many come out alike, and an error is the same.
fn frames(input: &[u8]) -> String {
    let whole = take_frames(input, input.len().max(1));
    let step = input.first().map_or(1, |byte| usize::from(*byte % 7) + 1);
    assert_eq!(whole, take_frames(input, step), "cut into pieces of {step}");
    whole.1
}

fn take_frames(input: &[u8], step: usize) -> (Vec<Vec<u8>>, String) {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in input.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            match codec::decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, error.to_string()),
            }
        }
        assert!(buffer.capacity() <= input.len() + (1 << 18), "room for what is only announced");
    }
    let said = format!("{} frames, {} left", frames.len().min(3), buffer.len().min(1));
    (frames, said)
}

/// A request is taken, or refused with a sentence.
fn requests(input: &[u8]) -> String {
    let _as_reply = parse_received(input).is_ok();
    let request = match parse_incoming(input) {
        Ok(Incoming::Request(request)) => request,
        Ok(Incoming::Notice(notice)) => return format!("notice {}", notice.method),
        Err(error) => return error.to_string(),
    };
    match v1::Call::parse(&request.method, request.params) {
        Ok(call) => {
            let again = format!("{call:?}");
            assert!(!again.is_empty());
            format!("{} {}", request.method, again.len() / 16)
        }
        Err(error) => {
            assert!(!error.message.is_empty(), "{error:?}");
            format!("{} {:?} {}", request.method, error.fault, error.message)
        }
    }
}

fn log_line(input: &[u8]) -> String {
    fuzzing::log_line(input)
}

fn manifest(input: &[u8]) -> String {
    fuzzing::manifest(input)
}

fn index(input: &[u8]) -> String {
    fuzzing::index(input)
}

/// The page is a function of the bytes: cut anywhere, the pages joined are the whole.
fn safe_text(input: &[u8]) -> String {
    let (cut, bytes) =
        input.split_first().map_or((0, input), |(cut, rest)| (usize::from(*cut), rest));
    let raw = |context, bytes| Raw { context, gap_before: false, bytes, at_end: true };
    let whole = procd_text::render(&raw(&[], bytes), usize::MAX);
    assert_eq!(whole.consumed, bytes.len(), "the end holds nothing back");
    assert!(
        whole.text.chars().all(|c| matches!(c, '\n' | '\r' | '\t') || !c.is_control()),
        "{:?}",
        whole.text
    );
    let mut joined = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let context = bytes.get(at.saturating_sub(4096)..at).unwrap_or_default();
        let page = procd_text::render(&raw(context, bytes.get(at..).unwrap_or_default()), cut + 1);
        assert!(page.consumed > 0, "a page that does not move on at {at}");
        joined.push_str(&page.text);
        at += page.consumed;
    }
    assert_eq!(joined, whole.text, "pages of {}", cut + 1);
    let tail = procd_text::tail(&raw(&[], bytes), cut + 1);
    let _binary = procd_text::is_binary(bytes);
    let mut folder = procd_text::Folder::default();
    let mut fed = 0;
    while fed < bytes.len() {
        let context = bytes.get(fed.saturating_sub(4096)..fed).unwrap_or_default();
        let count = folder.feed(&raw(context, bytes.get(fed..).unwrap_or_default()), cut + 1);
        if count == 0 {
            break;
        }
        fed += count;
    }
    folder.finish(cut + 1);
    format!(
        "{} {} {}",
        whole.normalized,
        tail.text.is_empty(),
        whole.text.chars().map(kind).collect::<String>()
    )
}

/// A character by its kind, for what is new.
const fn kind(c: char) -> char {
    match c {
        '\n' => 'n',
        'a'..='z' | 'A'..='Z' | '0'..='9' => 'a',
        ' '..='~' => 'p',
        char::REPLACEMENT_CHARACTER => 'r',
        _ => 'u',
    }
}

/// The memory file system where there is one.
fn scratch() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        base.join(format!("procd-fuzz-{}", std::process::id()))
    })
}

/// Removes what the spool targets have made.
pub fn clean_up() {
    drop(std::fs::remove_dir_all(scratch()));
}

fn spools() -> Vec<Vec<u8>> {
    corpus::spools(scratch())
}

fn indexes() -> Vec<Vec<u8>> {
    let spools = spools();
    let files = spools.iter().flat_map(|input| split(input));
    files.filter(|(name, _)| *name == "index").map(|(_, bytes)| bytes.to_vec()).collect()
}

/// The files of a spool folder by the byte that stands for each: index, tags, segments.
const FILES: &[&str] = &["index", "tags", "0.seg", "1.seg", "2.seg", "3.seg"];

/// A spool folder as one input: a byte for the file, two for its length, the file.
pub(crate) fn join(folder: &Path) -> Vec<u8> {
    let mut input = Vec::new();
    for (number, name) in (0_u8..).zip(FILES) {
        let Ok(bytes) = std::fs::read(folder.join(name)) else { continue };
        let Ok(length) = u16::try_from(bytes.len()) else { continue };
        input.push(number);
        input.extend(length.to_le_bytes());
        input.extend(bytes);
    }
    input
}

fn split(mut input: &[u8]) -> Vec<(&'static str, &[u8])> {
    let mut files = Vec::new();
    while let Some(([number, low, high], rest)) = input.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        let name = FILES.get(usize::from(*number) % FILES.len()).copied().unwrap_or("index");
        files.push((name, bytes));
        input = rest;
    }
    files
}

/// Whatever is in the folder, what is read lies within what it says it has, in order.
fn spool_folder(input: &[u8]) -> String {
    let folder = scratch().join("spool");
    if std::fs::create_dir_all(&folder).is_err() {
        return "no folder".to_owned();
    }
    // Of a file that is there more than once the last one counts.
    let files: BTreeMap<_, _> = split(input).into_iter().collect();
    for name in FILES {
        let path = folder.join(name);
        let Some(bytes) = files.get(name) else {
            drop(std::fs::remove_file(path));
            continue;
        };
        let sealed = (*name == "index").then(|| {
            let mut bytes = bytes.to_vec();
            fuzzing::seal_index_again(&mut bytes);
            bytes
        });
        drop(std::fs::write(path, sealed.as_deref().unwrap_or(bytes)));
    }
    let reader = match SpoolReader::open(&folder, Uuid::nil()) {
        Ok(reader) => reader,
        Err(error) => {
            return std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string);
        }
    };
    let bounds = reader.bounds();
    assert!(bounds.retained_from <= bounds.total, "{bounds:?}");
    let mut at = bounds.retained_from;
    let mut pages = 0;
    let mut damage = String::new();
    while at < bounds.total && pages < 64 {
        pages += 1;
        match reader.read(at, 4096) {
            Ok(page) => {
                let next = page.next();
                assert!(page.from >= at && next <= bounds.total, "{at} {next} {bounds:?}");
                if next <= at {
                    break;
                }
                at = next;
            }
            Err(damaged) => {
                damage = damaged.to_string();
                break;
            }
        }
    }
    let tags = reader.tags(bounds.retained_from, bounds.total, 1000);
    // Numbers say nothing new, strokes do.
    let strokes = |count: usize| "|".repeat(count.min(8));
    let (pages, tags) = (strokes(pages), strokes(tags.len()));
    format!("{pages} pages, {tags} tags, sealed {}, {damage}", reader.is_sealed())
}
