//! What all connections share: room for requests, and for replies that wait to be sent. When
//! the room for replies is full, the client with the most of it is closed first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use procd_protocol::limits::{FRAME_BYTES_MAX, REPLY_BYTES_DAEMON_MAX, REQUEST_BYTES_DAEMON_MAX};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::turns::Turns;
use super::{as_count, frames};

/// After the first long reply: how long until the memory of those that were is given back.
const BURST: Duration = Duration::from_secs(1);

/// The daemon's budgets for its connections.
#[derive(Debug)]
pub struct Budgets {
    pub(super) requests: Arc<Semaphore>,
    pub(super) replies: Arc<ReplyBudget>,
    /// The right to read a long frame: of one at a time.
    pub(super) long_frames: Semaphore,
    /// The turns of those who have shown nothing yet.
    pub turns: Turns,
}

impl Budgets {
    /// - `connections_max`: each of so many has a small part of the room for requests for itself.
    #[must_use]
    pub fn new(connections_max: u64) -> Self {
        let own = as_count(connections_max).saturating_mul(frames::OWN_BYTES);
        let shared = as_count(REQUEST_BYTES_DAEMON_MAX).saturating_sub(own);
        Self {
            // The longest frame must fit, however many connections there may be.
            requests: Arc::new(Semaphore::new(shared.max(as_count(FRAME_BYTES_MAX)))),
            replies: Arc::new(ReplyBudget::new(as_count(REPLY_BYTES_DAEMON_MAX))),
            long_frames: Semaphore::new(1),
            turns: Turns::default(),
        }
    }
}

/// Room for replies over all connections, bytes.
#[derive(Debug)]
pub(super) struct ReplyBudget {
    max: usize,
    accounts: Mutex<Accounts>,
    freed: Notify,
    /// The memory of long replies will be given back.
    gives_back: AtomicBool,
}

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    total: usize,
    open: HashMap<u64, Account>,
}

#[derive(Debug)]
struct Account {
    bytes: usize,
    closing: CancellationToken,
}

impl ReplyBudget {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            accounts: Mutex::default(),
            freed: Notify::new(),
            gives_back: AtomicBool::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A long reply was built. A while after the first of a burst the free memory that it left is
    /// given back, once: the allocator would keep it for as long as the daemon runs.
    pub(super) fn note_long(self: &Arc<Self>) {
        if self.gives_back.swap(true, Ordering::AcqRel) {
            return;
        }
        let budget = Arc::clone(self);
        drop(tokio::spawn(async move {
            tokio::time::sleep(BURST).await;
            budget.gives_back.store(false, Ordering::Release);
            drop(tokio::task::spawn_blocking(procd_sys::memory::give_back));
        }));
    }

    /// An account for one connection; `closing` closes it.
    pub(super) fn open(self: &Arc<Self>, closing: CancellationToken) -> ReplyAccount {
        let mut accounts = self.lock();
        let number = accounts.next;
        accounts.next += 1;
        accounts.open.insert(number, Account { bytes: 0, closing });
        ReplyAccount { budget: self.clone(), number }
    }
}

/// One connection's part of the budget.
#[derive(Debug)]
pub(super) struct ReplyAccount {
    budget: Arc<ReplyBudget>,
    number: u64,
}

impl ReplyAccount {
    /// See [`ReplyBudget::note_long`].
    pub(super) fn note_long(&self) {
        self.budget.note_long();
    }

    /// Takes room, waiting until the fullest client is closed if there is none.
    pub(super) async fn charge(&self, bytes: usize) -> Charge {
        loop {
            let freed = self.budget.freed.notified();
            if let Some(charge) = self.try_charge(bytes) {
                return charge;
            }
            let fullest = {
                let accounts = self.budget.lock();
                let fullest = accounts.open.values().max_by_key(|account| account.bytes);
                fullest.map(|account| account.closing.clone())
            };
            if let Some(closing) = fullest.filter(|closing| !closing.is_cancelled()) {
                tracing::warn!("replies of all clients fill their room; the fullest is closed");
                closing.cancel();
            }
            freed.await;
        }
    }

    /// Takes room if there is some.
    pub(super) fn try_charge(&self, bytes: usize) -> Option<Charge> {
        let mut accounts = self.budget.lock();
        let total = accounts.total.checked_add(bytes).filter(|&total| total <= self.budget.max)?;
        accounts.total = total;
        if let Some(account) = accounts.open.get_mut(&self.number) {
            account.bytes += bytes;
        }
        Some(Charge { budget: self.budget.clone(), number: self.number, bytes })
    }
}

impl Drop for ReplyAccount {
    fn drop(&mut self) {
        self.budget.lock().open.remove(&self.number);
    }
}

/// Room taken, given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<ReplyBudget>,
    number: u64,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut accounts = self.budget.lock();
        accounts.total = accounts.total.saturating_sub(self.bytes);
        if let Some(account) = accounts.open.get_mut(&self.number) {
            account.bytes = account.bytes.saturating_sub(self.bytes);
        }
        drop(accounts);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn when_the_room_is_full_the_fullest_client_is_closed_and_the_next_goes_on() {
        let budget = Arc::new(ReplyBudget::new(100));
        let (loud_closing, quiet_closing) = (CancellationToken::new(), CancellationToken::new());
        let loud = budget.open(loud_closing.clone());
        let quiet = budget.open(quiet_closing.clone());
        let held = loud.charge(80).await;
        let mine = quiet.charge(10).await;
        let waiting = quiet.charge(50);
        tokio::pin!(waiting);
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), &mut waiting).await;
        assert!(early.is_err());
        assert!(loud_closing.is_cancelled() && !quiet_closing.is_cancelled());
        drop(held);
        drop((waiting.await, mine));
        assert_eq!(budget.lock().total, 0);
    }
}
