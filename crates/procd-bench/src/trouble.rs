//! What can go wrong: the measure ends, the others go on.

use std::error::Error;
use std::io;

/// Why a measure could not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("cannot {what}")]
    Io { what: String, source: io::Error },
    #[error("the daemon refused {method}: {error}")]
    Refused { method: String, error: String },
    #[error("{0}")]
    Odd(String),
}

impl Trouble {
    pub(crate) fn odd(what: impl Into<String>) -> Self {
        Self::Odd(what.into())
    }

    /// Itself and what caused it, in one line.
    pub(crate) fn chain(&self) -> String {
        let source = self.source().map(|source| format!(": {source}"));
        format!("{self}{}", source.unwrap_or_default())
    }
}

/// Says what was tried where the system refused.
pub(crate) trait Tried<T> {
    fn tried(self, what: &str) -> Result<T, Trouble>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: &str) -> Result<T, Trouble> {
        self.map_err(|source| Trouble::Io { what: what.to_owned(), source: source.into() })
    }
}
