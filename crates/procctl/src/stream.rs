//! A connection for what comes as notices: events and exports. One request at a time; what belongs
//! to it comes by [`Stream::next`].

use bytes::BytesMut;
use procd_client::{ClientError, places};
use procd_protocol::envelope::{self, NoticeOut, Received, RequestOut};
use procd_protocol::v1::{
    self, ClientInfo, EventRecord, ExportChunk, ExportContinueParams, ExportGap, HelloParams,
    Params,
};
use procd_protocol::{RequestId, Word, codec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::exit::CtlError;

/// Room made for each read, bytes.
const READ_BYTES: usize = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Stream {
    io: UnixStream,
    buffer: BytesMut,
    last_id: i64,
}

/// What comes.
#[derive(Debug)]
pub(crate) enum Item {
    /// An event.
    Event(Box<EventRecord>),
    /// A part of an export.
    Chunk(ExportChunk),
    /// A part that is not kept.
    Gap(ExportGap),
    /// The answer to the request under way.
    Answer(Box<RawValue>),
}

impl Stream {
    /// Connects to the daemon that runs, and says hello.
    /// # Errors
    /// [`CtlError::NoDaemon`] when it has gone.
    pub(crate) async fn open() -> Result<Self, CtlError> {
        let path = places::socket().map_err(ClientError::from)?;
        let io = UnixStream::connect(&path).await.map_err(lost)?;
        let mut stream = Self { io, buffer: BytesMut::new(), last_id: 0 };
        let client = ClientInfo {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let versions = vec![v1::VERSION];
        stream.call(&HelloParams { client, versions, features: None }).await?;
        Ok(stream)
    }

    /// Sends a request and waits for its answer. Notices that come before it are an error of the
    /// caller: whoever asks for them uses [`Self::begin`].
    /// # Errors
    /// [`CtlError`], as the daemon says.
    pub(crate) async fn call<P: Params>(&mut self, params: &P) -> Result<P::Result, CtlError> {
        self.begin(params).await?;
        loop {
            if let Item::Answer(answer) = self.next().await? {
                return read(&answer);
            }
        }
    }

    /// Sends a request: what belongs to it, and its answer, come next.
    /// # Errors
    /// [`CtlError::NoDaemon`] when it has gone.
    pub(crate) async fn begin<P: Params>(&mut self, params: &P) -> Result<RequestId, CtlError> {
        self.last_id += 1;
        let id = RequestId::new(self.last_id)
            .ok_or_else(|| CtlError::Answer("too many requests on one connection".to_owned()))?;
        self.send(&RequestOut { id, method: P::METHOD.as_str(), params, trace: None }).await?;
        Ok(id)
    }

    /// Says that a chunk of an export was taken.
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) async fn take_one(&mut self, request: RequestId) -> Result<(), CtlError> {
        let params = ExportContinueParams { request, chunks: 1 };
        self.send(&NoticeOut { method: envelope::EXPORT_CONTINUE, params: &params }).await
    }

    async fn send(&mut self, message: &impl Serialize) -> Result<(), CtlError> {
        let mut frame = BytesMut::new();
        codec::encode_with(&mut frame, |to| serde_json::to_writer(to, message))
            .map_err(|error| CtlError::Answer(format!("a request cannot be sent: {error}")))?;
        self.io.write_all(&frame).await.map_err(lost)
    }

    /// What comes next. Cancel safe.
    /// # Errors
    /// [`CtlError`]: the daemon's refusal, or its end.
    pub(crate) async fn next(&mut self) -> Result<Item, CtlError> {
        loop {
            match self.received().await? {
                Received::Reply { outcome: Ok(answer), .. } => return Ok(Item::Answer(answer)),
                Received::Reply { outcome: Err(body), .. } => return Err(CtlError::refused(*body)),
                Received::Notice { params: None, .. } => {}
                Received::Notice { method, params: Some(params) } => match method.as_str() {
                    v1::EVENTS_RECORD => return read(&params).map(Item::Event),
                    v1::EXPORT_CHUNK => return read(&params).map(Item::Chunk),
                    v1::EXPORT_GAP => return read(&params).map(Item::Gap),
                    // Of a later version.
                    _ => {}
                },
            }
        }
    }

    async fn received(&mut self) -> Result<Received, CtlError> {
        let nonsense = |error: String| CtlError::Answer(format!("the daemon sent {error}"));
        loop {
            let frame = codec::decode(&mut self.buffer).map_err(|e| nonsense(e.to_string()))?;
            if let Some(frame) = frame {
                return envelope::parse_received(&frame).map_err(|e| nonsense(e.to_string()));
            }
            self.buffer.reserve(READ_BYTES);
            if self.io.read_buf(&mut self.buffer).await.map_err(lost)? == 0 {
                return Err(lost(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

fn read<T: DeserializeOwned>(raw: &RawValue) -> Result<T, CtlError> {
    serde_json::from_str(raw.get()).map_err(|error| {
        CtlError::Answer(format!("the daemon's answer is not as agreed ({error})"))
    })
}

fn lost(source: std::io::Error) -> CtlError {
    CtlError::NoDaemon {
        what: format!("the connection to the daemon was lost ({source})"),
        advice: "`procctl ps` starts it anew and shows what is on record",
    }
}
