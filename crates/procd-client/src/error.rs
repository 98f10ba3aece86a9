//! What can go wrong, by what the caller can do.

use std::io;
use std::path::PathBuf;

use procd_protocol::error::Details;
use procd_protocol::words::Open;
use procd_protocol::{ErrorBody, ErrorCode};

use crate::places::PlaceError;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// There is no place for socket or state.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Nobody listens: start a daemon, or ask for a private one.
    #[error("no daemon answers at `{}`", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: SharedIo,
    },
    /// A private daemon could not be started.
    #[error("cannot start a private daemon: {message}")]
    Launch {
        /// The daemon's own sentence, or what failed before it could say one.
        message: String,
    },
    /// The connection is gone. What was asked may or may not have been done.
    #[error("the connection to the daemon is gone: {message}")]
    Disconnected {
        /// What ended it.
        message: String,
    },
    /// The daemon is there and answers nothing: see [`Connect::silence_max`](crate::Connect::silence_max).
    #[error("the daemon hangs: it has answered nothing for {limit:?}")]
    Silent {
        /// How long it was waited for.
        limit: std::time::Duration,
    },
    /// The daemon refused: look at the code.
    #[error("{}", .0.message)]
    Refused(Box<ErrorBody>),
    /// The daemon said something that makes no sense here.
    #[error("the daemon's reply makes no sense: {message}")]
    Nonsense {
        /// What is wrong with it.
        message: String,
    },
    /// A lease ended with the connection it was made on: others may write since.
    #[error("the lease is lost: its connection to the daemon is gone")]
    LeaseLost,
    /// What was to be written elsewhere could not be.
    #[error("cannot write: {0}")]
    Write(SharedIo),
    /// The request cannot be sent.
    #[error("the request cannot be sent: {message}")]
    Unsendable {
        /// Why.
        message: String,
    },
}

/// An I/O error that several waiting calls may share.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct SharedIo(pub std::sync::Arc<io::Error>);

impl From<io::Error> for SharedIo {
    fn from(error: io::Error) -> Self {
        Self(std::sync::Arc::new(error))
    }
}

impl ClientError {
    /// The daemon's code, known or not, when it refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&ErrorBody> {
        match self {
            Self::Refused(body) => Some(body),
            Self::Place(_)
            | Self::NoDaemon { .. }
            | Self::Launch { .. }
            | Self::Disconnected { .. }
            | Self::Silent { .. }
            | Self::Nonsense { .. }
            | Self::LeaseLost
            | Self::Write(_)
            | Self::Unsendable { .. } => None,
        }
    }

    /// The daemon's code, when it refused with one this build knows.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        self.refusal().and_then(|body| body.code.known())
    }

    /// Whether the daemon refused with this code.
    #[must_use]
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code() == Some(code)
    }

    /// What a program can act on, when the daemon refused.
    #[must_use]
    pub fn details(&self) -> Option<&Details> {
        self.refusal().map(|body| &*body.details)
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.refusal().is_some_and(|body| body.retryable)
    }

    /// Whether the connection is gone.
    #[must_use]
    pub const fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected { .. })
    }

    pub(crate) fn disconnected(message: impl Into<String>) -> Self {
        Self::Disconnected { message: message.into() }
    }

    pub(crate) fn nonsense(error: &dyn std::fmt::Display) -> Self {
        Self::Nonsense { message: error.to_string() }
    }
}

impl From<procd_protocol::error::EntryError> for ClientError {
    fn from(error: procd_protocol::error::EntryError) -> Self {
        let retryable = match &error.code {
            Open::Known(code) => code.is_retryable(None),
            Open::Unknown(_) => false,
        };
        Self::Refused(Box::new(ErrorBody {
            code: error.code,
            message: error.message,
            retryable,
            details: Box::default(),
        }))
    }
}
