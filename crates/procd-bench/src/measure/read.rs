//! P13 and P14: reading back, and rendering.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use procd_text::{LOOK_AHEAD_BYTES, Raw, render};
use serde_json::json;

use super::drain::own;
use super::{build_log, random_bytes};
use crate::actor::WORD;
use crate::clock::{Samples, real, timed};
use crate::daemon::Daemon;
use crate::report::{Line, Report, Target};
use crate::trouble::{Tried, Trouble};
use crate::wire::Wire;

const TOTAL: usize = 64 << 20;
const PAGE: usize = 1 << 20;
const ROUNDS: usize = 5;
const CHUNK: usize = 256 * 1024;

/// P13: 64 MiB that are in the spool alone, as base64 and as safe text.
pub(super) fn spool(report: &mut Report) -> Result<(), Trouble> {
    let daemon = Daemon::plain()?;
    let mut owner = daemon.owner()?;
    let (total, own) = (TOTAL.to_string(), own()?);
    let id = owner.background(&[&own, WORD, "lines", &total], &json!({}))?;
    owner.wait(&id)?;
    let path = daemon.folder().join("floor.spool");
    let line = [&[b'l'; 79][..], b"\n"].concat();
    std::fs::write(&path, line.repeat(TOTAL / line.len() + 1)).tried("write the floor's file")?;
    let file = File::open(&path).tried("open the floor's file")?;
    for (name, encoding) in [("P13 base64", "base64"), ("P13 safe text", "safe_text")] {
        let (mut floors, mut ours) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            let (micros, ()) = timed(|| floor(&file, encoding == "base64"))?;
            floors.push(real_len(TOTAL) / micros);
            let (micros, ()) = timed(|| pages(&mut owner, &id, encoding))?;
            ours.push(real_len(TOTAL) / micros);
        }
        let (floor, ours) = (floors.median(), ours.median());
        report.add(Line::beside(name, "MB/s", floor, ours, Target::AtLeast(0.5)));
    }
    Ok(())
}

fn real_len(bytes: usize) -> f64 {
    real(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// One thread reads, encodes and writes, another one reads the socket and throws it away.
fn floor(file: &File, is_base64: bool) -> Result<(), Trouble> {
    let (mut ours, mut theirs) = UnixStream::pair().tried("make a socket pair")?;
    let reader = thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        while ours.read(&mut chunk).is_ok_and(|count| count > 0) {}
    });
    let (mut page, mut text) = (vec![0; PAGE], String::new());
    for index in 0..TOTAL / PAGE {
        let at = u64::try_from(index * PAGE).unwrap_or(u64::MAX);
        file.read_exact_at(&mut page, at).tried("read the floor's file")?;
        text.clear();
        if is_base64 {
            STANDARD_NO_PAD.encode_string(&page, &mut text);
        } else {
            let valid = std::str::from_utf8(&page).map_err(|e| Trouble::odd(e.to_string()))?;
            text = serde_json::to_string(valid).map_err(|e| Trouble::odd(e.to_string()))?;
        }
        theirs.write_all(text.as_bytes()).tried("write to the floor's socket")?;
    }
    drop(theirs);
    reader.join().map_err(|_panic| Trouble::odd("the floor's reader broke"))
}

/// Page by page; of each reply only the cursor is looked at.
fn pages(owner: &mut Wire, id: &str, encoding: &str) -> Result<(), Trouble> {
    let total = u64::try_from(TOTAL).unwrap_or(u64::MAX);
    let mut cursor = 0;
    while cursor < total {
        let params = json!({ "process_id": id, "cursor": cursor, "limit_bytes": PAGE,
            "encoding": encoding });
        owner.send("process/output", &params)?;
        let frame = owner.frame()?;
        let next = next_cursor(&frame).filter(|&next| next > cursor);
        cursor = next.ok_or_else(|| {
            let head = frame.get(..frame.len().min(300)).unwrap_or_default();
            Trouble::odd(format!("no page: {}", String::from_utf8_lossy(head)))
        })?;
    }
    Ok(())
}

/// The number behind `"next_cursor":`, which stands near the begin or near the end of a frame.
fn next_cursor(frame: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"next_cursor\":";
    const NEAR: usize = 2048;
    let head = frame.get(..frame.len().min(NEAR))?;
    let tail = frame.get(frame.len().saturating_sub(NEAR)..)?;
    let part = [head, tail].into_iter().find_map(|part| {
        let at = part.windows(NAME.len()).position(|window| window == NAME)?;
        part.get(at + NAME.len()..)
    })?;
    let digits: Vec<_> = part.iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits).ok()?.parse().ok()
}

/// P14: the renderer alone. The floor: the check that ASCII is UTF-8.
pub(super) fn rendering(report: &mut Report) -> Result<(), Trouble> {
    const BYTES: usize = 16 << 20;
    let ascii = [&[b'a'; 79][..], b"\n"].concat().repeat(BYTES / 80 + 1);
    let ascii = ascii.get(..BYTES).unwrap_or_default();
    let (log, random) = (build_log(BYTES), random_bytes(BYTES));
    let cases = [
        ("P14 ASCII", ascii, Target::AtLeast(0.2)),
        ("P14 build log", log.as_slice(), Target::Told),
        ("P14 random", random.as_slice(), Target::Told),
    ];
    for (id, bytes, target) in cases {
        let (mut floors, mut ours) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            let (micros, _) = timed(|| std::str::from_utf8(std::hint::black_box(ascii)))
                .map_err(|error| Trouble::odd(error.to_string()))?;
            floors.push(real_len(BYTES) / micros);
            let (micros, ()) = timed(|| rendered(std::hint::black_box(bytes)))?;
            ours.push(real_len(BYTES) / micros);
        }
        report.add(Line::beside(id, "MB/s", floors.median(), ours.median(), target));
    }
    Ok(())
}

/// Page after page, as the daemon does it.
fn rendered(bytes: &[u8]) -> Result<(), Trouble> {
    const LIMIT: usize = 32 * 1024;
    const CONTEXT: usize = 4096;
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + LIMIT + LOOK_AHEAD_BYTES);
        let raw = Raw {
            context: bytes.get(at.saturating_sub(CONTEXT)..at).unwrap_or_default(),
            gap_before: false,
            bytes: bytes.get(at..end).unwrap_or_default(),
            at_end: end == bytes.len(),
        };
        let page = render(&raw, LIMIT);
        if page.consumed == 0 {
            return Err(Trouble::odd("a page of safe text that does not move on"));
        }
        at += page.consumed;
        std::hint::black_box(page.text);
    }
    Ok(())
}
