//! Names of signals and errors, for records and logs.

/// The name of a signal with SIG, such as "SIGTERM"; real-time ones as "SIGRTMIN+n".
#[must_use]
pub fn signal_name(signal: i32) -> String {
    if let Ok(known) = nix::sys::signal::Signal::try_from(signal) {
        return known.as_str().to_owned();
    }
    let first = libc::SIGRTMIN();
    if signal >= first && signal <= libc::SIGRTMAX() {
        return if signal == first {
            "SIGRTMIN".to_owned()
        } else {
            format!("SIGRTMIN+{}", signal - first)
        };
    }
    format!("SIG{signal}")
}

/// The name of an errno, such as "EPERM".
#[must_use]
pub fn errno_name(errno: i32) -> String {
    let known = nix::errno::Errno::from_raw(errno);
    if known == nix::errno::Errno::UnknownErrno {
        return format!("errno {errno}");
    }
    format!("{known:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_errors_have_their_names() {
        assert_eq!(signal_name(libc::SIGKILL), "SIGKILL");
        assert_eq!(signal_name(libc::SIGRTMIN() + 2), "SIGRTMIN+2");
        assert_eq!(errno_name(libc::EPERM), "EPERM");
        assert_eq!(errno_name(9999), "errno 9999");
    }
}
