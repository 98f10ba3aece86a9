//! The MCP server: both handshakes, tools, resources and their updates, as the SDK hands them out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use procd_client::ClientError;
use procd_protocol::ErrorCode;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio::sync::broadcast::error::RecvError;

use crate::bridge::{Bridge, NoSession};
use crate::resources::{self, Named};
use crate::tools;

/// Resources that one client of the older protocol watches; more are refused.
const WATCHED_MAX: usize = 1024;
const INSTRUCTIONS: &str = "Runs shell commands in supervised processes that outlast a tool call. \
    Bash returns a process_id; a command that takes longer than its yield_time_ms runs on in the background. \
    Read on with ProcessOutput from next_cursor, wait there with match or wait, write with ProcessInput, end with ProcessStop.";

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    bridge: Bridge,
    tools: Vec<Tool>,
    /// Resources that a client of the older protocol watches; `None` until it watches one.
    watched: Arc<Mutex<Option<HashSet<String>>>>,
}

impl Server {
    pub(crate) fn new(bridge: Bridge) -> Self {
        Self { bridge, tools: tools::all(), watched: Arc::default() }
    }

    /// Tells a client of the older protocol of the resources it watches, from now on.
    fn tell_updates(&self, peer: Peer<RoleServer>) {
        let (watched, mut changes) =
            (Arc::clone(&self.watched), self.bridge.completions().changes());
        tokio::spawn(async move {
            loop {
                let changed = match changes.recv().await {
                    Ok(changed) => resources::uris(changed),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                for uri in changed {
                    let is_watched = {
                        let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                        watched.as_ref().is_some_and(|watched| watched.contains(&uri))
                    };
                    let param = ResourceUpdatedNotificationParam::new(uri);
                    if is_watched && peer.notify_resource_updated(param).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        let own = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(own).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let called = tools::call(&self.bridge, &request.name, request.arguments, &context).await;
        match called {
            Some(Ok(result)) => Ok(result.into()),
            // The client wants no answer, and gets none of this one.
            Some(Err(_cancelled)) => Err(ErrorData::internal_error("cancelled", None)),
            None => {
                let message = format!("there is no tool `{}`", request.name);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let session = self.bridge.session().await.map_err(|error| unreachable(&error))?;
        let resources = resources::list(&session).await.map_err(refused)?;
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let named = Named::of(&request.uri).ok_or_else(|| unknown(&request.uri))?;
        let session = self.bridge.session().await.map_err(|error| unreachable(&error))?;
        match resources::read(&session, named, &request.uri).await {
            Ok(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Err(error) if error.is(ErrorCode::NotFound) => Err(unknown(&request.uri)),
            Err(error) => Err(refused(error)),
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten();
        let known: Vec<String> = uris.filter(|uri| Named::of(uri).is_some()).cloned().collect();
        Some(SubscriptionFilter::builder().resource_subscriptions(known).build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.bridge.completions().changes();
        loop {
            let changed = tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.recv() => match changed {
                    Ok(changed) => resources::uris(changed),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return Ok(()),
                },
            };
            let wanted = context.accepted().resource_subscriptions.as_deref().unwrap_or_default();
            for uri in changed.into_iter().filter(|uri| wanted.contains(uri)) {
                if context.sink().notify_resource_updated(uri).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Named::of(&request.uri).ok_or_else(|| unknown(&request.uri))?;
        let is_first = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = watched.is_none();
            let watched = watched.get_or_insert_default();
            if watched.len() >= WATCHED_MAX {
                return Err(ErrorData::invalid_params("too many resources are watched", None));
            }
            watched.insert(request.uri);
            is_first
        };
        if is_first {
            self.tell_updates(context.peer);
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.as_mut().map(|watched| watched.remove(&request.uri));
        Ok(())
    }
}

fn unknown(uri: &str) -> ErrorData {
    ErrorData::resource_not_found(format!("there is no resource `{uri}`"), None)
}

fn unreachable(error: &NoSession) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn refused(error: ClientError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
