//! Named points for the fault tests, at every step that reaches the disk or the guardian. Absent
//! from release builds: without the feature `failpoints` each point is nothing.
//!
//! `PROCD_FAILPOINTS="name=deed,name2=deed@3,name3=deed@3-9"`; with `@n` only the n-th passage of
//! the point counts, with `@n-m` those from the n-th to the m-th, else each. The deeds:
//! * `crash`: the daemon ends by SIGKILL, here;
//! * `pause:MS`: the calling thread is held that long;
//! * `enospc`, `eio`: the operation behind the point fails ([`fail`] only);
//! * `value:N`: a number in place of a constant ([`value`] only).
//!
//! `PROCD_FAILPOINT_TRACE=FILE`: the name of the point that was passed last stands in this file,
//! and behind it that of the point at which a thread is held, if one is. Beside it, in
//! `FILE.failed`, stands a line for each failure that was injected.

#[cfg(feature = "failpoints")]
pub use imp::{fail, hit, is_armed, value};

/// Passes a named point: nothing in a release build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn hit(_name: &str) {}

/// Passes a named point before an operation that can fail: nothing in a release build.
/// # Errors
/// Never.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn fail(_name: &str) -> std::io::Result<()> {
    Ok(())
}

/// A number that a test puts in place of a constant: none in a release build.
#[cfg(not(feature = "failpoints"))]
#[must_use]
#[inline(always)]
pub const fn value(_name: &str) -> Option<u64> {
    None
}

/// Whether something is to happen at a point: what may be held up there must not be on a thread
/// that serves others. Never in a release build.
#[cfg(not(feature = "failpoints"))]
#[must_use]
#[inline(always)]
pub const fn is_armed(_name: &str) -> bool {
    false
}

#[cfg(feature = "failpoints")]
mod imp {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// Bytes of a name in the trace, the rest blank.
    const NAME_BYTES: usize = 48;

    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Crash,
        Pause(Duration),
        Fail(rustix::io::Errno),
        Value(u64),
    }

    #[derive(Debug)]
    struct Point {
        deed: Deed,
        /// The passages that count; none = each.
        nth: Option<std::ops::RangeInclusive<u64>>,
        passed: AtomicU64,
    }

    static POINTS: OnceLock<HashMap<String, Point>> = OnceLock::new();
    static TRACE: OnceLock<Option<File>> = OnceLock::new();

    #[expect(clippy::disallowed_methods, reason = "a build for tests that is steered from outside")]
    fn variable(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn load() -> HashMap<String, Point> {
        let text = variable("PROCD_FAILPOINTS").unwrap_or_default();
        text.split(',').filter_map(|item| item.split_once('=')).filter_map(parse).collect()
    }

    fn parse((name, text): (&str, &str)) -> Option<(String, Point)> {
        let (deed, nth) = match text.split_once('@') {
            Some((deed, nth)) => {
                let (first, last) = nth.split_once('-').unwrap_or((nth, nth));
                (deed, Some(first.parse().ok()?..=last.parse().ok()?))
            }
            None => (text, None),
        };
        let deed = match deed.split_once(':') {
            None if deed == "crash" => Deed::Crash,
            None if deed == "enospc" => Deed::Fail(rustix::io::Errno::NOSPC),
            None if deed == "eio" => Deed::Fail(rustix::io::Errno::IO),
            Some(("pause", ms)) => Deed::Pause(Duration::from_millis(ms.parse().ok()?)),
            Some(("value", number)) => Deed::Value(number.parse().ok()?),
            None | Some(_) => return None,
        };
        Some((name.to_owned(), Point { deed, nth, passed: AtomicU64::new(0) }))
    }

    fn trace(slot: u64, name: &str) {
        let open = || {
            let path = variable("PROCD_FAILPOINT_TRACE")?;
            File::options().create(true).truncate(false).write(true).open(path).ok()
        };
        if let Some(file) = TRACE.get_or_init(open) {
            // A trace that cannot be written is a gap in a histogram, no more.
            file.write_at(format!("{name:NAME_BYTES$}").as_bytes(), slot * NAME_BYTES as u64).ok();
        }
    }

    fn note_failure(name: &str) {
        if let Some(path) = variable("PROCD_FAILPOINT_TRACE")
            && let Ok(mut file) =
                File::options().create(true).append(true).open(format!("{path}.failed"))
        {
            io::Write::write_all(&mut file, format!("{name}\n").as_bytes()).ok();
        }
    }

    /// The deed of this passage.
    fn pass(name: &str) -> Option<Deed> {
        trace(0, name);
        let point = POINTS.get_or_init(load).get(name)?;
        let passed = point.passed.fetch_add(1, Ordering::AcqRel) + 1;
        point.nth.as_ref().is_none_or(|nth| nth.contains(&passed)).then_some(point.deed)
    }

    /// Whether something is to happen at a point.
    #[must_use]
    pub fn is_armed(name: &str) -> bool {
        POINTS.get_or_init(load).contains_key(name)
    }

    /// Passes a named point.
    pub fn hit(name: &str) {
        fail(name).ok();
    }

    /// Passes a named point before an operation that can fail.
    /// # Errors
    /// What the test asks for.
    pub fn fail(name: &str) -> io::Result<()> {
        match pass(name) {
            None | Some(Deed::Value(_)) => {}
            Some(Deed::Crash) => crash(),
            Some(Deed::Pause(time)) => pause(name, time),
            Some(Deed::Fail(errno)) => {
                note_failure(name);
                return Err(errno.into());
            }
        }
        Ok(())
    }

    /// A number that a test puts in place of a constant.
    #[must_use]
    pub fn value(name: &str) -> Option<u64> {
        match POINTS.get_or_init(load).get(name)?.deed {
            Deed::Value(number) => Some(number),
            Deed::Crash | Deed::Pause(_) | Deed::Fail(_) => None,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "holding the thread is the point")]
    fn pause(name: &str, time: Duration) {
        trace(1, name);
        std::thread::sleep(time);
        trace(1, "");
    }

    fn crash() {
        kill_process(getpid(), Signal::KILL).ok();
        std::process::abort();
    }
}
