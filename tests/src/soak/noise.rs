//! Loud processes whose every byte tells its offset, and readers that come late, come twice, or do not come.

use serde_json::{Value, json};

use super::stage::{Line, Stage, is_cut_short, is_terminal};
use crate::{
    binaries,
    faults::seed::Seed,
    owner::{decode, number, without_output},
    pattern,
};

/// The longest output, bytes.
const OUTPUT_MAX: u64 = 6 << 20;

/// One loud process.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    /// The session it is of.
    pub(super) session: &'static str,
    /// What it writes in all, bytes.
    pub(super) bytes: u64,
    /// The largest total that was told.
    pub(super) told: u64,
}

/// Starts loud processes and reads them.
pub(super) fn loud(stage: &Stage, name: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(name) else { return };
    while !stage.is_over() {
        let bytes = 1 + seed.below(OUTPUT_MAX) / (1 << seed.below(12));
        let more = json!({
            "spool_bytes": (64 << 10) << seed.below(5),
            "memory_bytes": 4096 << seed.below(9),
            "merge_streams": seed.below(2) == 0,
            "stdin": "null",
        });
        let argv = [&binaries::probe(), "write", &bytes.to_string()];
        let Some(process) = line.background(&argv, more) else { return };
        if process.is_empty() {
            stage.rest(100);
            continue;
        }
        let noise = Noise { session: name, bytes, told: 0 };
        stage.book().noise.insert(process.clone(), noise.clone());
        if follow(&mut line, &process, &noise, &mut seed).is_none() {
            return;
        }
        if seed.below(4) > 0 && remove(&mut line, &process).is_none() {
            return;
        }
    }
}

fn remove(line: &mut Line<'_>, process: &str) -> Option<()> {
    line.stage.book().removed.insert(process.to_owned());
    line.ok("process/remove", json!({"process_id": process}))?;
    line.stage.count("records removed");
    Some(())
}

/// Reads page by page until the end.
fn follow(line: &mut Line<'_>, process: &str, noise: &Noise, seed: &mut Seed) -> Option<()> {
    let mut cursor = 0;
    loop {
        if seed.below(40) == 0 {
            line.stage.rest(200 + seed.below(2000));
            line.stage.count("readers that stalled");
        }
        let ask = json!({
            "cursor": cursor,
            "limit_bytes": 1 + seed.below(1 << 20) / (1 << seed.below(16)),
            "encoding": if seed.below(3) == 0 { "safe_text" } else { "base64" },
            "wait": "any",
            "timeout_ms": 300,
        });
        let entry = line.output(process, ask.clone())?;
        if entry.is_null() || entry.get("error").is_some() {
            line.stage.book().wrong(format!("{process} cannot be read: {entry}"));
            return None;
        }
        cursor = checked(line.stage, process, noise, cursor, &ask, &entry);
        if entry["eof"] == true {
            line.told_end(process, &entry);
            return ended(line.stage, process, noise, &entry);
        }
        if line.stage.is_over() && !is_terminal(&entry) {
            return None;
        }
    }
}

fn ended(stage: &Stage, process: &str, noise: &Noise, entry: &Value) -> Option<()> {
    if is_cut_short(entry) {
        return None;
    }
    let is_good = entry["state"] == "exited"
        && entry["exit_code"] == 0
        && number(entry, "total_bytes") == noise.bytes;
    if !is_good {
        let entry = without_output(entry);
        stage.book().wrong(format!("{process} wrote {} bytes: {entry}", noise.bytes));
    }
    stage.count("loud processes read to their end");
    is_good.then_some(())
}

/// Law 9 of one page: the next cursor.
/// - `cursor`: the one that was asked for.
pub(super) fn checked(
    stage: &Stage,
    process: &str,
    noise: &Noise,
    cursor: u64,
    ask: &Value,
    entry: &Value,
) -> u64 {
    let (from, next) = (number(entry, "from_cursor"), number(entry, "next_cursor"));
    let page = if ask["encoding"] == "base64" {
        decode(entry)
    } else {
        entry["output"].as_str().unwrap_or_default().as_bytes().to_vec()
    };
    let total = number(entry, "total_bytes");
    let gap = from.saturating_sub(cursor);
    let stated = entry["gap_bytes"].as_u64().unwrap_or_default();
    let mut book = stage.book();
    let rules = [
        ("starts where it was asked", number(entry, "start_cursor") == cursor && from >= cursor),
        ("states its gap", (entry["gap"] == true) == (gap > 0) && stated == gap),
        ("covers what it returns", next - from == page.len() as u64),
        ("is the bytes that were written", page == pattern::bytes(from, page.len() as u64)),
        ("is not beyond the total", next <= total && total <= noise.bytes),
        ("keeps its limit", page.len() as u64 <= number(ask, "limit_bytes").max(4)),
        ("never takes a byte back", book.noise.get(process).is_none_or(|one| total >= one.told)),
    ];
    for (rule, holds) in rules {
        if !holds {
            let entry = without_output(entry);
            book.wrong(format!("a page that never {rule}: {process}, {ask}: {entry}"));
        }
    }
    book.count("pages checked", 1);
    book.count("bytes checked", page.len() as u64);
    book.count("gaps stated", u64::from(gap > 0));
    if let Some(one) = book.noise.get_mut(process) {
        one.told = total;
    }
    next
}

/// Asks for more than its connection can hold, and does not read it for a while.
pub(super) fn deaf(stage: &Stage, _: &'static str, mut seed: Seed) {
    while !stage.is_over() {
        let Some(process) = largest(stage) else {
            stage.rest(200);
            continue;
        };
        let Some(mut line) = stage.line("noise-a") else { return };
        for _ in 0..64 {
            let ask = json!({"process_id": process, "encoding": "base64", "limit_bytes": 1 << 20});
            line.owner.wire.send("process/output", ask);
        }
        stage.rest(500 + seed.below(16_000));
        let answered = (0..64).filter(|_| line.owner.wire.next_object().is_some()).count();
        let name =
            if answered == 64 { "slow clients served in the end" } else { "slow clients closed" };
        stage.count(name);
    }
}

fn largest(stage: &Stage) -> Option<String> {
    let book = stage.book();
    let kept = book.noise.iter().filter(|(process, noise)| {
        noise.session == "noise-a" && !book.removed.contains(*process) && noise.told > 100_000
    });
    kept.max_by_key(|(_, noise)| noise.told).map(|(process, _)| process.clone())
}
