//! The output of one process: what the drain writes and everybody else reads.

use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::news::NewsLine;
use crate::metrics::METRICS;
use procd_core::{Handle, SpoolState};
use procd_store::StoreError;
use procd_store::budget::Budget;
use procd_store::spool::{
    Bounds, RawPage, Sealed, Source, SpoolOptions, SpoolReader, SpoolStatus, SpoolWriter, Tag,
};
use procd_store::window::Window;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use uuid::Uuid;

/// The daemon's limits on what is really used.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// Of all memory windows: `memory_daemon_bytes`.
    pub memory: Budget,
    /// Of all spools of running processes: `spool_daemon_bytes`.
    pub spool: Budget,
}

impl Budgets {
    /// Without limits.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { memory: Budget::unlimited(), spool: Budget::unlimited() }
    }
}

/// The ceilings of one output.
#[derive(Debug)]
pub struct DrainOptions {
    /// Of the memory window, bytes.
    pub memory_bytes: u64,
    /// Of the spool, bytes.
    pub spool_bytes: u64,
    /// The boot in which it is written.
    pub boot_id: Uuid,
    /// The limits it shares with all others.
    pub budgets: Budgets,
    /// Where to tell what is to be recorded of it.
    pub news: Option<NewsLine>,
}

/// Which bytes there are now. Cursors count from the first byte ever written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputBounds {
    /// Bytes ever written.
    pub total: u64,
    /// The first byte still kept.
    pub retained_from: u64,
    /// Whether nothing will be added any more.
    pub complete: bool,
}

/// The final figures of an output. Its spool stays with the [`Output`], to be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedOutput {
    /// The final bounds.
    pub bounds: Bounds,
    /// What became of the bytes on disk.
    pub status: SpoolStatus,
}

/// The reading side. Clones share one output.
#[derive(Debug, Clone)]
pub struct Output {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    grown: Arc<Notify>,
    spool: Spool,
    /// Whose turn it is to seal. A lock of its own: taken once, at the end.
    unsealed: Mutex<Unsealed>,
}

/// What is on disk.
#[derive(Debug)]
enum Spool {
    Readable(SpoolReader),
    Damaged { path: PathBuf, what: String },
}

#[derive(Debug)]
struct State {
    window: Window,
    spool_ceiling: u64,
    bounds: OutputBounds,
    status: SpoolStatus,
    sealed: bool,
    /// The errno of the newest write or sync that failed.
    failure: Option<i32>,
}

/// Growth of a spool between two times it is told of, bytes: 1,024 of them that grow at once are seen within 256 MiB.
const GROWTH_BYTES: u64 = 256 * 1024;

/// Who can seal.
#[derive(Debug)]
enum Unsealed {
    /// The drain still writes.
    Writing,
    /// Complete; the writer waits here.
    Complete(Box<SpoolWriter>),
    /// From an earlier daemon.
    Reopened(SpoolReader),
    /// Sealed, being sealed, or damaged.
    Nobody,
}

/// The writing side, for the drain alone.
#[derive(Debug)]
pub struct OutputWriter {
    shared: Arc<Shared>,
    /// In a box: the writer is moved through futures, which keep room for each move.
    spool: Box<SpoolWriter>,
    news: Option<NewsLine>,
    /// At this total the growth of the spool is told of next.
    tell_at: u64,
}

impl Output {
    /// A new output whose spool will be in `spool_dir`. Makes no file and takes no memory before
    /// the first byte.
    #[must_use]
    pub fn create(spool_dir: PathBuf, options: DrainOptions) -> (Self, OutputWriter) {
        let DrainOptions { memory_bytes, spool_bytes, boot_id, budgets, news } = options;
        let spool = SpoolWriter::create(
            spool_dir,
            SpoolOptions { ceiling: spool_bytes, boot_id, budget: budgets.spool },
        );
        let state = State {
            window: Window::new(memory_bytes, budgets.memory),
            spool_ceiling: spool_bytes,
            bounds: OutputBounds { total: 0, retained_from: 0, complete: false },
            status: SpoolStatus::default(),
            sealed: false,
            failure: None,
        };
        let output = Self::with(state, Spool::Readable(spool.reader()), Unsealed::Writing);
        let shared = Arc::clone(&output.shared);
        (output, OutputWriter { shared, spool: Box::new(spool), news, tell_at: GROWTH_BYTES })
    }

    /// The output of a process that an earlier daemon ran.
    /// - `total_bytes`: as its record has it; what the spool does not reach is a gap.
    /// - `sealed`: its record says so.
    #[must_use]
    pub fn reopen(reader: SpoolReader, total_bytes: u64, sealed: bool) -> Self {
        let on_disk = reader.bounds();
        let total = on_disk.total.max(total_bytes);
        let is_kept = on_disk.retained_from < on_disk.total;
        let retained_from = if is_kept { on_disk.retained_from } else { total };
        let state = State::ended(Bounds { total, retained_from }, reader.status(), sealed);
        let unsealed = if sealed { Unsealed::Nobody } else { Unsealed::Reopened(reader.clone()) };
        Self::with(state, Spool::Readable(reader), unsealed)
    }

    /// The output of a process whose spool is damaged: `bounds` as its record has them, every
    /// read is refused.
    #[must_use]
    pub fn damaged(path: &Path, what: &str, bounds: Bounds) -> Self {
        let state = State::ended(bounds, SpoolStatus::default(), false);
        let spool = Spool::Damaged { path: path.to_owned(), what: what.to_owned() };
        Self::with(state, spool, Unsealed::Nobody)
    }

    fn with(state: State, spool: Spool, unsealed: Unsealed) -> Self {
        let shared = Shared {
            state: Mutex::new(state),
            grown: Arc::new(Notify::new()),
            spool,
            unsealed: Mutex::new(unsealed),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Which bytes there are.
    #[must_use]
    pub fn bounds(&self) -> OutputBounds {
        self.shared.state().bounds
    }

    /// The state of the spool and the bytes that could not be kept on disk.
    #[must_use]
    pub fn spool_status(&self) -> (SpoolState, u64) {
        let state = self.shared.state();
        let word = match (&self.shared.spool, state.sealed, state.status.degraded) {
            (Spool::Damaged { .. }, _, _) => SpoolState::Corrupt,
            (Spool::Readable(_), true, _) => SpoolState::Sealed,
            (Spool::Readable(_), false, true) => SpoolState::Degraded,
            (Spool::Readable(_), false, false) => SpoolState::Open,
        };
        (word, state.status.lost_bytes)
    }

    /// The errno of the newest write or sync of the spool that failed.
    #[must_use]
    pub fn spool_failure(&self) -> Option<i32> {
        self.shared.state().failure
    }

    /// Completes at the next append or at the completion after this call: listen, look, await.
    /// Any number of listeners; none costs the drain next to nothing.
    pub fn listen(&self) -> Listener {
        Listener { notified: Box::pin(Arc::clone(&self.shared.grown).notified_owned()) }
    }

    /// Up to `max` bytes from `from` on: out of the memory window at once, out of the spool on a
    /// blocking thread. What is not kept any more is the page's gap; a page ends before the next.
    /// # Errors
    /// [`StoreError::CursorAhead`] beyond the total, [`StoreError::SpoolCorrupt`] for damage,
    /// [`StoreError::Io`] when a file cannot be read.
    pub async fn read(&self, from: u64, max: usize) -> Result<RawPage, StoreError> {
        let (reader, start, total) = match self.look(from, max)? {
            Look::Page(page) => return Ok(page),
            Look::Spool { reader, start, total } => (reader, start, total),
        };
        let on_disk = reader.bounds().total;
        let limit = max.min(usize::try_from(total - start).unwrap_or(usize::MAX));
        let mut page = blocking(move || reader.read(start, limit)).await??;
        page.asked = from;
        // What the disk has not may still be in memory, while the spool is degraded.
        let window_start = self.shared.state().window_start();
        if page.from > start
            && page.from >= window_start
            && window_start < total
            && let Look::Page(page) = self.look(start.max(window_start), max)?
        {
            return Ok(RawPage { asked: from, ..page });
        }
        if page.bytes.is_empty() && page.from >= on_disk {
            page.from = total;
        }
        // The spool may be ahead of what counts by the chunk that is being appended.
        page.from = page.from.min(total);
        page.bytes.truncate(usize::try_from(total - page.from).unwrap_or(usize::MAX));
        Ok(page)
    }

    /// The tags from `from` to `to`, without a break, at most `max` of them: the last one's end
    /// says how far they reach. Mixed where nobody knows.
    /// # Errors
    /// As [`Self::read`].
    pub async fn tags(&self, from: u64, to: u64, max: usize) -> Result<Vec<Tag>, StoreError> {
        let reader = self.shared.reader()?;
        if let Some(tags) = reader.tags_in_memory(from, to, max) {
            return Ok(tags);
        }
        let reader = reader.clone();
        blocking(move || reader.tags(from, to, max)).await
    }

    /// Whether some of it is, or should be, on the disk.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.bounds().total > 0
    }

    /// Seals a complete output: syncs it, makes it read-only, hashes what is retained. Once.
    /// # Errors
    /// [`StoreError::Io`]; then it can be tried again. `Ok(None)` when there is nothing to seal:
    /// not complete, sealed already, damaged.
    pub async fn seal(&self) -> Result<Option<Sealed>, StoreError> {
        let taken = {
            let mut unsealed = lock(&self.shared.unsealed);
            match &*unsealed {
                Unsealed::Writing | Unsealed::Nobody => return Ok(None),
                Unsealed::Complete(_) | Unsealed::Reopened(_) => {
                    std::mem::replace(&mut *unsealed, Unsealed::Nobody)
                }
            }
        };
        let waits = self.has_files() || matches!(taken, Unsealed::Reopened(_));
        let reader = self.shared.reader()?.clone();
        let shared = Arc::clone(&self.shared);
        let seal = move || match taken {
            Unsealed::Complete(mut writer) => match shared.save_rest(&mut writer) {
                Ok(()) => writer.seal().map_err(|error| (error, Unsealed::Reopened(reader))),
                Err(error) => Err((error, Unsealed::Complete(writer))),
            },
            Unsealed::Reopened(reader) => {
                reader.seal().map_err(|error| (error, Unsealed::Reopened(reader)))
            }
            Unsealed::Writing | Unsealed::Nobody => Err((gone(), Unsealed::Nobody)),
        };
        // Without files there is nothing to wait for, and so no reason to change threads.
        let sealed = if waits { blocking(seal).await? } else { seal() };
        match sealed {
            Ok(sealed) => {
                let mut state = self.shared.state();
                state.sealed = true;
                state.status.lost_bytes = sealed.lost_bytes;
                // What only memory had is on the disk now.
                state.window.free();
                let OutputBounds { total, retained_from, complete: _ } = state.bounds;
                Ok(Some(Sealed { bounds: Bounds { total, retained_from }, ..sealed }))
            }
            Err((error, unsealed)) => {
                *lock(&self.shared.unsealed) = unsealed;
                Err(error)
            }
        }
    }

    /// What a drain that ended by a bug leaves: what it counted.
    pub(super) fn complete_without_writer(&self) -> FinishedOutput {
        let mut state = self.shared.state();
        state.bounds.complete = true;
        state.window.free();
        let OutputBounds { total, retained_from, complete: _ } = state.bounds;
        let finished =
            FinishedOutput { bounds: Bounds { total, retained_from }, status: state.status };
        drop(state);
        if let Ok(reader) = self.shared.reader() {
            *lock(&self.shared.unsealed) = Unsealed::Reopened(reader.clone());
        }
        self.shared.grown.notify_waiters();
        finished
    }

    /// Takes a page out of the window if it is there, else says where in the spool to look.
    fn look(&self, asked: u64, max: usize) -> Result<Look, StoreError> {
        let state = self.shared.state();
        let OutputBounds { total, retained_from, .. } = state.bounds;
        if asked > total {
            return Err(StoreError::CursorAhead { cursor: asked, total });
        }
        let start = asked.max(retained_from);
        if start == total || max == 0 {
            return Ok(Look::Page(RawPage { asked, from: start, bytes: Vec::new() }));
        }
        // Of a restored output the window is empty and knows no cursor.
        if let Some(bytes) = state.window.read(start, max).filter(|bytes| !bytes.is_empty()) {
            return Ok(Look::Page(RawPage { asked, from: start, bytes }));
        }
        drop(state);
        Ok(Look::Spool { reader: self.shared.reader()?.clone(), start, total })
    }
}

/// Where a page is.
enum Look {
    /// Here it is.
    Page(RawPage),
    /// In the files.
    Spool { reader: SpoolReader, start: u64, total: u64 },
}

impl OutputWriter {
    /// The reading side.
    #[must_use]
    pub fn output(&self) -> Output {
        Output { shared: Arc::clone(&self.shared) }
    }

    /// What it is called; nobody has named it if there is no news of it.
    pub(super) fn name(&self) -> Option<Handle> {
        self.news.as_ref().map(NewsLine::name)
    }

    /// Adds a chunk: disk first, then memory and bounds, then those who listen.
    pub(super) fn append(&mut self, chunk: &[u8], source: Source, at_unix_ns: i64) {
        let bounds = self.spool.append(chunk, source, at_unix_ns);
        self.note_status();
        let mut state = self.shared.state();
        state.window.push(chunk);
        let before = state.bounds;
        let had_all = before.retained_from == 0;
        state.take_bounds(bounds);
        METRICS.drained_bytes.add(state.bounds.total.saturating_sub(before.total));
        let dropped = state.bounds.retained_from.saturating_sub(before.retained_from);
        METRICS.dropped_bytes.add(dropped);
        let is_first_gap = had_all && state.bounds.retained_from > 0;
        drop(state);
        self.shared.grown.notify_waiters();
        if is_first_gap {
            self.tell();
        }
    }

    /// Takes over how well the spool keeps its bytes: after an append, and after a sync.
    pub(super) fn note_status(&mut self) {
        let status = self.spool.status();
        let mut state = self.shared.state();
        let before = std::mem::replace(&mut state.status, status);
        // In one step: whoever sees that it is degraded sees why.
        let has_changed = status.degraded != before.degraded;
        let failure = if has_changed { self.spool.take_failure() } else { None };
        if let Some(error) = failure.as_ref().filter(|_| status.degraded) {
            state.failure = error.errno();
        }
        let (total, ceiling) = (state.bounds.total, state.spool_ceiling);
        drop(state);
        // Beyond its ceiling it takes no more of the disk.
        if total >= self.tell_at && self.tell_at <= ceiling {
            self.tell_at = total.saturating_add(GROWTH_BYTES);
            self.tell();
        }
        if has_changed {
            log_change(status, failure);
        }
        if has_changed || status.lost_bytes > before.lost_bytes {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(news) = &self.news {
            news.tell();
        }
    }

    /// The spool, for the background sync.
    pub(super) fn spool(&mut self) -> &mut SpoolWriter {
        &mut self.spool
    }

    /// Completes the output: of a start that failed before it had a stream, or at the end of the
    /// drain. The memory window is freed, unless the disk has not its bytes: then it is read from
    /// until the seal has found room for them.
    pub fn finish(self) -> FinishedOutput {
        let Self { shared, spool, news: _, tell_at: _ } = self;
        let status = spool.status();
        let is_on_disk = spool.unsaved_from().is_none();
        let mut state = shared.state();
        if is_on_disk {
            state.window.free();
        }
        state.status = status;
        state.take_bounds(spool.bounds());
        state.bounds.complete = true;
        let OutputBounds { total, retained_from, complete: _ } = state.bounds;
        let bounds = Bounds { total, retained_from };
        drop(state);
        *lock(&shared.unsealed) = Unsealed::Complete(spool);
        shared.grown.notify_waiters();
        FinishedOutput { bounds, status }
    }
}

/// Completes once when the output grew or was completed since [`Output::listen`].
#[derive(Debug)]
#[must_use = "a listener does nothing unless it is awaited"]
pub struct Listener {
    notified: Pin<Box<OwnedNotified>>,
}

impl Future for Listener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.notified.as_mut().poll(context)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Stores the end of the output that only the memory window has.
    fn save_rest(&self, writer: &mut SpoolWriter) -> Result<(), StoreError> {
        let Some(hole) = writer.unsaved_from() else { return Ok(()) };
        let (from, bytes) = {
            let state = self.state();
            let from = hole.max(state.window_start()).max(state.bounds.retained_from);
            (from, state.window.read(from, usize::MAX).unwrap_or_default())
        };
        writer.save_rest(from, &bytes)
    }

    fn reader(&self) -> Result<&SpoolReader, StoreError> {
        match &self.spool {
            Spool::Readable(reader) => Ok(reader),
            Spool::Damaged { path, what } => Err(StoreError::spool_corrupt(path, what.as_str())),
        }
    }
}

impl State {
    fn ended(bounds: Bounds, status: SpoolStatus, sealed: bool) -> Self {
        let Bounds { total, retained_from } = bounds;
        Self {
            window: Window::new(0, Budget::unlimited()),
            spool_ceiling: 0,
            bounds: OutputBounds { total, retained_from, complete: true },
            status,
            sealed,
            failure: None,
        }
    }

    /// The first byte in memory; the total when there is none, as of a restored output.
    fn window_start(&self) -> u64 {
        let is_behind = self.window.end() < self.bounds.total;
        if is_behind { self.bounds.total } else { self.window.start() }
    }

    /// Takes over the bounds of the spool. Bytes that only the memory window has count as kept,
    /// within the ceiling.
    fn take_bounds(&mut self, spool: Bounds) {
        let kept = spool.retained_from.min(self.window.start());
        let retained_from = kept.max(spool.total.saturating_sub(self.spool_ceiling));
        self.bounds = OutputBounds { total: spool.total, retained_from, complete: false };
    }
}

fn gone() -> StoreError {
    StoreError::io("seal", Path::new("spool"), std::io::ErrorKind::NotFound)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log_change(status: SpoolStatus, failure: Option<StoreError>) {
    let SpoolStatus { degraded, lost_bytes } = status;
    match failure {
        Some(error) if degraded => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "a spool is degraded: its process runs on in memory");
        }
        Some(_) | None => tracing::info!(degraded, lost_bytes, "a spool is written again"),
    }
}

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Completes `reading` on this thread, which may wait: what would else be read beside it is read
/// here, without a change of threads each.
pub fn complete_here<T>(reading: impl Future<Output = T>) -> T {
    let before = MAY_WAIT.replace(true);
    let done = tokio::runtime::Handle::current().block_on(reading);
    MAY_WAIT.set(before);
    done
}

/// Runs blocking work off the calling thread, unless that may wait itself.
async fn blocking<T, F>(work: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if MAY_WAIT.get() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|failure| {
        StoreError::io("read", Path::new("spool"), std::io::Error::other(failure))
    })
}
