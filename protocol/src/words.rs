//! Closed sets of words: the enum, its text and its parser come from one list. Readers of results
//! wrap them in [`Open`], so that a word of a later version does not hurt them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A member of a closed set of words.
pub trait Word: Copy + Eq + fmt::Debug + 'static {
    /// Every member, in the order of its declaration.
    const ALL: &'static [Self];

    /// The stable text on the wire.
    fn as_str(self) -> &'static str;

    /// The member with this text.
    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|member| member.as_str() == word)
    }
}

/// A word as read from a reply: known, or one that a later version added.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Open<W> {
    /// A word of the set.
    Known(W),
    /// A word this build does not know.
    Unknown(String),
}

impl<W: Word> Open<W> {
    /// The text on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Unknown(text) => text,
        }
    }

    /// The word, if this build knows it.
    #[must_use]
    pub const fn known(&self) -> Option<W> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Unknown(_) => None,
        }
    }
}

impl<W> From<W> for Open<W> {
    fn from(word: W) -> Self {
        Self::Known(word)
    }
}

impl<W: Word> PartialEq<W> for Open<W> {
    fn eq(&self, other: &W) -> bool {
        self.known() == Some(*other)
    }
}

impl<W: Word> fmt::Display for Open<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<W: Word> Serialize for Open<W> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de, W: Word> Deserialize<'de> for Open<W> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(W::from_word(&text).map_or(Self::Unknown(text), Self::Known))
    }
}

/// Declares an enum whose variants have one stable text each; it reads and writes as that text.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $crate::words::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];
            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::words::Word::as_str(*self))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str($crate::words::Word::as_str(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::words::read_word(from, concat!($what, ": ", $($text, ", "),+))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::schema::words(&[$($text,)+])
            }
        }
    };
}
pub(crate) use words;

/// Reads a word of a closed set; `expected` says what could be there.
pub(crate) fn read_word<'de, W: Word, D: Deserializer<'de>>(
    from: D,
    expected: &'static str,
) -> Result<W, D::Error> {
    struct Visitor<W>(&'static str, std::marker::PhantomData<W>);
    impl<W: Word> serde::de::Visitor<'_> for Visitor<W> {
        type Value = W;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0.trim_end_matches(", "))
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<W, E> {
            W::from_word(text)
                .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }
    from.deserialize_str(Visitor(expected, std::marker::PhantomData))
}
