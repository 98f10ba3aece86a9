//! The configuration in force, and how it is read again while the daemon runs.
//!
//! What is read at the start only (containment, logs, what the daemon's own size depends on) stays
//! as it was and is named; everything else holds for what starts from then on. A configuration
//! that cannot be used changes nothing.

use std::sync::{Arc, PoisonError, RwLock};

use super::{Config, ConfigError};

/// Keys that are read at the start only.
const AT_START: &[&str] = &[
    "containment",
    "require_atomic",
    "cgroup_root",
    "no_new_privileges",
    "log.format",
    "log.level",
    "private_exit_ms",
    "limits.connections_max",
];

type Load = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;
type Apply = Box<dyn Fn(&Config) + Send + Sync>;

/// See the module.
pub struct Live {
    current: RwLock<Arc<Config>>,
    load: Load,
    apply: Apply,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("current", &self.current()).finish_non_exhaustive()
    }
}

/// What a reload came to.
#[derive(Debug, Clone)]
pub struct Reloaded {
    /// The configuration in force now.
    pub config: Arc<Config>,
    /// Keys whose values changed, and are in force.
    pub changed: Vec<String>,
    /// Keys whose values changed, and are read at the start only.
    pub at_next_start: Vec<String>,
}

impl Live {
    /// `config` is in force; `load` reads it again, `apply` hands a new one to who keeps a copy.
    #[must_use]
    pub fn new(config: Config, load: Load, apply: Apply) -> Self {
        Self { current: RwLock::new(Arc::new(config)), load, apply }
    }

    /// One that a reload leaves as it is.
    #[must_use]
    pub fn fixed(config: Config) -> Self {
        let again = config.clone();
        Self::new(config, Box::new(move || Ok(again.clone())), Box::new(|_| {}))
    }

    /// The configuration in force.
    #[must_use]
    pub fn current(&self) -> Arc<Config> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads it again. Blocks on a file.
    /// # Errors
    /// [`ConfigError`]; the old one stays in force then.
    pub fn reload(&self) -> Result<Reloaded, ConfigError> {
        let read = (self.load)()?;
        // Of two reloads at once the later reader wins as a whole.
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let (at_next_start, changed): (Vec<_>, Vec<_>) = current
            .differences(&read)
            .into_iter()
            .partition(|key| AT_START.contains(&key.as_str()));
        let config = Arc::new(read.keeping(&current, AT_START));
        *current = config.clone();
        drop(current);
        (self.apply)(&config);
        Ok(Reloaded { config, changed, at_next_start })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::places::Environment;
    use super::*;

    fn live(path: &Path) -> Live {
        let file = path.to_owned();
        let load = move || super::super::load(Some((&file, true)), &Environment::default(), &[]);
        Live::new(load().unwrap(), Box::new(load), Box::new(|_| {}))
    }

    #[test]
    fn a_reload_takes_what_may_change_and_names_what_may_not() {
        let path = std::env::temp_dir().join(format!("procd-live-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, "[limits]\ngrace_ms = 7000\n").unwrap();
        let live = live(&path);
        assert_eq!(live.current().limits.grace_ms, 7000);
        std::fs::write(&path, "log.level = \"debug\"\n[limits]\ngrace_ms = 8000\n").unwrap();
        let reloaded = live.reload().unwrap();
        assert_eq!(reloaded.changed, ["limits.grace_ms"]);
        assert_eq!(reloaded.at_next_start, ["log.level"]);
        assert_eq!(live.current().limits.grace_ms, 8000);
        assert_eq!(live.current().choices.log_level, super::super::LogLevel::Info);
        let again = live.reload().unwrap();
        assert_eq!((again.changed.len(), again.at_next_start.len()), (0, 1), "still to come");
        std::fs::write(&path, "[limits]\ngrace_mss = 1\n").unwrap();
        let error = live.reload().unwrap_err().to_string();
        assert!(error.contains("did you mean `limits.grace_ms`?"), "{error}");
        assert_eq!(live.current().limits.grace_ms, 8000, "the old one is kept");
        std::fs::remove_file(&path).unwrap();
    }
}
