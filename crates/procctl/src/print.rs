//! The only place that writes to the standard streams: data on stdout, messages on stderr.
//!
//! A reader that closes stdout early is no failure: it has seen enough. Rust ignores SIGPIPE, so
//! it shows as [`CtlError::StdoutClosed`], which ends the program quietly.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::exit::CtlError;
use crate::render::Table;

/// How data is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
}

/// Writes data to stdout and flushes it.
/// # Errors
/// [`CtlError::StdoutClosed`] when nobody reads any more, [`CtlError::Io`] for the rest.
pub(crate) fn data(bytes: &[u8]) -> Result<(), CtlError> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()), "stdout")
}

/// Writes bytes of a command's stderr to stderr.
/// # Errors
/// As [`data`].
pub(crate) fn error_data(bytes: &[u8]) -> Result<(), CtlError> {
    written(io::stderr().lock().write_all(bytes), "stderr")
}

fn written(result: io::Result<()>, what: &'static str) -> Result<(), CtlError> {
    result.map_err(|source| {
        if source.kind() == io::ErrorKind::BrokenPipe {
            CtlError::StdoutClosed
        } else {
            CtlError::Io { what: format!("cannot write to {what}"), source }
        }
    })
}

/// Tells a person something, on stderr. Nobody to tell is no failure.
pub(crate) fn message(text: &str) {
    let line = format!("procctl: {text}\n");
    drop(io::stderr().lock().write_all(line.as_bytes()));
}

/// Writes one value as a JSON document: over several lines for `json`, in one for `jsonl`.
/// # Errors
/// As [`data`].
pub(crate) fn document(format: Format, value: &impl Serialize) -> Result<(), CtlError> {
    let text = match format {
        Format::Table | Format::Json => serde_json::to_string_pretty(value),
        Format::Jsonl => serde_json::to_string(value),
    };
    let text = text.map_err(|source| CtlError::Io {
        what: "cannot write the answer as JSON".to_owned(),
        source: source.into(),
    })?;
    data(format!("{text}\n").as_bytes())
}

/// Writes a list: one array for `json`, one line each for `jsonl`.
/// # Errors
/// As [`data`].
pub(crate) fn documents(format: Format, values: &[impl Serialize]) -> Result<(), CtlError> {
    match format {
        Format::Table | Format::Json => document(format, &values),
        Format::Jsonl => values.iter().try_for_each(|value| document(format, value)),
    }
}

/// Whether stdout shows colours: a terminal, and `NO_COLOR` not set to anything.
pub(crate) fn is_coloured() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a table, as wide as stdout has room for.
/// # Errors
/// As [`data`].
pub(crate) fn table(table: &Table) -> Result<(), CtlError> {
    data(table.to_text(is_coloured(), columns()).as_bytes())
}

/// The columns of stdout: of the terminal, else what `COLUMNS` says, else as many as one likes.
pub(crate) fn columns() -> Option<usize> {
    if let Some((_, columns)) = terminal_size() {
        return Some(usize::from(columns));
    }
    std::env::var_os("COLUMNS")?.to_str()?.parse().ok().filter(|columns| *columns > 0)
}

/// Rows and columns of the terminal that stdout is.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
