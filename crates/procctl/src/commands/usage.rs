//! What running trees use: one look, and what changed between two.

use std::collections::HashMap;

use procd_protocol::ProcessId;
use procd_protocol::v1::{InspectResult, ListParams, ProcessState, Record, Scope};
use tokio::time::Instant;

use crate::exit::CtlError;
use crate::link::Link;
use crate::looks;

/// Records of a page.
const PAGE_MAX: u64 = 1000;

/// One process as it was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) record: Record,
    /// Members of its tree.
    pub(crate) tree: u64,
    pub(crate) cpu_ms: u64,
    pub(crate) memory_bytes: u64,
}

impl Seen {
    fn of(look: InspectResult) -> Self {
        Self {
            tree: look.live_descendants.saturating_add(1),
            cpu_ms: look.usage.cpu_ms,
            memory_bytes: look.usage.memory_bytes,
            record: look.record,
        }
    }
}

/// All that run, at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    at: Instant,
    pub(crate) seen: HashMap<ProcessId, Seen>,
    /// Running processes beyond those that were looked at.
    pub(crate) left_out: usize,
}

/// What one process uses.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) seen: Seen,
    /// Of one processor: 1.0 is one at full work.
    pub(crate) cpu: f64,
    /// Bytes a second.
    pub(crate) output: f64,
}

impl Look {
    /// Looks at all that run.
    /// # Errors
    /// [`CtlError`], as the daemon says.
    pub(crate) async fn take(link: &Link) -> Result<Self, CtlError> {
        let params = ListParams {
            state: Some(ProcessState::Running),
            limit: Some(PAGE_MAX),
            ..ListParams::default()
        };
        let records = match link {
            Link::Owner(session) => {
                let scope = Some(Scope::Session);
                session.list_all(ListParams { scope, ..params }).await?
            }
            Link::Operator(operator) => operator.list_all(params).await?,
        };
        let left_out = records.len().saturating_sub(looks::LOOKS_MAX);
        let looks = looks::at_first(link, records.iter().map(|record| record.process_id)).await?;
        let seen = looks.into_iter().map(|look| (look.record.process_id, Seen::of(look)));
        Ok(Self { at: Instant::now(), seen: seen.collect(), left_out })
    }

    /// What each uses, by what changed since `before`; of one that was not there then, by all.
    pub(crate) fn since(&self, before: Option<&Self>) -> Vec<Use> {
        let seconds =
            before.map_or(0.0, |before| self.at.saturating_duration_since(before.at).as_secs_f64());
        let of_one = |seen: &Seen| {
            let earlier = before.and_then(|before| before.seen.get(&seen.record.process_id));
            let rate = |now: u64, then: u64| {
                if seconds > 0.0 { as_f64(now.saturating_sub(then)) / seconds } else { 0.0 }
            };
            let (cpu, output) = earlier.map_or((0.0, 0.0), |then| {
                let cpu = rate(seen.cpu_ms, then.cpu_ms) / 1000.0;
                (cpu, rate(seen.record.total_bytes, then.record.total_bytes))
            });
            Use { seen: seen.clone(), cpu, output }
        };
        self.seen.values().map(of_one).collect()
    }
}

/// A count as a number to be shown; above 2^53 it loses its last digits.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// A rate in whole bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of bytes within u64, not negative, for showing"
)]
pub(crate) const fn as_bytes(rate: f64) -> u64 {
    rate as u64
}
