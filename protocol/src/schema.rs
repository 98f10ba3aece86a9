//! JSON Schema of every message, from the types themselves: what `schema/v1.json` holds. Built for
//! `cargo xtask schema` and its test only.
//!
//! Requests are closed, as the daemon reads them; replies and notices are open, as a client does.
//! Ranges that a type does not tell are in the descriptions.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::envelope::{CANCEL, EXPORT_CONTINUE};
use crate::error::ErrorBody;
use crate::ids::{Base64Bytes, LoopId, OriginId, ProcessId, RequestId, SessionId, SessionKey};
use crate::limits::INTEGER_MAX;
use crate::v1::{self, Cursors, Env, EnvBase64, Params, SignalName, Wait, WaitUntil, WaitWord};
use crate::words::{Open, Word};

/// One of these texts.
pub(crate) fn words(all: &[&str]) -> Schema {
    json_schema!({"type": "string", "enum": all})
}

/// A type whose schema is written by hand.
macro_rules! by_hand {
    ($($name:ident: $schema:tt,)+) => {$(
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )+};
}

by_hand! {
    ProcessId: {"type": "string", "pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"},
    SessionKey: {"type": "string", "pattern": "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"},
    SessionId: {"type": "string", "format": "uuid"},
    LoopId: {"type": "string", "format": "uuid"},
    OriginId: {"type": "string", "format": "uuid"},
    Base64Bytes: {"type": "string", "contentEncoding": "base64"},
    RequestId: {"type": "integer", "minimum": -9_007_199_254_740_991_i64, "maximum": INTEGER_MAX},
    Cursors: {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    SignalName: {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]},
    Env: {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    EnvBase64: {
        "type": "object",
        "additionalProperties": {"type": "string", "contentEncoding": "base64"},
    },
}

impl JsonSchema for Wait {
    fn schema_name() -> Cow<'static, str> {
        "Wait".into()
    }
    fn json_schema(all: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [all.subschema_for::<WaitWord>(), all.subschema_for::<WaitUntil>()],
        })
    }
}

impl<W: Word + JsonSchema> JsonSchema for Open<W> {
    fn schema_name() -> Cow<'static, str> {
        format!("Open{}", W::schema_name()).into()
    }
    fn json_schema(all: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One of these, or a word of a later version.",
            "anyOf": [all.subschema_for::<W>(), {"type": "string"}],
        })
    }
}

/// The schema of version 1 as one document: `methods` and `notices` name the definitions.
#[must_use]
pub fn document() -> Value {
    let mut all = SchemaSettings::draft2020_12().into_generator();
    let error = all.subschema_for::<ErrorBody>();
    let methods = methods(&mut all);
    let notices = notices(&mut all);
    let mut definitions = Value::Object(all.take_definitions(true));
    without_null(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "procd protocol, version 1",
        "version": v1::VERSION,
        "error": error,
        "methods": methods,
        "notices": notices,
        "$defs": definitions,
    })
}

fn method<P: Params + JsonSchema>(all: &mut SchemaGenerator) -> (String, Value)
where
    P::Result: JsonSchema,
{
    let params = all.subschema_for::<P>();
    let result = all.subschema_for::<P::Result>();
    (P::METHOD.to_string(), json!({"params": params, "result": result}))
}

fn methods(all: &mut SchemaGenerator) -> Map<String, Value> {
    let mut map: Map<_, _> = [
        method::<v1::HelloParams>(all),
        method::<v1::SessionOpenParams>(all),
        method::<v1::SessionAttachParams>(all),
        method::<v1::SessionCloseParams>(all),
        method::<v1::StopAllParams>(all),
        method::<v1::SessionListParams>(all),
        method::<v1::StartParams>(all),
        method::<v1::OutputParams>(all),
        method::<v1::SearchParams>(all),
        method::<v1::ExportParams>(all),
        method::<v1::InputParams>(all),
        method::<v1::SignalParams>(all),
        method::<v1::StopParams>(all),
        method::<v1::InspectParams>(all),
        method::<v1::ListParams>(all),
        method::<v1::RemoveParams>(all),
        method::<v1::PinParams>(all),
        method::<v1::SubscribeParams>(all),
        method::<v1::EventsAckParams>(all),
        method::<v1::UnsubscribeParams>(all),
        method::<v1::NotificationsAckParams>(all),
        method::<v1::LeaseAcquireParams>(all),
        method::<v1::LeaseReleaseParams>(all),
        method::<v1::OperatorAttachParams>(all),
        method::<v1::StatusParams>(all),
        method::<v1::MetricsParams>(all),
        method::<v1::ReloadParams>(all),
        method::<v1::ShutdownParams>(all),
    ]
    .into_iter()
    .collect();
    // A dry run is answered by a plan.
    let plan = all.subschema_for::<v1::PlanResult>();
    if let Some(start) = map.get_mut("process/start") {
        let result = start["result"].take();
        start["result"] = json!({"anyOf": [result, plan]});
    }
    map
}

fn notices(all: &mut SchemaGenerator) -> Value {
    json!({
        CANCEL: all.subschema_for::<v1::CancelParams>(),
        EXPORT_CONTINUE: all.subschema_for::<v1::ExportContinueParams>(),
        v1::EXPORT_CHUNK: all.subschema_for::<v1::ExportChunk>(),
        v1::EXPORT_GAP: all.subschema_for::<v1::ExportGap>(),
        v1::EVENTS_RECORD: all.subschema_for::<v1::EventRecord>(),
        v1::NOTIFICATIONS_OFFER: all.subschema_for::<v1::Offer>(),
    })
}

/// An optional field is left out, never `null`: takes `null` out of every property.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().for_each(refuse_null);
            }
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn refuse_null(property: &mut Value) {
    let Value::Object(fields) = property else { return };
    // The default of an absent field is no value of it.
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            fields.insert("type".to_owned(), one);
        }
    }
    let null = json!({"type": "null"});
    if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
        choices.retain(|choice| *choice != null);
        if let [Value::Object(one)] = choices.as_slice() {
            let one = one.clone();
            fields.remove("anyOf");
            fields.extend(one);
        }
    }
}
