//! The journal of a session, followed by its numbers.

use std::sync::Arc;

use procd_protocol::SessionId;
use procd_protocol::v1::{
    EVENTS_RECORD, Event, EventKind, EventRecord, EventsAckParams, Scope, SubscribeParams,
    SubscribeResult,
};

use crate::error::ClientError;
use crate::link::Link;
use crate::stream::Stream;

/// Events taken until they are acknowledged: well below the 64 that the daemon sends ahead.
const ACKNOWLEDGE_EVERY: u64 = 16;

/// Which events. What is not said is as the daemon has it: those of the own loop, live only.
#[derive(Debug, Clone)]
#[must_use = "it does nothing before it is subscribed"]
pub struct EventsRequest {
    link: Arc<Link>,
    params: SubscribeParams,
}

impl EventsRequest {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, params: SubscribeParams::default() }
    }

    /// From this number on, then live; 1 = all that is kept.
    pub const fn from(mut self, seq: u64) -> Self {
        self.params.from_seq = Some(seq);
        self
    }

    /// Only these kinds, at most 64.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Self {
        self.params.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Those of every loop of the session.
    pub const fn whole_session(mut self) -> Self {
        self.params.scope = Some(Scope::Session);
        self
    }

    /// Those of one session; for operators.
    pub const fn session(mut self, session: SessionId) -> Self {
        self.params.session_id = Some(session);
        self
    }

    /// Subscribes.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn subscribe(self) -> Result<Events, ClientError> {
        let (stream, result) = self.link.subscribe(&self.params).await?;
        let next = self.params.from_seq.unwrap_or(result.last_seq + 1);
        let Self { link, params } = self;
        let has_gap = result.gap;
        let begun = result;
        Ok(Events { link, params, stream, next, has_gap, unacknowledged: 0, begun })
    }
}

/// An event with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Its number in the session. Numbers have holes. To an operator who watches all sessions:
    /// a count of the subscription.
    pub seq: u64,
    /// The event.
    pub event: Event,
    /// Whether an event before it was dropped before it could be sent.
    pub gap: bool,
}

/// Events in their order, each once. See [`EventsRequest`].
#[derive(Debug)]
pub struct Events {
    link: Arc<Link>,
    params: SubscribeParams,
    stream: Stream,
    /// The number to go on from.
    next: u64,
    has_gap: bool,
    unacknowledged: u64,
    begun: SubscribeResult,
}

impl Events {
    /// The next event. Goes on behind the last one over a dropped connection. Cancel safe.
    /// # Errors
    /// As [`Client::call`](crate::Client::call), when no connection is to be had; of all sessions
    /// (an operator) [`ClientError::Disconnected`]: their numbers cannot be gone on from.
    pub async fn next(&mut self) -> Result<Numbered, ClientError> {
        loop {
            let Some(notice) = self.stream.next().await else {
                self.resume().await?;
                continue;
            };
            if notice.method != EVENTS_RECORD {
                continue;
            }
            let EventRecord { seq, event, gap, .. } = notice.params::<EventRecord>()?;
            self.acknowledge(seq);
            if seq < self.next {
                continue;
            }
            self.next = seq + 1;
            let gap = std::mem::take(&mut self.has_gap) || gap;
            return Ok(Numbered { seq, event, gap });
        }
    }

    /// What there was when it was subscribed: the journal's first and last number.
    #[must_use]
    pub const fn begun(&self) -> &SubscribeResult {
        &self.begun
    }

    /// The number that a later subscription goes on from.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.next
    }

    /// Says now and then what was taken. Not waited for: one that is lost is made good by the
    /// next, or by the next subscription.
    fn acknowledge(&mut self, seq: u64) {
        self.unacknowledged += 1;
        if self.unacknowledged >= ACKNOWLEDGE_EVERY {
            self.unacknowledged = 0;
            let params = EventsAckParams { request: self.stream.id(), up_to_seq: seq };
            self.stream.client().connection().tell_call(&params);
        }
    }

    async fn resume(&mut self) -> Result<(), ClientError> {
        if !self.link.is_owner() && self.params.session_id.is_none() {
            return Err(self.stream.ended());
        }
        self.params.from_seq = Some(self.next);
        let (stream, result): (Stream, SubscribeResult) = self.link.subscribe(&self.params).await?;
        (self.stream, self.unacknowledged) = (stream, 0);
        self.has_gap |= result.gap;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::scripted::{ID, Script, within};

    fn record(request: &Value, seq: u64) -> Value {
        let event = json!({ "event_id": Uuid::from_u128(u128::from(seq)), "kind": "novel",
            "session_id": Uuid::from_u128(1), "loop_id": Uuid::from_u128(2), "process_id": ID,
            "origin": Uuid::from_u128(3), "state": "running", "created_at": "x" });
        let params = json!({ "for": request, "seq": seq, "event": event });
        json!({ "method": EVENTS_RECORD, "params": params })
    }

    fn subscribed(last: u64, gap: bool) -> Value {
        json!({ "first_kept_seq": 1, "last_seq": last, "gap": gap })
    }

    #[tokio::test]
    async fn events_go_on_behind_the_last_one_over_a_dropped_connection() {
        let script = Script::new();
        let daemon = async {
            let mut daemon = script.opened().await;
            let (id, params) = daemon.expect("events/subscribe").await;
            assert_eq!(params, json!({ "scope": "session" }));
            daemon.answer(id.clone(), subscribed(30, false)).await;
            for seq in 31..=46 {
                daemon.send(&record(&id, seq)).await;
            }
            let (_, params) = daemon.expect("events/ack").await;
            assert_eq!(params, json!({ "for": id, "up_to_seq": 46 }));
            drop(daemon);
            let mut daemon = script.attached().await;
            let (id, params) = daemon.expect("events/subscribe").await;
            assert_eq!(params, json!({ "scope": "session", "from_seq": 47 }));
            daemon.answer(id.clone(), subscribed(60, true)).await;
            daemon.send(&record(&id, 46)).await;
            daemon.send(&record(&id, 60)).await;
            let (_, params) = daemon.expect("events/unsubscribe").await;
            assert_eq!(params, json!({ "for": id }));
        };
        let using = async {
            let session = script.session().await;
            let mut events = session.events().whole_session().subscribe().await.unwrap();
            let mut seen = Vec::new();
            while seen.len() < 17 {
                let numbered = events.next().await.unwrap();
                assert_eq!(numbered.gap, numbered.seq == 60);
                seen.push(numbered.seq);
            }
            seen
        };
        let (seen, ()) = within(async { tokio::join!(using, daemon) }).await;
        assert_eq!(seen, (31..=46).chain([60]).collect::<Vec<_>>());
    }
}
