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
}

impl Signals {
    /// Takes over the signals.
    /// # Errors
    /// The system gives no descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            Some(()) = self.terminate.recv() => Asked::End,
            Some(()) = self.interrupt.recv() => Asked::End,
            Some(()) = self.hang_up.recv() => Asked::Reload,
            else => std::future::pending().await,
        }
    }

    /// Waits for the next wish to end. Cancel safe.
    pub(crate) async fn next_end(&mut self) {
        while self.next().await != Asked::End {
            tracing::info!("SIGHUP: not now, the daemon starts or ends");
        }
    }
}
