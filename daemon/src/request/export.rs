//! process/export: the bytes that are kept, as notices before the reply. At most four chunks are on
//! their way; then the client says how many it took. A running process is exported up to the total
//! seen at the start. Source: spec, output, *Spool*; protocol, *Envelope*.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use procd_protocol::envelope::NoticeOut;
use procd_protocol::v1::{self, EXPORT_CHUNK, EXPORT_GAP, ExportChunk, ExportGap, Method};
use procd_protocol::{Base64Bytes, ErrorBody, RequestId, codec, limits};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::error::{cancelled, of_read, wire};
use super::process::handle;
use super::stretch::as_u64;
use super::{Client, Done, Reply, as_count, log_reason};
use crate::drain::Output;
use crate::supervisor::refusal::Refusal;

/// The exports under way of one connection, and how many chunks each may still send.
#[derive(Debug, Default)]
pub(super) struct Exports(Mutex<HashMap<RequestId, Arc<Semaphore>>>);

impl Exports {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<RequestId, Arc<Semaphore>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The client took chunks. More than are on their way changes nothing.
    pub(super) fn go_on(&self, request: RequestId, chunks: u64) {
        self.with(|exports| {
            let Some(credit) = exports.get(&request) else { return };
            let max = as_count(limits::EXPORT_CHUNKS_MAX);
            let under_way = max.saturating_sub(credit.available_permits());
            credit.add_permits(as_count(chunks).min(under_way));
        });
    }
}

/// An export under way.
#[derive(Debug)]
pub struct Export {
    client: Arc<Client>,
    request: RequestId,
    credit: Arc<Semaphore>,
    cancel: CancellationToken,
    output: Output,
    from: u64,
    at: u64,
    end: u64,
    bytes: u64,
    gap_bytes: u64,
    hash: Sha256,
}

pub(super) async fn export(
    client: &Arc<Client>,
    params: v1::ExportParams,
    request: RequestId,
    cancel: &CancellationToken,
) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let process = handle(params.process_id);
    log_reason(&bound, params.reason.as_deref(), Method::ProcessExport, &[process])?;
    let supervisor = client.supervisor().await?;
    let view = supervisor.find(bound.caller(), process).await.map_err(|r| wire(&r))?;
    let end = view.output.bounds().total;
    let from = params.from_cursor.unwrap_or(0);
    if from > end {
        return Err(wire(&Refusal::CursorAhead { cursor: from, total_bytes: end }));
    }
    let credit = Arc::new(Semaphore::new(as_count(limits::EXPORT_CHUNKS_MAX)));
    client.exports.with(|exports| exports.insert(request, credit.clone()));
    Ok(Done::streamed(Export {
        client: client.clone(),
        request,
        credit,
        cancel: cancel.clone(),
        output: view.output,
        from,
        at: from,
        end,
        bytes: 0,
        gap_bytes: 0,
        hash: Sha256::new(),
    }))
}

impl Drop for Export {
    fn drop(&mut self) {
        self.client.exports.with(|exports| drop(exports.remove(&self.request)));
    }
}

impl Export {
    /// The next notice as a frame; `None` at the end.
    /// # Errors
    /// `cancelled`, and what a read of the output gives.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, ErrorBody> {
        if self.at >= self.end {
            return Ok(None);
        }
        tokio::select! {
            permit = self.credit.acquire() => match permit {
                Ok(permit) => permit.forget(),
                Err(_closed) => return Err(wire(&Refusal::Internal)),
            },
            () = self.cancel.cancelled() => return Err(cancelled(None)),
        }
        let chunk = as_count(limits::EXPORT_CHUNK_BYTES_MAX);
        let wanted = usize::try_from(self.end - self.at).unwrap_or(chunk).min(chunk);
        let read = self.output.read(self.at, wanted).await;
        let mut page = read.map_err(|error| wire(&of_read(&error)))?;
        let begin = page.from.min(self.end);
        if begin > self.at || page.bytes.is_empty() {
            // A gap is told without using up a chunk.
            self.credit.add_permits(1);
            let to = if page.bytes.is_empty() { self.end } else { begin };
            let gap = ExportGap { request: self.request, from: self.at, to };
            self.gap_bytes += to - self.at;
            self.at = to;
            return Ok(Some(frame(EXPORT_GAP, &gap)));
        }
        page.bytes.truncate(wanted);
        self.hash.update(&page.bytes);
        self.at += as_u64(page.bytes.len());
        self.bytes += as_u64(page.bytes.len());
        let chunk = ExportChunk {
            request: self.request,
            cursor: begin,
            data_base64: Base64Bytes(page.bytes),
        };
        Ok(Some(frame(EXPORT_CHUNK, &chunk)))
    }

    /// The reply behind the notices.
    #[must_use]
    pub fn finish(&self) -> Reply {
        let hash = self.hash.clone().finalize();
        Reply::Export(v1::ExportResult {
            from_cursor: self.from,
            end_cursor: self.end,
            bytes: self.bytes,
            gap_bytes: self.gap_bytes,
            sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

fn frame<T: serde::Serialize>(method: &str, params: &T) -> BytesMut {
    let mut frame = BytesMut::new();
    let notice = NoticeOut { method, params };
    if codec::encode_with(&mut frame, |to| serde_json::to_writer(to, &notice)).is_err() {
        tracing::error!("bug: a notice does not fit a frame");
    }
    frame
}
