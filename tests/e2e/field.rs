//! Cases of docs/FIELD-CASES.md that have no older place among the tests. The number of the case is in each comment; how often a
//! case is tried in the gate is a sample, `cargo xtask soak-cases` does it as often and as long as the case says.

use procd_tests::{Daemon, Wire, owner::handle};
use serde_json::{Value, json};

mod bridge;
mod daemons;
mod ends;
mod input;
mod neighbours;
mod output;
mod state;
mod trees;

/// A file system in memory over a folder: only in a namespace of the test's own. The binaries keep their place.
fn mount_over(folder: &std::path::Path) {
    let mount = |flags: &[&str], place: &std::path::Path| {
        let mut mount = procd_tests::binaries::command("mount");
        assert!(mount.args(flags).arg(place).status().unwrap().success(), "mount {flags:?}");
    };
    let binaries = procd_tests::binaries::folder();
    let kept = std::fs::File::open(&binaries).unwrap();
    mount(&["-t", "tmpfs", "-o", "mode=1777", "procd-test"], folder);
    if binaries.starts_with(folder) {
        std::fs::create_dir_all(&binaries).unwrap();
        // By its descriptor: the place itself is hidden now.
        let open = std::os::fd::AsRawFd::as_raw_fd(&kept);
        let open = format!("/proc/{}/fd/{open}", std::process::id());
        mount(&["--no-canonicalize", "--bind", &open], &binaries);
    }
}

/// State and exit code.
fn end_of(entry: &Value) -> (Value, Value) {
    (entry["state"].clone(), entry["exit_code"].clone())
}

fn pid_of(daemon: &Daemon) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap()
}

/// Ends that a subscription tells from `seq` on until there are `wanted`, each acknowledged; the last number seen.
fn ends_from(wire: &mut Wire, seq: u64, wanted: usize) -> (Vec<String>, u64) {
    let id = wire.send("events/subscribe", json!({"from_seq": seq}));
    let subscribed = wire.reply(id).expect("a subscription");
    assert_eq!(subscribed["gap"], false, "{subscribed}");
    let (mut ends, mut last) = (Vec::new(), seq.saturating_sub(1));
    while ends.len() < wanted {
        let notice = wire.next_notice().expect("a record");
        let params = &notice["params"];
        last = procd_tests::owner::number(params, "seq");
        if params["event"]["kind"] == "completed" {
            ends.push(handle(&params["event"]));
        }
        wire.ok("events/ack", json!({"for": id, "up_to_seq": last}));
    }
    (ends, last)
}
