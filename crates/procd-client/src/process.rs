//! One process.

use std::sync::Arc;
use std::time::Duration;

use procd_protocol::limits::DURATION_MS_MAX;
use procd_protocol::v1::{
    Cursors, Entry, InputParams, InputResult, InspectParams, InspectResult, OutputParams, Page,
    StartResult, StopMode, StopParams, StopResult, Wait, WaitWord,
};
use procd_protocol::{Base64Bytes, ProcessId};

use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::follow::Follow;
use crate::link::{Link, Repeat};

/// A process of the daemon. Cheap to clone; dropping it touches nothing.
#[derive(Debug, Clone)]
pub struct Process {
    link: Arc<Link>,
    id: ProcessId,
    reply: Option<Arc<StartResult>>,
}

impl Process {
    pub(crate) const fn new(link: Arc<Link>, id: ProcessId) -> Self {
        Self { link, id, reply: None }
    }

    pub(crate) fn started(link: Arc<Link>, reply: StartResult) -> Self {
        Self { link, id: reply.page.process_id, reply: Some(Arc::new(reply)) }
    }

    /// The handle.
    #[must_use]
    pub const fn id(&self) -> ProcessId {
        self.id
    }

    /// The reply to its start, when it was started here: the result of a foreground command.
    #[must_use]
    pub fn reply(&self) -> Option<&StartResult> {
        self.reply.as_deref()
    }

    /// One page, or a wait for one, as `params` say; the process in them is this one. Dropping
    /// the wait ends it and touches nothing.
    /// # Errors
    /// As [`Client::call`](crate::Client::call); what is wrong with this process alone too.
    pub async fn output(&self, params: OutputParams) -> Result<Page, ClientError> {
        let params = OutputParams { process_id: Some(self.id), process_ids: None, ..params };
        let result = self.link.call(&params, Repeat::Safe, OnDrop::Cancel).await?;
        match result.results.into_iter().next() {
            Some(Entry::Page(page)) => Ok(*page),
            Some(Entry::Failed { error, .. }) => Err(error.into()),
            None => Err(ClientError::nonsense(&"no entry for the process asked for")),
        }
    }

    /// The output from its first byte on, as it comes.
    #[must_use]
    pub fn follow(&self) -> Follow {
        Follow::new(self.clone())
    }

    /// Waits for the end: the state, the code, and no output to speak of.
    /// # Errors
    /// As [`Self::output`].
    pub async fn wait(&self) -> Result<Page, ClientError> {
        let page = self.output(wait_params(None)).await?;
        if is_settled(&page) {
            return Ok(page);
        }
        let message = format!("the daemon shuts down, the process is {}", page.state);
        Err(ClientError::Disconnected { message })
    }

    /// As [`Self::wait`], for so long at most: `None` when it still runs then.
    /// # Errors
    /// As [`Self::output`].
    pub async fn wait_for_at_most(&self, time: Duration) -> Result<Option<Page>, ClientError> {
        let page = self.output(wait_params(Some(millis(time)))).await?;
        Ok(is_settled(&page).then_some(page))
    }

    /// Writes to its stdin, whole or not at all; 1 MiB at most.
    /// # Errors
    /// As [`Client::call`](crate::Client::call): `input_backpressure` has taken nothing, so that
    /// it can be sent again.
    pub async fn write(&self, data: impl AsRef<[u8]>) -> Result<InputResult, ClientError> {
        let params = match std::str::from_utf8(data.as_ref()) {
            Ok(text) => InputParams { data: Some(text.to_owned()), ..self.no_input() },
            Err(_binary) => {
                let data = Base64Bytes(data.as_ref().to_vec());
                InputParams { data_base64: Some(data), ..self.no_input() }
            }
        };
        self.input(&params).await
    }

    /// Ends its stdin, behind what waits to be written.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn eof(&self) -> Result<InputResult, ClientError> {
        self.input(&InputParams { eof: Some(true), ..self.no_input() }).await
    }

    /// Writes, presses keys, resizes, as `params` say; the process in them is this one.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn input_of(&self, params: InputParams) -> Result<InputResult, ClientError> {
        self.input(&InputParams { process_id: self.id, ..params }).await
    }

    /// Parameters of an input that do nothing yet.
    #[must_use]
    pub const fn no_input(&self) -> InputParams {
        InputParams {
            process_id: self.id,
            data: None,
            data_base64: None,
            keys: None,
            eof: None,
            rows: None,
            cols: None,
            flush_ms: None,
            yield_time_ms: None,
            cursor: None,
            limit_bytes: None,
            encoding: None,
            fold: None,
        }
    }

    async fn input(&self, params: &InputParams) -> Result<InputResult, ClientError> {
        self.link.call(params, Repeat::Never, OnDrop::Leave).await
    }

    /// SIGINT to the tree, then as [`Self::stop`] when the grace is over. Answered at the end.
    /// # Errors
    /// As [`Client::call`](crate::Client::call): `teardown_failed` while the tree lives.
    pub async fn interrupt(&self) -> Result<StopResult, ClientError> {
        self.stop_with(StopMode::Interrupt, None).await
    }

    /// SIGTERM to the tree, SIGKILL when the grace is over. Answered when the tree is gone.
    /// # Errors
    /// As [`Self::interrupt`].
    pub async fn stop(&self) -> Result<StopResult, ClientError> {
        self.stop_with(StopMode::Terminate, None).await
    }

    /// SIGKILL to the tree. Answered when it is gone.
    /// # Errors
    /// As [`Self::interrupt`].
    pub async fn kill(&self) -> Result<StopResult, ClientError> {
        self.stop_with(StopMode::Kill, None).await
    }

    /// Ends the tree with a grace of one's own.
    /// # Errors
    /// As [`Self::interrupt`].
    pub async fn stop_with(
        &self,
        mode: StopMode,
        grace: Option<Duration>,
    ) -> Result<StopResult, ClientError> {
        let params = StopParams { process_id: self.id, mode, grace_ms: grace.map(millis) };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await
    }

    /// Its record, and what its tree uses now.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn inspect(&self) -> Result<InspectResult, ClientError> {
        let params = InspectParams { process_id: self.id };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await
    }
}

/// A wait for the end that wants no output: one byte of the last page at most.
fn wait_params(timeout_ms: Option<u64>) -> OutputParams {
    OutputParams {
        cursor: Some(Cursors::One(-1)),
        limit_bytes: Some(1),
        wait: Some(Wait::Simple(WaitWord::Exit)),
        timeout_ms,
        ..OutputParams::default()
    }
}

/// Whether nothing can follow. A state of a later version counts by its code.
pub(crate) fn is_settled(page: &Page) -> bool {
    page.state.known().map_or(page.reason.is_some(), |state| state.is_terminal())
}

/// As many milliseconds as the protocol can say.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(DURATION_MS_MAX)
}
