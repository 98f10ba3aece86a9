//! Named signals of callers: no requests to end, so they leave no mark on how an end is named.

use procd_store::record::SignalError;
use procd_sys::message::{self, Target};
use procd_sys::{Sent, Signalled, names};

use super::{Driver, Phase, SIGCONT};
use crate::process::signals::SignalOrder;
use crate::process::tree::Tree;
use crate::process::watch::TAG_NAMED;
use crate::supervisor::runner::{Delivered, SignalRefusal, SignalTarget};

const SIGSTOP: i32 = rustix::process::Signal::STOP.as_raw();

impl Driver {
    /// Sends a named signal, or asks guardian or shim to.
    pub(super) async fn on_named(&mut self, order: SignalOrder) {
        if !matches!(self.phase, Phase::Running { .. } | Phase::Over) {
            return answer(order, Signalled::default());
        }
        let SignalOrder { signal, target, .. } = order;
        let group = self.terminal.as_ref().map(|terminal| terminal.foreground());
        let target = match (target, group) {
            (SignalTarget::Leader, _) => Target::Leader,
            (SignalTarget::Tree, _) => Target::TreeExactly,
            (SignalTarget::Foreground, None) => {
                drop(order.answer.send(Err(SignalRefusal::NoTerminal)));
                return;
            }
            (SignalTarget::Foreground, Some(None)) => return answer(order, Signalled::default()),
            (SignalTarget::Foreground, Some(Some(group))) => Target::Group(group),
        };
        match (&mut self.tree, target) {
            (Tree::Group(group), Target::TreeExactly) if signal == SIGSTOP => {
                answer(order, group.freeze().await);
            }
            (Tree::Group(group), Target::TreeExactly) if signal == SIGCONT => {
                answer(order, group.resume().await);
            }
            (Tree::Group(group), Target::Group(number)) => {
                answer(order, group.signal_group(Sent::exactly(signal), number).await);
            }
            // The leader is the guardian's to signal; its members follow when that is answered.
            (Tree::Group(_), Target::Leader | Target::Tree | Target::TreeExactly) => {
                self.named.push_back(order);
                self.link.ask_signal(self.key, signal, TAG_NAMED).await;
            }
            (Tree::Shim(_), target) => {
                let request =
                    message::Request::Signal { key: self.key, signal, tag: TAG_NAMED, target };
                if self.watch.ask_shim(request) {
                    self.named.push_back(order);
                } else {
                    answer(order, Signalled::default());
                }
            }
        }
    }

    /// Guardian or shim has answered the oldest of them.
    pub(super) async fn on_named_reached(&mut self, met: Signalled) {
        let Some(order) = self.named.pop_front() else { return };
        let leader = self.live_leader();
        let others = match &mut self.tree {
            Tree::Group(group) if order.target == SignalTarget::Tree => {
                group.signal(Sent::exactly(order.signal), leader).await
            }
            Tree::Group(_) | Tree::Shim(_) => Signalled::default(),
        };
        let both = Signalled {
            delivered: met.delivered.saturating_add(others.delivered),
            refused: met.refused.saturating_add(others.refused),
            errno: if others.errno == 0 { met.errno } else { others.errno },
        };
        answer(order, both);
    }
}

/// A caller that is gone needs no answer.
fn answer(order: SignalOrder, signalled: Signalled) {
    let Signalled { delivered, refused, errno } = signalled;
    let error = (refused > 0).then(|| SignalError {
        signal: names::signal_name(order.signal),
        errno: names::errno_name(errno),
        count: refused,
    });
    let delivered = Delivered { count: delivered, errors: error.into_iter().collect() };
    drop(order.answer.send(Ok(delivered)));
}
