//! Named pause and crash points for the fault tests. Absent from release builds: without the
//! feature `failpoints` the macro is nothing.
//!
//! `PROCD_FAILPOINTS="name=crash,name2=pause:200"`: `crash` ends the daemon by SIGKILL semantics
//! (abort without unwinding), `pause:MS` holds the calling thread that long.

/// Passes a named point.
#[cfg(feature = "failpoints")]
pub fn hit(name: &str) {
    imp::hit(name);
}

/// Passes a named point: nothing in a release build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn hit(_name: &str) {}

#[cfg(feature = "failpoints")]
mod imp {
    use std::collections::HashMap;
    use std::sync::OnceLock;
    use std::time::Duration;

    enum Deed {
        Crash,
        Pause(Duration),
    }

    static POINTS: OnceLock<HashMap<String, Deed>> = OnceLock::new();

    #[expect(clippy::disallowed_methods, reason = "a build for tests that is steered from outside")]
    fn load() -> HashMap<String, Deed> {
        let Ok(text) = std::env::var("PROCD_FAILPOINTS") else {
            return HashMap::new();
        };
        text.split(',').filter_map(|item| item.split_once('=')).filter_map(parse).collect()
    }

    fn parse((name, deed): (&str, &str)) -> Option<(String, Deed)> {
        let deed = match deed.split_once(':') {
            None if deed == "crash" => Deed::Crash,
            Some(("pause", ms)) => Deed::Pause(Duration::from_millis(ms.parse().ok()?)),
            None | Some(_) => return None,
        };
        Some((name.to_owned(), deed))
    }

    pub(super) fn hit(name: &str) {
        match POINTS.get_or_init(load).get(name) {
            None => {}
            Some(Deed::Crash) => std::process::abort(),
            #[expect(clippy::disallowed_methods, reason = "holding the thread is the point")]
            Some(Deed::Pause(time)) => std::thread::sleep(*time),
        }
    }
}
