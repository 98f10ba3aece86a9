//! `procctl logs`: the output of a process, on stdout, both streams.
//!
//! On a terminal it is safe text, so that nothing in it acts on the terminal; elsewhere the exact
//! bytes.

mod timed;

use procd_protocol::v1::{Cursors, Encoding, OutputParams, Page, StreamFilter, Wait, WaitWord};

use super::launch::decode;
use crate::arguments::{Logs, StreamChoice};
use crate::exit::CtlError;
use crate::link::{Links, Target};
use crate::print::{self, Format};

/// Bytes asked for at once.
const PAGE_BYTES_MAX: u64 = 1024 * 1024;

/// Shows what is kept, or the last lines of it; with `--follow` through the end.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn logs(links: &Links, logs: &Logs, format: Format) -> Result<u8, CtlError> {
    let target = links.find(&logs.id).await?;
    let is_timed = logs.timestamps || logs.since.is_some() || logs.until.is_some();
    if is_timed && format == Format::Table {
        return timed::show(&target, logs).await;
    }
    let reader = Reader { encoding: encoding(logs, format), target, logs };
    let mut pages = Pages { format, encoding: reader.encoding, list: Vec::new() };
    let first = reader.first().await?;
    // Without --follow it ends where the output ended when it was asked for.
    let end = first.total_bytes;
    let mut last = pages.show(first)?;
    while !last.eof && (logs.follow || (last.more && last.next_cursor < end)) {
        let page = reader.page(&last, logs.follow).await?;
        if is_stuck(&last, &page) {
            if page.held_bytes.is_some() {
                // Half a character, or an open sequence: not text yet.
                break;
            }
            let what = "the daemon holds output back that it says is there".to_owned();
            return Err(CtlError::Answer(what));
        }
        last = pages.show(page)?;
    }
    pages.finish()?;
    Ok(0)
}

/// Whether the same would come for ever: more is there, and yet nothing of it comes.
fn is_stuck(last: &Page, page: &Page) -> bool {
    let is_same = page.next_cursor == last.next_cursor && page.total_bytes == last.total_bytes;
    is_same && page.more && page.state == last.state
}

fn encoding(logs: &Logs, format: Format) -> Encoding {
    let is_safe = logs.safe || (!logs.raw && format == Format::Table && print::is_terminal());
    if is_safe { Encoding::SafeText } else { Encoding::Base64 }
}

fn filter(stream: StreamChoice) -> StreamFilter {
    match stream {
        StreamChoice::Combined => StreamFilter::Combined,
        StreamChoice::Stdout => StreamFilter::Stdout,
        StreamChoice::Stderr => StreamFilter::Stderr,
    }
}

struct Reader<'arguments> {
    target: Target,
    encoding: Encoding,
    logs: &'arguments Logs,
}

impl Reader<'_> {
    /// Whether the JSON is to tell when each chunk arrived.
    const fn has_times(&self) -> bool {
        self.logs.timestamps || self.logs.since.is_some() || self.logs.until.is_some()
    }

    async fn first(&self) -> Result<Page, CtlError> {
        let from = match self.logs.tail {
            None => OutputParams { cursor: Some(Cursors::One(0)), ..OutputParams::default() },
            Some(0) => self.at_the_end().await?,
            Some(lines) => OutputParams { tail_lines: Some(lines), ..OutputParams::default() },
        };
        self.read(from).await
    }

    /// Parameters that begin where the output ends now.
    async fn at_the_end(&self) -> Result<OutputParams, CtlError> {
        let last = OutputParams { cursor: Some(Cursors::One(-1)), ..OutputParams::default() };
        let end = self.read(last).await?.total_bytes;
        Ok(OutputParams { cursor: Some(cursor(end)?), ..OutputParams::default() })
    }

    async fn page(&self, last: &Page, waits: bool) -> Result<Page, CtlError> {
        let wait = if waits { WaitWord::Any } else { WaitWord::Poll };
        let cursor = Some(cursor(last.next_cursor)?);
        self.read(OutputParams {
            cursor,
            wait: Some(Wait::Simple(wait)),
            ..OutputParams::default()
        })
        .await
    }

    async fn read(&self, params: OutputParams) -> Result<Page, CtlError> {
        let params = OutputParams {
            limit_bytes: Some(PAGE_BYTES_MAX),
            encoding: Some(self.encoding),
            stream: Some(filter(self.logs.stream)),
            tags: self.has_times().then_some(true),
            // Absent, an operator's is `procctl logs`, as given when it attached.
            reason: self.logs.reason.clone().filter(|_| self.target.is_operator),
            ..params
        };
        Ok(self.target.process.output(params).await?)
    }
}

/// A cursor as a request carries it.
/// # Errors
/// [`CtlError::Answer`] beyond what the wire can carry.
pub(crate) fn cursor(at: u64) -> Result<Cursors, CtlError> {
    i64::try_from(at)
        .map(Cursors::One)
        .map_err(|_wide| CtlError::Answer(format!("the daemon sent the cursor {at}")))
}

/// Tells of bytes that are not kept any more.
pub(crate) fn tell_gap(page: &Page) {
    if page.gap {
        let bytes = page.gap_bytes.unwrap_or(page.from_cursor.saturating_sub(page.start_cursor));
        print::message(&format!(
            "gap: {bytes} bytes of output from cursor {} on are not kept any more; the spool \
             holds the newest only",
            page.start_cursor
        ));
    }
}

struct Pages {
    format: Format,
    encoding: Encoding,
    list: Vec<Page>,
}

impl Pages {
    fn show(&mut self, page: Page) -> Result<Page, CtlError> {
        match self.format {
            Format::Table => {
                tell_gap(&page);
                match self.encoding {
                    Encoding::SafeText => {
                        print::data(page.output.as_deref().unwrap_or_default().as_bytes())?;
                    }
                    Encoding::Base64 => print::data(&decode(page.output.as_deref())?)?,
                }
            }
            Format::Jsonl => print::document(self.format, &page)?,
            Format::Json => self.list.push(page.clone()),
        }
        Ok(page)
    }

    fn finish(&self) -> Result<(), CtlError> {
        if self.format == Format::Json { print::document(self.format, &self.list) } else { Ok(()) }
    }
}
