//! What a process waits for, in little room: what is seldom waited for is in a box.

use std::pin::Pin;

use crate::process::signals::SignalOrder;
use crate::process::tree::Tree;
use crate::process::watch::Seen;
use crate::supervisor::runner::{Order, TreeView};

/// What happened.
pub(super) enum Event {
    Seen(Seen),
    Order(Order),
    Named(SignalOrder),
    KillDue,
    Look(Option<TreeView>),
}

/// What a wait gives that is there; without one it never ends.
pub(super) async fn of<F: Future>(wait: Option<Pin<Box<F>>>) -> F::Output {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}

/// Until a kill has been carried out, which does not keep the news of the leader's end waiting; else
/// until a tree whose leader has ended is worth another look.
pub(super) async fn changed(tree: &mut Tree, is_over: bool) {
    match tree {
        Tree::Group(group) if group.is_being_killed() => group.killed().await,
        Tree::Group(group) if is_over => group.changed().await,
        // The shim tells, or the guardian.
        Tree::Shim(_) | Tree::Group(_) => std::future::pending().await,
    }
}
