//! Whose turn it is on the control thread. A client with a session is served whenever it has said
//! something. All others, who have shown no key yet or have made protocol errors in the last minute,
//! come one at a time, and before each of them the system is asked for the news of everybody: a
//! thousand that flood cost a good client the work for one frame of theirs, not for a thousand.

use tokio::sync::Semaphore;

/// The queue of those who come one at a time.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Turns {
    /// Waits, in the order of coming, until one more piece of work for such a client may be done
    /// now. The turn is over when this returns: what is awaited later holds up nobody.
    pub async fn next(&self) {
        let held = self.0.acquire().await;
        // Comes back after the runtime has looked for what is ready elsewhere.
        tokio::task::yield_now().await;
        drop(held);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const STRANGERS: usize = 200;
    const TURNS: usize = 5;

    #[tokio::test]
    async fn between_two_looks_at_the_others_one_stranger_is_served() {
        let (turns, served) = (Arc::new(Turns::default()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..STRANGERS {
            let (turns, served) = (turns.clone(), served.clone());
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    turns.next().await;
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut before = 0;
        while before < STRANGERS * TURNS {
            tokio::task::yield_now().await;
            let now = served.load(Ordering::Relaxed);
            assert!(now <= before + 1, "{} strangers in one turn", now - before);
            before = now;
        }
    }
}
