//! Appends, reads, restarts and SIGKILLs in any order against a plain byte vector with a window:
//! what was counted is there, exactly as far as the ceiling reaches, wherever the daemon was killed.

use super::step::{killed_after, seen};
use super::*;
use crate::window::Window;

#[derive(Debug, Clone)]
enum Step {
    Append(u64),
    Read(u64, usize),
    /// The sync in the background.
    Sync,
    /// The process ends: sealed, and another one begins.
    End,
    /// An orderly end of the daemon, or a SIGKILL between two appends: the process is lost.
    Restart,
    /// SIGKILL so many operations into an append, the last of them cut.
    Kill {
        len: u64,
        operations: u32,
        cut: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..90_000).prop_map(Step::Append),
        4 => (1u64..300).prop_map(Step::Append),
        4 => (0u64..400_000, 0usize..100_000).prop_map(|(from, max)| Step::Read(from, max)),
        1 => Just(Step::Sync),
        1 => Just(Step::End),
        1 => Just(Step::Restart),
        3 => (1u64..300_000, 0u32..16, 0usize..70_000)
            .prop_map(|(len, operations, cut)| Step::Kill { len, operations, cut }),
    ]
}

/// One process after the other, each with a spool and a window of its own.
struct World {
    folder: Folder,
    ceiling: u64,
    memory: u64,
    number: u32,
    writer: SpoolWriter,
    window: Window,
    /// Everything ever written by this process.
    all: Vec<u8>,
}

impl World {
    fn new(ceiling: u64, memory: u64) -> Self {
        let folder = Folder::new();
        let writer = SpoolWriter::create(folder.0.join("0"), options(ceiling));
        let window = Window::new(memory, Budget::unlimited());
        Self { folder, ceiling, memory, number: 0, writer, window, all: Vec::new() }
    }

    fn dir(&self) -> PathBuf {
        self.folder.0.join(self.number.to_string())
    }

    fn next_process(&mut self) -> SpoolWriter {
        self.number += 1;
        self.all.clear();
        self.window = Window::new(self.memory, Budget::unlimited());
        let next = SpoolWriter::create(self.dir(), options(self.ceiling));
        std::mem::replace(&mut self.writer, next)
    }

    /// The bytes from `from` on that have to be kept.
    fn kept(&self, from: u64) -> (u64, &[u8]) {
        let total = self.all.len() as u64;
        let start = from.max(total.saturating_sub(self.ceiling)).min(total);
        (start, &self.all[usize::try_from(start).unwrap()..])
    }

    fn append(&mut self, len: u64) {
        let chunk = bytes_at(self.all.len() as u64, len);
        let bounds = self.writer.append(&chunk, Source::Stdout, 0);
        self.window.push(&chunk);
        self.all.extend(chunk);
        assert_eq!((bounds.total, bounds.retained_from), (self.all.len() as u64, self.kept(0).0));
    }

    fn read(&self, from: u64, max: usize) {
        let from = from.min(self.all.len() as u64);
        let (start, bytes) = self.kept(from);
        let bytes = &bytes[..bytes.len().min(max)];
        let page = self.writer.reader().read(from, max).unwrap();
        assert_eq!(page.bytes, bytes);
        assert!(bytes.is_empty() || page.from == start);
        if let Some(page) = self.window.read(start, max) {
            assert_eq!(page, bytes, "the window says the same");
        } else {
            assert!(start < self.window.start());
        }
    }

    /// What the next daemon finds: all that counted, and more only of what was being written.
    fn restart(&mut self, being_written: u64) {
        let reader = SpoolReader::open(&self.dir(), BOOT).unwrap();
        let Bounds { total, retained_from } = reader.bounds();
        let counted = self.all.len() as u64;
        assert!((counted..=counted + being_written).contains(&total), "{total}, {counted} counted");
        self.all.extend(bytes_at(counted, total - counted));
        let (start, bytes) = self.kept(0);
        assert_eq!(retained_from, start);
        let found = |reader: &SpoolReader| {
            let pages = read_all(reader, retained_from);
            assert!(pages.iter().all(|page| page.gap_bytes() == 0));
            pages.into_iter().flat_map(|page| page.bytes).collect::<Vec<_>>()
        };
        assert_eq!(found(&reader), bytes);
        let sealed = reader.seal().unwrap();
        assert_eq!(sealed.bounds, Bounds { total, retained_from });
        let again = SpoolReader::open(&self.dir(), OTHER_BOOT).unwrap();
        assert_eq!(found(&again), bytes);
        drop(self.next_process());
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(len) => self.append(len),
            Step::Read(from, max) => self.read(from, max),
            Step::Sync => {
                if let Some(batch) = self.writer.sync_batch() {
                    self.writer.mark_synced(batch.run().unwrap());
                }
            }
            Step::End => {
                let hash = Sha256::digest(self.kept(0).1);
                let sealed = self.next_process().seal().unwrap();
                let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(sealed.sha256, hex);
            }
            Step::Restart => self.restart(0),
            Step::Kill { len, operations, cut } => {
                let chunk = bytes_at(self.all.len() as u64, len);
                let writer = &mut self.writer;
                let append = || writer.append(&chunk, Source::Stderr, 0);
                match killed_after(operations, cut, append) {
                    None => self.restart(len),
                    Some(_) => {
                        self.window.push(&chunk);
                        self.all.extend(chunk);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn any_sequence_with_kills_equals_a_byte_vector_with_a_window(
        ceiling in prop_oneof![1u64..300, 60_000u64..70_000, 100_000u64..600_000],
        memory in prop_oneof![0u64..300, 10_000u64..100_000],
        steps in prop::collection::vec(step(), 1..32),
    ) {
        let before = seen();
        let mut world = World::new(ceiling, memory);
        let writes = steps.iter().any(|step| matches!(step, Step::Append(_)));
        for step in steps {
            world.take(step);
        }
        prop_assert!(!writes || seen() > before, "operations are watched");
    }
}

#[test]
fn an_append_survives_a_kill_at_each_of_its_operations() {
    for cut in [0, 63, 5_000, usize::MAX] {
        for operations in 0..26 {
            let mut world = World::new(150_000, 4096);
            for _ in 0..6 {
                world.append(70_000);
            }
            world.take(Step::Kill { len: 250_000, operations, cut });
            world.append(10);
        }
    }
}
