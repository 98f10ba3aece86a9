//! What every request may need to know of the daemon: fixed facts, how far the start has come,
//! and how to ask for its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procd_core::Tier;
use procd_core::settings::Limits;
use procd_protocol::limits;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::config::{ConfigError, Live, Reloaded};
use crate::drain::Places;
use crate::supervisor::Supervisor;

/// What does not change while the daemon runs.
#[derive(Debug, Clone)]
pub struct Facts {
    /// How trees are held together here; none = every start is refused.
    pub tier: Option<Tier>,
    /// What the tier guarantees, a sentence each.
    pub guarantees: Vec<String>,
    /// This run.
    pub instance_id: Uuid,
    /// This boot.
    pub boot_id: Uuid,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// That everything ends with the login, where that is so.
    pub lingering_hint: Option<String>,
    /// The format of the state folder.
    pub state_format: u32,
    /// Processes that were found outside every tree and killed, so far.
    pub escaped: Arc<AtomicU64>,
}

/// What a restore has found, so far or in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreFacts {
    /// Records read.
    pub records: u64,
    /// Sessions found.
    pub sessions: u64,
    /// Processes that became `lost_on_restore`.
    pub lost: Vec<procd_core::Handle>,
    /// What is damaged, and why it counts as damaged.
    pub damage: Vec<(String, String)>,
    /// How long it took.
    pub took: Duration,
}

/// How far the daemon is.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Only `hello` and `daemon/status` are answered.
    Restoring(RestoreFacts),
    /// Everything is answered.
    Serving(Supervisor, Arc<RestoreFacts>),
}

/// The wish that the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// In place of the configured graceful period.
    pub grace: Option<Duration>,
}

/// The daemon as its requests see it.
#[derive(Debug)]
pub struct Daemon {
    /// What does not change.
    pub facts: Facts,
    /// The configuration in force.
    pub settings: Arc<Live>,
    /// The clock.
    pub clock: Clock,
    /// When it started.
    pub started: Instant,
    /// How far it is.
    pub stage: watch::Receiver<Stage>,
    /// Asks for the end. One wish is enough: a full queue holds one already.
    pub shutdown: mpsc::Sender<Shutdown>,
    /// Cancelled when everything is stopped: waits come back, then the sockets close.
    pub ending: CancellationToken,
    /// Open connections.
    pub connections: Arc<AtomicU64>,
    /// The threads that drain, for those who wait for output.
    pub drains: Option<Places>,
}

impl Daemon {
    /// The limits of the configuration in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.settings.current().limits.clone()
    }

    /// Every limit by name: of the protocol, then of the configuration.
    #[must_use]
    pub fn all_limits(&self) -> BTreeMap<String, u64> {
        let own = self.limits();
        let protocol = limits::TABLE.iter().map(|limit| (limit.name.to_owned(), limit.value));
        let configured =
            Limits::KEYS.iter().map(|&key| (key.to_owned(), own.get(key).unwrap_or_default()));
        protocol.chain(configured).collect()
    }

    /// Reads the configuration again: a good one holds for new starts, a bad one changes nothing.
    /// # Errors
    /// What is wrong with it. `None`: the daemon ends.
    pub async fn reload(&self) -> Result<Reloaded, Option<ConfigError>> {
        let settings = self.settings.clone();
        let read = tokio::task::spawn_blocking(move || settings.reload()).await;
        let reloaded = match read {
            Ok(Ok(reloaded)) => reloaded,
            Ok(Err(error)) => {
                let cause: &dyn std::error::Error = &error;
                tracing::error!(cause, "the configuration is bad: the old one is kept");
                return Err(Some(error));
            }
            Err(_ended) => return Err(None),
        };
        let stage = self.stage.borrow().clone();
        if let Stage::Serving(supervisor, _) = stage {
            supervisor.configure(Arc::new(reloaded.config.limits.clone())).await;
        }
        let Reloaded { changed, at_next_start, .. } = &reloaded;
        tracing::info!(?changed, ?at_next_start, "the configuration was read again");
        Ok(reloaded)
    }

    /// The supervisor, once the restore is over; `None` when the daemon ends before.
    pub(super) async fn serving(&self) -> Option<Supervisor> {
        let mut stage = self.stage.clone();
        let over = stage.wait_for(|stage| matches!(stage, Stage::Serving(..)));
        let serving = tokio::select! {
            serving = over => serving.ok()?.clone(),
            () = self.ending.cancelled() => return None,
        };
        match serving {
            Stage::Serving(supervisor, _) => Some(supervisor),
            Stage::Restoring(_) => None,
        }
    }

    /// Counts one connection until the value is dropped.
    pub(super) fn count_connection(&self) -> ConnectionCount {
        self.connections.fetch_add(1, Ordering::AcqRel);
        ConnectionCount(self.connections.clone())
    }
}

/// One open connection.
#[derive(Debug)]
pub struct ConnectionCount(Arc<AtomicU64>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
