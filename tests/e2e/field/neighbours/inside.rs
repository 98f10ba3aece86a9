//! Around one process: its end, its tree, its output, input, terminal, and what it inherits.

use std::{fs, io::Read as _, io::Write as _, os::unix::net::UnixStream};

use procd_tests::{
    Owner, Setup, Tier, binaries,
    figures::{cpu_ticks, resident_kib},
    leaks, namespace,
    owner::{decode, handle, number, without_output},
    pattern, wait,
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::super::end_of;

fn python(owner: &mut Owner, text: &str, more: Value) -> Value {
    owner.start(&["python3", "-c", text], more)
}

fn up(owner: &mut Owner, line: &str, more: Value) -> String {
    let mut params = json!({"background": true});
    procd_tests::owner::merge(&mut params, more);
    let process = handle(&owner.start(&["sh", "-c", line], params));
    wait::until_true("it is up", wait::STEP, || owner.text(&process).contains("up"));
    process
}

both_tiers! {
    /// Never-ending wait: streams closed early, a main thread that ends before the others, a fifo that nobody reads.
    fn an_end_is_the_leaders_whatever_becomes_of_its_streams_and_threads(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", "echo up; exec >&- 2>&- <&-; sleep 0.3; exit 4"], json!({}));
        assert_eq!((end_of(&entry), &entry["output"]), ((json!("exited"), json!(4)), &json!("up\n")), "{entry}");
        let text = "import ctypes,os,threading,time\ndef other():\n time.sleep(0.3)\n os.write(1, b'other')\n os._exit(5)\n\
                    threading.Thread(target=other).start()\nctypes.CDLL(None).pthread_exit(None)";
        let entry = python(&mut owner, text, json!({}));
        assert_eq!((end_of(&entry), &entry["output"]), ((json!("exited"), json!(5)), &json!("other")), "{entry}");
        let process = up(&mut owner, "mkfifo nobody; echo up; echo x >nobody", json!({}));
        assert_eq!(owner.stop(&process, "terminate", 20_000)["state"], "terminated");
    }

    /// Zombies, end status: codes beyond a byte, a tree that ignores SIGCHLD, a crash that may leave no core.
    fn a_status_is_what_the_kernel_says_of_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        for (code, wanted) in [(256, 0), (-1, 255), (511, 255), (1000, 232)] {
            let entry = python(&mut owner, &format!("import os; os._exit({code})"), json!({}));
            assert_eq!(end_of(&entry), (json!("exited"), json!(wanted)), "{code}: {entry}");
        }
        let text = "import os,signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(20):\n if os.fork()==0: os._exit(9)\nos._exit(3)";
        let entry = python(&mut owner, text, json!({}));
        assert_eq!(end_of(&entry), (json!("exited"), json!(3)), "{entry}");
        let more = json!({"limits": {"core_bytes_max": 0}});
        let entry = owner.start(&["sh", "-c", "kill -ABRT $$"], more);
        assert_eq!((&entry["exit_code"], &entry["leader"]["core_dumped"]), (&json!(134), &json!(false)), "{entry}");
    }

    /// Output: a pipe that its writer made non-blocking, one that it made small, and bytes that were spliced into it.
    fn what_a_writer_does_to_its_pipe_costs_no_byte(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let wanted = pattern::bytes(0, 1_000_000);
        fs::write(daemon.cwd().join("pattern"), &wanted).unwrap();
        let read = "import os,fcntl,select\nd=open('pattern','rb').read()\n";
        let write = "while d:\n try: d=d[os.write(1,d):]\n except BlockingIOError: select.select([],[1],[])\n";
        let splice = "import os\nf=os.open('pattern',os.O_RDONLY)\nwhile os.splice(f,1,1<<20): pass\n";
        for text in [
            format!("{read}os.set_blocking(1,False)\n{write}"),
            format!("{read}fcntl.fcntl(1,1031,4096)\n{write}"),
            splice.to_owned(),
        ] {
            let entry = python(&mut owner, &text, json!({"limit_bytes": 1}));
            assert_eq!(entry["exit_code"], 0, "{text}: {}", without_output(&entry));
            assert!(owner.bytes(&handle(&entry), 0) == wanted, "other bytes: {text}");
        }
    }

    /// Input: for one that stands still, of every byte there is on a terminal in raw mode, and nothing at all.
    fn input_waits_for_who_stands_still_and_is_never_read_as_something_else(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let process = up(&mut owner, "echo up; exec cat", json!({}));
        let signal = |owner: &mut Owner, signal: &str| owner.wire.ok("process/signal", json!({"process_id": process, "signal": signal}));
        signal(&mut owner, "SIGSTOP");
        let data = "x".repeat(300_000);
        owner.wire.ok("process/input", json!({"process_id": process, "data": data}));
        owner.wire.ok("process/input", json!({"process_id": process, "eof": true}));
        signal(&mut owner, "SIGCONT");
        assert_eq!((end_of(&owner.ended(&process)), number(&owner.record(&process), "total_bytes")), ((json!("exited"), json!(0)), 300_003));
        let raw = up(&mut owner, "stty raw -echo; echo up; exec head -c 256", json!({"tty": true}));
        let every: Vec<u8> = (0..=255).collect();
        let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &every);
        owner.wire.ok("process/input", json!({"process_id": raw, "data_base64": data}));
        assert_eq!(owner.ended(&raw)["exit_code"], 0);
        assert!(owner.bytes(&raw, 0).ends_with(&every), "other bytes");
        let process = up(&mut owner, "echo up; exec cat", json!({}));
        owner.wire.refused("invalid_arguments", "process/input", json!({"process_id": process}));
        let reply = owner.wire.call("process/input", json!({"process_id": process, "data": ""}));
        assert!(reply.as_ref().map_or_else(|error| error["code"] == "invalid_arguments", |reply| reply["accepted_bytes"] == 0), "{reply:?}");
        assert_eq!(owner.record(&process)["state"], "running");
        owner.stop(&process, "kill", 0);
    }

    /// Terminals: output held by a typed key, settings that one leaves behind, the smallest size.
    fn a_terminal_is_its_own_whatever_is_done_to_it(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        // Endless only once it is seen to be up: whoever reads to the end would never come there.
        let process = up(&mut owner, "echo up; read go; exec yes", json!({"tty": true}));
        owner.wire.ok("process/input", json!({"process_id": process, "data": "go\n"}));
        owner.wire.ok("process/input", json!({"process_id": process, "keys": ["ctrl-s"]}));
        let result = owner.stop(&process, "terminate", 20_000);
        assert_eq!(result["state"], "terminated", "{result}");
        let entry = owner.start(&["sh", "-c", "stty raw -echo min 0 time 0"], json!({"tty": true}));
        assert_eq!(entry["exit_code"], 0, "{entry}");
        let entry = owner.start(&["sh", "-c", "stty -a | grep -c -w -e icanon; stty size"], json!({"tty": true, "rows": 1, "cols": 1}));
        assert_eq!(entry["output"], "1\r\n1 1\r\n", "{entry}");
        let late = json!({"process_id": handle(&entry), "rows": 2, "cols": 2});
        assert!(owner.wire.call("process/input", late).is_err(), "a size for a terminal that is gone");
    }

    /// Inheritance: a daemon without streams, limits that it was started with, no terminal anywhere.
    fn nothing_of_a_bare_daemon_is_missing_in_its_commands(tier) {
        let daemon = Setup::new(tier).through("ulimit -S -s 4321; ulimit -S -c 0; exec 0<&- 1>&- 2>&-; exec \"$0\"").start();
        let mut owner = daemon.owner();
        let entry = owner.start(&["sh", "-c", "ulimit -S -s; ulimit -S -c; echo err >&2; (: </dev/tty) 2>/dev/null && echo terminal; exec \"$0\" fds", &binaries::probe()], json!({"merge_streams": true}));
        assert_eq!(entry["output"], "4321\n0\nerr\n0\n1\n2\n", "{entry}");
        let process = owner.background(&["cat"]);
        owner.wire.ok("process/input", json!({"process_id": process, "data": "in\n", "eof": true}));
        owner.ended(&process);
        assert_eq!(owner.text(&process), "in\n");
        // What took the free numbers is not what its log is written to.
        let streams = [0, 1, 2].map(|fd| fs::read_link(format!("/proc/{}/fd/{fd}", daemon.pid())));
        assert!(streams.iter().flatten().all(|to| to.starts_with("/dev/null")), "{streams:?}");
    }
}

both_tiers_inside! {
    /// Stops: a leader that becomes another program when it is asked, a job that its terminal has stopped, a daemon of its own.
    fn who_changes_shape_when_asked_to_end_ends(tier) {
        let daemon = Setup::new(tier).start();
        let mut owner = daemon.owner();
        let idle = leaks::everybody().len();
        let process = up(&mut owner, "trap 'exec sleep 600' TERM; echo up; while :; do sleep 0.05; done", json!({}));
        let result = owner.stop(&process, "terminate", 500);
        assert_eq!((&result["state"], &result["escalated"]), (&json!("killed"), &json!(true)), "{result}");
        let process = up(&mut owner, "exec bash -c 'set -m; cat & echo up; wait; sleep 600'", json!({"tty": true}));
        owner.stop(&process, "terminate", 500);
        let line = "setsid sh -c 'setsid sh -c \"exec sleep 600\" & exit 0' & sleep 0.1; echo up; exit 0";
        let entry = owner.start(&["sh", "-c", line], json!({"on_leader_exit": "keep_tree"}));
        assert_eq!(entry["state"], "running", "{entry}");
        owner.stop(&handle(&entry), "terminate", 20_000);
        let left = leaks::everybody_but_shims();
        assert_eq!(left.len(), idle, "{left:?}");
    }
}

/// Slow readers: one that hangs up its half, one that takes a byte at a time, one that forgets its export.
#[test]
fn odd_readers_get_what_they_asked_for_and_cost_nobody_anything() {
    let daemon = Setup::new(Tier::Shim).start();
    let mut owner = daemon.owner();
    let process =
        handle(&owner.start(&[&binaries::probe(), "write", "700000"], json!({"limit_bytes": 1})));
    let mut forgetful = owner.attach(daemon.connect());
    forgetful.wire.send("process/export", json!({"process_id": process}));
    forgetful.wire.next_notice().unwrap();
    // By hand, a byte at a time: hello, attach, a long page.
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    let mut say = |value: Value| {
        let text = value.to_string();
        stream.write_all(&u32::try_from(text.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
    };
    let field = |name: &str| owner.opened[name].clone();
    say(
        json!({"id": 1, "method": "hello", "params": {"client": {"name": "slow", "version": "1"}, "versions": [1]}}),
    );
    say(
        json!({"id": 2, "method": "session/attach", "params": {"session_id": field("session_id"), "loop_id": field("loop_id"), "session_key": field("session_key")}}),
    );
    say(
        json!({"id": 3, "method": "process/output", "params": {"process_id": process, "cursor": 0, "encoding": "base64", "limit_bytes": 300_000}}),
    );
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(wait::STEP)).unwrap();
    let mut bytes = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 {
        bytes.push(byte[0]);
    }
    // Half closed is closed, or it is answered: never half an answer.
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        assert!(more.len() >= length, "half a frame");
        frames.push(serde_json::from_slice::<Value>(&more[..length]).unwrap());
        rest = &more[length..];
    }
    for page in frames.iter().filter(|frame| frame["id"] == 3) {
        let page = decode(&page["result"]["results"][0]);
        assert!(page == pattern::bytes(0, page.len() as u64), "other bytes");
    }
    println!("{} frames to one that had closed its half", frames.len());
    assert_eq!(owner.start(&["echo", "on"], json!({}))["output"], "on\n");
    wait::until_true("it is sealed", wait::STEP, || {
        owner.record(&process)["spool_state"] == "sealed"
    });
    owner.wire.ok("process/remove", json!({"process_id": process}));
    owner.list();
}

/// Memory and disk: a limit on the size of files, no inode left, one endless line.
#[test]
fn what_cannot_be_written_is_told_and_ends_nobody() {
    if namespace::has_run_inside(module_path!(), "what_cannot_be_written_is_told_and_ends_nobody") {
        return;
    }
    // Files of a mebibyte at most: a write beyond comes with a signal that ends who does not ask for it.
    let daemon = Setup::new(Tier::Shim).through("ulimit -f 2048; exec \"$0\"").start();
    let mut owner = daemon.owner();
    let process = up(
        &mut owner,
        &format!("{} write 20000000; echo up; read line", binaries::probe()),
        json!({"memory_bytes": 65536}),
    );
    let record = owner.record(&process);
    println!(
        "files of 1 MiB: {} of 20 MB lost by the spool, which is {}",
        record["spool_lost_bytes"], record["spool_state"]
    );
    owner.stop(&process, "kill", 0);
    assert_eq!(owner.start(&["true"], json!({}))["exit_code"], 0);
    drop(owner);
    drop(daemon);
    let mut daemon = Setup::new(Tier::Shim).limit("retained_session_max = 1000").prepare();
    fs::create_dir(daemon.state()).unwrap();
    let mut mount = binaries::command("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=64m,nr_inodes=60,mode=0700", "procd-test"])
        .arg(daemon.state());
    assert!(mount.status().unwrap().success());
    daemon.restart();
    let mut owner = daemon.owner();
    let small = json!({"memory_bytes": 4096, "spool_bytes": 65536});
    let mut refused = 0;
    for _ in 0..60 {
        let params = owner.start_params(&["echo", "on"], small.clone());
        match owner.wire.call("process/start", params) {
            Ok(entry) => assert_eq!(
                (end_of(&entry), &entry["output"]),
                ((json!("exited"), json!(0)), &json!("on\n")),
                "{entry}"
            ),
            Err(error) => {
                assert_eq!(error["details"]["cause"], "storage", "{error}");
                refused += 1;
            }
        }
    }
    println!("without an inode: {refused} of 60 starts refused");
    let line = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last";
    let before = resident_kib(daemon.pid());
    if let Ok(entry) = owner.wire.call(
        "process/start",
        owner.start_params(&["sh", "-c", line], json!({"fold": true, "limit_bytes": 100})),
    ) {
        assert_eq!(entry["exit_code"], 0, "{}", without_output(&entry));
        let page = owner.output(&handle(&entry), json!({"tail_lines": 1}));
        assert_eq!(page["output"], "last\n", "{}", without_output(&page));
    }
    let grown = resident_kib(daemon.pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB for one line");
    let state = daemon.state();
    drop(owner);
    drop(daemon);
    drop(binaries::command("umount").arg("-l").arg(state).status());
}

/// Clocks: a step forward, a deadline and a wait that pass while the daemon stands still.
#[test]
fn time_that_jumps_or_passes_unseen_makes_nothing_early_and_nothing_late() {
    let mut daemon = Setup::new(Tier::Shim).failpoints("none=pause:0").prepare();
    let step = daemon.path().join("step");
    daemon.set_environment("PROCD_CLOCK_STEP", &step.to_string_lossy());
    daemon.restart();
    let mut owner = daemon.owner();
    let late =
        handle(&owner.start(&["sleep", "600"], json!({"background": true, "timeout_ms": 1500})));
    let other = owner.background(&["sleep", "600"]);
    fs::write(&step, "86400").unwrap();
    assert_eq!(
        owner.output(&other, json!({"wait": "any", "timeout_ms": 20}))["woke_by"],
        "timeout"
    );
    assert_eq!(owner.record(&other)["state"], "running");
    let id = owner
        .wire
        .send("process/output", json!({"process_id": other, "wait": "exit", "timeout_ms": 1000}));
    let own = super::super::pid_of(&daemon);
    kill_process(own, Signal::STOP).unwrap();
    std::thread::park_timeout(std::time::Duration::from_secs(2));
    kill_process(own, Signal::CONT).unwrap();
    assert_eq!(owner.wire.reply(id).unwrap()["woke_by"], "timeout");
    let ended = owner.ended(&late);
    assert_eq!(ended["state"], "timed_out", "{ended}");
    assert!(number(&ended, "duration_ms") < 60_000, "{ended}");
    owner.stop(&other, "kill", 0);
}

/// Idle cost: connections that say nothing, subscriptions that hear nothing, long lists.
#[test]
fn a_hundred_idle_clients_cost_no_time() {
    let daemon = Setup::new(Tier::Shim).limit("retained_session_max = 1000").start();
    let mut owner = daemon.owner();
    let long = "x".repeat(50_000);
    for _ in 0..20 {
        owner.start(&["true", &long], json!({"memory_bytes": 4096, "spool_bytes": 65536}));
    }
    let mut idle: Vec<Owner> = (0..100).map(|_| owner.attach(daemon.connect())).collect();
    for one in idle.iter_mut().step_by(2) {
        one.wire.ok("events/subscribe", json!({}));
    }
    let window = std::time::Duration::from_secs(1);
    wait::until_true("a second in which the daemon rests", wait::STEP, || {
        let before = cpu_ticks(daemon.pid());
        std::thread::park_timeout(window);
        cpu_ticks(daemon.pid()) - before <= 5
    });
    // All of their words do not fit a frame; the list comes all the same.
    assert_eq!(
        owner.wire.ok("process/list", json!({"limit": 1000}))["records"].as_array().unwrap().len(),
        20
    );
}
