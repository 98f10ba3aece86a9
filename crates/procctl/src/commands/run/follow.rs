//! Follows the output of one process, byte for byte, to the two standard streams.
//!
//! The next page is asked for while the last one is written. Nothing polls: a read waits in the
//! daemon for a byte or the end. Output that outran the spool's ceiling is a gap, told on stderr.

use procd_client::Process;
use procd_protocol::Open;
use procd_protocol::v1::{ChunkSource, Page};

use crate::commands::launch::decode;
use crate::commands::logs::tell_gap;
use crate::exit::CtlError;
use crate::print;
use crate::split::{Stream, Tag, split};

/// Bytes asked for at once: what one entry may hold.
const PAGE_BYTES_MAX: u64 = 1024 * 1024;

/// Follows from the first byte to the end and returns the last page, which tells the end.
/// - `expects_tags`: whether bytes without a tag are worth a word.
/// # Errors
/// [`CtlError::StdoutClosed`] when nobody reads any more, else as the daemon says.
pub(super) async fn follow(process: &Process, expects_tags: bool) -> Result<Page, CtlError> {
    let mut pages = process.follow().base64().tags().limit_bytes(PAGE_BYTES_MAX);
    let mut tells_mixed = expects_tags;
    let mut last = None;
    let mut next = pages.next().await?;
    while let Some(page) = next {
        tell_gap(&page);
        if tells_mixed && page.mixed {
            print::message("of some output the stream is not known any more; it goes to stdout");
            tells_mixed = false;
        }
        // Both at once; the first failure ends both.
        let reading = async { pages.next().await.map_err(CtlError::from) };
        let ((), read) = tokio::try_join!(write(&page), reading)?;
        next = read;
        last = Some(page);
    }
    last.ok_or_else(|| CtlError::Answer("the daemon told no end of the process".to_owned()))
}

/// Writes a page on a thread that may wait for the reader of stdout; nothing else waits with it.
async fn write(page: &Page) -> Result<(), CtlError> {
    let bytes = decode(page.output.as_deref())?;
    if bytes.is_empty() {
        return Ok(());
    }
    let (from, tags) = (page.from_cursor, tags(page));
    let writing = tokio::task::spawn_blocking(move || {
        for (stream, piece) in split(from, &bytes, &tags) {
            match stream {
                Stream::Stdout => print::data(piece)?,
                Stream::Stderr => print::error_data(piece)?,
            }
        }
        Ok(())
    });
    writing.await.unwrap_or_else(|error| {
        Err(CtlError::Answer(format!("writing the output broke off: {error}")))
    })
}

fn tags(page: &Page) -> Vec<Tag> {
    let chunks = page.chunks.iter().flatten();
    chunks
        .map(|chunk| Tag {
            start: chunk.start,
            end: chunk.end,
            stream: match chunk.source {
                Open::Known(ChunkSource::Stderr) => Stream::Stderr,
                Open::Known(ChunkSource::Stdout | ChunkSource::Mixed) | Open::Unknown(_) => {
                    Stream::Stdout
                }
            },
        })
        .collect()
}
