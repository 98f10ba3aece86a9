//! A few lives of the soak; `cargo xtask soak` goes on for an hour.

/// Seconds of work, and lives of the daemon at most.
const SAMPLE: (u64, u64) = (20, 3);

#[test]
fn everything_at_once_breaks_no_law() {
    if procd_tests::namespace::has_run_inside(module_path!(), "everything_at_once_breaks_no_law") {
        return;
    }
    let (seconds, lives) = SAMPLE;
    assert!(procd_tests::soak::run(seconds, 7, lives));
}
