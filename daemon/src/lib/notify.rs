//! What the daemon tells the service manager that started it (`NOTIFY_SOCKET`): ready, reloading,
//! stopping, alive. Nobody to tell is no failure, and telling never waits.

use std::ffi::OsStr;
use std::future::Future;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Between two words that a long start or stop goes on.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// How much longer it may take from each word on.
const EXTEND_BY: Duration = Duration::from_secs(30);

/// See the module. Clones share one socket.
#[derive(Debug, Clone, Default)]
pub struct Notifier(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl Notifier {
    /// Tells the socket that a service manager named, if it did.
    #[must_use]
    pub fn new(address: Option<&OsStr>) -> Self {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Self(None);
        };
        let to = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(address),
        };
        let made = to.and_then(|to| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(Arc::new((socket, to)))
        });
        match made {
            Ok(made) => Self(Some(made)),
            Err(error) => {
                tracing::warn!(%error, "the service manager cannot be told anything");
                Self(None)
            }
        }
    }

    /// Whether there is anybody to tell.
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Tells it, in the lines of sd_notify.
    pub fn tell(&self, lines: &str) {
        if let Some((socket, to)) = self.0.as_deref()
            && let Err(error) = socket.send_to_addr(lines.as_bytes(), to)
        {
            tracing::debug!(%error, "the service manager was not told");
        }
    }

    /// Everything is answered from now on.
    pub(crate) fn ready(&self) {
        self.tell("READY=1\nSTATUS=serving");
    }

    /// The configuration is being read again.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// Does `work`, and asks for more time as long as it goes on. A short one asks for none.
    pub(crate) async fn while_busy<T>(
        &self,
        status: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(EXTEND_EVERY), if self.is_heard() => {
                    let us = EXTEND_BY.as_micros();
                    self.tell(&format!("EXTEND_TIMEOUT_USEC={us}\nSTATUS={}", status()));
                }
            }
        }
    }
}

/// How often the supervisor has to tell that it works: a third of what the service manager waits
/// (`WATCHDOG_USEC`, for the process `WATCHDOG_PID`).
#[must_use]
pub fn watchdog(usec: Option<&OsStr>, pid: Option<&OsStr>) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    if pid.is_some_and(|pid| number(pid) != Some(u64::from(std::process::id()))) {
        return None;
    }
    let us = number(usec?).filter(|us| *us > 0)?;
    Some(Duration::from_micros(us / 3).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        let word = |text: &'static str| Some(OsStr::new(text));
        let own = std::process::id().to_string();
        let own = Some(OsStr::new(own.as_str()));
        assert_eq!(watchdog(word("30000000"), own), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(word("30000000"), None), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(word("30000000"), word("1")), None);
        assert_eq!(watchdog(word("0"), None), None);
        assert_eq!(watchdog(None, own), None);
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_asks_for_more_time_and_short_work_does_not() {
        let path = std::env::temp_dir().join(format!("procd-notify-{}", uuid::Uuid::new_v4()));
        let heard = UnixDatagram::bind(&path).unwrap();
        heard.set_nonblocking(true).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str()));
        let read = || {
            let mut text = [0; 256];
            let length = heard.recv(&mut text).ok()?;
            String::from_utf8(text[..length].to_vec()).ok()
        };
        let busy = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        notifier.while_busy(|| "restoring".to_owned(), busy(4)).await;
        assert_eq!(read(), None);
        notifier.while_busy(|| "restoring".to_owned(), busy(6)).await;
        assert_eq!(read().unwrap(), "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=restoring");
        notifier.ready();
        assert_eq!(read().unwrap(), "READY=1\nSTATUS=serving");
        std::fs::remove_file(&path).unwrap();
    }
}
