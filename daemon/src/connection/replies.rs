//! Replies as frames. Serde's writer looks at each byte of a string on its own; the long texts of
//! a reply are taken out of it and put in their places in whole runs that need no escape.

use std::io::{self, Write};

use bytes::BytesMut;
use procd_protocol::envelope::{ErrorReply, ResultReply, Trace};
use procd_protocol::{ErrorBody, ErrorCode, RequestId, codec};
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

use super::Ticket;
use crate::request::Reply;

/// Bytes looked at together for one that needs an escape.
const BLOCK_BYTES: usize = 64;
/// Bytes whose escapes are counted together: as many as one byte counts.
const COUNT_BYTES: usize = 192;
/// Room for what a reply has beside its long texts, bytes.
const REST_BYTES: usize = 1024;

/// A reply as a frame. Its long texts are gone from it afterwards.
pub(super) fn reply_frame(ticket: &Ticket, reply: &mut Reply) -> BytesMut {
    let texts: Vec<_> = reply.take_long_texts().into_iter().map(Long::new).collect();
    let long: usize = texts.iter().map(|long| long.text.len() + long.escapes).sum();
    let mut frame = BytesMut::with_capacity(long + (texts.len() + 1) * REST_BYTES);
    let envelope = ResultReply { id: ticket.id, result: reply, trace: ticket.trace.as_ref() };
    let formatter = Splicing { texts: texts.into_iter() };
    let written = codec::encode_with(&mut frame, |to| {
        envelope.serialize(&mut Serializer::with_formatter(to, formatter))
    });
    if let Err(error) = written {
        tracing::error!(%error, "bug: a reply does not fit a frame");
        let body = ErrorBody::new(ErrorCode::Internal, "internal error");
        return error_frame(Some(ticket.id), &body, ticket.trace.as_ref());
    }
    frame
}

/// An error as a frame.
pub(super) fn error_frame(
    id: Option<RequestId>,
    error: &ErrorBody,
    trace: Option<&Trace>,
) -> BytesMut {
    let mut frame = BytesMut::new();
    let envelope = ErrorReply { id, error, trace };
    if codec::encode_with(&mut frame, |to| serde_json::to_writer(to, &envelope)).is_err() {
        tracing::error!("bug: an error does not fit a frame");
    }
    frame
}

/// A text that was taken out of a reply.
#[derive(Debug, Clone)]
struct Long {
    text: String,
    /// Bytes of it that need an escape.
    escapes: usize,
}

impl Long {
    fn new(text: String) -> Self {
        let blocks = text.as_bytes().chunks(COUNT_BYTES);
        let escapes = blocks.map(|block| usize::from(escapes(block))).sum();
        Self { text, escapes }
    }
}

/// Puts the next long text where a NUL stands: no other text of such a reply has one.
struct Splicing {
    texts: std::vec::IntoIter<Long>,
}

impl Formatter for Splicing {
    fn write_char_escape<W>(&mut self, to: &mut W, escape: CharEscape) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let is_place = matches!(escape, CharEscape::AsciiControl(0));
        match is_place.then(|| self.texts.next()).flatten() {
            Some(Long { text, escapes: 0 }) => to.write_all(text.as_bytes()),
            Some(long) => write_escaped(to, long.text.as_bytes()),
            None => CompactFormatter.write_char_escape(to, escape),
        }
    }
}

/// The inside of a JSON string.
fn write_escaped<W: ?Sized + Write>(to: &mut W, text: &[u8]) -> io::Result<()> {
    let mut rest = text;
    loop {
        let (clean, dirty) = rest.split_at(clean_len(rest));
        to.write_all(clean)?;
        let Some((&byte, after)) = dirty.split_first() else { return Ok(()) };
        rest = after;
        match byte {
            b'"' => to.write_all(b"\\\"")?,
            b'\\' => to.write_all(b"\\\\")?,
            b'\n' => to.write_all(b"\\n")?,
            b'\r' => to.write_all(b"\\r")?,
            b'\t' => to.write_all(b"\\t")?,
            _ => write!(to, "\\u{byte:04x}")?,
        }
    }
}

/// Without a branch: a block of them compiles to vectors.
const fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// How many bytes of a block of at most 255 need an escape.
fn escapes(block: &[u8]) -> u8 {
    block.iter().fold(0, |count: u8, &byte| count.wrapping_add(u8::from(needs_escape(byte))))
}

/// Bytes before the first that needs an escape.
fn clean_len(bytes: &[u8]) -> usize {
    let blocks = bytes.chunks_exact(BLOCK_BYTES).take_while(|block| escapes(block) == 0);
    let clean = blocks.count() * BLOCK_BYTES;
    let rest = bytes.get(clean..).unwrap_or_default();
    clean + rest.iter().position(|&byte| needs_escape(byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = b"\"".to_vec();
        write_escaped(&mut out, text.as_bytes()).unwrap();
        out.push(b'"');
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn a_text_is_escaped_as_serde_does_it(
            parts in prop::collection::vec(("[a-z\"\\\\\n\r\t\u{1}\u{1f}äß€]{0,9}", 0usize..70), 0..8),
        ) {
            let text: String =
                parts.iter().map(|(part, len)| format!("{part}{}", "x".repeat(*len))).collect();
            prop_assert_eq!(escaped(&text), serde_json::to_string(&text).unwrap());
            let long = Long::new(text.clone());
            prop_assert!(long.text.len() + long.escapes <= escaped(&text).len());
            prop_assert_eq!(long.escapes == 0, escaped(&text).len() == text.len() + 2);
        }
    }

    #[test]
    fn each_long_text_comes_to_its_place() {
        let texts = ["one\n", "two\""].map(|text| Long::new(text.to_owned())).to_vec();
        let mut out = Vec::new();
        let formatter = Splicing { texts: texts.into_iter() };
        let value = serde_json::json!(["\0", "a\tb", "\0", "\0"]);
        value.serialize(&mut Serializer::with_formatter(&mut out, formatter)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), r#"["one\n","a\tb","two\"","\u0000"]"#);
    }
}
