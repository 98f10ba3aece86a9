//! Descriptors that a service manager handed over at the start.

use std::io;
use std::os::fd::OwnedFd;

/// The first number of those that are handed over (sd_listen_fds).
const FIRST: i32 = 3;

/// Takes over the one listening socket, as `LISTEN_PID` and `LISTEN_FDS` tell of it. Once, before
/// any thread exists. It is closed at an exec from now on.
/// - returns none when nothing was handed to this process.
/// # Errors
/// More than one was, or none that is open.
pub fn listening_socket(pid: Option<&str>, count: Option<&str>) -> io::Result<Option<OwnedFd>> {
    let own = std::process::id().to_string();
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(None) };
    if pid != own || count == "0" {
        return Ok(None);
    }
    if count != "1" {
        let what = format!("{count} sockets were handed over, and one is wanted");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    crate::raw::own_inherited(FIRST).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_to_another_process_is_left_alone() {
        let own = std::process::id().to_string();
        assert!(listening_socket(Some("1"), Some("1")).unwrap().is_none());
        assert!(listening_socket(None, Some("1")).unwrap().is_none());
        assert!(listening_socket(Some(&own), None).unwrap().is_none());
        assert!(listening_socket(Some(&own), Some("0")).unwrap().is_none());
        let several = listening_socket(Some(&own), Some("2")).unwrap_err();
        assert!(several.to_string().contains("2 sockets"), "{several}");
    }
}
