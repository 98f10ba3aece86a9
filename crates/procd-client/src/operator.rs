//! The operator's side: looks at everything, owns nothing.

use std::sync::Arc;
use std::time::Duration;

use procd_protocol::ProcessId;
use procd_protocol::v1::{
    ListParams, ListResult, OperatorAttachParams, OperatorAttachResult, Params, Record,
    ShutdownParams, StatusParams, StatusResult,
};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::connect::Client;
use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::events::EventsRequest;
use crate::link::{Link, Repeat, Role};
use crate::process::{Process, millis};
use crate::session::all_pages;

/// An operator's connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Operator {
    link: Arc<Link>,
    attached: OperatorAttachResult,
}

impl Operator {
    /// Becomes the operator. `reason` is logged with every look at another session's output.
    /// # Errors
    /// As [`Client::call`].
    pub async fn attach(client: Client, reason: Option<&str>) -> Result<Self, ClientError> {
        let params = OperatorAttachParams { reason: reason.map(str::to_owned) };
        let attached = client.call(&params).await?;
        Ok(Self { link: Arc::new(Link::new(client, Role::Operator(params))), attached })
    }

    /// What there was when it attached.
    #[must_use]
    pub const fn attached(&self) -> &OperatorAttachResult {
        &self.attached
    }

    /// Calls any method of this role with its own parameters. It is not repeated over a dropped
    /// connection.
    /// # Errors
    /// As [`Client::call`].
    pub async fn call<P: Params>(&self, params: &P) -> Result<P::Result, ClientError> {
        self.link.call(params, Repeat::Never, OnDrop::Cancel).await
    }

    /// Calls any method with any parameters and gives the raw result.
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_raw(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Box<RawValue>, ClientError> {
        self.link.call_raw(method, params).await
    }

    /// A process of any session by its handle.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> Process {
        Process::new(Arc::clone(&self.link), id)
    }

    /// One page of the records of all sessions, or of one.
    /// # Errors
    /// As [`Client::call`].
    pub async fn list(&self, params: &ListParams) -> Result<ListResult, ClientError> {
        self.link.call(params, Repeat::Safe, OnDrop::Leave).await
    }

    /// The records of all pages, newest first.
    /// # Errors
    /// As [`Client::call`].
    pub async fn list_all(&self, params: ListParams) -> Result<Vec<Record>, ClientError> {
        all_pages(&self.link, params).await
    }

    /// A subscription to events: of all sessions, or of one by
    /// [`EventsRequest::session`].
    pub fn events(&self) -> EventsRequest {
        EventsRequest::new(Arc::clone(&self.link))
    }

    /// What the daemon says of itself.
    /// # Errors
    /// As [`Client::call`].
    pub async fn status(&self) -> Result<StatusResult, ClientError> {
        self.link.call(&StatusParams::default(), Repeat::Safe, OnDrop::Leave).await
    }

    /// Ends the daemon and every process. Answered before the exit begins.
    /// # Errors
    /// As [`Client::call`].
    pub async fn shutdown(&self, grace: Option<Duration>) -> Result<(), ClientError> {
        let params = ShutdownParams { grace_ms: grace.map(millis) };
        self.link.call(&params, Repeat::Never, OnDrop::Leave).await.map(drop)
    }
}
