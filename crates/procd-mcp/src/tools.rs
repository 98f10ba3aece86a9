//! The tools: their names, schemas and hints, and the way from a call to its result.

mod bash;
mod input;
mod list;
mod output;
mod stop;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use procd_client::ClientError;
use procd_protocol::{ErrorCode, ProcessId};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::bridge::{Bridge, NoSession};
use crate::waiting::Cancelled;

/// The longest wait of one call, milliseconds: ten minutes.
const WAIT_MS_MAX: u64 = 600_000;
/// The wait of a call that does not say how long, milliseconds.
const WAIT_MS_DEFAULT: u64 = 30_000;
/// Where ends of other processes stand in a result.
const COMPLETIONS_META: &str = "procd/completions";

/// Why a tool has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What is wrong, in a sentence the model can act on.
    Told(String),
    /// The client does not want a result any more.
    Cancelled,
}

impl From<Cancelled> for Failure {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<NoSession> for Failure {
    fn from(error: NoSession) -> Self {
        match error {
            NoSession::Client(error) => error.into(),
            NoSession::File(_) | NoSession::None => Self::Told(error.to_string()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let Some(refused) = error.refusal() else {
            return Self::Told(format!("procd cannot be reached: {error}"));
        };
        let code = refused.code.as_str();
        let message = &refused.message;
        let advice = match refused.code.known() {
            Some(ErrorCode::NotFound) => "; ProcessList shows the processes there are",
            Some(ErrorCode::ProcessQuotaExceeded | ErrorCode::OutputQuotaExceeded) => {
                "; stop a process with ProcessStop, or wait for one to end"
            }
            Some(ErrorCode::SupervisorShuttingDown) => "; the next call makes a new session",
            Some(ErrorCode::InputBackpressure) => "; nothing was taken: send it again later",
            Some(_) | None => "",
        };
        Self::Told(format!("{code}: {message}{advice}"))
    }
}

impl Failure {
    /// As a sentence of the bridge's own.
    fn told(message: impl Into<String>) -> Self {
        Self::Told(message.into())
    }
}

/// A result: what programs read, what the model reads, and whose end it shows.
#[derive(Debug)]
pub(crate) struct Answer {
    structured: Value,
    text: String,
    shown: HashSet<ProcessId>,
}

impl Answer {
    fn of(structured: &impl Serialize, text: String, shown: HashSet<ProcessId>) -> Self {
        let structured = serde_json::to_value(structured).unwrap_or_default();
        Self { structured, text, shown }
    }
}

/// A call as the tools see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'c> {
    bridge: &'c Bridge,
    context: &'c RequestContext<RoleServer>,
}

/// Every tool, always in this order.
pub(crate) fn all() -> Vec<Tool> {
    let hints = |read_only, destructive, idempotent, open_world| {
        ToolAnnotations::new()
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world)
    };
    vec![
        tool::<bash::Arguments, bash::Output>("Bash", "Run a command", bash::DESCRIPTION)
            .with_annotations(hints(false, true, false, true)),
        tool::<output::Arguments, output::Output>(
            "ProcessOutput",
            "Read output, or wait for it",
            output::DESCRIPTION,
        )
        .with_annotations(hints(true, false, true, false)),
        tool::<input::Arguments, input::Output>("ProcessInput", "Write input", input::DESCRIPTION)
            .with_annotations(hints(false, true, false, true)),
        tool::<stop::Arguments, stop::Output>("ProcessStop", "Stop a process", stop::DESCRIPTION)
            .with_annotations(hints(false, true, true, false)),
        tool::<list::Arguments, list::Output>("ProcessList", "List processes", list::DESCRIPTION)
            .with_annotations(hints(true, false, true, false)),
    ]
}

fn tool<I: JsonSchema + 'static, O: JsonSchema + 'static>(
    name: &'static str,
    title: &str,
    description: &'static str,
) -> Tool {
    Tool::new(name, description, schema::<I>())
        .with_title(title)
        .with_raw_output_schema(schema::<O>())
}

/// A schema without references, which some clients do not follow.
fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    simplify(&mut schema);
    let Value::Object(mut object) = schema else { return Arc::default() };
    object.remove("title");
    Arc::new(object)
}

/// Takes `null` out of the types: what is optional is left out, and a client that reads words off
/// a command line has to find the one type they are of. The width of a number says nothing here,
/// and a line end in a description nothing at all.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            if let Some(Value::Array(choices)) = fields.get_mut("enum") {
                choices.retain(|choice| !choice.is_null());
            }
            if let Some(Value::Array(choices)) = fields.get_mut("type") {
                choices.retain(|choice| choice != "null");
                if choices.len() == 1 {
                    let only = choices.swap_remove(0);
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(only)] = choices.as_mut_slice() {
                    let only = std::mem::take(only);
                    fields.remove("anyOf");
                    // What stands beside the choice, such as a description, stays.
                    for (name, value) in only {
                        fields.entry(name).or_insert(value);
                    }
                }
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Runs a tool. `None`: there is none of that name.
pub(crate) async fn call(
    bridge: &Bridge,
    name: &str,
    arguments: Option<JsonObject>,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CallToolResult, Cancelled>> {
    let call = Call { bridge, context };
    let arguments = Value::Object(arguments.unwrap_or_default());
    let limit = longest_wait(&arguments).saturating_add(bridge.answer_time());
    let answer = tokio::time::timeout(limit, async {
        Some(match name {
            "Bash" => with(arguments, async |read| bash::run(call, read).await).await,
            "ProcessOutput" => with(arguments, async |read| output::run(call, read).await).await,
            "ProcessInput" => with(arguments, async |read| input::run(call, read).await).await,
            "ProcessStop" => with(arguments, async |read| stop::run(call, read).await).await,
            "ProcessList" => with(arguments, async |read| list::run(call, read).await).await,
            _unknown => return None,
        })
    });
    let answer = answer.await.unwrap_or_else(|_elapsed| Some(Err(no_answer(limit))))?;
    let result = match answer {
        Ok(answer) => {
            let others = bridge.completions().tell(&answer.shown);
            let mut result = CallToolResult::success(vec![ContentBlock::text(answer.text)]);
            result.structured_content = Some(answer.structured);
            result.with_meta((!others.is_empty()).then(|| {
                let ends = others.iter().map(|end| {
                    json!({ "process_id": end.process_id, "state": end.state,
                        "reason": end.reason })
                });
                let mut meta = MetaObject::new();
                meta.0.insert(COMPLETIONS_META.to_owned(), ends.collect());
                meta
            }))
        }
        Err(Failure::Told(message)) => CallToolResult::error(vec![ContentBlock::text(message)]),
        Err(Failure::Cancelled) => return Some(Err(Cancelled)),
    };
    Some(Ok(result))
}

/// The longest that a call with these arguments may wait for what it asks about.
fn longest_wait(arguments: &Value) -> Duration {
    let named = ["yield_time_ms", "timeout_ms", "grace_ms"].into_iter();
    let given = named.filter_map(|name| arguments[name].as_u64()).max();
    Duration::from_millis(given.unwrap_or_default().max(WAIT_MS_DEFAULT))
}

/// A daemon that stands still holds up no call for ever.
fn no_answer(limit: Duration) -> Failure {
    Failure::told(format!(
        "procd gave no answer in {} s; what was asked for may still happen: ProcessList shows it once procd answers",
        limit.as_secs()
    ))
}

/// Reads the arguments, then runs.
async fn with<A: DeserializeOwned>(
    arguments: Value,
    run: impl AsyncFnOnce(A) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let read = serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!(" at `{path}`") };
        Failure::told(format!("invalid_arguments{place}: {}", error.into_inner()))
    });
    run(read?).await
}

fn process_id(text: &str) -> Result<ProcessId, Failure> {
    text.parse().map_err(|_malformed| {
        Failure::told(format!(
            "invalid_arguments: `{text}` is no process_id: that is the text of 22 characters \
             which Bash returned; ProcessList shows those there are"
        ))
    })
}

/// A time to wait within its limit.
fn wait_ms(name: &str, given: Option<u64>) -> Result<Option<u64>, Failure> {
    match given {
        Some(ms) if ms > WAIT_MS_MAX => Err(Failure::told(format!(
            "invalid_arguments: `{name}` is at most {WAIT_MS_MAX}: wait again with ProcessOutput, \
             the process runs on meanwhile"
        ))),
        given => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_says_what_it_takes_and_gives_and_refuses_the_rest() {
        let tools = all();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["Bash", "ProcessOutput", "ProcessInput", "ProcessStop", "ProcessList"]);
        for tool in &tools {
            let input = &tool.input_schema;
            assert_eq!(input["type"], "object", "{}", tool.name);
            assert_eq!(input["additionalProperties"], false, "{}", tool.name);
            let text = Value::Object(JsonObject::clone(input)).to_string();
            assert!(!text.contains("$ref") && !text.contains("\"type\":["), "{text}");
            for (name, field) in input["properties"].as_object().unwrap() {
                assert!(field["description"].is_string(), "{} {name}", tool.name);
            }
            let output = tool.output_schema.as_ref().unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert!(tool.annotations.is_some() && tool.title.is_some());
        }
        let input = &tools[0].input_schema["properties"];
        assert_eq!(input["yield_time_ms"]["type"], "integer");
        assert_eq!(input["stdin"]["enum"], json!(["pipe", "null"]));
        let takes = |index: usize| {
            let properties = tools[index].input_schema["properties"].as_object().unwrap();
            properties.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            takes(0),
            "background command label max_output_bytes stdin timeout tty workdir yield_time_ms"
        );
        assert_eq!(
            takes(1),
            "cursor encoding fold limit_bytes match process_id process_ids tail_lines timeout_ms wait"
        );
        assert_eq!(takes(2), "cols cursor data eof fold keys process_id rows yield_time_ms");
        assert_eq!(takes(3), "grace_ms mode process_id");
        assert_eq!(takes(4), "label state");
    }

    #[test]
    fn a_call_waits_as_long_as_it_was_asked_to_and_the_answer_time_comes_on_top() {
        let waits = |arguments: Value| longest_wait(&arguments).as_millis();
        assert_eq!(waits(json!({})), u128::from(WAIT_MS_DEFAULT));
        assert_eq!(waits(json!({ "yield_time_ms": 5, "grace_ms": 5 })), 30_000);
        assert_eq!(waits(json!({ "timeout_ms": 600_000 })), 600_000);
        assert_eq!(waits(json!({ "grace_ms": 3_600_000, "timeout_ms": "x" })), 3_600_000);
    }

    #[tokio::test]
    async fn wrong_arguments_are_told_with_their_place() {
        let told = async |arguments: Value| {
            let run = async |_: output::Arguments| Err(Failure::told("it was read"));
            match with(arguments, run).await {
                Err(Failure::Told(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told(json!({})).await, "it was read");
        let unknown = told(json!({ "proces_id": "x" })).await;
        assert!(unknown.contains("unknown field `proces_id`, expected one of"), "{unknown}");
        let wrong = told(json!({ "limit_bytes": "many" })).await;
        assert!(wrong.contains("at `limit_bytes`: invalid type: string \"many\""), "{wrong}");
    }
}
