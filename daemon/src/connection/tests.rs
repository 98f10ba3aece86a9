//! The connection over an in-memory stream: framing, handshake, bounds and deadlines without a
//! supervisor; the methods, in `methods` and `output`, against a real one with a played runner.

use std::sync::Arc;
use std::time::Duration;

use procd_core::settings::Limits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::budget::Budgets;
use crate::clock::Clock;
use crate::config::Live;
use crate::request::{Client, Daemon, Facts, RestoreFacts, Shutdown, Stage};

mod bad_input;
mod journal;
mod methods;
mod output;
mod world;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon that is still restoring: it answers hello and status only.
struct Restoring {
    daemon: Arc<Daemon>,
    _stage: watch::Sender<Stage>,
    _wishes: mpsc::Receiver<Shutdown>,
}

fn facts() -> Facts {
    Facts {
        tier: Some(procd_core::Tier::Cgroup),
        guarantees: vec!["a sentence".to_owned()],
        instance_id: Uuid::from_u128(1),
        boot_id: Uuid::from_u128(2),
        warnings: Vec::new(),
        lingering_hint: None,
        state_format: 1,
        escaped: Arc::default(),
    }
}

fn daemon_at(stage: Stage) -> Restoring {
    let (stage_sender, stage) = watch::channel(stage);
    let (shutdown, wishes) = mpsc::channel(1);
    let daemon = Daemon {
        facts: facts(),
        settings: Arc::new(Live::fixed(Limits::default().into())),
        clock: Clock,
        started: Clock.monotonic(),
        stage,
        shutdown,
        ending: CancellationToken::new(),
        drains: None,
        connections: Arc::default(),
    };
    Restoring { daemon: Arc::new(daemon), _stage: stage_sender, _wishes: wishes }
}

fn restoring() -> Restoring {
    daemon_at(Stage::Restoring(RestoreFacts::default()))
}

/// A client in the hands of the test.
struct Wire {
    io: DuplexStream,
    serving: JoinHandle<()>,
    client: Arc<Client>,
    next_id: i64,
}

impl Wire {
    /// Connects; `buffer`: bytes that may be under way in each direction.
    fn connect(daemon: &Arc<Daemon>, buffer: usize) -> Self {
        Self::connect_within(daemon, buffer, Arc::new(Budgets::new(1)))
    }

    /// The same, sharing `budgets` with other connections.
    fn connect_within(daemon: &Arc<Daemon>, buffer: usize, budgets: Arc<Budgets>) -> Self {
        let (io, theirs) = tokio::io::duplex(buffer);
        let client = Client::new(daemon.clone(), crate::request::Standing::Free);
        let serving = tokio::spawn(super::serve(theirs, client.clone(), budgets));
        Self { io, serving, client, next_id: 1 }
    }

    /// A connection that has said hello.
    async fn greeted(daemon: &Arc<Daemon>) -> Self {
        let mut wire = Self::connect(daemon, 64 * 1024);
        let reply = wire.call("hello", hello()).await;
        assert_eq!(reply["result"]["version"], 1, "{reply}");
        wire
    }

    async fn send_bytes(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.io.write_all(&length).await.unwrap();
        self.io.write_all(payload).await.unwrap();
    }

    async fn send(&mut self, value: &Value) {
        self.send_bytes(&serde_json::to_vec(value).unwrap()).await;
    }

    /// Sends a request; its id.
    async fn ask(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"id": id, "method": method, "params": params})).await;
        id
    }

    /// The next frame; `None` at the end of the stream.
    async fn frame(&mut self) -> Option<Value> {
        let reading = async {
            let mut length = [0; 4];
            self.io.read_exact(&mut length).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes(length) as usize];
            self.io.read_exact(&mut payload).await.ok()?;
            Some(serde_json::from_slice(&payload).unwrap())
        };
        tokio::time::timeout(PATIENCE * 1000, reading).await.expect("a frame in time")
    }

    async fn reply(&mut self) -> Value {
        self.frame().await.expect("a reply, not the end")
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        let reply = self.reply().await;
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    /// The result of a call that succeeds.
    async fn result(&mut self, method: &str, params: Value) -> Value {
        let reply = self.call(method, params).await;
        assert!(reply.get("error").is_none(), "{reply}");
        reply["result"].clone()
    }

    /// The error of a call that is refused.
    async fn error(&mut self, method: &str, params: Value) -> Value {
        let reply = self.call(method, params).await;
        assert!(reply.get("result").is_none(), "{reply}");
        reply["error"].clone()
    }
}

fn hello() -> Value {
    json!({"client": {"name": "test", "version": "1"}, "versions": [1]})
}

#[tokio::test]
async fn hello_tells_version_limits_and_containment() {
    let daemon = restoring();
    let mut wire = Wire::connect(&daemon.daemon, 1024);
    let result = wire.result("hello", hello()).await;
    assert_eq!(result["server"]["name"], "procd");
    assert_eq!(result["containment"]["tier"], "cgroup");
    assert_eq!(result["limits"]["frame_bytes_max"], 8 * 1024 * 1024);
    assert_eq!(result["limits"]["running_loop_max"], 8);
    assert_eq!(result["instance_id"], Uuid::from_u128(1).to_string());
    assert_eq!(result["warnings"], json!([]));
}

#[tokio::test]
async fn anything_before_hello_is_refused_and_ends_the_connection() {
    let daemon = restoring();
    for (first, id) in [
        (json!({"id": 5, "method": "daemon/status"}), json!(5)),
        (json!({"method": "$/cancel", "params": {"for": 1}}), Value::Null),
        (json!({"id": 6, "method": "nonsense"}), json!(6)),
        (json!({"id": 7, "method": "hello", "params": {"versions": [1]}}), json!(7)),
        (json!([1]), Value::Null),
    ] {
        let mut wire = Wire::connect(&daemon.daemon, 1024);
        wire.send(&first).await;
        let reply = wire.reply().await;
        assert_eq!(reply["error"]["code"], "invalid_arguments", "{reply}");
        assert_eq!(reply["id"], id);
        assert!(wire.frame().await.is_none());
    }
}

#[tokio::test]
async fn no_common_version_lists_what_is_spoken_and_ends_the_connection() {
    let daemon = restoring();
    let mut wire = Wire::connect(&daemon.daemon, 1024);
    let mut params = hello();
    params["versions"] = json!([2, 3]);
    let error = wire.error("hello", params).await;
    assert_eq!(error["code"], "unsupported_version");
    assert_eq!(error["details"]["versions"], json!([1]));
    assert!(wire.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_hello_is_closed_after_ten_seconds() {
    let daemon = restoring();
    let mut wire = Wire::connect(&daemon.daemon, 1024);
    let begun = tokio::time::Instant::now();
    // Half a hello is no hello.
    wire.io.write_all(&[0, 0, 0, 90, b'{']).await.unwrap();
    assert!(wire.frame().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn silence_is_fine_but_a_half_frame_is_closed_after_thirty_seconds() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    wire.result("daemon/status", json!({})).await;
    let begun = tokio::time::Instant::now();
    wire.io.write_all(&[0, 0]).await.unwrap();
    assert!(wire.frame().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn a_frame_over_the_cap_is_refused_before_its_body_comes() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    wire.io.write_all(&(8 * 1024 * 1024 + 1_u32).to_be_bytes()).await.unwrap();
    let reply = wire.reply().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &json!("frame_too_large")));
    // What it still sends does not cost it the answer.
    drop(wire.io.write_all(&vec![b'x'; 100_000]).await);
    assert!(wire.frame().await.is_none());
    let mut wire = Wire::greeted(&daemon.daemon).await;
    wire.io.write_all(&[0; 4]).await.unwrap();
    assert_eq!(wire.reply().await["error"]["code"], "invalid_arguments");
    assert!(wire.frame().await.is_none());
}

#[tokio::test]
async fn frames_may_come_in_any_pieces() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    let payload = br#"{"id":41,"method":"daemon/status"}"#;
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(payload);
    for byte in bytes.repeat(2) {
        wire.io.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    for _ in 0..2 {
        assert_eq!(wire.reply().await["id"], 41);
    }
}

#[tokio::test]
async fn a_trace_is_echoed() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    let trace = json!({"traceparent": "00-aa-bb-01"});
    wire.send(&json!({"id": 9, "method": "daemon/status", "trace": trace})).await;
    assert_eq!(wire.reply().await["trace"], trace);
    wire.send(&json!({"id": 10, "method": "nope", "trace": trace})).await;
    assert_eq!(wire.reply().await["trace"], trace);
}

#[tokio::test(start_paused = true)]
async fn bad_frames_are_answered_and_a_hundred_in_a_minute_end_the_connection() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    let bad: [&[u8]; 5] = [
        b"no json",
        b"[]",
        br#"{"id":1,"method":"daemon/status","id":2}"#,
        br#"{"id":1,"method":"daemon/status","extra":1}"#,
        b"\xff\xfe",
    ];
    for _ in 0..19 {
        for bytes in bad {
            wire.send_bytes(bytes).await;
            let reply = wire.reply().await;
            assert_eq!(reply["id"], Value::Null, "{reply}");
            assert_eq!(reply["error"]["code"], "invalid_arguments");
        }
    }
    let error = wire.error("no/such", json!({})).await;
    assert_eq!(
        (&error["code"], &error["details"]["field"]),
        (&json!("invalid_arguments"), &json!("method"))
    );
    wire.result("daemon/status", json!({})).await;
    for _ in 96..100 {
        wire.send_bytes(b"no json").await;
        wire.reply().await;
    }
    assert!(wire.frame().await.is_none());
}

#[tokio::test]
async fn before_the_restore_ends_status_answers_and_the_rest_waits_and_can_be_cancelled() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    let waiting = wire.ask("operator/attach", json!({"reason": "look"})).await;
    let status = wire.result("daemon/status", json!({})).await;
    assert_eq!(status["restore"]["done"], false);
    // Its id is taken, and a second one under it is refused as no request.
    wire.send(&json!({"id": waiting, "method": "daemon/status"})).await;
    let twice = wire.reply().await;
    assert_eq!((&twice["id"], &twice["error"]["details"]["field"]), (&Value::Null, &json!("id")));
    wire.send(&json!({"method": "$/cancel", "params": {"for": 12345}})).await;
    wire.send(&json!({"method": "$/cancel", "params": {"for": waiting}})).await;
    let reply = wire.reply().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(waiting), &json!("cancelled")));
    // The id is free again, and so is the binding that the cancelled call had claimed.
    wire.send(&json!({"id": waiting, "method": "operator/attach"})).await;
    wire.send(&json!({"method": "$/cancel", "params": {"for": waiting}})).await;
    assert_eq!(wire.reply().await["error"]["code"], "cancelled");
}

#[tokio::test]
async fn of_many_that_bind_at_once_one_goes_on_and_the_others_are_refused() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    let first = wire.next_id;
    for _ in 0..256 {
        wire.ask("session/open", json!({})).await;
    }
    // All but one found the binding claimed.
    for _ in 0..255 {
        assert_eq!(wire.reply().await["error"]["code"], "permission_denied");
    }
    wire.send(&json!({"method": "$/cancel", "params": {"for": first}})).await;
    assert_eq!(wire.reply().await["error"]["code"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_closed_after_ten_seconds_and_nobody_else() {
    let daemon = restoring();
    let mut other = Wire::greeted(&daemon.daemon).await;
    let mut wire = Wire::connect(&daemon.daemon, 4096);
    wire.call("hello", hello()).await;
    let begun = tokio::time::Instant::now();
    let closing = wire.client.closing.clone();
    let flood = async {
        loop {
            let bytes = br#"{"id":1,"method":"daemon/status","params":{"x":1}}"#;
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            if wire.io.write_all(&length).await.is_err() || wire.io.write_all(bytes).await.is_err()
            {
                break;
            }
        }
    };
    tokio::select! {
        () = flood => {}
        () = closing.cancelled() => {}
    }
    assert!(wire.client.closing.is_cancelled());
    assert!((10..12).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    wire.serving.await.unwrap();
    other.result("daemon/status", json!({})).await;
}

#[tokio::test]
async fn a_long_frame_is_read_like_a_short_one() {
    let daemon = restoring().daemon;
    let mut wire = Wire::greeted(&daemon).await;
    let padded = |text: &str| format!("{text}{}", " ".repeat(200 * 1024));
    let status = padded(r#"{"id": 7, "method": "daemon/status", "params": {}}"#);
    wire.send_bytes(status.as_bytes()).await;
    let reply = wire.reply().await;
    assert!(reply["id"] == 7 && reply.get("result").is_some(), "{reply}");
    wire.send_bytes(padded(r#"{"id": 8"#).as_bytes()).await;
    let reply = wire.reply().await;
    assert!(reply["id"].is_null() && reply["error"]["code"] == "invalid_arguments", "{reply}");
}

/// Symptom: 32 clients with a half frame of 8 MiB each (or a wait padded to it) took the daemon's
/// whole room for requests, and no other client could even say hello.
#[tokio::test(start_paused = true)]
async fn clients_that_fill_the_room_for_requests_stall_no_other() {
    let daemon = restoring().daemon;
    let budgets = Arc::new(Budgets::new(1024));
    let mut greedy = Vec::new();
    for _ in 0..32 {
        let mut wire = Wire::connect_within(&daemon, 64 * 1024, budgets.clone());
        wire.result("hello", hello()).await;
        let frame = 8 * 1024 * 1024_u32;
        wire.io.write_all(&frame.to_be_bytes()).await.unwrap();
        // All but the last byte, as far as it is read at all.
        let body = vec![b' '; frame as usize - 1];
        let sending = tokio::time::timeout(Duration::from_millis(500), wire.io.write_all(&body));
        drop(sending.await);
        greedy.push(wire);
    }
    let mut other = Wire::connect_within(&daemon, 64 * 1024, budgets);
    let answer = tokio::time::timeout(Duration::from_secs(5), other.result("hello", hello())).await;
    assert_eq!(answer.expect("an answer beside the others")["version"], 1);
}

#[tokio::test(start_paused = true)]
async fn last_words_that_nobody_reads_do_not_keep_a_connection() {
    let daemon = restoring();
    let mut wire = Wire::connect(&daemon.daemon, 256);
    wire.send(&json!({"id": 1, "method": "hello", "params": hello()})).await;
    // The reply does not fit the stream, and nobody takes it.
    drop(wire.io.write_all(&[0; 4]).await);
    tokio::time::timeout(PATIENCE, wire.serving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn the_end_of_the_daemon_answers_what_waits_and_closes() {
    let daemon = restoring();
    let mut wire = Wire::greeted(&daemon.daemon).await;
    wire.ask("operator/attach", json!({})).await;
    wire.result_of_status_while_waiting().await;
    daemon.daemon.ending.cancel();
    assert_eq!(wire.reply().await["error"]["code"], "supervisor_shutting_down");
    assert!(wire.frame().await.is_none());
}

impl Wire {
    async fn result_of_status_while_waiting(&mut self) {
        let id = self.ask("daemon/status", json!({})).await;
        assert_eq!(self.reply().await["id"], id);
    }
}

#[test]
fn the_refusal_of_a_connection_is_one_frame_without_an_id() {
    for (refused, code) in [
        (super::Refused::OtherUser, "permission_denied"),
        (super::Refused::Unknown, "permission_denied"),
        (super::Refused::Full { max: 3 }, "too_many_requests"),
    ] {
        let frame = refused.frame();
        let value: Value = serde_json::from_slice(&frame[4..]).unwrap();
        assert_eq!((&value["id"], &value["error"]["code"]), (&Value::Null, &json!(code)));
    }
}
