//! The thinnest client there can be: one blocking socket, so that what is measured is the daemon.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use procd_protocol::codec;
use procd_protocol::limits::FRAME_HEADER_BYTES;
use serde_json::{Value, json};

use crate::clock::monotonic_ns;
use crate::trouble::{Tried, Trouble};

/// Room made for each read, bytes.
const READ_BYTES: usize = 256 * 1024;
/// How long any reply may take: beyond it the measure is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    buffer: BytesMut,
    chunk: Vec<u8>,
    last_id: u64,
}

impl Wire {
    /// Connects and says hello.
    pub(crate) fn connect(socket: &Path) -> Result<Self, Trouble> {
        let stream = UnixStream::connect(socket).tried("connect to the daemon")?;
        stream.set_read_timeout(Some(PATIENCE)).tried("set a time limit")?;
        let mut wire =
            Self { stream, buffer: BytesMut::new(), chunk: vec![0; READ_BYTES], last_id: 0 };
        let client = json!({ "name": "procd-bench", "version": env!("CARGO_PKG_VERSION") });
        wire.call("hello", &json!({ "client": client, "versions": [1] }))?;
        Ok(wire)
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Result<(), Trouble> {
        self.last_id += 1;
        let request = json!({ "id": self.last_id, "method": method, "params": params });
        let mut frame = BytesMut::new();
        codec::encode(request.to_string().as_bytes(), &mut frame)
            .map_err(|error| Trouble::odd(error.to_string()))?;
        self.stream.write_all(&frame).tried("write to the daemon")
    }

    /// The next frame, whatever it is. What is missing of a long one is read into its place.
    pub(crate) fn frame(&mut self) -> Result<Bytes, Trouble> {
        loop {
            let decoded = codec::decode(&mut self.buffer);
            if let Some(frame) = decoded.map_err(|error| Trouble::odd(error.to_string()))? {
                return Ok(frame);
            }
            if self.buffer.len() > FRAME_HEADER_BYTES {
                return self.rest_of_frame();
            }
            let count = self.stream.read(&mut self.chunk).tried("read from the daemon")?;
            if count == 0 {
                return Err(Trouble::odd("the daemon closed the connection"));
            }
            self.buffer.extend_from_slice(self.chunk.get(..count).unwrap_or_default());
        }
    }

    fn rest_of_frame(&mut self) -> Result<Bytes, Trouble> {
        let begun = self.buffer.split();
        let (header, body) = begun.split_at(FRAME_HEADER_BYTES);
        let header = header.try_into().map_err(|_short| Trouble::odd("half a header"))?;
        let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
        let mut frame = Vec::with_capacity(length);
        frame.extend_from_slice(body);
        let missing = u64::try_from(length - body.len()).unwrap_or(u64::MAX);
        let read = (&self.stream).take(missing).read_to_end(&mut frame);
        if read.tried("read from the daemon")? < length - body.len() {
            return Err(Trouble::odd("the daemon closed the connection"));
        }
        Ok(frame.into())
    }

    /// The reply to the last request.
    pub(crate) fn reply(&mut self, method: &str) -> Result<Value, Trouble> {
        self.timed_reply(method).map(|(_, result)| result)
    }

    /// The same, with the monotonic nanoseconds at which it was read, before it is parsed.
    pub(crate) fn timed_reply(&mut self, method: &str) -> Result<(i64, Value), Trouble> {
        let frame = self.frame()?;
        let at = monotonic_ns();
        let mut reply: Value =
            serde_json::from_slice(&frame).map_err(|error| Trouble::odd(error.to_string()))?;
        match reply.get_mut("error").map(Value::take) {
            Some(error) => {
                Err(Trouble::Refused { method: method.to_owned(), error: error.to_string() })
            }
            None => Ok((at, reply.get_mut("result").map(Value::take).unwrap_or_default())),
        }
    }

    /// A request and its reply.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Trouble> {
        self.send(method, params)?;
        self.reply(method)
    }

    /// Starts a command in the background: its handle.
    pub(crate) fn background(&mut self, argv: &[&str], extra: &Value) -> Result<String, Trouble> {
        let mut params = json!({ "argv": argv, "background": true, "stdin": "null" });
        if let (Some(params), Some(extra)) = (params.as_object_mut(), extra.as_object()) {
            params.extend(extra.clone());
        }
        let reply = self.call("process/start", &params)?;
        text(&reply, "process_id")
    }

    /// Waits for the end of a process.
    pub(crate) fn wait(&mut self, id: &str) -> Result<Value, Trouble> {
        let params = json!({ "process_id": id, "cursor": -1, "limit_bytes": 1, "wait": "exit" });
        let mut reply = self.call("process/output", &params)?;
        Ok(reply.pointer_mut("/results/0").map(Value::take).unwrap_or_default())
    }

    /// Ends a process at once.
    pub(crate) fn kill(&mut self, id: &str) -> Result<(), Trouble> {
        self.call("process/stop", &json!({ "process_id": id, "mode": "kill" })).map(drop)
    }
}

/// A text of a reply.
pub(crate) fn text(reply: &Value, field: &str) -> Result<String, Trouble> {
    let value = reply.get(field).and_then(Value::as_str);
    value.map(str::to_owned).ok_or_else(|| Trouble::odd(format!("no {field} in {reply}")))
}

/// A number of a reply.
pub(crate) fn number(reply: &Value, field: &str) -> Result<u64, Trouble> {
    let value = reply.get(field).and_then(Value::as_u64);
    value.ok_or_else(|| Trouble::odd(format!("no {field} in {reply}")))
}
