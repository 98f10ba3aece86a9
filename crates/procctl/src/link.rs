//! Connections to the daemon by role, and the names of processes on them.
//!
//! A connection has one role for life, so there are up to two: the owner's, of the one session
//! procctl has per user, and the operator's. A process is looked for as its owner first.

use std::time::Duration;

use procd_client::{Client, ClientError, Connect, Credentials, Operator, Process, Session};
use procd_protocol::v1::{
    ListParams, Params, Record, Scope, SessionOpenParams, SessionQuotas, SessionState, StartParams,
    StatusResult,
};
use procd_protocol::{ErrorCode, Open, ProcessId};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::arguments::Role;
use crate::exit::CtlError;
use crate::handle::{HANDLE_CHARS, Match, is_handle, resolve};
use crate::own_session::{Identity, IdentityStore};

/// Records of one page of a list.
const LIST_PAGE_MAX: u64 = 1000;
/// Tries to come to the own session: attach, open, attach again, then the same with a new one.
const SESSION_TRIES_MAX: usize = 4;
/// How long a daemon that is leaving is waited for: a shutdown's own bound, and some.
const LEAVING_MAX: Duration = Duration::from_secs(20);
/// Between two looks whether it has left.
const LEAVING_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may take, a daemon that reads back its records included; and how long one
/// that is connected may answer nothing.
const ANSWER_MAX: Duration = Duration::from_secs(60);

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

/// One connection in its role. Comes back by itself when it is dropped.
#[derive(Debug, Clone)]
pub(crate) enum Link {
    /// Of the own session.
    Owner(Session),
    /// Of everything, as far as looking goes.
    Operator(Operator),
}

impl Link {
    /// A process by its whole handle.
    pub(crate) fn process(&self, process_id: ProcessId) -> Process {
        match self {
            Self::Owner(session) => session.process(process_id),
            Self::Operator(operator) => operator.process(process_id),
        }
    }

    /// Every record this role sees, newest first.
    /// # Errors
    /// As the daemon says.
    pub(crate) async fn list(&self) -> Result<Vec<Record>, CtlError> {
        let params = ListParams { limit: Some(LIST_PAGE_MAX), ..ListParams::default() };
        Ok(match self {
            Self::Owner(session) => {
                let scope = Some(Scope::Session);
                session.list_all(ListParams { scope, ..params }).await?
            }
            Self::Operator(operator) => operator.list_all(params).await?,
        })
    }

    /// Calls a method of this role.
    /// # Errors
    /// As the daemon says.
    pub(crate) async fn call<P: Params>(&self, params: &P) -> Result<P::Result, CtlError> {
        Ok(match self {
            Self::Owner(session) => session.call(params).await?,
            Self::Operator(operator) => operator.call(params).await?,
        })
    }

    /// What the daemon says of itself to this role.
    /// # Errors
    /// As the daemon says.
    pub(crate) async fn status(&self) -> Result<StatusResult, CtlError> {
        Ok(match self {
            Self::Owner(session) => session.status().await?,
            Self::Operator(operator) => operator.status().await?,
        })
    }

    /// Whether this role knows the process.
    async fn knows(&self, process_id: ProcessId) -> Result<bool, CtlError> {
        match self.process(process_id).inspect().await {
            Ok(_) => Ok(true),
            Err(error) if error.is(ErrorCode::NotFound) => Ok(false),
            // It is there, damaged: the command that was asked for says so itself.
            Err(error) if error.is(ErrorCode::ManifestCorrupt) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds what `name` stands for among what this role sees.
    async fn find(&self, name: &str) -> Result<Option<Process>, CtlError> {
        if is_handle(name) {
            let process_id = parse(name)?;
            let knows = self.knows(process_id).await?;
            return Ok(knows.then(|| self.process(process_id)));
        }
        let records = self.list().await?;
        let handles: Vec<String> =
            records.iter().map(|record| record.process_id.to_string()).collect();
        match resolve(name, handles.iter().map(String::as_str)) {
            Match::One(handle) => Ok(Some(self.process(parse(handle)?))),
            Match::None => Ok(by_label(name, &records)?.map(|id| self.process(id))),
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

/// The process with this label: the only one, or the only one of those that runs.
fn by_label(name: &str, records: &[Record]) -> Result<Option<ProcessId>, CtlError> {
    let labelled: Vec<&Record> =
        records.iter().filter(|record| record.label.as_deref() == Some(name)).collect();
    let runs = |record: &&&Record| record.state.known().is_none_or(|state| !state.is_terminal());
    let running: Vec<&&Record> = labelled.iter().filter(runs).collect();
    match (labelled.as_slice(), running.as_slice()) {
        ([], _) => Ok(None),
        ([one], _) => Ok(Some(one.process_id)),
        (_, [one]) => Ok(Some(one.process_id)),
        _ => {
            let handles: Vec<String> =
                labelled.iter().map(|record| record.process_id.to_string()).collect();
            let what = format!("{} processes are labelled `{name}`", handles.len());
            Err(CtlError::usage(what, "name one by its handle; `procctl ps` lists them"))
        }
    }
}

fn ambiguous(name: &str, handles: &[&str]) -> CtlError {
    const SHOWN_MAX: usize = 5;
    let shown: Vec<&str> = handles.iter().copied().take(SHOWN_MAX).collect();
    let rest = if handles.len() > SHOWN_MAX { ", ..." } else { "" };
    let what = format!("`{name}` begins {} handles ({}{rest})", handles.len(), shown.join(", "));
    CtlError::usage(what, "give more characters")
}

/// A process as it was found.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) process: Process,
    /// The connection that knows it.
    pub(crate) link: Link,
    /// Whether a reading call may give a reason.
    pub(crate) is_operator: bool,
}

/// The connections of one run of procctl, made when they are needed.
#[derive(Debug)]
pub(crate) struct Links {
    role: Role,
    /// Why another session's process is looked at, for the daemon's log: `procctl <verb>`.
    reason: String,
    identity: IdentityStore,
    owner: OnceCell<Option<Link>>,
    operator: OnceCell<Link>,
}

impl Links {
    /// No connection yet.
    pub(crate) fn new(role: Role, verb: &str, identity: IdentityStore) -> Self {
        let reason = format!("procctl {verb}");
        Self { role, reason, identity, owner: OnceCell::new(), operator: OnceCell::new() }
    }

    /// The role that was asked for.
    pub(crate) const fn role(&self) -> Role {
        self.role
    }

    /// A connection without a role.
    /// # Errors
    /// [`CtlError::NoDaemon`] when none runs and none may be started.
    pub(crate) async fn connect(&self, start: StartDaemon) -> Result<Client, CtlError> {
        let may_start = match start {
            StartDaemon::Never => false,
            StartDaemon::IfUsed => self.identity.read()?.is_some(),
            StartDaemon::Always => true,
        };
        let connect = Connect::new()
            .name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .reconnect_time(Duration::ZERO)
            .silence_max(ANSWER_MAX);
        in_time(ANSWER_MAX, connect.private_daemon(may_start).connect()).await
    }

    /// The operator's connection.
    /// # Errors
    /// As [`Self::connect`], and for `--owner`.
    pub(crate) async fn operator(&self, start: StartDaemon) -> Result<Link, CtlError> {
        self.check_operator()?;
        let attach = async || {
            let client = self.connect(start).await?;
            Ok(Link::Operator(Operator::attach(client, Some(&self.reason)).await?))
        };
        self.operator.get_or_try_init(attach).await.cloned()
    }

    /// Whether the operator's role may be taken.
    /// # Errors
    /// [`CtlError::Usage`] for `--owner`.
    pub(crate) fn check_operator(&self) -> Result<(), CtlError> {
        if self.role == Role::Owner {
            let what = "this needs the operator's role";
            return Err(CtlError::usage(what, "leave out --owner"));
        }
        Ok(())
    }

    /// The owner's connection; none when this user's session does not exist.
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn owner(&self, start: StartDaemon) -> Result<Option<Link>, CtlError> {
        let attach = async || {
            let client = self.connect(start).await?;
            let Some(identity) = self.identity.read()? else { return Ok(None) };
            Ok(attach(client, &identity.credentials()).await?.map(Link::Owner))
        };
        self.owner.get_or_try_init(attach).await.cloned()
    }

    /// Starts a process in the own session, which is made now if need be: a new one in place of
    /// one that the daemon lost or that was closed. A daemon that is just leaving is waited for,
    /// and the next one asked: under one key the command runs once, however often it is sent.
    /// # Errors
    /// As the daemon says, and for `--operator`.
    pub(crate) async fn start(&self, mut params: StartParams) -> Result<Process, CtlError> {
        if self.role == Role::Operator {
            let what = "an operator starts nothing";
            return Err(CtlError::usage(what, "leave out --operator"));
        }
        params.request_key.get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
        let deadline = Instant::now() + LEAVING_MAX;
        loop {
            let client = self.connect(StartDaemon::Always).await?;
            match self.start_by(client, params.clone()).await {
                Err(error) if is_of_leaving(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(LEAVING_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn start_by(&self, client: Client, params: StartParams) -> Result<Process, CtlError> {
        let (session, identity) = self.make_session(client).await?;
        match session.start_of(params.clone()).start().await {
            Err(error)
                if error.is(ErrorCode::SupervisorShuttingDown) && is_closed(&session).await? =>
            {
                self.identity.replace(&identity)?;
                let (session, _) = self.make_session(self.again().await?).await?;
                Ok(session.start_of(params).start().await?)
            }
            answer => Ok(answer?),
        }
    }

    /// - `client`: a daemon is there: the folder that the key goes to is its own.
    async fn make_session(&self, mut client: Client) -> Result<(Session, Identity), CtlError> {
        let mut identity = self.identity.read_or_make()?;
        for _ in 0..SESSION_TRIES_MAX {
            let credentials = identity.credentials();
            if let Some(session) = attach(client, &credentials).await? {
                return Ok((session, identity));
            }
            if let Some(session) = self.open(&credentials).await? {
                return Ok((session, identity));
            }
            // Somebody else opened it in between, or the daemon has it under another key.
            if let Some(session) = attach(self.again().await?, &credentials).await? {
                return Ok((session, identity));
            }
            identity = self.identity.replace(&identity)?;
            client = self.again().await?;
        }
        Err(CtlError::Answer("no session could be made".to_owned()))
    }

    async fn again(&self) -> Result<Client, CtlError> {
        self.connect(StartDaemon::Always).await
    }

    /// Opens the own session; none when its id is in use. One loop holds all of its processes, so
    /// the loop's limit is the session's, as far as the daemon takes one above its default.
    async fn open(&self, credentials: &Credentials) -> Result<Option<Session>, CtlError> {
        let client = self.again().await?;
        let session_max = client.hello().limits.get("running_session_max").copied();
        let wish = session_max
            .map(|max| SessionQuotas { running_loop_max: Some(max), ..SessionQuotas::default() });
        match Session::open_with(client, open_params(credentials, wish)).await {
            Ok(session) => return Ok(Some(session)),
            Err(error) if error.is(ErrorCode::InvalidArguments) => {}
            Err(error) => return Err(error.into()),
        }
        match Session::open_with(self.again().await?, open_params(credentials, None)).await {
            Ok(session) => Ok(Some(session)),
            Err(error) if error.is(ErrorCode::InvalidArguments) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds a process by its handle or a unique prefix: as its owner, else as operator.
    /// # Errors
    /// [`CtlError::NoSuchProcess`] when neither knows it.
    pub(crate) async fn find(&self, name: &str) -> Result<Target, CtlError> {
        let start = StartDaemon::IfUsed;
        if self.role != Role::Operator
            && let Some(link) = self.owner(start).await?
            && let Some(process) = link.find(name).await?
        {
            return Ok(Target { process, link, is_operator: false });
        }
        if self.role != Role::Owner
            && let link = self.operator(start).await?
            && let Some(process) = link.find(name).await?
        {
            return Ok(Target { process, link, is_operator: true });
        }
        Err(CtlError::NoSuchProcess(name.to_owned()))
    }
}

/// Attaches to a session; none when the daemon does not know it under this key.
async fn attach(client: Client, credentials: &Credentials) -> Result<Option<Session>, CtlError> {
    match Session::attach(client, credentials.clone()).await {
        Ok(session) => Ok(Some(session)),
        Err(error) if error.is(ErrorCode::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is what a daemon says, or leaves unsaid, that is just ending.
fn is_of_leaving(error: &CtlError) -> bool {
    match error {
        CtlError::NoDaemon { .. } => true,
        CtlError::Refused { code, .. } => code.known() == Some(ErrorCode::SupervisorShuttingDown),
        CtlError::Usage { .. }
        | CtlError::NoSuchProcess(_)
        | CtlError::NoSuchSession(_)
        | CtlError::Denied { .. }
        | CtlError::Place(_)
        | CtlError::Io { .. }
        | CtlError::Answer(_)
        | CtlError::TimedOut(_)
        | CtlError::StdoutClosed => false,
    }
}

/// Whether the session takes no starts any more. A daemon that ends itself closes none.
async fn is_closed(session: &Session) -> Result<bool, CtlError> {
    let own = session.status().await?.session;
    Ok(own.is_some_and(|own| own.state != Open::Known(SessionState::Open)))
}

/// What `connecting` gives, within `limit`: whoever listens may be no procd at all, and say nothing.
async fn in_time<T, E: Into<CtlError>>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, E>>,
) -> Result<T, CtlError> {
    match tokio::time::timeout(limit, connecting).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_elapsed) => Err(CtlError::NoDaemon {
            what: format!("whoever listens at the daemon's socket says nothing for {limit:?}"),
            advice: "end it, or set PROCD_SOCKET to another place",
        }),
    }
}

fn open_params(credentials: &Credentials, quotas: Option<SessionQuotas>) -> SessionOpenParams {
    SessionOpenParams {
        session_id: Some(credentials.session_id),
        loop_id: Some(credentials.loop_id),
        session_key: Some(credentials.session_key.clone()),
        label: Some("procctl".to_owned()),
        quotas,
        ..SessionOpenParams::default()
    }
}

impl From<ClientError> for CtlError {
    fn from(error: ClientError) -> Self {
        let what = error.to_string();
        match error {
            ClientError::Refused(body) => Self::refused(*body),
            ClientError::NoDaemon { .. } => {
                Self::NoDaemon { what, advice: "`procctl start` or `procctl run` starts one" }
            }
            ClientError::Launch { .. } => {
                Self::NoDaemon { what, advice: "start `procd` by hand to see what it says" }
            }
            ClientError::Disconnected { .. } => Self::NoDaemon {
                what,
                advice: "`procctl ps` starts it anew and shows what is on record",
            },
            ClientError::Silent { .. } => Self::NoDaemon {
                what,
                advice: "end the pid that the `.lock` file beside its socket names",
            },
            ClientError::Place(_) => Self::Place(what),
            ClientError::Nonsense { .. } | ClientError::LeaseLost | ClientError::Write(_) => {
                Self::Answer(what)
            }
            ClientError::Unsendable { .. } => Self::usage(what, "ask for less in one call"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_says_nothing_is_given_up_with_a_sentence() {
        let never = std::future::pending::<Result<(), ClientError>>();
        let said = in_time(Duration::from_millis(5), never).await.unwrap_err();
        assert_eq!(said.code(), crate::exit::Code::NoDaemon);
        assert!(said.to_string().contains("says nothing for 5ms; end it"), "{said}");
    }

    #[test]
    fn a_daemon_that_hangs_is_a_sentence_with_what_to_do() {
        let said = CtlError::from(ClientError::Silent { limit: ANSWER_MAX });
        assert_eq!(said.code(), crate::exit::Code::NoDaemon);
        let expected = "the daemon hangs: it has answered nothing for 60s; end the pid that the \
                        `.lock` file beside its socket names";
        assert_eq!(said.to_string(), expected);
    }
}
