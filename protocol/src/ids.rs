//! Names on the wire. None says anything about what it names.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::limits::INTEGER_MAX;

/// A text that is not the name it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}")]
pub struct IdError {
    expected: &'static str,
}

/// Declares the reading and writing of a type through its text.
macro_rules! as_text {
    ($name:ident, $expected:literal) => {
        impl $name {
            const EXPECTED: &'static str = $expected;
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.to_text())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(TextVisitor(std::marker::PhantomData))
            }
        }

        impl Text for $name {
            const EXPECTED: &'static str = Self::EXPECTED;
        }
    };
}

trait Text: FromStr {
    const EXPECTED: &'static str;
}

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: Text> serde::de::Visitor<'_> for TextVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        // The text itself is not repeated: it may be a secret or long.
        text.parse().map_err(|_refused| E::invalid_value(serde::de::Unexpected::Str(""), &self))
    }
}

/// The opaque name of a process: 16 random bytes as 22 characters of unpadded URL-safe base64
/// with zero spare bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId([u8; 16]);

impl ProcessId {
    /// Characters of the text form.
    pub const CHARS: usize = 22;

    /// The name with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

as_text!(ProcessId, "a handle: 22 characters of the url-safe base64 alphabet");

impl FromStr for ProcessId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0; 16];
        // The engine refuses spare bits that are not zero, so each handle has one text only.
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(16) if text.len() == Self::CHARS => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(IdError { expected: Self::EXPECTED }),
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessId({self})")
    }
}

/// Declares a UUID that is never nil, in its hyphenated form.
macro_rules! uuid_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID; `None` for the nil one.
            #[must_use]
            pub const fn new(uuid: Uuid) -> Option<Self> {
                if uuid.is_nil() { None } else { Some(Self(uuid)) }
            }

            /// The UUID.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            fn to_text(self) -> String {
                self.0.to_string()
            }
        }

        as_text!($name, "a hyphenated uuid that is not nil");

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let hyphenated = text.len() == uuid::fmt::Hyphenated::LENGTH;
                let parsed = Uuid::try_parse(text).ok().filter(|_| hyphenated);
                parsed.and_then(Self::new).ok_or(IdError { expected: Self::EXPECTED })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// One agent's lifetime.
    SessionId
}
uuid_id! {
    /// One line of work inside a session.
    LoopId
}
uuid_id! {
    /// The tool execution that created a process: recorded for audit, never compared.
    OriginId
}

/// Authority over a session: 32 bytes as 43 characters of unpadded URL-safe base64. Never shown
/// by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// The key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text form. A secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

as_text!(SessionKey, "a session key: 32 bytes in unpadded url-safe base64");

impl FromStr for SessionKey {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0; 32];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(32) => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(IdError { expected: Self::EXPECTED }),
        }
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// A byte string: standard base64 with padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Base64Bytes(pub Vec<u8>);

impl Base64Bytes {
    fn to_text(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

as_text!(Base64Bytes, "standard base64");

impl FromStr for Base64Bytes {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        STANDARD.decode(text).map(Self).map_err(|_bad| IdError { expected: Self::EXPECTED })
    }
}

/// The client's number of a request: an integer within 2^53-1 either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(i64);

impl RequestId {
    /// The id with this number; `None` beyond 2^53-1.
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        if number.unsigned_abs() <= INTEGER_MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        Self::new(number).ok_or_else(|| {
            D::Error::invalid_value(Unexpected::Signed(number), &"an integer within 2^53-1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_one_text_only() {
        let id = ProcessId::from_bytes([7; 16]);
        assert_eq!(id.to_string().parse::<ProcessId>(), Ok(id));
        for bad in ["", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+"]
        {
            assert!(bad.parse::<ProcessId>().is_err(), "{bad}");
        }
        assert!("AAAAAAAAAAAAAAAAAAAAAAA=".parse::<ProcessId>().is_err());
    }

    #[test]
    fn nil_and_unhyphenated_uuids_name_nothing() {
        assert!("00000000-0000-0000-0000-000000000000".parse::<SessionId>().is_err());
        assert!("0123456789abcdef0123456789abcdef".parse::<LoopId>().is_err());
        assert!("01234567-89ab-cdef-0123-456789abcdef".parse::<OriginId>().is_ok());
    }

    #[test]
    fn a_key_round_trips_and_hides_itself() {
        let key = SessionKey::from_bytes([9; 32]);
        assert_eq!(key.to_text().parse::<SessionKey>(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "SessionKey(..)");
        assert!(format!("{}=", key.to_text()).parse::<SessionKey>().is_err());
    }

    #[test]
    fn an_id_stays_within_53_bits() {
        assert!(serde_json::from_str::<RequestId>("9007199254740991").is_ok());
        assert!(serde_json::from_str::<RequestId>("-9007199254740991").is_ok());
        for bad in ["9007199254740992", "1.0", "\"1\"", "null", "18446744073709551615"] {
            assert!(serde_json::from_str::<RequestId>(bad).is_err(), "{bad}");
        }
    }
}
