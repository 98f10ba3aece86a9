//! Follows the output of one process, byte for byte, to the two standard streams.
//!
//! The next page is asked for while the last one is written. Nothing polls: a read waits in the
//! daemon for a byte or the end. Output that outran the spool's ceiling is a gap, told on stderr.

use procd_protocol::Open;
use procd_protocol::ProcessId;
use procd_protocol::v1::{ChunkSource, Encoding, OutputParams, Page, Wait, WaitWord};

use crate::commands::launch::decode;
use crate::commands::logs::{cursor, single, tell_gap};
use crate::exit::CtlError;
use crate::link::Link;
use crate::print;
use crate::split::{Stream, Tag, split};

/// Bytes asked for at once: what one entry may hold.
const PAGE_BYTES_MAX: u64 = 1024 * 1024;

/// Follows from cursor `from` to the end and returns the last page, which tells the end.
/// - `expects_tags`: whether bytes without a tag are worth a word.
/// # Errors
/// [`CtlError::StdoutClosed`] when nobody reads any more, else as the daemon says.
pub(super) async fn follow(
    link: &Link,
    process_id: ProcessId,
    from: u64,
    expects_tags: bool,
) -> Result<Page, CtlError> {
    let mut page = read(link, process_id, from).await?;
    let mut tells_mixed = expects_tags;
    loop {
        tell_gap(&page);
        if tells_mixed && page.mixed {
            print::message("of some output the stream is not known any more; it goes to stdout");
            tells_mixed = false;
        }
        if page.eof {
            write(&page).await?;
            return Ok(page);
        }
        // Both at once; the first failure ends both.
        let next = read(link, process_id, page.next_cursor);
        let ((), next) = tokio::try_join!(write(&page), next)?;
        page = next;
    }
}

async fn read(link: &Link, process_id: ProcessId, from: u64) -> Result<Page, CtlError> {
    let params = OutputParams {
        process_id: Some(process_id),
        cursor: Some(cursor(from)?),
        limit_bytes: Some(PAGE_BYTES_MAX),
        encoding: Some(Encoding::Base64),
        tags: Some(true),
        wait: Some(Wait::Simple(WaitWord::Any)),
        ..OutputParams::default()
    };
    single(link.call(&params).await?.results)
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
