//! `procctl kill`: sends a named signal to processes.

use procd_protocol::v1::{SignalName, SignalParams, SignalResult, SignalTarget};

use crate::arguments::{Kill, Target};
use crate::exit::{Code, CtlError};
use crate::link::Links;
use crate::print::{self, Format};
use crate::render::{Cell, Table};

/// Sends it to every process named. One that has ended is exit code 3.
/// # Errors
/// [`CtlError`] when a name means nothing: nothing is sent then.
pub(crate) async fn kill(links: &Links, kill: &Kill, format: Format) -> Result<u8, CtlError> {
    let mut targets = Vec::new();
    for id in &kill.ids {
        targets.push(links.find(id).await?);
    }
    let mut results = Vec::new();
    for target in targets {
        let process_id = target.process.id();
        let params = SignalParams {
            process_id,
            signal: signal(&kill.signal),
            target: Some(match kill.target {
                Target::Leader => SignalTarget::Leader,
                Target::Tree => SignalTarget::Tree,
                Target::Foreground => SignalTarget::Foreground,
            }),
        };
        results.push((process_id, target.link.call(&params).await?));
    }
    let reached = results.iter().all(|(_, result)| result.delivered > 0);
    match format {
        Format::Table => print::table(&table(&results))?,
        Format::Json | Format::Jsonl => {
            let shown: Vec<_> = results
                .iter()
                .map(|(process_id, result)| {
                    serde_json::json!({ "process_id": process_id, "delivered": result.delivered,
                        "signal_errors": result.signal_errors })
                })
                .collect();
            print::documents(format, &shown)?;
        }
    }
    Ok(if reached { Code::Ok } else { Code::NotRunning }.number())
}

/// A number, or a name with or without its SIG.
fn signal(text: &str) -> SignalName {
    if let Ok(number) = text.parse() {
        return SignalName::Number(number);
    }
    let upper = text.to_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    SignalName::Name(name)
}

fn table(results: &[(procd_protocol::ProcessId, SignalResult)]) -> Table {
    let mut table = Table::new(&["HANDLE", "DELIVERED"]);
    for (process_id, result) in results {
        table.push(vec![
            Cell::new(&process_id.to_string()),
            Cell::new(&result.delivered.to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_as_one_likes() {
        for text in ["TERM", "SIGTERM", "term", "sigterm"] {
            assert_eq!(signal(text), SignalName::Name("SIGTERM".to_owned()));
        }
        assert_eq!(signal("9"), SignalName::Number(9));
    }
}
