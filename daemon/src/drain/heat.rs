//! How hot a stream is, and what that is worth. A stream that fills its pipe gets a larger one:
//! reader and writer then run side by side instead of in lockstep. One that wakes its reader for
//! a handful of bytes tens of thousands of times a second is left to gather for half a
//! millisecond each time it runs empty. Anything slower is read at once.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use tokio::time::Instant;

/// The sizes asked for, bytes, largest first. Without privilege only 64 pipes of a user may have
/// the first; what is refused is done without.
const PIPE_BYTES: [usize; 2] = [1024 * 1024, 256 * 1024];
/// A read of so many bytes, at least, came from a pipe that was about to be full.
const LARGE_READ_BYTES: usize = 32 * 1024;
/// So many large reads in a row make a stream worth a larger pipe.
const LARGE_READS: u32 = 4;
/// A pipe that was run empty by fewer bytes gave them in small pieces.
const SMALL_BURST_BYTES: usize = 8 * 1024;
/// So many small bursts within [`CHATTY_WITHIN`] make a stream chatty: far more than a client that
/// answers each line could cause.
const SMALL_BURSTS: u32 = 64;
const CHATTY_WITHIN: Duration = Duration::from_millis(1);
/// How long a chatty stream is left to gather.
const REST: Duration = Duration::from_micros(500);
/// Gathering needs a pipe of so many bytes, else it throttles the writer.
const GATHER_BYTES: usize = 256 * 1024;
/// A rest that gathered less is not worth it.
const GATHERED_BYTES_MIN: usize = 64;
/// A stream that was quiet for so long is cold again.
const QUIET: Duration = Duration::from_millis(10);

/// What is known of a stream.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// Of the pipe; 0 until it was asked for.
    pipe_bytes: usize,
    /// A larger pipe was asked for, once for good.
    grown: bool,
    large_reads: u32,
    small_bursts: u32,
    first_small_burst: Option<Instant>,
    /// Bytes since the pipe was empty last.
    burst_bytes: usize,
    last_bytes: Option<Instant>,
    chatty: bool,
}

impl Heat {
    /// A read gave `len` bytes.
    pub(super) fn note_bytes(&mut self, len: usize, now: Instant) {
        let last = self.last_bytes.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) >= QUIET) {
            self.cool();
        }
        self.burst_bytes += len;
        self.large_reads = if len >= LARGE_READ_BYTES { self.large_reads + 1 } else { 0 };
    }

    /// The pipe is empty. Returns until when to leave it alone.
    pub(super) fn note_empty(&mut self, now: Instant) -> Option<Instant> {
        let burst = std::mem::take(&mut self.burst_bytes);
        if burst == 0 {
            return None;
        }
        if self.chatty {
            self.chatty = burst >= GATHERED_BYTES_MIN && burst < self.pipe_bytes / 4 * 3;
        } else if burst >= SMALL_BURST_BYTES {
            self.small_bursts = 0;
        } else {
            self.note_small_burst(now);
        }
        self.chatty.then(|| now + REST)
    }

    /// Whether a larger pipe is worth asking for.
    pub(super) const fn wants_to_grow(&self) -> bool {
        !self.grown && (self.large_reads >= LARGE_READS || self.small_bursts >= SMALL_BURSTS)
    }

    /// Asks for a larger pipe, once.
    pub(super) fn grow(&mut self, pipe: impl AsFd) {
        self.grown = true;
        self.pipe_bytes = fcntl_getpipe_size(&pipe).unwrap_or(0);
        for bytes in PIPE_BYTES {
            if bytes <= self.pipe_bytes {
                return;
            }
            if let Ok(bytes) = fcntl_setpipe_size(&pipe, bytes) {
                self.pipe_bytes = bytes;
                return;
            }
        }
    }

    fn note_small_burst(&mut self, now: Instant) {
        if self.small_bursts == 0 {
            self.first_small_burst = Some(now);
        }
        self.small_bursts += 1;
        if self.small_bursts < SMALL_BURSTS {
            return;
        }
        let first = self.first_small_burst.unwrap_or(now);
        if now.saturating_duration_since(first) > CHATTY_WITHIN {
            self.small_bursts = 0;
        } else if self.grown {
            self.small_bursts = 0;
            self.chatty = self.pipe_bytes >= GATHER_BYTES;
        }
    }

    const fn cool(&mut self) {
        self.large_reads = 0;
        self.small_bursts = 0;
        self.chatty = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(heat: &mut Heat, len: usize, now: Instant) -> Option<Instant> {
        heat.note_bytes(len, now);
        heat.note_empty(now)
    }

    fn large_pipe() -> Heat {
        Heat { pipe_bytes: 1 << 20, grown: true, ..Heat::default() }
    }

    #[test]
    fn only_a_storm_of_small_bursts_is_left_to_gather() {
        let start = Instant::now();
        let mut slow = large_pipe();
        for i in 0..1_000 {
            let now = start + Duration::from_micros(100) * i;
            assert_eq!(burst(&mut slow, 80, now), None);
        }
        let mut fast = large_pipe();
        let mut rests = Vec::new();
        for i in 0..64 {
            rests.push(burst(&mut fast, 80, start + Duration::from_micros(4) * i));
        }
        assert_eq!(rests.iter().flatten().count(), 1);
        let now = start + Duration::from_millis(1);
        assert_eq!(burst(&mut fast, 60_000, now), Some(now + REST));
        assert_eq!(burst(&mut fast, 900_000, now), None, "a writer must not be throttled");
    }

    #[test]
    fn a_quiet_stream_is_read_at_once_again() {
        let start = Instant::now();
        let mut heat = Heat { chatty: true, ..large_pipe() };
        heat.last_bytes = Some(start);
        assert_eq!(burst(&mut heat, 80, start + QUIET), None);
    }

    #[test]
    fn large_reads_ask_for_a_larger_pipe_once() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut heat = Heat::default();
        let now = Instant::now();
        for _ in 0..3 {
            heat.note_bytes(65_536, now);
            assert!(!heat.wants_to_grow());
        }
        heat.note_bytes(65_536, now);
        assert!(heat.wants_to_grow());
        heat.grow(&reader);
        assert!(!heat.wants_to_grow());
        assert!(fcntl_getpipe_size(&reader).unwrap() >= 65_536);
    }
}
