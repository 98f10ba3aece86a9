//! What the fuzzer begins with: frames and files as they really are.

use std::path::Path;

use procd_store::budget::Budget;
use procd_store::spool::{Source, SpoolOptions, SpoolWriter};
use uuid::Uuid;

use crate::targets::join;

/// Golden frames of the protocol.
const FRAMES: &[&str] = &[
    include_str!("../../../protocol/tests/golden/process_start.jsonl"),
    include_str!("../../../protocol/tests/golden/process_output.jsonl"),
    include_str!("../../../protocol/tests/golden/process_input.jsonl"),
    include_str!("../../../protocol/tests/golden/process_signal.jsonl"),
    include_str!("../../../protocol/tests/golden/process_search.jsonl"),
    include_str!("../../../protocol/tests/golden/process_list.jsonl"),
    include_str!("../../../protocol/tests/golden/process_export.jsonl"),
    include_str!("../../../protocol/tests/golden/session_open.jsonl"),
    include_str!("../../../protocol/tests/golden/session_attach.jsonl"),
    include_str!("../../../protocol/tests/golden/session_stop_all.jsonl"),
    include_str!("../../../protocol/tests/golden/events_subscribe.jsonl"),
    include_str!("../../../protocol/tests/golden/operator_attach.jsonl"),
];
/// A manifest as a daemon has written it.
const MANIFEST: &str = include_str!("../../procd-store/tests/golden/manifest-v1.json");

/// Requests and replies, one each.
pub(crate) fn lines() -> Vec<Vec<u8>> {
    FRAMES.iter().flat_map(|text| text.lines()).map(|line| line.as_bytes().to_vec()).collect()
}

/// The same with their lengths before them, and some together.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let mut buffer = bytes::BytesMut::new();
    let mut frames = Vec::new();
    for line in lines() {
        let start = buffer.len();
        if procd_protocol::codec::encode(&line, &mut buffer).is_ok() {
            frames.extend(buffer.get(start..).map(<[u8]>::to_vec));
        }
    }
    frames.push(buffer.get(..4096).unwrap_or(&buffer).to_vec());
    frames
}

/// The manifest, and the same record as a line of the commit log.
pub(crate) fn manifests() -> Vec<Vec<u8>> {
    vec![MANIFEST.as_bytes().to_vec()]
}

/// Lines of the commit log.
pub(crate) fn log_lines() -> Vec<Vec<u8>> {
    let manifest: serde_json::Value = serde_json::from_str(MANIFEST).unwrap_or_default();
    let (record, events) = (&manifest["record"], &manifest["events"]);
    let session = &record["session_id"];
    let process = serde_json::json!({"session": session, "seq": 1, "kind": "process", "id": record["process_id"], "payload": record});
    let event = serde_json::json!({"session": session, "seq": 2, "kind": "event", "id": events[0]["event"]["event_id"], "payload": events[0]["event"]});
    let removal = serde_json::json!({"session": session, "seq": 3, "kind": "removal", "id": record["process_id"], "payload": {"process_id": record["process_id"]}});
    let line = |records: serde_json::Value| {
        let records = serde_json::to_string(&records).unwrap_or_default();
        let mut line = format!("{{\"v\":1,\"records\":{records}").into_bytes();
        procd_store::fuzzing::close_again(&mut line);
        line.pop();
        line
    };
    vec![
        line(serde_json::json!([])),
        line(serde_json::json!([process, event])),
        line(serde_json::json!([removal])),
    ]
}

/// Spool folders as a writer leaves them: small, turned over, sealed.
pub(crate) fn spools(folder: &Path) -> Vec<Vec<u8>> {
    [(3, false), (40, false), (40, true)]
        .into_iter()
        .map(|(chunks, is_sealed)| {
            let path = folder.join(Uuid::new_v4().to_string());
            let options =
                SpoolOptions { ceiling: 4096, boot_id: Uuid::nil(), budget: Budget::new(1 << 20) };
            let mut writer = SpoolWriter::create(path.clone(), options);
            for number in 0..chunks {
                let source = if number % 3 == 0 { Source::Stderr } else { Source::Stdout };
                let chunk = format!("line {number} of some output\n").repeat(5);
                let _bounds =
                    writer.append(chunk.as_bytes(), source, i64::from(number) * 1_000_000_000);
            }
            let _sealed = is_sealed.then(|| writer.seal());
            let input = join(&path);
            drop(std::fs::remove_dir_all(path));
            input
        })
        .collect()
}

/// Outputs with everything that terminals act on.
pub(crate) fn outputs() -> Vec<Vec<u8>> {
    [
        &b"plain text\nof two lines\n"[..],
        b"\x1b[1;32mgreen\x1b[0m \x1b]0;title\x07 \x1bP1$r\x1b\\ \x9b31mC1\x1b(B",
        "\u{e4}\u{f6}\u{202e}\u{2066}\u{feff}\u{e0041} \u{1f600}\u{200d}".as_bytes(),
        b"\xff\xfe\xc3\x28\xe2\x82\xf0\x9f\x98 cut\xed\xa0\x80",
        b"50%\r100%\r\n\x08\x08\x7f\x00\x07 \x1b[2K\x1b[1A\x1b[38:2::1:2:3m",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}
