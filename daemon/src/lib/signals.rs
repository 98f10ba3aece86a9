//! The signals that ask the daemon to end, or to read its configuration again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGTERM, SIGINT.
    End,
    /// SIGHUP.
    Reload,
}

/// SIGTERM, SIGINT and SIGHUP, one after the other as they come.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// A SIGHUP came when nothing could be read again.
    is_reload_owed: bool,
}

impl Signals {
    /// Takes over the signals.
    /// # Errors
    /// The system gives no descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            is_reload_owed: false,
        };
        // One from the beginning of the start has waited for this.
        procd_sys::signals::take_hang_up()?;
        Ok(signals)
    }

    /// Waits for the next one, or tells what [`Signals::next_end`] has put off. Cancel safe.
    pub(crate) async fn next(&mut self) -> Asked {
        if std::mem::take(&mut self.is_reload_owed) {
            return Asked::Reload;
        }
        self.come().await
    }

    async fn come(&mut self) -> Asked {
        tokio::select! {
            Some(()) = self.terminate.recv() => Asked::End,
            Some(()) = self.interrupt.recv() => Asked::End,
            Some(()) = self.hang_up.recv() => Asked::Reload,
            else => std::future::pending().await,
        }
    }

    /// Waits for the next wish to end; a SIGHUP is put off: what is read at the start may have
    /// been read before the change that it speaks of. Cancel safe.
    pub(crate) async fn next_end(&mut self) {
        while self.come().await != Asked::End {
            tracing::info!("SIGHUP: put off until the daemon serves");
            self.is_reload_owed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal as Sent, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_hang_up_that_comes_while_only_an_end_is_waited_for_is_put_off_not_lost() {
        let mut signals = Signals::new().unwrap();
        kill_process(getpid(), Sent::HUP).unwrap();
        let until_owed = async {
            while !signals.is_reload_owed {
                tokio::select! {
                    () = signals.next_end() => panic!("nobody has asked for the end"),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), until_owed).await.unwrap();
        assert_eq!(signals.next().await, Asked::Reload);
        assert!(!signals.is_reload_owed);
    }
}
