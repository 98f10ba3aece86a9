//! Looks at a running tree, for people and counts.

use std::sync::{Arc, Mutex, PoisonError};

use procd_sys::cgroup::Leaf;

use crate::supervisor::runner::{Inspector, TreeView};

/// Where the tree is seen.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// Tier 1.
    Leaf(Arc<Leaf>),
    /// Tier 2: below this shim.
    Shim(i32),
}

/// The inspector of one process; sees nothing before its spawn and after its end.
#[derive(Debug, Default)]
pub(super) struct TreeInspector {
    place: Mutex<Option<(Place, i32)>>,
}

impl TreeInspector {
    /// The tree of `leader` is seen at `place` from now on, or not any more.
    pub(super) fn show(&self, place: Option<(Place, i32)>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

impl Inspector for TreeInspector {
    fn look(&self) -> Option<TreeView> {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (place, leader) = place?;
        let tree = match place {
            Place::Leaf(leaf) => leaf.look(),
            Place::Shim(shim) => procd_sys::live_tree(shim),
        };
        let descendants = tree.pids.iter().filter(|&&pid| pid != leader).count();
        Some(TreeView {
            live_descendants: u32::try_from(descendants).unwrap_or(u32::MAX),
            pids: tree.pids,
            cpu_ms: tree.cpu_ms,
            memory_bytes: tree.memory_bytes,
        })
    }
}
