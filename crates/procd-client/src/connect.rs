//! Finding the daemon, starting a private one when asked to, and the handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procd_protocol::v1::{
    ClientInfo, FEATURE_NOTIFICATIONS, HelloParams, HelloResult, Params, StatusParams,
    StatusResult, VERSION,
};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::connection::{Connection, OnDrop};
use crate::error::ClientError;
use crate::{launch, places};

/// How long a dropped connection is tried to be made anew, unless it is said otherwise: the time
/// of a daemon's restart.
const RECONNECT_TIME: Duration = Duration::from_secs(10);
/// The pause between the first two tries to reach a daemon that is away; each is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest of these pauses.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often one call is made when the connection breaks under it each time.
pub(crate) const TRIES_MAX: usize = 4;

/// How to connect.
#[derive(Debug, Clone)]
pub struct Connect {
    name: String,
    version: String,
    socket: Option<PathBuf>,
    starts_private: bool,
    daemon: Option<PathBuf>,
    reconnect_time: Duration,
    restarts_private: bool,
    silence_max: Option<Duration>,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: None,
            starts_private: false,
            daemon: None,
            reconnect_time: RECONNECT_TIME,
            restarts_private: false,
            silence_max: None,
        }
    }
}

impl Connect {
    /// To the socket of this user, starting nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says who connects: 1..=128 characters each.
    #[must_use]
    pub fn name(mut self, name: &str, version: &str) -> Self {
        name.clone_into(&mut self.name);
        version.clone_into(&mut self.version);
        self
    }

    /// To this socket, wherever the environment points.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = Some(path.into());
        self
    }

    /// Starts a private daemon when none answers.
    #[must_use]
    pub const fn private_daemon(mut self, starts: bool) -> Self {
        self.starts_private = starts;
        self
    }

    /// Which executable a private daemon is, in place of `$PROCD_DAEMON`, the one beside this
    /// program, and the one on PATH.
    #[must_use]
    pub fn daemon(mut self, program: impl Into<PathBuf>) -> Self {
        self.daemon = Some(program.into());
        self
    }

    /// How long to try when a connection that was there is gone, the daemon's restart included;
    /// default 10 s. Zero: once.
    #[must_use]
    pub const fn reconnect_time(mut self, time: Duration) -> Self {
        self.reconnect_time = time;
        self
    }

    /// Whether a reconnect, too, may start a private daemon where none answers. What was recorded
    /// is there again then; what ran is `lost_on_restore`.
    #[must_use]
    pub const fn restart_private_daemon(mut self, starts: bool) -> Self {
        self.restarts_private = starts;
        self
    }

    /// How long a daemon that is there may answer nothing; it is asked after half of that, so that
    /// a long wait for an output or an end is none. Then every call fails with
    /// [`ClientError::Silent`]. Without it a daemon that hangs is waited for.
    #[must_use]
    pub const fn silence_max(mut self, limit: Duration) -> Self {
        self.silence_max = Some(limit);
        self
    }

    /// Connects and says hello.
    /// # Errors
    /// [`ClientError::NoDaemon`] when nobody listens, [`ClientError::Launch`] when a private
    /// daemon could not be started, [`ClientError::Refused`] when the daemon does not want us.
    pub async fn connect(&self) -> Result<Client, ClientError> {
        let path = self.socket.clone().map_or_else(places::socket, places::checked)?;
        match self.hello(&path).await {
            // A daemon that was just ending has hung up: it is as good as none.
            Err(ClientError::NoDaemon { .. } | ClientError::Disconnected { .. })
                if self.starts_private => {}
            answer => return answer,
        }
        // Of several that start at once one daemon wins: whoever lost finds the winner's socket.
        let launched = launch::private_daemon(self.daemon.as_deref(), &path).await;
        match (self.attempt(&path).await, launched) {
            (Err(ClientError::NoDaemon { .. }), Err(refused)) => Err(refused),
            (answer, _) => answer,
        }
    }

    /// Says hello over a stream that is connected already.
    /// # Errors
    /// As [`Self::connect`].
    pub async fn over<S>(&self, stream: S) -> Result<Client, ClientError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let connection = Connection::over(stream, self.silence_max);
        let hello = HelloParams {
            client: ClientInfo { name: self.name.clone(), version: self.version.clone() },
            versions: vec![VERSION],
            features: Some(vec![FEATURE_NOTIFICATIONS.to_owned()]),
        };
        let hello = connection.call(&hello, OnDrop::Leave).await?;
        Ok(Client { connection, hello, connect: self.clone() })
    }

    /// As [`Self::connect`], for as long as a reconnect may take.
    pub(crate) async fn connect_again(&self) -> Result<Client, ClientError> {
        let deadline = Instant::now() + self.reconnect_time;
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.connect().await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            let is_away = matches!(
                error,
                ClientError::NoDaemon { .. }
                    | ClientError::Disconnected { .. }
                    | ClientError::Launch { .. }
            );
            if !is_away || Instant::now() + pause > deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// A hello whose connection breaks is said again: it changes nothing.
    async fn hello(&self, path: &Path) -> Result<Client, ClientError> {
        for _ in 1..TRIES_MAX {
            match self.attempt(path).await {
                Err(ClientError::Disconnected { .. }) => {}
                answer => return answer,
            }
        }
        self.attempt(path).await
    }

    async fn attempt(&self, path: &Path) -> Result<Client, ClientError> {
        let stream = reach(path).await.map_err(|source| ClientError::NoDaemon {
            path: path.to_owned(),
            source: source.into(),
        })?;
        self.over(stream).await
    }
}

/// Connects; where the daemon's backlog is full, waits for room in it.
async fn reach(path: &Path) -> io::Result<UnixStream> {
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        answer => return answer,
    }
    let path = path.to_owned();
    let blocking = move || std::os::unix::net::UnixStream::connect(path);
    let stream = tokio::task::spawn_blocking(blocking).await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// A connection that has said hello and has no role yet. It gets one for life by
/// [`Session::open`](crate::Session::open), [`Session::attach`](crate::Session::attach) or
/// [`Operator::attach`](crate::Operator::attach).
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    hello: HelloResult,
    connect: Connect,
}

impl Client {
    /// Connects to the daemon of this user, starting nothing.
    /// # Errors
    /// As [`Connect::connect`].
    pub async fn connect() -> Result<Self, ClientError> {
        Connect::new().connect().await
    }

    /// What the daemon said of itself.
    #[must_use]
    pub const fn hello(&self) -> &HelloResult {
        &self.hello
    }

    /// Calls a method with its own parameters. Dropping the wait leaves the request alone.
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's code, [`ClientError::Disconnected`].
    pub async fn call<P: Params>(&self, params: &P) -> Result<P::Result, ClientError> {
        self.connection.call(params, OnDrop::Leave).await
    }

    /// As [`Self::call`]; dropping the wait sends `$/cancel`, which ends a wait, and a start that
    /// has not been answered.
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_cancelling<P: Params>(&self, params: &P) -> Result<P::Result, ClientError> {
        self.connection.call(params, OnDrop::Cancel).await
    }

    /// Calls any method with any parameters and gives the raw result.
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_raw(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Box<RawValue>, ClientError> {
        self.connection.call_raw(method, params, OnDrop::Cancel).await
    }

    /// What the daemon says of itself to a connection of this role.
    /// # Errors
    /// As [`Self::call`].
    pub async fn status(&self) -> Result<StatusResult, ClientError> {
        self.call(&StatusParams::default()).await
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until the connection is gone.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// How this connection came to be, to make another like it.
    pub(crate) fn again(&self) -> Connect {
        self.connect.clone().private_daemon(self.connect.restarts_private)
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) async fn call_with<P: Params>(
        &self,
        params: &P,
        on_drop: OnDrop,
    ) -> Result<P::Result, ClientError> {
        self.connection.call(params, on_drop).await
    }
}
