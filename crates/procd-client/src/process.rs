//! One process.

use std::sync::Arc;
use std::time::Duration;

use procd_protocol::limits::DURATION_MS_MAX;
use procd_protocol::v1::{
    Cursors, Entry, InputParams, InputResult, InspectParams, InspectResult, OutputParams, Page,
    PinParams, PinResult, RemoveParams, SearchParams, SearchResult, SignalName, SignalParams,
    SignalResult, SignalTarget, StartResult, StopMode, StopParams, StopResult, Wait, WaitWord,
    WokeBy,
};
use procd_protocol::{Base64Bytes, ErrorCode, Open, ProcessId};

use crate::connection::OnDrop;
use crate::error::ClientError;
use crate::export::Export;
use crate::follow::Follow;
use crate::link::{Link, Repeat};
use crate::wait::{End, WaitFor};

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
        Ok(self.output_woken(params).await?.0)
    }

    /// As [`Self::output`], and why the call came back.
    pub(crate) async fn output_woken(
        &self,
        params: OutputParams,
    ) -> Result<(Page, Open<WokeBy>), ClientError> {
        let params = OutputParams { process_id: Some(self.id), process_ids: None, ..params };
        let result = self.link.call(&params, Repeat::Safe, OnDrop::Cancel).await?;
        match result.results.into_iter().next() {
            Some(Entry::Page(page)) => Ok((*page, result.woke_by)),
            Some(Entry::Failed { error, .. }) => Err(error.into()),
            None => Err(ClientError::nonsense(&"no entry for the process asked for")),
        }
    }

    /// The output from its first byte on, as it comes.
    #[must_use]
    pub fn follow(&self) -> Follow {
        Follow::new(self.clone())
    }

    /// Waits for a match of a pattern, a regular expression on the raw bytes: await what this gives.
    pub fn wait_for(&self, pattern: impl Into<String>) -> WaitFor {
        WaitFor::new(self.clone(), pattern.into())
    }

    /// All bytes that are kept, piece by piece.
    #[must_use]
    pub fn export(&self) -> Export {
        Export::new(Arc::clone(&self.link), self.id)
    }

    /// Lines that match a pattern, with their cursors.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn search(
        &self,
        pattern: impl Into<String>,
        from: u64,
    ) -> Result<SearchResult, ClientError> {
        let (process_id, pattern) = (self.id, pattern.into());
        let from_cursor = Some(from);
        let params = SearchParams { process_id, pattern, from_cursor, limit: None, reason: None };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await
    }

    /// Waits for the end and says how it was. A daemon that restarted meanwhile knows that it is
    /// lost: [`End::LostOnRestore`].
    /// # Errors
    /// As [`Self::wait`].
    pub async fn end(&self) -> Result<End, ClientError> {
        let page = self.wait().await?;
        End::of(&page).ok_or_else(|| ClientError::nonsense(&"an end without a state"))
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

    /// Writes to its stdin, whole or not at all; 1 MiB at most. Never sent twice by itself.
    /// # Errors
    /// As [`Client::call`](crate::Client::call): `input_backpressure` has taken nothing, so that
    /// it can be sent again; after [`ClientError::Disconnected`] it may have arrived or not, which
    /// only the process itself can tell.
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

    /// Writes the last of its input, whole or not at all, and ends stdin behind it. This one is sent
    /// again when the connection breaks: what has arrived is not taken twice, since stdin is ended.
    /// # Errors
    /// As [`Client::call`](crate::Client::call); `stdin_closed` when stdin was ended before, or
    /// the process is gone.
    pub async fn write_last(&self, data: impl AsRef<[u8]>) -> Result<(), ClientError> {
        let data = Some(Base64Bytes(data.as_ref().to_vec()));
        let params = InputParams { data_base64: data, eof: Some(true), ..self.no_input() };
        match self.input(&params).await {
            Err(ClientError::Disconnected { .. }) => {}
            answer => return answer.map(drop),
        }
        match self.link.call(&params, Repeat::Safe, OnDrop::Leave).await {
            Err(error) if error.is(ErrorCode::StdinClosed) => {
                let runs = self.inspect().await?.record.reason.is_none();
                if runs { Ok(()) } else { Err(error) }
            }
            answer => answer.map(drop),
        }
    }

    /// Types keys into its terminal, by their names: `enter`, `up`, `ctrl-c`, `f5`; 1..=256.
    /// # Errors
    /// As [`Self::write`]; `pty_unavailable` without a terminal.
    pub async fn keys<K: Into<String>>(
        &self,
        names: impl IntoIterator<Item = K>,
    ) -> Result<InputResult, ClientError> {
        let keys = Some(names.into_iter().map(Into::into).collect());
        self.input(&InputParams { keys, ..self.no_input() }).await
    }

    /// Gives its terminal another size, in characters, 1..=65535 each.
    /// # Errors
    /// As [`Self::keys`].
    pub async fn resize(&self, rows: u16, cols: u16) -> Result<InputResult, ClientError> {
        let (rows, cols) = (Some(rows.into()), Some(cols.into()));
        self.input(&InputParams { rows, cols, ..self.no_input() }).await
    }

    /// Input as `params` say: data, keys, end, size, in that order, and a wait for the output. The
    /// process in them is this one.
    /// # Errors
    /// As [`Self::write`].
    pub async fn input(&self, params: &InputParams) -> Result<InputResult, ClientError> {
        let params = InputParams { process_id: self.id, ..params.clone() };
        self.link.call(&params, Repeat::Never, OnDrop::Leave).await
    }

    /// Input that does nothing yet, to be filled in for [`Self::input`].
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

    /// Delivers one signal, by its name with SIG: no request to end. How many got it.
    /// # Errors
    /// As [`Client::call`](crate::Client::call). After [`ClientError::Disconnected`] it was sent
    /// once or not at all.
    pub async fn signal(
        &self,
        name: impl Into<String>,
        target: SignalTarget,
    ) -> Result<SignalResult, ClientError> {
        let (process_id, signal) = (self.id, SignalName::Name(name.into()));
        let params = SignalParams { process_id, signal, target: Some(target) };
        self.link.call(&params, Repeat::Never, OnDrop::Leave).await
    }

    /// Removes record and output of one that has ended.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn remove(&self) -> Result<(), ClientError> {
        let params = RemoveParams { process_id: self.id };
        match self.link.call(&params, Repeat::Never, OnDrop::Leave).await {
            Err(ClientError::Disconnected { .. }) => {}
            answer => return answer.map(drop),
        }
        // It may be removed by now: that is what was wanted.
        match self.link.call(&params, Repeat::Safe, OnDrop::Leave).await {
            Err(error) if error.is(ErrorCode::NotFound) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Exempts record and output of one that has ended from retention, or gives them back to it.
    /// # Errors
    /// As [`Client::call`](crate::Client::call).
    pub async fn pin(&self, pinned: bool) -> Result<PinResult, ClientError> {
        let params = PinParams { process_id: self.id, pinned };
        self.link.call(&params, Repeat::Safe, OnDrop::Leave).await
    }

    /// SIGINT to the tree; never more than that. Answered at the end, or when the grace is over
    /// with the state it has then.
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
