//! Passes the signals of the terminal and of the system on to the command.
//!
//! First interrupt: interrupt. A second one within 2 s: terminate. SIGTERM and SIGHUP: terminate.
//! A SIGHUP that was ignored when procctl was started (`nohup`) stays ignored. An interrupt is
//! passed on in any case: a shell without job control ignores it for its background jobs, and yet
//! whoever sends one to this program means the command.

use std::time::Duration;

use procd_client::Process;
use procd_protocol::ErrorCode;
use procd_protocol::v1::StopMode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::exit::CtlError;
use crate::print;

/// Two interrupts within this time mean terminate.
const TWICE_WITHIN: Duration = Duration::from_secs(2);

/// The signals that are passed on.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Takes the signals over from now on; what comes before [`Self::pass_on`] waits.
    /// # Errors
    /// [`CtlError::Io`] when the system refuses.
    pub(super) fn install() -> Result<Self, CtlError> {
        let take = |kind: SignalKind| signal(kind).map_err(cannot_take);
        let hang_up = SignalKind::hangup();
        Ok(Self {
            hang_up: if is_ignored(hang_up) { None } else { Some(take(hang_up)?) },
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
        })
    }

    /// Turns each signal into a stop of the process; goes on until it is dropped. A stop waits
    /// for its answer beside the others, so that a stronger one overtakes it.
    pub(super) async fn pass_on(mut self, process: Process) {
        let mut presses = Presses::default();
        loop {
            let mode = tokio::select! {
                () = next(&mut self.interrupt) => presses.press(Instant::now()),
                () = next(&mut self.terminate) => StopMode::Terminate,
                () = hung_up(&mut self.hang_up) => StopMode::Terminate,
            };
            let process = process.clone();
            tokio::spawn(async move {
                if let Err(error) = stop(&process, mode).await {
                    print::message(&error.to_string());
                }
            });
        }
    }
}

fn cannot_take(source: std::io::Error) -> CtlError {
    CtlError::Io { what: "cannot take over signals".to_owned(), source }
}

/// The next one. The stream of a signal never ends while the runtime lives.
async fn next(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending().await
    }
}

async fn hung_up(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => next(signal).await,
        None => std::future::pending().await,
    }
}

/// Stops a process. That it ended meanwhile, or the connection with it, is no failure: the
/// follower tells.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(super) async fn stop(process: &Process, mode: StopMode) -> Result<(), CtlError> {
    match process.stop_with(mode, None).await {
        Ok(_) => Ok(()),
        Err(error) if error.is(ErrorCode::NotFound) || error.is_disconnected() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Counts presses of the interrupt key.
#[derive(Debug, Default)]
struct Presses {
    last: Option<Instant>,
}

impl Presses {
    fn press(&mut self, now: Instant) -> StopMode {
        let is_second = self.last.is_some_and(|last| now.duration_since(last) <= TWICE_WITHIN);
        self.last = Some(now);
        if is_second { StopMode::Terminate } else { StopMode::Interrupt }
    }
}

/// Whether this program was started with the signal ignored.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bit = u32::try_from(kind.as_raw_value()).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| 1_u64.checked_shl(bit)).is_some_and(|bit| parse_ignored(&status) & bit != 0)
}

/// The ignored signals, a bit each, signal 1 the lowest.
fn parse_ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_press_within_two_seconds_means_terminate() {
        let mut presses = Presses::default();
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(presses.press(at(0)), StopMode::Interrupt);
        assert_eq!(presses.press(at(2001)), StopMode::Interrupt);
        assert_eq!(presses.press(at(4001)), StopMode::Terminate);
        assert_eq!(presses.press(at(9000)), StopMode::Interrupt);
    }

    #[test]
    fn an_ignored_signal_is_seen_as_such() {
        let mask =
            parse_ignored("Name:\tx\nSigIgn:\t0000000000001006\nSigCgt:\t0000000000000000\n");
        assert_eq!(mask & 0b10, 0b10);
        assert_eq!(mask & 1, 0);
        assert_eq!(parse_ignored(""), 0);
    }
}
