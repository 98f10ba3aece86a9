//! The keys that leave a process running and come back: a sequence among what is typed.

use crate::exit::CtlError;

/// The detach keys, and how far they have been pressed.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    sequence: Vec<u8>,
    pressed: usize,
}

/// What to do with what was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// For the process.
    pub(super) passed: Vec<u8>,
    /// Whether the keys were pressed; what was typed behind them is dropped.
    pub(super) is_detached: bool,
}

impl Keys {
    /// Reads keys such as `ctrl-p,ctrl-q` or `ctrl-]`. No keys at all: nothing detaches.
    /// # Errors
    /// [`CtlError::Usage`] for what is no key.
    pub(super) fn parse(text: &str) -> Result<Self, CtlError> {
        let keys = text.split(',').filter(|key| !key.is_empty());
        let sequence: Option<Vec<u8>> = keys.map(byte_of).collect();
        match sequence {
            Some(sequence) => Ok(Self { sequence, pressed: 0 }),
            None => {
                let what = format!("`{text}` are no detach keys");
                Err(CtlError::usage(what, "give keys such as ctrl-p,ctrl-q or ctrl-]"))
            }
        }
    }

    /// Takes what was typed. The beginning of the sequence is held back until it is clear that it
    /// is none.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Typed {
        let mut passed = Vec::new();
        for &byte in bytes {
            if self.sequence.get(self.pressed) == Some(&byte) {
                self.pressed += 1;
                if self.pressed == self.sequence.len() {
                    self.pressed = 0;
                    return Typed { passed, is_detached: true };
                }
                continue;
            }
            passed.extend(self.sequence.iter().take(self.pressed));
            self.pressed = usize::from(self.sequence.first() == Some(&byte));
            if self.pressed == 0 {
                passed.push(byte);
            }
        }
        Typed { passed, is_detached: false }
    }
}

/// The byte a terminal sends for a key.
fn byte_of(key: &str) -> Option<u8> {
    let one = |text: &str| match text.as_bytes() {
        [byte] if byte.is_ascii() => Some(*byte),
        _ => None,
    };
    let Some(letter) = key.strip_prefix("ctrl-") else { return one(key) };
    let letter = one(letter)?.to_ascii_uppercase();
    // `@` to `_`: what the key sends with five bits of the letter.
    (b'@'..=b'_').contains(&letter).then_some(letter & 0x1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(passed: &[u8], is_detached: bool) -> Typed {
        Typed { passed: passed.to_vec(), is_detached }
    }

    #[test]
    fn the_keys_detach_wherever_reads_fall_and_all_else_passes() {
        let mut keys = Keys::parse("ctrl-p,ctrl-q").unwrap();
        assert_eq!(keys.take(b"ab"), typed(b"ab", false));
        assert_eq!(keys.take(b"\x10"), typed(b"", false));
        assert_eq!(keys.take(b"x"), typed(b"\x10x", false));
        assert_eq!(keys.take(b"y\x10"), typed(b"y", false));
        assert_eq!(keys.take(b"\x11z"), typed(b"", true));
        assert_eq!(keys.take(b"\x10\x10\x11"), typed(b"\x10", true));
    }

    #[test]
    fn keys_are_named_as_people_do() {
        assert_eq!(Keys::parse("ctrl-]").unwrap().sequence, [0x1d]);
        assert_eq!(Keys::parse("ctrl-a,d").unwrap().sequence, [1, b'd']);
        assert_eq!(Keys::parse("ctrl-@").unwrap().sequence, [0]);
        assert!(Keys::parse("").unwrap().take(b"\x10\x11") == typed(b"\x10\x11", false));
        for text in ["ctrl-", "ctrl-pp", "f5", "ctrl-1"] {
            assert!(Keys::parse(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }
}
