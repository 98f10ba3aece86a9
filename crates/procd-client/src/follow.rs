//! Following the output of a process, by cursor.

use procd_protocol::v1::{Cursors, Encoding, OutputParams, Page, StreamFilter, Wait, WaitWord};

use crate::error::ClientError;
use crate::process::{Process, is_settled};

/// Size of a page, bytes.
const PAGE_BYTES: u64 = 256 * 1024;

/// Pages of output as they come, through the end. Nothing is polled: a page is waited for. Goes on
/// at its cursor over a dropped connection.
#[derive(Debug)]
pub struct Follow {
    process: Process,
    params: OutputParams,
    has_ended: bool,
}

impl Follow {
    pub(crate) fn new(process: Process) -> Self {
        let params = OutputParams {
            cursor: Some(Cursors::One(0)),
            limit_bytes: Some(PAGE_BYTES),
            wait: Some(Wait::Simple(WaitWord::Any)),
            ..OutputParams::default()
        };
        Self { process, params, has_ended: false }
    }

    /// From this cursor on; negative = from the end.
    #[must_use]
    pub fn from(mut self, cursor: i64) -> Self {
        self.params.tail_lines = None;
        self.params.cursor = Some(Cursors::One(cursor));
        self
    }

    /// From the last so many lines on, 1..=100,000.
    #[must_use]
    pub fn tail_lines(mut self, lines: u64) -> Self {
        self.params.cursor = None;
        self.params.tail_lines = Some(lines);
        self
    }

    /// The raw bytes, in standard base64, in place of safe text.
    #[must_use]
    pub const fn base64(mut self) -> Self {
        self.params.encoding = Some(Encoding::Base64);
        self
    }

    /// The bytes of one stream only.
    #[must_use]
    pub const fn stream(mut self, stream: StreamFilter) -> Self {
        self.params.stream = Some(stream);
        self
    }

    /// With the chunks of each page.
    #[must_use]
    pub const fn tags(mut self) -> Self {
        self.params.tags = Some(true);
        self
    }

    /// Size of a page, 1..=1 MiB.
    #[must_use]
    pub const fn limit_bytes(mut self, bytes: u64) -> Self {
        self.params.limit_bytes = Some(bytes);
        self
    }

    /// What is there now, without waiting for more.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.params.wait = None;
        self
    }

    /// Why an operator reads; it is logged.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.params.reason = Some(reason.into());
        self
    }

    /// The next page; `None` behind the last one, which has the end in it. A page tells a gap by
    /// itself. Cancel safe: what was not returned is read again.
    /// # Errors
    /// As [`Process::output`]; [`ClientError::Disconnected`] when the daemon shuts down first.
    pub async fn next(&mut self) -> Result<Option<Page>, ClientError> {
        if self.has_ended {
            return Ok(None);
        }
        let page = self.process.output(self.params.clone()).await?;
        let waits = self.params.wait.is_some();
        let cursor = i64::try_from(page.next_cursor).unwrap_or(i64::MAX);
        let has_moved = self.params.cursor != Some(Cursors::One(cursor));
        // A wait comes back with nothing new only at the end, or when the daemon shuts down.
        let is_idle = !has_moved && !page.more;
        if waits && is_idle && !is_settled(&page) {
            return Err(ClientError::disconnected("the daemon shuts down"));
        }
        self.params.tail_lines = None;
        self.params.cursor = Some(Cursors::One(cursor));
        self.has_ended = page.eof || (is_idle && is_settled(&page)) || (!waits && !page.more);
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use procd_protocol::v1::WokeBy;
    use serde_json::{Value, json};
    use tokio::net::UnixListener;

    use crate::scripted::{Daemon, Folder, ID, free, greeted, page, within};
    use crate::{Connect, Session};

    fn result(page: &Value) -> Value {
        json!({ "results": [page], "woke_by": WokeBy::Output })
    }

    async fn attached<S>(daemon: &mut Daemon<S>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let (id, params) = daemon.expect("session/attach").await;
        let answer = json!({ "session_id": params["session_id"], "loop_id": params["loop_id"],
            "state": "open", "totals": {}, "free": free() });
        daemon.answer(id, answer).await;
    }

    async fn opened<S>(daemon: &mut Daemon<S>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let (id, params) = daemon.expect("session/open").await;
        let answer = json!({ "session_id": params["session_id"], "loop_id": params["loop_id"],
            "free": free() });
        daemon.answer(id, answer).await;
    }

    #[tokio::test]
    async fn pages_come_by_cursor_and_the_last_one_has_the_end() {
        let (client, mut daemon) = greeted().await;
        let (session, ()) = tokio::join!(Session::open(client), opened(&mut daemon));
        let process = session.unwrap().process(ID.parse().unwrap());
        let script = async {
            let pages = [
                (0, page(0, 3, 3, "running")),
                (3, page(3, 5, 7, "exited")),
                (5, page(5, 7, 7, "exited")),
            ];
            for (cursor, page) in pages {
                let (id, params) = daemon.expect("process/output").await;
                assert_eq!((&params["cursor"], &params["wait"]), (&json!(cursor), &json!("any")));
                daemon.answer(id, result(&page)).await;
            }
        };
        let reading = async {
            let mut follow = process.follow();
            let mut text = String::new();
            while let Some(page) = follow.next().await.unwrap() {
                text += &page.output.unwrap();
            }
            text
        };
        let (text, ()) = within(async { tokio::join!(reading, script) }).await;
        assert_eq!(text, "xxxxxxx");
    }

    #[tokio::test]
    async fn following_goes_on_at_its_cursor_over_a_dropped_connection() {
        let folder = Folder::new();
        let socket = folder.0.join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let script = async {
            let mut daemon = Daemon::over(listener.accept().await.unwrap().0);
            daemon.greet().await;
            opened(&mut daemon).await;
            let (id, _) = daemon.expect("process/output").await;
            daemon.answer(id, result(&page(0, 4, 4, "running"))).await;
            daemon.expect("process/output").await;
            drop(daemon);
            let mut daemon = Daemon::over(listener.accept().await.unwrap().0);
            daemon.greet().await;
            attached(&mut daemon).await;
            let (id, params) = daemon.expect("process/output").await;
            assert_eq!(params["cursor"], json!(4));
            daemon.answer(id, result(&page(4, 6, 6, "exited"))).await;
        };
        let reading = async {
            let client = Connect::new().socket(&socket).connect().await.unwrap();
            let session = Session::open(client).await.unwrap();
            let mut follow = session.process(ID.parse().unwrap()).follow();
            let mut bytes = 0;
            while let Some(page) = follow.next().await.unwrap() {
                bytes += page.output.unwrap().len();
            }
            bytes
        };
        let (bytes, ()) = within(async { tokio::join!(reading, script) }).await;
        assert_eq!(bytes, 6);
    }

    #[tokio::test]
    async fn a_daemon_that_shuts_down_first_is_told_and_not_asked_again() {
        let (client, mut daemon) = greeted().await;
        let (session, ()) = tokio::join!(Session::open(client), opened(&mut daemon));
        let mut follow = session.unwrap().process(ID.parse().unwrap()).follow().from(3);
        let script = async {
            let (id, _) = daemon.expect("process/output").await;
            let shutdown = json!({ "results": [page(3, 3, 3, "running")], "woke_by": "shutdown" });
            daemon.answer(id, shutdown).await;
        };
        let (next, ()) = within(async { tokio::join!(follow.next(), script) }).await;
        assert!(next.unwrap_err().is_disconnected());
    }
}
