//! Who may write where: claims on workspaces, the table of which may be held together, and who
//! holds what. Paths are resolved before they come here; they are compared by component.
//! Source: spec, events, *Leases*.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::ids::{Handle, Owner};

/// What a claim lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// A process that only reads.
    ReadOnly,
    /// A process that writes under named paths.
    ScopedWrite,
    /// A process that writes anywhere under its root.
    BroadWrite,
    /// A client's own edits.
    StructuredWrite,
    /// A client's copy, which has to stand still.
    Snapshot,
    /// A process that claimed nothing in a session with workspaces: a broad writer towards
    /// clients, nothing towards processes.
    Unclaimed,
}

impl ClaimKind {
    /// All kinds, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::ReadOnly,
        Self::ScopedWrite,
        Self::BroadWrite,
        Self::StructuredWrite,
        Self::Snapshot,
        Self::Unclaimed,
    ];
}

/// Whether two claims whose roots meet may both be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// Also on the same paths.
    Yes,
    /// Only if no path of one equals, contains or lies in a path of the other.
    Disjoint,
    /// Never.
    No,
}

/// The compatibility table.
#[must_use]
pub const fn together(a: ClaimKind, b: ClaimKind) -> Together {
    use ClaimKind::{BroadWrite, ReadOnly, ScopedWrite, Snapshot, StructuredWrite, Unclaimed};
    match a {
        ReadOnly => Together::Yes,
        ScopedWrite => match b {
            ReadOnly | Unclaimed => Together::Yes,
            ScopedWrite | StructuredWrite => Together::Disjoint,
            BroadWrite | Snapshot => Together::No,
        },
        BroadWrite => match b {
            ReadOnly | Unclaimed => Together::Yes,
            ScopedWrite | BroadWrite | StructuredWrite | Snapshot => Together::No,
        },
        StructuredWrite => match b {
            ReadOnly => Together::Yes,
            ScopedWrite | StructuredWrite => Together::Disjoint,
            BroadWrite | Snapshot | Unclaimed => Together::No,
        },
        Snapshot => match b {
            ReadOnly | Snapshot => Together::Yes,
            ScopedWrite | BroadWrite | StructuredWrite | Unclaimed => Together::No,
        },
        Unclaimed => match b {
            ReadOnly | ScopedWrite | BroadWrite | Unclaimed => Together::Yes,
            StructuredWrite | Snapshot => Together::No,
        },
    }
}

/// A claim on a workspace, its paths resolved: absolute, links followed, no `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What for.
    pub kind: ClaimKind,
    /// The workspace.
    pub root: PathBuf,
    /// Paths inside it; none = all of it.
    pub paths: Vec<PathBuf>,
}

impl Claim {
    /// Whether both may be held.
    #[must_use]
    pub fn goes_with(&self, other: &Self) -> bool {
        if !meet(&self.root, &other.root) {
            return true;
        }
        match together(self.kind, other.kind) {
            Together::Yes => true,
            Together::No => false,
            Together::Disjoint => {
                let apart = |a: &Path| other.places().all(|b| !meet(a, b));
                self.places().all(apart)
            }
        }
    }

    fn places(&self) -> impl Iterator<Item = &Path> {
        let whole = self.paths.is_empty().then_some(self.root.as_path());
        self.paths.iter().map(PathBuf::as_path).chain(whole)
    }
}

/// Whether one path equals, contains or lies in the other, by component.
fn meet(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// The name of a lease in the table; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseNumber(u64);

/// Who holds a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A process, once it has a handle.
    Process(Option<Handle>),
    /// A client, for its own edits or copies.
    Client,
}

/// A claim that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Whose.
    pub owner: Owner,
    /// By what.
    pub holder: Holder,
    /// What is held.
    pub claim: Claim,
}

/// All claims that are held, of all sessions.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<LeaseNumber, Held>,
    last: u64,
}

impl Leases {
    /// The first claim held that does not go with `claim`; a client's own one before others,
    /// since nobody can wait for that.
    #[must_use]
    pub fn blocker(&self, owner: Owner, claim: &Claim) -> Option<&Held> {
        let blocks = |held: &&Held| !held.claim.goes_with(claim);
        let is_own = |held: &&Held| held.owner == owner && held.holder == Holder::Client;
        let mut blocking = self.held.values().filter(blocks);
        let first = blocking.next()?;
        if is_own(&first) {
            return Some(first);
        }
        Some(blocking.find(is_own).unwrap_or(first))
    }

    /// Takes a claim. The caller looked for a blocker before.
    pub fn hold(&mut self, held: Held) -> LeaseNumber {
        self.last += 1;
        let number = LeaseNumber(self.last);
        self.held.insert(number, held);
        number
    }

    /// Says which process holds a claim.
    pub fn name(&mut self, number: LeaseNumber, handle: Handle) {
        if let Some(held) = self.held.get_mut(&number) {
            held.holder = Holder::Process(Some(handle));
        }
    }

    /// Gives a claim back; false when it was given back before.
    pub fn release(&mut self, number: LeaseNumber) -> bool {
        self.held.remove(&number).is_some()
    }

    /// Claims held, a count.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests;
