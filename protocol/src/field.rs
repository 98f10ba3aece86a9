//! Strict reading of parameters: whatever is wrong is named by its field.

use serde::de::{DeserializeOwned, Deserializer};
use serde_json::value::RawValue;

use crate::limits::{DURATION_MS_MAX, INTEGER_MAX};

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldFault {
    /// There is no such field.
    Unknown,
    /// It has to be there.
    Missing,
    /// It is there twice.
    Duplicate,
    /// It is of another type or form.
    Mistyped,
    /// Its value is out of range, or does not go with another field.
    Refused,
    /// It is known, and a later version of the daemon brings it.
    Unsupported,
}

/// A parameter that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    /// The path of the field, such as `quotas.running_loop_max` or `argv[3]`.
    pub field: String,
    /// What is wrong.
    pub fault: FieldFault,
    /// One lower-case sentence that names the field.
    pub message: String,
}

impl FieldError {
    /// A field whose value is refused: `why` completes "`field` ...".
    #[must_use]
    pub fn refused(field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::of(field, FieldFault::Refused, why)
    }

    /// A field or method that a later version brings.
    #[must_use]
    pub fn unsupported(field: impl Into<String>) -> Self {
        Self::of(field, FieldFault::Unsupported, "is not supported yet")
    }

    pub(crate) fn of(
        field: impl Into<String>,
        fault: FieldFault,
        why: impl std::fmt::Display,
    ) -> Self {
        let field = shortened(field.into());
        let message = format!("`{field}` {why}");
        Self { field, fault, message }
    }
}

/// Characters of a field's path that are repeated to its sender: names may be as long as a frame.
const FIELD_CHARS_MAX: usize = 200;

/// A text cut to [`FIELD_CHARS_MAX`].
pub(crate) fn shortened(text: String) -> String {
    match text.char_indices().nth(FIELD_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The name given to the parameters as a whole.
const WHOLE: &str = "params";

/// Reads parameters by type alone: unknown, missing, duplicate and mistyped fields are refused.
/// Absent parameters are empty ones.
/// # Errors
/// [`FieldError`] naming the first field that is wrong.
pub fn parse<T: DeserializeOwned>(raw: Option<&RawValue>) -> Result<T, FieldError> {
    let text = raw.map_or("{}", RawValue::get);
    if !text.starts_with('{') {
        return Err(FieldError::of(WHOLE, FieldFault::Mistyped, "is not an object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut reader).map_err(explain_error)
}

/// The field an error of serde is about.
pub(crate) fn explain_error(error: serde_path_to_error::Error<serde_json::Error>) -> FieldError {
    let path = error.path().to_string();
    explain(&path, &error.into_inner().to_string())
}

/// Turns serde's sentence into a field and a fault. serde writes these sentences in one place and
/// the tests below hold them fast.
fn explain(path: &str, sentence: &str) -> FieldError {
    let path = if path == "." { "" } else { path };
    let sentence = sentence.rsplit_once(" at line ").map_or(sentence, |(text, _place)| text);
    let quoted = sentence.split_once('`').and_then(|(_, rest)| rest.split_once('`'));
    let named = quoted.map_or("", |(name, _)| name);
    if sentence.starts_with("missing field") {
        return FieldError::of(joined(path, named), FieldFault::Missing, "is missing");
    }
    if sentence.starts_with("duplicate field") {
        return FieldError::of(ended(path, named), FieldFault::Duplicate, "is there twice");
    }
    if sentence.starts_with("unknown field") {
        let why = sentence.split_once("expected ").map_or_else(
            || "is unknown; nothing is to be given here".to_owned(),
            |(_, known)| format!("is unknown; known here: {}", known.replace("one of ", "")),
        );
        let field = if path.is_empty() { named } else { path };
        return FieldError::of(field, FieldFault::Unknown, why);
    }
    let field = if path.is_empty() { WHOLE } else { path };
    FieldError::of(field, FieldFault::Mistyped, mismatch(sentence))
}

/// What is there and what was expected, without repeating a long or secret text.
fn mismatch(sentence: &str) -> String {
    let found = sentence.strip_prefix("invalid type: ");
    let found = found.or_else(|| sentence.strip_prefix("invalid value: "));
    let Some((found, expected)) = found.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return format!("is refused: {sentence}");
    };
    let found = if found.starts_with("string ") { "a text" } else { found };
    let expected = match expected {
        "u64" | "u32" | "u16" => "an integer from 0 on",
        "i64" => "an integer",
        "f64" => "a number",
        "a string" => "a text",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        rust if rust.starts_with("struct ") => "an object",
        words => words,
    };
    format!("is {found}, not {expected}")
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `path`, which ends in `name` already when the reader had come that far.
fn ended(path: &str, name: &str) -> String {
    let is_there = path == name || path.ends_with(&format!(".{name}"));
    if is_there { path.to_owned() } else { joined(path, name) }
}

/// Reads an optional field that is there: `null` is no value, so it is refused as a wrong type.
pub(crate) fn present<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(from).map(Some)
}

/// Declares the parameters of a method: fields that must be there and fields that may be. Unknown
/// fields and `null` are refused.
macro_rules! params {
    ($(#[$meta:meta])* $name:ident optional { $($optional:tt)* }) => {
        crate::field::params! { @declare $(#[$meta])* #[derive(Default)] $name {} { $($optional)* } }
    };
    ($(#[$meta:meta])* $name:ident required { $($required:tt)* } optional { $($optional:tt)* }) => {
        crate::field::params! { @declare $(#[$meta])* $name { $($required)* } { $($optional)* } }
    };
    (@declare $(#[$meta:meta])* $name:ident
        { $($(#[$rmeta:meta])* $required:ident: $rtype:ty,)* }
        { $($(#[$ometa:meta])* $optional:ident: $otype:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$rmeta])* pub $required: $rtype,)*
            $(
                $(#[$ometa])*
                #[serde(
                    default,
                    deserialize_with = "crate::field::present",
                    skip_serializing_if = "Option::is_none"
                )]
                pub $optional: Option<$otype>,
            )*
        }

        impl $name {
            /// The parameters that must be there.
            pub const REQUIRED: &'static [&'static str] = &[$(stringify!($required),)*];
            /// The parameters that may be there.
            pub const OPTIONAL: &'static [&'static str] = &[$(stringify!($optional),)*];
        }
    };
}
pub(crate) use params;

/// A check of one field.
pub(crate) type Check = Result<(), FieldError>;

/// A number within `min..=max`, when there is one.
pub(crate) fn within(field: &str, value: Option<u64>, min: u64, max: u64) -> Check {
    match value {
        Some(value) if value < min || value > max => {
            Err(FieldError::refused(field, format_args!("is {value}, not within {min}..={max}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// A duration in milliseconds of at least `min`.
pub(crate) fn duration(field: &str, value: Option<u64>, min: u64) -> Check {
    within(field, value, min, DURATION_MS_MAX)
}

/// A count or size of at least `min`.
pub(crate) fn number(field: &str, value: Option<u64>, min: u64) -> Check {
    within(field, value, min, INTEGER_MAX)
}

/// A text of `min..=max` characters without NUL.
pub(crate) fn text(field: &str, value: Option<&str>, min: u64, max: u64) -> Check {
    let Some(value) = value else { return Ok(()) };
    no_nul(field, value.as_bytes())?;
    let chars = count(value.chars().count());
    if chars < min || chars > max {
        let why = format_args!("has {chars} characters, not {min}..={max}");
        return Err(FieldError::refused(field, why));
    }
    Ok(())
}

/// A list of `min..=max` items.
pub(crate) fn items(field: &str, length: usize, min: u64, max: u64) -> Check {
    let length = count(length);
    if length < min || length > max {
        let why = format_args!("has {length} items, not {min}..={max}");
        return Err(FieldError::refused(field, why));
    }
    Ok(())
}

/// Bytes without NUL.
pub(crate) fn no_nul(field: &str, value: &[u8]) -> Check {
    if value.contains(&0) {
        return Err(FieldError::refused(field, "holds a NUL byte"));
    }
    Ok(())
}

/// A condition between fields.
pub(crate) fn require(holds: bool, field: &str, why: &str) -> Check {
    if holds { Ok(()) } else { Err(FieldError::refused(field, why)) }
}

pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
