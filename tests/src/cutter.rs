//! A socket between a client and the daemon that cuts the connection at a frame of one's choice:
//! that frame never arrives, in either direction, and both ends see the connection close.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use procd_protocol::codec;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Where to cut, counted from 1 over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nowhere.
    Never,
    /// At that frame of the client.
    Request(usize),
    /// At that frame of the daemon.
    Answer(usize),
}

/// What came by.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Frames of the client.
    pub requests: usize,
    /// Frames of the daemon.
    pub answers: usize,
    /// Bytes of the daemon's frames that were passed on.
    pub answer_bytes: usize,
    /// The frame that was cut.
    pub cut: Option<Value>,
}

/// See the module. Dropping it ends it.
#[derive(Debug)]
pub struct Cutter {
    seen: Arc<Mutex<Seen>>,
    accepting: JoinHandle<()>,
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Cutter {
    /// Listens at `path` for the daemon at `daemon`. In a tokio runtime.
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn start(path: &Path, daemon: &Path, cut: Cut) -> Self {
        let listener = UnixListener::bind(path).expect("listen");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (daemon, count) = (daemon.to_owned(), Arc::clone(&seen));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&daemon).await else { continue };
                tokio::spawn(between(client, server, cut, Arc::clone(&count)));
            }
        });
        Self { seen, accepting }
    }

    /// What came by until now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One connection: ends with the first direction that ends.
async fn between(client: UnixStream, server: UnixStream, cut: Cut, seen: Arc<Mutex<Seen>>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = |frame: &Bytes| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests += 1;
        let goes = cut != Cut::Request(seen.requests);
        if !goes {
            seen.cut = serde_json::from_slice(frame).ok();
        }
        goes
    };
    let down = |frame: &Bytes| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.answers += 1;
        seen.answer_bytes += frame.len();
        let goes = cut != Cut::Answer(seen.answers);
        if !goes {
            seen.cut = serde_json::from_slice(frame).ok();
        }
        goes
    };
    tokio::select! {
        result = pass(from_client, to_server, up) => drop(result),
        result = pass(from_server, to_client, down) => drop(result),
    }
}

/// Passes frames on, as long as they may go.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    goes: impl Fn(&Bytes) -> bool,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        while let Some(frame) = codec::decode(&mut buffer).map_err(io::Error::other)? {
            if !goes(&frame) {
                return Ok(());
            }
            let mut out = BytesMut::new();
            codec::encode(&frame, &mut out).map_err(io::Error::other)?;
            to.write_all(&out).await?;
        }
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}
