//! `procctl start`: starts a command in the background and prints its handle.

use procd_protocol::v1::Stdin;

use super::launch::{self, tell_left_out};
use crate::arguments::{self, Start};
use crate::exit::CtlError;
use crate::link::Links;
use crate::print::{self, Format};

/// Starts it.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn start(links: &Links, start: &Start, format: Format) -> Result<u8, CtlError> {
    let stdin = match start.stdin {
        arguments::Stdin::Pipe => Stdin::Pipe,
        arguments::Stdin::Null => Stdin::Null,
    };
    let request = launch::request(&start.launch, stdin)?;
    if start.verbose {
        tell_left_out(&request.left_out);
    }
    let process = links.start(request.params).await?;
    match format {
        Format::Table => print::data(format!("{}\n", process.id()).as_bytes())?,
        Format::Json | Format::Jsonl => print::document(format, &process.reply())?,
    }
    Ok(0)
}
