//! `procctl attach`: the terminal of a process in one's own. What it shows comes as it is, what is
//! typed goes to it, and its size follows the window. Any number may look at once.
//!
//! Of a process without a terminal the output is shown and lines are passed on; of another
//! session's process there is only the view.

mod keys;

use std::convert::Infallible;
use std::time::Duration;

use procd_client::Process;
use procd_protocol::v1::{InputParams, Page, SignalTarget};
use procd_protocol::{ErrorCode, Open};
use tokio::signal::unix::Signal;

use self::keys::{Keys, Typed};
use super::exit_code;
use super::input::Pipe;
use super::launch::decode;
use super::logs::tell_gap;
use crate::arguments::Attach;
use crate::exit::{Code, CtlError};
use crate::link::{Links, Target};
use crate::print;
use crate::screen::{self, Ends, Raw};

/// What is shown again of what came before: enough for a full screen.
const BEFORE_BYTES: i64 = 64 * 1024;
/// Bytes asked for at once.
const PAGE_BYTES_MAX: u64 = 256 * 1024;
/// When a program is told its size again.
const REMINDERS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// Puts back what a full-screen program may have left: the main screen, the cursor, colours, the
/// mouse, pasting, the keypad.
const FAREWELL: &str = "\u{1b}[?1049l\u{1b}[?25h\u{1b}[0m\u{1b}[?1000l\u{1b}[?1002l\u{1b}[?1006l\u{1b}[?2004l\u{1b}[?1l\u{1b}>\r\n";

/// Attaches until the process ends, or the detach keys are pressed.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn attach(links: &Links, attach: &Attach) -> Result<u8, CtlError> {
    let keys = Keys::parse(&attach.detach_keys)?;
    let target = links.find(&attach.id).await?;
    let record = target.process.inspect().await?.record;
    let is_terminal = record.tty.is_some();
    let takes_input = !target.is_operator && !attach.no_stdin;
    let is_screen = is_terminal && screen::is_interactive();
    if target.is_operator && !attach.no_stdin {
        let leave = if is_screen { "; Ctrl-C leaves it" } else { "" };
        let what = "another session's process: this is a view of it, nothing is passed on";
        print::message(&format!("{what}{leave}"));
    }
    let viewer = Viewer { target, reason: attach.reason.clone(), is_terminal };
    let left = match (is_screen, takes_input) {
        (true, true) => {
            let mut ends = Ends::install()?;
            tokio::select! {
                left = viewer.converse(keys, Drawn::Elsewhere) => left?,
                code = ends.next() => Left::Signalled(code),
            }
        }
        (true, false) => viewer.watch(keys).await?,
        (false, _) => viewer.look(takes_input).await?,
    };
    Ok(tell_end(left, &attach.id))
}

/// Starts looking at a process that was just started here, and types into it.
/// # Errors
/// As [`attach`].
pub(crate) async fn converse(target: Target, detach_keys: &str) -> Result<u8, CtlError> {
    let keys = Keys::parse(detach_keys)?;
    let name = target.process.id().to_string();
    let viewer = Viewer { target, reason: None, is_terminal: true };
    let left = if screen::is_interactive() {
        viewer.converse(keys, Drawn::Here).await?
    } else {
        viewer.look(true).await?
    };
    Ok(tell_end(left, &name))
}

/// The detach keys of `attach`, unless others are given.
pub(crate) const DETACH_KEYS: &str = "ctrl-p,ctrl-q";

/// Why a viewer went.
enum Left {
    /// The process has ended.
    Ended(Box<Page>),
    /// By the detach keys.
    Detached,
    /// A signal ended this program, which exits with that code.
    Signalled(u8),
}

fn tell_end(left: Left, name: &str) -> u8 {
    match left {
        Left::Detached => {
            print::message(&format!("detached; `procctl attach {name}` comes back"));
            Code::Ok.number()
        }
        Left::Ended(page) => {
            let code = exit_code(page.state.as_str(), page.exit_code, page.leader.as_ref());
            let how = match page.exit_code {
                Some(code) => format!(", code {code}"),
                None => String::new(),
            };
            print::message(&format!("the process has ended: {}{how}", page.state.as_str()));
            code
        }
        Left::Signalled(code) => code,
    }
}

/// For which window a program has drawn itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drawn {
    /// For this one: it was started with its size.
    Here,
    /// For another, or none.
    Elsewhere,
}

struct Viewer {
    target: Target,
    reason: Option<String>,
    is_terminal: bool,
}

impl Viewer {
    /// The output alone, and for an owner the lines of stdin.
    async fn look(&self, takes_input: bool) -> Result<Left, CtlError> {
        if !takes_input {
            return self.show().await;
        }
        let pipe = Pipe(self.target.process.clone());
        let mut typed = screen::typed();
        let passing = async {
            while let Some(bytes) = typed.recv().await {
                if let Err(error) = pipe.send(bytes).await {
                    tell_unless_ended(&error);
                    break;
                }
            }
            // Whoever only looks goes on: the end of stdin here is not the end there.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            end = self.show() => end,
            () = passing => Ok(Left::Detached),
        }
    }

    /// A terminal in a terminal.
    async fn converse(&self, keys: Keys, drawn: Drawn) -> Result<Left, CtlError> {
        let process = &self.target.process;
        let mut resized = screen::resized()?;
        let _raw = Raw::take(FAREWELL)?;
        if drawn == Drawn::Elsewhere {
            self.draw_again().await?;
        }
        tokio::select! {
            end = self.show() => end,
            typed = pass_on(process, keys) => typed.map(|()| Left::Detached),
            sized = follow_size(process, &mut resized) => sized.map(|()| Left::Detached),
            never = self.remind(), if drawn == Drawn::Elsewhere => match never {},
        }
    }

    /// What a terminal shows, in a terminal, and nothing is typed into it. Its size stays as it is.
    async fn watch(&self, keys: Keys) -> Result<Left, CtlError> {
        let mut ends = Ends::install()?;
        let _raw = Raw::take(FAREWELL)?;
        tokio::select! {
            end = self.show() => end,
            () = until_left(keys) => Ok(Left::Detached),
            code = ends.next() => Ok(Left::Signalled(code)),
        }
    }

    /// Has the program draw itself into this window: a size it does not have yet, then the real
    /// one, so that it is told in any case.
    async fn draw_again(&self) -> Result<(), CtlError> {
        let process = &self.target.process;
        if let Some((rows, cols)) = print::terminal_size() {
            if rows > 1 {
                resize(process, rows - 1, cols).await?;
            }
            resize(process, rows, cols).await?;
        }
        Ok(())
    }

    /// Tells the program again to look at its size: one that was just starting may have read the
    /// first of the two sizes and missed the signal that told of the second.
    async fn remind(&self) -> Infallible {
        for pause in REMINDERS {
            tokio::time::sleep(pause).await;
            // Whatever is wrong with it, the view tells.
            self.target.process.signal("SIGWINCH", SignalTarget::Foreground).await.ok();
        }
        std::future::pending().await
    }

    /// Shows what came lately and what comes, through the end.
    async fn show(&self) -> Result<Left, CtlError> {
        let mut follow = self.target.process.follow().base64().limit_bytes(PAGE_BYTES_MAX);
        if self.is_terminal {
            follow = follow.from(-BEFORE_BYTES);
        }
        if let Some(reason) = self.reason.clone().filter(|_| self.target.is_operator) {
            follow = follow.reason(reason);
        }
        let mut last = None;
        while let Some(page) = follow.next().await? {
            if !self.is_terminal {
                tell_gap(&page);
            }
            let bytes = decode(page.output.as_deref())?;
            if !bytes.is_empty() {
                let writing = tokio::task::spawn_blocking(move || print::data(&bytes));
                writing.await.unwrap_or(Ok(()))?;
            }
            last = Some(page);
        }
        let last = last.map(|page| Left::Ended(Box::new(page)));
        last.ok_or_else(|| CtlError::Answer("the daemon told no end of the process".to_owned()))
    }
}

/// Until the detach keys are pressed, or the key that interrupts.
async fn until_left(mut keys: Keys) {
    const INTERRUPT: u8 = 0x03;
    let mut typed = screen::typed();
    while let Some(bytes) = typed.recv().await {
        if keys.take(&bytes).is_detached || bytes.contains(&INTERRUPT) {
            return;
        }
    }
    // The keyboard is gone, the view stays.
    std::future::pending().await
}

/// Passes on what is typed, until the detach keys come.
async fn pass_on(process: &Process, mut keys: Keys) -> Result<(), CtlError> {
    let mut typed = screen::typed();
    while let Some(bytes) = typed.recv().await {
        let Typed { passed, is_detached } = keys.take(&bytes);
        if !passed.is_empty() {
            type_in(process, passed).await?;
        }
        if is_detached {
            return Ok(());
        }
    }
    // The keyboard is gone, the view stays.
    std::future::pending().await
}

async fn type_in(process: &Process, bytes: Vec<u8>) -> Result<(), CtlError> {
    match Pipe(process.clone()).send(bytes).await {
        Ok(()) => Ok(()),
        // It has ended: the view tells.
        Err(CtlError::Refused { code: Open::Known(ErrorCode::StdinClosed), .. }) => Ok(()),
        Err(CtlError::Refused {
            code: Open::Known(ErrorCode::InvalidArguments), message, ..
        }) => {
            // A line too long for the terminal: nothing of it was typed.
            print::message(&format!("{message}\r"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn follow_size(process: &Process, resized: &mut Signal) -> Result<(), CtlError> {
    while resized.recv().await.is_some() {
        if let Some((rows, cols)) = print::terminal_size() {
            resize(process, rows, cols).await?;
        }
    }
    std::future::pending().await
}

async fn resize(process: &Process, rows: u16, cols: u16) -> Result<(), CtlError> {
    let params = InputParams {
        rows: Some(u64::from(rows)),
        cols: Some(u64::from(cols)),
        ..process.no_input()
    };
    match process.input(&params).await {
        Ok(_) => Ok(()),
        // It has ended: the view tells.
        Err(error) if error.is(ErrorCode::StdinClosed) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn tell_unless_ended(error: &CtlError) {
    if !matches!(error, CtlError::Refused { code: Open::Known(ErrorCode::StdinClosed), .. }) {
        print::message(&error.to_string());
    }
}
