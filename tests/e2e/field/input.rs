//! Input and terminals that stay alive, and cost nothing when they are not.

use std::time::Duration;

use procd_tests::{Setup, Tier, figures::cpu_ticks, owner::handle, run::rounds, wait};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::{end_of, pid_of};

/// C101: signals to the daemon and ends of others interrupt its reads and end none.
#[test]
fn input_goes_on_through_signals_to_the_daemon_and_ends_of_others() {
    let setup =
        Setup::new(Tier::Shim).limit("running_loop_max = 32").limit("running_session_max = 32");
    let daemon = setup.limit("retained_session_max = 2000").start();
    let mut owner = daemon.owner();
    let process = handle(&owner.start(&["cat"], json!({"tty": true, "background": true})));
    let others =
        owner.start_params(&["true"], json!({"background": true, "queue_timeout_ms": 600_000}));
    let harmless = [Signal::URG, Signal::WINCH, Signal::CONT, Signal::CHILD];
    for turn in 0..rounds(25).min(500) {
        let id = owner.wire.send("process/start", others.clone());
        for at in 0..20 {
            kill_process(pid_of(&daemon), harmless[at % harmless.len()]).unwrap();
        }
        let line = format!("turn {turn}");
        owner.wire.ok("process/input", json!({"process_id": process, "data": format!("{line}\n")}));
        owner.wire.reply(id).unwrap();
        wait::until_true("it is echoed", wait::STEP, || {
            let page = owner.output(&process, json!({"tail_lines": 4}));
            page["output"].as_str().unwrap().matches(&line).count() == 2
        });
    }
    owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
    assert_eq!(end_of(&owner.ended(&process)), (json!("exited"), json!(0)));
}

/// C106: terminals that have ended, and one that everybody has closed, are not read any more.
#[test]
fn ended_and_deserted_terminals_cost_no_time() {
    let window = Duration::from_millis(if rounds(1) > 1 { 60_000 } else { 1000 });
    let daemon = Setup::new(Tier::Shim).limit("retained_session_max = 1000").start();
    let mut owner = daemon.owner();
    for _ in 0..rounds(20).min(200) {
        assert_eq!(owner.start(&["true"], json!({"tty": true}))["exit_code"], 0);
    }
    let line = "exec </dev/null >/dev/null 2>&1; sleep 600";
    let deserted =
        handle(&owner.start(&["sh", "-c", line], json!({"tty": true, "background": true})));
    let most = u64::try_from(window.as_millis()).unwrap() / 10 / 20;
    let used = wait::until("a stretch in which the daemon rests", window * 3 + wait::STEP, || {
        let before = cpu_ticks(daemon.pid());
        std::thread::park_timeout(window);
        Some(cpu_ticks(daemon.pid()) - before).filter(|used| *used <= most)
    });
    println!("{used} ticks of 10 ms in {window:?}");
    owner.stop(&deserted, "kill", 0);
}
