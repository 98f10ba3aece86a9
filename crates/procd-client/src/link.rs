//! A connection in its role that comes back by itself: a dropped one is made anew and attached
//! again, and what may be repeated is repeated.

use std::sync::Arc;

use procd_protocol::v1::{OperatorAttachParams, Params, SessionAttachParams};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::connect::{Client, Connect, TRIES_MAX};
use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::stream::{Goodbye, Stream};

/// The role a connection takes after hello.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// The owner of these credentials.
    Owner(SessionAttachParams),
    /// The operator.
    Operator(OperatorAttachParams),
}

/// Whether a call may be made twice when nobody knows whether the first one arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or the same thing.
    Safe,
    /// It might be done twice.
    Never,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    connect: Connect,
    role: Role,
    current: Mutex<Arc<Client>>,
}

impl Link {
    /// A link over a connection that has this role already.
    pub(crate) fn new(client: Client, role: Role) -> Self {
        Self { connect: client.again(), role, current: Mutex::new(Arc::new(client)) }
    }

    /// Ends the connection that is there.
    pub(crate) async fn disconnect(&self) {
        let current = Arc::clone(&*self.current.lock().await);
        current.connection().end();
        current.closed().await;
    }

    /// Whether it acts as an owner.
    pub(crate) const fn is_owner(&self) -> bool {
        matches!(self.role, Role::Owner(_))
    }

    pub(crate) async fn call<P: Params>(
        &self,
        params: &P,
        repeat: Repeat,
        on_drop: OnDrop,
    ) -> Result<P::Result, ClientError> {
        let mut tries = 1;
        loop {
            match self.client().await?.call_with(params, on_drop).await {
                Err(ClientError::Disconnected { .. })
                    if repeat == Repeat::Safe && tries < TRIES_MAX =>
                {
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request with notices, and gives its answer where that comes first. Repeated as a
    /// call that is safe.
    pub(crate) async fn subscribe<P: Params>(
        &self,
        params: &P,
    ) -> Result<(Stream, P::Result), ClientError> {
        let mut tries = 1;
        loop {
            let opened = async {
                let client = self.client().await?;
                let mut stream = Stream::open(client, params, Goodbye::Unsubscribe).await?;
                let result = stream.answer().await?;
                Ok((stream, result))
            };
            match opened.await {
                Err(ClientError::Disconnected { .. }) if tries < TRIES_MAX => tries += 1,
                answer => return answer,
            }
        }
    }

    pub(crate) async fn call_raw(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Box<RawValue>, ClientError> {
        self.client().await?.call_raw(method, params).await
    }

    /// The connection, made anew when it is gone. Of several callers one makes it.
    pub(crate) async fn client(&self) -> Result<Arc<Client>, ClientError> {
        let mut current = self.current.lock().await;
        let mut tries = 1;
        while current.is_closed() {
            let client = self.connect.connect_again().await?;
            let attached = match &self.role {
                Role::Owner(attach) => client.call(attach).await.map(drop),
                Role::Operator(attach) => client.call(attach).await.map(drop),
            };
            match attached {
                Ok(()) => *current = Arc::new(client),
                Err(ClientError::Disconnected { .. }) if tries < TRIES_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(Arc::clone(&current))
    }
}
