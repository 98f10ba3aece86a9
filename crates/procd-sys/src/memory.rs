//! The memory of this process.

/// Heaps of the allocator, a count. It would make one for each of many short-lived threads, and
/// keeps the end of each for ever; two are enough for buffers that are large and few.
const HEAPS_MAX: i32 = 2;

/// Has the threads share few heaps. To be called before there is a second thread.
pub fn share_heaps() {
    crate::raw::limit_heaps(HEAPS_MAX);
}

/// Gives free memory back to the system that the allocator keeps for later: after a burst of large
/// buffers that may be most of what the process holds. Takes milliseconds; where the allocator
/// cannot be told, nothing.
pub fn give_back() {
    crate::raw::give_back_memory();
}
