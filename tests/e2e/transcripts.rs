//! The transcripts of the protocol hold against the daemon, cover it, and are kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use procd_protocol::envelope::{self, Received};
use procd_protocol::v1::Method;
use procd_protocol::{ErrorCode, Word};
use procd_tests::transcript::{Play, Transcript};
use procd_tests::{Setup, Tier};
use serde_json::Value;

/// The recording of the first release. It is never written again.
const GOLDEN: &str = "v1-0.1.0";

/// Set to record [`GOLDEN`] anew, before its release.
const RECORD: &str = "PROCD_TRANSCRIPT_RECORD";

/// Codes that no transcript can bring about over the socket alone, and why.
const ELSEWHERE: [(&str, &str); 4] = [
    ("process_setup_failed", "a full or failing disk"),
    ("pty_unavailable", "a machine without terminals"),
    ("teardown_failed", "a process that SIGKILL does not end"),
    ("internal", "a bug"),
];

/// Plays a transcript to a daemon of its own: gives it back as it went, and the folder it was in.
fn play(transcript: &Transcript) -> (Vec<Value>, PathBuf) {
    let setup = Setup::new(Tier::Shim).limit(transcript.setup("limits"));
    let mut daemon = setup.start();
    let folder = daemon.path().to_owned();
    (Play::new(&mut daemon).run(transcript), folder)
}

fn played(names: &[&str]) {
    for golden in ["", GOLDEN] {
        let all = Transcript::all(golden);
        for name in names {
            let transcript = all.iter().find(|one| one.path.ends_with(format!("{name}.jsonl")));
            play(transcript.expect("a transcript of this name"));
        }
    }
}

/// A test a transcript: each wants a daemon of its own.
macro_rules! transcripts {
    ($($name:ident,)+) => {
        $(#[test]
        fn $name() {
            played(&[stringify!($name)]);
        })+

        #[test]
        fn no_transcript_is_left_out() {
            let names = BTreeSet::from([$(stringify!($name).to_owned(),)+]);
            for golden in ["", GOLDEN] {
                let files: BTreeSet<_> = Transcript::all(golden).iter().map(name).collect();
                assert_eq!(files, names, "{golden}");
            }
        }
    };
}

transcripts! {
    handshake,
    process,
    ends,
    waits,
    input,
    gaps,
    events,
    leases,
    refusals,
    quotas,
    crowded,
    operator,
    restart,
    enforced,
    closed,
    damaged,
}

fn name(transcript: &Transcript) -> String {
    transcript.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn every_method_and_every_code_is_in_some_transcript() {
    let mut seen = BTreeSet::new();
    for line in Transcript::all("").iter().flat_map(|transcript| &transcript.lines) {
        seen.extend(line["send"]["method"].as_str().map(str::to_owned));
        let expect = &line["expect"];
        let entries = expect["result"]["results"].as_array().into_iter().flatten();
        for answer in entries.chain([expect]) {
            seen.extend(answer["error"]["code"].as_str().map(str::to_owned));
        }
    }
    let elsewhere = ELSEWHERE.map(|(code, _)| code);
    let methods = Method::ALL.iter().map(|method| method.as_str());
    let codes = ErrorCode::ALL.iter().map(|code| code.as_str());
    let missing: Vec<_> = methods
        .chain(codes.filter(|code| !elsewhere.contains(code)))
        .filter(|name| !seen.contains(*name))
        .collect();
    assert!(missing.is_empty(), "in no transcript: {missing:?}");
    let both: Vec<_> = elsewhere.iter().filter(|code| seen.contains(**code)).collect();
    assert!(both.is_empty(), "in a transcript after all: {both:?}");
}

/// Records the golden transcripts: run by hand, once a release.
#[test]
fn the_golden_transcripts_hold_what_was_sent_and_what_came() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/transcripts").join(GOLDEN);
    if std::env::var_os(RECORD).is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        for transcript in Transcript::all("") {
            let (played, at) = play(&transcript);
            let lines: String = played.iter().map(|line| portable(line, &at) + "\n").collect();
            let path = folder.join(format!("{}.jsonl", name(&transcript)));
            std::fs::write(path, lines).expect("write it");
        }
    }
    for transcript in Transcript::all(GOLDEN) {
        for line in &transcript.lines {
            assert_eq!(line.get("send").is_some(), line.get("sent").is_some(), "{line}");
            assert_eq!(line.get("expect").is_some(), line.get("came").is_some(), "{line}");
        }
    }
}

/// Without the folder it was recorded in.
fn portable(line: &Value, folder: &Path) -> String {
    line.to_string().replace(&*folder.to_string_lossy(), "/srv/work")
}

/// C132: what an earlier release said is understood.
#[test]
fn what_the_golden_transcripts_hold_is_read_by_the_types_of_today() {
    for line in Transcript::all(GOLDEN).iter().flat_map(|transcript| &transcript.lines) {
        let Some(came) = line.get("came") else { continue };
        match envelope::parse_received(came.to_string().as_bytes()).expect("a frame") {
            Received::Reply { outcome: Err(error), .. } => {
                assert_eq!(error.code.as_str(), came["error"]["code"], "{came}");
                assert!(error.code.known().is_some(), "{came}");
                let details = serde_json::to_value(&error.details).expect("json");
                assert_eq!(details, came["error"]["details"], "{came}");
            }
            Received::Reply { outcome: Ok(result), .. } => {
                assert_eq!(came["result"], serde_json::from_str::<Value>(result.get()).unwrap());
            }
            Received::Notice { method, .. } => assert_eq!(came["method"], method.as_str()),
        }
    }
}
