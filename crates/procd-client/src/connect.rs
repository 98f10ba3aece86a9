//! Finding the daemon, starting a private one when asked to, and the handshake.

use std::io;
use std::path::{Path, PathBuf};

use procd_protocol::v1::{
    ClientInfo, HelloParams, HelloResult, Params, StatusParams, StatusResult, VERSION,
};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::connection::{Connection, OnDrop};
use crate::error::ClientError;
use crate::{launch, places};

/// How to connect.
#[derive(Debug, Clone)]
pub struct Connect {
    name: String,
    version: String,
    socket: Option<PathBuf>,
    starts_private: bool,
    daemon: Option<PathBuf>,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            socket: None,
            starts_private: false,
            daemon: None,
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

    /// Connects and says hello.
    /// # Errors
    /// [`ClientError::NoDaemon`] when nobody listens, [`ClientError::Launch`] when a private
    /// daemon could not be started, [`ClientError::Refused`] when the daemon does not want us.
    pub async fn connect(&self) -> Result<Client, ClientError> {
        let path = self.socket.clone().map_or_else(places::socket, places::checked)?;
        match self.attempt(&path).await {
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
        let connection = Connection::over(stream);
        let hello = HelloParams {
            client: ClientInfo { name: self.name.clone(), version: self.version.clone() },
            versions: vec![VERSION],
            features: None,
        };
        let hello = connection.call(&hello, OnDrop::Leave).await?;
        Ok(Client { connection, hello, connect: self.clone() })
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

    /// How this connection came to be, to make another like it. It starts no daemon: what was
    /// there before would be gone anyway.
    pub(crate) fn again(&self) -> Connect {
        self.connect.clone().private_daemon(false)
    }

    pub(crate) async fn call_with<P: Params>(
        &self,
        params: &P,
        on_drop: OnDrop,
    ) -> Result<P::Result, ClientError> {
        self.connection.call(params, on_drop).await
    }
}
