//! Input through pipes and terminals: all of it arrives, once, in order.

use serde_json::{Value, json};

use super::stage::{Line, Stage, is_cut_short};
use crate::{binaries, faults::seed::Seed};

/// Lines that one process is fed, a count.
const LINES: u64 = 12;

/// Feeds pipes and terminals by turns.
pub(super) fn feed(stage: &Stage, name: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(name) else { return };
    while !stage.is_over() {
        let fed = match seed.below(3) {
            0 => pipe(&mut line, &mut seed),
            1 => terminal(&mut line, &mut seed),
            _ => interrupted(&mut line),
        };
        if fed.is_none() {
            return;
        }
    }
}

fn input(line: &mut Line<'_>, process: &str, more: Value) -> Option<Value> {
    let mut params = json!({"process_id": process});
    crate::owner::merge(&mut params, more);
    match line.call("process/input", params)? {
        Ok(result) => Some(result),
        Err(error) => {
            // Unless a shutdown has ended it, or closed what it reads, which ends it by itself.
            let entry = line.output(process, json!({"limit_bytes": 1}))?;
            if !is_cut_short(&entry) && !line.is_shutting_down()? {
                line.refused("process/input", &error);
            }
            None
        }
    }
}

fn words(seed: &mut Seed) -> Vec<String> {
    (0..1 + seed.below(LINES)).map(|number| format!("{number}-{:x}", seed.next())).collect()
}

fn pipe(line: &mut Line<'_>, seed: &mut Seed) -> Option<()> {
    let process = line.background(&[&binaries::probe(), "echo-lines"], json!({"stdin": "pipe"}))?;
    if process.is_empty() {
        return Some(());
    }
    let words = words(seed);
    for word in &words {
        let wait = if seed.below(3) == 0 { json!(20) } else { json!(0) };
        input(line, &process, json!({"data": format!("{word}\n"), "yield_time_ms": wait}))?;
    }
    input(line, &process, json!({"eof": true}))?;
    let wanted: String = words.iter().map(|word| format!("got {word}\n")).collect();
    same(line, &process, &format!("{wanted}end\n"), 0)
}

/// A terminal that is ready to be typed into; an empty handle where it was refused.
fn ready(line: &mut Line<'_>) -> Option<String> {
    let argv = ["sh", "-c", "stty -echo; echo up; exec cat"];
    let process = line.background(&argv, json!({"tty": true}))?;
    if process.is_empty() {
        return Some(process);
    }
    let ask = json!({"wait": {"until": {"match": "up\r\n"}}, "timeout_ms": 30_000});
    let entry = line.output(&process, ask)?;
    if is_cut_short(&entry) {
        return None;
    }
    if !entry["output"].as_str().is_some_and(|text| text.starts_with("up")) {
        line.stage.book().wrong(format!("a terminal that says nothing: {entry}"));
        return None;
    }
    Some(process)
}

fn terminal(line: &mut Line<'_>, seed: &mut Seed) -> Option<()> {
    let process = ready(line)?;
    if process.is_empty() {
        return Some(());
    }
    let words = words(seed);
    for word in &words {
        input(line, &process, json!({"data": word, "keys": ["enter"]}))?;
        if seed.below(4) == 0 {
            let (rows, cols) = (1 + seed.below(200), 1 + seed.below(200));
            input(line, &process, json!({"rows": rows, "cols": cols}))?;
        }
    }
    input(line, &process, json!({"eof": true}))?;
    let wanted: String = words.iter().map(|word| format!("{word}\r\n")).collect();
    same(line, &process, &format!("up\r\n{wanted}"), 0)
}

fn interrupted(line: &mut Line<'_>) -> Option<()> {
    const DIED_OF_SIGINT: u64 = 130;
    let process = ready(line)?;
    if process.is_empty() {
        return Some(());
    }
    input(line, &process, json!({"keys": ["ctrl-c"]}))?;
    let entry = line.until_ended(&process)?;
    if !is_cut_short(&entry) && entry["exit_code"] != DIED_OF_SIGINT {
        line.stage.book().wrong(format!("ctrl-c ended it with {entry}"));
    }
    Some(())
}

fn same(line: &mut Line<'_>, process: &str, wanted: &str, code: u64) -> Option<()> {
    let entry = line.until_ended(process)?;
    let page = line.output(process, json!({"limit_bytes": 1 << 20}))?;
    let text = page["output"].as_str().unwrap_or_default();
    let mut book = line.stage.book();
    // What a full disk cost is stated; the rest is as it was.
    let is_lost = page["gap"] == true && book.may_have_holes && wanted.contains(text);
    if is_cut_short(&entry) || is_lost {
        return Some(());
    }
    book.count("inputs that arrived whole", 1);
    if text != wanted || entry["exit_code"] != code {
        book.wrong(format!("fed {wanted:?}, said {text:?}: {entry}"));
    }
    Some(())
}
