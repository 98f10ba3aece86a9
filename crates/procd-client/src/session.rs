//! The owner's side: a session and its processes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use procd_protocol::v1::{
    CloseScope, LeaseKind, ListParams, ListResult, OutputParams, OutputResult, Params, Record,
    SessionAttachParams, SessionCloseParams, SessionCloseResult, SessionOpenParams, StartParams,
    StatusParams, StatusResult, StopAllParams, StopResult,
};
use procd_protocol::{ErrorCode, LoopId, ProcessId, SessionId, SessionKey};
use rand::TryRng;
use rand::rngs::SysRng;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::command::Command;
use crate::connect::{Client, Connect, TRIES_MAX};
use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::events::EventsRequest;
use crate::lease::LeaseRequest;
use crate::link::{Link, Repeat, Role};
use crate::notifications::Notifications;
use crate::process::{Process, millis};

/// What it takes to come back to a session. Holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The session.
    pub session_id: SessionId,
    /// The loop in it.
    pub loop_id: LoopId,
    /// The authority over the session. A secret.
    pub session_key: SessionKey,
}

impl Credentials {
    /// New ones from the system's random source.
    /// # Errors
    /// [`ClientError::Unsendable`] when that source fails.
    pub fn random() -> Result<Self, ClientError> {
        let mut key = [0; 32];
        let refused = |error: io::Error| ClientError::Unsendable { message: error.to_string() };
        SysRng.try_fill_bytes(&mut key).map_err(|error| refused(io::Error::other(error)))?;
        let ids = SessionId::new(Uuid::new_v4()).zip(LoopId::new(Uuid::new_v4()));
        let (session_id, loop_id) = ids.ok_or_else(|| refused(io::Error::other("a nil uuid")))?;
        Ok(Self { session_id, loop_id, session_key: SessionKey::from_bytes(key) })
    }
}

/// A session, as one of its loops. Cheap to clone. Processes do not depend on it: they live on
/// when it is dropped.
#[derive(Debug, Clone)]
pub struct Session {
    link: Arc<Link>,
    credentials: Credentials,
}

impl Session {
    /// Makes a session with everything as configured.
    /// # Errors
    /// As [`Client::call`].
    pub async fn open(client: Client) -> Result<Self, ClientError> {
        Self::open_with(client, SessionOpenParams::default()).await
    }

    /// Makes a session. Ids and key that are not given are made here, so that a lost reply
    /// orphans nothing.
    /// # Errors
    /// As [`Client::call`].
    pub async fn open_with(
        client: Client,
        mut params: SessionOpenParams,
    ) -> Result<Self, ClientError> {
        let random = Credentials::random()?;
        let credentials = Credentials {
            session_id: *params.session_id.get_or_insert(random.session_id),
            loop_id: *params.loop_id.get_or_insert(random.loop_id),
            session_key: params.session_key.get_or_insert(random.session_key).clone(),
        };
        let connect = client.again();
        match client.call(&params).await {
            Err(ClientError::Disconnected { .. }) => {
                let client = opened_again(&connect, &params, &credentials).await?;
                Ok(Self::of(client, credentials))
            }
            answer => answer.map(|_opened| Self::of(client, credentials)),
        }
    }

    /// Comes back to a session.
    /// # Errors
    /// As [`Client::call`]; `not_found` for an unknown session and for a wrong key alike.
    pub async fn attach(client: Client, credentials: Credentials) -> Result<Self, ClientError> {
        let connect = client.again();
        match client.call(&attach_params(&credentials)).await {
            Err(ClientError::Disconnected { .. }) => {
                let client = connect.connect_again().await?;
                client.call(&attach_params(&credentials)).await?;
                Ok(Self::of(client, credentials))
            }
            answer => answer.map(|_attached| Self::of(client, credentials)),
        }
    }

    fn of(client: Client, credentials: Credentials) -> Self {
        let role = Role::Owner(attach_params(&credentials));
        Self { link: Arc::new(Link::new(client, role)), credentials }
    }

    /// What it takes to come back. Holds a secret.
    #[must_use]
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
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

    /// Drops the connection: its leases are lost, nothing else. The next call makes another; what
    /// waits goes on over that one.
    pub async fn disconnect(&self) {
        self.link.disconnect().await;
    }

    /// A program to start, without a shell.
    pub fn command(&self, program: impl Into<String>) -> Command {
        Command::new(Arc::clone(&self.link), StartParams::of_argv(vec![program.into()]))
    }

    /// A text for a shell to start.
    pub fn shell(&self, text: impl Into<String>) -> Command {
        Command::new(Arc::clone(&self.link), StartParams::of_command(text.into()))
    }

    /// A start with parameters of one's own.
    pub fn start_of(&self, params: StartParams) -> Command {
        Command::new(Arc::clone(&self.link), params)
    }

    /// A process by its handle. Whether there is one shows with the first call.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> Process {
        Process::new(Arc::clone(&self.link), id)
    }

    /// One page of records.
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

    /// What the daemon says of itself and of this session.
    /// # Errors
    /// As [`Client::call`].
    pub async fn status(&self) -> Result<StatusResult, ClientError> {
        self.link.call(&StatusParams::default(), Repeat::Safe, OnDrop::Leave).await
    }

    /// The ends of the processes of this loop, told once each.
    /// # Errors
    /// As [`Client::call`].
    pub async fn notifications(&self) -> Result<Notifications, ClientError> {
        Notifications::open(Arc::clone(&self.link)).await
    }

    /// Events of this loop, or of the whole session.
    pub fn events(&self) -> EventsRequest {
        EventsRequest::new(Arc::clone(&self.link))
    }

    /// A claim on a workspace, an absolute folder, for edits or copies of one's own.
    pub fn lease(&self, root: impl Into<String>, kind: LeaseKind) -> LeaseRequest {
        LeaseRequest::new(Arc::clone(&self.link), root.into(), kind)
    }

    /// Stops all that runs now, of this loop or of the session, at once and in one grace period.
    /// # Errors
    /// As [`Client::call`].
    pub async fn stop_all(&self, params: &StopAllParams) -> Result<Vec<StopResult>, ClientError> {
        Ok(self.link.call(params, Repeat::Safe, OnDrop::Leave).await?.results)
    }

    /// One call about several processes: `params.process_ids`. One bad process fails neither the
    /// others nor the call. Dropping a wait ends it and touches nothing.
    /// # Errors
    /// As [`Client::call`].
    pub async fn output(&self, params: &OutputParams) -> Result<OutputResult, ClientError> {
        self.link.call(params, Repeat::Safe, OnDrop::Cancel).await
    }

    /// Ends the session and every process in it. Its data stay readable.
    /// # Errors
    /// As [`Client::call`].
    pub async fn close(&self, grace: Option<Duration>) -> Result<SessionCloseResult, ClientError> {
        let params = SessionCloseParams {
            scope: CloseScope::Session,
            purge: None,
            grace_ms: grace.map(millis),
        };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await
    }
}

/// Makes a session whose first request may or may not have arrived.
async fn opened_again(
    connect: &Connect,
    params: &SessionOpenParams,
    credentials: &Credentials,
) -> Result<Client, ClientError> {
    let mut last = ClientError::disconnected("it broke at every try to make a session");
    for _ in 0..TRIES_MAX {
        let client = connect.connect_again().await?;
        match client.call(&attach_params(credentials)).await {
            Ok(_attached) => return Ok(client),
            Err(error) if error.is(ErrorCode::NotFound) => {}
            Err(error) if error.is_disconnected() => continue,
            Err(error) => return Err(error),
        }
        match client.call(params).await {
            Ok(_opened) => return Ok(client),
            // In use: the first one has arrived only now.
            Err(error) if error.is_disconnected() || error.is(ErrorCode::InvalidArguments) => {
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn attach_params(credentials: &Credentials) -> SessionAttachParams {
    SessionAttachParams {
        session_id: credentials.session_id,
        loop_id: credentials.loop_id,
        session_key: credentials.session_key.clone(),
    }
}

/// The records of all pages from `params.after` on.
pub(crate) async fn all_pages(
    link: &Link,
    mut params: ListParams,
) -> Result<Vec<Record>, ClientError> {
    let mut records = Vec::new();
    loop {
        let page = link.call(&params, Repeat::Safe, OnDrop::Leave).await?;
        records.extend(page.records);
        match page.next {
            Some(next) => params.after = Some(next),
            None => return Ok(records),
        }
    }
}
