//! Control sequences: where one begins and how far it reaches. Everything here looks forward from an introducer only.

/// A sequence counts only if its terminator begins within this many bytes of its introducer's first byte.
pub const SEQUENCE_BYTES_MAX: usize = 4096;

pub(crate) const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
/// First byte of every UTF-8 encoded C1 character.
pub(crate) const C1_LEAD: u8 = 0xc2;

/// How far what an introducer opened reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The bytes up to this index are removed: a whole sequence, or the introducer alone of one that does not count.
    Ends(usize),
    /// The bytes there are now do not tell yet.
    Open,
}

/// What the byte after ESC, or the C1 character that stands for both, opened.
enum Kind {
    /// CSI: parameters and intermediates up to a final byte.
    Control,
    /// OSC: anything up to BEL or ST.
    Command,
    /// DCS, SOS, PM, APC: anything up to ST.
    Text,
    /// ESC and intermediates, as in the choice of a charset, up to a final byte.
    Charset,
    /// Complete as it is.
    Whole,
}

const fn kind(byte: u8) -> Kind {
    match byte {
        b'[' => Kind::Control,
        b']' => Kind::Command,
        b'P' | b'X' | b'^' | b'_' => Kind::Text,
        0x20..=0x2f => Kind::Charset,
        _ => Kind::Whole,
    }
}

/// Whether an introducer begins at `at`: ESC, or an encoded C1 character. `None`: a C1 lead whose second byte is missing.
pub(crate) fn is_introducer(bytes: &[u8], at: usize) -> Option<bool> {
    match bytes.get(at) {
        Some(&ESC) => Some(true),
        Some(&C1_LEAD) => bytes.get(at + 1).map(|second| (0x80..=0x9f).contains(second)),
        Some(_) | None => Some(false),
    }
}

/// Measures what the introducer at `at` opened. The terminator ST needs no rule of its own: it is an introducer, and an
/// introducer ends whatever was open before it.
/// - `at_end`: nothing follows `bytes`, ever.
pub(crate) fn measure(bytes: &[u8], at: usize, at_end: bool) -> Extent {
    let (second, body) = match bytes.get(at) {
        Some(&ESC) => match bytes.get(at + 1) {
            Some(second @ 0x20..=0x7e) => (*second, at + 2),
            Some(_) => return Extent::Ends(at + 1),
            None if at_end => return Extent::Ends(at + 1),
            None => return Extent::Open,
        },
        // 0x80..=0x9f stand for ESC and 0x40..=0x5f.
        _ => (bytes.get(at + 1).map_or(0, |second| second.saturating_sub(0x40)), at + 2),
    };
    let limit = at + SEQUENCE_BYTES_MAX;
    let found = match kind(second) {
        Kind::Whole => return Extent::Ends(body),
        Kind::Control => to_final(bytes, body, limit, 0x20..=0x3f, 0x40..=0x7e),
        Kind::Charset => to_final(bytes, body, limit, 0x20..=0x2f, 0x30..=0x7e),
        Kind::Command => to_terminator(bytes, body, limit, true),
        Kind::Text => to_terminator(bytes, body, limit, false),
    };
    match found {
        Body::Ends(end) => Extent::Ends(end),
        Body::Fails => Extent::Ends(body),
        Body::Open if at_end => Extent::Ends(body),
        Body::Open => Extent::Open,
    }
}

enum Body {
    Ends(usize),
    Fails,
    Open,
}

type Class = std::ops::RangeInclusive<u8>;

fn to_final(bytes: &[u8], body: usize, limit: usize, middle: Class, last: Class) -> Body {
    for at in body..limit {
        match bytes.get(at) {
            Some(byte) if middle.contains(byte) => {}
            Some(byte) if last.contains(byte) => return Body::Ends(at + 1),
            Some(_) => return interrupted(bytes, at),
            None => return Body::Open,
        }
    }
    Body::Fails
}

/// A byte that fits no sequence: a new introducer takes what was open along, anything else leaves it as text.
fn interrupted(bytes: &[u8], at: usize) -> Body {
    match is_introducer(bytes, at) {
        Some(true) => Body::Ends(at),
        Some(false) => Body::Fails,
        None => Body::Open,
    }
}

fn to_terminator(bytes: &[u8], body: usize, limit: usize, bell: bool) -> Body {
    for at in body..limit {
        match bytes.get(at) {
            Some(&BEL) if bell => return Body::Ends(at + 1),
            Some(&(ESC | C1_LEAD)) => match is_introducer(bytes, at) {
                Some(true) => return Body::Ends(at),
                Some(false) => {}
                None => return Body::Open,
            },
            Some(_) => {}
            None => return Body::Open,
        }
    }
    Body::Fails
}
