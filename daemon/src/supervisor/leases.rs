//! Leases of clients. Which claims go together is `procd_core::lease`'s; here is whose they are
//! and when they end: given back, or with their connection.

use std::collections::HashMap;

use procd_core::Owner;
use procd_core::lease::{Claim, LeaseNumber, Leases as Held};
use procd_core::queue::Granted;
use uuid::Uuid;

use super::api::{Lease, Reply};
use super::queue::Wish;
use super::refusal::Refusal;
use super::runner::AskedClaim;
use super::task::Task;

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Of processes and clients.
    pub(super) held: Held,
    clients: HashMap<Uuid, ClientLease>,
}

#[derive(Debug)]
struct ClientLease {
    owner: Owner,
    connection: u64,
    number: LeaseNumber,
}

impl Task {
    /// A client wishes a lease.
    pub(super) fn acquire_lease(
        &mut self,
        owner: Owner,
        connection: u64,
        claim: Claim,
        wait: super::api::Waiting,
        reply: Reply<Lease>,
    ) {
        match self.gate(owner) {
            Ok(_) => {
                let wish = Wish::Lease { owner, claim, connection, reply };
                self.enqueue(wish, wait.ticket, wait.timeout);
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    pub(super) fn lease_granted(
        &mut self,
        owner: Owner,
        claim: Claim,
        connection: u64,
        granted: Granted,
        reply: Reply<Lease>,
    ) {
        let (Some(number), true) = (granted.lease, self.is_attached(owner.session, connection))
        else {
            self.give_back(granted);
            drop(reply.send(Err(Refusal::Withdrawn)));
            return;
        };
        let id = Uuid::new_v4();
        tracing::debug!(lease = %id, kind = ?claim.kind, "a client holds a workspace");
        if reply.send(Ok(Lease { id })).is_err() {
            // Its caller is gone: nobody knows the id.
            self.leases.held.release(number);
            return;
        }
        self.leases.clients.insert(id, ClientLease { owner, connection, number });
    }

    /// Gives a client's lease back.
    pub(super) fn release_lease(&mut self, owner: Owner, id: Uuid) -> Result<(), Refusal> {
        let is_own = self.leases.clients.get(&id).is_some_and(|lease| lease.owner == owner);
        if !is_own {
            return Err(Refusal::NotFound);
        }
        let lease = self.leases.clients.remove(&id).ok_or(Refusal::NotFound)?;
        self.leases.held.release(lease.number);
        self.serve_queue();
        Ok(())
    }

    /// The leases of a connection that is gone end with it.
    pub(super) fn end_leases_of(&mut self, connection: u64) {
        let gone = self.leases.clients.extract_if(|_, lease| lease.connection == connection);
        let numbers: Vec<LeaseNumber> = gone.map(|(_, lease)| lease.number).collect();
        for number in &numbers {
            self.leases.held.release(*number);
        }
        if !numbers.is_empty() {
            self.serve_queue();
        }
    }
}

/// Resolves a claim where waiting is allowed.
pub(super) async fn resolve(asked: AskedClaim) -> Result<Claim, Refusal> {
    let resolving = tokio::task::spawn_blocking(move || super::runner::place::claim(&asked));
    resolving.await.unwrap_or_else(|error| {
        tracing::error!(%error, "bug: resolving a claim ended by itself");
        Err(Refusal::Internal)
    })
}
