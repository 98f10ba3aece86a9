//! `procctl ps`: lists the own session's processes, or all.

use std::collections::HashMap;

use jiff::Timestamp;
use procd_protocol::Word;
use procd_protocol::v1::{InspectResult, Leader, ProcessState, Record};
use procd_protocol::{Open, ProcessId};

use super::exit_text;
use crate::arguments::{Filter, Ps, Role};
use crate::exit::CtlError;
use crate::handle::{shortened, shown_chars};
use crate::link::{Link, Links, StartDaemon};
use crate::looks;
use crate::print::{self, Format};
use crate::render::{Cell, Table, Tone, bytes, command_line, cut, span};

/// Characters of a session shown.
const SESSION_CHARS: usize = 8;
/// Characters of a label or command shown without `--no-trunc`.
const COMMAND_CHARS: usize = 60;

/// Lists.
/// # Errors
/// [`CtlError`], as the daemon says.
pub(crate) async fn ps(links: &Links, ps: &Ps, format: Format) -> Result<u8, CtlError> {
    check(&ps.filter)?;
    let wants_all = ps.all || links.role() == Role::Operator;
    let link = if wants_all {
        Some(links.operator(StartDaemon::IfUsed).await?)
    } else {
        links.owner(StartDaemon::IfUsed).await?
    };
    let mut records = match &link {
        Some(link) => link.list().await?,
        // Nobody ever started anything as this owner.
        None => Vec::new(),
    };
    records.retain(|record| is_wanted(record, &ps.filter));
    if ps.quiet {
        return print_handles(&records);
    }
    match format {
        Format::Json | Format::Jsonl => print::documents(format, &records)?,
        Format::Table => {
            let trees = match &link {
                Some(link) => tree_sizes(link, &records).await?,
                None => HashMap::new(),
            };
            let table = table(&records, &trees, Timestamp::now(), ps.no_trunc);
            if ps.no_trunc {
                print::data(table.to_text(print::is_coloured(), None).as_bytes())?;
            } else {
                print::table(&table)?;
            }
        }
    }
    Ok(0)
}

fn print_handles(records: &[Record]) -> Result<u8, CtlError> {
    let handles: String = records.iter().map(|record| format!("{}\n", record.process_id)).collect();
    print::data(handles.as_bytes())?;
    Ok(0)
}

fn check(filters: &[Filter]) -> Result<(), CtlError> {
    for filter in filters {
        if let Filter::State(word) = filter
            && ProcessState::from_word(word).is_none()
        {
            let states: Vec<&str> = ProcessState::ALL.iter().map(|state| state.as_str()).collect();
            let what = format!("`{word}` is no state");
            return Err(CtlError::usage(what, format!("one of {}", states.join(", "))));
        }
    }
    Ok(())
}

/// Filters of one kind are alternatives, those of different kinds must all hold.
fn is_wanted(record: &Record, filters: &[Filter]) -> bool {
    let holds = |filter: &Filter| match filter {
        Filter::State(word) => record.state.as_str() == word,
        Filter::Label(label) => record.label.as_ref() == Some(label),
        Filter::Session(session) => record.session_id.uuid() == *session,
    };
    filters.iter().all(|one| {
        let kind = std::mem::discriminant(one);
        filters.iter().filter(|other| std::mem::discriminant(*other) == kind).any(holds)
    })
}

fn is_running(record: &Record) -> bool {
    matches!(record.state, Open::Known(ProcessState::Running | ProcessState::Starting))
}

/// How many live members each running tree has, the leader counted.
async fn tree_sizes(link: &Link, records: &[Record]) -> Result<HashMap<ProcessId, u64>, CtlError> {
    let running = records.iter().filter(|record| is_running(record));
    let seen = looks::at_first(link, running.map(|record| record.process_id)).await?;
    let size = |seen: &InspectResult| seen.live_descendants.saturating_add(1);
    // One that has ended since it was listed has no tree to count.
    let running = seen.iter().filter(|seen| is_running(&seen.record));
    Ok(running.map(|seen| (seen.record.process_id, size(seen))).collect())
}

fn table(
    records: &[Record],
    trees: &HashMap<ProcessId, u64>,
    now: Timestamp,
    whole: bool,
) -> Table {
    let handles: Vec<String> = records.iter().map(|record| record.process_id.to_string()).collect();
    let all: Vec<&str> = handles.iter().map(String::as_str).collect();
    let chars = if whole { usize::MAX } else { shown_chars(&all) };
    let header =
        ["HANDLE", "LABEL", "SESSION", "STATE", "AGE", "EXIT", "OUTPUT", "TREE", "COMMAND"];
    let mut table = Table::new(&header).cutting(&["LABEL", "COMMAND"]);
    for (record, handle) in records.iter().zip(&handles) {
        let text = |text: &str| if whole { text.to_owned() } else { cut(text, COMMAND_CHARS) };
        let session = record.session_id.to_string();
        let session_chars = if whole { usize::MAX } else { SESSION_CHARS };
        let tree = trees.get(&record.process_id).map(u64::to_string).unwrap_or_default();
        table.push(vec![
            Cell::new(shortened(handle, chars)),
            Cell::new(&text(record.label.as_deref().unwrap_or_default())),
            Cell::new(shortened(&session, session_chars)),
            Cell::toned(record.state.as_str(), tone(record)),
            Cell::new(&age(&record.created_at, now)),
            Cell::new(&exit_text(record.exit_code, record.leader.as_ref())),
            Cell::new(&bytes(record.total_bytes)),
            Cell::new(&tree),
            Cell::new(&text(&command(record))),
        ]);
    }
    table
}

fn tone(record: &Record) -> Tone {
    match &record.state {
        Open::Known(ProcessState::Starting | ProcessState::Running) => Tone::Good,
        Open::Known(ProcessState::Exited) => match record.leader {
            Some(Leader::Code { code: 0 }) | None => Tone::Plain,
            Some(Leader::Code { .. } | Leader::Signal { .. }) => Tone::Bad,
        },
        Open::Known(
            ProcessState::Failed
            | ProcessState::TimedOut
            | ProcessState::Killed
            | ProcessState::LostOnRestore,
        ) => Tone::Bad,
        Open::Known(ProcessState::Interrupted | ProcessState::Terminated) | Open::Unknown(_) => {
            Tone::Plain
        }
    }
}

pub(super) fn age(created_at: &str, now: Timestamp) -> String {
    let Ok(created) = created_at.parse::<Timestamp>() else { return String::new() };
    let milliseconds = now.duration_since(created).as_millis();
    span(u64::try_from(milliseconds).unwrap_or(0))
}

pub(super) fn command(record: &Record) -> String {
    let command = &record.command;
    match (&command.argv, &command.line) {
        (Some(argv), _) => command_line(argv.iter().map(String::as_str)),
        (None, Some(line)) => line.clone(),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(handle: &str, state: &str, extra: &str) -> Record {
        let text = format!(
            r#"{{"version":1,"process_id":"{handle}",
            "session_id":"1b9e7a52-0000-4000-8000-000000000001",
            "loop_id":"1b9e7a52-0000-4000-8000-000000000002",
            "origin":"1b9e7a52-0000-4000-8000-000000000003",
            "command":{{"argv":["sh","-c","sleep 600"]}},
            "access":{{"asked":"broad_write","effective":"broad_write"}},"tier":"shim",
            "state":"{state}","created_at":"2026-11-30T21:00:00Z","spool_state":"open"{extra}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn handle(byte: u8) -> String {
        ProcessId::from_bytes([byte; 16]).to_string()
    }

    #[test]
    fn a_table_shows_what_runs_and_how_the_rest_ended() {
        let (one, two) = (handle(0), handle(1));
        let records = [
            record(&one, "running", r#","label":"web","total_bytes":2048"#),
            record(
                &two,
                "terminated",
                r#","leader":{"signal":15,"signal_name":"SIGTERM","core_dumped":false}"#,
            ),
        ];
        let trees = HashMap::from([(ProcessId::from_bytes([0; 16]), 3)]);
        let now = "2026-11-30T21:01:05Z".parse().unwrap();
        let text = table(&records, &trees, now, false).to_text(false, None);
        let expected = "\
HANDLE  LABEL  SESSION   STATE       AGE    EXIT     OUTPUT   TREE  COMMAND
AAAAAA  web    1b9e7a52  running     1m 5s           2.0 KiB  3     sh -c 'sleep 600'
AQEBAQ         1b9e7a52  terminated  1m 5s  SIGTERM  0 B            sh -c 'sleep 600'
";
        assert_eq!(text, expected);
        assert!(table(&records, &trees, now, true).to_text(false, None).contains(&two));
    }

    #[test]
    fn filters_of_one_kind_are_alternatives_and_kinds_add_up() {
        let shown = record(&handle(0), "running", r#","label":"web""#);
        let state = |word: &str| Filter::State(word.to_owned());
        let label = |text: &str| Filter::Label(text.to_owned());
        assert!(is_wanted(&shown, &[]));
        assert!(is_wanted(&shown, &[state("exited"), state("running")]));
        assert!(!is_wanted(&shown, &[state("running"), label("db")]));
        assert!(is_wanted(&shown, &[Filter::Session(shown.session_id.uuid()), label("web")]));
    }

    #[test]
    fn a_state_that_is_none_is_refused_with_the_words_there_are() {
        let error = check(&[Filter::State("sleeping".to_owned())]).unwrap_err();
        assert!(error.to_string().contains("lost_on_restore"), "{error}");
    }

    #[test]
    fn a_state_of_a_later_version_is_shown_as_it_is() {
        let text = table(
            &[record(&handle(0), "napping", "")],
            &HashMap::new(),
            Timestamp::UNIX_EPOCH,
            false,
        );
        assert!(text.to_text(false, None).contains("napping"));
    }
}
