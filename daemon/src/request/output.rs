//! process/output: pages of one or more processes, with or without a wait before them.

use std::collections::HashMap;

use procd_core::Handle;
use procd_protocol::v1::{
    self, Encoding, Entry, Method, OnGap, StreamFilter, Wait, WaitWord, WokeBy,
};
use procd_protocol::words::Open;
use procd_protocol::{ErrorBody, ProcessId, limits};

use super::error::{of_read, unsuccessful, wire};
use super::page::{self, Content, Form, Room};
use super::process::handle;
use super::stretch::Filter;
use super::until::{Found, Until};
use super::wait::{self, Goal, Target};
use super::{Client, Done, Reply, as_count, log_reason, millis, tail};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::view::ProcessView;

/// How often a page is read that was overtaken by the output it did not find, a count.
const PAGE_TRIES: u32 = 4;

/// One process of the call.
#[derive(Debug)]
struct Asked {
    id: ProcessId,
    read: Result<(ProcessView, Start), Refusal>,
}

/// Where to read from.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// A cursor, resolved on arrival.
    At(u64),
    /// The newest of so many lines, looked for when the reply is built.
    Lines { lines: u64, retained_from: u64 },
}

pub(super) async fn output(client: &Client, params: v1::OutputParams) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let handles: Vec<_> = params.targets().iter().map(|&id| handle(id)).collect();
    log_reason(&bound, params.reason.as_deref(), Method::ProcessOutput, &handles)?;
    let goal = goal(params.wait.as_ref())?;
    let supervisor = client.supervisor().await?;
    let found = supervisor.find_all(bound.caller(), handles).await;
    let asked: Vec<_> = params
        .targets()
        .iter()
        .zip(found)
        .enumerate()
        .map(|(index, (&id, view))| Asked { id, read: locate(view, &params, index) })
        .collect();
    let form = form(&params);
    let mut found = HashMap::new();
    let woke_by = match goal {
        None => WokeBy::Poll,
        Some(goal) => {
            let mut targets: Vec<_> = asked.iter().filter_map(Asked::target).collect();
            let limit = params.timeout_ms.map(millis);
            let woke_by = wait::wait(client, &bound, &mut targets, form, (goal, limit)).await?;
            found = targets.into_iter().filter_map(Target::into_found).collect();
            woke_by
        }
    };
    let turn = client.turn().await;
    let results = entries(asked, form, found).await;
    if params.require_success == Some(true)
        && let [Entry::Page(page)] = results.as_slice()
    {
        require_success(page)?;
    }
    let result = v1::OutputResult { results, woke_by: Open::Known(woke_by) };
    Ok(Done::big(Reply::Output(result), turn))
}

fn goal(wait: Option<&Wait>) -> Result<Option<Goal>, ErrorBody> {
    match wait {
        None | Some(Wait::Simple(WaitWord::Poll)) => Ok(None),
        Some(Wait::Simple(WaitWord::Any)) => Ok(Some(Goal::Any)),
        Some(Wait::Simple(WaitWord::All)) => Ok(Some(Goal::All)),
        Some(Wait::Simple(WaitWord::Exit)) => Ok(Some(Goal::Exit)),
        Some(Wait::Until(until)) => Ok(Some(Goal::Until(Box::new(Until::new(until)?)))),
    }
}

fn form(params: &v1::OutputParams) -> Form {
    let filter = match params.stream {
        None | Some(StreamFilter::Combined) => Filter::Combined,
        Some(StreamFilter::Stdout) => Filter::Stdout,
        Some(StreamFilter::Stderr) => Filter::Stderr,
    };
    Form {
        limit: as_count(params.limit_bytes.unwrap_or(limits::LIMIT_BYTES_DEFAULT)),
        encoding: params.encoding.unwrap_or(Encoding::SafeText),
        filter,
        tags: params.tags.unwrap_or(false),
        fold: params.fold.unwrap_or(false),
        gap_is_error: params.on_gap == Some(OnGap::Error),
    }
}

/// Resolves where the call reads one process from.
fn locate(
    view: Result<ProcessView, Refusal>,
    params: &v1::OutputParams,
    index: usize,
) -> Result<(ProcessView, Start), Refusal> {
    let view = view?;
    let bounds = view.output.bounds();
    let start = match (params.tail_lines, &params.cursor) {
        (Some(lines), _) => Start::Lines { lines, retained_from: bounds.retained_from },
        (None, None) => Start::At(0),
        (None, Some(cursors)) => {
            Start::At(resolve(cursors.at(index), bounds.total, bounds.retained_from)?)
        }
    };
    Ok((view, start))
}

/// A cursor as asked: negative = from the end, never before what is kept.
fn resolve(cursor: i64, total_bytes: u64, retained_from: u64) -> Result<u64, Refusal> {
    let Ok(cursor) = u64::try_from(cursor) else {
        let back = cursor.unsigned_abs();
        return Ok(total_bytes.saturating_sub(back).max(retained_from));
    };
    if cursor > total_bytes {
        return Err(Refusal::CursorAhead { cursor, total_bytes });
    }
    Ok(cursor)
}

impl Asked {
    fn target(&self) -> Option<Target> {
        let (view, start) = self.read.as_ref().ok()?;
        Some(Target::new(
            view,
            match start {
                Start::At(cursor) => *cursor,
                Start::Lines { retained_from, .. } => *retained_from,
            },
        ))
    }
}

/// The entries in the order asked, sharing the room of one reply in that order.
async fn entries(asked: Vec<Asked>, form: Form, mut found: HashMap<Handle, Found>) -> Vec<Entry> {
    let mut room = Room::of_reply();
    let mut entries = Vec::with_capacity(asked.len());
    for Asked { id, read } in asked {
        let page = match read {
            Ok((view, start)) => {
                let page = read_page(&view, start, form, &mut room).await;
                page.map(|page| v1::Page { found: found.remove(&view.handle).map(excerpt), ..page })
            }
            Err(refusal) => Err(refusal),
        };
        entries.push(match page {
            Ok(page) => Entry::Page(Box::new(page)),
            Err(refusal) => Entry::Failed { process_id: id, error: wire(&refusal).into() },
        });
    }
    entries
}

fn excerpt(found: Found) -> v1::Excerpt {
    v1::Excerpt { text: found.text, start_cursor: found.start, end_cursor: found.end }
}

/// Refuses an end that is no success. A code that is not zero is none of the caller's errors.
pub(super) fn require_success(page: &v1::Page) -> Result<(), ErrorBody> {
    let state = page.state.known();
    state.and_then(|state| unsuccessful(state, page.process_id)).map_or(Ok(()), Err)
}

async fn read_page(
    view: &ProcessView,
    start: Start,
    form: Form,
    room: &mut Room,
) -> Result<v1::Page, Refusal> {
    // First the snapshot: when it shows the end, the bytes are complete.
    let snapshot = view.now();
    let cursor = match start {
        Start::At(cursor) => cursor,
        Start::Lines { lines, .. } => {
            tail::lines_start(&view.output, lines, form).await.map_err(|error| of_read(&error))?
        }
    };
    page_at(view, &snapshot, cursor, form, room).await
}

/// The page of a process from `cursor` on.
pub(super) async fn page_at(
    view: &ProcessView,
    snapshot: &crate::supervisor::view::Snapshot,
    cursor: u64,
    form: Form,
    room: &mut Room,
) -> Result<v1::Page, Refusal> {
    let mut content = Content::default();
    for _ in 0..PAGE_TRIES {
        let read = page::content(&view.output, cursor, snapshot.is_terminal(), form, *room).await;
        content = read.map_err(|error| of_read(&error))?;
        // What came while an empty page was read would make it one that says `more` and moves on
        // by nothing.
        if !content.is_overtaken(&view.output, *room) {
            break;
        }
    }
    if content.gap_bytes > 0 && form.gap_is_error {
        return Err(Refusal::CursorGap { cursor, retained_from: content.from });
    }
    content.charge(room);
    Ok(page::entry(view, snapshot, cursor, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_cursors_count_from_the_end_and_stay_within_what_is_kept() {
        assert_eq!(resolve(0, 100, 40).unwrap(), 0);
        assert_eq!(resolve(100, 100, 40).unwrap(), 100);
        assert_eq!(resolve(-10, 100, 40).unwrap(), 90);
        assert_eq!(resolve(-1000, 100, 40).unwrap(), 40);
        assert_eq!(resolve(-1, 0, 0).unwrap(), 0);
        let ahead = Refusal::CursorAhead { cursor: 101, total_bytes: 100 };
        assert_eq!(resolve(101, 100, 40).unwrap_err(), ahead);
    }
}
