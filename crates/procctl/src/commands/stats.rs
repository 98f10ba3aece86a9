//! `procctl stats`: what running processes use, once.

use procd_protocol::v1::Record;
use serde::Serialize;

use super::ps::command;
use super::usage::{Look, Use, as_bytes};
use crate::arguments::{Role, Stats};
use crate::exit::CtlError;
use crate::handle::{shortened, shown_chars};
use crate::link::{Links, StartDaemon};
use crate::print::{self, Format};
use crate::render::{Cell, Table, bytes, span};

/// Looks twice and shows what is used, most CPU first.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn stats(links: &Links, stats: &Stats, format: Format) -> Result<u8, CtlError> {
    let wants_own = stats.own || links.role() == Role::Owner;
    let link = if wants_own {
        links.owner(StartDaemon::IfUsed).await?
    } else {
        Some(links.operator(StartDaemon::IfUsed).await?)
    };
    let mut uses = Vec::new();
    if let Some(link) = link {
        let before = Look::take(&link).await?;
        tokio::time::sleep(stats.during).await;
        uses = Look::take(&link).await?.since(Some(&before));
    }
    uses.sort_by(|a, b| {
        b.cpu.total_cmp(&a.cpu).then(a.seen.record.created_at.cmp(&b.seen.record.created_at))
    });
    match format {
        Format::Table => print::table(&table(&uses))?,
        Format::Json | Format::Jsonl => {
            print::documents(format, &uses.iter().map(Row::of).collect::<Vec<_>>())?;
        }
    }
    Ok(0)
}

/// One process in JSON.
#[derive(Debug, Serialize)]
struct Row<'u> {
    process_id: String,
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'u str>,
    tree: u64,
    cpu_ms: u64,
    cpu: f64,
    memory_bytes: u64,
    total_bytes: u64,
    output_bytes_per_second: u64,
}

impl<'u> Row<'u> {
    fn of(used: &'u Use) -> Self {
        let record: &Record = &used.seen.record;
        Self {
            process_id: record.process_id.to_string(),
            session_id: record.session_id.to_string(),
            label: record.label.as_deref(),
            tree: used.seen.tree,
            cpu_ms: used.seen.cpu_ms,
            cpu: (used.cpu * 1000.0).round() / 1000.0,
            memory_bytes: used.seen.memory_bytes,
            total_bytes: record.total_bytes,
            output_bytes_per_second: as_bytes(used.output),
        }
    }
}

fn table(uses: &[Use]) -> Table {
    let handles: Vec<String> =
        uses.iter().map(|used| used.seen.record.process_id.to_string()).collect();
    let chars = shown_chars(&handles.iter().map(String::as_str).collect::<Vec<_>>());
    let header = ["HANDLE", "LABEL", "TREE", "CPU", "TIME", "MEMORY", "OUTPUT", "RATE", "COMMAND"];
    let mut table = Table::new(&header).cutting(&["LABEL", "COMMAND"]);
    for (used, handle) in uses.iter().zip(&handles) {
        let record = &used.seen.record;
        table.push(vec![
            Cell::new(shortened(handle, chars)),
            Cell::new(record.label.as_deref().unwrap_or_default()),
            Cell::new(&used.seen.tree.to_string()),
            Cell::new(&format!("{:.0}%", used.cpu * 100.0)),
            Cell::new(&span(used.seen.cpu_ms)),
            Cell::new(&bytes(used.seen.memory_bytes)),
            Cell::new(&bytes(record.total_bytes)),
            Cell::new(&format!("{}/s", bytes(as_bytes(used.output)))),
            Cell::new(&command(record)),
        ]);
    }
    table
}
