//! daemon/metrics: the figures of the daemon as OpenMetrics text. Names and units are part of the
//! contract with whoever scrapes them: a series is added, never renamed.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use procd_core::ProcessState;
use procd_protocol::{ErrorBody, v1};
use procd_store::histogram::{BOUNDS_MS, Times};

use super::facts::Stage;
use super::{Client, Done, Reply};
use crate::metrics::METRICS;

/// Microseconds of a second.
const US_OF_SECOND: u64 = 1_000_000;
/// The states a process can be in, in the order of their names.
const LIVE: [ProcessState; 2] = [ProcessState::Starting, ProcessState::Running];

pub(super) async fn metrics(client: &Client) -> Result<Done, ErrorBody> {
    let supervisor = client.supervisor().await?;
    let status = supervisor.status(None).await;
    let figures = supervisor.figures().await;
    let daemon = &client.daemon;
    let damage = match &*daemon.stage.borrow() {
        Stage::Serving(_, facts) => facts.damage.len(),
        Stage::Restoring(_) => 0,
    };
    let mut page = Page::default();
    let of_state = |state: ProcessState| status.totals.get(&state).copied().unwrap_or(0);
    let states = LIVE.into_iter().chain(crate::metrics::ENDS);
    let states: Vec<_> = states.map(|state| (state.as_str(), of_state(state))).collect();
    page.labelled("procd_processes", GAUGE, "Processes on record, by state.", "state", &states);
    page.one("procd_starts", COUNTER, "Starts that were admitted.", METRICS.starts.get());
    let ends: Vec<_> = METRICS.ends().map(|(state, count)| (state.as_str(), count)).collect();
    page.labelled("procd_ends", COUNTER, "Ends, by the state they led to.", "state", &ends);
    let help = "From the admission of a start to its exec.";
    page.histogram("procd_start_seconds", help, &METRICS.start_times.times());
    let help = "Bytes read from the streams of processes.";
    page.one("procd_output_bytes", COUNTER, help, METRICS.drained_bytes.get());
    let help = "Bytes of running processes that are not retained any more.";
    page.one("procd_output_dropped_bytes", COUNTER, help, METRICS.dropped_bytes.get());
    page.one("procd_spool_bytes", GAUGE, "Bytes of output that are retained.", figures.spool_bytes);
    let help = "Bytes the state folder takes, as last measured.";
    page.one("procd_state_folder_bytes", GAUGE, help, figures.disk_bytes);
    page.one("procd_sessions", GAUGE, "Sessions on record.", figures.sessions);
    page.one("procd_waiters", GAUGE, "Blocking calls under way.", METRICS.waiters.get());
    let clients = daemon.connections.load(Ordering::Acquire);
    page.one("procd_clients", GAUGE, "Open connections.", clients);
    let queues = [("starts", figures.queued), ("notifications", figures.notifications)];
    page.labelled("procd_queued", GAUGE, "What waits for room or for its loop.", "queue", &queues);
    let help = "Bytes of input that were accepted and not delivered yet.";
    page.one("procd_pending_input_bytes", GAUGE, help, METRICS.pending_input_bytes.get());
    let help = "Writes of the commit log, each with its sync.";
    page.histogram("procd_sync_seconds", help, &figures.syncs);
    page.one("procd_restore_damage", GAUGE, "Damaged things the last restore found.", damage);
    let help = "Trees that were not proven empty in time.";
    page.one("procd_teardown_failures", COUNTER, help, METRICS.teardown_failures.get());
    let help = "Processes found outside every tree, and killed.";
    let escaped = daemon.facts.escaped.load(Ordering::Relaxed);
    page.one("procd_escaped", COUNTER, help, escaped);
    Ok(Reply::Metrics(v1::MetricsResult { text: page.finish() }).into())
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// OpenMetrics text under way.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: impl Display) {
        self.0.push_str(&format!("{line}\n"));
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        if let Some((_, unit)) = name.rsplit_once('_').filter(|(_, unit)| is_unit(unit)) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {help}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(format_args!("{name}{} {value}", suffix(kind)));
    }

    fn labelled(&mut self, name: &str, kind: &str, help: &str, label: &str, of: &[(&str, u64)]) {
        self.head(name, kind, help);
        for (word, value) in of {
            self.line(format_args!("{name}{}{{{label}=\"{word}\"}} {value}", suffix(kind)));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Times) {
        self.head(name, "histogram", help);
        let mut count = 0;
        let bounds = BOUNDS_MS.iter().map(|ms| seconds(ms * 1000)).chain(["+Inf".to_owned()]);
        for (bound, in_bucket) in bounds.zip(times.buckets) {
            count += in_bucket;
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_sum {}", seconds(times.sum_us)));
        self.line(format_args!("{name}_count {count}"));
    }

    fn finish(mut self) -> String {
        self.line("# EOF");
        self.0
    }
}

fn is_unit(word: &str) -> bool {
    matches!(word, "seconds" | "bytes")
}

fn suffix(kind: &str) -> &'static str {
    if kind == COUNTER { "_total" } else { "" }
}

/// Microseconds as a decimal number of seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / US_OF_SECOND, us % US_OF_SECOND)
}
