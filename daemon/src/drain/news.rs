//! News of outputs for whoever keeps their records: which ones changed in a way that is to be
//! recorded. Each waits at most once, so the queue is bounded by their number; who is told looks
//! at the output itself, so nothing is lost when two changes are told as one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use procd_core::Handle;
use tokio::sync::Notify;

/// The queue. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SpoolNews(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<VecDeque<(Handle, Arc<AtomicBool>)>>,
    wake: Notify,
}

/// The way of one output into the queue.
#[derive(Debug)]
pub struct NewsLine {
    news: SpoolNews,
    name: Handle,
    waits: Arc<AtomicBool>,
}

impl SpoolNews {
    /// A way for the output called `name`.
    #[must_use]
    pub fn line(&self, name: Handle) -> NewsLine {
        NewsLine { news: self.clone(), name, waits: Arc::default() }
    }

    /// The next output that changed. For one consumer only; cancel safe.
    pub async fn next(&self) -> Handle {
        loop {
            let first = self.waiting(VecDeque::pop_front);
            if let Some((name, waits)) = first {
                // Before the look: a change behind it waits anew.
                waits.store(false, Ordering::Release);
                return name;
            }
            self.0.wake.notified().await;
        }
    }

    fn waiting<T>(&self, look: impl FnOnce(&mut VecDeque<(Handle, Arc<AtomicBool>)>) -> T) -> T {
        look(&mut self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl NewsLine {
    /// The output it is of.
    pub(super) const fn name(&self) -> Handle {
        self.name
    }

    /// Something changed. Never waits.
    pub(super) fn tell(&self) {
        if !self.waits.swap(true, Ordering::AcqRel) {
            self.news.waiting(|waiting| waiting.push_back((self.name, self.waits.clone())));
            self.news.0.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_output_waits_once_and_again_after_it_was_looked_at() {
        let news = SpoolNews::default();
        let (one, two) = (Handle::from_bytes([1; 16]), Handle::from_bytes([2; 16]));
        let (first, second) = (news.line(one), news.line(two));
        first.tell();
        second.tell();
        first.tell();
        assert_eq!((news.next().await, news.next().await), (one, two));
        assert!(news.waiting(|waiting| waiting.is_empty()));
        first.tell();
        assert_eq!(news.next().await, one);
    }
}
