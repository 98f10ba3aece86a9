//! `procctl input`, and how bytes reach the stdin of a process without ever outrunning it.

use std::io::Read;
use std::time::Duration;

use procd_client::Process;
use procd_protocol::ErrorCode;
use procd_protocol::v1::InputParams;
use tokio::sync::mpsc;

use crate::arguments::Input;
use crate::exit::CtlError;
use crate::handle::unmark;
use crate::link::Links;
use crate::print::{self, Format};

/// Bytes of one call: a quarter of the queue of a process.
const CALL_BYTES_MAX: usize = 256 * 1024;
/// Reads of stdin that wait to be sent.
const READS_AHEAD_MAX: usize = 2;
/// How long a full queue is left alone at first; it doubles up to the second.
const FULL_WAIT_FIRST: Duration = Duration::from_millis(1);
const FULL_WAIT_MAX: Duration = Duration::from_millis(50);

/// Sends the text, or all of stdin, then the end if asked.
/// # Errors
/// [`CtlError`], as the daemon says; of a text that was refused nothing is delivered.
pub(crate) async fn input(links: &Links, input: &Input, format: Format) -> Result<u8, CtlError> {
    let target = links.find(&input.id).await?;
    let pipe = Pipe(target.process.clone());
    let mut accepted = 0;
    match &input.text {
        Some(text) => {
            let line_end = if input.line { "\n" } else { "" };
            let bytes = format!("{}{line_end}", unmark(text)).into_bytes();
            accepted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if !bytes.is_empty() {
                pipe.send(bytes).await?;
            }
        }
        None if input.eof || !input.keys.is_empty() => {}
        None => {
            let mut reads = read_stdin();
            while let Some(read) = reads.recv().await {
                let bytes = read.map_err(cannot_read_stdin)?;
                accepted += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                pipe.send(bytes).await?;
            }
        }
    }
    if !input.keys.is_empty() {
        let params = InputParams { keys: Some(input.keys.clone()), ..target.process.no_input() };
        accepted += target.process.input(&params).await?.accepted_bytes;
    }
    if input.eof {
        pipe.send_end().await?;
    }
    if format != Format::Table {
        print::document(format, &serde_json::json!({ "accepted_bytes": accepted }))?;
    }
    Ok(0)
}

/// What went wrong while stdin was read.
pub(crate) fn cannot_read_stdin(source: std::io::Error) -> CtlError {
    CtlError::Io { what: "cannot read stdin".to_owned(), source }
}

/// Reads stdin on a thread of its own, which may stay in a read for ever: the program ends all
/// the same. A full channel makes it wait.
pub(crate) fn read_stdin() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (to, from) = mpsc::channel(READS_AHEAD_MAX);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; CALL_BYTES_MAX];
        loop {
            let read = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => Ok(buffer.get(..count).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = read.is_err();
            if to.blocking_send(read).is_err() || is_last {
                return;
            }
        }
    });
    from
}

/// The stdin of a process.
#[derive(Debug, Clone)]
pub(crate) struct Pipe(pub(crate) Process);

impl Pipe {
    /// Sends bytes, as many calls as they need, waiting as long as the process does not read. The
    /// daemon takes a call's bytes whole or not at all, so a retry never doubles any.
    /// # Errors
    /// [`CtlError`], as the daemon says.
    pub(crate) async fn send(&self, bytes: Vec<u8>) -> Result<(), CtlError> {
        for part in bytes.chunks(CALL_BYTES_MAX) {
            self.until_taken(Some(part)).await?;
        }
        Ok(())
    }

    /// Ends stdin behind what was sent.
    /// # Errors
    /// As [`Self::send`].
    pub(crate) async fn send_end(&self) -> Result<(), CtlError> {
        self.until_taken(None).await
    }

    /// Sends a part, or the end. A full queue tells nobody when it has room again, so it is asked
    /// again, ever more rarely.
    async fn until_taken(&self, part: Option<&[u8]>) -> Result<(), CtlError> {
        let mut pause = FULL_WAIT_FIRST;
        loop {
            let answer = match part {
                Some(part) => self.0.write(part).await,
                None => self.0.eof().await,
            };
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if error.is(ErrorCode::InputBackpressure) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FULL_WAIT_MAX);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
