//! The log of a private daemon, which nobody rotates for it.

use std::fs;

use procd_tests::{Setup, Tier, run::ctl, wait};

/// Bytes at which it is put aside.
const FULL: usize = 10 << 20;

#[test]
fn a_full_log_is_put_aside_and_one_older_is_kept() {
    let daemon = Setup::new(Tier::Shim).prepare();
    let log = daemon.state().join("log/procd.log");
    for round in 0..2 {
        ctl(&daemon, &["run", "--", "true"]).success();
        ctl(&daemon, &["shutdown"]).success();
        wait::until_true("it is gone", wait::STEP, || {
            procd_tests::leaks::processes(daemon.path()).is_empty()
        });
        let old = format!("round {round}\n").repeat(FULL / 8);
        fs::write(&log, &old).unwrap();
        ctl(&daemon, &["run", "--", "true"]).success();
        wait::until_true("the log is small again", wait::STEP, || {
            fs::metadata(&log).is_ok_and(|found| found.len() < FULL as u64)
        });
        let aside = fs::read_to_string(log.with_extension("log.1")).unwrap();
        assert!(aside.starts_with(&old), "the full one is kept, with what came before it was full");
        ctl(&daemon, &["shutdown"]).success();
        wait::until_true("it is gone", wait::STEP, || {
            procd_tests::leaks::processes(daemon.path()).is_empty()
        });
    }
    let names = fs::read_dir(daemon.state().join("log")).unwrap().flatten();
    let mut names: Vec<_> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["procd.log", "procd.log.1"]);
}
