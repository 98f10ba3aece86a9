//! A call that may wait: tells its progress when the client asked for that, and ends when the
//! client cancels it. What it waits for is not touched by either.

use std::future::Future;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use tokio::time::{Instant, MissedTickBehavior};

/// Between two notices of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The client does not want the answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// What `call` gives, unless the request is cancelled first: then `call` is dropped.
/// # Errors
/// [`Cancelled`].
pub(crate) async fn waiting<T>(
    context: &RequestContext<RoleServer>,
    what: &str,
    call: impl Future<Output = T>,
) -> Result<T, Cancelled> {
    let token = context.meta.get_progress_token();
    let began = Instant::now();
    let mut ticks = tokio::time::interval_at(began + PROGRESS_EVERY, PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(call);
    loop {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(Cancelled),
            answer = &mut call => return Ok(answer),
            _ = ticks.tick(), if token.is_some() => {}
        }
        if let Some(token) = token.clone() {
            let seconds = began.elapsed().as_secs_f64();
            let message = format!("{what} for {seconds:.0} s");
            let param = ProgressNotificationParam::new(token, seconds).with_message(message);
            // A client that is gone ends the call itself.
            context.peer.notify_progress(param).await.ok();
        }
    }
}
