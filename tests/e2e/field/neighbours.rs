//! Neighbours of the field cases: three more trials of each theme, which no report named. Source: docs/FIELD-CASES.md, second part.

mod around;
mod inside;
