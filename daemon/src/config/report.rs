//! The effective configuration for people: each key with its value as it is written in the file,
//! where it came from, and what it was lowered to fit.

use procd_core::settings::Limits;

use super::{CgroupRoot, Choices, Config, ConfigError, Containment, LogFormat, LogLevel, keys};

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key with its dots.
    pub key: String,
    /// The value; absent = none.
    pub value: Option<String>,
    /// `default`, or where it was given.
    pub origin: String,
    /// The limit it was lowered to fit.
    pub lowered_by: Option<String>,
}

impl Config {
    /// Every setting, in the order of the example.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let of_key = |key: String| {
            let origin = self.origins.get(&key).map_or("default".to_owned(), ToString::to_string);
            let limit = key.strip_prefix("limits.");
            let lowered = self.lowered.iter().find(|lowered| Some(lowered.key) == limit);
            let lowered_by = lowered.map(|lowered| format!("limits.{}", lowered.because));
            Setting { value: self.value(&key), origin, lowered_by, key }
        };
        keys::all().map(of_key).collect()
    }

    /// The file's text of the effective configuration, a key a line, each with its origin.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for Setting { key, value, origin, lowered_by } in self.settings() {
            let lowered = lowered_by.map(|by| format!(", lowered to fit {by}")).unwrap_or_default();
            let line = match value {
                Some(value) => format!("{key} = {value}  # {origin}{lowered}"),
                None => format!("#{key} is not set"),
            };
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// Keys whose effective values differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        keys::all().filter(|key| self.value(key) != other.value(key)).collect()
    }

    /// This one with the values of `old` for `kept`.
    pub(super) fn keeping(mut self, old: &Self, kept: &[&str]) -> Self {
        let new = std::mem::replace(&mut self.choices, old.choices.clone());
        let live = Choices {
            containment: old.choices.containment,
            require_atomic: old.choices.require_atomic,
            cgroup_root: old.choices.cgroup_root.clone(),
            no_new_privileges: old.choices.no_new_privileges,
            log_format: old.choices.log_format,
            log_level: old.choices.log_level,
            private_exit: old.choices.private_exit,
            ..new
        };
        self.choices = live;
        self.limits.connections_max = old.limits.connections_max;
        for &key in kept {
            match old.origins.get(key) {
                Some(origin) => drop(self.origins.insert(key.to_owned(), origin.clone())),
                None => drop(self.origins.remove(key)),
            }
        }
        self
    }

    /// The effective value of a key as the file has it.
    fn value(&self, key: &str) -> Option<String> {
        if let Some(limit) = key.strip_prefix("limits.") {
            return self.limits.get(limit).map(|value| value.to_string());
        }
        let choices = &self.choices;
        let path = |path: &Option<std::path::PathBuf>| {
            path.as_ref().map(|p| quoted(&p.display().to_string()))
        };
        match key {
            "containment" => word(Containment::WORDS, choices.containment),
            "require_atomic" => Some(choices.require_atomic.to_string()),
            "cgroup_root" => choices.cgroup_root.as_ref().map(|root| match root {
                CgroupRoot::Own => quoted(keys::OWN_GROUP),
                CgroupRoot::Folder(folder) => quoted(&folder.display().to_string()),
            }),
            "no_new_privileges" => Some(choices.no_new_privileges.to_string()),
            "child_umask" => Some(format!("0o{:03o}", choices.child_umask)),
            "child_nice" => Some(choices.child_nice.to_string()),
            "child_oom_score_adj" => choices.child_oom_score_adj.map(|value| value.to_string()),
            "env.pass" => Some(list(&choices.env_pass)),
            "env.block" => Some(list(&choices.env_block)),
            "env.allow" => Some(list(&choices.env_allow)),
            "shell" => path(&choices.shell),
            "log.format" => word(LogFormat::WORDS, choices.log_format),
            "log.level" => word(LogLevel::WORDS, choices.log_level),
            "private_exit_ms" => Some(choices.private_exit.as_millis().to_string()),
            _ => None,
        }
    }
}

impl ConfigError {
    /// The key that is wrong, if it is one.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        match self {
            Self::Read { .. } | Self::Syntax { .. } | Self::Flag { .. } => None,
            Self::UnknownKey { key, .. } | Self::Value { key, .. } => Some(key.clone()),
            Self::Contradiction { contradiction, .. } => {
                Some(format!("limits.{}", contradiction.narrower))
            }
            Self::Conflict { first, .. } => Some((*first).to_owned()),
        }
    }
}

impl From<Limits> for Config {
    /// These limits, and the defaults for the rest.
    fn from(limits: Limits) -> Self {
        Self {
            limits,
            lowered: Vec::new(),
            choices: Choices::default(),
            origins: std::collections::BTreeMap::new(),
        }
    }
}

fn word<T: PartialEq>(words: &[(&str, T)], choice: T) -> Option<String> {
    words.iter().find(|(_, known)| *known == choice).map(|(word, _)| quoted(word))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list(items: &[String]) -> String {
    let items: Vec<_> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::places::Environment;
    use super::*;

    #[test]
    fn every_key_tells_its_value_and_where_it_came_from() {
        let flags = ["limits.running_daemon_max=4".to_owned(), "shell=/bin/dash".to_owned()];
        let config =
            super::super::load(None::<(&Path, bool)>, &Environment::default(), &flags).unwrap();
        let settings = config.settings();
        let find = |key: &str| settings.iter().find(|one| one.key == key).unwrap();
        assert_eq!(settings.len(), keys::all().count());
        assert_eq!(find("shell").value.as_deref(), Some("\"/bin/dash\""));
        assert_eq!(find("shell").origin, "flag --set");
        assert_eq!(find("containment").value.as_deref(), Some("\"auto\""));
        assert_eq!(find("containment").origin, "default");
        let lowered = find("limits.running_loop_max");
        assert_eq!(lowered.value.as_deref(), Some("4"));
        assert_eq!(lowered.lowered_by.as_deref(), Some("limits.running_session_max"));
        let unset = ["cgroup_root", "child_oom_score_adj"];
        for one in &settings {
            assert_eq!(one.value.is_none(), unset.contains(&one.key.as_str()), "{}", one.key);
        }
        assert!(config.to_text().contains("child_umask = 0o022  # default\n"));
    }
}
