//! The spool against a plain byte vector with a window, through restarts and power losses.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::writer::segment_bytes;
use super::*;

mod killed;
pub(super) mod step;
use crate::StoreError;
use crate::budget::Budget;

const BOOT: Uuid = Uuid::from_u128(7);
const OTHER_BOOT: Uuid = Uuid::from_u128(8);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("procd-spool-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn spool(&self) -> PathBuf {
        self.0.join("spool")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn options(ceiling: u64) -> SpoolOptions {
    SpoolOptions { ceiling, boot_id: BOOT, budget: Budget::unlimited() }
}

/// Byte at a cursor: never the same at the distance of a segment or a power of two.
fn byte_at(cursor: u64) -> u8 {
    u8::try_from((cursor.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) & 0xFF).unwrap()
}

fn bytes_at(from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(byte_at).collect()
}

fn append(writer: &mut SpoolWriter, len: u64) -> Bounds {
    let chunk = bytes_at(writer.bounds().total, len);
    writer.append(&chunk, Source::Mixed, 0)
}

/// Everything from `from` on, page by page: (covered ranges joined, bytes).
fn read_all(reader: &SpoolReader, mut from: u64) -> Vec<RawPage> {
    let mut pages = Vec::new();
    loop {
        let page = reader.read(from, 50_000).unwrap();
        if page.bytes.is_empty() {
            return pages;
        }
        from = page.next();
        pages.push(page);
    }
}

fn assert_true_bytes(pages: &[RawPage]) {
    for page in pages {
        assert_eq!(page.bytes, bytes_at(page.from, page.bytes.len() as u64), "at {}", page.from);
    }
}

/// Bytes of segments on disk.
fn segment_bytes_on_disk(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_str().unwrap().ends_with(".seg"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum()
}

#[derive(Debug, Clone)]
enum Op {
    Append(u64),
    Read(u64, usize),
    Reopen,
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u64..90_000).prop_map(Op::Append),
        2 => (1u64..200).prop_map(Op::Append),
        3 => (0u64..400_000, 0usize..100_000).prop_map(|(from, max)| Op::Read(from, max)),
        1 => Just(Op::Reopen),
        1 => Just(Op::Sync),
    ]
}

/// `short` cases, or as many times that as `PROCD_TEST_TIMES` says.
#[expect(clippy::disallowed_methods, reason = "told by `cargo xtask`")]
fn cases(short: u32) -> ProptestConfig {
    let times = std::env::var("PROCD_TEST_TIMES").ok().and_then(|times| times.parse::<u32>().ok());
    ProptestConfig::with_cases(short * times.unwrap_or(1).max(1))
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn a_spool_is_the_tail_of_everything_appended(
        ceiling in prop_oneof![1u64..300, 60_000u64..70_000, 100_000u64..600_000],
        ops in prop::collection::vec(op(), 1..24),
    ) {
        let folder = Folder::new();
        let mut writer = SpoolWriter::create(folder.spool(), options(ceiling));
        let mut total = 0;
        for op in ops {
            match op {
                Op::Append(len) => {
                    total += len;
                    let bounds = append(&mut writer, len);
                    let retained_from = total.saturating_sub(ceiling);
                    prop_assert_eq!(bounds, Bounds { total, retained_from });
                    let room = ceiling + segment_bytes(ceiling);
                    prop_assert!(segment_bytes_on_disk(&folder.spool()) <= room);
                }
                Op::Read(from, max) => {
                    let from = from.min(total);
                    let page = writer.reader().read(from, max).unwrap();
                    let start = from.max(total.saturating_sub(ceiling));
                    let len = (total - start).min(max as u64);
                    if len > 0 {
                        prop_assert_eq!(page.from, start);
                    }
                    prop_assert_eq!(&page.bytes, &bytes_at(start, len));
                }
                Op::Reopen => {
                    // As after SIGKILL: nothing was closed or synced.
                    let reader = SpoolReader::open(&folder.spool(), BOOT).unwrap();
                    prop_assert_eq!(reader.bounds(), writer.bounds());
                    let pages = read_all(&reader, 0);
                    assert_true_bytes(&pages);
                    let kept: u64 = pages.iter().map(|page| page.bytes.len() as u64).sum();
                    prop_assert_eq!(kept, total.min(ceiling));
                }
                Op::Sync => {
                    if let Some(batch) = writer.sync_batch() {
                        writer.mark_synced(batch.run().unwrap());
                    }
                }
            }
        }
        let retained = bytes_at(total.saturating_sub(ceiling), total.min(ceiling));
        let hex: String = Sha256::digest(&retained).iter().map(|b| format!("{b:02x}")).collect();
        let sealed = writer.seal().unwrap();
        prop_assert_eq!(&sealed.sha256, &hex);
        let reader = SpoolReader::open(&folder.spool(), OTHER_BOOT).unwrap();
        prop_assert_eq!(reader.bounds(), sealed.bounds);
        prop_assert!(total == 0 || reader.is_sealed());
        let bytes: Vec<u8> = read_all(&reader, 0).into_iter().flat_map(|page| page.bytes).collect();
        prop_assert_eq!(bytes, retained);
    }

    #[test]
    fn after_a_power_loss_bytes_are_right_or_a_gap(
        ceiling in prop_oneof![100u64..300, 100_000u64..600_000],
        appends in prop::collection::vec((1u64..90_000, any::<bool>()), 1..16),
        damage in prop::collection::vec((any::<u16>(), any::<u32>(), 1usize..5_000, any::<bool>()), 0..6),
    ) {
        let folder = Folder::new();
        let mut writer = SpoolWriter::create(folder.spool(), options(ceiling));
        for (len, synced) in appends {
            append(&mut writer, len);
            if synced && let Some(batch) = writer.sync_batch() {
                writer.mark_synced(batch.run().unwrap());
            }
        }
        let total = writer.bounds().total;
        let names: Vec<PathBuf> =
            std::fs::read_dir(folder.spool()).unwrap().map(|entry| entry.unwrap().path()).collect();
        for (which, at, len, cut) in damage {
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(&names[usize::from(which) % names.len()])
                .unwrap();
            let size = file.metadata().unwrap().len();
            let at = u64::from(at) % (size + 1);
            if cut {
                file.set_len(at).unwrap();
            } else {
                file.write_all_at(&vec![0xA5; len], at).unwrap();
            }
        }
        match SpoolReader::open(&folder.spool(), OTHER_BOOT) {
            Ok(reader) => {
                prop_assert!(reader.bounds().total <= total);
                let pages = read_all(&reader, 0);
                assert_true_bytes(&pages);
                let first = pages.first().map_or(reader.bounds().total, |page| page.from);
                prop_assert_eq!(reader.bounds().retained_from, first);
                let sealed = reader.seal().unwrap();
                let again = SpoolReader::open(&folder.spool(), OTHER_BOOT).unwrap();
                prop_assert_eq!(again.bounds(), sealed.bounds);
                prop_assert_eq!(read_all(&again, 0), pages);
            }
            Err(error) => prop_assert!(matches!(error, StoreError::SpoolCorrupt { .. }), "{error}"),
        }
    }

    #[test]
    fn tags_tell_the_source_of_every_byte_they_still_cover(
        chunks in prop::collection::vec((1u64..2_000, 0u8..3, 0i64..20_000_000), 1..400),
    ) {
        let folder = Folder::new();
        let ceiling = 300_000;
        let mut writer = SpoolWriter::create(folder.spool(), options(ceiling));
        let mut sources = Vec::new();
        let mut now = 0;
        for (len, source, wait) in chunks {
            now += wait;
            let source = [Source::Stdout, Source::Stderr, Source::Mixed][usize::from(source)];
            writer.append(&bytes_at(writer.bounds().total, len), source, now);
            sources.extend((0..len).map(|_| (source, now)));
        }
        let total = writer.bounds().total;
        let reopened = SpoolReader::open(&folder.spool(), BOOT).unwrap();
        for reader in [writer.reader(), reopened] {
            for from in [0, total / 3, total - 1] {
                let tags = reader.tags(from, total, usize::MAX);
                let mut cursor = from;
                for tag in &tags {
                    prop_assert_eq!(tag.start, cursor);
                    cursor = tag.end;
                    for at in tag.start..tag.end {
                        let (source, time) = sources[usize::try_from(at).unwrap()];
                        prop_assert_eq!(tag.source, source);
                        if let Some(first) = tag.at_unix_ns {
                            prop_assert!(time >= first && time - first < tags::COALESCE_NS);
                        }
                    }
                }
                prop_assert_eq!(cursor, total);
                prop_assert!(reader.tags(from, total, 2).len() <= 2);
            }
        }
    }
}

#[test]
fn tags_are_bounded_and_the_oldest_read_as_mixed() {
    let folder = Folder::new();
    let ceiling = 64 * 1024;
    let mut writer = SpoolWriter::create(folder.spool(), options(ceiling));
    for i in 0..1_000 {
        let source = if i % 2 == 0 { Source::Stdout } else { Source::Stderr };
        writer.append(b"x", source, 0);
    }
    assert!(std::fs::metadata(folder.spool().join("tags")).unwrap().len() <= ceiling / 8);
    let reader = SpoolReader::open(&folder.spool(), BOOT).unwrap();
    let tags = reader.tags(0, 1_000, usize::MAX);
    assert_eq!((tags[0].source, tags[0].start, tags[0].end), (Source::Mixed, 0, 743));
    assert_eq!((tags[1].source, tags.len()), (Source::Stderr, 258));
}

#[test]
fn a_spool_without_a_byte_makes_no_file_and_can_be_sealed() {
    let folder = Folder::new();
    let sealed = SpoolWriter::create(folder.spool(), options(1 << 20)).seal().unwrap();
    assert!(!folder.spool().exists());
    assert_eq!(sealed.bounds, Bounds::default());
    assert!(sealed.sha256.starts_with("e3b0c44298fc1c14"));
    let reader = SpoolReader::open(&folder.spool(), BOOT).unwrap();
    assert_eq!((reader.bounds(), reader.seal().unwrap()), (Bounds::default(), sealed));
}

/// Files of a folder that this process has open.
fn open_below(dir: &Path) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir))).count()
}

#[test]
fn a_quiet_spool_keeps_no_file_open_and_goes_on_as_if_it_had() {
    let folder = Folder::new();
    let ceiling = 300_000;
    let mut writer = SpoolWriter::create(folder.spool(), options(ceiling));
    let reader = writer.reader();
    let mut at = 0;
    // Through several segments, recycled ones too, and with tags.
    for len in [10, 70_000, 1, 300_000, 64 * 1024, 5] {
        at += 1_000_000_000;
        let chunk = bytes_at(writer.bounds().total, len);
        writer.append(&chunk, Source::Stdout, at);
        let batch = writer.sync_batch().unwrap();
        assert!(open_below(&folder.spool()) >= 2, "what is written is open");
        // What comes meanwhile keeps them open.
        let chunk = bytes_at(writer.bounds().total, 3);
        writer.append(&chunk, Source::Stderr, at + 100_000_000);
        let mark = batch.run().unwrap();
        drop(batch);
        writer.mark_synced(mark);
        assert!(open_below(&folder.spool()) >= 2, "it is not quiet");
        let mark = writer.sync_batch().unwrap().run().unwrap();
        writer.mark_synced(mark);
        assert_eq!(open_below(&folder.spool()), 0);
        assert!(writer.sync_batch().is_none());
        assert_true_bytes(&read_all(&reader, 0));
        assert_eq!(open_below(&folder.spool()), 0, "a read leaves none open");
    }
    let Bounds { total, retained_from } = writer.bounds();
    assert_eq!(writer.status(), SpoolStatus { degraded: false, lost_bytes: 0 });
    assert_eq!(reader.tags(total - 8, total, 9).len(), 2, "the tags are all there");
    let sealed = writer.seal().unwrap();
    assert_eq!(sealed.bounds, Bounds { total, retained_from });
    let again = SpoolReader::open(&folder.spool(), BOOT).unwrap();
    assert_eq!(read_all(&again, 0), read_all(&reader, 0));
}

/// Nobody opens another file in its place, and what comes then is a hole, not lost in silence.
#[test]
fn a_quiet_spool_whose_file_is_taken_away_says_so() {
    let folder = Folder::new();
    let mut writer = SpoolWriter::create(folder.spool(), options(300_000));
    append(&mut writer, 10);
    let batch = writer.sync_batch().unwrap();
    writer.mark_synced(batch.run().unwrap());
    std::fs::remove_file(folder.spool().join("0.seg")).unwrap();
    append(&mut writer, 5);
    assert_eq!(writer.status(), SpoolStatus { degraded: true, lost_bytes: 5 });
    assert!(writer.take_failure().is_some());
}

#[test]
fn sealed_segments_are_read_only() {
    let folder = Folder::new();
    let mut writer = SpoolWriter::create(folder.spool(), options(1 << 20));
    append(&mut writer, 10);
    writer.seal().unwrap();
    let mode = std::fs::metadata(folder.spool().join("0.seg")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400);
}

const RETRY: i64 = 200_000_000;

#[test]
fn what_the_disk_does_not_take_is_an_exact_hole_and_writing_resumes() {
    let folder = Folder::new();
    let mut writer = SpoolWriter::create(folder.spool(), options(1 << 20));
    // A folder where the second segment should be: no file can be made there.
    append(&mut writer, 128 * 1024 - 100);
    let blocker = folder.spool().join("1.seg");
    std::fs::create_dir(&blocker).unwrap();
    let mut at = RETRY;
    let mut put = |writer: &mut SpoolWriter, len| {
        at += RETRY;
        let chunk = bytes_at(writer.bounds().total, len);
        writer.append(&chunk, Source::Mixed, at);
    };
    put(&mut writer, 300);
    put(&mut writer, 50);
    assert_eq!(writer.status(), SpoolStatus { degraded: true, lost_bytes: 250 });
    assert!(writer.take_failure().is_some());
    // Killed here, what counted is told and the hole with it.
    std::fs::remove_dir(&blocker).unwrap();
    let reader = SpoolReader::open(&folder.spool(), BOOT).unwrap();
    assert_eq!(reader.bounds().total, 128 * 1024 + 250);
    assert!(reader.status().degraded);
    put(&mut writer, 1_000);
    assert_eq!(writer.status(), SpoolStatus { degraded: false, lost_bytes: 250 });
    for reader in [writer.reader(), SpoolReader::open(&folder.spool(), BOOT).unwrap()] {
        let pages = read_all(&reader, 0);
        assert_true_bytes(&pages);
        let gaps: Vec<_> = pages.iter().map(RawPage::gap_bytes).filter(|&gap| gap > 0).collect();
        assert_eq!(gaps, [250]);
        let in_hole = reader.read(128 * 1024 + 10, 20).unwrap();
        assert_eq!((in_hole.from, in_hole.gap_bytes()), (128 * 1024 + 250, 240));
    }
    let sealed = writer.seal().unwrap();
    assert_eq!(sealed.lost_bytes, 250);
}

#[test]
fn between_two_tries_nothing_is_written() {
    let folder = Folder::new();
    std::fs::write(folder.spool(), "in the way").unwrap();
    let mut writer = SpoolWriter::create(folder.spool(), options(1_000));
    writer.append(b"lost", Source::Mixed, 0);
    std::fs::remove_file(folder.spool()).unwrap();
    writer.append(b"lost", Source::Mixed, 99_999_999);
    assert_eq!(writer.bounds(), Bounds { total: 8, retained_from: 8 });
    writer.append(b"kept", Source::Mixed, 100_000_000);
    assert_eq!(writer.bounds(), Bounds { total: 12, retained_from: 8 });
    let page = writer.reader().read(0, 100).unwrap();
    assert_eq!((page.gap_bytes(), page.bytes.as_slice()), (8, b"kept".as_slice()));
}

#[test]
fn at_the_limit_of_the_budget_a_spool_replaces_its_own_oldest_bytes() {
    let folder = Folder::new();
    let budget = Budget::new(4 * 64 * 1024);
    let options = SpoolOptions { ceiling: 512 * 1024, boot_id: BOOT, budget: budget.clone() };
    let mut writer = SpoolWriter::create(folder.spool(), options);
    for _ in 0..400 {
        append(&mut writer, 4_000);
    }
    let bounds = writer.bounds();
    assert_eq!(bounds.total - bounds.retained_from, 2 * 64 * 1024);
    assert_true_bytes(&read_all(&writer.reader(), 0));
    assert_eq!(segment_bytes_on_disk(&folder.spool()), 3 * 64 * 1024);
    assert!(budget.used() <= 4 * 64 * 1024);
    drop(writer);
    assert_eq!(budget.used(), 0);
}

#[test]
fn damage_in_the_same_boot_is_corrupt() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("a missing segment", |dir| std::fs::remove_file(dir.join("1.seg")).unwrap()),
        ("a short segment", |dir| std::fs::write(dir.join("1.seg"), "short").unwrap()),
        ("a foreign file", |dir| std::fs::write(dir.join("notes"), "x").unwrap()),
        ("a foreign segment", |dir| std::fs::write(dir.join("900.seg"), "x").unwrap()),
        ("a link", |dir| std::os::unix::fs::symlink("0.seg", dir.join("2.seg")).unwrap()),
        ("an unreadable index", |dir| std::fs::write(dir.join("index"), "x").unwrap()),
    ];
    for (what, damage) in damages {
        let folder = Folder::new();
        let mut writer = SpoolWriter::create(folder.spool(), options(1 << 20));
        append(&mut writer, 200_000);
        damage(&folder.spool());
        let opened = SpoolReader::open(&folder.spool(), BOOT);
        assert!(matches!(opened, Err(StoreError::SpoolCorrupt { .. })), "{what}");
    }
}

#[test]
fn a_reader_beside_a_fast_writer_never_sees_wrong_bytes() {
    let folder = Folder::new();
    let mut writer = SpoolWriter::create(folder.spool(), options(200_000));
    let reader = writer.reader();
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for _ in 0..1_500 {
                append(&mut writer, 20_000);
            }
        });
        let mut seen = 0;
        while !writing.is_finished() {
            let page = reader.read(reader.bounds().retained_from, 150_000).unwrap();
            assert_true_bytes(std::slice::from_ref(&page));
            seen += page.bytes.len();
        }
        assert!(seen > 0);
    });
}
