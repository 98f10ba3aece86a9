//! One page of output: bytes of a stretch as safe text or base64, and everything an entry says
//! of them and of their process. Source: spec, output.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use procd_protocol::limits;
use procd_protocol::v1::{self, Encoding};
use procd_protocol::words::Open;
use procd_store::StoreError;
use procd_store::spool::{Source, Tag};
use procd_text::{LOOK_AHEAD_BYTES, Raw};

use super::error::process_id;
use super::fold::{self, Fold};
use super::stretch::{self, Context, Filter, Stretch, Want, as_u64};
use super::{as_count, record};
use crate::drain::{Output, complete_here};
use crate::supervisor::view::{ProcessView, Snapshot};

/// Raw bytes that are rendered on the control thread; more of them are rendered beside it.
const INLINE_BYTES_MAX: usize = 128 * 1024;

/// How a page is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Bytes of text for safe text, raw bytes for base64.
    pub(super) limit: usize,
    pub(super) encoding: Encoding,
    pub(super) filter: Filter,
    pub(super) tags: bool,
    /// Whether overwritten lines are shown as a terminal would.
    pub(super) fold: bool,
    /// Whether bytes that are not kept any more fail the read.
    pub(super) gap_is_error: bool,
}

impl Form {
    /// Safe text of both streams, nothing else.
    pub(super) const fn text(limit: usize) -> Self {
        Self {
            limit,
            encoding: Encoding::SafeText,
            filter: Filter::Combined,
            tags: false,
            fold: false,
            gap_is_error: false,
        }
    }
}

/// What is left of one reply for its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Raw bytes that may still be looked at.
    pub(super) raw: usize,
    /// Bytes of text that may still be built.
    pub(super) text: usize,
}

impl Room {
    /// The room of a whole reply.
    pub(super) fn of_reply() -> Self {
        let bytes = as_count(limits::OUTPUT_REPLY_BYTES_MAX);
        Self { raw: bytes, text: bytes }
    }

    const fn is_empty(self) -> bool {
        self.raw == 0 || self.text == 0
    }
}

/// The bytes of a page.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) from: u64,
    pub(super) next: u64,
    /// Bytes between the cursor asked for and `from`.
    pub(super) gap_bytes: u64,
    pub(super) output: String,
    /// Wanted bytes that the page covers.
    pub(super) covered: usize,
    /// Bytes that are there and cannot be rendered yet.
    pub(super) held: usize,
    pub(super) normalized: bool,
    pub(super) binary: bool,
    /// The open line of a folded page.
    pub(super) pending_line: Option<String>,
    pub(super) mixed: bool,
    pub(super) chunks: Option<Vec<v1::Chunk>>,
}

/// Reads the bytes of a page. `is_ended`: nothing will be added any more. A long one is read and
/// rendered in one go beside the control thread.
pub(super) async fn content(
    output: &Output,
    cursor: u64,
    is_ended: bool,
    form: Form,
    room: Room,
) -> Result<Content, StoreError> {
    let there = output.bounds().total.saturating_sub(cursor);
    let is_big = form.limit > INLINE_BYTES_MAX && there > as_u64(INLINE_BYTES_MAX);
    if !is_big || form.fold {
        return content_here(output, cursor, is_ended, form, room).await;
    }
    let output = output.clone();
    let read = async move { content_here(&output, cursor, is_ended, form, room).await };
    beside(move || complete_here(read)).await
}

async fn content_here(
    output: &Output,
    cursor: u64,
    is_ended: bool,
    form: Form,
    room: Room,
) -> Result<Content, StoreError> {
    let (bytes, look_ahead) = match form.encoding {
        Encoding::SafeText => (form.limit.min(room.text), LOOK_AHEAD_BYTES),
        Encoding::Base64 => (form.limit.min(room.raw), 0),
    };
    if room.is_empty() {
        return Ok(Content { from: cursor, next: cursor, ..Content::default() });
    }
    if form.fold {
        return folded(output, cursor, is_ended, form.filter, (bytes, room)).await;
    }
    let want = Want {
        from: cursor,
        bytes: bytes + look_ahead,
        // What is only looked at is no part of the reply.
        raw_max: room.raw + look_ahead,
        filter: form.filter,
        tags: form.tags,
    };
    let mut stretch = stretch::read(output, want).await?;
    if stretch.end <= cursor && output.bounds().total > cursor {
        // Bytes came between the two looks: a page with `more` has to move on.
        stretch = stretch::read(output, want).await?;
    }
    let reaches_end = stretch.end >= output.bounds().total;
    let before = match form.encoding {
        Encoding::SafeText => stretch::context(output, stretch.from, form.filter).await?,
        Encoding::Base64 => Context::default(),
    };
    let at_end = stretch.is_before_gap || (is_ended && reaches_end);
    let mut content = build(&stretch, &before, at_end, bytes, (form, room));
    content.place(&stretch, cursor, form);
    if !reaches_end || content.covered + content.held < stretch.bytes.len() {
        content.held = 0;
    }
    Ok(content)
}

/// A folded page. The longest line has to fit what is left of the reply.
async fn folded(
    output: &Output,
    cursor: u64,
    is_ended: bool,
    filter: Filter,
    (limit, room): (usize, Room),
) -> Result<Content, StoreError> {
    if room.text < fold::ROOM_BYTES {
        return Ok(Content { from: cursor, next: cursor, ..Content::default() });
    }
    let mut fold = Fold::new(cursor, filter, limit);
    fold.advance(output, is_ended).await?;
    Ok(fold.content(output.bounds().total))
}

/// Does long work beside the control thread, so that it holds up nobody else.
pub(super) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

/// Text or base64 of the wanted bytes, as far as the limit goes.
fn build(
    stretch: &Stretch,
    before: &Context,
    at_end: bool,
    limit: usize,
    (form, room): (Form, Room),
) -> Content {
    let cut = if form.tags { tag_cut(stretch, form.filter) } else { stretch.bytes.len() };
    let raw = stretch.bytes.get(..cut.min(room.raw)).unwrap_or(&stretch.bytes);
    match form.encoding {
        Encoding::Base64 => encode(raw, limit),
        Encoding::SafeText => {
            let whole = Raw {
                context: &before.bytes,
                gap_before: before.is_after_gap,
                bytes: raw,
                at_end: at_end && raw.len() == stretch.bytes.len(),
            };
            let first = render(&whole, limit);
            if first.covered == 0 && raw.len() < stretch.bytes.len() {
                // More chunks than a page names, and no whole character in them.
                render(&Raw { bytes: &stretch.bytes, at_end, ..whole }, limit)
            } else {
                first
            }
        }
    }
}

fn encode(raw: &[u8], limit: usize) -> Content {
    let taken = raw.get(..limit).unwrap_or(raw);
    Content {
        output: STANDARD.encode(taken),
        covered: taken.len(),
        binary: procd_text::is_binary(taken),
        ..Content::default()
    }
}

fn render(raw: &Raw<'_>, limit: usize) -> Content {
    let page = procd_text::render(raw, limit);
    Content {
        output: page.text,
        covered: page.consumed,
        held: page.held_bytes,
        normalized: page.normalized,
        binary: procd_text::is_binary(raw.bytes.get(..page.consumed).unwrap_or_default()),
        ..Content::default()
    }
}

impl Content {
    fn place(&mut self, stretch: &Stretch, asked: u64, form: Form) {
        self.from = stretch.from;
        self.next = stretch.cursor_after(self.covered);
        self.gap_bytes = stretch.from - asked.min(stretch.from);
        self.mixed = form.filter != Filter::Combined && stretch.is_mixed(self.covered);
        if form.tags {
            let wanted = chunks(&stretch.tags, form.filter, self.from, self.next);
            self.chunks = Some(wanted.map(chunk).collect());
        }
    }

    /// Whether it holds nothing, though by now there is something behind it.
    pub(super) fn is_overtaken(&self, output: &Output, room: Room) -> bool {
        let is_empty = self.covered == 0 && self.held == 0 && self.pending_line.is_none();
        is_empty && self.next == self.from && !room.is_empty() && output.bounds().total > self.next
    }

    /// What it takes of the room of its reply.
    pub(super) const fn charge(&self, room: &mut Room) {
        room.raw = room.raw.saturating_sub(self.covered);
        room.text = room.text.saturating_sub(self.output.len());
    }
}

/// The tags of wanted bytes within a page, clipped to it.
fn chunks(tags: &[Tag], filter: Filter, from: u64, next: u64) -> impl Iterator<Item = Tag> {
    tags.iter().copied().filter_map(move |tag| {
        let clipped = Tag { start: tag.start.max(from), end: tag.end.min(next), ..tag };
        (clipped.start < clipped.end && filter.wants(tag.source)).then_some(clipped)
    })
}

/// How many wanted bytes the chunks that one page may name have.
fn tag_cut(stretch: &Stretch, filter: Filter) -> usize {
    let max = as_count(limits::TAGS_PER_PAGE_MAX);
    let mut named = chunks(&stretch.tags, filter, stretch.from, stretch.end);
    let Some(last) = named.nth(max - 1) else { return stretch.bytes.len() };
    if named.next().is_none() { stretch.bytes.len() } else { stretch.bytes_before(last.end) }
}

fn chunk(tag: Tag) -> v1::Chunk {
    let source = match tag.source {
        Source::Stdout => v1::ChunkSource::Stdout,
        Source::Stderr => v1::ChunkSource::Stderr,
        Source::Mixed => v1::ChunkSource::Mixed,
    };
    let at = tag.at_unix_ns.and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok());
    v1::Chunk {
        start: tag.start,
        end: tag.end,
        source: Open::Known(source),
        at: at.map(|at| at.to_string()),
    }
}

/// The entry of a page that starts at `start` as asked, resolved.
pub(super) fn entry(
    view: &ProcessView,
    snapshot: &Snapshot,
    start: u64,
    content: Content,
) -> v1::Page {
    let bounds = view.output.bounds();
    let total = bounds.total.max(content.next);
    let record = &snapshot.record;
    let filtered = content.next - content.from - as_u64(content.covered);
    let id = process_id(view.handle);
    let is_known = |count: u64| (count > 0).then_some(count);
    v1::Page {
        process_id: id,
        state: record::state(record.state),
        start_cursor: start,
        from_cursor: content.from,
        next_cursor: content.next,
        total_bytes: total,
        retained_from: bounds.retained_from,
        gap: content.gap_bytes > 0,
        gap_bytes: is_known(content.gap_bytes),
        more: total > content.next,
        eof: snapshot.is_terminal() && total == content.next,
        output: Some(content.output),
        artifact: v1::Artifact {
            id,
            encoding: Open::Known(Encoding::Base64),
            start_cursor: content.from,
            end_cursor: content.next,
        },
        filtered_bytes: is_known(filtered),
        mixed: content.mixed,
        held_bytes: is_known(as_u64(content.held)),
        pending_line: content.pending_line,
        normalized: content.normalized,
        binary: content.binary,
        chunks: content.chunks,
        found: None,
        exit_code: record.exit_code,
        leader: record.leader.as_ref().map(record::leader),
        reason: record.reason.map(record::reason),
        started_at: record.started_at.map(|at| at.to_string()),
        finished_at: record.finished_at.map(|at| at.to_string()),
        duration_ms: record.duration_ms,
        durable: record::durable(snapshot),
    }
}
