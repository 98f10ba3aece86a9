//! The retained bytes of a process as a stream of pieces.

use std::sync::Arc;

use procd_protocol::ProcessId;
use procd_protocol::envelope::{EXPORT_CONTINUE, NoticeOut};
use procd_protocol::v1::{
    EXPORT_CHUNK, EXPORT_GAP, ExportChunk, ExportContinueParams, ExportGap, ExportParams,
    ExportResult,
};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::connect::TRIES_MAX;
use crate::error::ClientError;
use crate::link::Link;
use crate::stream::{Goodbye, Next, Notice, Stream};

/// A piece of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes, at most 256 KiB.
    Bytes {
        /// The first one's place in the output.
        cursor: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes that are not kept any more.
    Gap {
        /// The first one's place.
        from: u64,
        /// Behind the last one.
        to: u64,
    },
}

/// What an export came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Where it began, in bytes since the first one ever written.
    pub from_cursor: u64,
    /// Behind the last byte.
    pub end_cursor: u64,
    /// Bytes handed out.
    pub bytes: u64,
    /// Bytes that are not kept any more.
    pub gap_bytes: u64,
    /// Hex SHA-256 of all bytes handed out, as the daemon reckons it; absent when the export went
    /// on over a dropped connection: it then knows only those of the last part.
    pub sha256: Option<String>,
}

/// An export under way. At most 4 pieces are on their way to it, so a slow taker holds 1 MiB.
/// Dropping it ends it. Goes on at its place over a dropped connection.
#[derive(Debug)]
pub struct Export {
    link: Arc<Link>,
    params: ExportParams,
    stream: Option<Stream>,
    answered: Option<ExportResult>,
    /// Where it began, once a piece came.
    begun_at: Option<u64>,
    at: u64,
    bytes: u64,
    gap_bytes: u64,
    /// Breaks of the connection since the last piece.
    breaks: usize,
    is_resumed: bool,
}

impl Export {
    pub(crate) const fn new(link: Arc<Link>, process_id: ProcessId) -> Self {
        let params = ExportParams { process_id, from_cursor: None, reason: None };
        let (stream, answered) = (None, None);
        Self {
            link,
            params,
            stream,
            answered,
            begun_at: None,
            at: 0,
            bytes: 0,
            gap_bytes: 0,
            breaks: 0,
            is_resumed: false,
        }
    }

    /// From this cursor on. Before the first piece only.
    #[must_use]
    pub const fn from(mut self, cursor: u64) -> Self {
        (self.params.from_cursor, self.at) = (Some(cursor), cursor);
        self
    }

    /// Why an operator exports; it is logged.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.params.reason = Some(reason.into());
        self
    }

    /// The next piece; `None` behind the last one. Cancel safe.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn next(&mut self) -> Result<Option<Piece>, ClientError> {
        loop {
            match self.step().await {
                Err(ClientError::Disconnected { .. }) if self.breaks < TRIES_MAX => {
                    self.breaks += 1;
                    (self.stream, self.is_resumed) = (None, true);
                    self.params.from_cursor = Some(self.at);
                }
                answer => return answer,
            }
        }
    }

    /// What it came to, behind the last piece.
    #[must_use]
    pub fn result(&self) -> Option<Exported> {
        let answered = self.answered.as_ref()?;
        let sha256 = (!self.is_resumed).then(|| answered.sha256.clone());
        let Self { bytes, gap_bytes, .. } = *self;
        let from_cursor = self.begun_at.unwrap_or(answered.from_cursor);
        Some(Exported { from_cursor, end_cursor: answered.end_cursor, bytes, gap_bytes, sha256 })
    }

    /// Writes all bytes to `to`, without the gaps, which the result tells.
    /// # Errors
    /// As [`Self::next`]; [`ClientError::Write`] when `to` takes no more.
    pub async fn write_to(
        mut self,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Exported, ClientError> {
        while let Some(piece) = self.next().await? {
            if let Piece::Bytes { bytes, .. } = piece {
                to.write_all(&bytes).await.map_err(|error| ClientError::Write(error.into()))?;
            }
        }
        to.flush().await.map_err(|error| ClientError::Write(error.into()))?;
        self.result().ok_or_else(|| ClientError::nonsense(&"an export without an end"))
    }

    async fn step(&mut self) -> Result<Option<Piece>, ClientError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let client = self.link.client().await?;
                none.insert(Stream::open(client, &self.params, Goodbye::Cancel).await?)
            }
        };
        loop {
            let notice = if self.answered.is_some() {
                // Every piece came before the answer.
                let Some(notice) = stream.next_here() else { return Ok(None) };
                notice
            } else {
                match stream.next_or_answer().await? {
                    Next::Notice(notice) => notice,
                    Next::Answer(result) => {
                        self.answered = Some(result);
                        continue;
                    }
                }
            };
            let Some(piece) = piece_of(&notice)? else { continue };
            self.breaks = 0;
            match &piece {
                Piece::Bytes { cursor, bytes } => {
                    self.begun_at.get_or_insert(*cursor);
                    let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    self.bytes += count;
                    self.at = cursor.saturating_add(count);
                    let params = ExportContinueParams { request: stream.id(), chunks: 1 };
                    let notice = NoticeOut { method: EXPORT_CONTINUE, params: &params };
                    stream.client().connection().tell(&notice);
                }
                Piece::Gap { from, to } => {
                    self.begun_at.get_or_insert(*from);
                    self.gap_bytes += to.saturating_sub(*from);
                    self.at = *to;
                }
            }
            return Ok(Some(piece));
        }
    }
}

/// `None` for a notice of a later version.
fn piece_of(notice: &Notice) -> Result<Option<Piece>, ClientError> {
    match notice.method.as_str() {
        EXPORT_CHUNK => {
            let ExportChunk { cursor, data_base64, .. } = notice.params()?;
            Ok(Some(Piece::Bytes { cursor, bytes: data_base64.0 }))
        }
        EXPORT_GAP => {
            let ExportGap { from, to, .. } = notice.params()?;
            Ok(Some(Piece::Gap { from, to }))
        }
        _later => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scripted::{ID, Script, within};

    fn chunk(request: &Value, cursor: u64, data: &str) -> Value {
        let params = json!({ "for": request, "cursor": cursor, "data_base64": data });
        json!({ "method": EXPORT_CHUNK, "params": params })
    }

    #[tokio::test]
    async fn an_export_goes_on_at_its_place_over_a_dropped_connection() {
        let script = Script::new();
        let daemon = async {
            let mut daemon = script.opened().await;
            let (id, params) = daemon.expect("process/export").await;
            assert_eq!(params, json!({ "process_id": ID }));
            let gap = json!({ "for": id, "from": 0, "to": 10 });
            daemon.send(&json!({ "method": EXPORT_GAP, "params": gap })).await;
            daemon.send(&chunk(&id, 10, "YWJj")).await;
            let (_, params) = daemon.expect("export/continue").await;
            assert_eq!(params, json!({ "for": id, "chunks": 1 }));
            drop(daemon);
            let mut daemon = script.attached().await;
            let (id, params) = daemon.expect("process/export").await;
            assert_eq!(params, json!({ "process_id": ID, "from_cursor": 13 }));
            daemon.send(&chunk(&id, 13, "ZGU=")).await;
            let answer = json!({ "from_cursor": 13, "end_cursor": 15, "bytes": 2, "gap_bytes": 0,
                "sha256": "x" });
            daemon.answer(id, answer).await;
            daemon.expect("export/continue").await;
        };
        let using = async {
            let session = script.session().await;
            let mut bytes = Vec::new();
            let export = session.process(ID.parse().unwrap()).export();
            (export.write_to(&mut bytes).await.unwrap(), bytes)
        };
        let ((exported, bytes), ()) = within(async { tokio::join!(using, daemon) }).await;
        assert_eq!(bytes, b"abcde");
        let expected =
            Exported { from_cursor: 0, end_cursor: 15, bytes: 5, gap_bytes: 10, sha256: None };
        assert_eq!(exported, expected);
    }
}
