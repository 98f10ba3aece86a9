//! Completion notifications: each shown once, answered once, over dropped connections and
//! restarts of the daemon.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use procd_protocol::v1::{
    Disposition, NOTIFICATIONS_OFFER, Notification, NotificationsAckParams, Offer, SubscribeParams,
};
use uuid::Uuid;

use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::link::{Link, Repeat};
use crate::stream::Stream;

/// Ids of answered notifications that are kept, so that a repeat is known. Beyond it the oldest
/// goes: by then the daemon has its answer for long.
const ANSWERED_MAX: usize = 4096;

/// The ends of the processes of a loop, told once each. The daemon offers each until it is
/// answered: [`Self::accept`] what was dealt with. Of several of one loop the newest is offered.
#[derive(Debug)]
pub struct Notifications {
    link: Arc<Link>,
    stream: Stream,
    seen: Seen,
}

impl Notifications {
    pub(crate) async fn open(link: Arc<Link>) -> Result<Self, ClientError> {
        let (stream, _) = link.subscribe(&params()).await?;
        Ok(Self { link, stream, seen: Seen::default() })
    }

    /// The next end. What is offered again though it was answered, after a crash in between, is
    /// answered `duplicate` and not shown; so is what was shown and is not answered yet. Goes on
    /// over a dropped connection. Cancel safe.
    /// # Errors
    /// As [`Client::call`](crate::Client::call), when no connection is to be had.
    pub async fn next(&mut self) -> Result<Notification, ClientError> {
        loop {
            let Some(notice) = self.stream.next().await else {
                let (stream, _) = self.link.subscribe(&params()).await?;
                self.stream = stream;
                continue;
            };
            if notice.method != NOTIFICATIONS_OFFER {
                continue;
            }
            let Offer { notification, .. } = notice.params::<Offer>()?;
            let id = notification.command_id;
            match self.seen.judge(&notification) {
                Judgement::New => return Ok(notification),
                Judgement::Pending => {}
                Judgement::Answered => self.tell(id, Disposition::Duplicate),
                Judgement::Other => self.tell(id, Disposition::Collision),
            }
        }
    }

    /// It was taken: it never comes again.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn accept(&mut self, notification: &Notification) -> Result<(), ClientError> {
        self.answer(notification, Disposition::Accepted).await?;
        self.seen.answered(notification.command_id);
        Ok(())
    }

    /// It cannot be taken now: it comes again, with the next subscription or after 5 s.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn put_off(&mut self, notification: &Notification) -> Result<(), ClientError> {
        self.answer(notification, Disposition::Stopped).await?;
        self.seen.pending.remove(&notification.command_id);
        Ok(())
    }

    /// Ids that were accepted here, oldest first: for a client that keeps them over its own end.
    pub fn accepted(&self) -> impl Iterator<Item = Uuid> {
        self.seen.order.iter().copied()
    }

    /// Ids that were accepted before, by an earlier run of this client.
    pub fn has_accepted(&mut self, ids: impl IntoIterator<Item = Uuid>) {
        ids.into_iter().for_each(|id| self.seen.answered(id));
    }

    async fn answer(&self, of: &Notification, with: Disposition) -> Result<(), ClientError> {
        let params = NotificationsAckParams { command_id: of.command_id, disposition: with };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await.map(drop)
    }

    /// An answer that is not waited for, so that [`Self::next`] stays cancel safe. Should it be
    /// lost, the offer comes again.
    fn tell(&self, command_id: Uuid, disposition: Disposition) {
        let params = NotificationsAckParams { command_id, disposition };
        self.stream.client().connection().tell_call(&params);
    }
}

/// Offers only: no kind of event is named.
fn params() -> SubscribeParams {
    SubscribeParams {
        kinds: Some(Vec::new()),
        notifications: Some(true),
        ..SubscribeParams::default()
    }
}

/// What was shown and not answered yet, and a bounded number of ids that were.
#[derive(Debug, Default)]
struct Seen {
    pending: HashMap<Uuid, Notification>,
    answered: HashSet<Uuid>,
    order: VecDeque<Uuid>,
}

#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    New,
    /// Shown, its answer is still to come.
    Pending,
    /// Shown and answered.
    Answered,
    /// Another payload under an id that is here.
    Other,
}

impl Seen {
    fn judge(&mut self, offered: &Notification) -> Judgement {
        if self.answered.contains(&offered.command_id) {
            return Judgement::Answered;
        }
        match self.pending.get(&offered.command_id) {
            Some(shown) if shown == offered => Judgement::Pending,
            Some(_other) => Judgement::Other,
            None => {
                self.pending.insert(offered.command_id, offered.clone());
                Judgement::New
            }
        }
    }

    fn answered(&mut self, id: Uuid) {
        self.pending.remove(&id);
        if !self.answered.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > ANSWERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answered.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scripted::{ID, Script, within};

    fn offer(request: &Value, number: u128, reason: &str) -> Value {
        let notification = json!({ "command_id": Uuid::from_u128(number),
            "session_id": Uuid::from_u128(1), "loop_id": Uuid::from_u128(2), "process_id": ID,
            "state": "exited", "reason": reason, "novel": 1 });
        let params = json!({ "for": request, "notification": notification });
        json!({ "method": NOTIFICATIONS_OFFER, "params": params })
    }

    fn subscribed() -> Value {
        json!({ "first_kept_seq": 1, "last_seq": 0, "gap": false })
    }

    #[tokio::test]
    async fn each_end_is_shown_once_over_a_dropped_connection() {
        let script = Script::new();
        let daemon = async {
            let mut daemon = script.opened().await;
            let (id, params) = daemon.expect("events/subscribe").await;
            assert_eq!(params, json!({ "kinds": [], "notifications": true }));
            daemon.answer(id.clone(), subscribed()).await;
            daemon.send(&offer(&id, 7, "exited")).await;
            let (ack, params) = daemon.expect("notifications/ack").await;
            assert_eq!(params["disposition"], "accepted");
            daemon.answer(ack, json!({})).await;
            daemon.send(&offer(&id, 8, "exited")).await;
            drop(daemon);
            // It crashed before it had written the first answer down, and never got the second.
            let mut daemon = script.attached().await;
            let (id, _) = daemon.expect("events/subscribe").await;
            daemon.answer(id.clone(), subscribed()).await;
            daemon.send(&offer(&id, 7, "exited")).await;
            let (_, params) = daemon.expect("notifications/ack").await;
            assert_eq!(params["disposition"], "duplicate");
            daemon.send(&offer(&id, 8, "exited")).await;
            daemon.send(&offer(&id, 8, "killed")).await;
            let (_, params) = daemon.expect("notifications/ack").await;
            assert_eq!(params["disposition"], "collision");
            daemon.send(&offer(&id, 9, "exited")).await;
        };
        let using = async {
            let session = script.session().await;
            let mut ends = session.notifications().await.unwrap();
            let first = ends.next().await.unwrap();
            ends.accept(&first).await.unwrap();
            let numbers = [first, ends.next().await.unwrap(), ends.next().await.unwrap()];
            assert_eq!(ends.accepted().collect::<Vec<_>>(), [Uuid::from_u128(7)]);
            numbers.map(|end| end.command_id.as_u128())
        };
        let (numbers, ()) = within(async { tokio::join!(using, daemon) }).await;
        assert_eq!(numbers, [7, 8, 9]);
    }

    #[test]
    fn only_so_many_answered_ids_are_kept() {
        let mut seen = Seen::default();
        for number in 0..ANSWERED_MAX as u128 + 10 {
            seen.answered(Uuid::from_u128(number));
        }
        assert_eq!((seen.answered.len(), seen.order.len()), (ANSWERED_MAX, ANSWERED_MAX));
        assert!(!seen.answered.contains(&Uuid::from_u128(9)));
    }
}
