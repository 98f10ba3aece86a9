//! `procctl shutdown`: ends the daemon and every process it supervises.

use procd_protocol::v1::ShutdownParams;

use super::launch::milliseconds;
use crate::arguments::Shutdown;
use crate::exit::CtlError;
use crate::link::{Links, StartDaemon};

/// Asks for the end and returns when the daemon has closed its socket: every tree is empty then.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn shutdown(links: &Links, shutdown: &Shutdown) -> Result<u8, CtlError> {
    let link = links.operator(StartDaemon::Never, "procctl shutdown").await?;
    link.call(&ShutdownParams { grace_ms: shutdown.grace.map(milliseconds) }).await?;
    link.closed().await;
    Ok(0)
}
