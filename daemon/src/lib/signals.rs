//! The signals that ask the daemon to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, one after the other as they come.
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

    /// Waits for the next wish to end. Cancel safe.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                Some(()) = self.terminate.recv() => return,
                Some(()) = self.interrupt.recv() => return,
                Some(()) = self.hang_up.recv() => {
                    tracing::info!("SIGHUP: the configuration is read at the start only");
                }
                else => std::future::pending().await,
            }
        }
    }
}
