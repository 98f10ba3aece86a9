//! events/*, notifications/ack: subscriptions, and what is sent to them after their reply.

use procd_protocol::envelope::NoticeOut;
use procd_protocol::v1::{
    self, EVENTS_RECORD, EventRecord, FEATURE_NOTIFICATIONS, NOTIFICATIONS_OFFER, Offer,
};
use procd_protocol::words::Word;
use procd_protocol::{ErrorBody, ErrorCode, RequestId, codec};
use procd_store::event::EventKind;
use procd_store::log::Disposition;
use tokio::sync::mpsc;

use super::error::wire;
use super::process::owner_of;
use super::{Client, Done, Reply, invalid};
use crate::supervisor::{Answer, Caller, Notice, Subscribe};

/// What follows the reply of a subscription, until that ends.
#[derive(Debug)]
pub struct Following {
    request: RequestId,
    notices: mpsc::Receiver<Notice>,
}

impl Following {
    /// The next notice as a frame; `None` when the subscription has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<bytes::BytesMut> {
        let notice = self.notices.recv().await?;
        let request = self.request;
        Some(match &notice {
            Notice::Record { seq, event, gap } => {
                frame(EVENTS_RECORD, &EventRecord { request, seq: *seq, event, gap: *gap })
            }
            Notice::Offer(notification) => {
                frame(NOTIFICATIONS_OFFER, &Offer { request, notification })
            }
        })
    }
}

fn frame<T: serde::Serialize>(method: &str, params: &T) -> bytes::BytesMut {
    let mut frame = bytes::BytesMut::new();
    let notice = NoticeOut { method, params };
    if codec::encode_with(&mut frame, |to| serde_json::to_writer(to, &notice)).is_err() {
        tracing::error!("bug: a notice does not fit a frame");
    }
    frame
}

/// The number of a request as the supervisor keeps it.
const fn number(request: RequestId) -> i64 {
    request.number()
}

pub(super) async fn subscribe(
    client: &Client,
    params: v1::SubscribeParams,
    request: RequestId,
) -> Result<Done, ErrorBody> {
    let bound = client.bound()?;
    let caller = bound.caller();
    let notifications = params.notifications.unwrap_or(false);
    match caller {
        Caller::Owner(_) if params.session_id.is_some() => {
            return Err(invalid("session_id", "is for operators"));
        }
        Caller::Operator if params.scope.is_some() => {
            return Err(invalid("scope", "is for owners"));
        }
        Caller::Operator if notifications => {
            return Err(invalid("notifications", "is for owners: an operator gets events only"));
        }
        Caller::Owner(_) | Caller::Operator => {}
    }
    if notifications && !client.names_feature(FEATURE_NOTIFICATIONS) {
        let text = "`notifications` was not among the `features` of `hello`";
        return Err(ErrorBody::new(ErrorCode::ProcessNotificationsUnsupported, text));
    }
    let session = params.session_id.map(|id| procd_core::SessionId::new(id.uuid())).transpose();
    let asked = Subscribe {
        connection: bound.connection(),
        request: number(request),
        from_seq: params.from_seq,
        kinds: params.kinds.map(|kinds| kinds.into_iter().filter_map(kind).collect()),
        whole_session: params.scope == Some(v1::Scope::Session),
        session: session.map_err(|error| invalid("session_id", error))?,
        notifications,
    };
    let supervisor = client.supervisor().await?;
    let subscribed = supervisor.subscribe(caller, asked).await.map_err(|r| wire(&r))?;
    let result = v1::SubscribeResult {
        first_kept_seq: subscribed.first_kept_seq,
        last_seq: subscribed.last_seq,
        gap: subscribed.gap,
    };
    let following = Following { request, notices: subscribed.notices };
    Ok(Done::followed(Reply::Subscribe(result), following))
}

/// The two lists of words are one.
fn kind(kind: v1::EventKind) -> Option<EventKind> {
    kind.as_str().parse().ok()
}

pub(super) async fn acknowledge(
    client: &Client,
    params: v1::EventsAckParams,
) -> Result<Done, ErrorBody> {
    let connection = client.bound()?.connection();
    let supervisor = client.supervisor().await?;
    let request = number(params.request);
    let done = supervisor.acknowledge_events(connection, request, params.up_to_seq).await;
    done.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::Empty(v1::Empty {}).into())
}

pub(super) async fn unsubscribe(
    client: &Client,
    params: v1::UnsubscribeParams,
) -> Result<Done, ErrorBody> {
    let connection = client.bound()?.connection();
    let supervisor = client.supervisor().await?;
    let done = supervisor.unsubscribe(connection, number(params.request)).await;
    done.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::Empty(v1::Empty {}).into())
}

pub(super) async fn answer(
    client: &Client,
    params: v1::NotificationsAckParams,
) -> Result<Done, ErrorBody> {
    let owner = owner_of(client.bound()?.caller())?;
    let answer = match params.disposition {
        v1::Disposition::Accepted => Answer::Final(Disposition::Accepted),
        v1::Disposition::Duplicate => Answer::Final(Disposition::Duplicate),
        v1::Disposition::Collision => Answer::Final(Disposition::Collision),
        v1::Disposition::Stopped => Answer::Stopped,
    };
    let supervisor = client.supervisor().await?;
    let done = supervisor.answer_notification(owner, params.command_id, answer).await;
    done.map_err(|refusal| wire(&refusal))?;
    Ok(Reply::Empty(v1::Empty {}).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_and_store_know_the_same_kinds() {
        let wire: Vec<_> = v1::EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let store: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(wire, store);
        assert!(v1::EventKind::ALL.iter().all(|one| kind(*one).is_some()));
    }
}
