//! Waiting for a value, with a deadline.

use std::time::{Duration, Instant};

/// What any single step of a test may take on a busy machine. A limit, never a pause.
pub const STEP: Duration = Duration::from_secs(60);
/// Between two looks at something that cannot announce itself, such as a pid that goes.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A point in time that a test must not pass.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// That much from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(now() + limit)
    }

    /// What is left; `None` when it has passed.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(now()).filter(|left| !left.is_zero())
    }
}

/// The clock of the tests.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests measure the daemon from outside")]
pub fn now() -> Instant {
    Instant::now()
}

/// Looks until there is a value.
/// # Panics
/// With `what` when `limit` has passed.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(deadline.left().is_some(), "not within {limit:?}: {what}");
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// Looks until `look` is true.
/// # Panics
/// With `what` when `limit` has passed.
pub fn until_true(what: &str, limit: Duration, mut look: impl FnMut() -> bool) {
    until(what, limit, || look().then_some(()));
}
