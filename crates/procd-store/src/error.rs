//! What can go wrong in the state folder, by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::rules::Violation;

/// What went wrong in the state folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the folder: wait for it, or leave.
    #[error("state folder `{}` is held by {}", path.display(), holder_text(*holder))]
    Locked {
        /// The state folder.
        path: PathBuf,
        /// The pid written by the holder: a hint, never signalled.
        holder: Option<i32>,
    },
    /// The folder is not safe to use: somebody has to change it.
    #[error("`{}` cannot be used: {what}", path.display())]
    Unsafe {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong and how it should be, as a sentence without a full stop.
        what: String,
    },
    /// A newer build wrote it: left untouched.
    #[error("`{}` has format {found}; this build knows formats up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version this build knows.
        known: u64,
    },
    /// The bytes on disk are not what was written: set it aside.
    #[error("`{}` is damaged: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The spool's bytes are not what was written: `spool_corrupt`.
    #[error("spool `{}` is damaged: {what}", path.display())]
    SpoolCorrupt {
        /// The file of the spool.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A read beyond the end: the caller's mistake.
    #[error("cursor {cursor} is beyond the total of {total} bytes")]
    CursorAhead {
        /// The cursor asked for.
        cursor: u64,
        /// Bytes ever written.
        total: u64,
    },
    /// A record that breaks the rules: a bug, refused.
    #[error("record refused")]
    Manifest {
        /// The rule and the field.
        source: Violation,
    },
    /// The same id with another payload: a bug or a forgery, refused (`idempotency_collision`).
    #[error("id `{id}` is already in the log with another payload")]
    Collision {
        /// The id.
        id: String,
    },
    /// A value that cannot be written as JSON.
    #[error("cannot encode {what}")]
    Encode {
        /// What was to be written.
        what: &'static str,
        /// The reason.
        source: serde_json::Error,
    },
    /// The system refused an operation.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// The operation, such as "open" or "sync".
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl StoreError {
    /// An error of the system, with what was tried and where.
    pub fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), source: source.into() }
    }

    /// Damaged bytes in a file.
    pub fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into() }
    }

    /// Damaged bytes in a spool's file.
    pub fn spool_corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::SpoolCorrupt { path: path.to_owned(), what: what.into() }
    }

    /// The errno of a call that failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let source = std::error::Error::source(self)?.downcast_ref::<io::Error>()?;
        source.raw_os_error()
    }

    /// Whether it says that there is no room: `ENOSPC`, `EDQUOT` or `EFBIG`.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            ),
            Self::Locked { .. }
            | Self::Unsafe { .. }
            | Self::Newer { .. }
            | Self::Corrupt { .. }
            | Self::SpoolCorrupt { .. }
            | Self::CursorAhead { .. }
            | Self::Manifest { .. }
            | Self::Collision { .. }
            | Self::Encode { .. } => false,
        }
    }
}

fn holder_text(holder: Option<i32>) -> String {
    holder.map_or_else(|| "another process".to_owned(), |pid| format!("pid {pid}"))
}
