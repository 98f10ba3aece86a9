//! process/input: bytes for stdin, whole or not at all, and the output that follows.

use procd_protocol::v1::{self, Encoding, WokeBy};
use procd_protocol::words::Open;
use procd_protocol::{ErrorBody, limits};
use procd_store::record::TtySize;
use tokio::time::Instant;

use super::error::wire;
use super::output::page_at;
use super::page::{Form, Room};
use super::process::handle;
use super::wait::{self, Goal, Target};
use super::{Client, Done, FrameRoom, Reply, as_count, keys, millis};
use crate::session::Bound;
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{Given, Input};
use crate::supervisor::view::ProcessView;

pub(super) async fn input(
    client: &Client,
    mut params: v1::InputParams,
    room: FrameRoom,
) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let supervisor = client.supervisor().await?;
    let found = supervisor.find(bound.caller(), handle(params.process_id)).await;
    let view = found.map_err(|refusal| wire(&refusal))?;
    let stdin = stdin_of(&view).map_err(|refusal| wire(&refusal))?;
    let total_bytes = view.output.bounds().total;
    let cursor = params.cursor.unwrap_or(total_bytes);
    if cursor > total_bytes {
        return Err(wire(&Refusal::CursorAhead { cursor, total_bytes }));
    }
    // The slot is taken before anything is delivered: a refusal delivers nothing.
    let blocks = params.flush_ms.unwrap_or(0) > 0;
    let slot = blocks.then(|| bound.waiters().take()).transpose().map_err(|r| wire(&r))?;
    let keys = keys::all(params.keys.as_deref().unwrap_or_default())?;
    let given = Given {
        bytes: params.bytes(),
        keys: &keys,
        eof: params.eof.unwrap_or(false),
        size: size(params.rows, params.cols),
    };
    let accepted = stdin.push(given).map_err(|error| wire(&Refusal::Input(error)))?;
    // From now on the queue has the bytes.
    (params.data, params.data_base64) = (None, None);
    drop(room);
    let flushed = flush(client, stdin.as_ref(), params.flush_ms).await;
    drop(slot);
    let form = form(&params);
    let woke_by = follow(client, &bound, &view, cursor, &params).await?;
    let turn = client.turn().await;
    let snapshot = view.now();
    let page = page_at(&view, &snapshot, cursor, form, &mut Room::of_reply()).await;
    let result = v1::InputResult {
        accepted_bytes: accepted.accepted_bytes,
        pending_bytes: if flushed { 0 } else { accepted.pending_bytes },
        discarded_bytes: (accepted.discarded_bytes > 0).then_some(accepted.discarded_bytes),
        flushed,
        woke_by: Open::Known(woke_by),
        page: page.map_err(|refusal| wire(&refusal))?,
    };
    Ok(Done::big(Reply::Input(Box::new(result)), turn))
}

/// Ranges were checked when the request was read.
fn size(rows: Option<u64>, cols: Option<u64>) -> Option<TtySize> {
    let characters = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    Some(TtySize { rows: characters(rows?), cols: characters(cols?) })
}

/// The stdin of a process that can take some.
fn stdin_of(view: &ProcessView) -> Result<std::sync::Arc<dyn Input>, Refusal> {
    if view.now().is_terminal() {
        return Err(Refusal::StdinClosed { message: "the process has ended" });
    }
    let closed = Refusal::StdinClosed { message: "the process was started without a stdin" };
    view.input.clone().ok_or(closed)
}

fn form(params: &v1::InputParams) -> Form {
    let limit = as_count(params.limit_bytes.unwrap_or(limits::LIMIT_BYTES_DEFAULT));
    Form {
        encoding: params.encoding.unwrap_or(Encoding::SafeText),
        fold: params.fold.unwrap_or(false),
        ..Form::text(limit)
    }
}

/// Waits until nothing of the input is left unread, if that is asked; whether it came to that.
async fn flush(client: &Client, stdin: &dyn Input, flush_ms: Option<u64>) -> bool {
    let Some(limit) = flush_ms.filter(|&ms| ms > 0).map(millis) else { return false };
    tokio::select! {
        () = stdin.flushed() => true,
        () = wait::sleep_until(Some(Instant::now() + limit)) => false,
        () = client.ending().cancelled() => false,
    }
}

/// Waits for output behind `cursor` or the end, if that is asked.
async fn follow(
    client: &Client,
    bound: &Bound,
    view: &ProcessView,
    cursor: u64,
    params: &v1::InputParams,
) -> Result<WokeBy, ErrorBody> {
    let Some(limit) = params.yield_time_ms.filter(|&ms| ms > 0).map(millis) else {
        return Ok(WokeBy::Poll);
    };
    let mut targets = [Target::new(view, cursor)];
    wait::wait(client, bound, &mut targets, form(params), (Goal::Any, Some(limit))).await
}
