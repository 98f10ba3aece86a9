//! Limits on the resources of a command: which mechanism holds each, and what cannot be held.
//! Source: spec, containment, *Access and limits*.

use std::collections::BTreeMap;
use std::time::Duration;

use procd_store::record::LimitOutcome;
use procd_sys::cgroup::controllers::{CPU_PERIOD_US, Controllers, GroupLimits};
use procd_sys::image::ChildLimits;

use crate::supervisor::refusal::{PlanRefusal, Refusal};
use crate::supervisor::runner::{AskedLimits, TreeView};

/// How often a tree is sampled whose limits nothing else holds.
pub(super) const SAMPLE_EACH: Duration = Duration::from_millis(250);

/// The limits of one start, by who holds them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Held {
    pub(super) group: GroupLimits,
    pub(super) child: ChildLimits,
    pub(super) watched: Watched,
}

/// What is sampled, and the most that is let pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Watched {
    memory_bytes_max: Option<u64>,
    pids_max: Option<u64>,
    cpu_ms_max: Option<u64>,
}

impl Watched {
    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// The limit that a look at the tree exceeds, as the record names it.
    pub(super) fn exceeded(self, tree: &TreeView) -> Option<&'static str> {
        let over = |max: Option<u64>, used: u64| max.is_some_and(|max| used > max);
        let pids = u64::try_from(tree.pids.len()).unwrap_or(u64::MAX);
        if over(self.memory_bytes_max, tree.memory_bytes) {
            Some("memory")
        } else if over(self.pids_max, pids) {
            Some("pids")
        } else if over(self.cpu_ms_max, tree.cpu_ms) {
            Some("cpu")
        } else {
            None
        }
    }
}

/// Who holds a limit. Words of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Group,
    Rlimit,
    Watchdog,
    Nobody,
}

impl By {
    const fn word(self) -> &'static str {
        match self {
            Self::Group => "cgroup",
            Self::Rlimit => "rlimit",
            Self::Watchdog => "watchdog",
            Self::Nobody => "unsupported",
        }
    }
}

/// Chooses who holds each limit that is asked for, and tells it.
/// - `controllers`: of the payload in tier 1.
/// # Errors
/// A limit that nobody can hold, if that was to be refused.
pub(super) fn hold(
    asked: &AskedLimits,
    controllers: Controllers,
) -> Result<(Held, BTreeMap<String, LimitOutcome>), Refusal> {
    let may_sample = asked.fallback_watchdog;
    let group_or_sample = |is_there: bool| match (is_there, may_sample) {
        (true, _) => By::Group,
        (false, true) => By::Watchdog,
        (false, false) => By::Nobody,
    };
    let cpu = if controllers.cpu { By::Group } else { By::Nobody };
    let limits = [
        ("memory_bytes_max", shown(asked.memory_bytes_max), group_or_sample(controllers.memory)),
        ("cpu_max", asked.cpu_max.map(|cores| cores.to_string()), cpu),
        ("pids_max", shown(asked.pids_max), group_or_sample(controllers.pids)),
        ("open_files_max", shown(asked.open_files_max), By::Rlimit),
        ("core_bytes_max", shown(asked.core_bytes_max), By::Rlimit),
        ("cpu_seconds_max", shown(asked.cpu_seconds_max), By::Rlimit),
        ("address_space_bytes_max", shown(asked.address_space_bytes_max), By::Rlimit),
    ];
    let mut told = BTreeMap::new();
    for (name, value, by) in limits {
        let Some(value) = value else { continue };
        if by == By::Nobody && asked.are_required {
            return Err(Refusal::Plan(PlanRefusal::Unenforceable {
                field: format!("limits.{name}"),
                missing: name.to_owned(),
                message: format!("nothing on this machine can hold `limits.{name}`"),
            }));
        }
        told.insert(name.to_owned(), LimitOutcome { value, applied: by.word().to_owned() });
    }
    let by_group = |limit: Option<u64>, is_there: bool| limit.filter(|_| is_there);
    let sampled = |limit: Option<u64>, is_there: bool| limit.filter(|_| may_sample && !is_there);
    let held = Held {
        group: GroupLimits {
            memory_bytes_max: by_group(asked.memory_bytes_max, controllers.memory),
            cpu_quota_us: asked.cpu_max.filter(|_| controllers.cpu).map(quota_us),
            pids_max: by_group(asked.pids_max, controllers.pids),
        },
        child: ChildLimits {
            open_files: asked.open_files_max,
            core_bytes: asked.core_bytes_max,
            cpu_seconds: asked.cpu_seconds_max,
            address_space_bytes: asked.address_space_bytes_max,
            group_memory: asked.memory_bytes_max.is_some() && controllers.memory,
        },
        watched: Watched {
            memory_bytes_max: sampled(asked.memory_bytes_max, controllers.memory),
            pids_max: sampled(asked.pids_max, controllers.pids),
            // The kernel's limit is each process's own; sampling sees the whole tree.
            cpu_ms_max: sampled(asked.cpu_seconds_max.map(|s| s.saturating_mul(1000)), false),
        },
    };
    Ok((held, told))
}

fn shown(limit: Option<u64>) -> Option<String> {
    limit.map(|limit| limit.to_string())
}

/// Microseconds of a period for so many cores.
fn quota_us(cores: f64) -> u64 {
    let period = Duration::from_micros(CPU_PERIOD_US).as_secs_f64();
    Duration::try_from_secs_f64(cores * period)
        .ok()
        .and_then(|time| u64::try_from(time.as_micros()).ok())
        .unwrap_or(u64::MAX / CPU_PERIOD_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Controllers = Controllers { memory: true, cpu: true, pids: true };

    fn asked() -> AskedLimits {
        AskedLimits {
            memory_bytes_max: Some(64 << 20),
            cpu_max: Some(1.5),
            pids_max: Some(10),
            open_files_max: Some(64),
            core_bytes_max: Some(0),
            cpu_seconds_max: Some(3),
            ..AskedLimits::default()
        }
    }

    fn applied(told: &BTreeMap<String, LimitOutcome>) -> Vec<(&str, &str)> {
        told.iter().map(|(name, outcome)| (&**name, &*outcome.applied)).collect()
    }

    #[test]
    fn the_kernel_holds_what_it_can_and_each_outcome_is_told() {
        let (held, told) = hold(&asked(), ALL).unwrap();
        assert_eq!(held.group.cpu_quota_us, Some(150_000));
        assert_eq!((held.group.memory_bytes_max, held.group.pids_max), (Some(64 << 20), Some(10)));
        assert!(held.watched.is_nothing());
        let mut expected = [
            ("memory_bytes_max", "cgroup"),
            ("cpu_max", "cgroup"),
            ("pids_max", "cgroup"),
            ("open_files_max", "rlimit"),
            ("core_bytes_max", "rlimit"),
            ("cpu_seconds_max", "rlimit"),
        ];
        expected.sort_unstable();
        assert_eq!(applied(&told), expected);
        assert_eq!(told["cpu_max"].value, "1.5");
    }

    #[test]
    fn without_controllers_it_is_sampled_if_asked_or_told_as_unsupported_or_refused() {
        let none = Controllers::default();
        let (held, told) = hold(&asked(), none).unwrap();
        assert!(held.group.are_none() && held.watched.is_nothing());
        assert_eq!(told["memory_bytes_max"].applied, "unsupported");
        let sampled = AskedLimits { fallback_watchdog: true, cpu_max: None, ..asked() };
        let (held, told) = hold(&sampled, none).unwrap();
        assert_eq!(told["pids_max"].applied, "watchdog");
        let look = |memory_bytes, pids: i32, cpu_ms| {
            let pids = (0..pids).collect();
            held.watched.exceeded(&TreeView { live_descendants: 0, pids, cpu_ms, memory_bytes })
        };
        assert_eq!(look(64 << 20, 10, 3000), None);
        assert_eq!(look((64 << 20) + 1, 10, 0), Some("memory"));
        assert_eq!(look(0, 11, 0), Some("pids"));
        assert_eq!(look(0, 1, 3001), Some("cpu"));
        let required = AskedLimits { are_required: true, ..sampled };
        assert!(hold(&required, none).is_ok());
        let required = AskedLimits { cpu_max: Some(0.5), ..required };
        let Refusal::Plan(refusal) = hold(&required, none).unwrap_err() else { panic!() };
        assert!(
            matches!(refusal, PlanRefusal::Unenforceable { field, .. } if field == "limits.cpu_max")
        );
    }
}
