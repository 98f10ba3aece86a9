//! Named signals on their way to the task of a process.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::lane::{LaneReceiver, LaneSender, Unsent, lane};
use crate::supervisor::runner::{Delivered, Later, SignalRefusal, SignalTarget, Signaller};

/// Signals of one process that wait for its task, a count.
const SIGNALS_MAX: usize = 64;

/// One named signal, and where its answer goes.
#[derive(Debug)]
pub(super) struct SignalOrder {
    pub(super) signal: i32,
    pub(super) target: SignalTarget,
    pub(super) answer: oneshot::Sender<Result<Delivered, SignalRefusal>>,
}

/// The way to the task of a process.
#[derive(Debug)]
pub(super) struct SignalQueue(LaneSender<SignalOrder>);

impl SignalQueue {
    /// The way, and its end.
    pub(super) fn new() -> (Arc<Self>, LaneReceiver<SignalOrder>) {
        let (to, orders) = lane(SIGNALS_MAX);
        (Arc::new(Self(to)), orders)
    }
}

impl Signaller for SignalQueue {
    fn signal(
        &self,
        signal: i32,
        target: SignalTarget,
    ) -> Later<'_, Result<Delivered, SignalRefusal>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            match self.0.send(SignalOrder { signal, target, answer }) {
                // Its end overtook the signal: nobody was met.
                Ok(()) => answered.await.unwrap_or_else(|_ended| Ok(Delivered::default())),
                Err(Unsent::Closed) => Ok(Delivered::default()),
                Err(Unsent::Full) => Err(SignalRefusal::Busy),
            }
        })
    }
}
