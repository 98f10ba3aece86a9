//! Changes inputs.

use crate::INPUT_BYTES_MAX;

/// Values at which readers of numbers stumble.
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1e400",
    b"9007199254740991",
    b"9007199254740992",
    b"18446744073709551616",
    b"0.1",
    b"-0",
    b"1e-400",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x80\x00\x00",
    b"\x00\x80\x00\x01",
];

/// Makes new inputs of old ones.
#[derive(Debug)]
pub(crate) struct Mutator {
    state: u64,
    words: &'static [&'static str],
}

impl Mutator {
    pub(crate) fn new(seed: u64, words: &'static [&'static str]) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, words }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `end`; 0 when there is none.
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next() & 0xff).unwrap_or(0)
    }

    pub(crate) fn is_heads(&mut self) -> bool {
        self.next() & 1 == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &'a [&'a T]) -> Option<&'a T> {
        let at = self.below(from.len());
        from.get(at).copied()
    }

    /// One of the corpus, changed in a few places.
    pub(crate) fn change(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let at = self.below(corpus.len());
        let mut input = corpus.get(at).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            self.change_once(&mut input, corpus);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change_once(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len());
        let to = (at + 1 + self.below(16)).min(input.len());
        match self.below(10) {
            0 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= bit;
                }
            }
            1 => {
                let value = self.byte();
                if let Some(byte) = input.get_mut(at) {
                    *byte = value;
                }
            }
            2 => drop(input.drain(at.min(to)..to)),
            3 => {
                let piece = input.get(at..to).unwrap_or_default().to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let word = self.pick(self.words).unwrap_or_default().as_bytes();
                input.splice(at..at, word.iter().copied());
            }
            5 => {
                let word = self.pick(self.words).unwrap_or_default().as_bytes();
                input.splice(at.min(to)..to, word.iter().copied());
            }
            6 => {
                let number = self.pick(NUMBERS).unwrap_or_default();
                input.splice(at.min(to)..to, number.iter().copied());
            }
            7 => input.truncate(at),
            8 => {
                let value = self.byte();
                input.insert(at, value);
            }
            _ => {
                let other = self.below(corpus.len());
                let other = corpus.get(other).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len());
                input.truncate(at);
                input.extend(other.get(from..).unwrap_or_default());
            }
        }
    }
}
