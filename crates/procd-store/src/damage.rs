//! What was found damaged, for the report of a restore.

use std::path::Path;

use crate::error::StoreError;

/// One damaged thing and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file or folder, relative to the state folder.
    pub what: String,
    /// What is wrong and what was done, a sentence without a full stop.
    pub reason: String,
}

impl Damage {
    /// A damage at `path`; `trouble` is why it could not be set aside.
    pub(crate) fn new(
        folder: &Path,
        path: &Path,
        reason: &str,
        trouble: Option<StoreError>,
    ) -> Self {
        let what = path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let reason = match trouble {
            None => reason.to_owned(),
            Some(error) => format!("{reason}; {error}"),
        };
        Self { what, reason }
    }
}
