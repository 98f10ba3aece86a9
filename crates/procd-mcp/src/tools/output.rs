//! `ProcessOutput`: reads by cursor, and waits.

use procd_client::ClientError;
use procd_protocol::ProcessId;
use procd_protocol::v1::{
    Combine, Cursors, Encoding, Entry, OutputParams, Until, Wait, WaitUntil, WaitWord,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Answer, Call, Failure, WAIT_MS_DEFAULT, process_id, wait_ms};
use crate::outcome::{Outcome, shown_end};
use crate::waiting::waiting;

pub(super) const DESCRIPTION: &str = "Reads the output of one or several processes, from a cursor on; the same cursor gives the \
    same text again. With `match` (a regular expression) it waits until the output matches; with `wait` until there is output \
    (any, all), or until the end (exit). A wait that is over touches no process: call it again.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The process: this or process_ids.
    process_id: Option<String>,
    /// Several processes, at most 64.
    #[schemars(length(min = 1, max = 64))]
    process_ids: Option<Vec<String>>,
    /// Where to begin: next_cursor of the last result. Default 0; negative = from the end. With
    /// process_ids a list with one each, too.
    #[schemars(schema_with = "places")]
    cursor: Option<Cursors>,
    /// The last so many lines, in place of cursor.
    #[schemars(range(min = 1, max = 100_000))]
    tail_lines: Option<u64>,
    /// Text returned of each process, default 32768.
    #[schemars(range(min = 1, max = 1_048_576))]
    limit_bytes: Option<u64>,
    /// `safe_text` (default), or `base64` for the exact bytes.
    encoding: Option<Form>,
    /// `poll` (default without `match`): do not wait; `any`: until one process has output or has
    /// ended; `all`: each has; `exit`: each has ended. Or conditions: until {match, quiet_ms,
    /// bytes, exit}, combine, wait_for.
    #[schemars(schema_with = "conditions")]
    wait: Option<Wait>,
    /// Wait until the output from the cursor on matches this regular expression.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = 4096))]
    pattern: Option<String>,
    /// How long to wait, milliseconds; default 30000, at most 600000.
    #[schemars(range(max = 600_000))]
    timeout_ms: Option<u64>,
    /// Show overwritten lines, such as progress bars, as a terminal would; default true.
    fold: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    SafeText,
    Base64,
}

fn places(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "integer" },
        { "type": "array", "items": { "type": "integer" } },
    ] })
}

fn conditions(_: &mut SchemaGenerator) -> Schema {
    let any_all = json_schema!({ "type": "string", "enum": ["any", "all"], "description": "any (default): one is enough" });
    json_schema!({ "anyOf": [
        { "type": "string", "enum": ["poll", "any", "all", "exit"] },
        {
            "type": "object",
            "properties": {
                "until": {
                    "type": "object",
                    "description": "the conditions of a process, at least one",
                    "properties": {
                        "match": { "type": "string", "description": "a regular expression" },
                        "quiet_ms": { "type": "integer", "description": "no output for so long" },
                        "bytes": { "type": "integer", "description": "so many beyond the cursor" },
                        "exit": { "type": "boolean", "description": "the end" },
                    },
                    "additionalProperties": false,
                },
                "combine": any_all,
                "wait_for": any_all,
            },
            "required": ["until"],
            "additionalProperties": false,
        },
    ] })
}

/// What it gives.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// One entry a process, in the order asked.
    results: Vec<Read>,
    /// Why the call came back: `poll`, `output`, `match`, `quiet`, `bytes`, `exit`, `timeout`,
    /// `gap`, `shutdown`.
    woke_by: String,
}

/// A process, or why it cannot be read.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Read {
    Page(Box<Outcome>),
    Failed {
        /// The handle, as asked.
        process_id: String,
        /// Why: a code and a sentence.
        error: String,
    },
}

impl Arguments {
    fn targets(&self) -> Result<Vec<ProcessId>, Failure> {
        match (&self.process_id, &self.process_ids) {
            (Some(one), None) => Ok(vec![process_id(one)?]),
            (None, Some(many)) => many.iter().map(|one| process_id(one)).collect(),
            (Some(_), Some(_)) | (None, None) => {
                Err(Failure::told("invalid_arguments: give either `process_id` or `process_ids`"))
            }
        }
    }

    fn params(self) -> Result<OutputParams, Failure> {
        let targets = self.targets()?;
        let wait = waits(self.wait, self.pattern)?;
        let timeout_ms = wait_ms("timeout_ms", self.timeout_ms)?;
        let is_text = self.encoding != Some(Form::Base64);
        Ok(OutputParams {
            process_ids: Some(targets),
            cursor: self.cursor,
            tail_lines: self.tail_lines,
            limit_bytes: self.limit_bytes,
            encoding: (!is_text).then_some(Encoding::Base64),
            fold: Some(self.fold.unwrap_or(is_text)),
            timeout_ms: wait.is_some().then(|| timeout_ms.unwrap_or(WAIT_MS_DEFAULT)),
            wait,
            ..OutputParams::default()
        })
    }
}

/// A pattern alone waits for it; beside a word it is one condition more.
fn waits(wait: Option<Wait>, pattern: Option<String>) -> Result<Option<Wait>, Failure> {
    let Some(pattern) = pattern else {
        return Ok(wait.filter(|wait| *wait != Wait::Simple(WaitWord::Poll)));
    };
    let alone = Until { r#match: Some(pattern), ..Until::default() };
    let (until, combine, wait_for) = match wait {
        None | Some(Wait::Simple(WaitWord::Any)) => (alone, None, None),
        Some(Wait::Simple(WaitWord::All)) => (alone, None, Some(Combine::All)),
        Some(Wait::Simple(WaitWord::Exit)) => (Until { exit: Some(true), ..alone }, None, None),
        Some(Wait::Simple(WaitWord::Poll)) => {
            let why = "invalid_arguments: `match` waits: leave out `wait: poll`";
            return Err(Failure::told(why));
        }
        Some(Wait::Until(asked)) if asked.until.r#match.is_some() => {
            let why = "invalid_arguments: `match` is there twice, in `wait.until` too";
            return Err(Failure::told(why));
        }
        Some(Wait::Until(asked)) => {
            (Until { r#match: alone.r#match, ..asked.until }, asked.combine, asked.wait_for)
        }
    };
    Ok(Some(Wait::Until(WaitUntil { until, combine, wait_for })))
}

pub(super) async fn run(call: Call<'_>, arguments: Arguments) -> Result<Answer, Failure> {
    let params = arguments.params()?;
    let session = call.bridge.session().await?;
    let read = waiting(call.context, "waiting", session.output(&params)).await?;
    let result = read.map_err(plain)?;
    let woke_by = result.woke_by.as_str().to_owned();
    let is_one = result.results.len() == 1;
    let mut shown = std::collections::HashSet::new();
    let mut texts = Vec::new();
    let mut results = Vec::new();
    for entry in result.results {
        match entry {
            Entry::Page(page) => {
                shown.extend(shown_end(&page));
                let mut outcome = Outcome::of(*page);
                outcome.woke_by = is_one.then(|| woke_by.clone());
                texts.push(outcome.text());
                results.push(Read::Page(Box::new(outcome)));
            }
            Entry::Failed { error, .. } if is_one => return Err(ClientError::from(error).into()),
            Entry::Failed { process_id, error } => {
                let error = format!("{}: {}", error.code.as_str(), error.message);
                texts.push(format!("[{error}; process_id {process_id}]"));
                results.push(Read::Failed { process_id: process_id.to_string(), error });
            }
        }
    }
    let output = Output { results, woke_by };
    Ok(Answer::of(&output, texts.join("\n"), shown))
}

/// The daemon names its own parameters, which are those of the tool but for this one.
fn plain(error: ClientError) -> Failure {
    match Failure::from(error) {
        Failure::Told(message) => Failure::Told(message.replace("wait.until.match", "match")),
        Failure::Cancelled => Failure::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn params(more: Value) -> Result<Value, String> {
        let mut arguments = json!({ "process_id": "AAAAAAAAAAAAAAAAAAAAAA" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let arguments: Arguments =
            serde_json::from_value(arguments).map_err(|error| error.to_string())?;
        match arguments.params() {
            Ok(params) => Ok(serde_json::to_value(params).unwrap()),
            Err(Failure::Told(message)) => Err(message),
            Err(Failure::Cancelled) => panic!("nothing was cancelled"),
        }
    }

    #[test]
    fn a_pattern_alone_waits_and_a_word_or_conditions_add_to_it() {
        let wait = |more| params(more).unwrap()["wait"].take();
        assert_eq!(wait(json!({})), Value::Null);
        assert_eq!(wait(json!({ "wait": "exit" })), "exit");
        assert_eq!(wait(json!({ "match": "x" })), json!({ "until": { "match": "x" } }));
        let all = json!({ "until": { "match": "x" }, "wait_for": "all" });
        assert_eq!(wait(json!({ "match": "x", "wait": "all" })), all);
        let exit = json!({ "until": { "match": "x", "exit": true } });
        assert_eq!(wait(json!({ "match": "x", "wait": "exit" })), exit);
        let until = json!({ "until": { "quiet_ms": 5 }, "combine": "all" });
        let both = json!({ "until": { "match": "x", "quiet_ms": 5 }, "combine": "all" });
        assert_eq!(wait(json!({ "wait": until, "match": "x" })), both);
        assert!(params(json!({ "match": "x", "wait": "poll" })).is_err());
    }

    #[test]
    fn folding_is_the_default_of_text_and_a_wait_has_an_end() {
        let read = params(json!({ "wait": "any" })).unwrap();
        assert_eq!((&read["fold"], &read["timeout_ms"]), (&json!(true), &json!(30_000)));
        let read = params(json!({ "encoding": "base64" })).unwrap();
        assert_eq!((&read["fold"], &read["timeout_ms"]), (&json!(false), &Value::Null));
        let long = params(json!({ "wait": "any", "timeout_ms": 600_001 })).unwrap_err();
        assert!(long.contains("at most 600000"), "{long}");
        assert!(params(json!({ "process_ids": [] })).unwrap_err().contains("either"));
        let wrong = params(json!({ "cursor": "6" })).unwrap_err();
        assert!(wrong.contains("expected an integer or a list of integers"), "{wrong}");
        let wrong = params(json!({ "wait": "done" })).unwrap_err();
        assert!(wrong.contains("expected a wait: poll, any, all, exit"), "{wrong}");
    }
}
