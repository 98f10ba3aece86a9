//! What a frame says. A short one is read at once. The reading of a long one takes longer than
//! the other clients should wait for the control thread, so it is done beside it, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use procd_protocol::envelope::{self, EXPORT_CONTINUE, Incoming};
use procd_protocol::v1::{Call, CancelParams, ExportContinueParams, Method};
use procd_protocol::words::Word;
use procd_protocol::{ErrorBody, ErrorCode, field};
use tokio::sync::Semaphore;

use super::Ticket;
use crate::request::Client;

/// Frames up to this are read at once, bytes: at worst a few milliseconds.
const SHORT_BYTES: usize = 64 * 1024;

/// What a frame turned out to be.
#[derive(Debug)]
pub(super) enum Said {
    /// A request, and whether it can be carried out.
    Request { ticket: Ticket, is_hello: bool, call: Result<Call, ErrorBody> },
    /// A notice.
    Notice(Result<Told, ErrorBody>),
    /// Neither.
    Neither(ErrorBody),
}

/// What a notice says.
#[derive(Debug)]
pub(super) enum Told {
    /// A request is to end.
    Cancel(CancelParams),
    /// An export may go on.
    Continue(ExportContinueParams),
}

/// Reads one frame.
/// - `long`: the right to read a long one.
pub(super) async fn read(client: &Arc<Client>, bytes: &Bytes, long: &Semaphore) -> Said {
    if bytes.len() <= SHORT_BYTES {
        return read_now(client, bytes);
    }
    let _turn = long.acquire().await;
    let (client, bytes) = (client.clone(), bytes.clone());
    match tokio::task::spawn_blocking(move || read_now(&client, &bytes)).await {
        Ok(said) => said,
        Err(error) => {
            tracing::error!(%error, "bug: the reading of a frame did not end");
            Said::Neither(ErrorBody::new(ErrorCode::Internal, "internal error"))
        }
    }
}

fn read_now(client: &Client, bytes: &[u8]) -> Said {
    match envelope::parse_incoming(bytes) {
        Ok(Incoming::Request(request)) => Said::Request {
            is_hello: request.method == Method::Hello.as_str(),
            call: client.admit(&request.method, request.params),
            ticket: Ticket { id: request.id, trace: request.trace },
        },
        Ok(Incoming::Notice(notice)) if notice.method == EXPORT_CONTINUE => {
            let params = field::parse::<ExportContinueParams>(notice.params);
            let params = params.and_then(|params| params.validate().map(|()| params));
            Said::Notice(params.map(Told::Continue).map_err(Into::into))
        }
        // There is no other one.
        Ok(Incoming::Notice(notice)) => {
            let params = field::parse::<CancelParams>(notice.params);
            Said::Notice(params.map(Told::Cancel).map_err(Into::into))
        }
        Err(error) => Said::Neither(error.into()),
    }
}
