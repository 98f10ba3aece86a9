//! Drains with real pipes.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use procd_core::SpoolState;
use procd_store::spool::{Source, SpoolReader};
use rustix::pipe::{PipeFlags, pipe_with};
use uuid::Uuid;

use super::*;

const BOOT: Uuid = Uuid::from_u128(7);
const LONG: Duration = Duration::from_secs(30);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("procd-drain-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn output(&self, memory_bytes: u64, spool_bytes: u64) -> (Output, OutputWriter) {
        let budgets = Budgets::unlimited();
        let options =
            DrainOptions { memory_bytes, spool_bytes, boot_id: BOOT, budgets, news: None };
        Output::create(self.0.join("spool"), options)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn pipe() -> (OwnedFd, std::fs::File) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    (reader, writer.into())
}

fn streams(stdout: OwnedFd, stderr: OwnedFd) -> Streams {
    Streams { stdout: Some(stdout), stderr: Some(stderr), merged: false, terminal: false }
}

fn merged(stdout: OwnedFd) -> Streams {
    Streams { stdout: Some(stdout), stderr: None, merged: true, terminal: false }
}

/// Waits until the output has `total` bytes.
async fn reaches(output: &Output, total: u64) {
    let wait = async {
        loop {
            let listener = output.listen();
            if output.bounds().total >= total {
                return;
            }
            listener.await;
        }
    };
    if tokio::time::timeout(LONG, wait).await.is_err() {
        panic!("{total} bytes expected, {:?}", output.bounds());
    }
}

async fn read_all(output: &Output) -> Vec<u8> {
    let mut all = Vec::new();
    let mut cursor = output.bounds().retained_from;
    loop {
        let page = output.read(cursor, 1 << 20).await.unwrap();
        if page.bytes.is_empty() {
            return all;
        }
        cursor = page.next();
        all.extend_from_slice(&page.bytes);
    }
}

fn numbered_lines(from: u32, to: u32) -> Vec<u8> {
    (from..to).flat_map(|i| format!("line {i}\n").into_bytes()).collect()
}

#[tokio::test]
async fn both_streams_come_back_byte_exact_by_their_tags() {
    let folder = Folder::new();
    let drains = Drains::new(2).unwrap();
    let (output, writer) = folder.output(1 << 16, 64 << 20);
    let (out_reader, mut out) = pipe();
    let (err_reader, mut err) = pipe();
    let task = drains.start(writer, streams(out_reader, err_reader));
    let (out_bytes, err_bytes) = (numbered_lines(0, 300_000), numbered_lines(1_000_000, 1_200_000));
    let total = out_bytes.len() + err_bytes.len();
    std::thread::scope(|scope| {
        scope.spawn(|| out.write_all(&out_bytes).unwrap());
        scope.spawn(|| err_bytes.chunks(999).for_each(|part| err.write_all(part).unwrap()));
    });
    reaches(&output, total as u64).await;
    drop((out, err));
    let finished = task.finish().await;
    assert_eq!(finished.bounds.total, total as u64);
    assert!(output.bounds().complete);
    let all = read_all(&output).await;
    let (mut of_out, mut of_err) = (Vec::new(), Vec::new());
    for tag in output.tags(0, total as u64, usize::MAX).await.unwrap() {
        let range = usize::try_from(tag.start).unwrap()..usize::try_from(tag.end).unwrap();
        match tag.source {
            Source::Stdout => of_out.extend_from_slice(&all[range]),
            Source::Stderr => of_err.extend_from_slice(&all[range]),
            Source::Mixed => panic!("a byte without a tag"),
        }
    }
    assert!(of_out == out_bytes && of_err == err_bytes);
}

#[tokio::test]
async fn what_was_written_before_the_end_is_there_also_from_a_short_life() {
    let drains = Drains::new(2).unwrap();
    for len in [0, 1, 4096, 65_536] {
        let folder = Folder::new();
        let (output, writer) = folder.output(1 << 20, 1 << 20);
        let (reader, mut end) = pipe();
        end.write_all(&vec![b'x'; len]).unwrap();
        drop(end);
        let finished = drains.start(writer, merged(reader)).finish().await;
        assert_eq!(finished.bounds.total, len as u64);
        assert_eq!(read_all(&output).await, vec![b'x'; len]);
        assert_eq!(folder.0.join("spool").exists(), len > 0);
    }
}

#[tokio::test]
async fn what_was_written_before_a_catching_up_is_there_after_it() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let (output, writer) = folder.output(1 << 20, 1 << 20);
    let ((out, mut out_end), (err, mut err_end)) = (pipe(), pipe());
    let task = drains.start(writer, streams(out, err));
    for round in 1..=500_u64 {
        out_end.write_all(b"out").unwrap();
        err_end.write_all(b"err").unwrap();
        tokio::time::timeout(LONG, task.catch_up()).await.unwrap();
        assert_eq!(
            output.bounds(),
            OutputBounds { total: 6 * round, retained_from: 0, complete: false }
        );
    }
    // What comes later is read as ever.
    out_end.write_all(b"more").unwrap();
    reaches(&output, 3004).await;
    assert_eq!(task.finish().await.bounds.total, 3004);
}

#[tokio::test]
async fn a_stranger_that_holds_the_other_end_is_not_waited_for() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let (output, writer) = folder.output(1 << 20, 1 << 20);
    let (reader, mut end) = pipe();
    let stranger = end.try_clone().unwrap();
    end.write_all(b"all it ever wrote").unwrap();
    let finished = tokio::time::timeout(LONG, drains.start(writer, merged(reader)).finish()).await;
    assert_eq!(finished.unwrap().bounds.total, 17);
    assert_eq!(read_all(&output).await, b"all it ever wrote");
    drop(stranger);
}

/// Nobody can write any more, but the process lives on: only its end completes the output, be it
/// asked for or not, and what was written is synced meanwhile.
#[tokio::test]
async fn closed_streams_complete_nothing_before_the_end_does() {
    let drains = Drains::new(1).unwrap();
    for (is_asked, text) in [(true, ""), (false, ""), (true, "text"), (false, "text")] {
        let folder = Folder::new();
        let (output, writer) = folder.output(1 << 20, 1 << 20);
        let (stdout, mut theirs) = pipe();
        let (stderr, their_errors) = pipe();
        theirs.write_all(text.as_bytes()).unwrap();
        let task = drains.start(writer, streams(stdout, stderr));
        drop((theirs, their_errors));
        let laid_down = async {
            while !task.slot.as_ref().unwrap().lock().has_no_streams() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, laid_down).await.unwrap();
        task.catch_up().await;
        assert!(!output.bounds().complete);
        if is_asked {
            assert_eq!(task.finish().await.bounds.total, text.len() as u64);
        } else {
            drop(task);
            let complete = async {
                while !output.bounds().complete {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LONG, complete).await.unwrap();
        }
        assert!(output.bounds().complete);
        assert!(output.seal().await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_failed_start_completes_an_empty_output_that_can_be_sealed() {
    let folder = Folder::new();
    let (output, writer) = folder.output(1 << 20, 1 << 20);
    let listener = output.listen();
    assert_eq!(output.seal().await.unwrap(), None);
    writer.finish();
    tokio::time::timeout(LONG, listener).await.unwrap();
    assert!(output.seal().await.unwrap().is_some());
    assert_eq!(output.spool_status(), (SpoolState::Sealed, 0));
    assert_eq!(output.seal().await.unwrap(), None);
}

#[tokio::test]
async fn a_loud_process_keeps_its_exact_tail_and_both_ends_of_it_can_be_read() {
    let folder = Folder::new();
    let drains = Drains::new(2).unwrap();
    let (memory, ceiling, total) = (50_000, 1_000_000, 20_000_000_u64);
    let (output, writer) = folder.output(memory, ceiling);
    let (reader, mut end) = pipe();
    let task = drains.start(writer, merged(reader));
    let bytes: Vec<u8> = (0..=250).cycle().take(usize::try_from(total).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| end.write_all(&bytes).unwrap());
    });
    reaches(&output, total).await;
    let tail = usize::try_from(total - ceiling).unwrap();
    assert_eq!(output.bounds().retained_from, tail as u64);
    assert!(read_all(&output).await == bytes[tail..]);
    let old = output.read(5, 10).await.unwrap();
    assert_eq!((old.from, old.bytes.as_slice()), (tail as u64, &bytes[tail..tail + 10]));
    let new = output.read(total - 10, 100).await.unwrap();
    assert_eq!(new.bytes, &bytes[bytes.len() - 10..]);
    assert!(output.read(total + 1, 1).await.is_err());
    task.finish().await;
    let sealed = output.seal().await.unwrap().unwrap();
    let reader = SpoolReader::open(&folder.0.join("spool"), BOOT).unwrap();
    let reopened = Output::reopen(reader, total, true);
    assert!(read_all(&reopened).await == bytes[tail..]);
    assert_eq!(sealed.bounds.total, reopened.bounds().total);
}

#[tokio::test]
async fn a_restored_output_is_read_from_its_first_byte_and_ends_where_its_record_says() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let (_output, writer) = folder.output(1 << 20, 1 << 20);
    let (reader, mut end) = pipe();
    end.write_all(b"all of it").unwrap();
    drains.start(writer, merged(reader)).finish().await;
    let open = || SpoolReader::open(&folder.0.join("spool"), BOOT).unwrap();
    let restored = Output::reopen(open(), 9, false);
    assert_eq!(read_all(&restored).await, b"all of it");
    assert!(restored.seal().await.unwrap().is_some());
    assert_eq!(restored.spool_status(), (SpoolState::Sealed, 0));
    // The record tells of bytes that the disk never got.
    let degraded = Output::reopen(open(), 20, true);
    assert_eq!(degraded.bounds().total, 20);
    assert_eq!(read_all(&degraded).await, b"all of it");
    let rest = degraded.read(9, 100).await.unwrap();
    assert_eq!((rest.from, rest.gap_bytes(), rest.bytes.len()), (20, 11, 0));
}

#[tokio::test]
async fn without_a_disk_recent_output_stays_readable_and_the_rest_is_an_exact_gap() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("spool"), "in the way").unwrap();
    let drains = Drains::new(1).unwrap();
    let (output, writer) = folder.output(1_000, 1 << 20);
    let (reader, mut end) = pipe();
    let task = drains.start(writer, merged(reader));
    end.write_all(&numbered_lines(0, 500)).unwrap();
    let total = numbered_lines(0, 500).len() as u64;
    reaches(&output, total).await;
    assert_eq!(output.spool_status(), (SpoolState::Degraded, total));
    let page = output.read(0, 1 << 20).await.unwrap();
    assert_eq!((page.gap_bytes(), page.bytes.len()), (total - 1_000, 1_000));
    assert!(numbered_lines(0, 500).ends_with(&page.bytes));
    std::fs::remove_file(folder.0.join("spool")).unwrap();
    // The next try is due 100 ms after the last one.
    let mut more = 0;
    while output.spool_status().0 == SpoolState::Degraded {
        end.write_all(b"more\n").unwrap();
        more += 5;
        reaches(&output, total + more).await;
    }
    drop(end);
    let finished = task.finish().await;
    assert_eq!(finished.bounds.total, total + more);
    let page = output.read(0, 1 << 20).await.unwrap();
    assert_eq!(page.from, finished.status.lost_bytes);
    assert_eq!(page.next(), finished.bounds.total);
}

/// The window used to go with the process, and all of the output with it where the disk had
/// nothing of it.
#[tokio::test]
async fn the_end_that_only_memory_has_stays_readable_until_the_seal_finds_room_for_it() {
    for blocked_at in [0, 10_000] {
        let folder = Folder::new();
        let spool = folder.0.join("spool");
        let drains = Drains::new(1).unwrap();
        let (output, writer) = folder.output(1_000, 1 << 20);
        let (reader, mut end) = pipe();
        let task = drains.start(writer, merged(reader));
        let all: Vec<u8> = numbered_lines(0, 20_000);
        let (first, rest) = all.split_at(blocked_at);
        if !first.is_empty() {
            // Room for the first segment only.
            std::fs::create_dir(&spool).unwrap();
            std::fs::create_dir(spool.join("1.seg")).unwrap();
            end.write_all(first).unwrap();
            reaches(&output, first.len() as u64).await;
        } else {
            std::fs::write(&spool, "in the way").unwrap();
        }
        let writing = std::thread::spawn({
            let rest = rest.to_vec();
            move || end.write_all(&rest).unwrap()
        });
        let total = all.len() as u64;
        reaches(&output, total).await;
        writing.join().unwrap();
        let finished = task.finish().await;
        assert!(finished.status.degraded && finished.status.lost_bytes > 1_000, "{finished:?}");
        let newest = |page: &procd_store::spool::RawPage| {
            assert_eq!((page.from, page.next()), (total - 1_000, total));
            assert!(all.ends_with(&page.bytes), "other bytes than were written");
        };
        newest(&output.read(total - 1_000, 1 << 20).await.unwrap());
        assert!(output.seal().await.is_err(), "no room for the end yet");
        newest(&output.read(total - 1_000, 1 << 20).await.unwrap());
        if first.is_empty() {
            std::fs::remove_file(&spool).unwrap();
        } else {
            std::fs::remove_dir(spool.join("1.seg")).unwrap();
        }
        let sealed = output.seal().await.unwrap().unwrap();
        assert_eq!(
            sealed.lost_bytes,
            finished.status.lost_bytes - 1_000,
            "what was kept after all"
        );
        newest(&output.read(total - 1_000, 1 << 20).await.unwrap());
        // What is not there is a gap, exactly as long as is told.
        let reopened = Output::reopen(SpoolReader::open(&spool, BOOT).unwrap(), total, true);
        let (mut cursor, mut gaps) = (0, 0);
        while cursor < total {
            let page = reopened.read(cursor, 1 << 20).await.unwrap();
            let from = usize::try_from(page.from).unwrap();
            assert!(all[from..].starts_with(&page.bytes), "other bytes than were written");
            gaps += page.gap_bytes();
            cursor = page.next();
        }
        assert_eq!(gaps, sealed.lost_bytes);
    }
}

#[tokio::test]
async fn a_listener_wakes_only_for_what_comes_after_it() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let (output, writer) = folder.output(1_000, 1 << 20);
    let (reader, mut end) = pipe();
    let task = drains.start(writer, merged(reader));
    end.write_all(b"a").unwrap();
    reaches(&output, 1).await;
    let mut late = output.listen();
    assert!(futures_poll(&mut late).await.is_pending());
    end.write_all(b"b").unwrap();
    tokio::time::timeout(LONG, late).await.unwrap();
    task.finish().await;
}

async fn futures_poll(listener: &mut Listener) -> std::task::Poll<()> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *listener).poll(context))
    })
    .await
}

/// Its drain thread gets nothing to do, however often it is asked what there is.
#[tokio::test]
async fn a_process_that_writes_nothing_wakes_no_thread() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let start = || {
        let (output, writer) = folder.output(1 << 20, 1 << 20);
        let ((stdout, theirs), (stderr, their_errors)) = (pipe(), pipe());
        (output, drains.start(writer, streams(stdout, stderr)), theirs, their_errors)
    };
    let mut idle: Vec<_> = (0..100).map(|_| start()).collect();
    for (_, task, _, _) in &idle {
        task.catch_up().await;
    }
    assert_eq!(drains.turns(), 0);
    // Its streams are open still: nobody waits for whoever holds them.
    let (output, task, theirs, their_errors) = idle.pop().unwrap();
    assert_eq!(tokio::time::timeout(LONG, task.finish()).await.unwrap().bounds.total, 0);
    assert!(output.bounds().complete);
    drop((theirs, their_errors));
    let (output, task, _theirs, _their_errors) = idle.pop().unwrap();
    drop(task);
    let complete = async {
        while !output.bounds().complete {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, complete).await.expect("dropped is finished too");
    assert_eq!(drains.turns(), 0);
}

/// What its drain has read is completed by moves in memory, by whoever asks.
#[tokio::test]
async fn the_end_of_a_short_command_needs_no_thread() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    for text in ["", "text"] {
        let (output, writer) = folder.output(1 << 20, 1 << 20);
        let ((stdout, mut theirs), (stderr, their_errors)) = (pipe(), pipe());
        let mut task = drains.start(writer, streams(stdout, stderr));
        theirs.write_all(text.as_bytes()).unwrap();
        drop((theirs, their_errors));
        let slot = Arc::clone(task.slot.as_ref().unwrap());
        let closed = async {
            while !slot.lock().has_no_streams() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, closed).await.unwrap();
        let finished = task.finish_or_ask();
        assert!(finished.is_ok_and(|finished| finished.is_some()));
        assert_eq!(output.bounds().total, text.len() as u64);
    }
}

#[tokio::test]
async fn either_stream_is_drained_and_one_at_its_end_is_not_both() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    for is_stderr in [false, true] {
        let (output, writer) = folder.output(1 << 20, 1 << 20);
        let ((stdout, theirs), (stderr, their_errors)) = (pipe(), pipe());
        let task = drains.start(writer, streams(stdout, stderr));
        let (mut left, ended) =
            if is_stderr { (their_errors, theirs) } else { (theirs, their_errors) };
        drop(ended);
        left.write_all(b"text").unwrap();
        reaches(&output, 4).await;
        left.write_all(b"last").unwrap();
        assert_eq!(task.finish().await.bounds.total, 8, "what was written at the last moment");
        output.seal().await.unwrap();
        std::fs::remove_dir_all(folder.0.join("spool")).unwrap();
    }
}

/// Each of them is stopped in its turn, with all it wrote, while the loud one never rests.
#[tokio::test]
async fn quiet_processes_end_beside_one_that_never_stops_writing() {
    let folder = Folder::new();
    let drains = Drains::new(1).unwrap();
    let (output, writer) = folder.output(1 << 16, 1 << 20);
    let (reader, mut end) = pipe();
    let loud = drains.start(writer, merged(reader));
    let writing = std::thread::spawn(move || {
        let block = vec![b'y'; 256 * 1024];
        while end.write_all(&block).is_ok() {}
    });
    reaches(&output, 1 << 20).await;
    for number in 0..20_u64 {
        let quiet_folder = Folder::new();
        let (quiet, writer) = quiet_folder.output(1 << 16, 1 << 20);
        let ((stdout, mut theirs), (stderr, mut their_errors)) = (pipe(), pipe());
        let task = drains.start(writer, streams(stdout, stderr));
        theirs.write_all(b"out").unwrap();
        their_errors.write_all(b"err").unwrap();
        if number % 2 == 0 {
            tokio::time::timeout(LONG, task.catch_up()).await.unwrap();
            assert_eq!(quiet.bounds().total, 6);
        }
        let finished = tokio::time::timeout(LONG, task.finish()).await.unwrap();
        assert_eq!(finished.bounds.total, 6);
    }
    tokio::time::timeout(LONG, loud.finish()).await.unwrap();
    writing.join().unwrap();
}

#[test]
fn a_process_costs_little_memory() {
    let bytes = std::mem::size_of::<Slot>() + std::mem::size_of::<DrainTask>();
    assert!(bytes < 320, "{bytes} bytes");
}
