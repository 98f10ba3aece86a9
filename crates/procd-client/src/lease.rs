//! Claims on a workspace by a client for its own edits or copies. They end with the connection
//! they were made on, and the holder is told.

use std::sync::Arc;
use std::time::Duration;

use procd_protocol::v1::{LeaseAcquireParams, LeaseKind, LeaseReleaseParams};
use uuid::Uuid;

use crate::connect::Client;
use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::link::Link;
use crate::process::millis;

/// A claim that is put together and then made.
#[derive(Debug, Clone)]
#[must_use = "it does nothing before it is acquired"]
pub struct LeaseRequest {
    link: Arc<Link>,
    params: LeaseAcquireParams,
}

impl LeaseRequest {
    pub(crate) const fn new(link: Arc<Link>, root: String, kind: LeaseKind) -> Self {
        let params = LeaseAcquireParams { root, kind, paths: None, timeout_ms: None };
        Self { link, params }
    }

    /// Only these paths in it, at most 256.
    pub fn paths<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.params.paths = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// How long to wait for it; not at all if it is not said.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.params.timeout_ms = Some(millis(time));
        self
    }

    /// Makes the claim. Dropping the wait ends it.
    /// # Errors
    /// `workspace_busy`; else as [`Client::call`].
    pub async fn acquire(self) -> Result<Lease, ClientError> {
        // One that was granted on a connection that broke is gone with it, so a repeat is safe.
        let client = self.link.client().await?;
        match client.call_cancelling(&self.params).await {
            Err(ClientError::Disconnected { .. }) => {}
            answer => return Ok(Lease::new(client, answer?.lease_id)),
        }
        let client = self.link.client().await?;
        let granted = client.call_cancelling(&self.params).await?;
        Ok(Lease::new(client, granted.lease_id))
    }
}

/// A claim that is held until it is released or dropped, or its connection is gone.
#[derive(Debug)]
pub struct Lease {
    client: Arc<Client>,
    id: Uuid,
    is_held: bool,
}

impl Lease {
    const fn new(client: Arc<Client>, id: Uuid) -> Self {
        Self { client, id, is_held: true }
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// Whether it is held still.
    /// # Errors
    /// [`ClientError::LeaseLost`]: others may write since.
    pub fn check(&self) -> Result<(), ClientError> {
        if self.client.is_closed() { Err(ClientError::LeaseLost) } else { Ok(()) }
    }

    /// Waits until it is lost. Cancel safe.
    pub async fn lost(&self) {
        self.client.closed().await;
    }

    /// Gives it back.
    /// # Errors
    /// [`ClientError::LeaseLost`] when it was lost before: what was done under it may have met
    /// somebody else's writes.
    pub async fn release(mut self) -> Result<(), ClientError> {
        self.is_held = false;
        let params = LeaseReleaseParams { lease_id: self.id };
        match self.client.call_with(&params, OnDrop::Leave).await {
            Ok(_) => Ok(()),
            Err(ClientError::Disconnected { .. }) => Err(ClientError::LeaseLost),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_held {
            self.client.connection().tell_call(&LeaseReleaseParams { lease_id: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted::{Script, within};

    #[tokio::test]
    async fn a_lease_is_given_back_and_a_lost_one_is_told() {
        let script = Script::new();
        let lease = || json!({ "lease_id": Uuid::from_u128(5) });
        let daemon = async {
            let mut daemon = script.opened().await;
            let (id, params) = daemon.expect("lease/acquire").await;
            let paths = json!(["src"]);
            let expected = json!({ "root": "/w", "kind": "structured_write", "paths": paths,
                "timeout_ms": 1000 });
            assert_eq!(params, expected);
            daemon.answer(id, lease()).await;
            let (id, params) = daemon.expect("lease/release").await;
            assert_eq!(params, lease());
            daemon.answer(id, json!({})).await;
            let (id, _) = daemon.expect("lease/acquire").await;
            daemon.answer(id, lease()).await;
            daemon.expect("lease/release").await;
            let (id, _) = daemon.expect("lease/acquire").await;
            daemon.answer(id, lease()).await;
        };
        let using = async {
            let session = script.session().await;
            let ask = || session.lease("/w", LeaseKind::StructuredWrite);
            let lease = ask().paths(["src"]).timeout(Duration::from_secs(1)).acquire().await;
            lease.unwrap().release().await.unwrap();
            drop(ask().acquire().await.unwrap());
            let lease = ask().acquire().await.unwrap();
            // The daemon's end of the script drops its connection.
            lease.lost().await;
            assert!(matches!(lease.check(), Err(ClientError::LeaseLost)));
            assert!(matches!(lease.release().await, Err(ClientError::LeaseLost)));
        };
        within(async { tokio::join!(using, daemon) }).await;
    }
}
