//! Fixed work of the pure crates: `procd-guards NAME`, run under callgrind by `cargo xtask guards`. The
//! same work each time, so that its instructions can be compared with those of another day and
//! another machine.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;

use bytes::BytesMut;
use procd_core::life::{Event, Life, OnLeaderExit, Request, Step, step};
use procd_core::{LeaderEnd, Requests};
use procd_protocol::codec;
use procd_protocol::envelope::{Incoming, parse_incoming};
use procd_protocol::v1::Call;
use procd_text::Raw;

/// Lives that are lived through.
const LIVES: u32 = 20_000;
/// Events of each at most.
const EVENTS: u32 = 24;
/// Bytes of output that are rendered.
const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes of a page, and what is looked at beside it.
const PAGE_BYTES: usize = 32 * 1024;
const CONTEXT_BYTES: usize = 4096;
/// How often each of the frames is written and read.
const FRAMES: usize = 2_000;

const REQUESTS: &[&str] = &[
    r#"{"id":1,"method":"hello","params":{"client":{"name":"guard","version":"1"},"versions":[1]}}"#,
    r#"{"id":2,"method":"process/start","params":{"argv":["cargo","test","--workspace"],"cwd":"/src/project","env":{"CI":"1","RUST_LOG":"debug"},"background":true,"timeout_ms":600000,"label":"tests"}}"#,
    r#"{"id":3,"method":"process/output","params":{"process_id":"AAAAAAAAAAAAAAAAAAAAAA","cursor":4096,"wait":"any","limit_bytes":65536}}"#,
    r#"{"id":4,"method":"process/stop","params":{"process_id":"AAAAAAAAAAAAAAAAAAAAAA","mode":"terminate","grace_ms":2000}}"#,
    r#"{"id":5,"method":"process/list","params":{"limit":100}}"#,
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "core" => lives(),
        "text-ascii" => rendering(&lines("a plain line of a build, without any colour")),
        "text-log" => rendering(&lines("\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m straße v1.0\r")),
        "protocol" => frames(),
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// Numbers without any order, the same each time.
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let [_, _, _, _, a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) % below
    }
}

/// Random lives through the table of states.
fn lives() {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for _ in 0..LIVES {
        let rule = match numbers.next(2) {
            0 => OnLeaderExit::KillTree,
            _ => OnLeaderExit::KeepTree,
        };
        let mut life = Life::Starting { requests: Requests::default(), rule };
        for _ in 0..EVENTS {
            let event = event(&mut numbers);
            if let Step::Go(next, actions) = step(black_box(life), black_box(event)) {
                black_box(actions);
                life = next;
            }
        }
        black_box(life);
    }
}

fn event(numbers: &mut Numbers) -> Event {
    let requests = Request::ALL;
    let of = usize::try_from(numbers.next(8)).unwrap_or_default() % requests.len().max(1);
    let request = requests.get(of).copied().unwrap_or(Request::Kill);
    match numbers.next(9) {
        0 => Event::Spawned,
        1 => Event::Requested(request),
        2 => Event::Reached { request, alive: true },
        3 => Event::Reached { request, alive: false },
        4 => Event::GraceElapsed,
        5 => Event::LeaderEnded { leader: LeaderEnd::Code(3), leftovers: 0 },
        6 => {
            let leader = LeaderEnd::Signal { signal: 15, core_dumped: false };
            Event::LeaderEnded { leader, leftovers: 2 }
        }
        7 => Event::LeftoverGraceElapsed,
        _ => Event::TreeEmpty,
    }
}

fn lines(line: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OUTPUT_BYTES + line.len());
    while bytes.len() < OUTPUT_BYTES {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Output as safe text, page by page.
fn rendering(bytes: &[u8]) {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let context = bytes.get(at.saturating_sub(CONTEXT_BYTES)..at).unwrap_or_default();
        let raw = Raw { context, gap_before: false, bytes: rest, at_end: true };
        let page = procd_text::render(black_box(&raw), PAGE_BYTES);
        black_box(page.text.len());
        black_box(procd_text::is_binary(rest.get(..PAGE_BYTES).unwrap_or(rest)));
        at += page.consumed.max(1);
    }
}

/// Frames written, taken apart and read as requests.
fn frames() {
    let mut buffer = BytesMut::new();
    for _ in 0..FRAMES {
        for request in REQUESTS {
            let is_written = codec::encode(black_box(request.as_bytes()), &mut buffer).is_ok();
            black_box(is_written);
        }
        while let Ok(Some(frame)) = codec::decode(&mut buffer) {
            if let Ok(Incoming::Request(request)) = parse_incoming(black_box(&frame)) {
                black_box(Call::parse(&request.method, request.params).is_ok());
            }
        }
    }
}
