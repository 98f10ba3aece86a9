//! The memory of a shim. It is a fork of the guardian: each page of the heap that one of the two
//! writes to is one page more for every shim, a thousand times over. So a shim that has started its
//! command lets go of the heap it was born with, and works in a small space of its own from then on.
//!
//! ```text
//! daemon, guardian, shim before its fork of the leader:  the system's allocator
//! shim after it:                                         a block beside the last one; all of it
//!                                                        free again when none is in use
//! ```
//! Must not be used by a process with a second thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::raw;

/// Bytes of the space: two lists of processes that fill a pipe's worth of text. What does not fit
/// comes from the system page by page.
const SPACE_BYTES: usize = 64 * 1024;

/// The allocator of a binary that is guardian and shim too.
#[derive(Debug)]
pub struct Heap;

/// Flag, counts and blocks side by side: a shim at rest has written to the first page at most.
#[repr(C, align(4096))]
struct Space {
    /// Set for good in a shim that has left the heap.
    is_on: AtomicBool,
    /// Bytes up to the end of the last block.
    used: AtomicUsize,
    /// Blocks in use.
    blocks: AtomicUsize,
    bytes: UnsafeCell<[u8; SPACE_BYTES]>,
}

// SAFETY: the blocks are handed out in a process of one thread only, each to one owner.
unsafe impl Sync for Space {}

static SPACE: Space = Space {
    is_on: AtomicBool::new(false),
    used: AtomicUsize::new(0),
    blocks: AtomicUsize::new(0),
    bytes: UnsafeCell::new([0; SPACE_BYTES]),
};

impl Space {
    fn start(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    /// Where in the space a block lies; `None` = elsewhere.
    fn offset(&self, block: *const u8) -> Option<usize> {
        let offset = block.addr().checked_sub(self.start().addr())?;
        (offset < SPACE_BYTES).then_some(offset)
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        let base = self.start().addr();
        let used = self.used.load(Ordering::Relaxed);
        let place = (base + used).checked_next_multiple_of(layout.align());
        let fit = place.and_then(|place| {
            let offset = place - base;
            let end = offset.checked_add(layout.size())?;
            (end <= SPACE_BYTES).then_some((offset, end))
        });
        match fit {
            Some((offset, end)) => {
                self.used.store(end, Ordering::Relaxed);
                self.blocks.fetch_add(1, Ordering::Relaxed);
                self.start().wrapping_add(offset)
            }
            None if layout.align() <= raw::PAGE_BYTES => raw::map_pages(layout.size()),
            None => ptr::null_mut(),
        }
    }

    fn give_back(&self, block: *mut u8, layout: Layout) {
        match self.offset(block) {
            Some(offset) => {
                if self.blocks.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.used.store(0, Ordering::Relaxed);
                } else if offset + layout.size() == self.used.load(Ordering::Relaxed) {
                    self.used.store(offset, Ordering::Relaxed);
                }
            }
            // A block of the heap that was left is gone with it.
            None if self.is_page(block) => raw::unmap_pages(block, layout.size()),
            None => {}
        }
    }

    /// Whether a block outside the space is one of pages of its own.
    fn is_page(&self, block: *const u8) -> bool {
        block.addr().is_multiple_of(raw::PAGE_BYTES) && !raw::heap().contains(&block.addr())
    }

    /// Lets the last block grow or shrink where it is.
    fn resize(&self, block: *mut u8, layout: Layout, size: usize) -> bool {
        let Some(offset) = self.offset(block) else { return false };
        let is_last = offset + layout.size() == self.used.load(Ordering::Relaxed);
        let end = offset.saturating_add(size);
        let fits = is_last && end <= SPACE_BYTES;
        if fits {
            self.used.store(end, Ordering::Relaxed);
        }
        fits
    }
}

// SAFETY: what is handed out is the system's, or a block of the space that overlaps no other one in
// use and is aligned as asked, or whole fresh pages; nothing of it is taken back before it is
// deallocated. Nothing here panics or allocates.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if SPACE.is_on.load(Ordering::Relaxed) {
            return SPACE.take(layout);
        }
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !SPACE.is_on.load(Ordering::Relaxed) {
            // SAFETY: as our caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let block = SPACE.take(layout);
        if !block.is_null() {
            // SAFETY: a block of that size, just handed out to us alone.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if SPACE.is_on.load(Ordering::Relaxed) {
            return SPACE.give_back(block, layout);
        }
        // SAFETY: as our caller promises: it was allocated above, before the space was on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !SPACE.is_on.load(Ordering::Relaxed) {
            // SAFETY: as our caller promises.
            return unsafe { System.realloc(block, layout, size) };
        }
        if SPACE.resize(block, layout, size) {
            return block;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        let fresh = SPACE.take(wanted);
        if !fresh.is_null() {
            // SAFETY: both are valid for the smaller size, and a fresh block overlaps none.
            unsafe { fresh.copy_from_nonoverlapping(block, layout.size().min(size)) };
            SPACE.give_back(block, layout);
        }
        fresh
    }
}

/// Lets go of the heap, in a process that needs nothing of what is in it any more and has one
/// thread. Where [`Heap`] is not this binary's allocator nothing happens.
pub(crate) fn leave_heap() {
    SPACE.is_on.store(true, Ordering::Relaxed);
    let probe = std::hint::black_box(Box::new(0_u64));
    let is_ours = SPACE.blocks.load(Ordering::Relaxed) > 0;
    if !is_ours {
        SPACE.is_on.store(false, Ordering::Relaxed);
    }
    drop(probe);
    if is_ours {
        raw::drop_heap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Box<Space> {
        Box::new(Space {
            is_on: AtomicBool::new(true),
            used: AtomicUsize::new(0),
            blocks: AtomicUsize::new(0),
            bytes: UnsafeCell::new([0; SPACE_BYTES]),
        })
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_lie_side_by_side_aligned_and_are_all_free_when_none_is_in_use() {
        let space = space();
        let one = space.take(layout(3, 1));
        let two = space.take(layout(16, 16));
        assert!(two.addr().is_multiple_of(16) && two.addr() >= one.addr() + 3);
        space.give_back(one, layout(3, 1));
        assert_eq!(space.offset(space.take(layout(1, 1))), Some(space.offset(two).unwrap() + 16));
        space.give_back(two, layout(16, 16));
        assert_eq!(space.blocks.load(Ordering::Relaxed), 1);
        space.give_back(two.wrapping_add(16), layout(1, 1));
        assert_eq!(space.offset(space.take(layout(1, 1))), Some(0));
    }

    #[test]
    fn the_last_block_grows_where_it_is_and_no_other() {
        let space = space();
        let one = space.take(layout(8, 8));
        assert!(space.resize(one, layout(8, 8), 100));
        let two = space.take(layout(8, 8));
        assert!(two.addr() >= one.addr() + 100);
        assert!(!space.resize(one, layout(100, 8), 200));
        assert!(!space.resize(two, layout(8, 8), SPACE_BYTES));
    }

    #[test]
    fn what_does_not_fit_has_pages_of_its_own() {
        let space = space();
        let large = layout(SPACE_BYTES + 1, 16);
        let block = space.take(large);
        assert!(!block.is_null() && space.offset(block).is_none() && space.is_page(block));
        // SAFETY: a block of that size, of our own.
        unsafe { block.write_bytes(7, large.size()) };
        space.give_back(block, large);
        assert_eq!(space.used.load(Ordering::Relaxed), 0);
    }
}
