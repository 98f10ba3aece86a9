//! A request with notices: a subscription, whose notices follow the answer, or an export, whose
//! notices come before it. Both hold what is on its way and nothing more.

use std::sync::Arc;

use procd_protocol::v1::Params;
use procd_protocol::{RequestId, Word};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::connect::Client;
use crate::connection::Answer;
use crate::error::ClientError;

/// A notice of the daemon, not read any further.
#[derive(Debug)]
pub(crate) struct Notice {
    /// The request it belongs to.
    pub(crate) request: RequestId,
    pub(crate) method: String,
    params: Box<RawValue>,
}

impl Notice {
    /// `None` for one that belongs to no request.
    pub(crate) fn read(method: String, params: Option<Box<RawValue>>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Belongs {
            #[serde(rename = "for")]
            request: RequestId,
        }
        let params = params?;
        let Belongs { request } = serde_json::from_str(params.get()).ok()?;
        Some(Self { request, method, params })
    }

    /// Its parameters.
    /// # Errors
    /// [`ClientError::Nonsense`].
    pub(crate) fn params<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(self.params.get()).map_err(|error| ClientError::nonsense(&error))
    }
}

/// What came next of a request with notices.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// A notice.
    Notice(Notice),
    /// The answer.
    Answer(T),
}

/// How a stream ends that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// By `$/cancel`, unless it was answered.
    Cancel,
    /// By `events/unsubscribe`.
    Unsubscribe,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    client: Arc<Client>,
    id: RequestId,
    /// `None` once it was answered.
    answer: Option<oneshot::Receiver<Answer>>,
    notices: mpsc::Receiver<Notice>,
    goodbye: Goodbye,
}

impl Stream {
    /// Sends the request.
    /// # Errors
    /// [`ClientError::Disconnected`].
    pub(crate) async fn open<P: Params>(
        client: Arc<Client>,
        params: &P,
        goodbye: Goodbye,
    ) -> Result<Self, ClientError> {
        let sent = client.connection().send(P::METHOD.as_str(), params, true).await?;
        let notices = sent.notices.unwrap_or_else(|| mpsc::channel(1).1);
        Ok(Self { client, id: sent.id, answer: Some(sent.answer), notices, goodbye })
    }

    /// The id that the daemon knows it by.
    pub(crate) const fn id(&self) -> RequestId {
        self.id
    }

    /// The connection it lives on.
    pub(crate) const fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The answer. Cancel safe.
    /// # Errors
    /// What the daemon answered; [`ClientError::Disconnected`].
    pub(crate) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        let Some(waiting) = &mut self.answer else {
            return Err(ClientError::nonsense(&"an answer was waited for twice"));
        };
        let answer = waiting.await;
        self.answer = None;
        self.read(answer)
    }

    fn read<T: DeserializeOwned>(
        &self,
        answer: Result<Answer, oneshot::error::RecvError>,
    ) -> Result<T, ClientError> {
        let raw = answer.unwrap_or_else(|_dropped| Err(self.ended()))?;
        serde_json::from_str(raw.get()).map_err(|error| ClientError::nonsense(&error))
    }

    /// The next notice; `None` when the connection is gone. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        self.notices.recv().await
    }

    /// The next notice, or the answer where that comes first. Cancel safe. Notices that came before
    /// the answer may be left behind: [`Self::next_here`].
    /// # Errors
    /// As [`Self::answer`].
    pub(crate) async fn next_or_answer<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Next<T>, ClientError> {
        let Some(waiting) = &mut self.answer else {
            return Err(ClientError::nonsense(&"an answer was waited for twice"));
        };
        let answer = tokio::select! {
            biased;
            Some(notice) = self.notices.recv() => return Ok(Next::Notice(notice)),
            answer = waiting => answer,
        };
        self.answer = None;
        self.read(answer).map(Next::Answer)
    }

    /// The next notice that is here already.
    pub(crate) fn next_here(&mut self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }

    /// Why nothing comes any more.
    pub(crate) fn ended(&self) -> ClientError {
        self.client.connection().ended()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let connection = self.client.connection();
        connection.forget(self.id);
        match self.goodbye {
            Goodbye::Cancel if self.answer.is_none() => {}
            Goodbye::Cancel => connection.cancel(self.id),
            Goodbye::Unsubscribe => connection.unsubscribe(self.id),
        }
    }
}
