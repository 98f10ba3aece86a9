//! The order in which waiting starts and leases get what they wait for: first come, first
//! served, among those whose own scopes have room. A waiter holds nothing.
//!
//! ```text
//! a waiter that finds its loop, session or the daemon full holds up later ones of that scope,
//! and nobody else; one that finds a workspace taken holds up later claims that do not go with
//! its own, and nobody else
//! ```
//! Source: spec, lifecycle, *Admission, Queue*; events, *Leases*.

use std::collections::{BTreeMap, HashMap};

use crate::ids::{Handle, Owner, SessionId};
use crate::lease::{Claim, Held, Holder, LeaseNumber, Leases};
use crate::quota::{Ceilings, Ledger, QuotaError, Reservation, Scope};

/// What a waiter wants, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// For whom.
    pub owner: Owner,
    /// A running slot and these ceilings; a client's lease needs none.
    pub ceilings: Option<Ceilings>,
    /// A claim on a workspace.
    pub claim: Option<Claim>,
}

/// What a waiter got.
#[must_use = "what was taken is to be given back"]
#[derive(Debug, PartialEq, Eq)]
pub struct Granted {
    /// The slot.
    pub reservation: Option<Reservation>,
    /// The claim.
    pub lease: Option<LeaseNumber>,
}

/// What was missing at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Room.
    Quota(QuotaError),
    /// The workspace is taken.
    Busy {
        /// By this process, if the one who wants it owns it.
        by: Option<Handle>,
        /// By a lease of the very same owner's client: waiting may be for ever.
        is_own_client: bool,
    },
}

#[derive(Debug)]
struct Waiter {
    wanted: Wanted,
    missing: Option<Missing>,
}

/// Those who wait, by the order of their coming.
#[derive(Debug, Default)]
pub struct Line {
    waiting: BTreeMap<u64, Waiter>,
    starts: HashMap<SessionId, u64>,
}

/// What earlier waiters found taken, during one pass.
#[derive(Debug, Default)]
struct Blocked {
    scopes: HashMap<Level, QuotaError>,
    claims: Vec<Claim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Level {
    Loop(Owner),
    Session(SessionId),
    Daemon,
}

impl Line {
    /// A new waiter behind all others. `number` goes up from call to call.
    pub fn enter(&mut self, number: u64, wanted: Wanted) {
        if wanted.ceilings.is_some() {
            *self.starts.entry(wanted.owner.session).or_insert(0) += 1;
        }
        self.waiting.insert(number, Waiter { wanted, missing: None });
    }

    /// A waiter that waits no more; what it missed last.
    pub fn leave(&mut self, number: u64) -> Option<Missing> {
        let waiter = self.waiting.remove(&number)?;
        if waiter.wanted.ceilings.is_some()
            && let Some(count) = self.starts.get_mut(&waiter.wanted.owner.session)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.starts.remove(&waiter.wanted.owner.session);
            }
        }
        waiter.missing
    }

    /// Starts of a session that wait.
    #[must_use]
    pub fn starts_of(&self, session: SessionId) -> u64 {
        self.starts.get(&session).copied().unwrap_or(0)
    }

    /// What a waiter missed at the last pass.
    #[must_use]
    pub fn missing(&self, number: u64) -> Option<Missing> {
        self.waiting.get(&number).and_then(|waiter| waiter.missing)
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives what there is to those who wait, in order; they have left the line then.
    pub fn pass(&mut self, ledger: &mut Ledger, leases: &mut Leases) -> Vec<(u64, Granted)> {
        let mut blocked = Blocked::default();
        let mut granted = Vec::new();
        for (&number, waiter) in &mut self.waiting {
            match blocked.look(&waiter.wanted, ledger, leases) {
                Ok(got) => granted.push((number, got)),
                Err(missing) => waiter.missing = Some(missing),
            }
        }
        for (number, _) in &granted {
            self.leave(*number);
        }
        granted
    }
}

impl Blocked {
    fn look(
        &mut self,
        wanted: &Wanted,
        ledger: &mut Ledger,
        leases: &mut Leases,
    ) -> Result<Granted, Missing> {
        let reservation = match wanted.ceilings {
            None => None,
            Some(ceilings) => Some(self.reserve(wanted.owner, ceilings, ledger)?),
        };
        match self.claim(wanted, leases) {
            Ok(lease) => Ok(Granted { reservation, lease }),
            Err(missing) => {
                if let Some(reservation) = reservation {
                    ledger.release(reservation);
                }
                Err(missing)
            }
        }
    }

    fn reserve(
        &mut self,
        owner: Owner,
        ceilings: Ceilings,
        ledger: &mut Ledger,
    ) -> Result<Reservation, Missing> {
        let own = [Level::Loop(owner), Level::Session(owner.session), Level::Daemon];
        if let Some(error) = own.iter().find_map(|level| self.scopes.get(level)) {
            return Err(Missing::Quota(*error));
        }
        ledger.reserve(owner, ceilings).map_err(|error| {
            let level = match error.scope() {
                Scope::Loop => Level::Loop(owner),
                Scope::Session => Level::Session(owner.session),
                Scope::Daemon => Level::Daemon,
            };
            self.scopes.insert(level, error);
            Missing::Quota(error)
        })
    }

    fn claim(
        &mut self,
        wanted: &Wanted,
        leases: &mut Leases,
    ) -> Result<Option<LeaseNumber>, Missing> {
        let Some(claim) = &wanted.claim else { return Ok(None) };
        let owner = wanted.owner;
        let missing = match leases.blocker(owner, claim) {
            Some(held) => Some(named(held, owner)),
            // An earlier claim waits for its turn: overtaking it could go on for ever.
            None if self.claims.iter().any(|earlier| !earlier.goes_with(claim)) => {
                Some(Missing::Busy { by: None, is_own_client: false })
            }
            None => None,
        };
        if let Some(missing) = missing {
            self.claims.push(claim.clone());
            return Err(missing);
        }
        let holder = match wanted.ceilings {
            Some(_) => Holder::Process(None),
            None => Holder::Client,
        };
        Ok(Some(leases.hold(Held { owner, holder, claim: claim.clone() })))
    }
}

/// Nothing of another owner is told.
fn named(held: &Held, asker: Owner) -> Missing {
    let is_own = held.owner == asker;
    match held.holder {
        Holder::Process(handle) => {
            Missing::Busy { by: handle.filter(|_| is_own), is_own_client: false }
        }
        Holder::Client => Missing::Busy { by: None, is_own_client: is_own },
    }
}

#[cfg(test)]
mod tests;
