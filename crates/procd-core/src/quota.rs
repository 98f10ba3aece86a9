//! The ledger of what is reserved: running slots, memory windows and spools, per loop, session
//! and daemon. A reservation takes all of it or nothing.
//!
//! Sessions reserve full ceilings of bytes. The daemon's byte limits hold for what is really
//! used and are not part of this ledger.

use std::collections::HashMap;

use crate::ids::{Owner, SessionId};

/// The level at which a limit was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One loop of a session.
    Loop,
    /// One session.
    Session,
    /// The daemon.
    Daemon,
}

impl Scope {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Session => "session",
            Self::Daemon => "daemon",
        }
    }
}

/// What was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// No running slot is free.
    #[error("{in_use} of {max} processes of the {} are running", scope.as_str())]
    Slots {
        /// Where.
        scope: Scope,
        /// The limit, a count.
        max: u64,
        /// In use, a count.
        in_use: u64,
    },
    /// The memory ceilings of the session are all reserved.
    #[error("{in_use} of {max} bytes of memory windows of the {} are reserved", scope.as_str())]
    Memory {
        /// Where.
        scope: Scope,
        /// The limit, bytes.
        max: u64,
        /// Reserved, bytes.
        in_use: u64,
    },
    /// The spool ceilings of the session are all reserved.
    #[error("{in_use} of {max} bytes of spools of the {} are reserved", scope.as_str())]
    Spool {
        /// Where.
        scope: Scope,
        /// The limit, bytes.
        max: u64,
        /// Reserved, bytes.
        in_use: u64,
    },
    /// The ledger does not know the session.
    #[error("the session is not open")]
    NoSession,
}

impl QuotaError {
    /// The level at which there was no room.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Slots { scope, .. } | Self::Memory { scope, .. } | Self::Spool { scope, .. } => {
                scope
            }
            Self::NoSession => Scope::Session,
        }
    }
}

/// The limits of one session, after its own rules lowered the configured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Running processes of one loop, a count.
    pub running_loop_max: u64,
    /// Running processes of the session, a count.
    pub running_session_max: u64,
    /// Reserved memory windows, bytes.
    pub memory_bytes: u64,
    /// Reserved spools, bytes.
    pub spool_bytes: u64,
}

/// What one process reserves beside its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Its memory window, bytes.
    pub memory_bytes: u64,
    /// Its spool, bytes.
    pub spool_bytes: u64,
}

/// What is left for one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Slots of the loop.
    pub loop_slots: u64,
    /// Slots of the session.
    pub session_slots: u64,
    /// Slots of the daemon.
    pub daemon_slots: u64,
    /// Memory of the session, bytes.
    pub memory_bytes: u64,
    /// Spool of the session, bytes.
    pub spool_bytes: u64,
}

#[derive(Debug)]
struct SessionUse {
    limits: SessionLimits,
    running: u64,
    memory_bytes: u64,
    spool_bytes: u64,
    loops: HashMap<Owner, u64>,
}

/// Proof that room was taken; goes back by [`Ledger::release`], which consumes it.
#[must_use = "a reservation that is dropped is never given back"]
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation {
    owner: Owner,
    ceilings: Ceilings,
}

/// Who holds how much.
#[derive(Debug)]
pub struct Ledger {
    running_daemon_max: u64,
    running: u64,
    sessions: HashMap<SessionId, SessionUse>,
}

impl Ledger {
    /// An empty ledger for at most `running_daemon_max` processes.
    #[must_use]
    pub fn new(running_daemon_max: u64) -> Self {
        Self { running_daemon_max, running: 0, sessions: HashMap::new() }
    }

    /// Another limit for the whole daemon; what is reserved stays.
    pub const fn set_running_max(&mut self, running_daemon_max: u64) {
        self.running_daemon_max = running_daemon_max;
    }

    /// Makes a session known; a known one gets new limits and keeps what it holds.
    pub fn open(&mut self, session: SessionId, limits: SessionLimits) {
        self.sessions.entry(session).and_modify(|known| known.limits = limits).or_insert_with(
            || SessionUse {
                limits,
                running: 0,
                memory_bytes: 0,
                spool_bytes: 0,
                loops: HashMap::new(),
            },
        );
    }

    /// Forgets a session that holds nothing; false if it still holds something.
    pub fn close(&mut self, session: SessionId) -> bool {
        if self.sessions.get(&session).is_some_and(|known| known.running > 0) {
            return false;
        }
        self.sessions.remove(&session);
        true
    }

    /// Takes a slot of loop, session and daemon and the ceilings of one process, or nothing.
    /// # Errors
    /// [`QuotaError`] naming the narrowest limit that has no room: slots first, then memory,
    /// then spool. Source: spec, lifecycle, *Admission*.
    pub fn reserve(&mut self, owner: Owner, ceilings: Ceilings) -> Result<Reservation, QuotaError> {
        let running = self.running;
        let Some(session) = self.sessions.get_mut(&owner.session) else {
            return Err(QuotaError::NoSession);
        };
        let limits = session.limits;
        let in_loop = session.loops.get(&owner).copied().unwrap_or(0);
        let slots = [
            (Scope::Loop, limits.running_loop_max, in_loop),
            (Scope::Session, limits.running_session_max, session.running),
            (Scope::Daemon, self.running_daemon_max, running),
        ];
        for (scope, max, in_use) in slots {
            if in_use >= max {
                return Err(QuotaError::Slots { scope, max, in_use });
            }
        }
        let scope = Scope::Session;
        let memory = fits(session.memory_bytes, ceilings.memory_bytes, limits.memory_bytes)
            .map_err(|(max, in_use)| QuotaError::Memory { scope, max, in_use })?;
        let spool = fits(session.spool_bytes, ceilings.spool_bytes, limits.spool_bytes)
            .map_err(|(max, in_use)| QuotaError::Spool { scope, max, in_use })?;
        session.memory_bytes = memory;
        session.spool_bytes = spool;
        session.running += 1;
        *session.loops.entry(owner).or_insert(0) += 1;
        self.running += 1;
        Ok(Reservation { owner, ceilings })
    }

    /// Gives back what a process held.
    pub fn release(&mut self, reservation: Reservation) {
        let Reservation { owner, ceilings } = reservation;
        self.running = self.running.saturating_sub(1);
        let Some(session) = self.sessions.get_mut(&owner.session) else {
            return;
        };
        session.running = session.running.saturating_sub(1);
        session.memory_bytes = session.memory_bytes.saturating_sub(ceilings.memory_bytes);
        session.spool_bytes = session.spool_bytes.saturating_sub(ceilings.spool_bytes);
        if let Some(in_loop) = session.loops.get_mut(&owner) {
            *in_loop = in_loop.saturating_sub(1);
            if *in_loop == 0 {
                session.loops.remove(&owner);
            }
        }
    }

    /// What is left for `owner`; `None` for an unknown session.
    #[must_use]
    pub fn free(&self, owner: Owner) -> Option<Free> {
        let session = self.sessions.get(&owner.session)?;
        let limits = session.limits;
        let in_loop = session.loops.get(&owner).copied().unwrap_or(0);
        Some(Free {
            loop_slots: limits.running_loop_max.saturating_sub(in_loop),
            session_slots: limits.running_session_max.saturating_sub(session.running),
            daemon_slots: self.running_daemon_max.saturating_sub(self.running),
            memory_bytes: limits.memory_bytes.saturating_sub(session.memory_bytes),
            spool_bytes: limits.spool_bytes.saturating_sub(session.spool_bytes),
        })
    }

    /// Slots in use in the whole daemon.
    #[must_use]
    pub const fn running(&self) -> u64 {
        self.running
    }
}

/// The sum if it stays within `max`, else (max, in use).
fn fits(in_use: u64, more: u64, max: u64) -> Result<u64, (u64, u64)> {
    match in_use.checked_add(more) {
        Some(sum) if sum <= max => Ok(sum),
        Some(_) | None => Err((max, in_use)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn owner(session: u8, loop_id: u8) -> Owner {
        Owner {
            session: SessionId::new(Uuid::from_u128(u128::from(session) + 1)).unwrap(),
            loop_id: crate::LoopId::new(Uuid::from_u128(u128::from(loop_id) + 1)).unwrap(),
        }
    }

    const LIMITS: SessionLimits = SessionLimits {
        running_loop_max: 2,
        running_session_max: 3,
        memory_bytes: 100,
        spool_bytes: 1000,
    };

    proptest! {
        #[test]
        fn counters_equal_a_model_over_any_sequence(
            ops in prop::collection::vec((0u8..2, 0u8..2, any::<bool>(), 0u64..60, 0u64..500), 0..80)
        ) {
            let mut ledger = Ledger::new(5);
            ledger.open(owner(0, 0).session, LIMITS);
            ledger.open(owner(1, 0).session, LIMITS);
            let mut held: Vec<Reservation> = Vec::new();
            for (session, loop_id, take, memory_bytes, spool_bytes) in ops {
                let owner = owner(session, loop_id);
                if !take {
                    if let Some(reservation) = held.pop() {
                        ledger.release(reservation);
                    }
                    continue;
                }
                let of_session: Vec<_> =
                    held.iter().filter(|r| r.owner.session == owner.session).collect();
                let room = held.iter().filter(|r| r.owner == owner).count() < 2
                    && of_session.len() < 3
                    && held.len() < 5
                    && of_session.iter().map(|r| r.ceilings.memory_bytes).sum::<u64>()
                        + memory_bytes <= 100
                    && of_session.iter().map(|r| r.ceilings.spool_bytes).sum::<u64>()
                        + spool_bytes <= 1000;
                let answer = ledger.reserve(owner, Ceilings { memory_bytes, spool_bytes });
                prop_assert_eq!(answer.is_ok(), room);
                held.extend(answer);
            }
            for reservation in held.drain(..) {
                ledger.release(reservation);
            }
            prop_assert_eq!(ledger.running(), 0);
            let free = ledger.free(owner(0, 0)).unwrap();
            prop_assert_eq!(free.loop_slots, 2);
            prop_assert_eq!(free.memory_bytes, 100);
        }
    }

    #[test]
    fn a_refusal_names_the_narrowest_limit_and_takes_nothing() {
        let mut ledger = Ledger::new(1);
        ledger.open(owner(0, 0).session, LIMITS);
        let big = Ceilings { memory_bytes: 101, spool_bytes: 0 };
        assert!(matches!(ledger.reserve(owner(0, 0), big), Err(QuotaError::Memory { .. })));
        assert_eq!(ledger.running(), 0);
        let small = Ceilings { memory_bytes: 1, spool_bytes: 1 };
        let held = ledger.reserve(owner(0, 0), small).unwrap();
        let refused = ledger.reserve(owner(0, 1), small);
        assert_eq!(refused, Err(QuotaError::Slots { scope: Scope::Daemon, max: 1, in_use: 1 }));
        assert!(!ledger.close(owner(0, 0).session));
        ledger.release(held);
        assert!(ledger.close(owner(0, 0).session));
        assert_eq!(ledger.reserve(owner(0, 0), small), Err(QuotaError::NoSession));
    }
}
