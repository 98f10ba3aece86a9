//! What a frame says. A short one is read at once. The reading of a long one takes longer than
//! the other clients should wait for the control thread, so it is done beside it, one at a time.

use std::sync::Arc;

use bytes::Bytes;
use procd_protocol::envelope::{self, CANCEL, Incoming};
use procd_protocol::v1::{Call, CancelParams, Method};
use procd_protocol::words::Word;
use procd_protocol::{ErrorBody, ErrorCode, field};
use tokio::sync::Semaphore;

use super::{Ticket, refused_method};
use crate::request::Client;

/// Frames up to this are read at once, bytes: at worst a few milliseconds.
const SHORT_BYTES: usize = 64 * 1024;

/// What a frame turned out to be.
#[derive(Debug)]
pub(super) enum Said {
    /// A request, and whether it can be carried out.
    Request { ticket: Ticket, is_hello: bool, call: Result<Call, ErrorBody> },
    /// A notice, of the one kind there is.
    Notice(Result<CancelParams, ErrorBody>),
    /// Neither.
    Neither(ErrorBody),
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
        Ok(Incoming::Notice(notice)) if notice.method != CANCEL => {
            Said::Notice(Err(refused_method("the notice is not supported yet")))
        }
        Ok(Incoming::Notice(notice)) => {
            Said::Notice(field::parse::<CancelParams>(notice.params).map_err(Into::into))
        }
        Err(error) => Said::Neither(error.into()),
    }
}
