//! Connections to the daemon by role, and the names of processes on them.
//!
//! A connection has one role for life, so there are up to two: the owner's, of the one session
//! procctl has per user, and the operator's. A process is looked for as its owner first.

use std::sync::Arc;

use procd_client::{Client, ClientError, Connect};
use procd_protocol::v1::{
    InspectParams, ListParams, OperatorAttachParams, Params, Record, Scope, SessionAttachParams,
    SessionOpenParams, SessionQuotas, SessionState,
};
use procd_protocol::{ErrorCode, Open, ProcessId};
use tokio::sync::OnceCell;

use crate::arguments::Role;
use crate::exit::CtlError;
use crate::handle::{HANDLE_CHARS, Match, is_handle, resolve};
use crate::own_session::{Identity, IdentityStore};

/// Records of one page of a list.
const LIST_PAGE_MAX: u64 = 1000;
/// Tries to come to the own session: attach, open, attach again, then the same with a new one.
const SESSION_TRIES_MAX: usize = 4;

/// Whether a private daemon is started when none runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartDaemon {
    /// Never: then there is nothing to show or to end.
    Never,
    /// If this user ever started something: its records are there to be read.
    IfUsed,
    /// In any case.
    Always,
}

/// One connection in its role.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    client: Arc<Client>,
    is_owner: bool,
}

impl Link {
    /// Calls a method.
    /// # Errors
    /// [`CtlError::Refused`] as the daemon says, [`CtlError::NoDaemon`] when it is gone.
    pub(crate) async fn call<P: Params>(&self, params: &P) -> Result<P::Result, CtlError> {
        self.client.call(params).await.map_err(from_client)
    }

    /// Waits until the daemon has closed the connection.
    pub(crate) async fn closed(&self) {
        self.client.closed().await;
    }

    /// Every record this role sees, newest first.
    /// # Errors
    /// As [`Self::call`].
    pub(crate) async fn list(&self) -> Result<Vec<Record>, CtlError> {
        let mut params = ListParams {
            scope: self.is_owner.then_some(Scope::Session),
            limit: Some(LIST_PAGE_MAX),
            ..ListParams::default()
        };
        let mut records = Vec::new();
        loop {
            let page = self.call(&params).await?;
            records.extend(page.records);
            match page.next {
                Some(next) if params.after.as_ref() != Some(&next) => params.after = Some(next),
                Some(_) | None => return Ok(records),
            }
        }
    }

    /// Whether this role knows the process.
    async fn knows(&self, process_id: ProcessId) -> Result<bool, CtlError> {
        match self.call(&InspectParams { process_id }).await {
            Ok(_) => Ok(true),
            Err(error) if is_refusal(&error, ErrorCode::NotFound) => Ok(false),
            // It is there, damaged: the command that was asked for says so itself.
            Err(error) if is_refusal(&error, ErrorCode::ManifestCorrupt) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Finds what `name` stands for among what this role sees.
    async fn find(&self, name: &str) -> Result<Option<ProcessId>, CtlError> {
        if is_handle(name) {
            let process_id = parse(name)?;
            return Ok(self.knows(process_id).await?.then_some(process_id));
        }
        let handles: Vec<String> =
            self.list().await?.iter().map(|record| record.process_id.to_string()).collect();
        match resolve(name, handles.iter().map(String::as_str)) {
            Match::One(handle) => parse(handle).map(Some),
            Match::None => Ok(None),
            Match::Several(handles) => Err(ambiguous(name, &handles)),
        }
    }
}

fn parse(handle: &str) -> Result<ProcessId, CtlError> {
    handle.parse().map_err(|_malformed| {
        let what = format!("`{handle}` has {HANDLE_CHARS} characters and yet is no handle");
        CtlError::usage(what, "take it from `procctl ps --no-trunc`")
    })
}

fn ambiguous(name: &str, handles: &[&str]) -> CtlError {
    const SHOWN_MAX: usize = 5;
    let shown: Vec<&str> = handles.iter().copied().take(SHOWN_MAX).collect();
    let rest = if handles.len() > SHOWN_MAX { ", ..." } else { "" };
    let what = format!("`{name}` begins {} handles ({}{rest})", handles.len(), shown.join(", "));
    CtlError::usage(what, "give more characters")
}

fn is_refusal(error: &CtlError, wanted: ErrorCode) -> bool {
    matches!(error, CtlError::Refused { code: Open::Known(code), .. } if *code == wanted)
}

/// A process and the connection to speak of it on.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) link: Link,
    pub(crate) process_id: ProcessId,
    /// Whether a reading call wants a reason.
    pub(crate) is_operator: bool,
}

/// The connections of one run of procctl, made when they are needed.
#[derive(Debug)]
pub(crate) struct Links {
    role: Role,
    identity: IdentityStore,
    owner: OnceCell<Option<Link>>,
    operator: OnceCell<Link>,
}

impl Links {
    /// No connection yet.
    pub(crate) fn new(role: Role, identity: IdentityStore) -> Self {
        Self { role, identity, owner: OnceCell::new(), operator: OnceCell::new() }
    }

    /// The role that was asked for.
    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    /// A connection without a role.
    /// # Errors
    /// [`CtlError::NoDaemon`] when none runs and none may be started.
    pub(crate) async fn plain(&self, start: StartDaemon) -> Result<Link, CtlError> {
        self.connect(start, false).await
    }

    async fn connect(&self, start: StartDaemon, is_owner: bool) -> Result<Link, CtlError> {
        let may_start = match start {
            StartDaemon::Never => false,
            StartDaemon::IfUsed => self.identity.read()?.is_some(),
            StartDaemon::Always => true,
        };
        let client = Client::connect(Connect { may_start }).await.map_err(from_client)?;
        Ok(Link { client: Arc::new(client), is_owner })
    }

    /// The operator's connection.
    /// # Errors
    /// As [`Self::plain`], and for `--owner`.
    pub(crate) async fn operator(
        &self,
        start: StartDaemon,
        reason: &str,
    ) -> Result<Link, CtlError> {
        if self.role == Role::Owner {
            let what = "this needs the operator's role";
            return Err(CtlError::usage(what, "leave out --owner"));
        }
        let attach = async || {
            let link = self.connect(start, false).await?;
            link.call(&OperatorAttachParams { reason: Some(reason.to_owned()) }).await?;
            Ok(link)
        };
        self.operator.get_or_try_init(attach).await.cloned()
    }

    /// The owner's connection; none when this user's session does not exist.
    /// # Errors
    /// As [`Self::plain`].
    pub(crate) async fn owner(&self, start: StartDaemon) -> Result<Option<Link>, CtlError> {
        let attach = async || {
            let Some(identity) = self.identity.read()? else { return Ok(None) };
            let link = self.connect(start, true).await?;
            match attach(&link, &identity).await? {
                Some(SessionIs::Open | SessionIs::Closed) => Ok(Some(link)),
                None => Ok(None),
            }
        };
        self.owner.get_or_try_init(attach).await.cloned()
    }

    /// The owner's connection, its session made now if need be: a new one in place of one that
    /// the daemon lost or that was closed.
    /// # Errors
    /// As [`Self::plain`], and for `--operator`.
    pub(crate) async fn make_owner(&self, start: StartDaemon) -> Result<Link, CtlError> {
        if self.role == Role::Operator {
            let what = "an operator starts nothing";
            return Err(CtlError::usage(what, "leave out --operator"));
        }
        // The daemon first: the folder that the key goes to is its own.
        let mut link = self.connect(start, true).await?;
        let mut identity = self.identity.read_or_make()?;
        for _ in 0..SESSION_TRIES_MAX {
            match attach(&link, &identity).await? {
                Some(SessionIs::Open) => return Ok(link),
                Some(SessionIs::Closed) => {
                    identity = self.identity.replace(&identity)?;
                    // The connection is bound to the closed session for good.
                    link = self.connect(start, true).await?;
                }
                None if open(&link, &identity).await? => return Ok(link),
                // Somebody opened it in between, or it has another key.
                None => match attach(&link, &identity).await? {
                    Some(SessionIs::Open) => return Ok(link),
                    Some(SessionIs::Closed) | None => {
                        identity = self.identity.replace(&identity)?;
                        link = self.connect(start, true).await?;
                    }
                },
            }
        }
        Err(CtlError::Answer("no session could be made".to_owned()))
    }

    /// Finds a process by its handle or a unique prefix: as its owner, else as operator.
    /// # Errors
    /// [`CtlError::NoSuchProcess`] when neither knows it.
    pub(crate) async fn find(&self, name: &str) -> Result<Target, CtlError> {
        let start = StartDaemon::IfUsed;
        if self.role != Role::Operator
            && let Some(link) = self.owner(start).await?
            && let Some(process_id) = link.find(name).await?
        {
            return Ok(Target { link, process_id, is_operator: false });
        }
        if self.role != Role::Owner {
            let link = self.operator(start, "procctl").await?;
            if let Some(process_id) = link.find(name).await? {
                return Ok(Target { link, process_id, is_operator: true });
            }
        }
        Err(CtlError::NoSuchProcess(name.to_owned()))
    }
}

/// What an attach found.
enum SessionIs {
    Open,
    /// Closed or closing: it can be read, not started in.
    Closed,
}

/// Attaches to the own session; none when the daemon does not know it under this key.
async fn attach(link: &Link, identity: &Identity) -> Result<Option<SessionIs>, CtlError> {
    let params = SessionAttachParams {
        session_id: identity.session_id,
        loop_id: identity.loop_id,
        session_key: identity.session_key.clone(),
    };
    match link.call(&params).await {
        Ok(attached) if attached.state == Open::Known(SessionState::Open) => {
            Ok(Some(SessionIs::Open))
        }
        Ok(_) => Ok(Some(SessionIs::Closed)),
        Err(error) if is_refusal(&error, ErrorCode::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the own session; false when its id is in use.
async fn open(link: &Link, identity: &Identity) -> Result<bool, CtlError> {
    // One loop holds all of the session's processes, so its limit is the session's. A daemon that
    // does not take a loop's limit above its default gets no wish at all.
    let session_max = link.client.hello().limits.get("running_session_max").copied();
    let quotas = session_max
        .map(|max| SessionQuotas { running_loop_max: Some(max), ..SessionQuotas::default() });
    for quotas in [quotas, None] {
        let params = SessionOpenParams {
            session_id: Some(identity.session_id),
            loop_id: Some(identity.loop_id),
            session_key: Some(identity.session_key.clone()),
            label: Some("procctl".to_owned()),
            quotas,
            ..SessionOpenParams::default()
        };
        match link.call(&params).await {
            Ok(_) => return Ok(true),
            Err(error) if is_refusal(&error, ErrorCode::InvalidArguments) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn from_client(error: ClientError) -> CtlError {
    CtlError::Answer(error.to_string())
}
