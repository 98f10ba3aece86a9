//! The threads that drain: a runtime of its own each, so that what comes for one of them wakes no
//! other to compete for it, and whoever waits for an output is polled by the thread that read it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use procd_core::Handle as Name;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::pump::Pump;
use super::sync::keep_synced;

/// So many turns of drains, then it is looked who else has something to be read, a count: a turn of
/// a loud one is long.
const EVENT_INTERVAL: u32 = 8;
/// So many, then it is looked whom another thread has woken, a count: a stop waits for that.
const GLOBAL_INTERVAL: u32 = 2;

/// The threads. Dropped, each is asked to end, and not waited for: one that hangs in a write to a
/// dead disk holds up no exit.
#[derive(Debug)]
pub(super) struct Threads {
    /// Gone, they ask to end.
    _lives: Vec<oneshot::Sender<()>>,
    places: Places,
}

impl Threads {
    /// Starts `count` of them, one at least.
    /// # Errors
    /// When the system gives no thread or no epoll descriptor.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let (life, first) = one()?;
        let others = (1..count).map(|_| one()).collect::<io::Result<Vec<_>>>()?;
        let (mut lives, others): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        lives.push(life);
        Ok(Self { _lives: lives, places: Places::new(first, others) })
    }

    pub(super) const fn places(&self) -> &Places {
        &self.places
    }
}

/// A thread that drains, and has a runtime, as others see it.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) handle: Handle,
    pub(super) pump: Pump,
}

/// A thread that pumps, and runs what is given to its handle, until the sender is gone.
fn one() -> io::Result<(oneshot::Sender<()>, Arc<Thread>)> {
    let runtime = Builder::new_current_thread()
        .thread_name("procd-drain")
        .event_interval(EVENT_INTERVAL)
        .global_queue_interval(GLOBAL_INTERVAL)
        .enable_io()
        .enable_time()
        .build()?;
    let thread = Arc::new(Thread { handle: runtime.handle().clone(), pump: Pump::new()? });
    let readiness = {
        let _inside = runtime.enter();
        thread.pump.readiness()?
    };
    runtime.spawn(keep_synced(Arc::clone(&thread)));
    let (life, end) = oneshot::channel::<()>();
    let pumping = Arc::clone(&thread);
    std::thread::Builder::new().name("procd-drain".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                // It is never sent: gone is what it waits for.
                _gone = end => {}
                () = pumping.pump.run(&readiness) => {}
            }
        });
        drop(readiness);
        runtime.shutdown_background();
    })?;
    Ok((life, thread))
}

/// Which thread drains which output. Clones share it.
#[derive(Debug, Clone)]
pub struct Places(Arc<Table>);

#[derive(Debug)]
struct Table {
    first: Arc<Thread>,
    /// The first is one of them.
    threads: Vec<Arc<Thread>>,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Drains of each thread.
    counts: Vec<usize>,
    by_name: HashMap<Name, u16>,
}

impl Places {
    fn new(first: Arc<Thread>, others: Vec<Arc<Thread>>) -> Self {
        let threads: Vec<_> = std::iter::once(Arc::clone(&first)).chain(others).collect();
        let taken = Taken { counts: vec![0; threads.len()], by_name: HashMap::new() };
        Self(Arc::new(Table { first, threads, taken: Mutex::new(taken) }))
    }

    /// The thread that drains the output called `name`; any while none does.
    #[must_use]
    pub fn of(&self, name: Name) -> Option<&Handle> {
        let index = self.taken().by_name.get(&name).copied().unwrap_or_default();
        self.0.threads.get(usize::from(index)).map(|thread| &thread.handle)
    }

    /// A place on the thread with the fewest drains, kept until it is dropped.
    pub(super) fn take(&self, name: Option<Name>) -> Place {
        let mut taken = self.taken();
        let fewest = taken.counts.iter_mut().zip(0_u16..).min_by_key(|(count, _)| **count);
        let index = fewest.map_or(0, |(count, index)| {
            *count += 1;
            index
        });
        let thread = self.0.threads.get(usize::from(index)).unwrap_or(&self.0.first);
        let thread = Arc::clone(thread);
        if let Some(name) = name {
            taken.by_name.insert(name, index);
        }
        drop(taken);
        Place { places: self.clone(), thread, index, name }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Places {
    /// Turns of streams on all threads.
    pub(super) fn turns(&self) -> u64 {
        let turns =
            |thread: &Arc<Thread>| thread.pump.turns.load(std::sync::atomic::Ordering::Relaxed);
        self.0.threads.iter().map(turns).sum()
    }
}

/// The place of one drain, for its life.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    thread: Arc<Thread>,
    index: u16,
    name: Option<Name>,
}

impl Place {
    pub(super) const fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.counts.get_mut(usize::from(self.index)) {
            *count = count.saturating_sub(1);
        }
        if let Some(name) = &self.name {
            taken.by_name.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> Name {
        Name::from_bytes([number; 16])
    }

    #[test]
    fn a_drain_keeps_its_thread_and_a_new_one_goes_where_the_fewest_are() {
        let threads = Threads::new(2).unwrap();
        let places = threads.places();
        let first = places.take(Some(name(1)));
        let second = places.take(Some(name(2)));
        assert_ne!(first.index, second.index);
        assert_eq!(places.of(name(2)).unwrap().id(), second.thread().handle.id());
        let freed = first.index;
        drop(first);
        let third = places.take(Some(name(3)));
        assert_eq!(third.index, freed);
        assert_eq!(places.of(name(3)).unwrap().id(), third.thread().handle.id());
        drop((second, third));
        let taken = places.taken();
        assert_eq!((taken.counts.as_slice(), taken.by_name.len()), ([0, 0].as_slice(), 0));
    }
}
