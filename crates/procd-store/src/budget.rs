//! A limit on what is really used, shared by all memory windows or all spools of the daemon.
//! At the limit nothing is refused and nothing hurt: whoever asks for more makes do with what
//! it has and replaces its own oldest bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::BALLAST_BYTES;

/// A shared limit, bytes.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    max: AtomicU64,
    used: AtomicU64,
    ballast: Option<PathBuf>,
}

impl Budget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                max: AtomicU64::new(max),
                used: AtomicU64::new(0),
                ballast: None,
            }),
        }
    }

    /// A budget on the disk whose ballast is this file: while it is given up, its room is for
    /// records and nothing else.
    #[must_use]
    pub fn beside_ballast(max: u64, ballast: PathBuf) -> Self {
        let ballast = Some(ballast);
        Self {
            shared: Arc::new(Shared { max: AtomicU64::new(max), used: AtomicU64::new(0), ballast }),
        }
    }

    /// A budget that never runs out.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Another limit, for what is asked for from now on.
    pub fn set_max(&self, max: u64) {
        self.shared.max.store(max, Ordering::Relaxed);
    }

    /// Bytes in use by all shares.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// A share that holds nothing yet; it gives back what it took when dropped.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

/// What one window or spool holds of a budget.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: u64,
}

impl Share {
    /// Takes `bytes` more if the budget has them.
    #[must_use]
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let max = self.budget.shared.max.load(Ordering::Relaxed);
        let sum = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= max);
        let used = &self.budget.shared.used;
        let taken = used.try_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Takes `bytes` more whatever the limit says: the least that everybody may have.
    pub fn grow(&mut self, bytes: u64) {
        self.budget.shared.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Gives back `bytes` of what it took, for something that could not be made after all.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.budget.shared.used.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }

    /// Bytes of the disk that are not for output, however free they look.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let ballast = self.budget.shared.ballast.as_ref();
        if ballast.is_some_and(|path| !path.exists()) { BALLAST_BYTES } else { 0 }
    }

    /// Bytes held.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stop_at_the_limit_and_give_back_what_they_took() {
        let budget = Budget::new(10);
        let mut first = budget.share();
        let mut second = budget.share();
        assert!(first.try_grow(7));
        assert!(!second.try_grow(4));
        second.grow(4);
        assert_eq!((first.bytes(), second.bytes(), budget.used()), (7, 4, 11));
        drop(second);
        assert!(first.try_grow(3));
        first.shrink(1);
        assert_eq!((first.bytes(), budget.used()), (9, 9));
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
