//! Every byte, at its place, however it was written and read.

use std::time::Duration;

use procd_tests::{
    Owner, Setup, Tier, Wire, binaries,
    owner::{decode, handle, moved_on, number, without_output},
    run::rounds,
    wait,
};
use serde_json::{Value, json};

use super::end_of;

both_tiers! {
    /// C52: what a command writes to its terminal just before its end is there.
    fn a_short_terminal_command_gives_what_it_wrote(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let params = owner.start_params(&["printf", "x"], json!({"tty": true}));
        for _ in 0..rounds(25).min(500) {
            let ids: Vec<u64> = (0..4).map(|_| owner.wire.send("process/start", params.clone())).collect();
            for id in ids {
                let entry = owner.wire.reply(id).unwrap();
                assert_eq!((end_of(&entry), &entry["output"]), ((json!("exited"), json!(0)), &json!("x")), "{entry}");
            }
        }
    }

    /// C61: what it wrote up to its stop, and that it was stopped by request, whoever asks.
    fn who_did_not_stop_it_reads_the_output_and_the_reason(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let mut other = owner.attach(daemon.connect());
        for (tty, wanted) in [(false, "before\n"), (true, "before\r\n")] {
            let more = json!({"background": true, "tty": tty});
            let process = handle(&owner.start(&["sh", "-c", "echo before; exec sleep 600"], more));
            owner.output(&process, json!({"wait": "any"}));
            let waiting = other.wire.send("process/output", json!({"process_id": process, "wait": "exit"}));
            owner.stop(&process, "terminate", 20_000);
            let entry = other.wire.reply(waiting).unwrap()["results"][0].take();
            assert_eq!((&entry["state"], &entry["reason"], &entry["output"]), (&json!("terminated"), &json!("terminated"), &json!(wanted)), "{entry}");
        }
    }

    /// C62: one pipe and a terminal keep the order; of two pipes each piece has the time at which it came.
    fn streams_that_are_one_keep_their_order_and_two_have_their_times(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo o$i; echo e$i >&2; done";
        let wanted = |end: &str| (1..=5000).map(|at| format!("o{at}{end}e{at}{end}")).collect::<String>();
        for (more, end) in [(json!({"merge_streams": true, "limit_bytes": 1}), "\n"), (json!({"tty": true, "limit_bytes": 1}), "\r\n")] {
            let process = handle(&owner.start(&["sh", "-c", line], more));
            assert!(owner.text(&process) == wanted(end), "another order");
        }
        let process = handle(&owner.start(&["sh", "-c", line], json!({"limit_bytes": 1})));
        let (mut cursor, mut last, mut pieces) = (0, String::new(), 0);
        loop {
            let page = owner.output(&process, json!({"cursor": cursor, "tags": true, "limit_bytes": 1 << 20}));
            for piece in page["chunks"].as_array().unwrap() {
                // As many digits as there are: what ends in zeros is told without them.
                let at = piece["at"].as_str().unwrap().trim_end_matches('Z');
                let at = if at.contains('.') { format!("{at:0<29}") } else { format!("{at:.<20}{:0<9}", "") };
                assert!(last <= at, "{last} before {at}");
                (last, pieces) = (at, pieces + 1);
            }
            if page["more"] != true {
                break;
            }
            cursor = moved_on(&page, cursor);
        }
        assert!(pieces >= 2, "{pieces} pieces");
    }

    /// C67: input stays open until it is closed, however it comes.
    fn many_small_writes_are_all_echoed_and_only_eof_ends_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["cat"]);
        let mut wanted = String::new();
        for at in 0..300 {
            let piece = format!("piece {at}\n");
            owner.wire.ok("process/input", json!({"process_id": process, "data": piece}));
            wanted.push_str(&piece);
        }
        let ask = json!({"cursor": 0, "limit_bytes": 1, "wait": {"until": {"bytes": wanted.len()}}});
        assert_eq!(owner.output(&process, ask)["state"], "running");
        owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
        assert_eq!(end_of(&owner.ended(&process)), (json!("exited"), json!(0)));
        assert_eq!(owner.text(&process), wanted);
    }

    /// C72: nothing of a sequence is left, whole or cut where the pipe was read.
    fn no_residue_of_control_sequences_is_left(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let line = r"printf '\033[?25lA\033[?25h\033]0;title\007\033]8;;http://x/\033\\link\033]8;;\033\\B\033[3'; sleep 0.1; printf '1mC\033]0;ti'; sleep 0.1; printf 'tle\007D\033[?1049h\033(B\033='";
        for tty in [false, true] {
            let entry = owner.start(&["sh", "-c", line], json!({"tty": tty}));
            assert_eq!(entry["output"], "AlinkBCD", "{entry}");
        }
    }
}

/// Page by page with this limit; all of it joined.
fn joined(owner: &mut Owner, process: &str, limit: u64) -> String {
    let (mut text, mut cursor) = (String::new(), 0);
    loop {
        let page = owner.output(process, json!({"cursor": cursor, "limit_bytes": limit}));
        text.push_str(page["output"].as_str().unwrap());
        if page["more"] != true {
            return text;
        }
        cursor = moved_on(&page, cursor);
    }
}

/// C69: a character is never broken by the end of a page, at volume.
#[test]
fn characters_of_three_and_four_bytes_join_over_odd_pages() {
    // 33 bytes, so that a page of 4,093 ends at each place of it.
    const LINE: &str =
        "\u{256d}\u{2500}\u{1f600}\u{256e}\u{2502}\u{1f680}\u{20ac}\u{2570}\u{256f}ab\n";
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let lines = usize::try_from(rounds(20_000).min(330_000)).unwrap();
    let line = format!("yes '{}' | head -n {lines}", LINE.trim_end());
    for more in [json!({"limit_bytes": 1}), json!({"limit_bytes": 1, "tty": true})] {
        let end = if more["tty"] == true { "\r\n" } else { "\n" };
        let entry = owner.start(&["sh", "-c", &line], more);
        let text = joined(&mut owner, &handle(&entry), 4093);
        assert!(
            text == LINE.replace('\n', end).repeat(lines),
            "other characters than were written"
        );
    }
}

/// Asks for the next page on a connection of its own; every other one is cut before its answer.
fn cut_or_read(
    daemon: &procd_tests::Daemon,
    owner: &Owner,
    process: &str,
    cursor: u64,
    cuts: bool,
) -> Option<Value> {
    let mut one = owner.attach(daemon.connect());
    let ask = json!({"process_id": process, "cursor": cursor, "encoding": "base64", "limit_bytes": 600, "wait": "any"});
    let id = one.wire.send("process/output", ask);
    let answer = |mut wire: Wire| wire.reply(id).unwrap()["results"][0].take();
    (!cuts).then(|| answer(one.wire))
}

/// C67: a connection that is cut again and again during a run; each byte comes once.
#[test]
fn a_hundred_cuts_of_a_follower_lose_and_double_no_byte() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let line = "i=0; while [ $i -lt 9000 ]; do i=$((i+1)); echo line $i; [ $((i % 200)) = 0 ] && sleep 0.02; done; exit 0";
    let process = owner.background_shell(line);
    let wanted: String = (1..=9000).map(|at| format!("line {at}\n")).collect();
    let (mut bytes, mut cuts, mut turn) = (Vec::new(), 0, 0);
    while bytes.len() < wanted.len() {
        turn += 1;
        match cut_or_read(&daemon, &owner, &process, bytes.len() as u64, turn % 2 == 0) {
            None => cuts += 1,
            Some(page) => {
                assert_eq!(
                    number(&page, "from_cursor"),
                    bytes.len() as u64,
                    "{}",
                    without_output(&page)
                );
                bytes.extend(decode(&page));
            }
        }
    }
    assert!(cuts >= 100, "{cuts} cuts");
    assert!(bytes == wanted.as_bytes(), "other bytes than were written");
    assert_eq!(end_of(&owner.ended(&process)), (json!("exited"), json!(0)));
}

/// C92: each byte costs the same, and nothing that is due waits for it.
#[test]
fn single_bytes_in_millions_delay_neither_a_stop_nor_a_deadline() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    owner.wire.patience = procd_tests::run::LONG * 10;
    let line = "trap '' TERM; exec dd if=/dev/zero bs=1 2>/dev/null";
    let small = json!({"background": true, "spool_bytes": 1 << 20});
    let process = handle(&owner.start(&["sh", "-c", line], small.clone()));
    let wanted = rounds(200_000).min(200_000_000);
    owner.output(
        &process,
        json!({"cursor": 0, "limit_bytes": 1, "wait": {"until": {"bytes": wanted}}}),
    );
    wait::until_true("so many single bytes", procd_tests::run::LONG * 10, || {
        number(&owner.output(&process, json!({"limit_bytes": 1})), "total_bytes") >= wanted
    });
    let mut params = owner.start_params(&["sh", "-c", line], small);
    params["timeout_ms"] = json!(1000);
    let late = handle(&owner.wire.ok("process/start", params));
    let began = wait::now();
    let result = owner.stop(&process, "terminate", 1000);
    let took = began.elapsed();
    assert_eq!(
        (&result["state"], &result["escalated"]),
        (&json!("killed"), &json!(true)),
        "{result}"
    );
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(1) + wait::STEP / 2,
        "{took:?}"
    );
    owner.stop(&late, "kill", 0);
    println!("{wanted} single bytes; a stop with a grace of 1 s took {took:?}");
}

/// C79: while the daemon stands still the process waits for it at most; then nothing is lost.
#[test]
fn a_daemon_that_stood_still_lost_nothing() {
    let still = Duration::from_millis(if rounds(1) > 1 { 30_000 } else { 500 });
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let pieces = if rounds(1) > 1 { 4000 } else { 100 };
    let line = format!(
        "i=0; while [ $i -lt {pieces} ]; do \"$0\" write 10000; i=$((i+1)); sleep 0.01; done"
    );
    let more = json!({"background": true});
    let process = handle(&owner.start(&["sh", "-c", &line, &binaries::probe()], more));
    owner.output(&process, json!({"wait": "any", "limit_bytes": 1}));
    let own = super::pid_of(&daemon);
    rustix::process::kill_process(own, rustix::process::Signal::STOP).unwrap();
    std::thread::park_timeout(still);
    rustix::process::kill_process(own, rustix::process::Signal::CONT).unwrap();
    owner.wire.patience = procd_tests::run::LONG;
    assert_eq!(end_of(&owner.ended(&process)), (json!("exited"), json!(0)));
    let piece = procd_tests::pattern::bytes(0, 10_000);
    let wanted = usize::try_from(pieces).unwrap();
    assert!(owner.bytes(&process, 0) == piece.repeat(wanted), "other bytes than were written");
}
