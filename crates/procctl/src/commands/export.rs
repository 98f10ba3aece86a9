//! `procctl export`: the kept output of a process as it is, to a file or to stdout, checked by its
//! SHA-256.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use procd_client::{Exported, Piece};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant};

use crate::arguments::Export;
use crate::exit::CtlError;
use crate::link::Links;
use crate::print::{self, Format};
use crate::render::bytes;

/// Between two pictures of the bar.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// Characters of the bar itself.
const BAR_CHARS: u64 = 24;

/// Exports it. With a file nothing is left of one that did not come whole.
/// # Errors
/// [`CtlError`], as the daemon says; a checksum that does not fit.
pub(crate) async fn export(links: &Links, export: &Export, format: Format) -> Result<u8, CtlError> {
    let target = links.find(&export.id).await?;
    let record = target.process.inspect().await?.record;
    let wanted = record.total_bytes.saturating_sub(record.retained_from);
    let mut export_of = target.process.export();
    if let Some(reason) = export.reason.clone().filter(|_| target.is_operator) {
        export_of = export_of.reason(reason);
    }
    let to_file = export.output.as_deref().filter(|path| *path != Path::new("-"));
    // Not over the data itself.
    let is_seen = to_file.is_some() || !std::io::stdout().is_terminal();
    let bar = Bar::new(wanted, is_seen && std::io::stderr().is_terminal());
    let result = match to_file {
        Some(path) => save(export_of, path, bar).await?,
        None => copy(export_of, &mut std::io::stdout().lock(), bar).await?,
    };
    tell(&result, to_file, format)?;
    Ok(0)
}

/// Writes beside the file and moves it into place when it is whole.
async fn save(export: procd_client::Export, path: &Path, bar: Bar) -> Result<Saved, CtlError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let failed = |what: &str, path: &Path| {
        let what = format!("cannot {what} `{}`", path.display());
        move |source| CtlError::Io { what, source }
    };
    let mut file = File::create(&part).map_err(failed("make", &part))?;
    let copied = copy(export, &mut file, bar).await;
    let done = copied.and_then(|result| {
        file.sync_all().map_err(failed("write", &part))?;
        std::fs::rename(&part, path).map_err(failed("replace", path))?;
        Ok(result)
    });
    if done.is_err() {
        // What is left of it would look like an export.
        std::fs::remove_file(&part).ok();
    }
    done
}

async fn copy(
    mut export: procd_client::Export,
    to: &mut impl Write,
    mut bar: Bar,
) -> Result<Saved, CtlError> {
    let mut hash = Sha256::new();
    while let Some(piece) = export.next().await? {
        match piece {
            Piece::Bytes { bytes, .. } => {
                hash.update(&bytes);
                to.write_all(&bytes).map_err(written)?;
                bar.add(bytes.len() as u64);
            }
            Piece::Gap { from, to } => {
                bar.clear();
                print::message(&format!("gap: the bytes {from} to {to} are not kept any more"));
            }
        }
    }
    to.flush().map_err(written)?;
    bar.clear();
    let result = export.result();
    let result = result
        .ok_or_else(|| CtlError::Answer("the daemon told no end of the export".to_owned()))?;
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    match &result.sha256 {
        Some(theirs) if *theirs != hash => {
            let what = format!("the checksum is {hash}, and the daemon's is {theirs}");
            return Err(CtlError::Answer(format!("the export is damaged: {what}")));
        }
        Some(_same) => {}
        None => print::message("the connection broke on the way: the checksum was not compared"),
    }
    let Exported { from_cursor, end_cursor, bytes, gap_bytes, .. } = result;
    Ok(Saved { from_cursor, end_cursor, bytes, gap_bytes, sha256: hash })
}

/// What was exported.
#[derive(Debug, Serialize)]
struct Saved {
    from_cursor: u64,
    end_cursor: u64,
    bytes: u64,
    gap_bytes: u64,
    sha256: String,
}

fn written(source: std::io::Error) -> CtlError {
    if source.kind() == std::io::ErrorKind::BrokenPipe {
        return CtlError::StdoutClosed;
    }
    CtlError::Io { what: "cannot write the export".to_owned(), source }
}

fn tell(result: &Saved, to_file: Option<&Path>, format: Format) -> Result<(), CtlError> {
    let text = format!("{} bytes, sha256 {}", result.bytes, result.sha256);
    match (to_file, format) {
        // stdout has the data.
        (None, _) => {
            if std::io::stderr().is_terminal() {
                print::message(&text);
            }
            Ok(())
        }
        (Some(path), Format::Table) => {
            print::data(format!("{}: {text}\n", path.display()).as_bytes())
        }
        (Some(_), Format::Json | Format::Jsonl) => print::document(format, result),
    }
}

/// How far it is, on a terminal only.
struct Bar {
    done: u64,
    wanted: u64,
    shown: Option<Instant>,
    begun: Instant,
    is_on: bool,
}

impl Bar {
    fn new(wanted: u64, is_on: bool) -> Self {
        Self { done: 0, wanted, shown: None, begun: Instant::now(), is_on }
    }

    fn add(&mut self, more: u64) {
        self.done += more;
        let now = Instant::now();
        let is_due = self.shown.is_none_or(|shown| now.duration_since(shown) >= BAR_EVERY);
        if self.is_on && (is_due || self.done >= self.wanted) {
            self.shown = Some(now);
            let line = picture(self.done, self.wanted, now.duration_since(self.begun));
            // A bar that nobody sees is no failure.
            drop(print::error_data(format!("\r\u{1b}[K{line}").as_bytes()));
        }
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            drop(print::error_data(b"\r\x1b[K"));
        }
    }
}

/// Less than 80 columns, whatever is exported.
fn picture(done: u64, wanted: u64, took: Duration) -> String {
    let wanted = wanted.max(done).max(1);
    let percent = u128::from(done) * 100 / u128::from(wanted);
    let full = u128::from(done) * u128::from(BAR_CHARS) / u128::from(wanted);
    let full = usize::try_from(full).unwrap_or(0);
    let bar: String = (0..usize::try_from(BAR_CHARS).unwrap_or(0))
        .map(|at| if at < full { '█' } else { '░' })
        .collect();
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_mul(1000) / ms;
    format!("{bar} {percent:>3}%  {} of {}  {}/s", bytes(done), bytes(wanted), bytes(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fits_a_narrow_terminal_at_every_moment() {
        for (done, wanted) in [(0, 0), (0, 10), (5, 10), (10, 10), (11, 10), (u64::MAX, u64::MAX)] {
            let line = picture(done, wanted, Duration::from_secs(2));
            assert!(line.chars().count() < 80, "{line}");
        }
        let half = picture(512 * 1024, 1024 * 1024, Duration::from_secs(1));
        assert_eq!(half, "████████████░░░░░░░░░░░░  50%  512 KiB of 1.0 MiB  512 KiB/s");
    }
}
