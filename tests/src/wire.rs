//! The protocol spoken by hand, so that a test can also say what no good client would.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};

use crate::wait::{Deadline, STEP};

/// A connection. Replies that come before they are asked for are kept.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    next_id: u64,
    early: Vec<Value>,
    /// The last frame that was read, as it came.
    pub last_frame: String,
    /// How long one reply may take.
    pub patience: Duration,
    /// A frame cut off by the end of the connection counts as that end: where the daemon is killed, or closes on those
    /// who do not read.
    pub may_be_cut: bool,
}

impl Wire {
    /// Connects, and says nothing yet.
    /// # Errors
    /// What `connect` says.
    pub fn bare(socket: &Path) -> std::io::Result<Self> {
        UnixStream::connect(socket).map(Self::over)
    }

    /// Over a connection that somebody made.
    #[must_use]
    pub const fn over(stream: UnixStream) -> Self {
        Self {
            stream,
            next_id: 1,
            early: Vec::new(),
            last_frame: String::new(),
            patience: STEP,
            may_be_cut: false,
        }
    }

    /// Says hello. A refusal of the whole connection, which answers no request, counts as the answer.
    /// # Errors
    /// The error, or `Value::Null` when the connection was closed without one.
    pub fn greeting(&mut self) -> Result<Value, Value> {
        let hello = self.hello();
        let refusal = |value: &Value| value["id"].is_null() && value.get("error").is_some();
        match (&hello, self.early.iter().position(refusal)) {
            (Err(Value::Null), Some(at)) => Err(self.early.remove(at)["error"].take()),
            (Ok(_) | Err(_), _) => hello,
        }
    }

    /// Says hello.
    /// # Errors
    /// The error of the reply, or `Value::Null` when the connection was closed instead.
    pub fn hello(&mut self) -> Result<Value, Value> {
        let client = json!({"name": "procd-tests", "version": "1"});
        self.call(
            "hello",
            json!({"client": client, "versions": [1], "features": ["notifications"]}),
        )
    }

    /// Sends a request; its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.object(&json!({"id": id, "method": method, "params": params}));
        id
    }

    /// Sends a notice.
    pub fn notice(&mut self, method: &str, params: Value) {
        self.object(&json!({"method": method, "params": params}));
    }

    /// Sends any JSON as a frame.
    pub fn object(&mut self, value: &Value) {
        self.frame(value.to_string().as_bytes());
    }

    /// Sends any bytes as a frame.
    /// # Panics
    /// When the length does not fit a frame's header.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn frame(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a length of 32 bits");
        self.raw(&[&length.to_be_bytes()[..], payload].concat());
    }

    /// Sends any bytes. A peer that has closed is found out by the next read.
    /// # Panics
    /// When the daemon takes nothing for [`STEP`].
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.set_write_timeout(Some(STEP)).expect("set a time limit");
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) => assert!(is_closed(&error), "write to the daemon: {error}"),
        }
    }

    /// The next object on the wire; `None` when the daemon has closed the connection.
    /// # Panics
    /// When nothing comes in time or what comes is no frame.
    #[expect(clippy::expect_used, reason = "this is how a test fails")]
    pub fn next_object(&mut self) -> Option<Value> {
        let deadline = Deadline::after(self.patience);
        let header = self.read(4, deadline)?;
        let length = header.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        assert!((1..=8 << 20).contains(&length), "a frame of {length} bytes from the daemon");
        let payload = self.read(length, deadline);
        assert!(payload.is_some() || self.may_be_cut, "the rest of a frame");
        let payload = payload?;
        self.last_frame = String::from_utf8(payload).expect("UTF-8 from the daemon");
        Some(serde_json::from_str(&self.last_frame).expect("JSON from the daemon"))
    }

    /// The next thing that is no reply to a request.
    pub fn next_notice(&mut self) -> Option<Value> {
        match self.early.iter().position(|value| value.get("id").is_none()) {
            Some(at) => Some(self.early.remove(at)),
            None => loop {
                let value = self.next_object()?;
                if value.get("id").is_none() {
                    break Some(value);
                }
                self.early.push(value);
            },
        }
    }

    /// What came so far that is no reply to a request.
    pub fn take_notices(&mut self) -> Vec<Value> {
        let is_reply = |value: &Value| value.get("id").is_some();
        let (replies, notices) = self.early.drain(..).partition(is_reply);
        self.early = replies;
        notices
    }

    /// The reply to request `id`.
    /// # Errors
    /// The error of the reply, or `Value::Null` when the connection was closed instead.
    /// # Panics
    /// When it does not come in time.
    pub fn reply(&mut self, id: u64) -> Result<Value, Value> {
        let wanted = |value: &Value| value.get("id").and_then(Value::as_u64) == Some(id);
        let early = self.early.iter().position(wanted).map(|at| self.early.remove(at));
        let mut reply = match early {
            Some(reply) => reply,
            None => loop {
                let value = self.next_object().ok_or(Value::Null)?;
                if wanted(&value) {
                    break value;
                }
                self.early.push(value);
            },
        };
        match reply.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(reply.get_mut("result").map(Value::take).unwrap_or_default()),
        }
    }

    /// Sends a request and waits for its reply.
    /// # Errors
    /// The error of the reply, or `Value::Null` when the connection was closed instead.
    /// # Panics
    /// When it does not come in time.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.reply(id)
    }

    /// A call that must succeed.
    /// # Panics
    /// With the error when it does not.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn ok(&mut self, method: &str, params: Value) -> Value {
        match self.call(method, params.clone()) {
            Ok(result) => result,
            Err(error) => panic!("{method} {params} was refused: {error}"),
        }
    }

    /// A call that must be refused with this code; the error.
    /// # Panics
    /// When it is not.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn refused(&mut self, code: &str, method: &str, params: Value) -> Value {
        match self.call(method, params.clone()) {
            Ok(result) => panic!("{method} {params} was taken: {result}"),
            Err(error) => {
                assert_eq!(error["code"], code, "{method} {params}: {error}");
                error
            }
        }
    }

    /// Whether nothing came that was not asked for yet.
    #[must_use]
    pub const fn early_is_empty(&self) -> bool {
        self.early.is_empty()
    }

    /// Whether the daemon closes the connection, after whatever it still says.
    pub fn is_closed(&mut self) -> bool {
        while let Some(value) = self.next_object() {
            self.early.push(value);
        }
        true
    }

    #[expect(clippy::expect_used, clippy::panic, reason = "this is how a test fails")]
    fn read(&mut self, count: usize, deadline: Deadline) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let left =
                deadline.left().unwrap_or_else(|| panic!("no reply within {:?}", self.patience));
            self.stream.set_read_timeout(Some(left)).expect("set a time limit");
            match self.stream.read(rest) {
                Ok(0) => return None,
                Ok(more) => at += more,
                Err(error) if is_closed(&error) => return None,
                Err(error) => {
                    let again = matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                    );
                    assert!(again, "read from the daemon: {error}");
                }
            }
        }
        Some(bytes)
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
}
