//! Names and numbers of Linux signals (x86-64 and aarch64 agree).

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The first real-time signal as programs see it: glibc keeps 32 and 33 for itself.
const SIGRTMIN: i32 = 34;
/// The last signal there is.
const SIGNAL_MAX: i32 = 64;

/// The name with SIG; real-time signals as `SIGRTMIN+n`, and what has no name as `SIGn`.
#[must_use]
pub fn name(signal: i32) -> String {
    let index = usize::try_from(signal).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| NAMES.get(index)) {
        Some(name) => (*name).to_owned(),
        None if signal == SIGRTMIN => "SIGRTMIN".to_owned(),
        None if (SIGRTMIN..=SIGNAL_MAX).contains(&signal) => {
            format!("SIGRTMIN+{}", signal - SIGRTMIN)
        }
        None => format!("SIG{signal}"),
    }
}

/// The number of a name with SIG, as [`name`] writes it.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    (1..=SIGNAL_MAX).find(|&signal| self::name(signal) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_one_name_and_is_found_by_it() {
        for signal in 1..=SIGNAL_MAX {
            assert_eq!(number(&name(signal)), Some(signal));
        }
        assert_eq!(name(9), "SIGKILL");
        assert_eq!(name(31), "SIGSYS");
        assert_eq!(name(34), "SIGRTMIN");
        assert_eq!(name(64), "SIGRTMIN+30");
        assert_eq!(number("KILL"), None);
        assert_eq!(number("SIG0"), None);
    }
}
