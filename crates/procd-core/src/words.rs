//! One macro for closed sets of words: the enum, its text and its parser come from one list, so
//! that they cannot disagree.

/// A text that is not in a closed set of words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}`")]
pub struct UnknownWord {
    /// The set, such as "state".
    pub what: &'static str,
    /// The text that is not in it.
    pub word: String,
}

/// Declares an enum whose variants have one stable text each, with `ALL`, `as_str`, `Display` and
/// `FromStr`.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every member, in the order of its declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable text, as on the wire and on disk.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::state::UnknownWord;
            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::state::UnknownWord { what: $what, word: word.to_owned() }),
                }
            }
        }
    };
}
pub(crate) use words;
