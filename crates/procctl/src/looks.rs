//! Looks at the trees of many processes.

use procd_client::ClientError;
use procd_protocol::ProcessId;
use procd_protocol::v1::InspectResult;
use tokio::task::JoinSet;

use crate::exit::CtlError;
use crate::link::Link;

/// Trees looked at, a count.
pub(crate) const LOOKS_MAX: usize = 256;
/// Looks at once: well below what one connection may have in flight.
const LOOKS_AT_ONCE_MAX: usize = 32;

/// Looks at the first [`LOOKS_MAX`] of them, in no order. What was removed since is left out.
/// # Errors
/// [`CtlError`] when a look fails for another reason.
pub(crate) async fn at_first(
    link: &Link,
    processes: impl Iterator<Item = ProcessId>,
) -> Result<Vec<InspectResult>, CtlError> {
    let mut processes = processes.take(LOOKS_MAX);
    let (mut looks, mut seen) = (JoinSet::new(), Vec::new());
    loop {
        while looks.len() < LOOKS_AT_ONCE_MAX
            && let Some(process_id) = processes.next()
        {
            let process = link.process(process_id);
            looks.spawn(async move { process.inspect().await });
        }
        match looks.join_next().await {
            None => return Ok(seen),
            Some(Ok(Ok(look))) => seen.push(look),
            Some(Ok(Err(ClientError::Refused(_)))) => {}
            Some(Ok(Err(error))) => return Err(error.into()),
            Some(Err(error)) => return Err(CtlError::Answer(format!("a look broke off: {error}"))),
        }
    }
}
