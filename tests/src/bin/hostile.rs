//! Hostile clients, in a process of their own: `hostile SOCKET COUNT`. They go on until stdin ends,
//! then say how often they were at it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a test that reports")]

use std::{
    cell::Cell,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    task::LocalSet,
    time::timeout,
};

/// How long one waits for an answer, and for its bytes to be taken.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two of its deeds.
const BREATH: Duration = Duration::from_millis(20);
/// Long enough to be there to the end.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Errors in one flood: twice as many as end a connection.
const ERRORS: usize = 200;
/// Requests with one id.
const SAME_IDS: usize = 300;
/// Questions whose answers are not read.
const UNREAD: usize = 198;
/// How deep the JSON is.
const DEPTH: usize = 100_000;

/// What one does, once: it is done over and over.
#[derive(Clone, Copy)]
enum Deed {
    Nothing,
    HalfHello,
    HalfRequest,
    Lie,
    Deep,
    Errors,
    Ids,
    Unread,
}

const DEEDS: [Deed; 8] = [
    Deed::Nothing,
    Deed::HalfHello,
    Deed::Lie,
    Deed::Deep,
    Deed::Errors,
    Deed::Ids,
    Deed::Unread,
    Deed::HalfRequest,
];

/// What all of them came to.
#[derive(Default)]
struct Tally {
    deeds: Cell<u64>,
    refused: Cell<u64>,
}

fn frame(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

fn status(id: usize) -> Vec<u8> {
    frame(&format!("{{\"id\":{id},\"method\":\"daemon/status\",\"params\":{{}}}}"))
}

impl Deed {
    /// What it says, in one piece.
    fn words(self) -> Vec<u8> {
        let hello = frame(
            r#"{"id":1,"method":"hello","params":{"client":{"name":"h","version":"1"},"versions":[1]}}"#,
        );
        let then = |rest: Vec<u8>| [hello.clone(), rest].concat();
        match self {
            Self::Nothing => Vec::new(),
            Self::HalfHello => hello.get(..hello.len() / 2).unwrap_or_default().to_vec(),
            Self::HalfRequest => {
                let whole = then(status(2));
                whole.get(..whole.len() - 3).unwrap_or_default().to_vec()
            }
            Self::Lie => then([&0x7fff_ffff_u32.to_be_bytes()[..], b"{"].concat()),
            Self::Deep => {
                let (open, close) = ("[".repeat(DEPTH), "]".repeat(DEPTH));
                then(frame(&format!("{{\"id\":2,\"method\":\"x\",\"params\":{open}{close}}}")))
            }
            Self::Errors => then(frame("{not json").repeat(ERRORS)),
            Self::Ids => then(status(7).repeat(SAME_IDS)),
            Self::Unread => then((2..2 + UNREAD).flat_map(status).collect()),
        }
    }

    /// How long it stays without reading, once it has said everything.
    const fn stays(self) -> Option<Duration> {
        match self {
            Self::Nothing | Self::Unread => Some(FOR_EVER),
            Self::HalfHello
            | Self::HalfRequest
            | Self::Lie
            | Self::Deep
            | Self::Errors
            | Self::Ids => None,
        }
    }
}

async fn act(socket: &Path, deed: Deed, words: &[u8], tally: &Tally) {
    tally.deeds.set(tally.deeds.get() + 1);
    let Ok(Ok(mut stream)) = timeout(PATIENCE, UnixStream::connect(socket)).await else {
        tally.refused.set(tally.refused.get() + 1);
        return;
    };
    let _full_or_closed = timeout(PATIENCE, stream.write_all(words)).await;
    if let Some(stay) = deed.stays() {
        return tokio::time::sleep(stay).await;
    }
    let mut answer = [0; 4096];
    let _nothing_or_closed = timeout(PATIENCE, stream.read(&mut answer)).await;
}

fn hostile(socket: PathBuf, deed: Deed, tally: Rc<Tally>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let words = deed.words();
        loop {
            act(&socket, deed, &words, &tally).await;
            tokio::time::sleep(BREATH).await;
        }
    })
}

/// Until whoever started this hangs up.
async fn end_of_stdin() {
    let ended =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    drop(ended.await);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, count] = words.as_slice() else {
        println!("hostile SOCKET COUNT");
        return;
    };
    let (socket, count) = (PathBuf::from(socket), count.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = LocalSet::new();
    let tally = Rc::new(Tally::default());
    runtime.block_on(all.run_until(async {
        for deed in DEEDS.iter().cycle().take(count) {
            tokio::task::spawn_local(hostile(socket.clone(), *deed, tally.clone()));
        }
        println!("ready");
        end_of_stdin().await;
    }));
    println!("{} deeds, {} not let in", tally.deeds.get(), tally.refused.get());
}
