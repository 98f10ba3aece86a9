//! A bounded queue from one sender to one receiver that takes little memory while it is empty: a
//! channel of tokio's has room for 32 items from the start, and there are several for each process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    items_max: usize,
    /// One of the two ends is gone.
    is_closed: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that sends. Dropped, it closes the lane behind what waits.
#[derive(Debug)]
pub struct LaneSender<T>(Arc<Shared<T>>);

/// The end that receives. Dropped, it drops what waits.
#[derive(Debug)]
pub struct LaneReceiver<T>(Arc<Shared<T>>);

/// Why an item was not taken; it is gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsent {
    /// As many as may wait do wait.
    Full,
    /// Nobody receives any more.
    Closed,
}

/// A lane with room for `items_max` items.
#[must_use]
pub fn lane<T>(items_max: usize) -> (LaneSender<T>, LaneReceiver<T>) {
    let state = State { waiting: VecDeque::new(), items_max, is_closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() });
    (LaneSender(Arc::clone(&shared)), LaneReceiver(shared))
}

impl<T> LaneSender<T> {
    /// Puts an item behind the others; never waits.
    /// # Errors
    /// [`Unsent`].
    pub fn send(&self, item: T) -> Result<(), Unsent> {
        let mut state = self.0.state();
        if state.is_closed {
            return Err(Unsent::Closed);
        }
        if state.waiting.len() >= state.items_max {
            return Err(Unsent::Full);
        }
        state.waiting.push_back(item);
        drop(state);
        self.0.wake.notify_one();
        Ok(())
    }
}

impl<T> Drop for LaneSender<T> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.wake.notify_one();
    }
}

impl<T> LaneReceiver<T> {
    /// The oldest item, waiting for one; `None` once the sender is gone and nothing waits. Cancel
    /// safe.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            {
                let mut state = self.0.state();
                if let Some(item) = state.waiting.pop_front() {
                    if state.waiting.is_empty() {
                        state.waiting = VecDeque::new();
                    }
                    return Some(item);
                }
                if state.is_closed {
                    return None;
                }
            }
            // A send since the look has left its permit.
            self.0.wake.notified().await;
        }
    }
}

impl<T> Drop for LaneReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn items_come_in_order_and_the_end_behind_them() {
        let (sender, mut receiver) = lane(2);
        assert_eq!(
            (sender.send(1), sender.send(2), sender.send(3)),
            (Ok(()), Ok(()), Err(Unsent::Full))
        );
        drop(sender);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(1), Some(2)));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_waits_is_woken_by_an_item_and_by_the_end() {
        let (sender, mut receiver) = lane(10_000);
        let counting = tokio::spawn(async move {
            let mut next = 0;
            while let Some(item) = receiver.recv().await {
                assert_eq!(item, next);
                next += 1;
            }
            next
        });
        for item in 0..10_000 {
            sender.send(item).unwrap();
            if item % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        drop(sender);
        assert_eq!(counting.await.unwrap(), 10_000);
    }

    #[test]
    fn what_waits_goes_with_its_receiver() {
        let (sender, receiver) = lane(2);
        let held = Arc::new(());
        sender.send(Arc::clone(&held)).unwrap();
        drop(receiver);
        assert_eq!((Arc::strong_count(&held), sender.send(held)), (1, Err(Unsent::Closed)));
    }
}
