//! process/output: cursors, pages, filters, waits, heads and tails.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use procd_core::LeaderEnd;
use procd_core::settings::Limits;
use serde_json::{Value, json};

use super::Wire;
use super::world::{Played, World};

/// Writes, and waits until it is counted.
async fn write(wire: &mut Wire, handle: &str, played: &mut Played, bytes: &[u8]) {
    let before = page(wire, json!({"process_id": handle})).await["total_bytes"].as_u64().unwrap();
    played.write(bytes);
    counted(wire, handle, before + bytes.len() as u64).await;
}

async fn counted(wire: &mut Wire, handle: &str, total: u64) {
    while page(wire, json!({"process_id": handle})).await["total_bytes"].as_u64() < Some(total) {}
}

/// The only entry of a reply.
async fn page(wire: &mut Wire, params: Value) -> Value {
    wire.result("process/output", params).await["results"][0].clone()
}

#[tokio::test]
async fn cursors_are_absolute_and_negative_ones_count_from_the_end() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    write(&mut wire, &handle, &mut played, b"0123456789").await;
    let at = |cursor: i64| json!({"process_id": handle, "cursor": cursor});
    for _ in 0..2 {
        let page = page(&mut wire, at(4)).await;
        assert_eq!((&page["output"], &page["next_cursor"]), (&json!("456789"), &json!(10)));
        assert_eq!((&page["start_cursor"], &page["from_cursor"]), (&json!(4), &json!(4)));
        assert_eq!(
            (&page["more"], &page["eof"], &page["gap"]),
            (&json!(false), &json!(false), &json!(false))
        );
    }
    assert_eq!(page(&mut wire, at(-3)).await["output"], "789");
    assert_eq!(page(&mut wire, at(-300)).await["start_cursor"], 0);
    assert_eq!(page(&mut wire, at(10)).await["output"], "");
    let ahead = page(&mut wire, at(11)).await;
    assert_eq!(ahead["error"]["code"], "cursor_ahead");
    assert_eq!(ahead.as_object().unwrap().len(), 2, "{ahead}");
    let cut = page(&mut wire, json!({"process_id": handle, "limit_bytes": 4})).await;
    assert_eq!((&cut["output"], &cut["more"]), (&json!("0123"), &json!(true)));
    assert_eq!(cut["artifact"]["end_cursor"], 4);
    let raw = page(&mut wire, json!({"process_id": handle, "encoding": "base64"})).await;
    assert_eq!(raw["output"], STANDARD.encode("0123456789"));
}

#[tokio::test]
async fn pages_join_to_the_safe_text_of_the_whole_whatever_the_limit() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    let raw = "a\u{1b}[31mré\u{1b}]0;title\u{7}d\u{0}e\u{202e}f\n".repeat(7);
    write(&mut wire, &handle, &mut played, raw.as_bytes()).await;
    played.end(LeaderEnd::Code(0)).await;
    wire.result("process/output", json!({"process_id": handle, "wait": "exit"})).await;
    for limit in [1, 2, 3, 5, 100, 100_000] {
        let (mut cursor, mut text) = (json!(0), String::new());
        loop {
            let params = json!({"process_id": handle, "cursor": cursor, "limit_bytes": limit});
            let page = page(&mut wire, params).await;
            text.push_str(page["output"].as_str().unwrap());
            cursor = page["next_cursor"].clone();
            if page["eof"] == true {
                assert_eq!(page["more"], false);
                break;
            }
        }
        assert_eq!(text, "aréde\u{fffd}f\n".repeat(7), "limit {limit}");
    }
}

#[tokio::test]
async fn half_a_character_is_held_back_until_it_is_whole_or_the_end() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    write(&mut wire, &handle, &mut played, b"x\xc3").await;
    let seen = page(&mut wire, json!({"process_id": handle})).await;
    assert_eq!((&seen["output"], &seen["next_cursor"]), (&json!("x"), &json!(1)));
    assert_eq!((&seen["held_bytes"], &seen["more"]), (&json!(1), &json!(true)));
    // Held bytes wake nobody.
    let wait = json!({"process_id": handle, "cursor": 1, "wait": "any", "timeout_ms": 20});
    assert_eq!(wire.result("process/output", wait).await["woke_by"], "timeout");
    played.end(LeaderEnd::Code(0)).await;
    let wait = json!({"process_id": handle, "cursor": 1, "wait": "any"});
    let reply = wire.result("process/output", wait).await;
    assert_eq!(reply["woke_by"], "exit");
    let last = &reply["results"][0];
    assert_eq!(
        (&last["output"], &last["eof"], &last["normalized"]),
        (&json!("\u{fffd}"), &json!(true), &json!(true))
    );
}

#[tokio::test]
async fn a_stream_alone_passes_over_the_other_and_tags_name_the_chunks() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    write(&mut wire, &handle, &mut played, b"out1 ").await;
    played.write_stderr(b"ERR ");
    counted(&mut wire, &handle, 9).await;
    write(&mut wire, &handle, &mut played, b"out2").await;
    let params = json!({"process_id": handle, "stream": "stdout", "tags": true});
    let page_out = page(&mut wire, params).await;
    assert_eq!((&page_out["output"], &page_out["next_cursor"]), (&json!("out1 out2"), &json!(13)));
    assert_eq!((&page_out["filtered_bytes"], page_out.get("mixed")), (&json!(4), None));
    let chunks = page_out["chunks"].as_array().unwrap();
    assert_eq!(chunks.len(), 2);
    assert_eq!((&chunks[1]["start"], &chunks[1]["source"]), (&json!(9), &json!("stdout")));
    assert!(chunks[1]["at"].is_string());
    let errors = page(&mut wire, json!({"process_id": handle, "stream": "stderr"})).await;
    assert_eq!((&errors["output"], &errors["filtered_bytes"]), (&json!("ERR "), &json!(9)));
    // The other stream's bytes wake nobody.
    let wait = json!({"process_id": handle, "cursor": 9, "stream": "stderr", "wait": "any", "timeout_ms": 20});
    assert_eq!(wire.result("process/output", wait).await["woke_by"], "timeout");
    let all = page(&mut wire, json!({"process_id": handle, "tags": true, "limit_bytes": 6})).await;
    let sources: Vec<_> =
        all["chunks"].as_array().unwrap().iter().map(|chunk| chunk["source"].clone()).collect();
    assert_eq!(sources, ["stdout", "stderr"]);
}

#[tokio::test]
async fn a_page_names_at_most_a_thousand_chunks_and_ends_with_them() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    for index in 0..1100_u64 {
        if index % 2 == 0 {
            played.write(b"o")
        } else {
            played.write_stderr(b"e")
        }
        counted(&mut wire, &handle, index + 1).await;
    }
    let first = page(&mut wire, json!({"process_id": handle, "tags": true})).await;
    assert_eq!(first["chunks"].as_array().unwrap().len(), 1000);
    assert_eq!((&first["next_cursor"], &first["more"]), (&json!(1000), &json!(true)));
    let rest = page(&mut wire, json!({"process_id": handle, "tags": true, "cursor": 1000})).await;
    assert_eq!(rest["chunks"].as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn what_is_not_kept_is_a_gap_of_exact_length() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let params =
        json!({"argv": ["x"], "background": true, "memory_bytes": 4096, "spool_bytes": 65_536});
    let (handle, mut played) = world.running_with(&mut wire, params).await;
    let writer = std::thread::spawn(move || {
        played.write(&b"0123456789abcdef".repeat(8192));
        played
    });
    counted(&mut wire, &handle, 131_072).await;
    let _played = writer.join().unwrap();
    let page = page(&mut wire, json!({"process_id": handle, "limit_bytes": 20})).await;
    assert_eq!((&page["start_cursor"], &page["from_cursor"]), (&json!(0), &json!(65_536)));
    assert_eq!((&page["gap"], &page["gap_bytes"]), (&json!(true), &json!(65_536)));
    assert_eq!(page["retained_from"], 65_536);
    assert_eq!(page["output"], "0123456789abcdef0123");
}

#[tokio::test]
async fn several_processes_are_answered_in_order_and_one_bad_one_fails_no_other() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (first, mut played) = world.running(&mut wire).await;
    let (second, _other) = world.running(&mut wire).await;
    write(&mut wire, &first, &mut played, b"abc").await;
    let unknown = "AAAAAAAAAAAAAAAAAAAAAA";
    let ids = json!([second, unknown, first]);
    let reply =
        wire.result("process/output", json!({"process_ids": ids, "cursor": [0, 0, 1]})).await;
    let results = reply["results"].as_array().unwrap();
    assert_eq!((&results[0]["output"], &results[2]["output"]), (&json!(""), &json!("bc")));
    assert_eq!(results[1]["error"]["code"], "not_found");
    assert_eq!(results[1]["process_id"], unknown);
    // `all` does not end with the unknown one; `any` is satisfied already.
    let wait = |wait: &str| json!({"process_ids": ids, "wait": wait, "timeout_ms": 20});
    assert_eq!(wire.result("process/output", wait("all")).await["woke_by"], "timeout");
    assert_eq!(wire.result("process/output", wait("any")).await["woke_by"], "output");
    assert_eq!(wire.result("process/output", wait("exit")).await["woke_by"], "timeout");
    // With nobody left to wait for the call returns at once.
    let params = json!({"process_id": unknown, "wait": "exit"});
    assert_eq!(
        wire.result("process/output", params).await["results"][0]["error"]["code"],
        "not_found"
    );
}

#[tokio::test]
async fn a_wait_is_woken_by_output_and_by_the_end() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    let id = wire.ask("process/output", json!({"process_id": handle, "wait": "any"})).await;
    // Another request is answered meanwhile.
    wire.result("process/list", json!({})).await;
    played.write(b"now");
    let reply = wire.reply().await;
    assert_eq!((&reply["id"], &reply["result"]["woke_by"]), (&json!(id), &json!("output")));
    let params = json!({"process_id": handle, "cursor": -1, "wait": "exit"});
    let id = wire.ask("process/output", params).await;
    wire.result("process/list", json!({})).await;
    played.write(b"!");
    played.end(LeaderEnd::Code(3)).await;
    let reply = wire.reply().await;
    assert_eq!((&reply["id"], &reply["result"]["woke_by"]), (&json!(id), &json!("exit")));
    let page = &reply["result"]["results"][0];
    assert_eq!((&page["output"], &page["exit_code"]), (&json!("w!"), &json!(3)));
    assert_eq!((&page["start_cursor"], &page["eof"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn waits_take_slots_and_a_cancel_or_disconnect_frees_them_at_once() {
    let limits = Limits { waiters_session_max: 1, ..Limits::default() };
    let mut world = World::with(limits).await;
    let mut wire = world.owner().await;
    let (handle, _played) = world.running(&mut wire).await;
    let wait = json!({"process_id": handle, "wait": "exit"});
    let id = wire.ask("process/output", wait.clone()).await;
    let error = wire.error("process/output", wait.clone()).await;
    assert_eq!(error["code"], "output_quota_exceeded");
    assert_eq!(error["details"]["limit"], "waiters_session_max");
    // What does not block needs no slot.
    let poll = json!({"process_id": handle, "wait": "exit", "timeout_ms": 0});
    assert_eq!(wire.result("process/output", poll).await["woke_by"], "timeout");
    wire.send(&json!({"method": "$/cancel", "params": {"for": id}})).await;
    assert_eq!(wire.reply().await["error"]["code"], "cancelled");
    let short = json!({"process_id": handle, "wait": "exit", "timeout_ms": 1});
    assert_eq!(wire.result("process/output", short).await["woke_by"], "timeout");
}

#[tokio::test]
async fn the_end_of_the_daemon_wakes_every_wait() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, _played) = world.running(&mut wire).await;
    wire.ask("process/output", json!({"process_id": handle, "wait": "exit"})).await;
    wire.result("process/list", json!({})).await;
    world.daemon().ending.cancel();
    assert_eq!(wire.reply().await["result"]["woke_by"], "shutdown");
    assert!(wire.frame().await.is_none());
}

#[tokio::test]
async fn the_last_lines_come_whole() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, mut played) = world.running(&mut wire).await;
    write(&mut wire, &handle, &mut played, b"one\ntwo\nthree\nfo").await;
    let tail = |lines: u64, limit: u64| json!({"process_id": handle, "tail_lines": lines, "limit_bytes": limit});
    let last = page(&mut wire, tail(2, 100)).await;
    assert_eq!((&last["output"], &last["start_cursor"]), (&json!("three\nfo"), &json!(8)));
    assert_eq!(page(&mut wire, tail(100, 100)).await["output"], "one\ntwo\nthree\nfo");
    assert_eq!(page(&mut wire, tail(3, 10)).await["output"], "three\nfo");
    assert_eq!(page(&mut wire, tail(3, 1)).await["output"], "o");
}

#[tokio::test]
async fn an_ended_start_whose_text_does_not_fit_has_head_and_tail() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    wire.ask("process/start", json!({"argv": ["x"], "limit_bytes": 10})).await;
    let mut played = world.played().await;
    played.spawned().await;
    played.write("abcdefghijklmnopqrstuvwxyz".as_bytes());
    played.end(LeaderEnd::Code(0)).await;
    let result = wire.reply().await["result"].clone();
    assert_eq!((&result["truncated"], result.get("output")), (&json!(true), None));
    let head = json!({"text": "abcde", "start_cursor": 0, "end_cursor": 5});
    let tail = json!({"text": "vwxyz", "start_cursor": 21, "end_cursor": 26});
    assert_eq!((&result["head"], &result["tail"]), (&head, &tail));
    assert_eq!((&result["omitted_bytes"], &result["next_cursor"]), (&json!(16), &json!(26)));
    assert_eq!((&result["more"], &result["eof"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn one_reply_holds_two_mebibytes_and_says_what_is_left() {
    let limits = Limits { running_loop_max: 8, ..Limits::default() };
    let mut world = World::with(limits).await;
    let mut wire = world.owner().await;
    let mut handles = Vec::new();
    for _ in 0..4 {
        let (handle, mut played) = world.running(&mut wire).await;
        let writer = std::thread::spawn(move || {
            played.write(&vec![b'x'; 1024 * 1024]);
            played
        });
        counted(&mut wire, &handle, 1024 * 1024).await;
        writer.join().unwrap().end(LeaderEnd::Code(0)).await;
        wire.result("process/output", json!({"process_id": handle, "wait": "exit", "cursor": -1}))
            .await;
        handles.push(handle);
    }
    for encoding in ["safe_text", "base64"] {
        let params =
            json!({"process_ids": handles, "limit_bytes": 1024 * 1024, "encoding": encoding});
        let reply = wire.result("process/output", params).await;
        let results = reply["results"].as_array().unwrap();
        let covered: Vec<_> =
            results.iter().map(|page| page["next_cursor"].as_u64().unwrap()).collect();
        assert!(covered.iter().sum::<u64>() <= 2 * 1024 * 1024, "{covered:?}");
        assert_eq!(covered[0], 1024 * 1024);
        assert_eq!((&results[3]["more"], covered[3]), (&json!(true), 0));
    }
}

#[tokio::test]
async fn an_operator_gives_a_reason_to_read() {
    let mut world = World::new().await;
    let mut wire = world.owner().await;
    let (handle, _played) = world.running(&mut wire).await;
    let error = wire.error("process/output", json!({"process_id": handle, "reason": "x"})).await;
    assert_eq!(error["details"]["field"], "reason");
    let mut bare = Wire::greeted(world.daemon()).await;
    bare.result("operator/attach", json!({})).await;
    let error = bare.error("process/output", json!({"process_id": handle})).await;
    assert_eq!(error["details"]["field"], "reason");
    let read = bare.result("process/output", json!({"process_id": handle, "reason": "why"})).await;
    assert_eq!(read["results"][0]["state"], "running");
    world.operator().await.result("process/output", json!({"process_id": handle})).await;
}
