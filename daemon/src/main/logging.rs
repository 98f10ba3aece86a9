//! Logs: text or JSON lines, to stderr or to a private daemon's file.

use std::error::Error;
use std::io::{self, Write};

use procd::config::{Choices, LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::limited::Limited;

/// Says a line on stderr, if anybody listens there.
pub(crate) fn say(line: &str) {
    let mut out = io::stderr().lock();
    // Without a stderr there is nobody to tell.
    drop(writeln!(out, "{line}"));
}

/// Writes data to stdout.
pub(crate) fn print(text: &str) {
    // A reader that has seen enough is no failure.
    drop(io::stdout().lock().write_all(text.as_bytes()));
}

/// The sentence of an error with those of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        sentence = format!("{sentence}: {inner}");
        cause = inner.source();
    }
    sentence
}

/// Starts logging to `writer`.
pub(crate) fn start<W>(choices: &Choices, writer: W)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = match choices.log_level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let writer = Limited::new(writer, choices.log_format);
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    let started = match choices.log_format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        say(&format!("procd: logging cannot be started: {error}"));
    }
}
