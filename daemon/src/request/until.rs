//! The conditions of a wait, and how far one process has come towards them.
//! Source: spec, output, *Waiting*.

use std::time::Duration;

use procd_protocol::ErrorBody;
use procd_protocol::v1::{self, Combine, WokeBy};
use procd_store::StoreError;
use procd_text::Raw;
use tokio::time::Instant;

use super::pattern::{Backwards, Pattern, Scanner, Stuck};
use super::{invalid, millis};
use crate::drain::{Output, OutputBounds};

/// Raw bytes searched at once, on a thread that may take its time.
const BLOCK_BYTES: usize = 64 * 1024;
/// Raw bytes of a match that are shown.
pub(super) const SHOWN_BYTES_MAX: u64 = 4096;

/// The conditions of each process, and how processes go together.
#[derive(Debug, Clone)]
pub(super) struct Until {
    pattern: Option<Pattern>,
    quiet: Option<Duration>,
    bytes: Option<u64>,
    exit: bool,
    all_conditions: bool,
    pub(super) all_processes: bool,
}

impl Until {
    /// Takes over what was asked.
    /// # Errors
    /// `invalid_arguments` for a pattern that is none.
    pub(super) fn new(asked: &v1::WaitUntil) -> Result<Self, ErrorBody> {
        let until = &asked.until;
        let pattern = until.r#match.as_deref().map(Pattern::new).transpose();
        Ok(Self {
            pattern: pattern.map_err(|why| invalid("wait.until.match", why))?,
            quiet: until.quiet_ms.map(millis),
            bytes: until.bytes,
            exit: until.exit == Some(true),
            all_conditions: asked.combine == Some(Combine::All),
            all_processes: asked.wait_for == Some(Combine::All),
        })
    }
}

/// What a pattern found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Safe text of its first bytes.
    pub(super) text: String,
}

/// How one process stands towards its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// They do not hold yet.
    Open,
    /// They hold.
    Met(WokeBy),
    /// Bytes were lost before the pattern saw them.
    Gap,
}

/// One process on its way towards the conditions.
#[derive(Debug)]
pub(super) struct Watcher {
    until: Until,
    cursor: u64,
    search: Option<Search>,
    pub(super) found: Option<Found>,
    total: u64,
    quiet_since: Instant,
}

impl Watcher {
    /// Watches from `cursor` on.
    pub(super) fn new(until: &Until, cursor: u64, output: &Output, now: Instant) -> Self {
        Self {
            search: until.pattern.clone().map(|pattern| Search::new(pattern, cursor)),
            until: until.clone(),
            cursor,
            found: None,
            total: output.bounds().total,
            quiet_since: now,
        }
    }

    /// Looks at what there is now.
    /// - `is_ended`: nothing will follow.
    /// - `deadline`: after it, a long search of what came meanwhile is left.
    /// # Errors
    /// What reading gives.
    pub(super) async fn look(
        &mut self,
        output: &Output,
        is_ended: bool,
        deadline: Option<Instant>,
    ) -> Result<Progress, StoreError> {
        let bounds = output.bounds();
        if bounds.total != self.total {
            self.total = bounds.total;
            self.quiet_since = Instant::now();
        }
        if self.found.is_none()
            && let Some(search) = &mut self.search
        {
            match search.advance(output, is_ended, deadline).await? {
                Step::Nothing => {}
                Step::Gap => return Ok(Progress::Gap),
                Step::Found(found) => self.found = Some(found),
            }
        }
        Ok(self.judge(bounds, is_ended))
    }

    /// When the time of quiet is over if nothing comes, while that is what is missing.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.until.quiet.map(|quiet| self.quiet_since + quiet).filter(|&at| at > Instant::now())
    }

    fn judge(&self, bounds: OutputBounds, is_ended: bool) -> Progress {
        let until = &self.until;
        let quiet = until.quiet.map(|quiet| self.quiet_since + quiet <= Instant::now());
        let beyond = bounds.total - self.cursor.min(bounds.total);
        // In the order in which they are told.
        let conditions = [
            (until.pattern.as_ref().map(|_| self.found.is_some()), WokeBy::Match),
            (until.bytes.map(|bytes| beyond >= bytes), WokeBy::Bytes),
            (quiet, WokeBy::Quiet),
            (until.exit.then_some(is_ended), WokeBy::Exit),
        ];
        let mut asked = conditions.into_iter().filter_map(|(holds, by)| Some((holds?, by)));
        let met = if until.all_conditions {
            // The last of them is the one that was waited for longest.
            asked.try_fold(None, |_, (holds, by)| holds.then_some(Some(by))).flatten()
        } else {
            asked.find_map(|(holds, by)| holds.then_some(by))
        };
        met.map_or(Progress::Open, Progress::Met)
    }
}

/// The search for a pattern in one output.
#[derive(Debug)]
struct Search {
    pattern: Pattern,
    /// Where it began.
    base: u64,
    /// Away while a block is searched.
    scanner: Option<Scanner>,
    next: u64,
}

/// What one round of a search gave.
enum Step {
    Nothing,
    Gap,
    Found(Found),
}

impl Search {
    const fn new(pattern: Pattern, base: u64) -> Self {
        Self { pattern, base, scanner: None, next: base }
    }

    /// Searches all there is, and decides.
    async fn advance(
        &mut self,
        output: &Output,
        is_ended: bool,
        deadline: Option<Instant>,
    ) -> Result<Step, StoreError> {
        // What comes while this runs has its own wake.
        let total = output.bounds().total;
        let mut is_late = false;
        while self.next < total
            && !is_late
            && !self.scanner.as_ref().is_some_and(Scanner::has_match)
        {
            let page = output.read(self.next, BLOCK_BYTES).await?;
            if page.from != self.next {
                return Ok(Step::Gap);
            }
            self.next = page.next();
            let mut scanner = self.scanner()?;
            self.scanner =
                Some(blocking(move || scanner.feed(&page.bytes).map(|()| scanner)).await?);
            is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        }
        let mut scanner = self.scanner()?;
        let at_end = is_ended && self.next >= output.bounds().total;
        let end = scanner.settle(at_end);
        self.scanner = Some(scanner);
        match end {
            None => Ok(Step::Nothing),
            Some(end) => self.found(output, self.base + end).await,
        }
    }

    fn scanner(&mut self) -> Result<Scanner, StoreError> {
        match self.scanner.take() {
            Some(scanner) => Ok(scanner),
            None => Scanner::new(self.pattern.clone()).map_err(stuck),
        }
    }

    /// Looks for the beginning of the match that ends at `end`.
    async fn found(&self, output: &Output, end: u64) -> Result<Step, StoreError> {
        let next = output.read(end, 1).await?;
        let next = next.bytes.first().copied().filter(|_| next.from == end);
        let mut search = Backwards::new(&self.pattern, next).map_err(stuck)?;
        let mut begin = end;
        let mut is_done = false;
        while !is_done && begin > self.base {
            let from = begin.saturating_sub(super::stretch::as_u64(BLOCK_BYTES)).max(self.base);
            let length = usize::try_from(begin - from).unwrap_or(BLOCK_BYTES);
            let page = output.read(from, length).await?;
            if page.from != from || page.next() != begin {
                return Ok(Step::Gap);
            }
            begin = from;
            (is_done, search) = blocking(move || {
                let is_done = search.feed(&page.bytes)?;
                Ok((is_done, search))
            })
            .await?;
        }
        let start = end - search.finish().min(end - self.base);
        let shown = usize::try_from((end - start).min(SHOWN_BYTES_MAX)).unwrap_or(0);
        let page = output.read(start, shown).await?;
        if page.from != start {
            return Ok(Step::Gap);
        }
        let raw = Raw { bytes: &page.bytes, at_end: true, ..Raw::default() };
        let text = procd_text::render(&raw, usize::MAX).text;
        Ok(Step::Found(Found { start, end, text }))
    }
}

/// Searches on a thread that nobody waits for: a pattern may be slow, and only its caller's.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Stuck> + Send + 'static,
) -> Result<T, StoreError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| failed(std::io::Error::other(error)))?.map_err(stuck)
}

pub(super) fn stuck(_: Stuck) -> StoreError {
    failed(std::io::Error::other("the engine of patterns is stuck"))
}

fn failed(error: std::io::Error) -> StoreError {
    StoreError::io("search", std::path::Path::new("spool"), error)
}
