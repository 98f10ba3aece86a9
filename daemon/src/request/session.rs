//! session/open, session/attach, session/close, session/list, operator/attach: what binds a
//! connection, and what there is.

use std::path::PathBuf;

use procd_core::{LoopId, Owner, SessionId};
use procd_protocol::v1;
use procd_protocol::{ErrorBody, ErrorCode, SessionKey, limits};

use super::error::wire;
use super::process::owner_of;
use super::{Client, Done, Reply, as_count, invalid, millis, record};
use crate::session::{AlreadyBound, Bound, Claim};
use crate::supervisor::refusal::Refusal;
use crate::supervisor::view::WaiterSlots;
use crate::supervisor::{PlaceOfSession, SessionQuotas, SessionRow, SessionRules};

/// Sessions of a page if none is asked for.
const LIST_LIMIT: u64 = 100;

fn claim(client: &Client) -> Result<Claim<'_>, ErrorBody> {
    client.binding.claim().map_err(|AlreadyBound| {
        ErrorBody::new(ErrorCode::PermissionDenied, "this connection is bound already")
    })
}

/// An id of the wire as one of the core. Both refuse the nil UUID, so neither fails here.
fn session_id(id: procd_protocol::SessionId) -> Result<SessionId, ErrorBody> {
    SessionId::new(id.uuid()).map_err(|error| invalid("session_id", error))
}

fn loop_id(id: procd_protocol::LoopId) -> Result<LoopId, ErrorBody> {
    LoopId::new(id.uuid()).map_err(|error| invalid("loop_id", error))
}

/// The names of an owner on the wire.
fn names(owner: Owner) -> Result<(procd_protocol::SessionId, procd_protocol::LoopId), ErrorBody> {
    let session = procd_protocol::SessionId::new(owner.session.uuid());
    let loop_id = procd_protocol::LoopId::new(owner.loop_id.uuid());
    session.zip(loop_id).ok_or_else(|| {
        tracing::error!("bug: an owner with a nil id");
        ErrorBody::new(ErrorCode::Internal, "internal error")
    })
}

pub(super) async fn open(
    client: &Client,
    params: v1::SessionOpenParams,
) -> Result<Done, ErrorBody> {
    let claim = claim(client)?;
    let rules = SessionRules {
        session_id: params.session_id.map(session_id).transpose()?,
        loop_id: params.loop_id.map(loop_id).transpose()?,
        key: params.session_key.map(|key| *key.as_bytes()),
        label: params.label,
        workspaces: params.workspaces.into_iter().flatten().map(PathBuf::from).collect(),
        guard: params.guard.unwrap_or(false),
        idle_close: params.idle_close_ms.map(millis),
        quotas: quotas(client, params.quotas.as_ref())?,
    };
    let opened = client.supervisor().await?.open_session(rules).await.map_err(|r| wire(&r))?;
    let (session_id, loop_id) = names(opened.owner)?;
    claim.bind(Bound::Owner {
        owner: opened.owner,
        waiters: opened.waiters,
        attachment: opened.attachment,
    });
    let result = v1::SessionOpenResult {
        session_id,
        loop_id,
        session_key: opened.minted_key.map(SessionKey::from_bytes),
        free: record::free(opened.free),
    };
    Ok(Reply::SessionOpen(Box::new(result)).into())
}

/// Quotas of a session may only lower the configured ones; 0 is the configured one. A loop may be
/// given all slots of its session: an owner of one line of work needs no other split.
fn quotas(client: &Client, given: Option<&v1::SessionQuotas>) -> Result<SessionQuotas, ErrorBody> {
    let Some(given) = given else { return Ok(SessionQuotas::default()) };
    let limits = client.daemon.limits();
    let lowered = |key: &str, value: Option<u64>| match value {
        None | Some(0) => Ok(None),
        Some(value) => {
            let bound = if key == "running_loop_max" { "running_session_max" } else { key };
            let max = limits.get(bound).unwrap_or(0);
            let why = format_args!("is {value}, above the configured {max}");
            if value > max { Err(invalid(&format!("quotas.{key}"), why)) } else { Ok(Some(value)) }
        }
    };
    Ok(SessionQuotas {
        running_loop_max: lowered("running_loop_max", given.running_loop_max)?,
        running_session_max: lowered("running_session_max", given.running_session_max)?,
        memory_session_bytes: lowered("memory_session_bytes", given.memory_session_bytes)?,
        spool_session_bytes: lowered("spool_session_bytes", given.spool_session_bytes)?,
        retained_session_max: lowered("retained_session_max", given.retained_session_max)?,
        waiters_session_max: lowered("waiters_session_max", given.waiters_session_max)?,
    })
}

pub(super) async fn attach(
    client: &Client,
    params: v1::SessionAttachParams,
) -> Result<Done, ErrorBody> {
    let claim = claim(client)?;
    let owner =
        Owner { session: session_id(params.session_id)?, loop_id: loop_id(params.loop_id)? };
    let key = *params.session_key.as_bytes();
    let supervisor = client.supervisor().await?;
    let attached = supervisor.attach_session(owner, key).await.map_err(|r| wire(&r))?;
    claim.bind(Bound::Owner {
        owner: attached.owner,
        waiters: attached.waiters,
        attachment: attached.attachment,
    });
    let result = v1::SessionAttachResult {
        session_id: params.session_id,
        loop_id: params.loop_id,
        label: attached.label,
        state: record::session_state(attached.state),
        totals: record::totals(&attached.totals),
        free: record::free(attached.free),
    };
    Ok(Reply::SessionAttach(Box::new(result)).into())
}

pub(super) async fn close(
    client: &Client,
    params: v1::SessionCloseParams,
) -> Result<Done, ErrorBody> {
    let v1::CloseScope::Session = params.scope;
    let owner = owner_of(client.bound()?.caller())?;
    let purge = params.purge.unwrap_or(false);
    let grace = params.grace_ms.map(millis);
    let supervisor = client.supervisor().await?;
    let closed = supervisor.close_session(owner, purge, grace).await.map_err(|r| wire(&r))?;
    let result = v1::SessionCloseResult {
        stopped: closed.stopped,
        failures: closed.failures.iter().map(record::stop_result).collect(),
    };
    Ok(Reply::SessionClose(Box::new(result)).into())
}

/// A page of all sessions. `after` names the last one of the page before.
pub(super) async fn list(
    client: &Client,
    params: v1::SessionListParams,
) -> Result<Done, ErrorBody> {
    let limit = as_count(params.limit.unwrap_or(LIST_LIMIT));
    let after = params.after.as_deref().map(place_of_session).transpose()?;
    let page = client.supervisor().await?.list_sessions(limit, after).await;
    let sessions = page.rows.into_iter().filter_map(session_entry).collect();
    let next = page.next.map(|(created, id)| format!("{created}/{}", id.uuid()));
    Ok(Reply::SessionList(v1::SessionListResult { sessions, next }).into())
}

fn place_of_session(text: &str) -> Result<PlaceOfSession, ErrorBody> {
    let place = text.split_once('/').and_then(|(created, id)| {
        Some((created.parse().ok()?, SessionId::new(id.parse().ok()?).ok()?))
    });
    place.ok_or_else(|| invalid("after", "is no `next` of a page before"))
}

fn session_entry(row: SessionRow) -> Option<v1::SessionEntry> {
    Some(v1::SessionEntry {
        session_id: procd_protocol::SessionId::new(row.id.uuid())?,
        label: row.label,
        state: record::session_state(row.state),
        totals: record::totals(&row.totals),
        bytes: row.bytes,
        last_used_at: row.last_used_at.to_string(),
    })
}

pub(super) async fn operator(
    client: &Client,
    params: v1::OperatorAttachParams,
) -> Result<Done, ErrorBody> {
    let claim = claim(client)?;
    let supervisor = client.supervisor().await?;
    let status = supervisor.status(None).await;
    let attachment = supervisor.attach_operator().await;
    let attachment = attachment.ok_or_else(|| wire(&Refusal::ShuttingDown { what: "daemon" }))?;
    let waiters = WaiterSlots::new(limits::OPERATOR_WAITERS_MAX);
    tracing::info!(target: crate::AUDIT, reason = params.reason, "an operator attached");
    claim.bind(Bound::Operator { waiters, reason: params.reason, attachment });
    let totals = record::totals(&status.totals);
    let result = v1::OperatorAttachResult { sessions: status.sessions, totals };
    Ok(Reply::OperatorAttach(result).into())
}
