//! Input: whole or not at all, in order, and never in the way of output.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use procd_tests::{
    Owner, Setup, Tier, binaries,
    owner::{handle, number},
    pattern, wait,
};
use serde_json::{Value, json};

fn send(owner: &mut Owner, process: &str, mut what: Value) -> Value {
    what["process_id"] = json!(process);
    owner.wire.ok("process/input", what)
}

both_tiers! {
    fn data_reaches_the_process_in_order_and_eof_ends_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&[&binaries::probe(), "echo"]);
        for data in ["one ", "two \u{20ac} ", "three"] {
            let reply = send(&mut owner, &process, json!({"data": data}));
            assert_eq!(number(&reply, "accepted_bytes"), data.len() as u64, "{reply}");
        }
        send(&mut owner, &process, json!({"data_base64": BASE64_STANDARD.encode(b"\0\xff"), "eof": true}));
        assert_eq!(owner.ended(&process)["exit_code"], 0);
        assert_eq!(owner.bytes(&process, 0), [&b"one two \xe2\x82\xac three"[..], b"\0\xff"].concat());
    }

    fn after_eof_data_is_refused_and_eof_is_not(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("cat; sleep 600");
        send(&mut owner, &process, json!({"data": "x", "eof": true}));
        send(&mut owner, &process, json!({"eof": true}));
        let late = json!({"process_id": process, "data": "y"});
        owner.wire.refused("stdin_closed", "process/input", late.clone());
        owner.output(&process, json!({"wait": "any"}));
        owner.stop(&process, "kill", 0);
        owner.wire.refused("stdin_closed", "process/input", late);
        assert_eq!(owner.text(&process), "x");
    }

    /// C11: a plain foreground command has no input to wait for.
    fn a_foreground_command_has_no_stdin_unless_asked(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["cat", "/dev/stdin"], json!({}));
        assert_eq!((entry["exit_code"].clone(), entry["output"].clone()), (json!(0), json!("")), "{entry}");
        let without = owner.start(&["sleep", "600"], json!({"background": true, "stdin": "null"}));
        owner.wire.refused("stdin_closed", "process/input", json!({"process_id": handle(&without), "data": "x"}));
        owner.stop(&handle(&without), "kill", 0);
    }

    /// A call's bytes enter whole or not at all, so a retry never doubles them.
    fn megabytes_pass_through_a_filter_with_retries_and_no_byte_twice(tier) {
        const PIECE: u64 = 400_000;
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["cat"]);
        for piece in 0..12 {
            let data = BASE64_STANDARD.encode(pattern::bytes(piece * PIECE, PIECE));
            let params = json!({"process_id": process, "data_base64": data});
            wait::until("room for a piece", wait::STEP, || match owner.wire.call("process/input", params.clone()) {
                Ok(reply) => {
                    assert_eq!(number(&reply, "accepted_bytes"), PIECE);
                    Some(())
                }
                Err(error) => {
                    assert_eq!((error["code"].clone(), error["retryable"].clone()), (json!("input_backpressure"), json!(true)), "{error}");
                    None
                }
            });
        }
        send(&mut owner, &process, json!({"eof": true}));
        assert_eq!(owner.ended(&process)["exit_code"], 0);
        assert!(owner.bytes(&process, 0) == pattern::bytes(0, 12 * PIECE), "other bytes than were sent");
    }

    fn a_process_that_never_reads_holds_nobody_up(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background(&["sleep", "600"]);
        let mebibyte = BASE64_STANDARD.encode(vec![b'x'; 1 << 20]);
        let params = json!({"process_id": process, "data_base64": mebibyte});
        let reply = owner.wire.ok("process/input", params.clone());
        assert_eq!(number(&reply, "accepted_bytes"), 1 << 20, "{reply}");
        let error = owner.wire.refused("input_backpressure", "process/input", params);
        let (pending, free) = (number(&error["details"], "pending_bytes"), number(&error["details"], "free_bytes"));
        assert!(pending + free == 1 << 20 && free < 1 << 20, "{error}");
        // The end of input waits its turn in the queue and blocks nobody.
        send(&mut owner, &process, json!({"eof": true}));
        assert_eq!(owner.start(&["echo", "free"], json!({}))["output"], "free\n");
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!(result["state"], "terminated", "{result}");
    }

    fn a_process_that_closes_its_stdin_hurts_nobody(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = owner.background_shell("exec 0<&-; echo closed; exec sleep 600");
        owner.output(&process, json!({"wait": "any"}));
        let params = json!({"process_id": process, "data": "x"});
        wait::until_true("the broken pipe closes the input", wait::STEP, || {
            owner.wire.call("process/input", params.clone()).is_err_and(|error| error["code"] == "stdin_closed")
        });
        assert_eq!(owner.output(&process, json!({}))["state"], "running");
        owner.stop(&process, "kill", 0);
    }
}
