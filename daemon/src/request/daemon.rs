//! hello, daemon/status, daemon/reload, daemon/shutdown.

use std::sync::atomic::Ordering;

use procd_core::Tier;
use procd_protocol::v1::{self, RestoreReport};
use procd_protocol::words::Open;
use procd_protocol::{Details, ErrorBody, ErrorCode, SessionId};

use super::error::process_id;
use super::facts::{Daemon, RestoreFacts, Shutdown, Stage};
use super::stretch::as_u64;
use super::{Client, Done, Reply, millis, record};
use crate::config::{ConfigError, Reloaded};
use crate::metrics::METRICS;
use crate::session::{Bound, Role};
use crate::supervisor::{Caller, ListFilter, Supervisor};

/// What this daemon is called in a hello.
const NAME: &str = "procd";
/// Its version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The versions of the protocol it speaks.
const SPOKEN: &[u32] = &[v1::VERSION];

pub(super) fn hello(
    daemon: &Daemon,
    hello: &v1::HelloParams,
) -> Result<v1::HelloResult, ErrorBody> {
    let common = SPOKEN.iter().rev().find(|version| hello.versions.contains(version));
    let Some(&version) = common else {
        let details = Details { versions: Some(SPOKEN.to_vec()), ..Details::default() };
        let text = format!("no version in common; this daemon speaks {SPOKEN:?}");
        return Err(ErrorBody::with_details(ErrorCode::UnsupportedVersion, text, details));
    };
    tracing::debug!(client = hello.client.name, version = hello.client.version, "hello");
    Ok(v1::HelloResult {
        version,
        server: v1::Server { name: NAME.to_owned(), version: VERSION.to_owned() },
        features: vec![v1::FEATURE_NOTIFICATIONS.to_owned()],
        limits: daemon.all_limits(),
        containment: containment(daemon),
        instance_id: daemon.facts.instance_id.to_string(),
        boot_id: daemon.facts.boot_id.to_string(),
        warnings: daemon.facts.warnings.clone(),
    })
}

fn containment(daemon: &Daemon) -> v1::Containment {
    let tier = match daemon.facts.tier {
        Some(Tier::Cgroup) => Open::Known(v1::Tier::Cgroup),
        Some(Tier::Shim) => Open::Known(v1::Tier::Shim),
        Some(Tier::Pidns) => Open::Known(v1::Tier::Pidns),
        None => Open::Unknown("none".to_owned()),
    };
    v1::Containment { tier, guarantees: daemon.facts.guarantees.clone() }
}

pub(super) async fn status(client: &Client) -> Result<Done, ErrorBody> {
    let daemon = &client.daemon;
    let stage = daemon.stage.borrow().clone();
    let role = client.binding.role();
    let mut status = v1::StatusResult {
        versions: v1::Versions {
            server: VERSION.to_owned(),
            protocol: SPOKEN.to_vec(),
            state_format: daemon.facts.state_format,
        },
        uptime_ms: as_ms(daemon.clock.since(daemon.started)),
        limits: daemon.all_limits(),
        containment: Some(containment(daemon)),
        restore: restore(daemon, &stage, role),
        totals: None,
        session: None,
        sessions: None,
        connections: None,
        pid: None,
        degraded: Vec::new(),
        escaped: None,
        dropped_notifications: None,
        collisions: None,
        lingering_hint: None,
        settings: Vec::new(),
    };
    if let (Stage::Serving(supervisor, _), Some(bound)) = (&stage, client.binding.bound()) {
        fill(&mut status, supervisor, daemon, &bound).await;
    }
    Ok(Reply::Status(Box::new(status)).into())
}

/// What a role sees beyond the facts.
async fn fill(
    status: &mut v1::StatusResult,
    supervisor: &Supervisor,
    daemon: &Daemon,
    bound: &Bound,
) {
    let session = match bound {
        Bound::Owner { owner, .. } => Some(owner.session),
        Bound::Operator { .. } => None,
    };
    let facts = supervisor.status(session).await;
    status.totals = Some(record::totals(&facts.totals));
    if !facts.storage_writable {
        status.degraded.push("the commit log cannot be written: no process can start".to_owned());
    }
    if daemon.facts.tier.is_none() {
        status.degraded.push("no containment as required: every start is refused".to_owned());
    }
    if facts.degraded_outputs > 0 {
        let count = facts.degraded_outputs;
        status.degraded.push(format!("{count} outputs cannot be written to disk"));
    }
    status.dropped_notifications = Some(facts.dropped_notifications);
    match bound {
        Bound::Owner { owner, .. } => {
            let filter = ListFilter { limit: 1, ..ListFilter::default() };
            let page = supervisor.list(Caller::Owner(*owner), filter).await.ok();
            let free = page.and_then(|page| page.free);
            let id = SessionId::new(owner.session.uuid());
            if let (Some(free), Some(session_id), Some(own)) = (free, id, facts.session) {
                status.session = Some(v1::OwnSession {
                    session_id,
                    label: own.label,
                    state: record::session_state(own.state),
                    free: record::free(free),
                });
            }
        }
        Bound::Operator { .. } => {
            status.sessions = Some(facts.sessions);
            status.connections = Some(daemon.connections.load(Ordering::Acquire));
            status.pid = Some(std::process::id());
            status.escaped = Some(daemon.facts.escaped.load(Ordering::Relaxed));
            status.collisions = Some(facts.collisions);
            status.lingering_hint.clone_from(&daemon.facts.lingering_hint);
            status.settings = settings(daemon);
        }
    }
}

fn restore(daemon: &Daemon, stage: &Stage, role: Role) -> RestoreReport {
    match stage {
        Stage::Restoring(facts) => RestoreReport {
            records: METRICS.restored.get(),
            duration_ms: as_ms(daemon.clock.since(daemon.started)),
            ..counts(facts)
        },
        Stage::Serving(_, facts) => {
            let counts = RestoreReport { done: true, ..counts(facts) };
            match role {
                Role::Unbound | Role::Owner => counts,
                Role::Operator => RestoreReport {
                    reconciled: facts.lost.iter().map(|&handle| process_id(handle)).collect(),
                    damage: facts
                        .damage
                        .iter()
                        .map(|(what, reason)| v1::Damage {
                            what: what.clone(),
                            reason: reason.clone(),
                        })
                        .collect(),
                    ..counts
                },
            }
        }
    }
}

fn counts(facts: &RestoreFacts) -> RestoreReport {
    RestoreReport {
        records: facts.records,
        sessions: facts.sessions,
        lost: as_u64(facts.lost.len()),
        damaged: as_u64(facts.damage.len()),
        duration_ms: as_ms(facts.took),
        ..RestoreReport::default()
    }
}

fn as_ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn settings(daemon: &Daemon) -> Vec<v1::Setting> {
    let of_wire = |setting: crate::config::Setting| v1::Setting {
        key: setting.key,
        value: setting.value,
        origin: setting.origin,
        lowered_by: setting.lowered_by,
    };
    daemon.settings.current().settings().into_iter().map(of_wire).collect()
}

/// Reads the configuration again.
pub(super) async fn reload(client: &Client) -> Result<Done, ErrorBody> {
    match client.daemon.reload().await {
        Ok(Reloaded { changed, at_next_start, .. }) => {
            Ok(Reply::Reload(v1::ReloadResult { changed, at_next_start }).into())
        }
        Err(Some(error)) => {
            let details = Details { field: error.key(), ..Details::default() };
            let text = format!("{}; the old settings are kept", chain(&error));
            Err(ErrorBody::with_details(ErrorCode::InvalidSettings, text, details))
        }
        Err(None) => {
            let text = "the daemon is shutting down";
            Err(ErrorBody::new(ErrorCode::SupervisorShuttingDown, text))
        }
    }
}

/// The sentence of an error with that of its cause.
fn chain(error: &ConfigError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Answers before the exit begins: the exit's first step is another task's.
pub(super) fn shutdown(client: &Client, params: &v1::ShutdownParams) -> Done {
    let wish = Shutdown { grace: params.grace_ms.map(millis) };
    if client.daemon.shutdown.try_send(wish).is_err() {
        tracing::debug!("a shutdown is under way already");
    }
    Reply::Empty(v1::Empty {}).into()
}
