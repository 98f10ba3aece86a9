//! lease/acquire, lease/release, and the claim of a start.

use std::path::PathBuf;

use procd_core::lease::ClaimKind;
use procd_protocol::ErrorBody;
use procd_protocol::v1;
use tokio_util::sync::CancellationToken;

use super::error::wire;
use super::process::owner_of;
use super::{Client, Done, Reply, millis};
use crate::supervisor::runner::AskedClaim;

/// The claim of a start.
pub(super) fn claim(claim: v1::WorkspaceClaim) -> AskedClaim {
    let kind = match claim.access {
        v1::Access::ReadOnly => ClaimKind::ReadOnly,
        v1::Access::ScopedWrite => ClaimKind::ScopedWrite,
        v1::Access::BroadWrite => ClaimKind::BroadWrite,
    };
    AskedClaim {
        kind,
        root: PathBuf::from(claim.root),
        paths: claim.paths.into_iter().flatten().map(PathBuf::from).collect(),
        prefix: "workspace.",
    }
}

pub(super) async fn acquire(
    client: &Client,
    params: v1::LeaseAcquireParams,
    cancel: &CancellationToken,
) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let owner = owner_of(bound.caller())?;
    let timeout = params.timeout_ms.map(millis).unwrap_or_default();
    // Waiting takes one of the session's slots; asking does not.
    let slot = if timeout.is_zero() { None } else { Some(bound.waiters().take()) };
    let _slot = slot.transpose().map_err(|refusal| wire(&refusal))?;
    let asked = AskedClaim {
        kind: match params.kind {
            v1::LeaseKind::StructuredWrite => ClaimKind::StructuredWrite,
            v1::LeaseKind::Snapshot => ClaimKind::Snapshot,
        },
        root: PathBuf::from(params.root),
        paths: params.paths.into_iter().flatten().map(PathBuf::from).collect(),
        prefix: "",
    };
    let connection = bound.connection();
    let supervisor = client.supervisor().await?;
    // Its own connection's end, too, drops this future: what it waits for ends by `cancel`.
    let gone = cancel.child_token();
    let _gone = gone.clone().drop_guard();
    let waiter = gone.clone();
    let acquiring = tokio::spawn(async move {
        supervisor.acquire_lease(owner, connection, asked, timeout, &waiter).await
    });
    let lease = acquiring.await.unwrap_or_else(|error| {
        tracing::error!(%error, "bug: acquiring a lease panicked");
        Err(crate::supervisor::refusal::Refusal::Internal)
    });
    let lease = lease.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::LeaseAcquire(v1::LeaseAcquireResult { lease_id: lease.id }).into())
}

pub(super) async fn release(
    client: &Client,
    params: v1::LeaseReleaseParams,
) -> Result<Done, ErrorBody> {
    let owner = owner_of(client.bound()?.caller())?;
    let supervisor = client.supervisor().await?;
    let released = supervisor.release_lease(owner, params.lease_id).await;
    released.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::Empty(v1::Empty {}).into())
}
