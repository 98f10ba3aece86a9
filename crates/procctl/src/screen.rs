//! The terminal this program runs in: raw mode, the other screen, keys. Whatever is changed is put
//! back when the value is dropped, also on an error's way out.

use std::io::{IsTerminal, Read};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::CtlError;
use crate::print;

/// Reads of the keyboard that wait to be used.
const READS_AHEAD_MAX: usize = 16;
/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// A terminal whose keys come as they are pressed.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
    /// What puts the screen back.
    farewell: &'static str,
}

impl Raw {
    /// Takes the terminal of stdin over.
    /// - `farewell`: written when it is given back.
    /// # Errors
    /// [`CtlError::Usage`] where stdin is no terminal.
    pub(crate) fn take(farewell: &'static str) -> Result<Self, CtlError> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)
            .map_err(|_errno| CtlError::usage("stdin is no terminal", "run it in a terminal"))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Flush, &raw).map_err(|errno| CtlError::Io {
            what: "cannot change the terminal".to_owned(),
            source: errno.into(),
        })?;
        Ok(Self { before, farewell })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        print::data(self.farewell.as_bytes()).ok();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// The signals that end a program, for one that has a terminal to give back first.
#[derive(Debug)]
pub(crate) struct Ends {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
}

impl Ends {
    /// Takes them over, for the rest of the program's life.
    /// # Errors
    /// [`CtlError::Io`] when the system refuses.
    pub(crate) fn install() -> Result<Self, CtlError> {
        Ok(Self {
            terminate: taken(SignalKind::terminate())?,
            hang_up: taken(SignalKind::hangup())?,
            interrupt: taken(SignalKind::interrupt())?,
        })
    }

    /// The exit code that tells of the signal, once one came.
    pub(crate) async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            Some(()) = self.terminate.recv() => SignalKind::terminate(),
            Some(()) = self.hang_up.recv() => SignalKind::hangup(),
            Some(()) = self.interrupt.recv() => SignalKind::interrupt(),
            else => return std::future::pending().await,
        };
        u8::try_from(kind.as_raw_value()).map_or(u8::MAX, |number| number.saturating_add(128))
    }
}

/// The signal that tells of another size.
/// # Errors
/// [`CtlError::Io`] when the system refuses.
pub(crate) fn resized() -> Result<Signal, CtlError> {
    taken(SignalKind::window_change())
}

fn taken(kind: SignalKind) -> Result<Signal, CtlError> {
    let what = || "cannot take over signals".to_owned();
    signal(kind).map_err(|source| CtlError::Io { what: what(), source })
}

/// Whether both ends of the conversation are a terminal.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// What is typed, as it comes, from a thread that may wait for a key for ever: the program ends
/// all the same. The channel ends with stdin.
pub(crate) fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (to, from) = mpsc::channel(READS_AHEAD_MAX);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = [0; READ_BYTES];
        loop {
            let count = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_gone) => return,
            };
            let bytes = buffer.get(..count).unwrap_or_default().to_vec();
            if to.blocking_send(bytes).is_err() {
                return;
            }
        }
    });
    from
}
