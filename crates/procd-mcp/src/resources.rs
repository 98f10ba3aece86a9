//! The resources: `procd://process/{id}`, its record, and `procd://process/{id}/output`, the end of
//! its output.

use procd_client::{ClientError, Session};
use procd_protocol::ProcessId;
use procd_protocol::v1::{Cursors, ListParams, OutputParams, Record};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

/// What every one begins with.
const PREFIX: &str = "procd://process/";
/// What that of an output ends with.
const OUTPUT: &str = "/output";
/// Bytes of the end of an output.
const TAIL_BYTES: i64 = 32 * 1024;

/// One resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// A record.
    Record(ProcessId),
    /// The end of an output.
    Output(ProcessId),
}

impl Named {
    /// What `uri` names.
    pub(crate) fn of(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(PREFIX)?;
        match rest.strip_suffix(OUTPUT) {
            Some(id) => id.parse().ok().map(Self::Output),
            None => rest.parse().ok().map(Self::Record),
        }
    }
}

/// Both resources of a process.
pub(crate) fn uris(process: ProcessId) -> [String; 2] {
    [format!("{PREFIX}{process}"), format!("{PREFIX}{process}{OUTPUT}")]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{PREFIX}{{id}}"), "process")
            .with_title("A process")
            .with_description("The record of a process: its command, state and times")
            .with_mime_type("application/json"),
        ResourceTemplate::new(format!("{PREFIX}{{id}}{OUTPUT}"), "output")
            .with_title("Output of a process")
            .with_description("The last 32 KiB of the output of a process")
            .with_mime_type("text/plain"),
    ]
}

/// Those of the session's processes, newest first.
/// # Errors
/// As the daemon says.
pub(crate) async fn list(session: &Session) -> Result<Vec<Resource>, ClientError> {
    let records = session.list_all(ListParams::default()).await?;
    Ok(records.iter().flat_map(resources).collect())
}

fn resources(record: &Record) -> [Resource; 2] {
    let [process, output] = uris(record.process_id);
    let name = record.label.clone().unwrap_or_else(|| record.process_id.to_string());
    let state = record.state.as_str();
    [
        Resource::new(process, name.clone())
            .with_description(format!("A process, {state}"))
            .with_mime_type("application/json"),
        Resource::new(output, format!("{name} output"))
            .with_description(format!("The end of the output of a process, {state}"))
            .with_mime_type("text/plain"),
    ]
}

/// # Errors
/// As the daemon says.
pub(crate) async fn read(
    session: &Session,
    named: Named,
    uri: &str,
) -> Result<ResourceContents, ClientError> {
    match named {
        Named::Record(id) => {
            let record = session.process(id).inspect().await?.record;
            let text = serde_json::to_string_pretty(&record).unwrap_or_default();
            Ok(ResourceContents::text(text, uri).with_mime_type("application/json"))
        }
        Named::Output(id) => {
            let params = OutputParams {
                cursor: Some(Cursors::One(-TAIL_BYTES)),
                fold: Some(true),
                ..OutputParams::default()
            };
            let page = session.process(id).output(params).await?;
            let mut text = page.output.unwrap_or_default();
            text.extend(page.pending_line);
            Ok(ResourceContents::text(text, uri))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_record_or_an_output_and_nothing_else() {
        let id: ProcessId = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        let [record, output] = uris(id);
        assert_eq!(Named::of(&record), Some(Named::Record(id)));
        assert_eq!(Named::of(&output), Some(Named::Output(id)));
        for uri in ["procd://process/x", "file:///etc/passwd", "procd://process//output", ""] {
            assert_eq!(Named::of(uri), None);
        }
    }
}
