//! A client that owns a session.

use std::path::PathBuf;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::wire::Wire;

/// A connection bound to one owner.
#[derive(Debug)]
pub struct Owner {
    /// The connection.
    pub wire: Wire,
    /// What `session/open` said: session_id, loop_id, session_key.
    pub opened: Value,
    cwd: PathBuf,
}

impl Owner {
    /// Opens a session with these parameters on a connection that has said hello.
    /// - `cwd`: the folder of commands that name none.
    /// # Panics
    /// When the daemon refuses.
    #[must_use]
    pub fn open(mut wire: Wire, params: Value, cwd: PathBuf) -> Self {
        let opened = wire.ok("session/open", params);
        Self { wire, opened, cwd }
    }

    /// A connection that is attached already.
    #[must_use]
    pub const fn attached(wire: Wire, opened: Value, cwd: PathBuf) -> Self {
        Self { wire, opened, cwd }
    }

    /// Attaches to the same session and loop with another connection.
    /// # Panics
    /// When the daemon refuses.
    #[must_use]
    pub fn attach(&self, wire: Wire) -> Self {
        self.attach_as(wire, self.opened["loop_id"].clone())
    }

    /// Attaches to the same session as another loop.
    /// # Panics
    /// When the daemon refuses.
    #[must_use]
    pub fn attach_as(&self, mut wire: Wire, loop_id: Value) -> Self {
        let mut opened = self.opened.clone();
        opened["loop_id"] = loop_id;
        let field = |name: &str| opened[name].clone();
        let (session, key) = (field("session_id"), field("session_key"));
        let params =
            json!({"session_id": session, "loop_id": field("loop_id"), "session_key": key});
        wire.ok("session/attach", params);
        Self { wire, opened, cwd: self.cwd.clone() }
    }

    /// The parameters of a start of `argv` in the test's folder, with `more` beside.
    #[must_use]
    pub fn start_params(&self, argv: &[&str], more: Value) -> Value {
        // The mark by which the leak check knows it, wherever it goes.
        let mark = json!({"PROCD_TEST_FOLDER": self.cwd});
        let mut params = json!({"argv": argv, "cwd": self.cwd, "env": mark});
        merge(&mut params, more);
        params
    }

    /// Starts `argv` and waits as `more` asks: the entry.
    /// # Panics
    /// When the daemon refuses.
    pub fn start(&mut self, argv: &[&str], more: Value) -> Value {
        let params = self.start_params(argv, more);
        self.wire.ok("process/start", params)
    }

    /// Starts `argv` in the background: its handle.
    /// # Panics
    /// When the daemon refuses.
    pub fn background(&mut self, argv: &[&str]) -> String {
        let entry = self.start(argv, json!({"background": true}));
        handle(&entry)
    }

    /// Starts a shell line in the background: its handle.
    /// # Panics
    /// When the daemon refuses.
    pub fn background_shell(&mut self, line: &str) -> String {
        self.background(&["sh", "-c", line])
    }

    /// One entry of `process/output`.
    /// # Panics
    /// When the call is refused.
    pub fn output(&mut self, process: &str, more: Value) -> Value {
        let mut params = json!({"process_id": process});
        merge(&mut params, more);
        let mut reply = self.wire.ok("process/output", params);
        let mut entry = reply["results"][0].take();
        entry["woke_by"] = reply["woke_by"].take();
        entry
    }

    /// Waits for the end: the entry.
    /// # Panics
    /// When it does not end in time.
    pub fn ended(&mut self, process: &str) -> Value {
        let entry = self.output(process, json!({"wait": "exit", "limit_bytes": 1, "cursor": 0}));
        assert!(
            !["running", "starting"].contains(&entry["state"].as_str().unwrap_or_default()),
            "{entry}"
        );
        entry
    }

    /// Everything retained from `cursor` on, as raw bytes, to the end of what is there.
    /// # Panics
    /// When a page is not what it says.
    pub fn bytes(&mut self, process: &str, cursor: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cursor = cursor;
        loop {
            let ask = json!({"cursor": cursor, "encoding": "base64", "limit_bytes": 1 << 20});
            let entry = self.output(process, ask);
            let page = decode(&entry);
            let (from, next) = (number(&entry, "from_cursor"), number(&entry, "next_cursor"));
            assert_eq!(next - from, page.len() as u64, "{}", without_output(&entry));
            bytes.extend(page);
            if entry["more"] != true {
                return bytes;
            }
            cursor = moved_on(&entry, cursor);
        }
    }

    /// Everything retained as safe text, joined page by page.
    /// # Panics
    /// When the call is refused.
    pub fn text(&mut self, process: &str) -> String {
        let mut text = String::new();
        let mut cursor = 0;
        loop {
            let entry = self.output(process, json!({"cursor": cursor, "limit_bytes": 1 << 20}));
            text.push_str(entry["output"].as_str().unwrap_or_default());
            if entry["more"] != true {
                return text;
            }
            cursor = moved_on(&entry, cursor);
        }
    }

    /// Stops and waits for the proof: the stop result.
    /// # Panics
    /// When the stop is refused.
    pub fn stop(&mut self, process: &str, mode: &str, grace_ms: u64) -> Value {
        let params = json!({"process_id": process, "mode": mode, "grace_ms": grace_ms});
        self.wire.ok("process/stop", params)
    }

    /// Records of the own loop, newest first.
    /// # Panics
    /// When the call is refused.
    pub fn list(&mut self) -> Vec<Value> {
        let reply = self.wire.ok("process/list", json!({"limit": 1000}));
        reply["records"].as_array().cloned().unwrap_or_default()
    }

    /// The record of one process.
    /// # Panics
    /// When the call is refused.
    pub fn record(&mut self, process: &str) -> Value {
        self.wire.ok("process/inspect", json!({"process_id": process}))["record"].take()
    }
}

/// The handle of an entry or record.
/// # Panics
/// When there is none.
#[must_use]
pub fn handle(entry: &Value) -> String {
    let handle = entry["process_id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(handle.len(), 22, "a handle in {entry}");
    handle
}

/// A number of an entry.
/// # Panics
/// When there is none.
#[must_use]
#[expect(clippy::panic, reason = "this is how a test fails")]
pub fn number(entry: &Value, field: &str) -> u64 {
    entry[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number `{field}` in {}", without_output(entry)))
}

/// The cursor to go on at.
/// # Panics
/// When the page has more to follow and did not move on.
#[must_use]
pub fn moved_on(entry: &Value, cursor: u64) -> u64 {
    let next = number(entry, "next_cursor");
    assert!(next > cursor, "a page that does not move on: {entry}");
    next
}

/// The raw bytes of a `base64` page.
/// # Panics
/// When they are not base64.
#[must_use]
#[expect(clippy::expect_used, reason = "this is how a test fails")]
pub fn decode(entry: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(entry["output"].as_str().unwrap_or_default()).expect("base64 output")
}

/// An entry for a message, its output left out.
#[must_use]
pub fn without_output(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("output");
    }
    entry
}

/// Adds the fields of `more` to `params`; null takes a field out.
pub fn merge(params: &mut Value, more: Value) {
    let Value::Object(more) = more else { return };
    let Some(fields) = params.as_object_mut() else { return };
    for (name, value) in more {
        if value.is_null() {
            fields.remove(&name);
        } else {
            fields.insert(name, value);
        }
    }
}
