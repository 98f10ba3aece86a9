//! The fixed short run of every target, with the same seed each time.

#[cfg(test)]
mod short {
    use procd_fuzz::targets::{TARGETS, clean_up};

    /// Executions of one target in the gate.
    const EXECUTIONS: u64 = 3_000;

    #[test]
    fn no_target_breaks_in_the_short_run() {
        for target in TARGETS {
            let outcome = procd_fuzz::run(target, EXECUTIONS, 20_261_201);
            let crash = outcome.crash.map(|input| String::from_utf8_lossy(&input).into_owned());
            assert!(crash.is_none(), "{}: {crash:?}", target.name);
            assert_eq!(outcome.executions, EXECUTIONS, "{}", target.name);
        }
        clean_up();
    }
}
