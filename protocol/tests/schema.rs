//! `schema/v1.json` is what the types say.

use std::path::Path;

use procd_protocol::v1::Method;
use procd_protocol::{Word, schema};

/// Set by `cargo xtask schema`: the file is written in place of being compared.
const WRITE: &str = "PROCD_SCHEMA_WRITE";

#[test]
fn the_published_schema_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/v1.json");
    let text = serde_json::to_string_pretty(&schema::document()).expect("json") + "\n";
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).expect("write the schema");
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == text,
        "protocol/schema/v1.json is not what the types say: run `cargo xtask schema`"
    );
}

#[test]
fn every_method_has_a_schema_of_its_parameters_and_of_its_result() {
    let document = schema::document();
    for method in Method::ALL {
        let entry = &document["methods"][method.as_str()];
        assert!(entry["params"].is_object() && entry["result"].is_object(), "{method}");
    }
    assert_eq!(document["methods"].as_object().map(|all| all.len()), Some(Method::ALL.len()));
}
