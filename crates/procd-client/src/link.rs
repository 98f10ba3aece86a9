//! A connection in its role that comes back by itself: a dropped one is made anew and attached
//! again, and what may be repeated is repeated.

use std::sync::Arc;

use procd_protocol::v1::{OperatorAttachParams, Params, SessionAttachParams};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::connect::{Client, Connect};
use crate::connection::OnDrop;
use crate::error::ClientError;

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

    pub(crate) async fn call<P: Params>(
        &self,
        params: &P,
        repeat: Repeat,
        on_drop: OnDrop,
    ) -> Result<P::Result, ClientError> {
        let client = self.client().await?;
        match client.call_with(params, on_drop).await {
            Err(ClientError::Disconnected { .. }) if repeat == Repeat::Safe => {
                self.client().await?.call_with(params, on_drop).await
            }
            answer => answer,
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
    async fn client(&self) -> Result<Arc<Client>, ClientError> {
        let mut current = self.current.lock().await;
        if current.is_closed() {
            let client = self.connect.connect().await?;
            match &self.role {
                Role::Owner(attach) => client.call(attach).await.map(drop)?,
                Role::Operator(attach) => client.call(attach).await.map(drop)?,
            }
            *current = Arc::new(client);
        }
        Ok(Arc::clone(&current))
    }
}
