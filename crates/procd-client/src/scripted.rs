//! A daemon that says what a test wants it to say.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::BytesMut;
use procd_protocol::codec;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::connect::{Client, Connect};
use crate::session::Session;

/// How long a test may wait for one thing.
const DEADLINE: Duration = Duration::from_secs(20);

/// What `future` gives, within the deadline.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("within the deadline")
}

/// A folder of the test's own.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("procd-client-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The daemon's end of a connection.
pub(crate) struct Daemon<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Daemon<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The next frame of the client; `None` at the end of the stream.
    pub(crate) async fn receive(&mut self) -> Option<Value> {
        within(async {
            loop {
                if let Some(frame) = codec::decode(&mut self.buffer).unwrap() {
                    return Some(serde_json::from_slice(&frame).unwrap());
                }
                if self.stream.read_buf(&mut self.buffer).await.unwrap() == 0 {
                    return None;
                }
            }
        })
        .await
    }

    /// The next frame, which has to be a request of `method`: its id and parameters.
    pub(crate) async fn expect(&mut self, method: &str) -> (Value, Value) {
        let mut frame = self.receive().await.expect("a request");
        assert_eq!(frame["method"], method);
        (frame["id"].take(), frame["params"].take())
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        let mut frame = BytesMut::new();
        codec::encode(message.to_string().as_bytes(), &mut frame).unwrap();
        within(self.stream.write_all(&frame)).await.unwrap();
    }

    pub(crate) async fn answer(&mut self, id: Value, result: Value) {
        self.send(&json!({ "id": id, "result": result })).await;
    }

    pub(crate) async fn refuse(&mut self, id: Value, code: &str) {
        let error = json!({ "code": code, "message": "no", "retryable": false, "details": {} });
        self.send(&json!({ "id": id, "error": error })).await;
    }

    /// Answers the handshake.
    pub(crate) async fn greet(&mut self) {
        let (id, params) = self.expect("hello").await;
        assert_eq!(params["versions"], json!([1]));
        self.answer(id, hello()).await;
    }
}

/// A place where a daemon of a script listens, for clients that come back.
pub(crate) struct Script {
    folder: Folder,
    listener: UnixListener,
}

impl Script {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.0.join("s")).unwrap();
        Self { folder, listener }
    }

    /// A session of a client that connects here.
    pub(crate) async fn session(&self) -> Session {
        let client = Connect::new().socket(self.folder.0.join("s")).connect().await.unwrap();
        Session::open(client).await.unwrap()
    }

    async fn greeted(&self) -> Daemon<UnixStream> {
        let mut daemon = Daemon::over(within(self.listener.accept()).await.unwrap().0);
        daemon.greet().await;
        daemon
    }

    /// The next connection, which opens a session.
    pub(crate) async fn opened(&self) -> Daemon<UnixStream> {
        let mut daemon = self.greeted().await;
        let (id, params) = daemon.expect("session/open").await;
        let answer = json!({ "session_id": params["session_id"], "loop_id": params["loop_id"],
            "free": free() });
        daemon.answer(id, answer).await;
        daemon
    }

    /// The next connection, which comes back to the session.
    pub(crate) async fn attached(&self) -> Daemon<UnixStream> {
        let mut daemon = self.greeted().await;
        let (id, params) = daemon.expect("session/attach").await;
        let answer = json!({ "session_id": params["session_id"], "loop_id": params["loop_id"],
            "state": "open", "totals": {}, "free": free() });
        daemon.answer(id, answer).await;
        daemon
    }
}

/// A client and a daemon that have said hello.
pub(crate) async fn greeted() -> (Client, Daemon<tokio::io::DuplexStream>) {
    greeted_by(Connect::new()).await
}

/// The same, connected in another way.
pub(crate) async fn greeted_by(connect: Connect) -> (Client, Daemon<tokio::io::DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let mut daemon = Daemon::over(theirs);
    let (client, ()) = tokio::join!(connect.over(ours), daemon.greet());
    (client.unwrap(), daemon)
}

pub(crate) const ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

fn hello() -> Value {
    json!({
        "version": 1, "server": { "name": "procd", "version": "0" }, "limits": {},
        "containment": { "tier": "shim" }, "instance_id": "i", "boot_id": "b", "novel": true,
    })
}

pub(crate) fn free() -> Value {
    json!({ "loop": 8, "session": 8, "daemon": 8, "memory_bytes": 1, "spool_bytes": 1 })
}

/// A page of `from..next` of `total` bytes.
pub(crate) fn page(from: u64, next: u64, total: u64, state: &str) -> Value {
    let is_end = state != "running" && next == total;
    let output = "x".repeat(usize::try_from(next - from).unwrap());
    json!({
        "process_id": ID, "state": state, "start_cursor": from, "from_cursor": from,
        "next_cursor": next, "total_bytes": total, "retained_from": 0, "gap": false,
        "more": next < total, "eof": is_end, "output": output,
        "artifact": { "id": ID, "encoding": "base64", "start_cursor": from, "end_cursor": next },
    })
}
