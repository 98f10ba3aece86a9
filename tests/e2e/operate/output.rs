//! Logs with times, and exports.

use procd_tests::{
    Setup, Tier,
    run::{self, ctl, procctl},
};
use sha2::{Digest as _, Sha256};

use super::{json_of, keys, started};

#[test]
fn logs_tell_when_each_line_arrived_and_leave_out_what_came_before() {
    let daemon = Setup::new(Tier::Shim).start();
    let process = started(&daemon, "it", &["sh", "-c", "echo one; read line; echo two; read line"]);
    ctl(&daemon, &["wait", "-m", "one", &process]).success();
    let timed = ctl(&daemon, &["logs", "-t", &process]).success();
    let (at, text) = timed.trim_end().split_once(' ').unwrap();
    assert_eq!((text, at.len(), at.ends_with('Z')), ("one", 24, true), "{timed}");
    // Whatever the clock: one moment is between the two lines.
    let between = wait_past(at);
    ctl(&daemon, &["input", "-l", &process, "go"]).success();
    ctl(&daemon, &["wait", "-m", "two", &process]).success();
    assert_eq!(ctl(&daemon, &["logs", "--since", &between, &process]).success(), "two\n");
    assert_eq!(ctl(&daemon, &["logs", "--until", &between, &process]).success(), "one\n");
    assert_eq!(ctl(&daemon, &["logs", "--since", "1h", &process]).success(), "one\ntwo\n");
    let pages = json_of(&daemon, &["logs", "-t", &process]);
    assert_eq!(keys(&pages[0]["chunks"][0]), ["at", "end", "source", "start"]);
    ctl(&daemon, &["input", "--eof", &process]).success();
    assert_eq!(ctl(&daemon, &["wait", &process]).code, Some(1), "it read no second line");
}

/// A moment a good second after `at`, once it has come.
fn wait_past(at: &str) -> String {
    // The fraction is dropped and the next second taken: text that is still a time.
    let next = |at: &str| {
        let seconds: u32 = at[17..19].parse().unwrap();
        format!("{}{:02}.999Z", &at[..17], seconds)
    };
    let moment = next(at);
    procd_tests::wait::until_true("the moment has come", procd_tests::wait::STEP, || {
        let now = run::finish(
            {
                let mut command = procd_tests::binaries::command("date");
                command.args(["-u", "+%Y-%m-%dT%H:%M:%S.%3NZ"]);
                command
            },
            b"",
            run::LONG,
        )
        .success();
        now.trim() > moment.as_str()
    });
    moment
}

#[test]
fn an_export_is_what_was_written_and_its_checksum_is_checked() {
    let daemon = Setup::new(Tier::Shim).start();
    let words = ["sh", "-c", "head -c 3000000 /dev/urandom; printf '\\033[2J\\000end'"];
    let process = started(&daemon, "it", &words);
    ctl(&daemon, &["wait", &process]).success();
    let file = daemon.path().join("out");
    let told = json_of(&daemon, &["export", "-o", file.to_str().unwrap(), &process]);
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 3_000_000 + 8);
    assert!(bytes.ends_with(b"\x1b[2J\0end"));
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told["sha256"], hash.as_str());
    assert_eq!(keys(&told), ["bytes", "end_cursor", "from_cursor", "gap_bytes", "sha256"]);
    let piped = run::finish(procctl(&daemon, &["export", &process]), b"", run::LONG);
    assert!(piped.stdout == bytes && piped.stderr.is_empty(), "no bar where nobody looks");
    let told = ctl(&daemon, &["export", "-o", file.to_str().unwrap(), "it"]).success();
    assert_eq!(told, format!("{}: 3000008 bytes, sha256 {hash}\n", file.display()));
    let nowhere = ctl(&daemon, &["export", "-o", "/no/such/folder/out", &process]);
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
    let left: Vec<_> = std::fs::read_dir(daemon.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_export_of_another_session_gives_a_reason_and_tells_its_gap() {
    let daemon = Setup::new(Tier::Shim).limit("spool_process_bytes = 65536").start();
    let mut owner = daemon.owner();
    let process = owner.background_shell("head -c 200000 /dev/zero; exec sleep 600");
    procd_tests::wait::until_true("all is there", procd_tests::wait::STEP, || {
        owner.output(&process, serde_json::json!({}))["total_bytes"] == 200_000
    });
    let words = ["export", "--reason", "a check of the disk", &process];
    let exported = run::finish(procctl(&daemon, &words), b"", run::LONG);
    assert_eq!((exported.code, exported.stdout.len()), (Some(0), 65_536), "{:?}", exported.stderr);
    let said = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert!(said.contains("gap: the bytes 0 to 134464 are not kept any more"), "{said}");
    assert!(daemon.log().contains("a check of the disk"), "the reason is logged");
}
