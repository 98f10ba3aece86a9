//! The memory window: the most recent output of a running process, in a ring that grows as
//! needed up to its ceiling and is freed at the end. Constant work per byte pushed.

use crate::budget::{Budget, Share};

/// The first allocation, bytes: what a window may always have.
const FIRST_BYTES: usize = 4096;
/// Bytes before the window that are kept too, if the budget has room: who reads its first byte as
/// text needs to see what came before, and should not have to open a file for it.
const CONTEXT_BYTES: usize = 4096;

/// The ring. Cursors count from the first byte ever pushed.
#[derive(Debug)]
pub struct Window {
    /// Its length is the capacity; all of it is in use once `end` has passed it.
    ring: Vec<u8>,
    /// Position in the ring of the byte at `end`.
    head: usize,
    len: usize,
    end: u64,
    /// Of the window; the ring may be larger by [`CONTEXT_BYTES`].
    ceiling: usize,
    share: Option<Share>,
    budget: Budget,
}

impl Window {
    /// An empty window of at most `ceiling` bytes. Allocates nothing before the first byte.
    #[must_use]
    pub fn new(ceiling: u64, budget: Budget) -> Self {
        Self {
            ring: Vec::new(),
            head: 0,
            len: 0,
            end: 0,
            ceiling: usize::try_from(ceiling).unwrap_or(usize::MAX),
            share: None,
            budget,
        }
    }

    /// The first byte of the window.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.end - self.len.min(self.ceiling) as u64
    }

    /// The first byte in the ring: of the window, or a little before it.
    fn first(&self) -> u64 {
        self.end - self.len as u64
    }

    const fn ring_max(&self) -> usize {
        if self.ceiling == 0 { 0 } else { self.ceiling.saturating_add(CONTEXT_BYTES) }
    }

    /// Bytes ever pushed.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Adds a chunk; the oldest bytes make room where the window may not grow.
    pub fn push(&mut self, chunk: &[u8]) {
        self.end += chunk.len() as u64;
        self.make_room(chunk.len());
        let capacity = self.ring.len();
        if capacity == 0 {
            return;
        }
        let kept = chunk.get(chunk.len().saturating_sub(capacity)..).unwrap_or(chunk);
        let first = kept.len().min(capacity - self.head);
        let (left, right) = kept.split_at(first);
        self.ring[self.head..self.head + first].copy_from_slice(left);
        self.ring[..right.len()].copy_from_slice(right);
        self.head = (self.head + kept.len()) % capacity;
        self.len = (self.len + kept.len()).min(capacity);
    }

    /// Up to `max` bytes from `from` on; `None` when the ring does not reach back so far, or
    /// `from` is beyond the end.
    #[must_use]
    pub fn read(&self, from: u64, max: usize) -> Option<Vec<u8>> {
        if from < self.first() || from > self.end {
            return None;
        }
        let behind = usize::try_from(self.end - from).ok()?;
        let wanted = behind.min(max);
        let capacity = self.ring.len();
        if wanted == 0 || capacity == 0 {
            return Some(Vec::new());
        }
        let at = (self.head + capacity - behind) % capacity;
        let first = wanted.min(capacity - at);
        let mut bytes = Vec::with_capacity(wanted);
        bytes.extend_from_slice(&self.ring[at..at + first]);
        bytes.extend_from_slice(&self.ring[..wanted - first]);
        Some(bytes)
    }

    /// Gives all memory back. Cursors go on; nothing is kept from now on.
    pub fn free(&mut self) {
        self.ring = Vec::new();
        self.share = None;
        self.head = 0;
        self.len = 0;
        self.ceiling = 0;
    }

    /// Doubles the ring until `more` bytes fit, the ceiling is met or the budget has no more.
    /// Moves each byte at most once per doubling, so pushing stays constant work per byte.
    fn make_room(&mut self, more: usize) {
        let needed = self.len.saturating_add(more).min(self.ring_max());
        if needed <= self.ring.len() {
            return;
        }
        let doubled = needed.next_power_of_two().max(FIRST_BYTES);
        let held = self.ring.len();
        let budget = &self.budget;
        let share = self.share.get_or_insert_with(|| budget.share());
        // All of it, or without what may lie before the window.
        let wanted = [self.ceiling.saturating_add(CONTEXT_BYTES), self.ceiling];
        let mut wanted = wanted.map(|max| doubled.min(max)).into_iter().filter(|&it| it > held);
        let capacity = match wanted.find(|&capacity| share.try_grow((capacity - held) as u64)) {
            Some(capacity) => capacity,
            None if held == 0 => {
                let least = FIRST_BYTES.min(self.ceiling);
                share.grow(least as u64);
                least
            }
            None => return,
        };
        let mut ring = self.read(self.first(), self.len).unwrap_or_default();
        ring.resize(capacity, 0);
        self.ring = ring;
        self.head = self.len % capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_is_the_tail_of_everything_pushed(
            ceiling in 0usize..20_000,
            chunks in prop::collection::vec((any::<u8>(), 0usize..9_000), 0..12),
        ) {
            let mut window = Window::new(ceiling as u64, Budget::unlimited());
            let mut all = Vec::new();
            for (seed, len) in chunks {
                let chunk: Vec<u8> = (0..=250u8).cycle().map(|i| seed.wrapping_add(i)).take(len).collect();
                window.push(&chunk);
                all.extend_from_slice(&chunk);
                let start = all.len().saturating_sub(ceiling);
                prop_assert_eq!(window.end(), all.len() as u64);
                prop_assert_eq!(window.start(), start as u64);
                prop_assert_eq!(window.read(start as u64, usize::MAX).unwrap(), &all[start..]);
                let middle = usize::midpoint(start, all.len());
                let page = window.read(middle as u64, 100).unwrap();
                prop_assert_eq!(&page, &all[middle..(middle + 100).min(all.len())]);
                let before = start.saturating_sub(CONTEXT_BYTES);
                if let Some(page) = window.read(before as u64, usize::MAX) {
                    prop_assert_eq!(page, &all[before..], "what came before it is true too");
                }
                prop_assert!(before == 0 || window.read(before as u64 - 1, 1).is_none());
            }
        }
    }

    #[test]
    fn at_the_limit_of_the_budget_a_window_replaces_its_own_oldest_bytes() {
        let budget = Budget::new(8192);
        let mut loud = Window::new(1 << 20, budget.clone());
        loud.push(&[1; 8192]);
        let mut late = Window::new(1 << 20, budget.clone());
        late.push(&[2; 100_000]);
        assert_eq!((late.start(), late.end()), (100_000 - 4096, 100_000));
        loud.push(&[3; 10]);
        assert_eq!(loud.start(), 10);
        loud.free();
        late.free();
        assert_eq!((budget.used(), late.start()), (0, 100_000));
        late.push(b"more");
        assert_eq!(late.read(100_000, 10), None);
    }
}
