//! Names of sessions, loops, origins and processes. None says anything about what it names.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// Bytes of a handle before its text form.
pub const HANDLE_BYTES: usize = 16;
/// Characters of a handle: unpadded URL-safe base64 of 16 bytes.
pub const HANDLE_CHARS: usize = 22;

/// An id that is not well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not 22 characters of the URL-safe alphabet with zero spare bits.
    #[error("a handle is 22 characters of the url-safe base64 alphabet")]
    Handle,
    /// Not the text of a UUID.
    #[error("not a uuid")]
    Uuid,
    /// The nil UUID names nothing.
    #[error("the nil uuid names nothing")]
    Nil,
}

/// The opaque name of a process: 16 random bytes, shown as 22 characters of unpadded URL-safe
/// base64. Says nothing about pid, path, owner or time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle([u8; HANDLE_BYTES]);

impl Handle {
    /// A handle from 16 bytes of the caller's random source.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; HANDLE_BYTES]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HANDLE_BYTES] {
        &self.0
    }

    /// The first 6 characters: enough to tell processes apart in a log, no authority.
    #[must_use]
    pub fn shortened(&self) -> String {
        let mut text = self.to_string();
        text.truncate(6);
        text
    }
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({}..)", self.shortened())
    }
}

impl std::str::FromStr for Handle {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.len() != HANDLE_CHARS {
            return Err(IdError::Handle);
        }
        let mut bytes = [0; HANDLE_BYTES];
        // The engine refuses spare bits that are not zero, so each handle has one text only.
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(HANDLE_BYTES) => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(IdError::Handle),
        }
    }
}

/// Declares a UUID newtype that is never nil.
macro_rules! uuid_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID.
            /// # Errors
            /// [`IdError::Nil`] for the nil UUID.
            pub const fn new(uuid: Uuid) -> Result<Self, IdError> {
                if uuid.is_nil() { Err(IdError::Nil) } else { Ok(Self(uuid)) }
            }

            /// The UUID itself.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                // Only the hyphenated form, so that each id has one text.
                if text.len() != uuid::fmt::Hyphenated::LENGTH {
                    return Err(IdError::Uuid);
                }
                Uuid::try_parse(text).map_or(Err(IdError::Uuid), Self::new)
            }
        }
    };
}

uuid_id! {
    /// One agent's lifetime. Always procd's own session, never a POSIX one.
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

/// The only authority over a process: exactly a session and a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The session.
    pub session: SessionId,
    /// The loop inside it.
    pub loop_id: LoopId,
}
