//! Output: every byte once, at its place, within its bounds, and fit to be read.

use std::fs;

use procd_tests::{
    Owner, Setup, Tier, binaries,
    figures::disk_bytes,
    owner::{decode, handle, number, without_output},
    pattern, wait,
};
use serde_json::{Value, json};

/// Runs a shell line to its end: its handle.
fn ran(owner: &mut Owner, line: &str) -> String {
    handle(&owner.start(&["sh", "-c", line], json!({"limit_bytes": 1})))
}

/// One stream of a process, page by page: its text, the bytes passed over, and the last cursor.
fn stream(owner: &mut Owner, process: &str, name: &str, limit: u64) -> (String, u64, u64) {
    let (mut text, mut filtered, mut cursor) = (String::new(), 0, 0);
    loop {
        let ask = json!({"cursor": cursor, "stream": name, "limit_bytes": limit});
        let page = owner.output(process, ask);
        text.push_str(page["output"].as_str().unwrap());
        filtered += page["filtered_bytes"].as_u64().unwrap_or(0);
        if page["more"] != true {
            return (text, filtered, number(&page, "next_cursor"));
        }
        cursor = procd_tests::owner::moved_on(&page, cursor);
    }
}

both_tiers! {
    /// C57: bytes, not lines.
    fn bytes_come_back_exactly(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for (line, bytes) in [
            ("true", &b""[..]),
            ("printf 'no line end'", b"no line end"),
            (r"printf '\000'", b"\0"),
            (r"printf 'a\000b\377\033[1m\r\n'", b"a\0b\xff\x1b[1m\r\n"),
            (r"printf '\303'; sleep 0.05; printf '\251'", "\u{e9}".as_bytes()),
        ] {
            let process = ran(&mut owner, line);
            assert_eq!(owner.bytes(&process, 0), bytes, "{line}");
            let entry = owner.output(&process, json!({"cursor": bytes.len()}));
            assert_eq!((entry["eof"].clone(), entry["more"].clone(), number(&entry, "total_bytes")), (json!(true), json!(false), bytes.len() as u64), "{entry}");
        }
    }

    /// C56. Everything written before the end is captured, also by a command that lives for a moment.
    fn two_thousand_short_commands_give_what_they_wrote(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["printf", "x"], json!({}));
        for _ in 0..500 {
            let ids: Vec<u64> = (0..4).map(|_| owner.wire.send("process/start", params.clone())).collect();
            for id in ids {
                let entry = owner.wire.reply(id).unwrap();
                let told = (entry["output"].clone(), entry["exit_code"].clone(), number(&entry, "total_bytes"), entry["eof"].clone());
                assert_eq!(told, (json!("x"), json!(0), 1, json!(true)), "{entry}");
            }
        }
    }

    /// C09: no reader is needed for a process to go on.
    fn a_process_without_a_reader_runs_to_its_end(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("seq 1 2000000; echo END >&2");
        let entry = owner.ended(&process);
        assert_eq!((entry["exit_code"].clone(), number(&entry, "total_bytes")), (json!(0), 14_888_896 + 4), "{entry}");
        // Two pipes have no order between them: the line may come before the last of the numbers.
        assert_eq!(stream(&mut owner, &process, "stderr", 1 << 20).0, "END\n");
    }

    /// C64, C82. The newest bytes are kept to the byte, the disk holds little more, and a read says what is gone.
    fn a_gibibyte_is_spooled_within_its_ceiling(tier) {
        const TOTAL: u64 = 1 << 30;
        const CEILING: u64 = 8 << 20;
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        owner.wire.patience = procd_tests::run::LONG;
        let entry = owner.start(&[&binaries::probe(), "write", &TOTAL.to_string()], json!({"spool_bytes": CEILING, "limit_bytes": 1}));
        assert_eq!((entry["exit_code"].clone(), number(&entry, "total_bytes")), (json!(0), TOTAL), "{entry}");
        assert_eq!(number(&entry, "retained_from"), TOTAL - CEILING, "{entry}");
        let process = handle(&entry);
        let page = owner.output(&process, json!({"cursor": 0, "encoding": "base64", "limit_bytes": 100}));
        assert_eq!((page["gap"].clone(), number(&page, "gap_bytes"), number(&page, "from_cursor")), (json!(true), TOTAL - CEILING, TOTAL - CEILING), "{page}");
        let kept = owner.bytes(&process, 0);
        assert!(kept == pattern::bytes(TOTAL - CEILING, CEILING), "other bytes than were written");
        let used = disk_bytes(&daemon.state().join("sessions"));
        let bound = CEILING + CEILING / 8 + CEILING / 8 + (64 << 10);
        assert!(used <= bound, "{used} bytes on disk, {bound} allowed for one segment, tags and index beyond the ceiling");
    }

    fn cursors_are_absolute_and_idempotent(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = ran(&mut owner, &format!("{} write 100000", binaries::probe()));
        for (from, limit) in [(0, 1), (1, 100), (15, 17), (99_999, 10), (50_000, 70_000)] {
            let ask = json!({"cursor": from, "limit_bytes": limit, "encoding": "base64"});
            let page = owner.output(&process, ask.clone());
            let count = limit.min(100_000 - from);
            assert_eq!(decode(&page), pattern::bytes(from, count));
            assert_eq!((number(&page, "start_cursor"), number(&page, "next_cursor")), (from, from + count));
            assert_eq!(page["more"], from + count < 100_000);
            assert_eq!(page["artifact"], json!({"id": process, "encoding": "base64", "start_cursor": from, "end_cursor": from + count}));
            assert_eq!(owner.output(&process, ask), page);
        }
    }

    fn a_cursor_at_the_end_is_empty_one_beyond_is_refused_a_negative_one_counts_back(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = ran(&mut owner, "printf 0123456789");
        let end = owner.output(&process, json!({"cursor": 10}));
        assert_eq!((end["output"].clone(), end["eof"].clone(), end["gap"].clone()), (json!(""), json!(true), json!(false)), "{end}");
        for wait in ["poll", "any", "exit"] {
            let beyond = owner.output(&process, json!({"cursor": 11, "wait": wait}));
            assert_eq!(beyond["error"]["code"], "cursor_ahead", "{beyond}");
            let fields: Vec<_> = beyond.as_object().unwrap().keys().filter(|key| *key != "woke_by").collect();
            assert_eq!(fields, ["error", "process_id"], "{beyond}");
        }
        let back = owner.output(&process, json!({"cursor": -3}));
        assert_eq!((back["output"].clone(), number(&back, "start_cursor")), (json!("789"), 7), "{back}");
        let clamped = owner.output(&process, json!({"cursor": -1000}));
        assert_eq!((clamped["output"].clone(), clamped["gap"].clone()), (json!("0123456789"), json!(false)), "{clamped}");
    }

    fn a_running_process_keeps_its_newest_bytes_and_tells_the_gap(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = format!("{} write 1000000; exec sleep 600", binaries::probe());
        let entry = owner.start(&["sh", "-c", &line], json!({"background": true, "memory_bytes": 4096, "spool_bytes": 65536}));
        let process = handle(&entry);
        wait::until_true("all is written", wait::STEP, || number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes") == 1_000_000);
        let page = owner.output(&process, json!({"limit_bytes": 1}));
        assert_eq!((number(&page, "retained_from"), number(&page, "gap_bytes")), (934_464, 934_464), "{page}");
        assert_eq!(owner.bytes(&process, 0), pattern::bytes(934_464, 65_536));
        assert_eq!(owner.bytes(&process, 999_000), pattern::bytes(999_000, 1000));
        owner.stop(&process, "kill", 0);
        assert_eq!(owner.bytes(&process, 0), pattern::bytes(934_464, 65_536));
    }

    fn streams_are_told_apart_and_none_loses_a_byte(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = ran(&mut owner, &format!("{} mixed 50000", binaries::probe()));
        let wanted = String::from_utf8(pattern::bytes(0, 50_000)).unwrap();
        for name in ["stdout", "stderr"] {
            let (text, filtered, end) = stream(&mut owner, &process, name, 7000);
            assert!(text == wanted, "{name}: other bytes than were written");
            assert_eq!((filtered, end), (50_000, 100_000), "{name}");
        }
    }

    fn tags_cover_a_page_exactly(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("printf out; read line; printf err >&2; read line; printf out");
        // Two pipes have no order between them: each piece is read before the next is written.
        for total in [3, 6] {
            owner.output(&process, json!({"cursor": 0, "wait": {"until": {"bytes": total}}}));
            owner.wire.ok("process/input", json!({"process_id": process, "data": "\n"}));
        }
        owner.ended(&process);
        let page = owner.output(&process, json!({"tags": true}));
        let chunks: Vec<_> = page["chunks"].as_array().unwrap().iter().map(|chunk| (number(chunk, "start"), number(chunk, "end"), chunk["source"].clone())).collect();
        assert_eq!(chunks, [(0, 3, json!("stdout")), (3, 6, json!("stderr")), (6, 9, json!("stdout"))]);
        assert!(page["chunks"][0]["at"].as_str().unwrap().ends_with('Z'), "{page}");
    }

    fn merged_streams_keep_the_order_of_the_kernel_and_have_no_tag(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "for i in 1 2 3 4 5 6 7 8; do printf o$i; printf e$i >&2; done";
        let entry = owner.start(&["sh", "-c", line], json!({"merge_streams": true}));
        assert_eq!(entry["output"], "o1e1o2e2o3e3o4e4o5e5o6e6o7e7o8e8", "{entry}");
        let page = owner.output(&handle(&entry), json!({"tags": true, "stream": "stdout"}));
        assert_eq!((page["mixed"].clone(), page["chunks"][0]["source"].clone()), (json!(true), json!("mixed")), "{page}");
    }

    fn text_is_safe_and_pages_join_to_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = r"printf '\033]0;title\007\033[31mr\303\251d\033[0m \342\202\254 \377\302\2331m\302\205\342\200\256end\n'; printf '\033]0;never closed'";
        let process = ran(&mut owner, line);
        let wanted = "r\u{e9}d \u{20ac} \u{fffd}\u{fffd}end\n0;never closed";
        for limit in [1, 2, 3, 4, 5, 7, 16, 1000] {
            let (mut text, mut cursor) = (String::new(), 0);
            loop {
                let page = owner.output(&process, json!({"cursor": cursor, "limit_bytes": limit}));
                let piece = page["output"].as_str().unwrap();
                assert!(piece.len() <= limit + 3, "{page}");
                text.push_str(piece);
                assert!(number(&page, "next_cursor") > cursor, "{page}");
                cursor = number(&page, "next_cursor");
                if page["more"] != true {
                    assert_eq!(page["eof"], true, "{page}");
                    break;
                }
            }
            assert_eq!(text, wanted, "limit {limit}");
        }
        let whole = owner.output(&process, json!({}));
        assert_eq!((whole["normalized"].clone(), whole["binary"].clone()), (json!(true), Value::Null), "{whole}");
    }

    fn what_is_not_whole_yet_is_held_back(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell(r"printf 'a\342\202'; read line; printf '\254\033[3'; read line; printf '1mb'; read line");
        wait::until_true("three bytes are there", wait::STEP, || number(&owner.output(&process, json!({})), "total_bytes") == 3);
        let page = owner.output(&process, json!({}));
        assert_eq!((page["output"].clone(), number(&page, "next_cursor"), number(&page, "held_bytes")), (json!("a"), 1, 2), "{page}");
        let nobody = owner.output(&process, json!({"cursor": 1, "wait": "any", "timeout_ms": 100}));
        assert_eq!((nobody["woke_by"].clone(), nobody["output"].clone()), (json!("timeout"), json!("")), "{nobody}");
        owner.wire.ok("process/input", json!({"process_id": process, "data": "\n"}));
        let page = owner.output(&process, json!({"cursor": 1, "wait": "any"}));
        assert_eq!((page["output"].clone(), page["woke_by"].clone()), (json!("\u{20ac}"), json!("output")), "{page}");
        wait::until_true("the sequence has begun", wait::STEP, || number(&owner.output(&process, json!({})), "total_bytes") == 7);
        owner.wire.ok("process/input", json!({"process_id": process, "data": "\n"}));
        let page = owner.output(&process, json!({"cursor": 4, "wait": "any"}));
        assert_eq!((page["output"].clone(), number(&page, "next_cursor")), (json!("b"), 10), "{page}");
        owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
        owner.ended(&process);
    }

    fn binary_output_is_named_and_comes_back_untouched(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = ran(&mut owner, "head -c 20000 /dev/urandom | tee copy");
        let page = owner.output(&process, json!({}));
        assert_eq!((page["binary"].clone(), page["normalized"].clone()), (json!(true), json!(true)), "{}", without_output(&page));
        assert_eq!(owner.bytes(&process, 0), fs::read(daemon.cwd().join("copy")).unwrap());
    }

    fn an_ended_process_that_does_not_fit_shows_head_and_tail(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&[&binaries::probe(), "write", "1000000"], json!({"limit_bytes": 10_000}));
        assert_eq!((entry["truncated"].clone(), entry["output"].clone()), (json!(true), Value::Null), "{entry}");
        let (head, tail) = (&entry["head"], &entry["tail"]);
        let (cut, on) = (number(head, "end_cursor"), number(tail, "start_cursor"));
        assert_eq!((number(head, "start_cursor"), number(tail, "end_cursor")), (0, 1_000_000), "{entry}");
        assert_eq!(number(&entry, "omitted_bytes"), on - cut, "{entry}");
        assert_eq!(head["text"].as_str().unwrap().as_bytes(), pattern::bytes(0, cut));
        assert_eq!(tail["text"].as_str().unwrap().as_bytes(), pattern::bytes(on, 1_000_000 - on));
        let shown = cut + 1_000_000 - on;
        assert!((9_000..=10_003).contains(&shown), "{shown} bytes shown of the 10,000 allowed");
        assert_eq!((number(&entry, "next_cursor"), entry["more"].clone()), (1_000_000, json!(false)), "{entry}");
    }

    fn one_reply_holds_many_processes_in_the_order_asked_and_never_outgrows_a_frame(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let processes: Vec<String> = (0..4).map(|_| ran(&mut owner, &format!("{} write 1500000", binaries::probe()))).collect();
        let ask = json!({"process_ids": processes, "limit_bytes": 1 << 20, "cursor": [0, 1, 2, 3]});
        let reply = owner.wire.ok("process/output", ask);
        let results = reply["results"].as_array().unwrap();
        let order: Vec<_> = results.iter().map(handle).collect();
        assert_eq!(order, processes);
        let text: usize = results.iter().map(|entry| entry["output"].as_str().unwrap().len()).sum();
        assert_eq!(text, 2 << 20);
        for (start, entry) in results.iter().enumerate() {
            assert_eq!((number(entry, "start_cursor"), entry["more"].clone()), (start as u64, json!(true)), "{}", without_output(entry));
        }
    }

    fn tail_lines_are_the_last_that_fit(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = ran(&mut owner, "seq 1 1000; printf 'no end'");
        let page = owner.output(&process, json!({"tail_lines": 3}));
        assert_eq!((page["output"].clone(), page["eof"].clone()), (json!("999\n1000\nno end"), json!(true)), "{page}");
        let page = owner.output(&process, json!({"tail_lines": 3, "limit_bytes": 12}));
        assert_eq!(page["output"], "1000\nno end", "{page}");
        let page = owner.output(&process, json!({"tail_lines": 3, "limit_bytes": 4}));
        assert_eq!(page["output"], " end", "{page}");
    }
}
