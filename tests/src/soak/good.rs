//! Clients that ask for what is theirs and are served, one that asks for what is not, and one that follows events.

use serde_json::{Value, json};

use super::stage::{Line, Stage, is_cut_short};
use crate::faults::seed::Seed;

/// Small calls, one after the other: each is answered, and soon.
pub(super) fn ask(stage: &Stage, name: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(name) else { return };
    while !stage.is_over() {
        let code = seed.below(256);
        let argv = ["sh", "-c", &format!("echo {code}; exit {code}")];
        let params = line.owner.start_params(&argv, json!({"label": "good"}));
        let Some(entry) = line.ok("process/start", params) else { return };
        if entry.is_null() {
            stage.rest(50);
        } else {
            let process = crate::owner::handle(&entry);
            line.told_end(&process, &entry);
            if is_cut_short(&entry) {
                return;
            }
            if entry["exit_code"] != code || entry["output"] != format!("{code}\n") {
                stage.book().wrong(format!("asked for {code}: {entry}"));
            }
            stage.count("starts acknowledged");
            let Some(again) = line.ok("process/inspect", json!({"process_id": process})) else {
                return;
            };
            line.told_end(&process, &again["record"]);
        }
        if line.ok("daemon/status", json!({})).is_none() {
            return;
        }
        stage.rest(20);
    }
}

/// Law 1: handles of others are answered like those that never were.
pub(super) fn pry(stage: &Stage, name: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(name) else { return };
    while !stage.is_over() {
        let Some(theirs) = somebodys(stage, &mut seed) else {
            stage.rest(100);
            continue;
        };
        let nobodys = random_handle(&mut seed);
        let methods: [(&str, Value); 7] = [
            ("process/inspect", json!({})),
            ("process/stop", json!({"mode": "kill"})),
            ("process/signal", json!({"signal": "SIGKILL", "target": "tree"})),
            ("process/remove", json!({})),
            ("process/pin", json!({"pinned": true})),
            ("process/input", json!({"data": "x"})),
            ("process/output", json!({"wait": "exit"})),
        ];
        let (method, more) = seed.choose(&methods);
        let Some(answers) = both(&mut line, method, more, [&theirs, &nobodys]) else { return };
        let mut book = stage.book();
        book.count("foreign handles refused", 1);
        let [one, other] = answers;
        let is_refused = one.contains("not_found");
        if one.replace(&theirs, "H") != other.replace(&nobodys, "H") || !is_refused {
            book.wrong(format!("{method} tells a foreign handle apart: {one}, {other}"));
        }
    }
}

fn both(line: &mut Line<'_>, method: &str, more: &Value, of: [&str; 2]) -> Option<[String; 2]> {
    let mut answers = Vec::new();
    for process in of {
        let mut params = json!({"process_id": process});
        crate::owner::merge(&mut params, more.clone());
        answers.push(match line.call(method, params)? {
            Ok(result) => result["results"][0]["error"].to_string(),
            Err(error) => error.to_string(),
        });
    }
    answers.try_into().ok()
}

fn somebodys(stage: &Stage, seed: &mut Seed) -> Option<String> {
    let book = stage.book();
    let handles: Vec<&String> = book.noise.keys().chain(book.ended.keys()).collect();
    if handles.is_empty() {
        return None;
    }
    Some((*seed.choose(&handles)).clone())
}

/// Well formed: 22 characters, the last with zero spare bits.
fn random_handle(seed: &mut Seed) -> String {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let bytes = [seed.next().to_be_bytes(), seed.next().to_be_bytes()].concat();
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The session of the trees, whose events are followed.
pub(super) const FOLLOWED: &str = "trees-a";

/// Follows events from where it was, stalls at times: each event once, as it was, ends told once.
pub(super) fn follow(stage: &Stage, _: &'static str, mut seed: Seed) {
    let Some(mut line) = stage.line(FOLLOWED) else { return };
    let last = stage.book().heard.events.keys().next_back().copied().unwrap_or_default();
    let ask = json!({"from_seq": last + 1, "scope": "session"});
    let id = line.owner.wire.send("events/subscribe", ask);
    let Ok(reply) = line.owner.wire.reply(id) else { return };
    if reply["gap"] != false {
        stage.book().wrong(format!("a gap in a journal that was not evicted: {reply}"));
    }
    while !stage.is_over() {
        // A call brings the notices that are there.
        if line.ok("daemon/status", json!({})).is_none() {
            break;
        }
        let Some(last) = hear(&mut line) else {
            stage.rest(20);
            continue;
        };
        if line.ok("events/ack", json!({"for": id, "up_to_seq": last})).is_none() {
            break;
        }
        stage.rest(if seed.below(10) == 0 { 500 + seed.below(3000) } else { 20 });
    }
    hear(&mut line);
}

/// Takes in what came: the last number.
fn hear(line: &mut Line<'_>) -> Option<u64> {
    let notices = line.owner.wire.take_notices();
    let mut book = line.stage.book();
    let before = book.heard.events.len();
    let heard = book.heard.hear(notices);
    let count = book.heard.events.len() - before;
    book.count("events followed", count as u64);
    heard.wrong.into_iter().for_each(|wrong| book.wrong(wrong));
    heard.last
}
