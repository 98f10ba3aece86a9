//! What happens to the output of a running process, as events of its record: the spool cannot be
//! written, is written again, the first byte was dropped. A spool that goes to and fro is told of
//! once a second at most: its record and its reads are live in any case.
//! Source: spec, output, *Spool*; events.

use std::time::Duration;

use procd_core::state::{ProcessState, SpoolState};
use procd_core::{Handle, Life};
use procd_store::event::{Event, EventDetail, EventError, EventKind};
use procd_store::log::LogRecord;
use procd_store::record::Record;

use super::task::Task;

/// Between two looks at one spool.
const PAUSE: Duration = Duration::from_secs(1);

impl Task {
    /// An output has changed, or it may be time to look at it again.
    pub(super) fn spool_changed(&mut self, handle: Handle) {
        // It may have grown: what has ended makes room.
        self.evict_for_room(self.margin());
        let now = self.clock.monotonic();
        let Some(entry) = self.table.get_mut(handle) else { return };
        // Before `running` it is looked at then; after the end its last record says it.
        let is_running = matches!(entry.life, Life::Running { .. } | Life::Kept { .. })
            && entry.record.state == ProcessState::Running;
        let Some(active) = entry.active.as_mut().filter(|_| is_running) else { return };
        if let Some(until) = active.spool_rests_until.filter(|&until| until > now) {
            active.due.spool = Some(until);
            return self.arm(handle);
        }
        let bounds = entry.output.bounds();
        let (state, lost_bytes) = entry.output.spool_status();
        let known = Known::of(&entry.record);
        let kinds = known.news(state, lost_bytes, bounds.retained_from);
        if kinds.is_empty() {
            return;
        }
        active.spool_rests_until = Some(now + PAUSE);
        let errno = entry.output.spool_failure();
        entry.record.spool_lost_bytes = lost_bytes;
        entry.record.total_bytes = bounds.total;
        entry.record.retained_from = bounds.retained_from;
        for kind in kinds {
            self.publish(handle, |record| batch(record, kind, errno));
        }
        if let Some(entry) = self.table.get(handle) {
            entry.show(true);
        }
    }
}

/// What the record says already.
#[derive(Debug, Clone, Copy)]
struct Known {
    is_degraded: bool,
    lost_bytes: u64,
    has_gap: bool,
}

impl Known {
    fn of(record: &Record) -> Self {
        Self {
            is_degraded: record.spool_state == SpoolState::Degraded,
            lost_bytes: record.spool_lost_bytes,
            has_gap: record.ordinals.contains_key(&EventKind::OutputGap.to_string()),
        }
    }

    /// The events that lead from there to what is now, in their order.
    fn news(self, state: SpoolState, lost_bytes: u64, retained_from: u64) -> Vec<EventKind> {
        let is_degraded = state == SpoolState::Degraded;
        let mut kinds = Vec::new();
        if !self.is_degraded && (is_degraded || lost_bytes > self.lost_bytes) {
            kinds.push(EventKind::SpoolDegraded);
        }
        if (self.is_degraded || !kinds.is_empty()) && !is_degraded {
            kinds.push(EventKind::SpoolRecovered);
        }
        if retained_from > 0 && !self.has_gap {
            kinds.push(EventKind::OutputGap);
        }
        kinds
    }
}

/// The record and one of these events, as one batch. Counts the event in the record.
fn batch(
    record: &mut Record,
    kind: EventKind,
    errno: Option<i32>,
) -> Result<(Event, Vec<LogRecord>), EventError> {
    let mut diagnostic = None;
    if kind == EventKind::SpoolDegraded {
        record.spool_state = SpoolState::Degraded;
        let name = errno.map(|errno| format!("storage {:?}", nix::errno::Errno::from_raw(errno)));
        diagnostic = Some(name.unwrap_or_else(|| "storage".to_owned()));
    } else if kind == EventKind::SpoolRecovered {
        record.spool_state = SpoolState::Open;
    }
    procd_store::event::count(record, kind);
    let detail = EventDetail { diagnostic, ..EventDetail::default() };
    let made = Event::for_record(kind, record, detail)?;
    Ok((made.clone(), vec![LogRecord::process(record), made.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventKind::{OutputGap, SpoolDegraded, SpoolRecovered};

    #[test]
    fn each_change_is_told_once_and_one_that_was_missed_too() {
        let known = Known { is_degraded: false, lost_bytes: 0, has_gap: false };
        assert_eq!(known.news(SpoolState::Open, 0, 0), []);
        assert_eq!(known.news(SpoolState::Degraded, 5, 0), [SpoolDegraded]);
        assert_eq!(known.news(SpoolState::Open, 5, 0), [SpoolDegraded, SpoolRecovered]);
        assert_eq!(known.news(SpoolState::Open, 0, 9), [OutputGap]);
        let degraded = Known { is_degraded: true, lost_bytes: 5, has_gap: true };
        assert_eq!(degraded.news(SpoolState::Degraded, 50, 9), []);
        assert_eq!(degraded.news(SpoolState::Open, 50, 9), [SpoolRecovered]);
    }
}
