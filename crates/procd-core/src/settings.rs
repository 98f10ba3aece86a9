//! The table of configurable limits: names, defaults, and which may not contradict which.
//! Source: spec, lifecycle, *Admission*.

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Two settings that were both given and cannot both hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{narrower}` ({narrower_value}) is above `{broader}` ({broader_value})")]
pub struct Contradiction {
    /// The key that must not be above the other.
    pub narrower: &'static str,
    /// Its value.
    pub narrower_value: u64,
    /// The key that bounds it.
    pub broader: &'static str,
    /// Its value.
    pub broader_value: u64,
}

/// A default that was lowered because a broader limit was given below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowered {
    /// The key whose default was lowered.
    pub key: &'static str,
    /// The key it had to fit.
    pub because: &'static str,
    /// The value it has now.
    pub value: u64,
}

/// Declares [`Limits`], its defaults and the access by key from one list.
macro_rules! limits {
    ($($(#[$meta:meta])* $field:ident = $default:expr,)+) => {
        /// The effective limits.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits { $($(#[$meta])* pub $field: u64,)+ }

        /// The limits as given: absent and 0 mean the default.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct GivenLimits { $($(#[$meta])* pub $field: Option<u64>,)+ }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Limits {
            /// Every key, in the order of the table.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($field),)+];

            /// The value of a key.
            #[must_use]
            pub fn get(&self, key: &str) -> Option<u64> {
                match key { $(stringify!($field) => Some(self.$field),)+ _ => None }
            }

            fn set(&mut self, key: &str, value: u64) {
                match key { $(stringify!($field) => self.$field = value,)+ _ => {} }
            }
        }

        impl GivenLimits {
            /// The value given for a key; 0 counts as not given.
            #[must_use]
            pub fn get(&self, key: &str) -> Option<u64> {
                let value = match key { $(stringify!($field) => self.$field,)+ _ => None };
                value.filter(|&value| value != 0)
            }

            /// Gives a key a value; false for an unknown key.
            pub fn set(&mut self, key: &str, value: u64) -> bool {
                match key { $(stringify!($field) => { self.$field = Some(value); true })+ _ => false }
            }
        }
    };
}

limits! {
    /// Running processes of one loop, a count.
    running_loop_max = 8,
    /// Running processes of one session, a count.
    running_session_max = 32,
    /// Running processes of the daemon, a count.
    running_daemon_max = 1024,
    /// Memory window of one process, bytes.
    memory_process_bytes = MIB,
    /// Memory windows reserved by one session, bytes.
    memory_session_bytes = 32 * MIB,
    /// Memory windows really used in the daemon, bytes.
    memory_daemon_bytes = 256 * MIB,
    /// Spool of one process, bytes.
    spool_process_bytes = 64 * MIB,
    /// Spools reserved by one session, bytes.
    spool_session_bytes = 2 * GIB,
    /// Spools of running processes really used in the daemon, bytes.
    spool_daemon_bytes = 12 * GIB,
    /// Completed processes kept per session, a count.
    retained_session_max = 100,
    /// Pinned bytes of one session, bytes.
    pinned_session_bytes = 2 * GIB,
    /// Pinned bytes of the daemon, bytes.
    pinned_daemon_bytes = 3 * GIB,
    /// Actual disk use of the state folder, bytes.
    disk_bytes = 16 * GIB,
    /// How long an ended process is kept at most, milliseconds.
    retention_ms = 7 * 24 * 3600 * 1000,
    /// Text of an inline result, bytes.
    inline_bytes = 32 * KIB,
    /// Blocking calls of one session, a count.
    waiters_session_max = 64,
    /// Starts of one session that wait for room, a count.
    queued_session_max = 256,
    /// Pending input of one process, bytes.
    input_process_bytes = MIB,
    /// Pending input of the daemon, bytes.
    input_daemon_bytes = 64 * MIB,
    /// Sessions, a count.
    sessions_max = 4096,
    /// Connections, a count.
    connections_max = 1024,
    /// The graceful period, milliseconds.
    grace_ms = 5000,
}

/// Pairs (narrower, broader): the first may never be above the second. Ordered so that lowering
/// one default settles the ones that depend on it before they are looked at.
const FITS: &[(&str, &str)] = &[
    ("running_session_max", "running_daemon_max"),
    ("running_loop_max", "running_session_max"),
    ("memory_session_bytes", "memory_daemon_bytes"),
    ("memory_process_bytes", "memory_session_bytes"),
    ("spool_daemon_bytes", "disk_bytes"),
    ("spool_session_bytes", "spool_daemon_bytes"),
    ("spool_process_bytes", "spool_session_bytes"),
    ("pinned_daemon_bytes", "disk_bytes"),
    ("pinned_session_bytes", "pinned_daemon_bytes"),
    ("input_process_bytes", "input_daemon_bytes"),
];

impl Limits {
    /// The effective limits of what was given, and the defaults that had to be lowered to fit.
    /// # Errors
    /// [`Contradiction`] when a narrower limit was given above a broader one that was given too.
    pub fn effective(given: &GivenLimits) -> Result<(Self, Vec<Lowered>), Contradiction> {
        let mut limits = Self::default();
        for &key in Self::KEYS {
            if let Some(value) = given.get(key) {
                limits.set(key, value);
            }
        }
        let mut lowered = Vec::new();
        for &(narrower, broader) in FITS {
            let (value, bound) =
                (limits.get(narrower).unwrap_or(0), limits.get(broader).unwrap_or(0));
            if value <= bound {
                continue;
            }
            // A broad default may be below a narrow given value: then the given one stands
            // against whatever was given above it, if anything, and the default is raised.
            match (given.get(narrower), bound_given(given, broader)) {
                (Some(value), Some((key, bound))) if value > bound => {
                    return Err(Contradiction {
                        narrower,
                        narrower_value: value,
                        broader: key,
                        broader_value: bound,
                    });
                }
                (Some(value), _) => limits.set(broader, value),
                (None, _) => {
                    limits.set(narrower, bound);
                    lowered.push(Lowered { key: narrower, because: broader, value: bound });
                }
            }
        }
        Ok((limits, lowered))
    }
}

/// The nearest value that was given at `key` or at what bounds it.
fn bound_given(given: &GivenLimits, key: &'static str) -> Option<(&'static str, u64)> {
    if let Some(value) = given.get(key) {
        return Some((key, value));
    }
    let (_, broader) = FITS.iter().find(|(narrower, _)| *narrower == key)?;
    bound_given(given, broader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(limits: &Limits) -> bool {
        FITS.iter().all(|(narrower, broader)| limits.get(narrower) <= limits.get(broader))
    }

    #[test]
    fn the_defaults_fit_each_other_and_the_pairs_name_real_keys() {
        assert!(fits(&Limits::default()));
        for (narrower, broader) in FITS {
            assert!(Limits::KEYS.contains(narrower) && Limits::KEYS.contains(broader));
        }
        let (limits, lowered) = Limits::effective(&GivenLimits::default()).unwrap();
        assert_eq!((limits, lowered), (Limits::default(), vec![]));
    }

    #[test]
    fn zero_means_the_default() {
        let mut given = GivenLimits::default();
        assert!(given.set("grace_ms", 0));
        assert_eq!(Limits::effective(&given).unwrap().0.grace_ms, 5000);
        assert!(!given.set("no_such_key", 1));
    }

    #[test]
    fn an_unset_narrower_limit_is_lowered_and_two_given_ones_contradict() {
        let mut given = GivenLimits::default();
        given.set("running_daemon_max", 4);
        let (limits, lowered) = Limits::effective(&given).unwrap();
        assert_eq!((limits.running_session_max, limits.running_loop_max), (4, 4));
        assert_eq!(lowered.len(), 2);
        given.set("running_loop_max", 5);
        let error = Limits::effective(&given).unwrap_err();
        assert_eq!((error.narrower, error.broader), ("running_loop_max", "running_daemon_max"));
    }

    proptest! {
        #[test]
        fn effective_limits_always_fit(values in prop::collection::vec(prop::option::of(1u64..64), Limits::KEYS.len())) {
            let mut given = GivenLimits::default();
            for (key, value) in Limits::KEYS.iter().zip(&values) {
                if let Some(value) = value {
                    given.set(key, *value);
                }
            }
            if let Ok((limits, _)) = Limits::effective(&given) {
                prop_assert!(fits(&limits));
                for (key, value) in Limits::KEYS.iter().zip(&values) {
                    if let Some(value) = value {
                        prop_assert_eq!(limits.get(key), Some(*value));
                    }
                }
            }
        }
    }
}
