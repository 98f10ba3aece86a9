//! The recorded transcripts of the protocol, with this client as the one who calls: the daemon says
//! what it said then, the client sends what was sent and has to understand what comes.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use procd_protocol::Word;
use procd_protocol::v1::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::DuplexStream;

use crate::ClientError;
use crate::connection::{Connection, OnDrop, Sent};
use crate::scripted::{Daemon, within};

/// The recording of the first release.
const GOLDEN: &str = "../../protocol/transcripts/v1-0.1.0";
/// Frames that no client sends: their connections are left out.
const NO_CALLS: [&str; 2] = ["send_text", "send_length"];
/// Stands for a start that only plans: its result is another one.
const PLAN: &str = "process/start, dry run";
/// Room between the two ends; a chunk of an export fits.
const PIPE_BYTES: usize = 1024 * 1024;

/// For every method: its parameters and its result through the client's own types.
macro_rules! typed {
    ($($params:ty,)+) => {
        /// Sends a request, by its type wherever the recorded one was not a wrong one on purpose.
        async fn send(connection: &Connection, method: &str, params: &Value) -> Sent {
            $(if method == <$params as Params>::METHOD.as_str()
                && let Ok(typed) = serde_json::from_value::<$params>(params.clone())
            {
                return connection.send(method, &typed, true).await.unwrap();
            })+
            connection.send(method, params, true).await.unwrap()
        }

        /// The result, read and written again; fields that these types do not know are gone.
        fn read(method: &str, result: &RawValue) -> Value {
            if method == PLAN {
                let plan: PlanResult = serde_json::from_str(result.get()).unwrap();
                return serde_json::to_value(plan).unwrap();
            }
            $(if method == <$params as Params>::METHOD.as_str() {
                let result: <$params as Params>::Result =
                    serde_json::from_str(result.get()).unwrap();
                return serde_json::to_value(result).unwrap();
            })+
            panic!("the replay does not know the result of {method}")
        }
    };
}

typed! {
    HelloParams, SessionOpenParams, SessionAttachParams, SessionCloseParams, StopAllParams,
    SessionListParams, StartParams, OutputParams, SearchParams, ExportParams, InputParams,
    SignalParams, StopParams, InspectParams, ListParams, RemoveParams, PinParams, SubscribeParams,
    EventsAckParams, UnsubscribeParams, NotificationsAckParams, LeaseAcquireParams,
    LeaseReleaseParams, OperatorAttachParams, StatusParams, MetricsParams, ReloadParams,
    ShutdownParams,
}

/// One request on its way.
struct Call {
    method: String,
    sent: Sent,
}

/// Both ends of one connection.
struct Ends {
    connection: Connection,
    daemon: Daemon<DuplexStream>,
    calls: HashMap<i64, Call>,
}

impl Ends {
    fn new() -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (connection, daemon) = (Connection::over(ours, None), Daemon::over(theirs));
        Self { connection, daemon, calls: HashMap::new() }
    }

    /// The parameters with the id that this run gave to the request they name.
    fn renumbered(&self, params: &Value) -> Value {
        let mut params = params.clone();
        if let Some(request) = params.get("for").and_then(Value::as_i64) {
            params["for"] = json!(self.calls[&request].sent.id);
        }
        params
    }

    async fn send(&mut self, frame: &Value) {
        let method = frame["method"].as_str().unwrap();
        let params = self.renumbered(&frame["params"]);
        let Some(id) = frame["id"].as_i64() else {
            let notice = json!({ "method": method, "params": params });
            self.connection.tell(&notice);
            assert_eq!(self.daemon.receive().await, Some(notice));
            return;
        };
        let sent = send(&self.connection, method, &params).await;
        let is_plan = params["dry_run"] == true;
        assert_eq!(self.daemon.expect(method).await, (json!(sent.id), params));
        let method = if is_plan { PLAN } else { method }.to_owned();
        self.calls.insert(id, Call { method, sent });
    }

    async fn come(&mut self, frame: &Value) {
        let Some(id) = frame["id"].as_i64() else {
            let params = self.renumbered(&frame["params"]);
            self.daemon.send(&json!({ "method": frame["method"], "params": params })).await;
            let request = frame["params"]["for"].as_i64().unwrap();
            let call = self.calls.get_mut(&request).unwrap();
            let notice = within(call.sent.notices.as_mut().unwrap().recv()).await.unwrap();
            assert_eq!(
                (notice.request, json!(notice.method)),
                (call.sent.id, frame["method"].clone())
            );
            assert_eq!(notice.params::<Value>().unwrap(), params);
            return;
        };
        let call = self.calls.get_mut(&id).unwrap();
        let mut renumbered = frame.clone();
        renumbered["id"] = json!(call.sent.id);
        self.daemon.send(&renumbered).await;
        match within(&mut call.sent.answer).await.unwrap() {
            Ok(result) => {
                assert_eq!(serde_json::from_str::<Value>(result.get()).unwrap(), frame["result"]);
                assert_eq!(read(&call.method, &result), frame["result"], "{}", call.method);
            }
            Err(error) => {
                let body = error.refusal().unwrap_or_else(|| panic!("{error}"));
                assert!(error.code().is_some(), "{body:?}");
                assert_eq!(serde_json::to_value(body).unwrap(), frame["error"]);
            }
        }
    }

    /// The daemon hangs up.
    async fn close(self) {
        drop(self.daemon);
        within(self.connection.closed()).await;
        let late = self.connection.call_raw("daemon/status", &json!({}), OnDrop::Leave).await;
        assert!(late.as_ref().is_err_and(ClientError::is_disconnected), "{late:?}");
    }
}

/// Plays all lines of one transcript.
async fn replay(lines: &[Value]) {
    let on = |line: &Value| line["on"].as_str().unwrap_or("a").to_owned();
    let is_wild = |line: &&Value| NO_CALLS.iter().any(|word| line.get(word).is_some());
    let left_out: BTreeSet<_> = lines.iter().filter(is_wild).map(on).collect();
    let mut all: HashMap<String, Ends> = HashMap::new();
    for line in lines {
        let on = on(line);
        if line.get("daemon").is_some() {
            for (_, ends) in all.drain() {
                ends.close().await;
            }
        } else if left_out.contains(&on) {
            // Nothing of it was said by a client.
        } else if let Some(frame) = line.get("sent") {
            all.entry(on).or_insert_with(Ends::new).send(frame).await;
        } else if let Some(frame) = line.get("came") {
            all.get_mut(&on).unwrap().come(frame).await;
        } else if line["closed"] == true {
            all.remove(&on).unwrap().close().await;
        }
    }
    for ends in all.into_values() {
        ends.close().await;
    }
}

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_recorded_transcript_is_understood() {
    let files = recorded();
    assert!(files.len() >= 16, "{files:?}");
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        println!("{}", path.display());
        replay(&lines).await;
    }
}
