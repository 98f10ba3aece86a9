//! process/stop, session/stop_all, process/signal, process/inspect, process/list.

use procd_core::{Handle, StopMode};
use procd_protocol::v1;
use procd_protocol::{ErrorBody, ErrorCode, ProcessId, limits};

use super::error::wire;
use super::{Client, Done, Reply, as_count, invalid, millis, record};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::runner::{Delivered, SignalTarget, TreeView};
use crate::supervisor::view::ProcessView;
use crate::supervisor::{Caller, ListFilter, PlaceInList, PlacedView, StopOutcome, StopScope};

/// The handle of a name on the wire.
pub(super) const fn handle(id: ProcessId) -> Handle {
    Handle::from_bytes(*id.as_bytes())
}

fn internal() -> ErrorBody {
    wire(&Refusal::Internal)
}

pub(super) async fn stop(client: &Client, params: v1::StopParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let mode = stop_mode(params.mode);
    let grace = params.grace_ms.map(millis);
    let supervisor = client.supervisor().await?;
    let outcome = supervisor.stop(caller, handle(params.process_id), mode, grace).await;
    match outcome.map_err(|refusal| wire(&refusal))? {
        StopOutcome { error: Some(refusal), .. } => Err(wire(&refusal)),
        outcome @ StopOutcome { error: None, .. } => {
            Ok(Reply::Stop(Box::new(record::stop_result(&outcome))).into())
        }
    }
}

pub(super) async fn signal(client: &Client, params: v1::SignalParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let signal = match &params.signal {
        v1::SignalName::Number(number) => i32::try_from(*number).ok(),
        v1::SignalName::Name(name) => procd_core::signal::number(name),
    };
    let signal = signal.ok_or_else(|| invalid("signal", "is no signal, such as `SIGHUP`"))?;
    let target = match params.target {
        None | Some(v1::SignalTarget::Leader) => SignalTarget::Leader,
        Some(v1::SignalTarget::Tree) => SignalTarget::Tree,
        Some(v1::SignalTarget::Foreground) => SignalTarget::Foreground,
    };
    let supervisor = client.supervisor().await?;
    let found = supervisor.find(caller, handle(params.process_id)).await;
    let view = found.map_err(|refusal| wire(&refusal))?;
    let delivered = match &view.signaller {
        Some(signaller) => signaller.signal(signal, target).await,
        None => Ok(Delivered::default()),
    };
    let delivered = delivered.map_err(|error| wire(&Refusal::Signal(error)))?;
    Ok(Reply::Signal(v1::SignalResult {
        delivered: u64::from(delivered.count),
        signal_errors: record::signal_errors(&delivered.errors),
    })
    .into())
}

/// Stops all that runs of a loop or a session, in one grace period.
pub(super) async fn stop_all(
    client: &Client,
    params: v1::StopAllParams,
) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let session = match (caller, params.scope, params.session_id) {
        (Caller::Owner(_), _, Some(_)) => return Err(invalid("session_id", "is for operators")),
        (Caller::Operator, Some(_), _) => return Err(invalid("scope", "is for owners")),
        (Caller::Operator, None, None) => {
            return Err(invalid("session_id", "is missing: an operator names the session"));
        }
        (Caller::Owner(_), _, None) => None,
        (Caller::Operator, None, Some(id)) => Some(procd_core::SessionId::new(id.uuid())),
    };
    let session = session.transpose().map_err(|error| invalid("session_id", error))?;
    let which = StopScope { whole_session: params.scope == Some(v1::Scope::Session), session };
    let mode = params.mode.map_or(StopMode::Terminate, stop_mode);
    let supervisor = client.supervisor().await?;
    let outcomes = supervisor.stop_all(caller, which, mode, params.grace_ms.map(millis)).await;
    let outcomes = outcomes.map_err(|refusal| wire(&refusal))?;
    let results = outcomes.iter().map(record::stop_result).collect();
    Ok(Reply::StopAll(v1::StopAllResult { results }).into())
}

const fn stop_mode(mode: v1::StopMode) -> StopMode {
    match mode {
        v1::StopMode::Interrupt => StopMode::Interrupt,
        v1::StopMode::Terminate => StopMode::Terminate,
        v1::StopMode::Kill => StopMode::Kill,
    }
}

pub(super) async fn inspect(client: &Client, params: v1::InspectParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let supervisor = client.supervisor().await?;
    let found = supervisor.find(caller, handle(params.process_id)).await;
    let view = found.map_err(|refusal| wire(&refusal))?;
    let tree = look(&view).await;
    let pids = match caller {
        Caller::Owner(_) => None,
        Caller::Operator => Some(tree.pids),
    };
    let result = v1::InspectResult {
        record: record::record(&view).ok_or_else(internal)?,
        live_descendants: u64::from(tree.live_descendants),
        usage: v1::Usage { cpu_ms: tree.cpu_ms, memory_bytes: tree.memory_bytes },
        pids,
    };
    Ok(Reply::Inspect(Box::new(result)).into())
}

/// A look at the tree, off this thread: it reads files of the kernel and may wait.
async fn look(view: &ProcessView) -> TreeView {
    let Some(inspector) = view.inspector.clone().filter(|_| !view.now().is_terminal()) else {
        return TreeView::default();
    };
    match tokio::task::spawn_blocking(move || inspector.look()).await {
        Ok(seen) => seen.unwrap_or_default(),
        Err(error) => {
            tracing::error!(%error, "bug: looking at a tree panicked");
            TreeView::default()
        }
    }
}

pub(super) async fn list(client: &Client, params: v1::ListParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let filter = filter(caller, &params)?;
    let supervisor = client.supervisor().await?;
    let turn = client.turn().await;
    let page = supervisor.list(caller, filter).await.map_err(|refusal| wire(&refusal))?;
    let (records, cut_at) = fitting(&page.views)?;
    let next = cut_at.or(page.next).map(place_text);
    let free = match caller {
        Caller::Owner(_) => page.free.map(record::free),
        Caller::Operator => None,
    };
    let totals = record::totals(&page.totals);
    Ok(Done::big(Reply::List(v1::ListResult { records, next, totals, free }), turn))
}

fn filter(caller: Caller, params: &v1::ListParams) -> Result<ListFilter, ErrorBody> {
    match (caller, &params.scope, &params.session_id) {
        (Caller::Owner(_), _, Some(_)) => return Err(invalid("session_id", "is for operators")),
        (Caller::Operator, Some(_), _) => return Err(invalid("scope", "is for owners")),
        (Caller::Owner(_), _, None) | (Caller::Operator, None, _) => {}
    }
    let session = params.session_id.map(|id| procd_core::SessionId::new(id.uuid())).transpose();
    let after = params.after.as_deref().map(place_of).transpose();
    Ok(ListFilter {
        whole_session: params.scope == Some(v1::Scope::Session),
        session: session.map_err(|error| invalid("session_id", error))?,
        state: params.state.map(record::state_of),
        label: params.label.clone(),
        limit: as_count(params.limit.unwrap_or(limits::LIST_LIMIT_DEFAULT)),
        after: after?,
    })
}

/// As many records as fit a reply, and the last of them if some are left out.
fn fitting(views: &[PlacedView]) -> Result<(Vec<v1::Record>, Option<PlaceInList>), ErrorBody> {
    let mut room = as_count(limits::OUTPUT_REPLY_BYTES_MAX);
    let mut records = Vec::with_capacity(views.len());
    let mut last = None;
    for view in views {
        let shown = record::record(&view.view).ok_or_else(internal)?;
        let size = serde_json::to_vec(&shown).map_or(0, |text| text.len());
        if size > room && last.is_some() {
            return Ok((records, last));
        }
        room = room.saturating_sub(size);
        records.push(shown);
        last = Some(view.place());
    }
    Ok((records, None))
}

/// What `next` says: opaque to a client.
fn place_text(place: PlaceInList) -> String {
    format!("{}.{}", place.number, place.handle)
}

fn place_of(text: &str) -> Result<PlaceInList, ErrorBody> {
    let parts = text.split_once('.');
    let place = parts.and_then(|(number, handle)| {
        Some(PlaceInList { number: number.parse().ok()?, handle: handle.parse().ok()? })
    });
    place.ok_or_else(|| invalid("after", "is no `next` of an earlier page"))
}

pub(super) async fn remove(client: &Client, params: v1::RemoveParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let supervisor = client.supervisor().await?;
    let removed = supervisor.remove(caller, handle(params.process_id)).await;
    removed.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::Remove(v1::RemoveResult { removed: true }).into())
}

pub(super) async fn pin(client: &Client, params: v1::PinParams) -> Result<Done, ErrorBody> {
    let caller = client.bound()?.caller();
    let supervisor = client.supervisor().await?;
    let pinned = supervisor.pin(caller, handle(params.process_id), params.pinned).await;
    let pinned = pinned.map_err(|refusal| wire(&refusal))?;
    let result = v1::PinResult { pinned: pinned.is_pinned, pinned_bytes: pinned.pinned_bytes };
    Ok(Reply::Pin(result).into())
}

/// For an owner's call on a connection that has none: the role table lets none through.
pub(super) fn owner_of(caller: Caller) -> Result<procd_core::Owner, ErrorBody> {
    match caller {
        Caller::Owner(owner) => Ok(owner),
        Caller::Operator => {
            Err(ErrorBody::new(ErrorCode::PermissionDenied, "an operator owns no process"))
        }
    }
}
