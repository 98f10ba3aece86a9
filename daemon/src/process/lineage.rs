//! Who of those that connect is itself supervised: told by control group, else by ancestry.
//! Source: spec, protocol, *Who may connect*; law 11.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use procd_sys::containment::Containment;
use procd_sys::peer::{Peer, Standing};

use crate::supervisor::runner::{Kinship, Lineage};

/// The trees of this daemon, as far as a connector may turn out to be of one.
#[derive(Debug)]
pub(super) struct Trees {
    /// The payload group of tier 1, as /proc shows it.
    payload: Option<String>,
    /// This daemon: everything supervised descends from it, through the guardian or without.
    own: i32,
    running: Mutex<HashMap<u64, Tree>>,
}

#[derive(Debug, Default)]
struct Tree {
    may_connect: bool,
    /// Tier 2, once it is known.
    shim: Option<i32>,
}

/// The name of the leaf of a process.
pub(super) use procd_sys::cgroup::leaf_name;

impl Trees {
    pub(super) fn new(containment: &Containment) -> Self {
        Self {
            payload: containment.payload().map(|payload| payload.proc_path().to_owned()),
            own: rustix::process::getpid().as_raw_nonzero().get(),
            running: Mutex::default(),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut HashMap<u64, Tree>) -> T) -> T {
        look(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a tree from before its spawn until the value is dropped.
    pub(super) fn grow(self: &Arc<Self>, key: u64, may_connect: bool) -> Grown {
        self.with(|running| running.insert(key, Tree { may_connect, shim: None }));
        Grown { trees: Arc::clone(self), key }
    }

    fn of_shim(&self, standing: &Standing) -> Kinship {
        self.with(|running| {
            let known =
                running.values().find(|tree| tree.shim.is_some_and(|shim| standing.is_below(shim)));
            let is_to_come = |tree: &Tree| tree.may_connect && tree.shim.is_none();
            match known {
                Some(tree) => Kinship::Supervised { may_connect: tree.may_connect },
                None if self.payload.is_none() && running.values().any(is_to_come) => {
                    Kinship::Unsettled
                }
                None => Kinship::Supervised { may_connect: false },
            }
        })
    }
}

impl Lineage for Trees {
    fn judge(&self, peer: &Peer) -> Kinship {
        let Some(standing) = peer.standing() else {
            return match self.with(|running| running.is_empty()) {
                true => Kinship::Stranger,
                false => Kinship::Unknown,
            };
        };
        let leaf = self.payload.as_deref().and_then(|payload| standing.leaf_in(payload));
        if let Some(leaf) = leaf {
            let may_connect = self.with(|running| {
                let mut trees = running.iter();
                trees.any(|(&key, tree)| tree.may_connect && leaf_name(key) == leaf)
            });
            return Kinship::Supervised { may_connect };
        }
        if standing.is_below(self.own) { self.of_shim(&standing) } else { Kinship::Stranger }
    }
}

/// A tree that counts.
#[derive(Debug)]
pub(super) struct Grown {
    trees: Arc<Trees>,
    key: u64,
}

impl Grown {
    /// The shim of the tree is this process.
    pub(super) fn shim_is(&self, pid: i32) {
        self.trees.with(|running| {
            if let Some(tree) = running.get_mut(&self.key) {
                tree.shim = Some(pid);
            }
        });
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        self.trees.with(|running| running.remove(&self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(payload: Option<&str>) -> Arc<Trees> {
        let payload = payload.map(str::to_owned);
        Arc::new(Trees { payload, own: 100, running: Mutex::default() })
    }

    fn below(line: &[i32]) -> Standing {
        Standing { group: None, line: line.to_vec() }
    }

    #[test]
    fn a_tree_is_told_by_its_shim_and_counts_only_while_it_grows() {
        let trees = trees(None);
        let (plain, allowed) = (trees.grow(1, false), trees.grow(2, true));
        plain.shim_is(11);
        // Its shim is not known yet, and it may be the one.
        assert_eq!(trees.of_shim(&below(&[9, 12, 100])), Kinship::Unsettled);
        allowed.shim_is(12);
        let supervised = |may_connect| Kinship::Supervised { may_connect };
        assert_eq!(trees.of_shim(&below(&[9, 12, 100])), supervised(true));
        assert_eq!(trees.of_shim(&below(&[9, 11, 100])), supervised(false));
        assert_eq!(trees.of_shim(&below(&[9, 100])), supervised(false));
        drop(allowed);
        assert_eq!(trees.of_shim(&below(&[9, 12, 100])), supervised(false));
    }
}
