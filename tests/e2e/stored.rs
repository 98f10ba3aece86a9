//! Folded pages, searches of lines, exports.

use std::collections::VecDeque;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use procd_tests::{
    Owner, Setup, Tier, binaries,
    owner::{handle, moved_on, number},
    pattern, wait,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// C71: colour codes and redraws cost a reader nothing.
#[test]
fn a_hundred_thousand_frames_fold_to_one_line() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line = r#"i=0; while [ $i -lt 100 ]; do i=$((i+1)); printf '\r\033[32m%s\033[0m %%' $i; done; seq -f '\r%.0f of 100000' 99999 | tr -d '\n' | sed 's/\\r/\r/g'; printf '\r\033[Kdone\nnext'"#;
    let entry = owner.start(&["sh", "-c", line], json!({"fold": true}));
    let process = handle(&entry);
    assert_eq!(
        (entry["output"].clone(), entry["eof"].clone()),
        (json!("done\nnext"), json!(true)),
        "{entry}"
    );
    let page = owner.output(&process, json!({"fold": true, "limit_bytes": 1}));
    assert_eq!(
        (page["output"].clone(), page["more"].clone()),
        (json!("done\n"), json!(true)),
        "{page}"
    );
    assert_eq!(number(&page, "next_cursor"), number(&entry, "total_bytes") - 4);
    assert!(number(&page, "next_cursor") > 1_000_000, "the cursor counts raw bytes");
}

#[test]
fn the_open_line_is_shown_and_held_back_and_wakes_nobody() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = owner.background(&[&binaries::probe(), "echo"]);
    let mut other = owner.attach(daemon.connect());
    let waiting = other
        .wire
        .send("process/output", json!({"process_id": process, "fold": true, "wait": "any"}));
    for data in ["10 %", "\r20 %", "\r30 %"] {
        owner.wire.ok("process/input", json!({"process_id": process, "data": data}));
    }
    wait::until_true("it is echoed", wait::STEP, || {
        number(&owner.output(&process, json!({})), "total_bytes") == 14
    });
    let page = owner.output(&process, json!({"fold": true}));
    assert_eq!(
        (page["output"].clone(), page["pending_line"].clone()),
        (json!(""), json!("30 %")),
        "{page}"
    );
    assert_eq!((number(&page, "next_cursor"), number(&page, "held_bytes")), (0, 14), "{page}");
    owner.wire.ok("process/input", json!({"process_id": process, "data": "\r100%\nmore"}));
    let reply = other.wire.reply(waiting).unwrap();
    assert_eq!(
        (reply["results"][0]["output"].clone(), reply["woke_by"].clone()),
        (json!("100%\n"), json!("output")),
        "{reply}"
    );
    owner.stop(&process, "kill", 0);
}

#[test]
fn a_folded_start_that_does_not_fit_has_head_and_tail() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let entry = owner.start(
        &["sh", "-c", "seq 1 1000 | sed 's/^/old\\r/'"],
        json!({"fold": true, "limit_bytes": 40}),
    );
    assert_eq!(
        (entry["truncated"].clone(), entry["head"]["text"].clone()),
        (json!(true), json!("1ld\n2ld\n3ld\n4ld\n5ld\n")),
        "{entry}"
    );
    assert_eq!(
        (entry["tail"]["text"].clone(), entry["more"].clone()),
        (json!("999\n1000\n"), json!(false)),
        "{entry}"
    );
}

#[test]
fn lines_are_searched_in_pages_also_in_the_spool_and_after_the_end() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process = handle(
        &owner.start(&["seq", "1", "300000"], json!({"limit_bytes": 1, "memory_bytes": 4096})),
    );
    let (mut found, mut cursor) = (Vec::new(), 0);
    loop {
        let ask = json!({"process_id": process, "pattern": "^[0-9]*7{4}$", "from_cursor": cursor, "limit": 4});
        let reply = owner.wire.ok("process/search", ask);
        assert_eq!(reply["gap"], false, "{reply}");
        found.extend(reply["matches"].as_array().unwrap().clone());
        if reply["more"] != true {
            break;
        }
        cursor = moved_on(&reply, cursor);
    }
    let texts: Vec<_> =
        found.iter().map(|one| one["text"].as_str().unwrap().parse::<u64>().unwrap()).collect();
    let wanted: Vec<u64> = (1..=300_000).filter(|n| n % 10_000 == 7777).collect();
    assert_eq!(texts, wanted);
    let one = &found[5];
    let (start, end) = (number(one, "start_cursor"), number(one, "end_cursor"));
    assert_eq!(
        owner.output(&process, json!({"cursor": start, "limit_bytes": end - start}))["output"],
        one["text"]
    );
    let ahead = json!({"process_id": process, "pattern": "x", "from_cursor": 1_u64 << 40});
    owner.wire.refused("cursor_ahead", "process/search", ahead);
    let error = owner.wire.refused(
        "invalid_arguments",
        "process/search",
        json!({"process_id": process, "pattern": "("}),
    );
    assert_eq!(error["details"]["field"], "pattern", "{error}");
}

#[test]
fn the_open_line_of_a_running_process_is_searched_when_it_is_whole_and_gaps_are_told() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line =
        format!("{} write 200000; printf 'end of'; read line; echo ' it'", binaries::probe());
    let more = json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536});
    let process = handle(&owner.start(&["sh", "-c", &line], more));
    wait::until_true("all is written", wait::STEP, || {
        number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes") == 200_006
    });
    let ask = json!({"process_id": process, "pattern": "000012499|end"});
    let reply = owner.wire.ok("process/search", ask.clone());
    let from = 200_006 - 65_536;
    assert_eq!((reply["gap"].clone(), number(&reply, "gap_bytes")), (json!(true), from), "{reply}");
    assert_eq!(
        (
            reply["matches"].as_array().unwrap().len(),
            number(&reply, "next_cursor"),
            reply["more"].clone()
        ),
        (1, 200_000, json!(false)),
        "{reply}"
    );
    owner.wire.ok("process/input", json!({"process_id": process, "data": "\n"}));
    owner.ended(&process);
    let reply = owner.wire.ok(
        "process/search",
        json!({"process_id": process, "pattern": "end", "from_cursor": 200_000}),
    );
    assert_eq!(
        reply["matches"],
        json!([{"text": "end of it", "start_cursor": 200_000, "end_cursor": 200_009}]),
        "{reply}"
    );
}

/// Exports everything, saying after each chunk that it was taken; bytes, gaps and the result.
fn export(owner: &mut Owner, process: &str, from: u64) -> (Vec<u8>, Vec<(u64, u64)>, Value) {
    let id = owner.wire.send("process/export", json!({"process_id": process, "from_cursor": from}));
    let (mut bytes, mut gaps, mut at) = (Vec::new(), Vec::new(), from);
    loop {
        let frame = owner.wire.next_object().unwrap();
        let params = &frame["params"];
        match frame["method"].as_str() {
            Some("export/chunk") => {
                assert_eq!((number(params, "for"), number(params, "cursor")), (id, at));
                let chunk =
                    BASE64_STANDARD.decode(params["data_base64"].as_str().unwrap()).unwrap();
                assert!(!chunk.is_empty() && chunk.len() <= 256 * 1024);
                at += chunk.len() as u64;
                bytes.extend(chunk);
                owner.wire.notice("export/continue", json!({"for": id, "chunks": 1}));
            }
            Some("export/gap") => {
                assert_eq!(number(params, "from"), at, "{frame}");
                at = number(params, "to");
                gaps.push((number(params, "from"), at));
            }
            _ => {
                assert_eq!(frame["id"], id, "{frame}");
                assert_eq!(number(&frame["result"], "end_cursor"), at, "{frame}");
                return (bytes, gaps, frame["result"].clone());
            }
        }
    }
}

#[test]
fn an_export_is_the_retained_bytes_with_the_hash_of_the_record() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let entry = owner.start(
        &[&binaries::probe(), "write", "5000000"],
        json!({"spool_bytes": 4_000_000, "limit_bytes": 1}),
    );
    let process = handle(&entry);
    let sealed = wait::until("the spool is sealed", wait::STEP, || {
        owner.record(&process)["sha256"].as_str().map(str::to_owned)
    });
    let (bytes, gaps, result) = export(&mut owner, &process, 0);
    assert!(bytes == pattern::bytes(1_000_000, 4_000_000), "other bytes than were written");
    assert_eq!(gaps, [(0, 1_000_000)]);
    assert_eq!((result["sha256"].clone(), hex(&bytes)), (json!(sealed), sealed), "{result}");
    assert_eq!(
        (number(&result, "bytes"), number(&result, "gap_bytes"), number(&result, "from_cursor")),
        (4_000_000, 1_000_000, 0)
    );
    let (bytes, gaps, _) = export(&mut owner, &process, 4_999_990);
    assert_eq!((bytes, gaps), (pattern::bytes(4_999_990, 10), vec![]));
}

#[test]
fn an_export_waits_behind_four_chunks_and_can_be_cancelled() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process =
        handle(&owner.start(&[&binaries::probe(), "write", "3000000"], json!({"limit_bytes": 1})));
    let id = owner.wire.send("process/export", json!({"process_id": process}));
    let mut seen = VecDeque::new();
    for _ in 0..4 {
        seen.push_back(owner.wire.next_notice().unwrap());
    }
    // Anything that comes now would come before this reply.
    let others = owner.list();
    assert_eq!(others.len(), 1);
    assert!(owner.wire.early_is_empty(), "a fifth chunk");
    owner.wire.notice("export/continue", json!({"for": id, "chunks": 2}));
    for _ in 0..2 {
        seen.push_back(owner.wire.next_notice().unwrap());
    }
    assert_eq!(number(&seen[5]["params"], "cursor"), 5 * 256 * 1024);
    owner.wire.notice("$/cancel", json!({"for": id}));
    assert_eq!(owner.wire.reply(id).unwrap_err()["code"], "cancelled");
    owner.wire.notice("export/continue", json!({"for": id, "chunks": 1}));
    owner.wire.notice("export/continue", json!({"for": id, "chunks": 0}));
    assert_eq!(owner.wire.next_object().unwrap()["error"]["details"]["field"], "chunks");
}

/// A running process is exported up to the total seen at the start, and what is lost meanwhile is told.
#[test]
fn a_running_process_is_exported_to_where_it_was() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let more = json!({"background": true, "spool_bytes": 2 << 20, "memory_bytes": 4096});
    let process = handle(&owner.start(&[&binaries::probe(), "write", "1000000000000"], more));
    wait::until_true("the ceiling is reached", wait::STEP, || {
        number(&owner.output(&process, json!({"limit_bytes": 1})), "retained_from") > 0
    });
    let (bytes, gaps, result) = export(&mut owner, &process, 0);
    let lost: u64 = gaps.iter().map(|(from, to)| to - from).sum();
    assert_eq!(
        (number(&result, "gap_bytes"), number(&result, "bytes")),
        (lost, bytes.len() as u64)
    );
    assert_eq!(
        lost + bytes.len() as u64,
        number(&result, "end_cursor"),
        "every byte is sent or told"
    );
    assert_eq!(result["sha256"], json!(hex(&bytes)));
    owner.stop(&process, "kill", 0);
}
