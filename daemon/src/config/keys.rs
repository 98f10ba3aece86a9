//! The keys of the configuration, and how a value of each is checked.

use std::path::PathBuf;
use std::time::Duration;

use procd_core::settings::Limits;
use toml::de::{DeArray, DeInteger, DeValue};

use super::{CgroupRoot, Choices, Containment, LogFormat, LogLevel};

/// `cgroup_root` for the group that the daemon is in.
pub(super) const OWN_GROUP: &str = "own";
/// The longest duration on the wire and in settings: 366 days.
const DURATION_MS_MAX: u64 = 366 * 24 * 3600 * 1000;
/// The largest integer: what every JSON reader holds exactly.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The keys outside `[limits]`, as written in the file with dots.
const PLAIN_KEYS: &[&str] = &[
    "containment",
    "require_atomic",
    "cgroup_root",
    "no_new_privileges",
    "child_umask",
    "child_nice",
    "child_oom_score_adj",
    "env.pass",
    "env.block",
    "env.allow",
    "shell",
    "log.format",
    "log.level",
    "private_exit_ms",
];

/// The tables of the file.
pub(super) const TABLES: &[&str] = &["limits", "env", "log"];

/// Every valid key with its dots.
pub(super) fn all() -> impl Iterator<Item = String> {
    let limits = Limits::KEYS.iter().map(|key| format!("limits.{key}"));
    PLAIN_KEYS.iter().map(|&key| key.to_owned()).chain(limits)
}

/// The valid key that is nearest to `wrong`, if one is near at all.
pub(super) fn nearest(wrong: &str) -> Option<String> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    all()
        .map(|key| {
            // A key in the wrong table is near by its last part.
            let whole = distance(wrong, &key);
            let part = distance(&last(wrong), &last(&key)) + 1;
            (whole.min(part), key)
        })
        .min()
        .filter(|(distance, key)| *distance <= key.len().max(3) / 2)
        .map(|(_, key)| key)
}

/// The Levenshtein distance of two short texts.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// What is wrong with a setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// No such key.
    UnknownKey,
    /// A value of another kind, or out of range.
    Value(String),
}

fn wrong<T>(text: &str) -> Result<T, Wrong> {
    Err(Wrong::Value(text.to_owned()))
}

/// Puts one setting in its place.
pub(super) fn apply(choices: &mut Choices, key: &str, value: &DeValue<'_>) -> Result<(), Wrong> {
    if let Some(limit) = key.strip_prefix("limits.") {
        let max = if limit.ends_with("_ms") { DURATION_MS_MAX } else { INTEGER_MAX };
        let number = integer(value, 0, max)?;
        return if choices.limits.set(limit, number) { Ok(()) } else { Err(Wrong::UnknownKey) };
    }
    match key {
        "containment" => choices.containment = word(value, Containment::WORDS)?,
        "require_atomic" => choices.require_atomic = boolean(value)?,
        "cgroup_root" => choices.cgroup_root = Some(group(value)?),
        "no_new_privileges" => choices.no_new_privileges = boolean(value)?,
        "child_umask" => choices.child_umask = integer(value, 0, 0o777)?,
        "child_nice" => choices.child_nice = integer(value, -20, 19)?,
        "child_oom_score_adj" => choices.child_oom_score_adj = Some(integer(value, -1000, 1000)?),
        "env.pass" => choices.env_pass = names(value)?,
        "env.block" => choices.env_block = names(value)?,
        "env.allow" => choices.env_allow = names(value)?,
        "shell" => choices.shell = Some(path(value)?),
        "log.format" => choices.log_format = word(value, LogFormat::WORDS)?,
        "log.level" => choices.log_level = word(value, LogLevel::WORDS)?,
        "private_exit_ms" => {
            // As everywhere in the configuration 0 means the default.
            let ms: u64 = integer(value, 0, DURATION_MS_MAX)?;
            if ms != 0 {
                choices.private_exit = Duration::from_millis(ms);
            }
        }
        _ => return Err(Wrong::UnknownKey),
    }
    Ok(())
}

fn boolean(value: &DeValue<'_>) -> Result<bool, Wrong> {
    value.as_bool().map_or_else(|| wrong("true or false is wanted"), Ok)
}

fn integer<T>(value: &DeValue<'_>, min: T, max: T) -> Result<T, Wrong>
where
    T: TryFrom<i128> + PartialOrd + std::fmt::Display + Copy,
{
    let Some(number) = value.as_integer().and_then(parse_integer) else {
        return wrong("an integer is wanted");
    };
    match T::try_from(number) {
        Ok(number) if number >= min && number <= max => Ok(number),
        Ok(_) | Err(_) => wrong(&format!("{number} is not within {min} and {max}")),
    }
}

fn parse_integer(value: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(value.as_str(), value.radix()).ok()
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, Wrong> {
    value.as_str().map_or_else(|| wrong("a text is wanted"), Ok)
}

fn path(value: &DeValue<'_>) -> Result<PathBuf, Wrong> {
    let path = PathBuf::from(text(value)?);
    if path.is_absolute() { Ok(path) } else { wrong("an absolute path is wanted") }
}

fn group(value: &DeValue<'_>) -> Result<CgroupRoot, Wrong> {
    match text(value)? {
        OWN_GROUP => Ok(CgroupRoot::Own),
        given if given.starts_with('/') => Ok(CgroupRoot::Folder(PathBuf::from(given))),
        _ => wrong(&format!("an absolute path or \"{OWN_GROUP}\" is wanted")),
    }
}

fn word<T: Copy>(value: &DeValue<'_>, words: &[(&'static str, T)]) -> Result<T, Wrong> {
    let given = text(value)?;
    if let Some((_, choice)) = words.iter().find(|(word, _)| *word == given) {
        return Ok(*choice);
    }
    let known: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    wrong(&format!("one of {} is wanted", known.join(", ")))
}

fn names(value: &DeValue<'_>) -> Result<Vec<String>, Wrong> {
    let wanted = "a list of names of variables is wanted";
    let list: &DeArray<'_> = value.as_array().map_or_else(|| wrong(wanted), Ok)?;
    let name = |item: &toml::Spanned<DeValue<'_>>| {
        let name = item.get_ref().as_str().unwrap_or_default();
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        if is_name { Ok(name.to_owned()) } else { wrong(wanted) }
    };
    list.iter().map(name).collect()
}
