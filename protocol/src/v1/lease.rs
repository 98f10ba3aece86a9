//! lease/acquire, lease/release.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::daemon::Empty;
use super::{Method, Params};
use crate::field::{FieldError, duration, items, no_nul, params, require};
use crate::limits::PATHS_MAX;
use crate::words::words;

words! {
    /// What a client does in a workspace.
    LeaseKind, "a kind of lease" {
        /// It edits.
        StructuredWrite = "structured_write",
        /// It copies: nothing may change meanwhile.
        Snapshot = "snapshot",
    }
}

params! {
    /// Parameters of `lease/acquire`.
    LeaseAcquireParams required {
        /// The workspace, an absolute folder.
        root: String,
        /// What for.
        kind: LeaseKind,
    } optional {
        /// At most 256 paths in it; absent = all of it.
        paths: Vec<String>,
        /// How long to wait for it; default 0.
        timeout_ms: u64,
    }
}

impl Params for LeaseAcquireParams {
    const METHOD: Method = Method::LeaseAcquire;
    type Result = LeaseAcquireResult;

    fn validate(&self) -> Result<(), FieldError> {
        no_nul("root", self.root.as_bytes())?;
        require(self.root.starts_with('/'), "root", "is not an absolute folder")?;
        let paths = self.paths.as_deref().unwrap_or_default();
        items("paths", paths.len(), 0, PATHS_MAX)?;
        for (index, path) in paths.iter().enumerate() {
            no_nul(&format!("paths[{index}]"), path.as_bytes())?;
        }
        duration("timeout_ms", self.timeout_ms, 0)
    }
}

/// Result of `lease/acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseAcquireResult {
    /// Its name, known to this owner only.
    pub lease_id: Uuid,
}

params! {
    /// Parameters of `lease/release`.
    LeaseReleaseParams required {
        /// The lease.
        lease_id: Uuid,
    } optional {}
}

impl Params for LeaseReleaseParams {
    const METHOD: Method = Method::LeaseRelease;
    type Result = Empty;

    fn validate(&self) -> Result<(), FieldError> {
        Ok(())
    }
}
