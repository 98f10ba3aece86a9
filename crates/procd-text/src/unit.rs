//! Units: the smallest pieces of output that are rendered whole, and the fast way over plain text.

use crate::sequence::{self, Extent};

/// One unit, with the raw bytes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A character that is kept as it is.
    Kept(usize),
    /// What becomes one U+FFFD: an invalid byte, or a character that turns the order of others.
    Replaced(usize),
    /// What leaves no text: a control character, or a sequence.
    Removed(usize),
    /// Cut by the end of what is there now.
    Open,
}

/// What one character looks like, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Valid, of this many bytes.
    Valid(usize),
    /// The bytes there are may still become a character.
    Cut,
    /// Can become none.
    Invalid,
}

/// Reads the unit at `at`, which must be the first byte of one and inside `bytes`.
pub(crate) fn read(bytes: &[u8], at: usize, at_end: bool) -> Unit {
    let Some(&first) = bytes.get(at) else { return Unit::Open };
    if sequence::is_introducer(bytes, at) == Some(true) {
        return match sequence::measure(bytes, at, at_end) {
            Extent::Ends(end) => Unit::Removed(end - at),
            Extent::Open => Unit::Open,
        };
    }
    match first {
        _ if is_plain(first) => Unit::Kept(1),
        0..0x80 => Unit::Removed(1),
        0x80.. => match scalar(bytes, at) {
            Scalar::Valid(len) if turns_order(bytes, at) => Unit::Replaced(len),
            Scalar::Valid(len) => Unit::Kept(len),
            Scalar::Cut if !at_end => Unit::Open,
            Scalar::Cut | Scalar::Invalid => Unit::Replaced(1),
        },
    }
}

/// Looks at the character that begins at `at` with a byte beyond ASCII. Decides as early as the bytes allow.
pub(crate) fn scalar(bytes: &[u8], at: usize) -> Scalar {
    let Some(&first) = bytes.get(at) else { return Scalar::Cut };
    let (len, second) = match first {
        0xc2..=0xdf => (2, 0x80..=0xbf),
        0xe0 => (3, 0xa0..=0xbf),
        0xed => (3, 0x80..=0x9f),
        0xe1..=0xef => (3, 0x80..=0xbf),
        0xf0 => (4, 0x90..=0xbf),
        0xf1..=0xf3 => (4, 0x80..=0xbf),
        0xf4 => (4, 0x80..=0x8f),
        _ => return Scalar::Invalid,
    };
    for index in 1..len {
        let range = if index == 1 { second.clone() } else { 0x80..=0xbf };
        match bytes.get(at + index) {
            Some(byte) if range.contains(byte) => {}
            Some(_) => return Scalar::Invalid,
            None => return Scalar::Cut,
        }
    }
    Scalar::Valid(len)
}

/// Bidirectional overrides and isolates: U+202A..U+202E and U+2066..U+2069.
fn turns_order(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at..at + 3), Some([0xe2, 0x80, 0xaa..=0xae] | [0xe2, 0x81, 0xa6..=0xa9]))
}

const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e | b'\t' | b'\n' | b'\r')
}

/// Length of the stretch of plain ASCII at the start of `bytes`. After a few bytes, so that short stretches stay cheap, whole
/// blocks are looked at without a branch per byte.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    const FEW: usize = 8;
    let few = bytes.iter().take(FEW).take_while(|&&byte| is_plain(byte)).count();
    if few < FEW { few } else { FEW + plain_blocks(bytes.get(FEW..).unwrap_or_default()) }
}

fn plain_blocks(bytes: &[u8]) -> usize {
    const BLOCK: usize = 32;
    // `is_plain` said by comparisons of bytes alone: that compiles to a few vectors a block.
    let odd = |byte: u8| {
        let is_printable = u8::from(byte.wrapping_sub(0x20) < 0x5f);
        let is_space = u8::from(byte == b'\t') | u8::from(byte == b'\n') | u8::from(byte == b'\r');
        (is_printable | is_space) ^ 1
    };
    let is_odd = |block: &[u8; BLOCK]| block.iter().fold(0, |any, &byte| any | odd(byte)) != 0;
    let (whole, _) = bytes.as_chunks::<BLOCK>();
    let blocks = whole.iter().take_while(|block| !is_odd(block)).count();
    let sure = blocks * BLOCK;
    let rest = bytes.get(sure..).unwrap_or_default();
    sure + rest.iter().take_while(|&&byte| is_plain(byte)).count()
}
