//! The bridge's session: made, or found again, when it is first needed, and kept.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use procd_client::{Client, ClientError, Connect, Credentials, Session};
use procd_protocol::ErrorCode;
use procd_protocol::v1::{Env, SessionOpenParams, SessionState};
use tokio::sync::Mutex;

use crate::arguments::Arguments;
use crate::completions::Completions;
use crate::environment;
use crate::session_file::{self, SessionFileError};

/// Tries to come to a session by its file: attach, open, attach again, then the same with a new one.
const TRIES_MAX: usize = 4;

/// There is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSession {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] SessionFileError),
    #[error("no session could be made")]
    None,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    arguments: Arc<Arguments>,
    session: Arc<Mutex<Option<Session>>>,
    completions: Arc<Completions>,
    environment: Arc<Env>,
}

impl Bridge {
    /// Nothing is connected yet.
    pub(crate) fn new(arguments: Arguments) -> Self {
        Self {
            arguments: Arc::new(arguments),
            session: Arc::default(),
            completions: Arc::default(),
            environment: Arc::new(environment::passed(std::env::vars_os())),
        }
    }

    /// What the daemon may take beyond the time that a call waits by itself.
    pub(crate) fn answer_time(&self) -> Duration {
        Duration::from_secs(self.arguments.answer_time)
    }

    /// The ends of its processes.
    pub(crate) const fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// The environment of its commands.
    pub(crate) fn environment(&self) -> Env {
        Env::clone(&self.environment)
    }

    /// Comes back to a session that is kept, so that it does not close while this bridge is there.
    pub(crate) fn resume(&self) {
        let is_kept = self.arguments.session_file.as_ref().is_some_and(|path| path.exists());
        if is_kept {
            let bridge = self.clone();
            // What is wrong shows with the first call.
            tokio::spawn(async move { bridge.session().await.ok() });
        }
    }

    /// The session.
    /// # Errors
    /// [`NoSession`].
    pub(crate) async fn session(&self) -> Result<Session, NoSession> {
        let mut known = self.session.lock().await;
        if let Some(session) = &*known {
            return Ok(session.clone());
        }
        let session = match &self.arguments.session_file {
            Some(path) => self.kept(path).await?,
            None => {
                let client = self.connect().await?;
                Session::open_with(client, self.params(&Credentials::random()?)).await?
            }
        };
        self.completions.watch(session.clone());
        *known = Some(session.clone());
        Ok(session)
    }

    /// Forgets a session that is closed, or that the daemon does not know any more: the next call
    /// makes another.
    pub(crate) async fn forget(&self) {
        *self.session.lock().await = None;
    }

    async fn connect(&self) -> Result<Client, ClientError> {
        let starts = !self.arguments.no_private_daemon;
        let connect = Connect::new().name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        connect.private_daemon(starts).restart_private_daemon(starts).connect().await
    }

    /// The session that is kept in a file: found again, or made anew in place of a lost one.
    async fn kept(&self, path: &Path) -> Result<Session, NoSession> {
        let mut lost = None;
        for _ in 0..TRIES_MAX {
            let credentials = match session_file::read(path)? {
                Some(kept) if Some(&kept) != lost.as_ref() => kept,
                Some(_) | None => session_file::keep(path, Credentials::random()?, lost.as_ref())?,
            };
            if let Some(session) = self.attached(&credentials).await? {
                return Ok(session);
            }
            let opened = Session::open_with(self.connect().await?, self.params(&credentials)).await;
            match opened {
                Ok(session) => return Ok(session),
                // Another bridge has opened it meanwhile, or it is closed.
                Err(error) if error.is(ErrorCode::InvalidArguments) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(session) = self.attached(&credentials).await? {
                return Ok(session);
            }
            lost = Some(credentials);
        }
        Err(NoSession::None)
    }

    /// Attaches, when the session is known and open.
    async fn attached(&self, credentials: &Credentials) -> Result<Option<Session>, ClientError> {
        let client = self.connect().await?;
        let session = match Session::attach(client, credentials.clone()).await {
            Ok(session) => session,
            Err(error) if error.is(ErrorCode::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let state = session.status().await?.session.map(|own| own.state);
        Ok(state.is_some_and(|state| state == SessionState::Open).then_some(session))
    }

    fn params(&self, credentials: &Credentials) -> SessionOpenParams {
        let idle = Duration::from_secs(self.arguments.idle_close).as_millis();
        SessionOpenParams {
            session_id: Some(credentials.session_id),
            loop_id: Some(credentials.loop_id),
            session_key: Some(credentials.session_key.clone()),
            label: Some(self.arguments.label.clone()),
            idle_close_ms: u64::try_from(idle).ok(),
            ..SessionOpenParams::default()
        }
    }
}
