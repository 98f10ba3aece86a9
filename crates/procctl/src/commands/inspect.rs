//! `procctl inspect`: the record of a process, always as JSON.

use crate::arguments::Inspect;
use crate::exit::CtlError;
use crate::link::Links;
use crate::print::{self, Format};

/// Shows the record with the live part of it: descendants, usage, and pids to an operator.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn inspect(
    links: &Links,
    inspect: &Inspect,
    format: Format,
) -> Result<u8, CtlError> {
    let target = links.find(&inspect.id).await?;
    let shown = target.process.inspect().await?;
    print::document(format, &shown)?;
    Ok(0)
}
