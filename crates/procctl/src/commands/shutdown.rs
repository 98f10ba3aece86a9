//! `procctl shutdown`: ends the daemon and every process it supervises.

use procd_protocol::v1::{OperatorAttachParams, ShutdownParams};

use super::launch::milliseconds;
use crate::arguments::Shutdown;
use crate::exit::CtlError;
use crate::link::{Links, StartDaemon};

/// Asks for the end and returns when the daemon has closed its socket: every tree is empty then.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn shutdown(links: &Links, shutdown: &Shutdown) -> Result<u8, CtlError> {
    links.check_operator()?;
    let client = links.connect(StartDaemon::Never).await?;
    let reason = Some("procctl shutdown".to_owned());
    client.call(&OperatorAttachParams { reason }).await?;
    client.call(&ShutdownParams { grace_ms: shutdown.grace.map(milliseconds) }).await?;
    client.closed().await;
    Ok(0)
}
