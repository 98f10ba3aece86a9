//! The rules a record obeys, alone and against the stored one. Source: spec, lifecycle, *Manifest*.

/// A broken rule, with values of ids and numbers only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}` is broken by `{field}`: stored {stored}, refused {refused}")]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// The field of the record.
    pub field: &'static str,
    /// The stored value; `-` where there is none.
    pub stored: String,
    /// The refused value.
    pub refused: String,
}
