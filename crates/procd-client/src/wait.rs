//! Waiting for something in the output, and how a process ended.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use procd_protocol::Open;
use procd_protocol::v1::{
    Combine, Cursors, Excerpt, OutputParams, Page, ProcessState, Until, Wait, WaitUntil, WokeBy,
};

use crate::error::ClientError;
use crate::process::{Process, millis};

/// A wait for a pattern in the output of a process. Await it.
#[derive(Debug, Clone)]
#[must_use = "it does nothing before it is awaited"]
pub struct WaitFor {
    process: Process,
    params: OutputParams,
    until: Until,
    combine: Option<Combine>,
}

/// Why a wait came back, and what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// `match`, `quiet`, `exit`, `timeout`, `gap` or `shutdown`.
    pub woke_by: Open<WokeBy>,
    /// The page from the cursor on. A match that lies behind it is in `found` all the same.
    pub page: Page,
}

impl Waited {
    /// What the pattern found, its text cut at 4096 bytes.
    #[must_use]
    pub const fn found(&self) -> Option<&Excerpt> {
        self.page.found.as_ref()
    }
}

impl WaitFor {
    pub(crate) fn new(process: Process, pattern: String) -> Self {
        let until = Until { r#match: Some(pattern), ..Until::default() };
        let params = OutputParams { cursor: Some(Cursors::One(0)), ..OutputParams::default() };
        Self { process, params, until, combine: None }
    }

    /// In what comes from this cursor on; default 0. Negative = from the end.
    pub fn from(mut self, cursor: i64) -> Self {
        self.params.cursor = Some(Cursors::One(cursor));
        self
    }

    /// For so long at most. The process is not touched.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.params.timeout_ms = Some(millis(time));
        self
    }

    /// Or until there was no output for so long.
    pub fn or_quiet(mut self, time: Duration) -> Self {
        self.until.quiet_ms = Some(millis(time));
        self.combine = Some(Combine::Any);
        self
    }

    /// Size of the page, 1..=1 MiB; default 32 KiB.
    pub const fn limit_bytes(mut self, bytes: u64) -> Self {
        self.params.limit_bytes = Some(bytes);
        self
    }
}

impl IntoFuture for WaitFor {
    /// The wait's own errors, as of [`Process::output`]. An end without a match is none.
    type Output = Result<Waited, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { process, mut params, until, combine } = self;
        params.wait = Some(Wait::Until(WaitUntil { until, combine, wait_for: None }));
        Box::pin(async move {
            let (page, woke_by) = process.output_woken(params).await?;
            Ok(Waited { woke_by, page })
        })
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself: its code, 0..=255, or 128 + the signal it died of.
    Exited {
        /// The code.
        code: i32,
    },
    /// It could not be started, or its end could not be observed.
    Failed,
    /// Its deadline passed.
    TimedOut,
    /// An interrupt ended it.
    Interrupted,
    /// A terminate or a shutdown ended it.
    Terminated,
    /// SIGKILL ended it, by request or escalation.
    Killed,
    /// It ran when the daemon ended: nobody saw its end.
    LostOnRestore,
    /// In a way of a later version: its word.
    Other(String),
}

impl End {
    /// The end that a page tells; `None` while it runs.
    #[must_use]
    pub fn of(page: &Page) -> Option<Self> {
        let Some(state) = page.state.known() else {
            return page.reason.is_some().then(|| Self::Other(page.state.as_str().to_owned()));
        };
        Some(match state {
            ProcessState::Starting | ProcessState::Running => return None,
            ProcessState::Exited => Self::Exited { code: page.exit_code? },
            ProcessState::Failed => Self::Failed,
            ProcessState::TimedOut => Self::TimedOut,
            ProcessState::Interrupted => Self::Interrupted,
            ProcessState::Terminated => Self::Terminated,
            ProcessState::Killed => Self::Killed,
            ProcessState::LostOnRestore => Self::LostOnRestore,
        })
    }

    /// Whether it exited with 0.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scripted::{ID, Script, page, within};

    #[test]
    fn every_state_has_its_end_and_a_later_one_keeps_its_word() {
        let end = |state: &str, more: &str| {
            let mut value = page(0, 0, 0, state);
            if !more.is_empty() {
                value[more] = if more == "exit_code" { json!(3) } else { json!("new") };
            }
            End::of(&serde_json::from_value(value).unwrap())
        };
        assert_eq!(end("running", ""), None);
        assert_eq!(end("exited", "exit_code"), Some(End::Exited { code: 3 }));
        assert_eq!(end("lost_on_restore", ""), Some(End::LostOnRestore));
        assert_eq!(end("evaporated", "reason"), Some(End::Other("evaporated".to_owned())));
        assert_eq!(end("hovering", ""), None);
    }

    #[tokio::test]
    async fn a_wait_for_a_pattern_tells_what_it_found() {
        let script = Script::new();
        let daemon = async {
            let mut daemon = script.opened().await;
            let (id, params) = daemon.expect("process/output").await;
            let wait = json!({ "until": { "match": "list.*", "quiet_ms": 500 }, "combine": "any" });
            let expected =
                json!({ "process_id": ID, "cursor": 3, "wait": wait, "timeout_ms": 2000 });
            assert_eq!(params, expected);
            let mut page = page(3, 9, 9, "running");
            page["match"] = json!({ "text": "listening", "start_cursor": 4, "end_cursor": 9 });
            daemon.answer(id, json!({ "results": [page], "woke_by": "match" })).await;
        };
        let using = async {
            let process = script.session().await.process(ID.parse().unwrap());
            let wait = process.wait_for("list.*").from(3).or_quiet(Duration::from_millis(500));
            wait.timeout(Duration::from_secs(2)).await.unwrap()
        };
        let (waited, ()) = within(async { tokio::join!(using, daemon) }).await;
        assert_eq!(waited.woke_by, WokeBy::Match);
        assert_eq!(waited.found().unwrap().text, "listening");
    }
}
